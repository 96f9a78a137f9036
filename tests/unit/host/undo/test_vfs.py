# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""VFs that existed before the role are restored."""

from __future__ import annotations

import copy
import shutil

import pytest

from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.errors import HostError
from ansible_collections.sailloft.fleet.plugins.module_utils.host.devices import sriov
from ansible_collections.sailloft.fleet.plugins.module_utils.host.undo import record, restore, vfs

PF, OTHER = "0000:15:00.0", "0000:14:00.0"
BEFORE = {"devices": [PF], "count": 2, "vlan": 7, "vfs": [{"index": 1, "mac": "02:00:00:00:15:01", "trust": True}]}


def ensure(system, server, entry):
    return sriov.ensure(system, server.host(), {"functions": [entry]}, False, server.host)


def arrange(server):
    server.eswitches[PF] = "legacy"
    ensure(server, server, BEFORE)
    server.put(f"{server.directory(PF)}/sriov_drivers_autoprobe", "1")
    return copy.deepcopy(server.vf_settings), server.host().function(PF).sriov


@pytest.mark.parametrize(
    "entry",
    [
        {"count": 4, "derive_addresses": True, "trust": True},
        {"count": 0},
        {"count": 2, "vlan": 9, "link_state": "enable", "max_tx_mbps": 1000},
        {"count": 2, "eswitch_mode": "switchdev"},
        {"count": 3, "eswitch_mode": "switchdev", "drivers_autoprobe": False},
        {"count": 2, "drivers_autoprobe": False},
    ],
)
def test_vfs_and_their_settings_are_restored(server, entry):
    settings, there = arrange(server)
    system = record.Remembering(server)
    ensure(system, server, {"devices": [PF], **entry})
    ensure(system, server, {"devices": [PF], "count": 1, "spoof_check": False})
    assert len([one for one in record.entries(server) if one["kind"] == "vfs"]) == 1
    predicted = restore.ensure(server, check=True)
    outcome = restore.ensure(server)
    assert outcome.failed == ""
    assert (predicted.before, predicted.after) == (outcome.before, outcome.after)
    assert server.vf_settings == settings
    assert server.host().function(PF).sriov == there
    assert server.eswitches == {PF: "legacy"}
    assert server.read(f"{server.directory(PF)}/sriov_drivers_autoprobe") == "1"
    assert not restore.ensure(server).changed


def test_vfs_that_a_shut_off_domain_names_are_not_removed(server):
    arrange(server)
    system = record.Remembering(server)
    ensure(system, server, {"devices": [PF], "count": 4})
    source = "<source><address domain='0' bus='0x15' slot='0x10' function='0x4'/></source>"
    xml = f"<domain><devices><hostdev mode='subsystem' type='pci'>{source}</hostdev></devices></domain>"
    server.put("/etc/libvirt/qemu/db1.xml", xml)
    assert "db1 (0000:15:10.4)" in restore.ensure(server).failed
    assert server.read(f"{server.directory(PF)}/sriov_numvfs") == "4"
    server.remove("/etc/libvirt/qemu/db1.xml")
    assert restore.ensure(server).failed == ""
    assert server.read(f"{server.directory(PF)}/sriov_numvfs") == "2"


def test_the_eswitch_mode_of_a_nic_without_vfs_is_restored(server):
    server.eswitches[PF] = "legacy"
    ensure(record.Remembering(server), server, {"devices": [PF], "count": 0, "eswitch_mode": "switchdev"})
    assert server.eswitches == {PF: "switchdev"}
    restore.ensure(server)
    assert server.eswitches == {PF: "legacy"}


def test_a_setting_that_cannot_be_restored_is_named_and_kept_in_the_record(server):
    arrange(server)
    ensure(record.Remembering(server), server, {"devices": [PF], "count": 2, "vlan": 9})

    def refused(_argv, _stdin):
        raise HostError("'ip' failed (1): RTNETLINK answers: Invalid argument; Command failed -:1", "")

    server._ip_batch = refused
    outcome = restore.ensure(server)
    assert outcome.failed.startswith(f"sriov: VF 0 of {PF}: the driver refused 'ip link set dev nic1 vf 0 vlan 7'")
    assert [entry["path"] for entry in record.entries(server)] == [PF]


def test_a_missing_nic_is_not_restored(server):
    arrange(server)
    ensure(record.Remembering(server), server, {"devices": [PF], "count": 4})
    server.remove(f"{server.directory(PF)}/sriov_numvfs")
    outcome = restore.ensure(server)
    assert (outcome.changed, outcome.failed) == (False, "")


def test_the_state_of_vfs_has_only_settings_that_are_told(server):
    server.eswitches[PF] = "legacy"
    ensure(server, server, {"devices": [PF], "count": 1, "vlan": 7})
    told = {"mac": "00:00:00:00:00:00", "trust": False, "spoof_check": True, "vlan": 7, "link_state": "auto"}
    state = {
        "count": 1,
        "drivers_autoprobe": "1",
        "eswitch_mode": "legacy",
        "settings": {"0": {**told, "min_tx_mbps": 0, "max_tx_mbps": 0}},
    }
    assert vfs.read(server, PF) == state
    del server.eswitches[PF]
    shutil.rmtree(server.path(f"{server.directory(PF)}/net"))
    assert vfs.read(server, PF) == {**state, "eswitch_mode": None, "settings": {}}
    server.remove(f"{server.directory(PF)}/sriov_numvfs")
    assert vfs.read(server, PF) is None


@pytest.mark.parametrize(
    ("argv", "stdin", "addresses"),
    [
        (["devlink", "dev", "eswitch", "set", f"pci/{PF}", "mode", "legacy"], None, [PF]),
        (["devlink", "-j", "dev", "eswitch", "show", f"pci/{PF}"], None, []),
        (["ip", "-batch", "-"], "link set dev nic1 vf 0 vlan 1\nlink set dev nic0 vf 0 vlan 1\n", [PF, OTHER]),
        (["ip", "-batch", "-"], None, []),
        (["ip", "-j", "link"], "link set dev nic1 vf 0 vlan 1\n", []),
    ],
)
def test_commands_that_change_vfs_are_recognized(server, argv, stdin, addresses):
    assert vfs.changed_by(server, argv, stdin) == addresses


def test_only_what_differs_is_restored_in_order(server):
    server.eswitches[PF] = "switchdev"
    ensure(server, server, {"devices": [PF], "count": 2, "vlan": 9})
    server.effects.clear()
    directory = f"/sys/bus/pci/devices/{PF}"
    now = vfs.read(server, PF)
    vfs.restore(server, PF, now)
    vfs.restore(server, PF, {**now, "drivers_autoprobe": None, "eswitch_mode": None, "settings": {}})
    assert server.effects == []
    vfs.restore(server, PF, {**now, "settings": {"1": {"vlan": 8, "trust": False}}})
    assert server.effects == ["ip -batch -"]
    assert [one["vlan"] for one in server.vf_settings["nic1"].values()] == [9, 8]
    server.effects.clear()
    vfs.restore(server, PF, {"count": 1, "drivers_autoprobe": "0", "eswitch_mode": "legacy", "settings": {}})
    assert server.effects == [
        f"poke {directory}/sriov_drivers_autoprobe",
        f"poke {directory}/sriov_numvfs",
        f"devlink dev eswitch set pci/{PF} mode legacy",
        f"poke {directory}/sriov_numvfs",
    ]
    assert server.read(f"{directory}/sriov_drivers_autoprobe") == "0"
    server.effects.clear()
    vfs.restore(server, "0000:13:00.0", now)  # it has no VFs any more
    assert server.effects == []
