# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

import pytest
from messages import Mentions

from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.errors import HostError
from ansible_collections.sailloft.fleet.plugins.module_utils.host.devices import nic_firmware

NIC = "0000:14:00.0"
# Output of an old ConnectX-3, which has no current values.
OLD = """
Configurations:                              Default         Next Boot
         SRIOV_EN                            True(1)         True(1)
         NUM_OF_VFS                          16              16
         LINK_TYPE_P1                        VPI(3)          VPI(3)
"""
# IBM's values, as a user would write them.
PAPER = {
    "ADVANCED_PCI_SETTINGS": True,
    "MAX_ACC_OUT_READ": 44,
    "PCI_WR_ORDERING": "per_mkey",
    "RDMA_SELECTIVE_REPEAT_EN": True,
    "ATS_ENABLED": True,
    "SRIOV_EN": True,
}


@pytest.fixture
def mellanox(server):
    """The server with a ConnectX-6 in place of an igb."""
    server.put(f"{server.directory(NIC)}/uevent", "PCI_CLASS=20000\nPCI_ID=15B3:101B\nDRIVER=mlx5_core\n")
    server.firmware[NIC] = {
        "ADVANCED_PCI_SETTINGS": ["False(0)"] * 3,
        "MAX_ACC_OUT_READ": ["0"] * 3,
        "PCI_WR_ORDERING": ["per_mkey(0)", "force_relax(1)", "force_relax(1)"],
        "RDMA_SELECTIVE_REPEAT_EN": ["False(0)"] * 3,
        "ATS_ENABLED": ["False(0)", "False(0)", "True(1)"],
        "SRIOV_EN": ["False(0)", "True(1)", "True(1)"],
        "NUM_OF_VFS": ["0", "8", "8"],
    }
    return server


def ensure(server, values=None, check=False, devices=("15b3:*",)):
    data = {"settings": [{"devices": list(devices), "values": PAPER if values is None else values}]}
    return nic_firmware.ensure(server, server.host(), data, check)


def test_only_differing_settings_are_set(mellanox):
    outcome = ensure(mellanox)
    sets = [command for command in mellanox.commands if " set " in command]
    assert sets == [
        f"mstconfig -d {NIC} -y set ADVANCED_PCI_SETTINGS=1",
        f"mstconfig -d {NIC} -y set MAX_ACC_OUT_READ=44 PCI_WR_ORDERING=per_mkey RDMA_SELECTIVE_REPEAT_EN=1",
    ]
    assert sorted(outcome.after) == [
        f"{NIC} ADVANCED_PCI_SETTINGS",
        f"{NIC} MAX_ACC_OUT_READ",
        f"{NIC} PCI_WR_ORDERING",
        f"{NIC} RDMA_SELECTIVE_REPEAT_EN",
    ]
    # ATS was set before and takes effect at the next boot like the others; SR-IOV is already in effect.
    assert outcome.facts["reboot_required"]
    assert "ATS_ENABLED" in outcome.pending[0]
    assert "SRIOV_EN" not in outcome.pending[0]


def test_a_reboot_is_required_until_it_has_happened(mellanox):
    ensure(mellanox)
    again = ensure(mellanox)
    assert not again.changed
    assert again.facts["reboot_required"]
    for row in mellanox.firmware[NIC].values():
        row[1] = row[2]
    assert not ensure(mellanox).facts["reboot_required"]


def test_check_mode_does_nothing(mellanox):
    predicted = ensure(mellanox, check=True)
    assert mellanox.effects == []
    done = ensure(mellanox)
    assert (predicted.before, predicted.after, predicted.pending) == (done.before, done.after, done.pending)


def test_a_host_without_matching_nics_needs_no_tool(server):
    outcome = ensure(server)
    assert outcome.facts == {"reboot_required": False, "devices": {}, "failures": [], "unknown": []}
    assert server.commands == []


