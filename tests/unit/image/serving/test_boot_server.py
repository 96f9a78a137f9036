# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

import pytest
from ansible.errors import AnsibleFilterError

from ansible_collections.sailloft.fleet.plugins.filter.boot_server_plan import FilterModule

ONE = {"name": "bm01", "mac": "52:54:00:aa:bb:01", "address": "10.9.0.11"}
TWO = {"name": "bm02", "mac": "52:54:00:aa:bb:02", "address": "10.9.0.12"}


def planned(*nodes, **changed):
    server = {"address": "10.9.0.1", "netmask": "255.255.255.0", "servers": ["http://10.9.0.1", "http://10.9.0.2:8080"]}
    return FilterModule().filters()["boot_server_plan"](list(nodes), **{**server, **changed})


def problems(*nodes, **changed):
    return planned(*nodes, **changed)["problems"]


@pytest.mark.parametrize(
    ("node", "message"),
    [
        ({"name": "bm 02"}, "node 'bm 02': not a valid host name"),
        ({"name": None}, "node None: not a valid host name"),
        ({"mac": "52:54:00:aa:bb"}, "node bm02: '52:54:00:aa:bb'"),
        ({"mac": "any\nlog-dhcp"}, "node bm02: 'any\\nlog-dhcp'"),
        ({"mac": "01:00:5e:00:00:01"}, "node bm02: '01:00:5e:00:00:01'"),
        ({"mac": "00:00:00:00:00:00"}, "node bm02: '00:00:00:00:00:00'"),
        ({"mac": None}, "node bm02: None"),
        ({"mac": "52-54-00-AA-BB-01"}, "nodes bm01, bm02 have the MAC address 52:54:00:aa:bb:01"),
        ({"address": "10.9.0.11"}, "nodes bm01, bm02 have the address 10.9.0.11"),
        ({"name": "bm01"}, "nodes bm01, bm01 have the name bm01"),
        ({"address": "bm02"}, "node bm02 has the address bm02, give an IPv4 address (ansible_host)"),
        ({"address": None}, "node bm02 has the address (none)"),
        ({"address": 168361996}, "node bm02 has the address 168361996, give an IPv4 address"),
        ({"address": "10.9.0.256"}, "node bm02 has the address 10.9.0.256, give an IPv4 address"),
        ({"address": "10.9.0.012"}, "node bm02 has the address 10.9.0.012, give an IPv4 address"),
        ({"address": "10.9.1.12"}, "node bm02 has the address 10.9.1.12, which is not a host address in 10.9.0.0/24"),
        ({"address": "10.9.0.0"}, "node bm02 has the address 10.9.0.0, which is not a host address in 10.9.0.0/24"),
        ({"address": "10.9.0.255"}, "node bm02 has the address 10.9.0.255, which is not a host address in 10.9.0.0/24"),
        ({"address": "10.9.0.1"}, "node bm02 has the address 10.9.0.1, which is a boot server's"),
        ({"address": "10.9.0.2"}, "node bm02 has the address 10.9.0.2, which is a boot server's"),
        ({"address": "10.9.0.254"}, "node bm02 has the address 10.9.0.254, which is the gateway's"),
        ({"address": "10.9.0.253"}, "node bm02 has the address 10.9.0.253, which is a name server's"),
    ],
)
def test_an_invalid_node_is_named_once(node, message):
    found = problems(ONE, {**TWO, **node}, gateway="10.9.0.254", name_servers=["10.9.0.253"])
    assert len(found) == 1
    assert found[0].startswith(message)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"address": "10.9.0.256"}, "boot_server_address is 10.9.0.256"),
        ({"address": "10.9.0.255"}, "boot_server_address is 10.9.0.255, which is not a host address in 10.9.0.0/24"),
        ({"netmask": "255.255.0.255"}, "boot_server_netmask is 255.255.0.255"),
        ({"netmask": "0.0.0.0"}, "boot_server_netmask is 0.0.0.0"),
        ({"netmask": "24"}, "boot_server_netmask is 24"),
        ({"gateway": "router"}, "boot_server_gateway is router"),
        ({"gateway": "10.9.1.254"}, "boot_server_gateway is 10.9.1.254, give an address of 10.9.0.0/24"),
        ({"name_servers": ["ns1"]}, "boot_server_name_servers names ns1"),
        ({"servers": ["http://boot01"]}, "boot_server_servers: 'http://boot01' is not the URL of a server"),
        ({"servers": []}, "boot_server_servers is empty"),
    ],
)
def test_an_invalid_server_setting_is_named_once(changed, message):
    found = problems(ONE, **changed)
    assert len(found) == 1
    assert found[0].startswith(message)


