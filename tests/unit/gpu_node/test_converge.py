# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""One call converges a node, and in check mode predicts the run by the same code."""

from __future__ import annotations

import pytest
from gpu_nodes import ARCHIVE, Node
from gpu_server import Server

from ansible_collections.sailloft.fleet.plugins.module_utils.gpu_node import converge, pci
from ansible_collections.sailloft.fleet.plugins.module_utils.gpu_node.at_boot import gpus, service
from ansible_collections.sailloft.fleet.plugins.module_utils.host.at_boot import persistence, unit
from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.errors import HostError, RequestError
from ansible_collections.sailloft.fleet.plugins.module_utils.host.kernel import boot_loader

DRIVER = "595.91.07"
WANTED = {
    **{name: option.get("default") for name, option in converge.options().items()},
    "repositories": [ARCHIVE],
    "fabric": "none",
}


class Installed(Node):
    """A node with the driver's packages, whose systemd knows their units."""

    def __init__(self, root, loaded=DRIVER):
        super().__init__(root)
        self.packages = {name.partition("=")[0]: f"{version.strip('*')}-1" for name, version in self.missing()}
        self.modules = {self.kernel: DRIVER}
        self.units = {f"nvidia-{name}.service": ["inactive", "disabled"] for name in ("persistenced", "dcgm")}
        self.write("/run/systemd/system/.keep", "")
        self.write("/usr/lib/systemd/systemd", "")
        self.answers[tuple(gpus.QUERY)] = "00000000:1B:00.0, Disabled, Disabled\n"
        if loaded:
            self.write("/proc/driver/nvidia/version", f"NVRM version: x  {loaded}  x\n")
            self.write("/sys/module/nvidia/version", f"{loaded}\n")

    def missing(self):
        facts = converge.ensure(self, {**WANTED, "repositories": []}, False, check=True).facts
        return [(name, name.partition("=")[2].split(":")[-1] or "1") for name in facts["install"]]

    def run(self, argv, stdin=None, timeout_s=None):
        if argv[0] != "systemctl":
            return super().run(argv, stdin, timeout_s)
        verb, *names = [word for word in argv[1:] if not word.startswith("--")]
        if verb == "show":
            return "\n\n".join("ActiveState={}\nUnitFileState={}".format(*self.units[name]) for name in names)
        if verb == "list-unit-files":
            return "".join(f"{name} {self.units[name][1]} enabled\n" for name in names)
        self.ran.append(argv)
        for name in names:
            state = self.units.setdefault(name, ["inactive", "disabled"])
            state[verb == "enable"] = {"enable": "enabled", "start": "active"}[verb]
            if verb == "enable":
                self.write(f"/etc/systemd/system/multi-user.target.wants/{name}", "")
        return ""

    def changes(self):
        return [argv for argv in self.ran if argv[0] == "systemctl"]


def test_a_node_without_packages_gets_only_the_files_of_its_software(tmp_path):
    node = Node(tmp_path)
    done = converge.ensure(node, WANTED, in_image=False)
    assert f"nvidia-kernel-open-dkms={DRIVER}*" in done.facts["install"]
    assert any("sailloft-cuda" in path for path in done.after)
    assert not node.exists(service.SERVICE.settings)
    assert (done.facts["reboot_required"], len(done.pending)) == (True, 1)
    assert DRIVER in done.pending[0]


def test_check_mode_predicts_the_run_and_a_second_run_changes_nothing(tmp_path):
    node = Installed(tmp_path)
    predicted = converge.ensure(node, WANTED, in_image=False, check=True)
    assert node.changes() == []
    assert not node.exists(service.SERVICE.settings)
    done = converge.ensure(node, WANTED, in_image=False)
    assert (done.before, done.after, done.pending) == (predicted.before, predicted.after, predicted.pending)
    assert node.units["nvidia-dcgm.service"] == ["active", "enabled"]
    assert unit.saved(node, service.SERVICE) == {name: WANTED[name] for name in converge.AT_BOOT}
    again = converge.ensure(node, WANTED, in_image=False)
    assert (again.changed, again.facts["reboot_required"], again.pending) == (False, False, [])