def test_firmware_is_set_once_per_nic_and_not_per_port_or_vf(mellanox):
    mellanox.put(f"{mellanox.directory('0000:15:00.0')}/uevent", "PCI_CLASS=20000\nPCI_ID=15B3:101B\n")
    place = "/sys/devices/pci0000:10/0000:10:01.0/0000:15:00.1"
    mellanox._function(place, "20000", "15B3:101B", None, 9, None)
    mellanox.firmware["0000:15:00.0"] = {name: list(row) for name, row in mellanox.firmware[NIC].items()}
    assert sorted(ensure(mellanox).facts["devices"]) == [NIC, "0000:15:00.0"]


@pytest.mark.parametrize(
    ("values", "devices", "message"),
    [
        ({"ATS_ENABLED": "1\n"}, ["15b3:*"], Mentions("setting")),
        ({"ATS_ENABLED\n": 1}, ["15b3:*"], Mentions("setting")),
        (
            {"ATS_ENABLED": True},
            ["nic\n"],
            Mentions("devices", "0", "nic\\n"),
        ),
        ({"ATS_ENABLED": "1; reboot"}, ["15b3:*"], Mentions("setting")),
        ({"ATS_ENABLED": True}, ["0000:15:00.0"], Mentions("0000:15:00.0", "NVIDIA/Mellanox", "NIC")),
    ],
)
def test_bad_input_is_refused_before_anything_is_set(mellanox, values, devices, message):
    with pytest.raises(HostError) as error:
        ensure(mellanox, values, devices=devices)
    assert str(error.value) == message
    assert mellanox.effects == []


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"settings": [], "famliy": True}, Mentions("famliy", "by_family")),
        ({"by_family": True}, Mentions("nic_firmware", "settings")),
        ({"settings": [{"devices": [], "values": {}, "x": 1}]}, Mentions("settings[0]", "x")),
        ({"settings": [{"devices": []}]}, Mentions("settings[0]", "values")),
        ({"settings": [{"values": {}}]}, Mentions("settings[0]", "devices")),
    ],
)
def test_a_misspelt_or_missing_setting_is_refused(mellanox, data, message):
    with pytest.raises(HostError) as refused:
        nic_firmware.wanted(data, mellanox.host())
    assert str(refused.value) == message


OTHER = "0000:15:00.0"


@pytest.fixture
def two(mellanox):
    """The server with two ConnectX NICs, the second of which has no selective repeat."""
    mellanox.put(f"{mellanox.directory(OTHER)}/uevent", "PCI_CLASS=20000\nPCI_ID=15B3:101B\nDRIVER=mlx5_core\n")
    mellanox.firmware[OTHER] = {name: list(row) for name, row in mellanox.firmware[NIC].items()}
    del mellanox.firmware[OTHER]["RDMA_SELECTIVE_REPEAT_EN"]
    return mellanox


def next_boot(server, address):
    return {name: row[2] for name, row in server.firmware[address].items()}


def test_a_key_that_one_nic_lacks_is_named_after_the_others_are_set(two):
    predicted = ensure(two, check=True)
    assert two.effects == []
    done = ensure(two)
    assert (predicted.before, predicted.after) == (done.before, done.after)
    assert (predicted.pending, predicted.failed) == (done.pending, done.failed)
    assert done.failed == (Mentions("nic_firmware", OTHER, "RDMA_SELECTIVE_REPEAT_EN", "NIC", "ADVANCED_PCI_SETTINGS"))
    assert done.facts["failures"] == [done.failed]
    assert next_boot(two, NIC)["RDMA_SELECTIVE_REPEAT_EN"] == "True(1)"
    assert next_boot(two, OTHER)["MAX_ACC_OUT_READ"] == "44"
    again = ensure(two)
    assert (again.changed, again.failed) == (False, done.failed)


def test_a_nic_that_does_not_answer_does_not_stop_the_other(two):
    del two.firmware[NIC]
    outcome = ensure(two, {"ATS_ENABLED": False})
    assert outcome.failed == f"nic_firmware: {NIC}: mstconfig has no answer for it"
    assert next_boot(two, OTHER)["ATS_ENABLED"] == "False(0)"


