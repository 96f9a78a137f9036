# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The settings of physical functions as users write them: defaults, limits, overrides and refusals."""

from __future__ import annotations

import pytest
from messages import Mentions

from ansible_collections.sailloft.fleet.plugins.module_utils.common.error import SailloftError
from ansible_collections.sailloft.fleet.plugins.module_utils.host.devices import vf_request
from ansible_collections.sailloft.fleet.plugins.module_utils.host.devices.vf_request import VfRequest

GPU, NIC, PF = "0000:13:00.0", "0000:14:00.0", "0000:15:00.0"


@pytest.fixture
def host(server):
    return server.host()


def wanted(host, **entry):
    """Return the request for one physical function."""
    return vf_request.wanted({"functions": [{"devices": [PF], **entry}]}, host)[PF]


def refused(host, *entries):
    with pytest.raises(SailloftError) as error:
        vf_request.wanted({"functions": list(entries)}, host)
    return str(error.value)


@pytest.mark.parametrize(
    ("entry", "request_"),
    [
        ({"count": 0}, VfRequest(0, None, None, False, {})),
        ({"count": 7}, VfRequest(7, None, None, False, {})),
        (
            {"count": 2, "drivers_autoprobe": False, "eswitch_mode": "switchdev", "derive_addresses": True},
            VfRequest(2, False, "switchdev", True, {}),
        ),
        ({"count": 1, "drivers_autoprobe": True, "vlan": 0}, VfRequest(1, True, None, False, {0: {"vlan": 0}})),
        (
            {"count": 3, "vlan": 4094, "vfs": [{"index": 2, "vlan": 5}, {"index": 0, "trust": True}]},
            VfRequest(3, None, None, False, {0: {"vlan": 4094, "trust": True}, 1: {"vlan": 4094}, 2: {"vlan": 5}}),
        ),
        ({"count": 2, "vfs": [{"index": 1, "trust": True}]}, VfRequest(2, None, None, False, {1: {"trust": True}})),
        ({"count": 1, "vfs": [{"index": 0}]}, VfRequest(1, None, None, False, {0: {}})),
        (
            {"count": 1, "eswitch_mode": "legacy", "link_state": "auto"},
            VfRequest(1, None, "legacy", False, {0: {"link_state": "auto"}}),
        ),
        # 0 is no limit, and both rates may be the same.
        (
            {"count": 1, "min_tx_mbps": 9, "max_tx_mbps": 0},
            VfRequest(1, None, None, False, {0: {"min_tx_mbps": 9, "max_tx_mbps": 0}}),
        ),
        (
            {"count": 1, "min_tx_mbps": 9, "max_tx_mbps": 9},
            VfRequest(1, None, None, False, {0: {"min_tx_mbps": 9, "max_tx_mbps": 9}}),
        ),
        ({"count": 1, "min_tx_mbps": 9}, VfRequest(1, None, None, False, {0: {"min_tx_mbps": 9}})),
        ({"count": 1, "max_tx_mbps": 1}, VfRequest(1, None, None, False, {0: {"max_tx_mbps": 1}})),
        (
            {"count": 1, "max_tx_mbps": 2147483647},
            VfRequest(1, None, None, False, {0: {"max_tx_mbps": 2147483647}}),
        ),
    ],
)
def test_settings_are_read_with_their_defaults(host, entry, request_):
    assert wanted(host, **entry) == request_


@pytest.mark.parametrize(
    ("entry", "of_vfs"),
    [
        ({"count": 2}, False),
        ({"count": 2, "vlan": 5}, True),
        ({"count": 1, "vfs": [{"index": 0}]}, True),
        ({"count": 1, "derive_addresses": True}, True),
        ({"count": 0, "derive_addresses": True}, False),
        ({"count": 0, "vlan": 5}, False),
    ],
)
def test_only_settings_of_vfs_need_the_interface(host, entry, of_vfs):
    assert wanted(host, **entry).of_vfs is of_vfs


def test_a_request_made_in_code_has_no_mode_no_derived_addresses_and_no_settings():
    assert VfRequest(1, None) == VfRequest(1, None, None, False, {})


