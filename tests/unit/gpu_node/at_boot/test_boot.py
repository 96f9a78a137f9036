# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

import os
from pathlib import Path

import pytest
from gpu_nodes import Node
from messages import Mentions, raises

from ansible_collections.sailloft.fleet.plugins.module_utils.gpu_node.at_boot import boot, gpus, rings, service
from ansible_collections.sailloft.fleet.plugins.module_utils.host.at_boot import unit
from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.errors import RequestError

# The format is that of ethtool.c, do_gring; the sizes are made up.
RINGS = """Ring parameters for p0:
Pre-set maximums:
RX:\t\t{most}
RX Mini:\tn/a
RX Jumbo:\tn/a
TX:\t\t8192
Current hardware settings:
RX:\t\t{rx}
RX Mini:\tn/a
RX Jumbo:\tn/a
TX:\t\t{tx}
"""
GPU = "00000000:1B:00.0"


class Loaded(Node):
    """A node with one GPU, NICs and a running driver, on which nvidia-smi and ethtool change settings."""

    def __init__(self, root, most=8192):
        super().__init__(root)
        self.mig, self.most, self.sizes, self.busy = ["Disabled", "Disabled"], most, {"RX": 1024, "TX": 1024}, False
        self.write("/proc/driver/nvidia/version", "NVRM version: x  595.91.07  x\n")
        self.write("/sys/module/nvidia/version", "595.91.07\n")
        for name, vendor in (("p0", "0x15b3"), ("eno1", "0x8086"), ("p0hpf", "0x15b3")):
            self.write(f"/sys/class/net/{name}/device/vendor", vendor + "\n")
        self.write("/sys/class/net/p0/phys_port_name", "p0\n")
        self.write("/sys/class/net/p0hpf/phys_port_name", "pf0vf0\n")
        for name in boot.ARP:
            self.write("/proc/sys/" + name.replace(".", "/"), "0\n")

    def run(self, argv, stdin=None, timeout_s=None):
        if argv[0] == "nvidia-smi":
            self.ran.append(argv)
            if argv == gpus.QUERY:
                return f"{GPU}, {self.mig[0]}, {self.mig[1]}\n"
            assert argv[1:3] == ["-i", GPU]
            if argv[3] == "-mig":
                self.mig = ["Enabled" if self.busy else "Disabled", "Disabled"]
            return ""
        if argv[:2] == ["ethtool", "-g"]:
            return RINGS.format(most=self.most, rx=self.sizes["RX"], tx=self.sizes["TX"])
        if argv[:2] == ["ethtool", "-G"]:
            self.ran.append(argv)
            assert argv[2] == "p0"
            self.sizes.update({ring.upper(): int(size) for ring, size in zip(argv[3::2], argv[4::2])})
            return ""
        return super().run(argv, stdin, timeout_s)


def changes(node):
    return [argv for argv in node.ran if argv != gpus.QUERY]


SETTINGS = {"mig_off": True, "clocks_mhz": [1980, 1980], "ring_entries": 8192, "rails_on_one_subnet": True}


def test_check_mode_predicts_the_changes_and_a_second_run_changes_nothing(tmp_path):
    node = Loaded(tmp_path)
    node.mig = ["Enabled", "Enabled"]
    settings = boot.read(SETTINGS)
    predicted = boot.ensure(node, settings, check=True)
    assert changes(node) == []
    done = boot.ensure(node, settings)
    assert (done.before, done.after) == (predicted.before, predicted.after)
    assert set(done.after) == {"p0 RX ring", "p0 TX ring", f"{GPU} MIG", "locked clocks, MHz", *boot.ARP}
    assert node.sizes == {"RX": 8192, "TX": 8192}
    assert node.mig == ["Disabled", "Disabled"]
    assert ["nvidia-smi", "-i", GPU, "--lock-gpu-clocks=1980,1980"] in node.ran
    assert node.read("/proc/sys/net/ipv4/conf/all/arp_ignore") == "2"
    assert not boot.ensure(node, settings).changed


def test_a_nic_with_smaller_rings_gets_its_maximum_sizes(tmp_path):
    node = Loaded(tmp_path, most=4096)
    assert boot.ensure(node, boot.read(SETTINGS)).facts["rings"] == {"p0": {"RX": 4096, "TX": 8192}}
    assert not boot.ensure(node, boot.read(SETTINGS)).changed


def test_mig_of_a_busy_gpu_is_pending_and_not_changed_again(tmp_path):
    node = Loaded(tmp_path)
    node.mig, node.busy = ["Enabled", "Enabled"], True
    first = boot.ensure(node, boot.read({}))
    assert first.changed
    assert f"MIG of GPU {GPU} is turned off" in first.pending[0]
    second = boot.ensure(node, boot.read({}))
    assert not second.changed
    assert second.pending == first.pending


