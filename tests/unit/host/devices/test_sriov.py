# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

import os

import pytest
from messages import Mentions

from ansible_collections.sailloft.fleet.plugins.module_utils.common.error import SailloftError
from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.errors import HostError
from ansible_collections.sailloft.fleet.plugins.module_utils.host.devices import sriov, users

PF = "0000:15:00.0"
FRESH = {
    "mac": "00:00:00:00:00:00",
    "vlan": 0,
    "trust": False,
    "spoofchk": True,
    "state": "auto",
    "min_tx_rate": 0,
    "max_tx_rate": 0,
}
FOUR = {
    "functions": [
        {
            "devices": [PF],
            "count": 4,
            "drivers_autoprobe": False,
            "trust": True,
            "spoof_check": False,
            "vfs": [{"index": 1, "mac": "02:00:00:00:15:01", "vlan": 100, "trust": False}],
        }
    ]
}


def ensure(server, data=None, check=False):
    return sriov.ensure(server, server.host(), FOUR if data is None else data, check, server.host)


def test_vfs_are_created_with_their_settings(server):
    outcome = ensure(server)
    facts = outcome.facts["functions"][PF]
    assert facts["count"] == 4
    assert facts["vfs"] == ["0000:15:10.0", "0000:15:10.2", "0000:15:10.4", "0000:15:10.6"]
    assert {"vf": 1, "name": "vlan", "wanted": 100, "seen": 100} in facts["settings"]
    assert [row for row in facts["settings"] if row["seen"] != row["wanted"]] == []
    assert len(facts["settings"]) == 4 * 2 + 2
    every = {**FRESH, "trust": True, "spoofchk": False}
    one = {**every, "mac": "02:00:00:00:15:01", "vlan": 100, "trust": False}
    assert server.vf_settings["nic1"] == {0: every, 1: one, 2: every, 3: every}
    assert server.read(f"{server.directory(PF)}/sriov_drivers_autoprobe") == "0"
    again = ensure(server)
    assert not again.changed
    assert again.facts == outcome.facts


def test_all_settings_of_a_function_are_set_with_one_command(server):
    ensure(server)
    assert [command for command in server.commands if not command.startswith("ip -j")] == ["ip -batch -"]


def test_check_mode_changes_nothing_and_reports_the_changes(server):
    predicted = ensure(server, check=True)
    assert server.effects == []
    assert predicted.after == ensure(server).after


def test_a_change_of_settings_does_not_recreate_the_vfs(server):
    ensure(server)
    server.vf_settings["nic1"][2]["trust"] = False
    outcome = ensure(server)
    assert (outcome.before, outcome.after) == ({f"{PF} VF 2": {"trust": False}}, {f"{PF} VF 2": {"trust": True}})
    assert not [effect for effect in server.effects[4:] if "numvfs" in effect]


def test_the_vf_count_is_set_to_zero_before_it_is_changed(server):
    ensure(server)
    del server.effects[:]
    ensure(server, {"functions": [{"devices": [PF], "count": 2}]})
    assert server.effects == [f"poke /sys/bus/pci/devices/{PF}/sriov_numvfs"] * 2
    assert server.read(f"{server.directory(PF)}/sriov_numvfs") == "2"


def test_a_change_of_the_vf_count_is_refused_while_a_guest_uses_a_vf(server):
    ensure(server)
    server.bind("0000:15:10.2", "vfio-pci")
    server.open_by(
        4711, "/dev/vfio/21", ["/usr/bin/qemu-system-x86_64", "-name", "guest=train1,debug-threads=on", "-S"]
    )
    server.open_by(4712, "/dev/vfio/22", ["/usr/bin/qemu-system-x86_64", "-name", "guest=other"])
    del server.effects[:]
    with pytest.raises(
        HostError,
        match=r"4.*0.*train1",
    ):
        ensure(server, {"functions": [{"devices": [PF], "count": 0}]})
    assert server.effects == []
    ensure(server)  # a request that does not change the number of VFs still works


