# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Machines that boot at the same time, with the real dnsmasq and the configuration of the role boot_server."""

from __future__ import annotations

import ipaddress
import subprocess
from collections import Counter

import pytest
from boot_server_role import dnsmasq_configuration
from dhcp_network import DNSMASQ, ROUTER, DhcpNetwork

BITS = 20
SUBNETS = [{"network": "10.9.16.0/20", "gateway": "10.9.16.1"}, {"network": "10.9.32.0/20", "gateway": "10.9.47.254"}]
NETMASK = "255.255.240.0"
# FIRMWARES: by stage of tests/support/image/dhcp_clients.py, architecture, boot file, vendor class of the answer.
TFTP_START = "tftp://10.9.0.1/start.ipxe"
FIRMWARES = {
    "bios": ("x86_64", "undionly.kpxe", ""),
    "efi": ("x86_64", "ipxe.efi", ""),
    "efi-9": ("x86_64", "ipxe.efi", ""),
    "arm64": ("aarch64", "ipxe-arm64.efi", ""),
    "http": ("x86_64", "http://10.9.0.1/boot/ipxe.efi", "HTTPClient"),
    "http-arm64": ("aarch64", "http://10.9.0.1/boot/ipxe-arm64.efi", "HTTPClient"),
}
UEFI_FILES = {"ipxe": "ipxe.efi", "firmware": "snponly.efi"}
NAK = 6


def namespaces() -> bool:
    command = ["unshare", "--user", "--map-root-user", "--net", "true"]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


pytestmark = [
    pytest.mark.skipif(not DNSMASQ, reason="no dnsmasq on this machine (bindep.txt)"),
    pytest.mark.skipif(not namespaces(), reason="no network namespaces for who runs the tests"),
]