def test_lockdown_is_named_if_the_tool_fails(two):
    del two.firmware[NIC]
    two.lock_down("integrity")
    assert ensure(two, {"ATS_ENABLED": True}).failed == (Mentions("nic_firmware", NIC))


def test_a_key_that_no_setting_reveals_is_a_failure(mellanox):
    outcome = ensure(mellanox, {"MAX_ACC_OUT_READ": 44})
    assert outcome.failed.startswith(f"nic_firmware: the firmware of {NIC} does not know MAX_ACC_OUT_READ: ")
    assert not outcome.changed


def boot(server):
    for row in server.firmware[NIC].values():
        row[1] = row[2]


def test_a_key_that_appears_only_after_a_boot_is_pending_and_not_failed(mellanox):
    mellanox.reveals_at_boot = True
    first = ensure(mellanox)
    assert first.failed == ""
    assert f"{NIC} MAX_ACC_OUT_READ" not in first.after
    assert "MAX_ACC_OUT_READ" in first.pending[0]
    again = ensure(mellanox)
    assert (again.changed, again.failed, again.facts["reboot_required"]) == (False, "", True)
    assert "MAX_ACC_OUT_READ" in again.pending[0]
    boot(mellanox)
    after = ensure(mellanox)
    assert after.after == {f"{NIC} MAX_ACC_OUT_READ": "44"}
    assert after.facts["reboot_required"]
    boot(mellanox)
    assert ensure(mellanox) == nic_firmware.Outcome(facts=ensure(mellanox).facts)
    assert not ensure(mellanox).facts["reboot_required"]


def test_a_key_that_is_still_hidden_after_the_boot_is_a_failure(mellanox):
    del mellanox.firmware[NIC]["MAX_ACC_OUT_READ"]
    mellanox.firmware[NIC]["ADVANCED_PCI_SETTINGS"] = ["False(0)", "True(1)", "True(1)"]
    outcome = ensure(mellanox)
    assert outcome.failed.startswith(f"nic_firmware: the firmware of {NIC} does not know MAX_ACC_OUT_READ: ")
    assert "MAX_ACC_OUT_READ" not in outcome.pending[0]


def test_a_run_killed_at_any_point_is_completed_by_the_next_run(killed_anywhere):
    def arrange(server):
        server.put(f"{server.directory(NIC)}/uevent", "PCI_CLASS=20000\nPCI_ID=15B3:101B\nDRIVER=mlx5_core\n")
        server.firmware[NIC] = {name: ["False(0)"] * 3 for name in PAPER}
        server.firmware[NIC]["MAX_ACC_OUT_READ"] = ["0", "0", "0"]
        server.firmware[NIC]["PCI_WR_ORDERING"] = ["per_mkey(0)", "per_mkey(0)", "force_relax(1)"]

    assert killed_anywhere(arrange, ensure) == 2


def refused(server, values):
    with pytest.raises(HostError) as error:
        ensure(server, values)
    assert server.effects == []
    return str(error.value)


@pytest.mark.parametrize("name", ["ATS", "A", "NUM_OF_VFS_P1", "HOST_CHAINING[1]", "Key[12]"])
@pytest.mark.parametrize("value", [True, 0, -1, "a.b-c_D"])
def test_names_and_values_of_firmware_are_accepted(mellanox, name, value):
    data = {"settings": [{"devices": [NIC], "values": {name: value}}]}
    assert nic_firmware.wanted(data, mellanox.host()) == {NIC: {name: value}}


@pytest.mark.parametrize(
    ("name", "value"), [("ats", 1), ("A[x]", 1), ("A[1]x", 1), ("A", 1.5), ("A", None), ("A", ""), ("A", "a b")]
)
def test_a_name_or_value_that_is_no_firmware_setting_is_refused(mellanox, name, value):
    assert refused(mellanox, {name: value}) == Mentions("nic_firmware.settings[0]", f"{name}={value!r}")