def test_a_change_of_the_vf_count_is_refused_while_the_host_uses_a_vf(server):
    ensure(server)
    vf = server.directory("0000:15:10.4")
    server.put(f"{vf}/net/vf2/operstate", "up\n")
    server.link("/sys/class/net/vf2", f"{vf}/net/vf2")
    server.put("/proc/net/route", (server.read("/proc/net/route") or "") + "\nvf2\t0000A8C0\t0\t1\t0\t0\t0\t00FFFFFF\n")
    with pytest.raises(HostError, match=r"0000:15:10\.4.*192\.168\.0\.0/24"):
        ensure(server, {"functions": [{"devices": [PF], "count": 1}]})


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ({"devices": [PF], "count": 8}, Mentions("7", "VFs", "8", "requested")),
        ({"devices": ["0000:99:00.0"], "count": 1}, Mentions("0000:99:00.0")),
        ({"devices": ["10.0"], "count": 1}, Mentions("10.0")),
        ({"devices": ["0000:13:00.0"], "count": 1}, Mentions("0000:13:00.0", "SR-IOV")),
        (
            {"devices": [PF], "count": 2, "vfs": [{"index": 2}]},
            Mentions("2", "VFs", "index"),
        ),
        ({"devices": [PF], "count": 1, "vfs": [{"index": 0, "mac": "03:00:00:00:00:01"}]}, Mentions("multicast")),
        (
            {"devices": [PF], "count": 1, "vfs": [{"index": 0, "mac": "02:00"}]},
            Mentions("mac", "02:00", "MAC"),
        ),
        ({"devices": [PF], "count": 1, "vlan": 4095}, Mentions("vlan", "4095", "4094")),
        (
            {"devices": [PF, "14:00.0"], "count": 1, "vfs": [{"index": 0, "mac": "02:00:00:00:00:01"}]},
            Mentions("02:00:00:00:00:01", "VFs"),
        ),
    ],
)
def test_bad_input_is_refused_before_anything_is_written(server, entry, message):
    with pytest.raises(SailloftError) as error:
        ensure(server, {"functions": [{"devices": ["0000:14:00.0"], "count": 1}, entry]})
    assert str(error.value) == message
    assert server.effects == []


def test_a_kind_excludes_devices_without_sriov(server):
    outcome = ensure(server, {"functions": [{"devices": ["nic"], "count": 1}]})
    assert sorted(outcome.facts["functions"]) == ["0000:14:00.0", PF]


def test_vfs_of_a_function_bound_to_vfio_pci_are_refused(server):
    server.bind(PF, "vfio-pci")
    with pytest.raises(HostError, match=r"vfio-pci.*VFs"):
        ensure(server)


def test_a_setting_that_the_driver_does_not_keep_is_an_error(server):
    take = server._ip_batch
    server._ip_batch = lambda argv, stdin: take(
        argv, "\n".join(line for line in stdin.splitlines() if " vf 3 " not in line)
    )
    with pytest.raises(HostError, match=r"VF 3"):
        ensure(server)


def test_a_run_killed_at_any_point_is_completed_by_the_next_run(killed_anywhere):
    assert killed_anywhere(lambda server: None, ensure) == 3


def test_a_killed_change_of_the_vf_count_is_completed_by_the_next_run(killed_anywhere):
    def arrange(server):
        ensure(server, {"functions": [{"devices": [PF], "count": 2}]})

    assert killed_anywhere(arrange, ensure) == 4


def refused(server, *entries):
    server.effects.clear()
    with pytest.raises(HostError) as error:
        ensure(server, {"functions": list(entries)})
    return str(error.value)


