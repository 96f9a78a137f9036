# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

import json
from dataclasses import replace

import gpudirect_servers as servers
import pytest
from messages import raises

from ansible_collections.sailloft.fleet.plugins.module_utils.common.error import SailloftError
from ansible_collections.sailloft.fleet.plugins.module_utils.common.settings import Settings
from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.errors import RequestError
from ansible_collections.sailloft.fleet.plugins.module_utils.host.devices import (
    acs_ports,
    nic_families,
    nic_firmware,
    pci_tuning,
    vf_request,
    vfio_binding,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.gpudirect.acs_plan import AcsPlan
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.gpudirect.acs_rules import (
    BARE_METAL,
    VIRTUAL_MACHINES,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.model import Sriov

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


# Functions that manage NVSwitches get no settings of NICs; GPUs with virtual functions keep their driver.
GPUS, PF = ["0000:13:00.0", "0000:13:00.4"], "0000:15:00.0"
ATS = {"ATS_ENABLED": True}
READS = {"max_read_request_bytes": 4096}


@pytest.fixture
def host(server):
    """The server as if it had B200 GPUs: NIC manages their NVSwitches, PF is a ConnectX-7 that does not."""
    found = server.host()
    found.functions.append(replace(found.function(GPUS[0]), address=GPUS[1], iommu_group=None))
    for function in found.functions:
        if function.kind == "gpu":
            function.vendor_id, function.device_id = 0x10DE, 0x2901
    for address in (NIC, PF):
        function = found.function(address)
        function.vendor_id, function.device_id, function.manages_nvswitches = 0x15B3, 0x1021, address == NIC
        function.sriov = Sriov(8, 0)
    found.function(NIC).kind = "nvswitch_management"
    return found


def unread(host):
    for address in (NIC, PF):
        function = host.function(address)
        function.kind, function.manages_nvswitches = "nic", None
    return host


@pytest.mark.parametrize("devices", ["15b3:*", "15b3:1021", "nic"])
def test_a_kind_or_vendor_selects_nics_only(host, devices):
    firmware = nic_firmware.wanted({"settings": [{"devices": [devices], "values": ATS}]}, host)
    functions = vf_request.wanted({"functions": [{"devices": [devices], "count": 4}]}, host)
    tuned, _plan = pci_tuning.wanted({"settings": [{"devices": [devices], **READS}]}, host)
    for chosen in (firmware, functions, tuned):
        assert PF in chosen
        assert NIC not in chosen


def test_an_address_is_refused_for_firmware_and_virtual_functions(host):
    with pytest.raises(SailloftError, match=rf"{NIC}.*NVIDIA"):
        nic_firmware.wanted({"settings": [{"devices": [NIC], "values": ATS}]}, host)
    with pytest.raises(SailloftError, match=f"{NIC} manages NVSwitches"):
        vf_request.wanted({"functions": [{"devices": [NIC], "count": 1}]}, host)


def test_by_family_it_gets_no_firmware_settings(host):
    by_family = {"devices": ["gpu", "nic", "nvswitch_management"], "purpose": "virtual_machines"}
    assert NIC not in nic_firmware.wanted({"settings": [], "by_family": by_family}, host)


def wanted(devices):
    return Settings(RequestError, "acs", {"devices": devices, "purpose": "virtual_machines"})


def test_no_port_above_it_lets_translated_requests_through(host):
    plan = acs_ports.wanted(wanted(["gpu", "nic"]), host)
    assert plan.nics == [PF]
    assert not {PF, NIC} & set(acs_ports.wanted(wanted([NIC, PF]), unread(host)).nics)


@pytest.mark.parametrize("devices", [["nic"], ["15b3:*"], [PF]])
def test_what_could_manage_nvswitches_is_refused(host, devices):
    unread(host)
    with pytest.raises(SailloftError, match=rf"{PF}.*NVSwitches"):
        nic_firmware.wanted({"settings": [{"devices": devices, "values": ATS}]}, host)
    with pytest.raises(SailloftError, match=rf"{PF}.*NVSwitches"):
        vf_request.wanted({"functions": [{"devices": devices, "count": 1}]}, host)


def test_it_stays_with_the_host_when_guests_get_all_gpus(host):
    bind, _release = vfio_binding.wanted({"devices": ["gpu", "nic"]}, host)
    assert set(GPUS) <= {item.address for item in bind}
    assert NIC not in [item.address for item in bind]
    assert NIC in [item.address for item in vfio_binding.wanted({"devices": ["nvswitch_management"]}, host)[0]]


def with_vfs(host, vendor):
    owner = host.function(GPUS[0])
    virtual = replace(owner, address="0000:13:00.2", physical_function=owner.address)
    host.functions.append(virtual)
    owner.sriov = Sriov(8, 1, [virtual.address])
    for function in (owner, virtual):
        function.vendor_id = vendor
    return virtual.address


@pytest.mark.parametrize("selector", ["gpu", "1002:*"])
def test_a_gpu_with_virtual_functions_keeps_the_driver_that_made_them(host, selector):
    virtual = with_vfs(host, 0x1002)
    host.function(GPUS[1]).vendor_id = 0x1002
    bind, _release = vfio_binding.wanted({"devices": [selector], "keep_drivers_off": True}, host)
    assert [item.address for item in bind] == [GPUS[1]]
    vfio_binding.check_groups(host, bind)
    modules, reasons = vfio_binding.kept_off({"devices": [selector], "keep_drivers_off": True}, host)
    assert modules == []
    assert GPUS[0] in json.dumps(reasons)
    named, _release = vfio_binding.wanted({"devices": [virtual]}, host)
    assert [item.address for item in named] == [virtual]


def test_a_gpu_with_virtual_functions_is_refused_by_address(host):
    with_vfs(host, 0x1002)
    bind, _release = vfio_binding.wanted({"devices": [GPUS[0]]}, host)
    assert [item.address for item in bind] == [GPUS[0]]
    with raises(SailloftError, "1 VFs"):
        vfio_binding.check_groups(host, bind)
