# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The output of mstconfig, the forms of a value, and the plan for one NIC."""

from __future__ import annotations

import pytest
from messages import raises

from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.errors import HostError
from ansible_collections.sailloft.fleet.plugins.module_utils.host.devices import nic_firmware
from ansible_collections.sailloft.fleet.plugins.module_utils.host.devices.nic_firmware import Value

ADVANCED, HIDDEN = "ADVANCED_PCI_SETTINGS", "MAX_ACC_OUT_READ"
# Output of the tool with everything that is hard to read: values as words, arrays, a star for values that take effect
# at the next boot. The lines are those of a ConnectX-4 in github.com/Mellanox/nic-configuration-operator,
# pkg/nvconfig/utils_test.go.
RECORDED = """
Device #1:
----------

Device type:    ConnectX4
Configurations:                              Default         Current         Next Boot
*        KEEP_IB_LINK_UP_P2                  False(0)        True(1)         True(1)
         KEEP_LINK_UP_ON_BOOT_P2             False(0)        False(0)        False(0)
         ESWITCH_HAIRPIN_DESCRIPTORS         Array[0..7]     Array[0..7]     Array[0..7]
*        MEMIC_SIZE_LIMIT                    _256KB(1)       _256KB(1)       DISABLED(0)
The '*' shows parameters with next value different from default/current value.
"""
# Output of mstconfig -e query for a ConnectX-3 Pro, which has no current values.
RECORDED_OLD = """
Device #1:
----------

Device type:    ConnectX3Pro
Device:         /sys/bus/pci/devices/0000:20:00.0/config

Configurations:                              Default         Next Boot
         SRIOV_EN                            True(1)         True(1)
         NUM_OF_VFS                          16              16
         LINK_TYPE_P1                        VPI(3)          VPI(3)
"""


def test_recorded_output_of_mstconfig_is_read():
    settings = nic_firmware.parse(RECORDED)
    assert list(settings) == [
        "KEEP_IB_LINK_UP_P2",
        "KEEP_LINK_UP_ON_BOOT_P2",
        "ESWITCH_HAIRPIN_DESCRIPTORS",
        "MEMIC_SIZE_LIMIT",
    ]
    assert settings["MEMIC_SIZE_LIMIT"] == nic_firmware.FirmwareSetting(Value("_256KB(1)"), Value("DISABLED(0)"))


def test_recorded_output_of_old_firmware_is_read():
    settings = nic_firmware.parse(RECORDED_OLD)
    assert settings["NUM_OF_VFS"] == nic_firmware.FirmwareSetting(None, Value("16"))


@pytest.mark.parametrize(
    "output", ["", "-E- Failed to open the device\n", "Configurations:  Default  Current\n  A  1  1\n"]
)
def test_output_without_a_table_is_refused(output):
    with pytest.raises(HostError, match="column"):
        nic_firmware.parse(output)


@pytest.mark.parametrize(
    ("text", "wanted", "same"),
    [
        ("True(1)", True, True),
        ("True(1)", "1", True),
        ("True(1)", "true", True),
        ("False(0)", True, False),
        ("per_mkey(0)", "per_mkey", True),
        ("per_mkey(0)", 0, True),
        ("force_relax(1)", "per_mkey", False),
        ("44", 44, True),
        ("44", "0x2c", True),
        ("128", 44, False),
        ("0x2c", 44, True),
        ("44", "44", True),
        ("44", " 44 ", True),
        ("44", "45", False),
        ("True(1)", "TRUE(1)", True),
        ("True(1)", "True(0)", False),
        ("True(1)", 1, True),
        ("True(1)", 2, False),
        ("True", True, True),
        ("False", False, True),
        ("False", True, False),
        ("per_mkey(0)", "0", True),
        ("per_mkey(0)", "mkey", False),
        ("word", "other", False),
        ("word", 0, False),
        ("word", "word(0)", False),
        ("LEVEL(-1)", -1, True),
        ("LEVEL(1)x", 1, False),
    ],
)
def test_equivalent_forms_of_a_value_are_equal(text, wanted, same):
    assert Value(text).is_wanted(wanted) is same


@pytest.mark.parametrize(
    ("seen", "want", "plan"),
    [
        ({"A": "1"}, {"A": 1}, nic_firmware.FirmwarePlan({}, [], [])),
        ({"A": "1"}, {"A": 2}, nic_firmware.FirmwarePlan({"A": 2}, [], [])),
        ({}, {"A": 2}, nic_firmware.FirmwarePlan({}, [], ["A"])),
        (
            {ADVANCED: "False(0)"},
            {HIDDEN: 1},
            nic_firmware.FirmwarePlan({}, [], [HIDDEN]),
        ),
        (
            {ADVANCED: "False(0)"},
            {HIDDEN: 1, ADVANCED: True},
            nic_firmware.FirmwarePlan({ADVANCED: True}, [HIDDEN], []),
        ),
        (
            {ADVANCED: "True(1)"},
            {HIDDEN: 1, ADVANCED: True},
            nic_firmware.FirmwarePlan({}, [], [HIDDEN]),
        ),
        (
            {},
            {HIDDEN: 1, ADVANCED: True},
            nic_firmware.FirmwarePlan({}, [], [HIDDEN, ADVANCED]),
        ),
    ],
)
def test_settings_are_divided_by_what_old_firmware_shows(seen, want, plan):
    shown = {name: nic_firmware.FirmwareSetting(None, Value(text)) for name, text in seen.items()}
    assert nic_firmware.plan(shown, want) == plan


def test_a_table_row_needs_all_columns_and_a_broken_table_is_quoted():
    text = "Configurations:  Next Boot\n  A  1\n  B  1  2\n  C\n\n"
    assert nic_firmware.parse("X  1\n" + text) == {"A": nic_firmware.FirmwareSetting(None, Value("1"))}
    with raises(HostError, "mstconfig", "'Next Boot'", "x" * 200):
        nic_firmware.parse("x" * 201)
