# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Made-up output of ip, with the keys and formats of iproute2's source (ip/ipaddress.c, print_vfinfo)."""

from __future__ import annotations

import json

import pytest
from messages import raises

from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.errors import HostError
from ansible_collections.sailloft.fleet.plugins.module_utils.host.devices import vf_settings

PF = "0000:15:00.0"
VF = {
    "vf": 2,
    "link_type": "ether",
    "address": "02:00:00:00:15:02",
    "vlan_list": [{"vlan": 100, "qos": 3}],
    "tx_rate": 40000,
    "rate": {"max_tx": 40000, "min_tx": 1000},
    "spoofchk": False,
    "link_state": "enable",
    "trust": True,
    "query_rss_en": False,
}


def report(server, vfs, interface="nic1", **link):
    """Set the output of ip for the server's interface."""
    whole = {"ifname": interface, "link_type": "ether", "address": "02:fe:00:00:15:00", **link, "vfinfo_list": vfs}
    server._ip_show = lambda name: json.dumps(
        [whole] if name == interface else [{"ifname": name, "link_type": "ether"}]
    )
    return server


def test_a_vf_on_ethernet_is_read(server):
    link = vf_settings.read(report(server, [VF]), PF)
    assert (link.interface, link.kind, link.hardware_address) == ("nic1", "ether", "02:fe:00:00:15:00")
    assert link.vfs == {
        2: {
            "mac": "02:00:00:00:15:02",
            "node_guid": None,
            "port_guid": None,
            "trust": True,
            "spoof_check": False,
            "vlan": 100,
            "link_state": "enable",
            "min_tx_mbps": 1000,
            "max_tx_mbps": 40000,
        }
    }
    assert link.vlan_qos == {2: 3}


def test_a_vf_on_infiniband_is_read(server):
    told = {
        "vf": 0,
        "link_type": "infiniband",
        "address": ":".join(["00"] * 20),
        "broadcast": "00:ff:ff:ff:ff:12:40:1b:ff:ff:00:00:00:00:00:00:ff:ff:ff:ff",
        "vlan_list": [{}],
        "rate": {"max_tx": 0, "min_tx": 0},
        "node guid": "02:11:22:33:44:55:66:77",
        "port guid": "02:11:22:33:44:55:66:78",
        "link_state": "disable",
    }
    address = "00:00:10:29:fe:80:00:00:00:00:00:00:b8:3f:d2:03:00:9e:10:04"
    link = vf_settings.read(report(server, [told], link_type="infiniband", address=address), PF)
    assert (link.kind, link.hardware_address) == ("infiniband", address)
    seen = link.vfs[0]
    assert (seen["node_guid"], seen["port_guid"]) == ("02:11:22:33:44:55:66:77", "02:11:22:33:44:55:66:78")
    assert (seen["link_state"], seen["vlan"], seen["trust"]) == ("disable", 0, None)


def test_a_missing_setting_is_read_as_unknown_and_not_as_off(server):
    # A driver omits settings that it does not have (print_vfinfo: setting != -1); kernels before 4.9 have no VLAN list.
    seen = vf_settings.read(report(server, [{"vf": 0, "mac": "02:00:00:00:15:00", "vlan": 7}]), PF).vfs[0]
    assert (seen["mac"], seen["vlan"]) == ("02:00:00:00:15:00", 7)
    assert [seen[name] for name in ("trust", "spoof_check", "link_state", "max_tx_mbps", "min_tx_mbps")] == [None] * 5


def test_the_permanent_address_of_a_bond_member_is_used(server):
    link = vf_settings.read(report(server, [], permaddr="b8:3f:d2:9e:10:04"), PF)
    assert link.hardware_address == "b8:3f:d2:9e:10:04"


def test_a_representor_is_not_the_physical_function(server):
    server.put(f"{server.directory(PF)}/net/eth9/operstate", "up\n")
    answers = {
        "eth9": [{"ifname": "eth9", "link_type": "ether", "address": "0a:00:00:00:00:01", "phys_port_name": "pf0vf0"}],
        "nic1": [{"ifname": "nic1", "link_type": "ether", "address": "02:fe:00:00:15:00", "phys_port_name": "p0"}],
    }
    server._ip_show = lambda name: json.dumps(answers[name])
    assert vf_settings.read(server, PF).interface == "nic1"


def test_a_function_without_an_interface_is_refused(server):
    with pytest.raises(HostError, match=r"0000:13:00\.0"):
        vf_settings.read(server, "0000:13:00.0")


@pytest.mark.parametrize("answer", ["", "[]", "[{}", '[{"vfinfo_list": [{}]}]', '["x"]'])
def test_invalid_output_of_ip_is_refused(server, answer):
    server._ip_show = lambda _name: answer
    with pytest.raises(HostError, match=r"nic1.*iproute2"):
        vf_settings.read(server, PF)


