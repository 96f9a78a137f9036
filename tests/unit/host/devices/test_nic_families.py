# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

import gpudirect_servers as servers
import pytest

from ansible_collections.sailloft.fleet.plugins.module_utils.host.devices import nic_families, nic_firmware
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.gpudirect.acs_plan import AcsPlan
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.gpudirect.acs_rules import (
    BARE_METAL,
    VIRTUAL_MACHINES,
)

NIC = "0000:14:00.0"
BY_FAMILY = {"devices": ["gpu", "nic"], "purpose": "virtual_machines"}


def values(host, purpose=VIRTUAL_MACHINES, device=None):
    nic = next(item for item in host.functions if item.kind == "nic")
    nic.device_id = device or nic.device_id
    return nic_families.values(nic, AcsPlan(host, servers.passed(host), purpose))


@pytest.mark.parametrize(
    ("device", "reads"),
    [(0x101B, 44), (0x1021, 0), (0x1023, None), (0xA2DC, None)],
    ids=["CX-6", "CX-7", "CX-8", "BF-3"],
)
def test_each_nic_family_gets_its_settings(device, reads):
    found = values(servers.hgx(), device=device)
    assert found.get("MAX_ACC_OUT_READ") == reads
    assert found["ATS_ENABLED"] is found["SRIOV_EN"] is True
    assert ("ADVANCED_PCI_SETTINGS" in found) == (reads is not None)
    # IBM's values, for the NICs for which they were published.
    ibms = ("PCI_WR_ORDERING", "P2P_ORDERING_MODE", "RDMA_SELECTIVE_REPEAT_EN")
    assert [name in found for name in ibms] == [reads == 44] * 3


@pytest.mark.parametrize("device", [0x1017, 0x101D, 0x101E, 0xA2D6, 0x1025])
def test_an_unknown_nic_family_gets_no_settings(device):
    assert values(servers.hgx(), device=device) == {}


def test_the_ats_setting_depends_on_the_topology():
    assert values(servers.hgx())["ATS_ENABLED"] is True
    assert values(servers.hgx(), BARE_METAL)["ATS_ENABLED"] is False
    assert values(servers.numa(servers.INTEL_ROOT))["ATS_ENABLED"] is False
    assert "ATS_ENABLED" not in values(servers.dma_direct())
    without = servers.hgx()
    without.functions = [item for item in without.functions if item.kind != "gpu"]
    assert "ATS_ENABLED" not in values(without)


def test_each_row_has_a_gain_and_a_source():
    for family in nic_families.FAMILIES:
        assert len({row.name for row in family.rows}) == len(family.rows)
        assert all(row.gain and row.source for row in family.rows)
    devices = [device for family in nic_families.FAMILIES for device in family.devices]
    assert len(devices) == len(set(devices))


@pytest.fixture
def connectx7(server):
    server.put(f"{server.directory(NIC)}/uevent", "PCI_CLASS=20000\nPCI_ID=15B3:1021\nDRIVER=mlx5_core\n")
    server.firmware[NIC] = {
        "ADVANCED_PCI_SETTINGS": ["False(0)"] * 3,
        "MAX_ACC_OUT_READ": ["44"] * 3,
        "ATS_ENABLED": ["False(0)"] * 3,
    }
    return server


def ensure(server, **data):
    return nic_firmware.ensure(server, server.host(), {"settings": [], "by_family": BY_FAMILY, **data})


def test_an_unknown_setting_of_a_family_is_reported_and_not_fatal(connectx7):
    outcome = ensure(connectx7)
    assert outcome.failed == ""
    assert outcome.facts["unknown"] == [f"the firmware of {NIC} does not know SRIOV_EN"]
    assert {name: row[2] for name, row in connectx7.firmware[NIC].items()} == {
        "ADVANCED_PCI_SETTINGS": "True(1)",
        "MAX_ACC_OUT_READ": "0",
        "ATS_ENABLED": "True(1)",
    }
    assert not ensure(connectx7).changed


def test_the_inventory_overrides_the_family_and_its_unknown_settings_are_fatal(connectx7):
    outcome = ensure(connectx7, settings=[{"devices": [NIC], "values": {"MAX_ACC_OUT_READ": 128, "NO_SUCH": 1}}])
    assert connectx7.firmware[NIC]["MAX_ACC_OUT_READ"][2] == "128"
    assert outcome.failed.startswith(f"nic_firmware: the firmware of {NIC} does not know NO_SUCH: leave it out")
    assert outcome.facts["unknown"] == [f"the firmware of {NIC} does not know SRIOV_EN"]