class Site:
    """Nodes of all firmwares, a third of them in each network: the server's own, and two behind relays."""

    def __init__(self, count: int) -> None:
        self.nodes, self.clients, self.gateways = [], [], []
        for number in range(count):
            subnet = [None, *SUBNETS][number // 2 % 3]
            first = subnet["network"].split("/")[0] if subnet else "10.9.0.0"
            firmware = list(FIRMWARES)[number % len(FIRMWARES)]
            mac = f"52:54:00:00:{number >> 8:02x}:{number & 255:02x}"
            address = str(ipaddress.IPv4Address(first) + 16 + number)
            node = {"name": f"n{number}", "mac": mac, "address": address, "architecture": FIRMWARES[firmware][0]}
            self.nodes.append(node)
            giaddr = subnet["gateway"] if subnet else None
            self.clients.append({"mac": mac, "giaddr": giaddr, "stages": [firmware, "ipxe"]})
            self.gateways.append(giaddr or ROUTER)

    def configuration(self, **changed: object) -> str:
        return dnsmasq_configuration(
            self.nodes,
            boot_server_interface="boot0",
            boot_server_netmask=NETMASK,
            boot_server_gateway=ROUTER,
            boot_server_name_servers=["192.0.2.53"],
            boot_server_subnets=SUBNETS,
            **changed,
        )


@pytest.fixture
def network(tmp_path):
    made = DhcpNetwork(tmp_path, BITS, SUBNETS)
    yield made
    made.close()


def acknowledged(**fields: str) -> dict:
    common = {
        "kind": 5,
        "netmask": NETMASK,
        "name_server": "192.0.2.53",
        "server": "10.9.0.1",
        "next_server": "10.9.0.1",
    }
    return {**common, "message": "", **fields}


@pytest.mark.long
def test_2500_nodes_with_all_firmwares_boot_at_the_same_time_on_three_networks(network):
    site = Site(2500)
    log = network.dnsmasq(site.configuration(), len(site.nodes))
    found = network.ask(site.clients)["clients"]
    for node, client, router, answers in zip(site.nodes, site.clients, site.gateways, found):
        own = {"address": node["address"], "router": router}
        _cpu, file, vendor = FIRMWARES[client["stages"][0]]
        wanted = [acknowledged(**own, file=file, vendor=vendor), acknowledged(**own, file=TFTP_START, vendor="")]
        assert [{key: answer[key] for key in wanted[0]} for answer in answers] == wanted
    assert "NAK" not in log.read_text()


def test_the_default_lease_limit_of_dnsmasq_leaves_nodes_without_an_address(network):
    """The test above would fail if the role did not set the number of leases."""
    site = Site(1020)
    text = site.configuration()
    assert "\ndhcp-lease-max=2040\n" in text
    network.dnsmasq(text.replace("dhcp-lease-max=", "#"), len(site.nodes))
    for client in site.clients:
        client["stages"] = client["stages"][:1]
    found = network.ask(site.clients)["clients"]
    assert Counter((answer["kind"], answer["message"]) for [answer] in found) == {
        (5, ""): 1000,
        (NAK, "no leases left"): 20,
    }


def test_nodes_keep_their_addresses_after_a_restart_of_dnsmasq(network):
    """dnsmasq keeps no database of leases; the first stage renews its lease while it fetches the image."""
    site = Site(60)
    network.dnsmasq(site.configuration(), len(site.nodes))
    network.stop_dnsmasq()
    network.dnsmasq(site.configuration(), len(site.nodes))
    relayed = [(node, client) for node, client in zip(site.nodes, site.clients) if client["giaddr"]]
    clients = [{**client, "stages": ["first-stage"], "renews": node["address"]} for node, client in relayed]
    found = network.ask(clients)["clients"]
    assert [(answer["kind"], answer["address"]) for [answer] in found] == [
        (5, node["address"]) for node, _client in relayed
    ]
    stranger = {**clients[0], "renews": relayed[1][0]["address"]}
    [[answer]] = network.ask([stranger])["clients"]
    assert answer["kind"] == NAK


def test_an_unknown_mac_address_gets_no_answer(network):
    site = Site(1)
    network.dnsmasq(site.configuration(), 1)
    strangers = [{**site.clients[0], "mac": "52:54:00:ff:ff:ff", "stages": [stage]} for stage in FIRMWARES]
    assert network.ask(strangers, tries=1)["clients"] == [[{"kind": 0}]] * len(FIRMWARES)


def test_all_nodes_of_the_inventory_can_transfer_at_the_same_time(network):
    site = Site(600)
    log = network.dnsmasq(site.configuration(), len(site.nodes))
    assert network.ask([], transfers=600)["transfers"] == 600
    assert "restricting" not in log.read_text()


def test_the_default_transfer_limit_of_dnsmasq_leaves_nodes_without_ipxe(network):
    site = Site(600)
    network.dnsmasq(site.configuration().replace("tftp-max=", "#"), len(site.nodes))
    # dnsmasq accepts one more than its limit (TFTP_MAX_CONNECTIONS in its src/config.h is 50).
    assert network.ask([], transfers=600)["transfers"] == 51


def test_proxy_dhcp_gives_the_boot_file_to_uefi_firmware_and_ipxe(network):
    site = Site(36)
    log = network.dnsmasq(site.configuration(boot_server_dhcp="proxy"), len(site.nodes))
    asks = [
        (client, stage)
        for client in site.clients
        for stage in (client["stages"][0], "ipxe")
        if stage not in ("bios", "http", "http-arm64")
    ]
    found = network.ask([{**client, "stages": [stage]} for client, stage in asks])["clients"]
    seen = {
        (stage, answer["kind"], answer["address"], answer["file"], answer["vendor"])
        for (_client, stage), [answer] in zip(asks, found)
    }
    assert seen == {
        # iPXE reads the file in the offer itself, UEFI firmware in the answer from the proxy's own port.
        ("ipxe", 2, "0.0.0.0", TFTP_START, "PXEClient"),
        ("efi", 5, "0.0.0.0", "ipxe.efi", "PXEClient"),
        ("efi-9", 5, "0.0.0.0", "ipxe.efi", "PXEClient"),
        ("arm64", 5, "0.0.0.0", "ipxe-arm64.efi", "PXEClient"),
    }
    assert "address range" not in log.read_text()


@pytest.mark.parametrize("mode", ["full", "proxy"])
def test_a_node_may_boot_with_the_nic_driver_of_its_firmware(network, mode):
    """Half of the nodes have this setting; by HTTP, they get the file of the same name."""
    site = Site(12)
    for number, node in enumerate(site.nodes):
        node |= {"architecture": "x86_64", "nic_driver": ("ipxe", "firmware")[number % 2]}
    network.dnsmasq(site.configuration(boot_server_dhcp=mode), len(site.nodes))
    stages = ["efi", "efi-9"] if mode == "proxy" else ["efi", "efi-9", "http", "bios"]
    asks = [(node, {**client, "stages": [stage]}) for stage in stages for node, client in zip(site.nodes, site.clients)]
    found = network.ask([client for _node, client in asks])["clients"]
    seen = {(client["stages"][0], node["nic_driver"], answer["file"]) for (node, client), [answer] in zip(asks, found)}
    url = "http://10.9.0.1/boot/"
    wanted = {(stage, driver, file) for stage in ("efi", "efi-9") for driver, file in UEFI_FILES.items()}
    if mode == "full":
        wanted |= {("http", driver, url + file) for driver, file in UEFI_FILES.items()}
        wanted |= {("bios", driver, "undionly.kpxe") for driver in UEFI_FILES}
    assert seen == wanted


@pytest.mark.parametrize("mode", ["full", "proxy"])
def test_firmware_of_a_node_with_secure_boot_gets_its_own_signed_kernel(network, mode):
    """Half of the nodes have Secure Boot. Where one of them boots by BIOS or iPXE, it gets what the others get."""
    site = Site(12)
    for number, node in enumerate(site.nodes):
        arm = "arm64" in site.clients[number]["stages"][0]
        node |= {"architecture": "aarch64" if arm else "x86_64", "secure_boot": number % 2 == 0}
    network.dnsmasq(site.configuration(boot_server_dhcp=mode), len(site.nodes))
    stages = ["efi", "efi-9", "arm64", "ipxe"] if mode == "proxy" else [*FIRMWARES, "ipxe"]
    asks = [(node, {**client, "stages": [stage]}) for stage in stages for node, client in zip(site.nodes, site.clients)]
    found = network.ask([client for _node, client in asks])["clients"]
    for (node, client), [answer] in zip(asks, found):
        [stage] = client["stages"]
        fits = stage in ("bios", "ipxe") or FIRMWARES[stage][0] == node["architecture"]
        own = f"nodes/{node['mac'].replace(':', '-')}.efi"
        if node["secure_boot"] and stage not in ("bios", "ipxe"):
            http = stage.startswith("http")
            assert (answer["file"], answer["next_server"]) == (f"http://10.9.0.1/{own}" if http else own, "10.9.0.1")
            assert answer["vendor"] == ("HTTPClient" if http else "PXEClient" if mode == "proxy" else "")
        elif fits:
            assert answer["file"] == (TFTP_START if stage == "ipxe" else FIRMWARES[stage][1])


@pytest.mark.parametrize("distribution", ["", "interface=lo\nbind-interfaces\n"])
def test_dnsmasq_listens_on_the_interface_of_the_nodes_only(network, distribution):
    """The configuration of Enterprise Linux 9, which includes the role's, names the loopback interface."""
    network.dnsmasq(distribution + Site(1).configuration(), 1)
    lines = [line for line in network.listening() if not line.startswith("[fe80::")]
    assert sorted(lines) == ["0.0.0.0%boot0:67", "10.9.0.1:69"]


def test_a_first_stage_of_a_signed_kernel_is_told_the_boot_servers():
    servers = [f"http://10.9.0.{number}" for number in range(1, 7)]
    text = dnsmasq_configuration([], boot_server_servers=servers)
    # The option has at most 255 bytes; the statement names all servers.
    assert f'\ndhcp-option=224,"{",".join(servers[:4])}"\n' in text