GIVE = "is not a subnet, give {network: ADDRESS/BITS, gateway: ADDRESS}, and nothing else"
ELSEWHERE = (
    "which is not a host address in any of 10.9.0.0/24, 10.9.16.0/20; correct the address (ansible_host) "
    "or boot_server_subnets"
)
RACK = {"network": "10.9.16.0/20", "gateway": "10.9.16.1"}


@pytest.mark.parametrize(
    ("subnets", "message"),
    [
        (
            ["10.9.16.0/20"],
            f"boot_server_subnets: '10.9.16.0/20' {GIVE}",
        ),
        (
            [{"network": "10.9.16.0/20"}],
            f"boot_server_subnets: {{'network': '10.9.16.0/20'}} {GIVE}",
        ),
        (
            [{**RACK, "netmask": "255.255.240.0"}],
            f"boot_server_subnets: { {**RACK, 'netmask': '255.255.240.0'} } {GIVE}",
        ),
        (
            [{**RACK, "network": "10.9.16.0"}],
            "boot_server_subnets: '10.9.16.0' is not a network, give ADDRESS/BITS, like 10.9.16.0/20",
        ),
        (
            [{**RACK, "network": "10.9.16.0/255.255.240.0"}],
            "boot_server_subnets: '10.9.16.0/255.255.240.0' is not a network, give ADDRESS/BITS, like 10.9.16.0/20",
        ),
        (
            [{**RACK, "network": "10.9.16.0/31"}],
            "boot_server_subnets: '10.9.16.0/31' is not a network, give ADDRESS/BITS, like 10.9.16.0/20",
        ),
        (
            [{**RACK, "network": "10.9.16.1/20"}],
            "boot_server_subnets: '10.9.16.1/20' begins with a host address, give 10.9.16.0/20 if that is meant",
        ),
        (
            [{**RACK, "gateway": "router"}],
            "boot_server_subnets: 10.9.16.0/20 has the gateway router, give the IPv4 address of its router",
        ),
        (
            [{**RACK, "gateway": "10.9.15.1"}],
            "boot_server_subnets: 10.9.16.0/20 has the gateway 10.9.15.1, give an address of that network",
        ),
        (
            [{**RACK, "gateway": "10.9.31.255"}],
            "boot_server_subnets: 10.9.16.0/20 has the gateway 10.9.31.255, give an address of that network",
        ),
        (
            [{"network": "10.9.0.0/20", "gateway": "10.9.0.3"}],
            "boot_server_subnets: 10.9.0.0/20 overlaps 10.9.0.0/24, the network of boot_server_address; "
            "leave it out or correct it",
        ),
        (
            [RACK, {"network": "10.9.24.0/24", "gateway": "10.9.24.1"}],
            "boot_server_subnets: 10.9.24.0/24 overlaps 10.9.16.0/20; correct one of them",
        ),
    ],
)
def test_a_subnet_that_cannot_be_served_is_refused_in_one_error(subnets, message):
    assert problems(ONE, {**TWO, "address": "10.9.17.5"}, subnets=subnets) == [message]


@pytest.mark.parametrize(
    ("address", "message"),
    [
        (
            "10.9.32.5",
            f"node bm02 has the address 10.9.32.5, {ELSEWHERE}",
        ),
        (
            "10.9.16.0",
            f"node bm02 has the address 10.9.16.0, {ELSEWHERE}",
        ),
        ("10.9.16.1", "node bm02 has the address 10.9.16.1, which is a gateway's, give the node its own"),
    ],
)
def test_a_node_outside_of_all_networks_or_at_a_gateways_address_is_refused(address, message):
    assert problems(ONE, {**TWO, "address": address}, subnets=[RACK]) == [message]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"interface": "eth1,eth2"}, "boot_server_interface: 'eth1,eth2' is not valid, name one interface, like eth1"),
        ({"interface": "eth*"}, "boot_server_interface: 'eth*' is not valid, name one interface, like eth1"),
        (
            {"interface": "a-name-of-16-chr"},
            "boot_server_interface: 'a-name-of-16-chr' is not valid, name one interface, like eth1",
        ),
        (
            {"interface": ""},
            "boot_server_interface: the text is empty, give it a value, or leave the setting out if it is optional",
        ),
        ({"http_port": 0}, "boot_server_http_port: 0 is not valid, use a whole number from 1 to 65535"),
        ({"http_port": 65536}, "boot_server_http_port: 65536 is not valid, use a whole number from 1 to 65535"),
        ({"store_dir": "srv"}, "boot_server_store_dir: 'srv' is not an absolute path, begin it with '/'"),
        (
            {"store_dir": "/srv;"},
            "boot_server_store_dir: '/srv;' is not valid, use letters, digits, '/', '.', '_' and '-'",
        ),
        (
            {"tftp_dir": "/srv/$x"},
            "boot_server_tftp_dir: '/srv/$x' is not valid, use letters, digits, '/', '.', '_' and '-'",
        ),
        (
            {"tftp_dir": "/srv/\nuser root"},
            "boot_server_tftp_dir: '/srv/\\nuser root' contains '\\n', which is not a printable character, remove it",
        ),
    ],
)
def test_a_setting_that_a_server_would_misread_is_refused(settings, message):
    assert problems(ONE, **settings) == [message]