def test_the_command_has_the_syntax_of_ip_link():
    settings = {
        "mac": "02:00:00:00:15:02",
        "trust": True,
        "spoof_check": False,
        "vlan": 100,
        "link_state": "auto",
        "min_tx_mbps": 1000,
        "max_tx_mbps": 40000,
    }
    line = vf_settings.line("nic1", 2, settings)
    assert line == (
        "link set dev nic1 vf 2 mac 02:00:00:00:15:02 trust on spoofchk off vlan 100 state auto "
        "min_tx_rate 1000 max_tx_rate 40000"
    )
    guids = vf_settings.line("ib0", 0, {"node_guid": "02:11:22:33:44:55:66:77", "port_guid": "02:11:22:33:44:55:66:78"})
    assert guids == "link set dev ib0 vf 0 node_guid 02:11:22:33:44:55:66:77 port_guid 02:11:22:33:44:55:66:78"
    assert vf_settings.interfaces_of(f"{line}\n{guids}\n{line}\n") == ["nic1", "ib0"]


def test_a_refused_command_is_named(server):
    server.vf_settings["nic1"] = {0: {"mac": "", "state": "auto"}, 1: {"mac": "", "state": "auto"}}
    batch = [
        (vf_settings.line("nic1", 0, {"link_state": "enable"}), f"VF 0 of {PF}"),
        (vf_settings.line("nic1", 1, {"trust": True}), f"VF 1 of {PF}"),
    ]
    with pytest.raises(HostError, match=r"VF.*1.*0000:15:00\.0"):
        vf_settings.apply(server, batch)


def failing(server, cause):
    def failed(_argv, _stdin):
        raise HostError(cause, "correct it")

    server._ip_batch = failed


BATCH = [("link set dev nic1 vf 0 vlan 1", "VF 0 of A"), ("link set dev nic1 vf 1 vlan 1", "VF 1 of A")]


@pytest.mark.parametrize(("line", "index"), [(1, 0), (2, 1)])
def test_the_command_of_the_failed_line_is_named(server, line, index):
    failing(server, f"'ip' failed (1): no; Command failed -:{line}")
    with raises(HostError, "sriov", "VF", index, "nic1", "1", "ip"):
        vf_settings.apply(server, BATCH)


@pytest.mark.parametrize("cause", ["ip is not installed", "Command failed -:0", "Command failed -:3"])
def test_an_error_without_a_line_of_the_batch_is_passed_on(server, cause):
    failing(server, cause)
    with pytest.raises(HostError) as error:
        vf_settings.apply(server, BATCH)
    assert str(error.value) == f"{cause}; correct it"


def test_an_empty_batch_runs_no_command(server):
    vf_settings.apply(server, [])
    assert server.commands == []


def test_a_batch_has_one_command_a_line(server):
    sent = []
    server._ip_batch = lambda _argv, stdin: sent.append(stdin) or ""
    vf_settings.apply(server, BATCH)
    assert sent == ["link set dev nic1 vf 0 vlan 1\nlink set dev nic1 vf 1 vlan 1\n"]


def test_long_output_of_ip_is_quoted_in_part(server):
    server._ip_show = lambda _name: "x" * 201
    with raises(HostError, "sriov", "nic1", "x" * 200):
        vf_settings.read(server, PF)


@pytest.mark.parametrize(
    ("told", "vlan"), [({}, 0), ({"vlan_list": []}, 0), ({"vlan": 3}, 3), ({"vlan_list": [{}]}, 0)]
)
def test_a_vlan_that_is_not_reported_is_none(server, told, vlan):
    assert vf_settings.read(report(server, [{"vf": 0, **told}]), PF).vfs[0]["vlan"] == vlan


@pytest.mark.parametrize(
    ("link", "read"),
    [
        ({"permaddr": "02:fe:00:00:00:01"}, ("ether", "02:fe:00:00:00:01", False)),
        ({"phys_port_name": "p0"}, ("ether", "02:fe:00:00:15:00", False)),
    ],
)
def test_a_link_is_read_with_its_address(server, link, read):
    found = vf_settings.read(report(server, [], **link), PF)
    assert (found.kind, found.hardware_address, found.representor) == read


@pytest.mark.parametrize("guid", ["02:11:22:33:44:55:66:77", "00:00:00:00:00:00:00:01", "AA:00:00:00:00:00:00:00"])
def test_a_guid_is_read_in_lower_case(guid):
    assert vf_settings.OF_ONE_VF["port_guid"].check(guid) == guid.lower()