def test_a_gpu_without_mig_is_not_changed(tmp_path):
    node = Loaded(tmp_path)
    node.mig = ["[N/A]", "[N/A]"]
    assert not boot.ensure(node, boot.read({})).changed


def test_clocks_are_locked_again_after_the_driver_is_reloaded(tmp_path):
    node = Loaded(tmp_path)
    settings = boot.read({"clocks_mhz": [1000, 1980]})
    assert boot.ensure(node, settings).changed
    assert changes(node) == [["nvidia-smi", "-i", GPU, "--lock-gpu-clocks=1000,1980"]]
    assert not boot.ensure(node, settings).changed
    os.rename(node.path("/sys/module/nvidia"), node.path("/sys/module/former"))
    node.write("/sys/module/nvidia/version", "595.91.07\n")
    assert boot.ensure(node, settings).before == {"locked clocks, MHz": None}


def test_driver_settings_are_pending_if_the_driver_is_not_loaded(tmp_path):
    done = boot.ensure(Node(tmp_path), boot.read({"clocks_mhz": [1, 2]}))
    assert not done.changed
    assert done.pending == [gpus.NOT_LOADED]
    assert not done.failed


def test_a_failed_setting_does_not_prevent_other_settings(tmp_path):
    node = Loaded(tmp_path)
    node.most = "none"
    done = boot.ensure(node, boot.read(SETTINGS))
    assert "locked clocks, MHz" in done.after
    node.answers = {}
    broken = Node(tmp_path / "other")
    broken.write("/sys/class/net/p0/device/vendor", "0x15b3\n")
    assert "ethtool is not installed" in boot.ensure(broken, boot.read({"ring_entries": 1})).failed


def test_settings_are_retried_at_boot_until_the_driver_is_loaded(tmp_path):
    node = Loaded(tmp_path)
    os.rename(node.path("/proc/driver"), node.path("/proc/late"))
    waits = []

    def wait(seconds):
        waits.append(seconds)
        if len(waits) == 3:
            os.rename(node.path("/proc/late"), node.path("/proc/driver"))

    messages = []
    assert boot.apply(node, SETTINGS, messages.append, wait) == []
    assert len(waits) == 3
    assert "locked clocks, MHz: None -> [1980, 1980]" in messages


def test_a_failure_at_boot_is_reported_after_a_minute(tmp_path):
    node = Node(tmp_path)
    node.write("/sys/class/net/p0/device/vendor", "0x15b3\n")
    waited = []
    assert "ethtool is not installed" in boot.apply(node, {"ring_entries": 1}, print, waited.append)[0]
    assert sum(waited) == 60


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"clocks_mhz": [1980]}, Mentions("range")),
        ({"clocks_mhz": [1980, 1000]}, Mentions("range")),
        ({"clocks_mhz": [0, 1000]}, Mentions("0", "element")),
        ({"ring_entries": -1}, Mentions("-1", "valid")),
        ({"rings": 1}, Mentions("rings")),
    ],
)
def test_invalid_settings_are_refused(settings, why):
    with pytest.raises(RequestError) as error:
        boot.read(settings)
    assert str(error.value) == why


def test_default_settings_turn_mig_off_and_sizes_and_clocks_are_bounded():
    assert boot.read({}) == boot.BootSettings(True, [], 0, False)
    assert boot.read({"ring_entries": 0, "clocks_mhz": []}) == boot.BootSettings(True, [], 0, False)
    most = {"ring_entries": 65536, "clocks_mhz": [1, 10000]}
    assert boot.read(most) == boot.BootSettings(True, [1, 10000], 65536, False)
    for beyond in ({"ring_entries": 65537}, {"clocks_mhz": [1, 10001]}):
        with pytest.raises(RequestError, match="is not valid"):
            boot.read(beyond)


def test_the_unit_runs_the_saved_settings_after_the_persistence_daemon():
    texts = unit.files(service.SERVICE, SETTINGS, "/usr/bin/python3")
    text = texts[service.SERVICE.unit_file].decode()
    assert "ExecStart=/usr/bin/python3 /usr/lib/sailloft/gpu_node.pyz /etc/sailloft/gpu_node.json\n" in text
    assert "nvidia-persistenced.service" in text.split("After=")[1].split("\n")[0]


def test_ethtool_output_without_ring_sizes_is_an_error():
    with raises(rings.HostError, "ethtool -g p0", "ring sizes"):
        rings.read("netlink error: Operation not supported\n", "p0")