def test_a_later_entry_overrides_an_earlier_one(host):
    entries = [{"devices": ["nic"], "count": 1, "vlan": 5}, {"devices": [PF], "count": 2}]
    assert vf_request.wanted({"functions": entries}, host) == {
        NIC: VfRequest(1, None, None, False, {0: {"vlan": 5}}),
        PF: VfRequest(2, None),
    }


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        (
            {"count": 8},
            Mentions("sriov.functions[0]", "0000:15:00.0", "7", "VFs", "8", "fewer"),
        ),
        (
            {"devices": [GPU], "count": 1},
            Mentions("sriov.functions[0]", "0000:13:00.0", "SR-IOV", "capability", "BIOS"),
        ),
        ({"count": 65536}, Mentions("sriov.functions[0]", "count", "65536", "65535")),
        ({"count": -1}, Mentions("sriov.functions[0]", "count", "-1", "65535")),
        (
            {"count": 2, "vfs": [{"index": 2}]},
            Mentions("sriov.functions[0].vfs[0]", "2", "VFs", "index"),
        ),
        (
            {"count": 2, "vfs": [{"index": -1}]},
            Mentions("sriov.functions[0].vfs[0]", "index", "-1", "65535"),
        ),
        (
            {"count": 2, "vfs": [{"index": 65536}]},
            Mentions("sriov.functions[0].vfs[0]", "index", "65536", "65535"),
        ),
        ({"count": 2, "vfs": [{"mac": "02:00:00:00:00:01"}]}, Mentions("sriov.functions[0].vfs[0]", "index")),
        ({"count": 1, "vlan": -1}, Mentions("sriov.functions[0]", "vlan", "-1", "4094")),
        (
            {"count": 1, "max_tx_mbps": 2147483648},
            Mentions("sriov.functions[0]", "max_tx_mbps", "2147483648", "2147483647"),
        ),
        (
            {"count": 1, "min_tx_mbps": 2147483648},
            Mentions("sriov.functions[0]", "min_tx_mbps", "2147483648", "2147483647"),
        ),
        (
            {"count": 1, "min_tx_mbps": 2, "max_tx_mbps": 1},
            Mentions("sriov.functions[0]", "min_tx_mbps", "VF", "0", "max_tx_mbps"),
        ),
        (
            {"count": 2, "eswitch_mode": "switchdev", "vfs": [{"index": 1, "trust": False, "vlan": 0}]},
            Mentions("sriov.functions[0]", "VF", "1", "trust", "vlan"),
        ),
        (
            {"count": 2, "vfs": [{"index": index, "mac": "02:00:00:00:00:01"} for index in (0, 1)]},
            Mentions("sriov", "02:00:00:00:00:01", "VFs"),
        ),
        (
            {"count": 1, "mac": "02:00:00:00:00:01"},
            Mentions("sriov.functions[0]", "mac"),
        ),
        (
            {"count": 1, "vfs": [{"index": 0, "count": 1}]},
            Mentions("sriov.functions[0].vfs[0]", "count"),
        ),
        ({}, Mentions("sriov.functions[0]", "count")),
    ],
)
def test_a_wrong_setting_is_refused(host, entry, message):
    assert refused(host, {"devices": [PF], **entry}) == message


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({}, "sriov: functions is missing; set it"),
        ({"functions": [], "count": 1}, "sriov: unknown setting 'count'; valid settings: functions"),
        ({"functions": [{"count": 1}]}, "sriov.functions[0]: devices is missing; set it"),
    ],
)
def test_a_misspelt_or_missing_setting_is_refused(data, message):
    with pytest.raises(SailloftError) as error:
        vf_request.wanted(data, None)
    assert str(error.value) == message


def test_a_vf_can_have_no_vfs(server):
    server.poke(f"/sys/bus/pci/devices/{PF}/sriov_numvfs", "1")
    assert refused(server.host(), {"devices": ["0000:15:10.0"], "count": 0}) == (
        Mentions("sriov.functions[0]", "0000:15:10.0", "VF", PF)
    )
    # A kind leaves VFs out.
    assert list(vf_request.wanted({"functions": [{"devices": ["nic"], "count": 1}]}, server.host())) == [NIC, PF]


@pytest.mark.parametrize(
    ("driver", "why"),
    [
        (None, Mentions("driver", "VFs")),
        (
            "vfio-pci",
            Mentions("vfio-pci", "VFs"),
        ),
    ],
)
@pytest.mark.parametrize("named", [PF, "nic"])
def test_a_driver_is_needed_only_if_the_count_changes(server, driver, why, named):
    server.bind(PF, driver)
    assert refused(server.host(), {"devices": [named], "count": 1}) == (Mentions("sriov.functions[0]", PF, why))
    assert wanted(server.host(), count=0) == VfRequest(0, None)


@pytest.mark.parametrize("name", ["mac", "node_guid", "port_guid"])
def test_each_kind_of_address_is_given_once(name):
    request = VfRequest(2, None, settings={0: {name: "a"}, 1: {name: "b"}})
    vf_request.refuse_twice({PF: request, NIC: VfRequest(1, None)})
    with pytest.raises(SailloftError) as error:
        vf_request.refuse_twice({PF: request, NIC: VfRequest(2, None, settings={0: {name: "b"}, 1: {name: "a"}})})
    assert str(error.value).startswith(f"sriov: a, b would be the {name} of two VFs of this host; ")
