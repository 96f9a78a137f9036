# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The mode of the embedded switch, link state and rates."""

from __future__ import annotations

import pytest
from messages import Mentions

from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.errors import HostError
from ansible_collections.sailloft.fleet.plugins.module_utils.host.devices import sriov

PF = "0000:15:00.0"
SWITCHDEV = {"devices": [PF], "count": 2, "eswitch_mode": "switchdev", "max_tx_mbps": 40000}


def ensure(server, entry=None, check=False):
    return sriov.ensure(server, server.host(), {"functions": [entry or SWITCHDEV]}, check, server.host)


def with_switch(server, changes="any time"):
    server.eswitches[PF] = "legacy"
    server.mode_changes = changes


@pytest.mark.parametrize("changes", ["any time", "without VFs", "with VFs"])
@pytest.mark.parametrize("vfs_before", [0, 2, 3])
def test_switchdev_mode_is_set_with_or_without_vfs(server, changes, vfs_before):
    with_switch(server, changes)
    ensure(server, {"devices": [PF], "count": vfs_before})
    predicted = ensure(server, check=True)
    done = ensure(server)
    assert (predicted.before, predicted.after) == (done.before, done.after)
    assert server.eswitches[PF] == "switchdev"
    assert [vf["max_tx_rate"] for vf in server.vf_settings["nic1"].values()] == [40000, 40000]
    facts = done.facts["functions"][PF]
    assert facts["eswitch_mode"] == {"wanted": "switchdev", "seen": "switchdev"}
    assert (facts["count"], len(facts["vfs"])) == (2, 2)
    assert not ensure(server).changed


def test_the_mode_is_changed_back_to_legacy(server):
    with_switch(server, "without VFs")
    ensure(server)
    outcome = ensure(server, {**SWITCHDEV, "eswitch_mode": "legacy", "trust": True})
    assert outcome.before[f"{PF} eswitch_mode"] == "switchdev"
    assert server.eswitches[PF] == "legacy"


def test_the_mode_is_neither_read_nor_changed_if_it_is_not_given(server):
    ensure(server, {"devices": [PF], "count": 2})
    assert not [command for command in server.commands if "devlink" in command]


def test_a_mode_that_the_driver_refuses_is_reported_with_both_causes(server):
    with_switch(server)
    refuse = server._devlink_set

    def refused(_argv, _stdin):
        raise HostError("kernel answers: Operation not supported", "")

    server._devlink_set = refused
    with pytest.raises(HostError, match=r"switchdev.*VFs"):
        ensure(server)
    server._devlink_set = refuse
    ensure(server)
    assert server.eswitches[PF] == "switchdev"


def test_an_accepted_mode_that_is_not_kept_is_an_error(server):
    with_switch(server)
    server._devlink_set = lambda _argv, _stdin: ""
    with pytest.raises(HostError, match="eswitch_mode"):
        ensure(server)


def test_a_nic_without_a_switch_is_refused_before_anything_is_changed(server):
    with pytest.raises(HostError, match="cannot be read"):
        ensure(server)
    assert server.effects == []


def test_a_change_of_the_mode_is_refused_while_a_guest_uses_a_vf(server):
    with_switch(server)
    ensure(server, {"devices": [PF], "count": 2})
    server.bind("0000:15:10.0", "vfio-pci")
    server.open_by(4711, "/dev/vfio/20", ["/usr/bin/qemu-system-x86_64", "-name", "guest=train1"])
    del server.effects[:]
    with pytest.raises(HostError, match=r"2.*train1"):
        ensure(server)
    assert server.effects == []


def test_a_change_of_the_mode_is_refused_on_a_nic_that_the_host_uses(server):
    with_switch(server)
    server.put(
        "/proc/net/route", (server.read("/proc/net/route") or "") + "\nnic1\t0000A8C0\t0\t1\t0\t0\t0\t00FFFFFF\n"
    )
    with pytest.raises(HostError, match=r"eswitch_mode.*0000:15:00\.0"):
        ensure(server)
    assert server.effects == []
    ensure(server, {"devices": [PF], "count": 2})  # VFs can still be made


@pytest.mark.parametrize(
    ("setting", "value"), [("trust", True), ("spoof_check", False), ("vlan", 5), ("link_state", "auto")]
)
def test_settings_that_drivers_refuse_in_switchdev_mode_are_refused(server, setting, value):
    with_switch(server)
    with pytest.raises(HostError, match=rf"VF.*0.*{setting}"):
        ensure(server, {**SWITCHDEV, setting: value})
    with pytest.raises(HostError, match=f"VF 1 has {setting}, which"):
        ensure(server, {**SWITCHDEV, "vfs": [{"index": 1, setting: value}]})
    assert server.effects == []


def test_link_state_and_rates_are_set_for_all_vfs_and_for_one(server):
    entry = {
        "devices": [PF],
        "count": 2,
        "link_state": "enable",
        "max_tx_mbps": 40000,
        "min_tx_mbps": 1000,
        "vfs": [{"index": 1, "link_state": "disable", "max_tx_mbps": 0}],
    }
    ensure(server, entry)
    rows = [(vf["state"], vf["min_tx_rate"], vf["max_tx_rate"]) for vf in server.vf_settings["nic1"].values()]
    assert rows == [("enable", 1000, 40000), ("disable", 1000, 0)]
    assert not ensure(server, entry).changed
    server.vf_settings["nic1"][0]["max_tx_rate"] = 10000
    outcome = ensure(server, entry)
    assert (outcome.before, outcome.after) == (
        {f"{PF} VF 0": {"max_tx_mbps": 10000}},
        {f"{PF} VF 0": {"max_tx_mbps": 40000}},
    )


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ({"min_tx_mbps": 2000, "max_tx_mbps": 1000}, Mentions("min_tx_mbps", "VF", "0", "max_tx_mbps")),
        ({"max_tx_mbps": -1}, Mentions("max_tx_mbps", "-1")),
        ({"link_state": "up"}, Mentions("link_state", "up")),
        ({"eswitch_mode": "offloads"}, Mentions("eswitch_mode", "offloads")),
        ({"derive_addresses": "yes"}, Mentions("derive_addresses", "yes")),
    ],
)
def test_bad_input_is_refused(server, entry, message):
    with pytest.raises(HostError) as error:
        ensure(server, {"devices": [PF], "count": 2, **entry})
    assert str(error.value) == message


def test_a_run_killed_at_any_point_is_completed_by_the_next_run(killed_anywhere):
    def arrange(server):
        with_switch(server, "with VFs")
        ensure(server, {"devices": [PF], "count": 3})

    # The effects: remove the VFs, try the mode in vain, make VFs, set the mode, apply the VFs' settings.
    assert killed_anywhere(arrange, ensure) == 5
