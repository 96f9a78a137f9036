# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

import pytest

from ansible_collections.sailloft.fleet.plugins.module_utils.image.serving import boot_plan
from ansible_collections.sailloft.fleet.plugins.module_utils.image.serving.boot_plan import Capacity, capacity

RACK = {"network": "10.9.16.0/20", "gateway": "10.9.16.1"}


def plan(*nodes, gateway="", subnets=()):
    return boot_plan.plan("10.9.0.1", "255.255.255.0", gateway, tuple(subnets), list(nodes))


@pytest.mark.parametrize(
    ("nodes", "own", "limits"),
    [
        # The defaults of dnsmasq, of the role's nginx configuration, and of Linux.
        (1, 1, Capacity(1000, 50, 306, 4096, 16384, 1, {})),
        (256, 256, Capacity(1000, 512, 768, 4096, 16384, 1, {})),
        (
            2500,
            257,
            Capacity(5000, 5000, 5256, 6024, 20240, 1, {"gc_thresh1": 256, "gc_thresh2": 1024, "gc_thresh3": 2048}),
        ),
        (4095, 0, Capacity(8190, 8190, 8446, 9214, 26620, 1, {})),
        (4096, 0, Capacity(8192, 8192, 8448, 9216, 26624, 2, {})),
        (
            10000,
            10000,
            Capacity(
                20000, 20000, 20256, 21024, 50240, 3, {"gc_thresh1": 5120, "gc_thresh2": 20480, "gc_thresh3": 40960}
            ),
        ),
    ],
)
def test_limits_grow_with_the_number_of_nodes(nodes, own, limits):
    assert capacity(nodes, own) == limits


def test_only_nodes_of_the_servers_own_network_are_its_neighbours():
    nodes = [{"name": f"n{at}", "mac": "", "address": f"10.9.{16 + at // 250}.{2 + at % 250}"} for at in range(1000)]
    assert plan(*nodes, subnets=[RACK])["capacity"]["neighbours"] == {}
    own = [{**node, "address": node["address"].replace("10.9.1", "10.9.0.1").rpartition(".")[0]} for node in nodes]
    assert plan(*own)["capacity"]["neighbours"]["gc_thresh2"] == 2048
    # Beside another DHCP server, a node may have a name instead of an address.
    assert plan(*[{**node, "address": node["name"]} for node in nodes])["capacity"]["neighbours"]["gc_thresh2"] == 2048


def test_networks_have_tags_masks_and_gateways():
    assert plan(gateway="10.9.0.254", subnets=[RACK])["networks"] == [
        {"tag": "net0", "first": "10.9.0.1", "netmask": "255.255.255.0", "gateway": "10.9.0.254"},
        {"tag": "net1", "first": "10.9.16.0", "netmask": "255.255.240.0", "gateway": "10.9.16.1"},
    ]


def test_boot_files_match_the_architectures_of_the_nodes():
    intel, arm = (
        {"name": "bm01", "address": "10.9.0.11"},
        {"name": "gh01", "address": "10.9.0.12", "architecture": "aarch64"},
    )
    x86 = [("undionly.kpxe", "x86_64", "bm01"), ("ipxe.efi", "x86_64", "bm01")]
    arm64 = [("ipxe-arm64.efi", "aarch64", "gh01")]
    own = {**intel, "nic_driver": "firmware"}
    snp = [("undionly.kpxe", "x86_64", "bm01"), ("snponly.efi", "x86_64", "bm01")]
    for nodes, wanted in (((intel,), x86), ((arm,), arm64), ((intel, arm), x86 + arm64), ((own,), snp)):
        assert [tuple(file.values()) for file in plan(*nodes)["files"]] == wanted
    assert [file["name"] for file in plan()["files"]] == ["undionly.kpxe", "ipxe.efi"]
    assert {firmware["tag"] for firmware in plan(arm)["firmwares"]} == {"efi-aarch64", "http-aarch64"}


def test_each_firmware_has_its_architectures_boot_file_and_protocol():
    """The numbers are those of IANA's list "Processor Architecture Types"."""
    nodes = [{"name": cpu, "address": "10.9.0.11", "architecture": cpu} for cpu in ("x86_64", "aarch64")]
    nodes.append({"name": "snp", "address": "10.9.0.12", "nic_driver": "firmware"})
    assert [tuple(firmware.values()) for firmware in plan(*nodes)["firmwares"]] == [
        ("bios", "x86_64", (0,), ("x86PC",), "undionly.kpxe", False, "", False),
        ("efi-x86_64", "x86_64", (7, 9), ("BC_EFI", "X86-64_EFI"), "ipxe.efi", False, "ipxe", True),
        ("snp-x86_64", "x86_64", (7, 9), ("BC_EFI", "X86-64_EFI"), "snponly.efi", False, "firmware", True),
        ("efi-aarch64", "aarch64", (11,), ("ARM64_EFI",), "ipxe-arm64.efi", False, "", True),
        ("http-x86_64", "x86_64", (16,), (), "ipxe.efi", True, "ipxe", True),
        ("http-snp-x86_64", "x86_64", (16,), (), "snponly.efi", True, "firmware", True),
        ("http-aarch64", "aarch64", (19,), (), "ipxe-arm64.efi", True, "", True),
    ]