def test_an_unknown_nic_driver_is_refused():
    assert problems({**ONE, "nic_driver": "snponly"}) == [
        "node bm01: its NIC driver 'snponly' is unknown, use one of: 'ipxe', 'firmware' (boot_server_nic_driver)"
    ]
    assert problems({**ONE, "nic_driver": "firmware"}) == []
    assert problems({**ONE, "nic_driver": "firmware", "architecture": "aarch64"}) == [
        "node bm01: its NIC driver is firmware, which only nodes with x86_64 may have, remove boot_server_nic_driver"
    ]


def test_a_node_of_another_architecture_is_refused():
    assert problems({**ONE, "architecture": "arm64"}) == [
        "node bm01: its architecture 'arm64' is unknown, use one of: 'x86_64', 'aarch64' (boot_server_architecture)"
    ]


def test_all_problems_are_reported_together():
    nodes = [{**ONE, "name": f"bm{at:02}"} for at in range(3)]
    found = problems(*nodes, gateway="router")
    assert len(found) == 3
    assert all("bm00, bm01, bm02" in line for line in found[1:])


def test_only_good_input_has_a_plan():
    assert [network["tag"] for network in planned(ONE, subnets=[RACK])["networks"]] == ["net0", "net1"]
    assert list(planned({**ONE, "mac": ""})) == ["problems"]


def test_good_input_has_no_problem():
    assert problems() == []
    assert problems(ONE, TWO, gateway="10.9.0.254", name_servers=["192.0.2.53"]) == []
    assert problems({**ONE, "address": "10.9.1.11"}, netmask="255.255.254.0") == []
    assert problems(ONE, {**TWO, "address": "10.9.17.5", "architecture": "aarch64"}, subnets=[RACK]) == []
    # Another DHCP server assigns the addresses.
    assert problems({"name": "bm01", "mac": ONE["mac"]}, {**TWO, "address": "bm02"}, dhcp="proxy") == []


def test_input_that_is_not_a_list_of_nodes_is_refused():
    with pytest.raises(AnsibleFilterError, match="not a list of dictionaries"):
        problems("bm01")


@pytest.mark.parametrize(
    "settings",
    [
        {"interface": "a-name-of-15-ch"},
        {"interface": "e"},
        {"http_port": 1},
        {"http_port": 65535},
        {"store_dir": "/srv/a_b-c.d"},
        {"netmask": "255.255.255.255", "address": "10.9.0.11", "servers": ["http://10.9.0.1"], "dhcp": "proxy"},
        {"netmask": "255.255.255.254", "address": "10.9.0.10", "servers": ["http://10.9.0.1"]},
        {"subnets": [{"network": "10.9.16.0/30", "gateway": "10.9.16.1"}]},
        {"subnets": [{"network": "11.0.0.0/9", "gateway": "11.0.0.1"}]},
        {"subnets": [{"network": "128.0.0.0/1", "gateway": "128.0.0.1"}]},
    ],
)
def test_a_setting_at_its_limit_is_accepted(settings):
    assert problems(ONE, **settings) == []


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"gateway": "10.9.0.0"}, "boot_server_gateway is 10.9.0.0, give an address of 10.9.0.0/24, where the nodes"),
        ({"address": ""}, "boot_server_address is (none), give an IPv4 address"),
        ({"netmask": None}, "boot_server_netmask is (none), give a mask like 255.255.255.0"),
    ],
)
def test_a_setting_beyond_its_limit_is_refused(changed, message):
    assert [line[: len(message)] for line in problems(**changed)] == [message]


def test_invalid_networks_are_reported_once_and_not_for_each_node():
    far = {**TWO, "address": "10.9.17.5"}
    assert problems(far, netmask="24") == ["boot_server_netmask is 24, give a mask like 255.255.255.0"]
    assert problems(far) == [
        "node bm02 has the address 10.9.17.5, which is not a host address in 10.9.0.0/24, the network of "
        "boot_server_address; correct the address (ansible_host) or boot_server_netmask, or name its network in "
        "boot_server_subnets"
    ]
    assert problems({**TWO, "address": "10.9.0.1"}, servers=["http://10.9.0.9"]) == [
        "node bm02 has the address 10.9.0.1, which is this boot server's, give the node its own"
    ]
    assert problems({**TWO, "address": "10.9.0.9"}, servers=["http://10.9.0.9:80/a"]) == [
        "node bm02 has the address 10.9.0.9, which is a boot server's, give the node its own"
    ]
