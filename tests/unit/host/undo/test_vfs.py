# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""VFs that existed before the role are restored."""

from __future__ import annotations

import copy

import pytest

from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.errors import HostError
from ansible_collections.sailloft.fleet.plugins.module_utils.host.devices import sriov
from ansible_collections.sailloft.fleet.plugins.module_utils.host.undo import record, restore

PF = "0000:15:00.0"
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
    settings, vfs = arrange(server)
    system = record.Remembering(server)
    ensure(system, server, {"devices": [PF], **entry})
    ensure(system, server, {"devices": [PF], "count": 1, "spoof_check": False})
    assert len([one for one in record.entries(server) if one["kind"] == "vfs"]) == 1
    predicted = restore.ensure(server, check=True)
    outcome = restore.ensure(server)
    assert outcome.failed == ""
    assert (predicted.before, predicted.after) == (outcome.before, outcome.after)
    assert server.vf_settings == settings
    assert server.host().function(PF).sriov == vfs
    assert server.eswitches == {PF: "legacy"}
    assert server.read(f"{server.directory(PF)}/sriov_drivers_autoprobe") == "1"
    assert not restore.ensure(server).changed


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