def test_settings_of_later_entries_are_added(mellanox):
    entries = [{"devices": ["nic"], "values": {"A": 1, "B": 2}}, {"devices": [NIC], "values": {"B": 3}}]
    assert nic_firmware.wanted({"settings": entries}, mellanox.host()) == {NIC: {"A": 1, "B": 3}}


def test_the_report_lists_current_and_next_values(mellanox):
    outcome = ensure(mellanox, {"NUM_OF_VFS": 16, "ATS_ENABLED": True, "SRIOV_EN": True})
    assert outcome.before == {f"{NIC} NUM_OF_VFS": "8"}
    assert outcome.after == {f"{NIC} NUM_OF_VFS": "16"}
    assert outcome.pending == [Mentions(NIC, "ATS_ENABLED", "NUM_OF_VFS")]
    assert outcome.facts == {
        "reboot_required": True,
        "devices": {
            NIC: {
                "NUM_OF_VFS": {"current": "8", "next_boot": "16"},
                "ATS_ENABLED": {"current": "False(0)", "next_boot": "True(1)"},
                "SRIOV_EN": {"current": "True(1)", "next_boot": "True(1)"},
            }
        },
        "failures": [],
        "unknown": [],
    }
    assert [one for one in mellanox.commands if " set " in one] == [f"mstconfig -d {NIC} -y set NUM_OF_VFS=16"]


def test_a_hidden_setting_is_shown_as_hidden_before_and_as_a_word_after(mellanox):
    outcome = ensure(mellanox, {"ADVANCED_PCI_SETTINGS": True, "MAX_ACC_OUT_READ": 44}, check=True)
    assert outcome.before == {f"{NIC} ADVANCED_PCI_SETTINGS": "False(0)", f"{NIC} MAX_ACC_OUT_READ": "hidden"}
    assert outcome.after == {f"{NIC} ADVANCED_PCI_SETTINGS": "True(1)", f"{NIC} MAX_ACC_OUT_READ": "44"}


def test_firmware_without_current_values_waits_only_for_what_was_set(mellanox):
    mellanox._mstconfig_query = lambda _address: OLD
    assert ensure(mellanox, {"NUM_OF_VFS": 8}, check=True).pending == [Mentions(NIC, "NUM_OF_VFS")]
    outcome = ensure(mellanox, {"NUM_OF_VFS": 8, "SRIOV_EN": True, "LINK_TYPE_P1": "VPI"}, check=True)
    assert list(outcome.after) == [f"{NIC} NUM_OF_VFS"]
    assert outcome.facts["devices"][NIC]["SRIOV_EN"] == {"current": None, "next_boot": "True(1)"}
    assert not ensure(mellanox, {"SRIOV_EN": True}).facts["reboot_required"]


def test_a_value_that_the_firmware_does_not_keep_is_a_failure(two):
    two._mstconfig_set = lambda _argv, _stdin: ""
    outcome = ensure(two, {"NUM_OF_VFS": 16, "SRIOV_EN": False}, devices=[NIC])
    assert outcome.failed == (Mentions("nic_firmware", NIC, "NUM_OF_VFS", "SRIOV_EN"))
    assert (outcome.changed, outcome.facts["devices"]) == (False, {})


@pytest.mark.parametrize("level", ["integrity", "none"])
def test_a_refused_command_is_named_with_its_cause(mellanox, level):
    def failed(_argv, _stdin):
        raise HostError("'mstconfig' failed (1): no", "correct it")

    mellanox._mstconfig_set = failed
    mellanox.lock_down(level)
    locked = (
        "; kernel lockdown is on (integrity), which blocks all writes to PCI config space: turn Secure Boot off in the "
        "BIOS"
    )
    assert ensure(mellanox, {"NUM_OF_VFS": 16}).failed == (
        f"nic_firmware: {NIC}: 'mstconfig' failed (1): no{locked * (level != 'none')}; correct it"
    )
