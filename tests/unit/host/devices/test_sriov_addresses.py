# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Addresses of VFs: derived from the physical function's address, or requested."""

from __future__ import annotations

import pytest
from messages import Mentions, raises

from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.errors import HostError
from ansible_collections.sailloft.fleet.plugins.module_utils.host.devices import sriov, vf_addresses

PF, OTHER = "0000:15:00.0", "0000:14:00.0"
PF_MAC = "b8:3f:d2:9e:10:04"
# The bytes before the port GUID are flags, the queue pair's number and the subnet; they change.
PORT = "00:00:10:29:fe:80:00:00:00:00:00:00:b8:3f:d2:03:00:9e:10:04"
DERIVED = {"devices": ["nic"], "count": 2, "derive_addresses": True}


def ensure(server, *entries, check=False):
    return sriov.ensure(server, server.host(), {"functions": list(entries)}, check, server.host)


def macs(server, interface):
    return [vf["mac"] for vf in server.vf_settings[interface].values()]


def test_each_vf_gets_a_unique_and_stable_address(server, make_server):
    assert ensure(server, DERIVED).changed
    assert macs(server, "nic1") == [vf_addresses.mac("02:fe:00:00:15:00", index) for index in (0, 1)]
    assert len({*macs(server, "nic0"), *macs(server, "nic1")}) == 4
    assert not ensure(server, DERIVED).changed
    # Additional VFs and a reboot do not change them.
    before = macs(server, "nic1")
    ensure(server, {**DERIVED, "count": 4})
    assert macs(server, "nic1")[:2] == before
    booted = make_server()
    ensure(booted, DERIVED)
    assert macs(booted, "nic1") == before


def test_check_mode_reports_the_derived_addresses(server):
    predicted = ensure(server, DERIVED, check=True)
    assert server.effects == []
    assert predicted.after == ensure(server, DERIVED).after
    assert predicted.facts["functions"][PF]["settings"][0]["seen"] is None


def test_a_given_address_takes_precedence_over_a_derived_one(server):
    given = {"index": 1, "mac": "02:00:00:00:15:01", "vlan": 5}
    ensure(server, {**DERIVED, "devices": [PF], "vfs": [given]})
    assert macs(server, "nic1") == [vf_addresses.mac("02:fe:00:00:15:00", 0), "02:00:00:00:15:01"]


def test_vfs_of_bond_members_get_different_addresses(server):
    for interface in ("nic0", "nic1"):
        server.links[interface] = {"address": "02:fe:00:00:14:00", "permaddr": server.links[interface]["address"]}
    ensure(server, DERIVED)
    assert len({*macs(server, "nic0"), *macs(server, "nic1")}) == 4


def test_nics_with_the_same_address_are_refused(server):
    server.links["nic1"] = server.links["nic0"]
    with pytest.raises(HostError, match=r"VFs.*host"):
        ensure(server, DERIVED)
    assert server.effects == []


def test_guids_are_derived_on_infiniband(server):
    address = "00:00:10:29:fe:80:00:00:00:00:00:00:b8:3f:d2:03:00:9e:10:04"
    server.infiniband.add("nic1")
    server.links["nic1"] = {"address": address}
    entry = {**DERIVED, "devices": [PF], "link_state": "auto"}
    ensure(server, entry)
    guid = vf_addresses.guid(address, 1)
    assert server.vf_settings["nic1"][1] == {"node_guid": guid, "port_guid": guid, "state": "auto"}
    assert not ensure(server, entry).changed


@pytest.mark.parametrize(
    ("infiniband", "vf", "message"),
    [
        (
            True,
            {"mac": "02:00:00:00:15:01"},
            Mentions("VF", "0", "0000:15:00.0", "mac", "nic1"),
        ),
        (False, {"node_guid": "02:11:22:33:44:55:66:77"}, Mentions("node_guid", "VF")),
    ],
)
def test_an_address_of_the_wrong_link_type_is_refused(server, infiniband, vf, message):
    server.infiniband.update({"nic1"} if infiniband else set())
    with pytest.raises(HostError) as error:
        ensure(server, {"devices": [PF], "count": 1, "vfs": [{"index": 0, **vf}]})
    assert str(error.value) == message
    assert server.effects == []


@pytest.mark.parametrize("address", ["", "00:00:00:00:00:00"])
def test_deriving_from_a_missing_address_is_refused(server, address):
    server.links["nic1"] = {"address": address}
    with pytest.raises(HostError, match=r"nic1.*0000:15:00\.0"):
        ensure(server, {**DERIVED, "devices": [PF]})
    assert server.effects == []


def test_no_interface_is_needed_without_vfs(server):
    del server.links["nic1"]
    assert not ensure(server, {**DERIVED, "devices": [PF], "count": 0}).changed


def test_two_vfs_with_one_guid_are_refused(server):
    server.infiniband.add("nic1")
    guid = "02:11:22:33:44:55:66:77"
    vfs = [{"index": index, "port_guid": guid} for index in (0, 1)]
    with raises(HostError, guid, "port_guid"):
        ensure(server, {"devices": [PF], "count": 2, "vfs": vfs})


@pytest.mark.parametrize("guid", ["02:11:22:33:44:55:66", "00:00:00:00:00:00:00:00", "02-11-22-33-44-55-66-77"])
def test_an_invalid_guid_is_refused(server, guid):
    with pytest.raises(HostError, match="GUID"):
        ensure(server, {"devices": [PF], "count": 1, "vfs": [{"index": 0, "port_guid": guid}]})


def test_addresses_match_the_documented_formula():
    # The bytes are the first that sha256sum prints for printf 'b8:3f:d2:9e:10:04/0', for .../1 and for the port GUID,
    # but the first byte is changed; the comments show its value before.
    assert vf_addresses.mac(PF_MAC, 0) == "b2:4d:a3:3d:57:fb"  # b7...
    assert vf_addresses.mac(PF_MAC, 1) == "02:c1:09:23:15:60"  # 04...
    assert vf_addresses.guid(PORT, 0) == "f2:43:dd:84:82:0f:ce:7c"  # f8...


def test_addresses_are_local_unicast_and_unique():
    macs = [vf_addresses.mac(f"b8:3f:d2:9e:10:{port:02x}", index) for port in range(8) for index in range(128)]
    assert len(set(macs)) == len(macs)
    assert {mac[1] for mac in macs} == {"2"}
    assert {mac[0] for mac in macs} == set("0123456789abcdef")


def test_queue_pair_number_and_letter_case_do_not_change_an_address():
    other = PORT.replace("00:00:10:29", "00:00:33:aa").upper()
    assert vf_addresses.guid(other, 3) == vf_addresses.guid(PORT, 3)
    assert vf_addresses.mac(PF_MAC.upper(), 3) == vf_addresses.mac(PF_MAC, 3)