def test_all_steps_are_made_in_order(server):
    server.eswitches[PF] = "legacy"
    ensure(server, {"functions": [{"devices": [PF], "count": 1}]})
    server.effects.clear()
    entry = {"devices": [PF], "count": 2, "eswitch_mode": "switchdev", "drivers_autoprobe": False, "max_tx_mbps": 9}
    outcome = ensure(server, {"functions": [entry]})
    directory = f"/sys/bus/pci/devices/{PF}"
    assert server.effects == [
        f"poke {directory}/sriov_drivers_autoprobe",
        f"poke {directory}/sriov_numvfs",
        f"devlink dev eswitch set pci/{PF} mode switchdev",
        f"poke {directory}/sriov_numvfs",
        "ip -batch -",
    ]
    assert outcome.before == {
        f"{PF} VFs": 1,
        f"{PF} eswitch_mode": "legacy",
        f"{PF} drivers_autoprobe": True,
        f"{PF} VF 0": {"max_tx_mbps": None},
        f"{PF} VF 1": {"max_tx_mbps": None},
    }
    assert list(outcome.after.values()) == [2, "switchdev", False, {"max_tx_mbps": 9}, {"max_tx_mbps": 9}]


@pytest.mark.parametrize("probe", [True, False])
def test_probing_is_written_as_a_digit(server, probe):
    path = f"{server.directory(PF)}/sriov_drivers_autoprobe"
    server.put(path, "0\n" if probe else "1\n")
    outcome = ensure(server, {"functions": [{"devices": [PF], "count": 0, "drivers_autoprobe": probe}]})
    assert (outcome.before, outcome.after) == (
        {f"{PF} drivers_autoprobe": not probe},
        {f"{PF} drivers_autoprobe": probe},
    )
    assert server.read(path) == "01"[probe]


def test_predicted_vfs_have_no_address_yet(server):
    entry = {"functions": [{"devices": [PF], "count": 2, "vlan": 5}]}
    facts = ensure(server, entry, check=True).facts["functions"][PF]
    unseen = [{"vf": index, "name": "vlan", "wanted": 5, "seen": None} for index in (0, 1)]
    assert facts == {"count": 2, "vfs": [], "settings": unseen}
    ensure(server, entry)
    facts = ensure(server, entry, check=True).facts["functions"][PF]
    assert facts["vfs"] == ["0000:15:10.0", "0000:15:10.2"]
    assert [row["seen"] for row in facts["settings"]] == [5, 5]


def test_vfs_in_use_are_named_with_their_users(server):
    ensure(server)
    for group, number, arguments in ((20, 9, ["/usr/bin/dpdk-app", "-l"]), (21, 4711, ["kvm", "-name", "db1"])):
        server.bind(f"0000:15:10.{2 * (group - 20)}", "vfio-pci")
        server.open_by(number, f"/dev/vfio/{group}", arguments)
    server.put("/proc/self/fd/none", "")
    assert refused(server, {"devices": [PF], "count": 1}) == (Mentions("sriov", "VFs", PF, "4", "1", "0000:15:10.0"))
    assert server.effects == []


HOSTDEV = "<source><address {}domain='0' bus='0x15' slot='0x10' function='0x4'/></source>"


def define(server, place, name, devices):
    kind = "network" if place.endswith("networks") else "domain"
    inner = devices if kind == "network" else f"<devices>{devices}</devices>"
    server.put(
        f"{place}/{name}.xml", f"<!--\nWARNING: USE virsh edit\n-->\n<{kind}><name>{name}</name>{inner}</{kind}>\n"
    )