def test_rings_are_set_except_in_check_mode(tmp_path):
    node = Loaded(tmp_path)
    assert rings.ensure(node, 4096, check=True).changed
    assert node.sizes == {"RX": 1024, "TX": 1024}
    rings.ensure(node, 4096)
    assert node.sizes == {"RX": 4096, "TX": 4096}


def test_mig_of_an_idle_gpu_is_turned_off_immediately(tmp_path):
    node = Loaded(tmp_path)
    node.mig = ["Enabled", "Enabled"]
    done = boot.ensure(node, boot.read({}))
    assert done.after == {f"{GPU} MIG": "Disabled"}
    assert done.pending == []


def test_a_boot_without_saved_settings_fails_with_the_next_step(tmp_path, capsys):
    missing = str(tmp_path / "gpu_node.json")
    assert boot.main([missing]) == 1
    assert capsys.readouterr().err == f"there is no {missing}: run the role gpu_node again\n"


def test_saved_settings_are_applied_at_boot(tmp_path, capsys, monkeypatch):
    node = Loaded(tmp_path)
    node.mig = ["Enabled", "Enabled"]
    node.write("/etc/sailloft/gpu_node.json", "{}")
    monkeypatch.setattr(boot, "System", lambda: node)
    assert boot.main(["/etc/sailloft/gpu_node.json"]) == 0
    assert node.mig == ["Disabled", "Disabled"]
    assert capsys.readouterr() == (f"{GPU} MIG: Enabled -> Disabled\n", "")


def test_a_failure_at_boot_ends_with_exit_status_1_after_30_attempts(tmp_path, capsys, monkeypatch):
    node = Node(tmp_path)
    node.write("/sys/class/net/p0/device/vendor", "0x15b3\n")
    node.write("/etc/sailloft/gpu_node.json", '{"ring_entries": 1}')
    waits = []
    monkeypatch.setattr(boot, "System", lambda: node)
    monkeypatch.setattr(boot.apply, "__defaults__", (waits.append,))
    assert boot.main(["/etc/sailloft/gpu_node.json"]) == 1
    assert waits == [2] * 30
    assert capsys.readouterr() == (
        gpus.NOT_LOADED + "\n",
        "ethtool is not installed on this host; install its package first\n",
    )


def test_settings_that_fail_are_named_together(tmp_path):
    node = Node(tmp_path)
    node.write("/proc/driver/nvidia/version", "x\n")
    node.write("/sys/class/net/p0/device/vendor", "0x15b3\n")
    done = boot.ensure(node, boot.read({"ring_entries": 1}))
    assert done.failed == "; ".join(
        f"{tool} is not installed on this host; install its package first" for tool in ("ethtool", "nvidia-smi")
    )


def test_arp_settings_of_which_one_differs_are_corrected(tmp_path):
    node = Loaded(tmp_path)
    for name, value in boot.ARP.items():
        node.write("/proc/sys/" + name.replace(".", "/"), f"{value}\n")
    node.write("/proc/sys/net/ipv4/conf/all/arp_filter", "0\n")
    asked = boot.read({"mig_off": False, "rails_on_one_subnet": True})
    done = boot.ensure(node, asked, check=True)
    assert (done.before, done.after) == (
        {"net.ipv4.conf.all.arp_filter": "0"},
        {"net.ipv4.conf.all.arp_filter": "1"},
    )
    assert node.read("/proc/sys/net/ipv4/conf/all/arp_filter") == "0"
    boot.ensure(node, asked)
    assert Path(node.path("/proc/sys/net/ipv4/conf/all/arp_filter")).read_text() == "1\n"


def test_messages_of_refused_settings_are_complete():
    for clocks in ([1980], [1980, 1000], [1, 2, 3]):
        with raises(RequestError, "clocks_mhz", clocks):
            boot.read({"clocks_mhz": clocks})
    with raises(RequestError, "gpu_node", "ring_entries", "65537", "65536"):
        boot.read({"ring_entries": 65537})
    assert boot.read({"clocks_mhz": [1000, 1000]}).clocks_mhz == [1000, 1000]


class Timed(Loaded):
    """A node that records the time limits of its commands."""

    def run(self, argv, stdin=None, timeout_s=None):
        self.limits = getattr(self, "limits", set()) | {(argv[0], timeout_s)}
        return super().run(argv, stdin, timeout_s)


def test_commands_have_a_time_limit(tmp_path):
    node = Timed(tmp_path)
    node.mig = ["Enabled", "Enabled"]
    boot.ensure(node, boot.read(SETTINGS))
    assert node.limits == {("nvidia-smi", 60), ("ethtool", 30)}