@pytest.mark.parametrize("loaded", ["", "570.0"])
def test_services_are_enabled_but_not_started_before_the_driver_is_loaded(tmp_path, loaded):
    node = Installed(tmp_path, loaded)
    done = converge.ensure(node, WANTED, in_image=False)
    assert node.units["nvidia-dcgm.service"] == ["inactive", "enabled"]
    assert done.facts["reboot_required"]
    assert DRIVER in done.pending[0]


def test_an_image_gets_services_and_saved_settings_without_those_of_the_running_kernel(tmp_path):
    node = Installed(tmp_path)
    node.write(f"/lib/modules/{node.kernel}/kernel/x", "")
    done = converge.ensure(node, {**WANTED, "ring_entries": 8192}, in_image=True)
    assert done.facts["install"] == []
    assert {tuple(argv[1:3]) for argv in node.changes()} == {("--root=/", "enable")}
    assert unit.saved(node, service.SERVICE)["ring_entries"] == 8192
    assert not converge.ensure(node, {**WANTED, "ring_entries": 8192}, in_image=True).changed


@pytest.mark.parametrize("wrong", [{"clocks_mhz": [2, 1]}, {"ring_entries": -1}, {"driver": "1"}])
def test_a_mistake_is_refused_before_anything_is_written(tmp_path, wrong):
    node = Installed(tmp_path)
    with pytest.raises(RequestError):
        converge.ensure(node, {**WANTED, **wrong}, in_image=False)
    assert node.changes() == []
    assert not any("sailloft" in name for name in node.names("/etc/apt"))
    assert not node.exists(service.SERVICE.settings)


@pytest.fixture
def server(tmp_path):
    made = Server(tmp_path / "server")
    made.put(boot_loader.DEFAULTS, 'GRUB_CMDLINE_LINUX_DEFAULT="quiet"\nGRUB_CMDLINE_LINUX=""\n')
    made.put("/proc/cmdline", "ro\n")
    made.run(["update-grub"])
    made.effects.clear()
    return made


BUS = {**WANTED, "parts": ["pci"], "iommu": "passthrough", "acs": "bare_metal", "max_read_request_bytes": 4096}


def test_the_pci_bus_is_set_now_and_at_boot_with_its_kernel_arguments(server):
    predicted = converge.ensure(server, BUS, in_image=False, check=True)
    assert server.effects == []
    done = converge.ensure(server, BUS, in_image=False)
    assert (done.before, done.after, done.failed) == (predicted.before, predicted.after, "")
    assert done.facts["reboot_required"]
    assert "iommu=pt" in server.read(boot_loader.DROP_IN)
    saved = unit.saved(server, persistence.SERVICE)["pci_tuning"]
    assert saved["acs_by_port"]["purpose"] == "bare_metal"
    assert saved["settings"][0]["max_read_request_bytes"] == 4096
    assert not converge.ensure(server, BUS, in_image=False).changed


def test_what_is_unchanged_is_left_alone(server):
    done = converge.ensure(server, {**WANTED, "parts": ["pci"]}, in_image=False)
    assert (server.effects, done.changed, done.facts["reboot_required"]) == ([], False, False)
    reads = {**WANTED, "parts": ["pci"], "max_read_request_bytes": 512}
    assert converge.ensure(server, reads, in_image=False).changed
    assert "acs_by_port" not in unit.saved(server, persistence.SERVICE)["pci_tuning"]
    assert not server.exists(boot_loader.DROP_IN)


def test_an_image_has_no_kernel_arguments(server):
    server.put("/usr/lib/systemd/systemd", "")
    done = converge.ensure(server, BUS, in_image=True)
    assert not done.facts["reboot_required"]
    assert not server.exists(boot_loader.DROP_IN)
    assert unit.saved(server, persistence.SERVICE)["pci_tuning"]["settings"]


def test_a_machine_of_another_architecture_is_refused(server, monkeypatch):
    monkeypatch.setattr(server, "machine", lambda: "aarch64")
    with pytest.raises(HostError, match="aarch64"):
        pci.ensure(server, BUS, in_image=False)
    assert server.effects == []