@pytest.mark.parametrize(
    ("place", "devices"),
    [
        ("/etc/libvirt/qemu", f"<hostdev mode='subsystem' type='pci'>{HOSTDEV.format('')}</hostdev>"),
        ("/etc/libvirt/qemu", "<interface type='hostdev'>" + HOSTDEV.format("type='pci' ") + "</interface>"),
        ("/etc/libvirt/qemu", "<interface type='direct'><source dev='nic1v2' mode='passthrough'/></interface>"),
        ("/etc/libvirt/qemu/networks", "<forward mode='hostdev'><pf dev='nic1'/></forward>"),
        ("/etc/libvirt/qemu/networks", "<forward mode='passthrough'><interface dev='nic1v2'/></forward>"),
    ],
)
def test_vfs_that_libvirts_definitions_name_are_not_removed(server, place, devices):
    ensure(server)
    server.put(f"{os.path.dirname(server.directory(PF))}/0000:15:10.4/net/nic1v2/operstate", "down\n")
    define(server, place, "db1", devices)
    define(server, "/etc/libvirt/qemu", "other", "<interface type='network'><source network='default'/></interface>")
    define(server, "/etc/libvirt/qemu/networks", "default", "<forward mode='nat'/>")
    server.effects.clear()
    for count in (0, 2):
        for check in (False, True):
            with pytest.raises(HostError, match=rf"{PF} .*db1"):
                ensure(server, {"functions": [{"devices": [PF], "count": count}]}, check)
            assert server.effects == []
    ensure(server, {"functions": [{"devices": [PF], "count": 5}]})
    assert server.read(f"{server.directory(PF)}/sriov_numvfs") == "5"


def test_a_definition_that_cannot_be_read_is_not_taken_for_none(server):
    ensure(server)
    server.put("/etc/libvirt/qemu/db1.xml", "<domain>")
    assert "/etc/libvirt/qemu/db1.xml" in refused(server, {"devices": [PF], "count": 1})


def test_a_vf_that_a_guest_has_by_iommufd_is_in_use(server):
    ensure(server)
    server.bind("0000:15:10.0", "vfio-pci")
    # A test cannot make device files: here the number of /dev/zero is that of /dev/vfio/devices/vfio0.
    server.link("/sys/dev/char/1:5", f"{os.path.dirname(server.directory(PF))}/0000:15:10.0/vfio-dev/vfio0")
    server.open_by(4711, "/dev/zero", ["qemu-kvm", "-name", "guest=db1"])
    assert "0000:15:10.0: guest db1 (process 4711)" in refused(server, {"devices": [PF], "count": 0})
    assert server.effects == []


def test_a_process_with_several_handles_is_named_once(server):
    ensure(server)
    server.bind("0000:15:10.0", "vfio-pci")
    server.open_by(9, "/dev/vfio/20", ["app"])
    os.symlink("/dev/vfio/20", server.path("/proc/9/fd/8"))
    os.symlink("/dev/vfio/vfio", server.path("/proc/9/fd/9"))
    vf = server.host().function("0000:15:10.0")
    assert users.of_functions(server, [vf]) == {vf.address: ["process 9 (app)"]}
    server.remove("/proc/9/cmdline")
    assert users.of_functions(server, [vf]) == {vf.address: ["process 9 (ended)"]}
    server.bind("0000:15:10.0", "igbvf")
    assert users.of_functions(server, [server.host().function(vf.address)]) == {}


def test_a_count_that_the_driver_does_not_keep_is_an_error(server, monkeypatch):
    monkeypatch.setattr(server, "_kernel", lambda path, text: server.put(path, "1\n"))
    assert refused(server, {"devices": [PF], "count": 2}) == (Mentions("sriov", PF, "1", "VFs", "2"))


def test_a_setting_that_is_not_kept_is_shown_with_both_values(server):
    server._ip_batch = lambda _argv, _stdin: ""
    assert refused(server, {"devices": [PF], "count": 1, "vlan": 5}) == (
        Mentions("sriov", "{'0000:15:00.0", "VF", "0", "0}}", "5}}")
    )


def test_the_host_is_read_again_only_after_vfs_changed(server):
    reads = []

    def read_again():
        reads.append(1)
        return server.host()

    for data, expected in ((FOUR, 1), (FOUR, 1), ({"functions": [{"devices": [PF], "count": 4, "vlan": 7}]}, 1)):
        sriov.ensure(server, server.host(), data, False, read_again)
        assert len(reads) == expected
