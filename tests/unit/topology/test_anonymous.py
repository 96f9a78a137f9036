# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A recording that is given to others describes a machine without identifying it."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from ansible_collections.sailloft.fleet.plugins.module_utils.topology.anonymous import anonymous
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.read.recordings import (
    read_recording,
    write_recording,
)

MAC, GUID = "0c42a1d5f3e7", "0c42a10300d5f3e7"
UUID = "742d083d-5a32-46d6-a8aa-e0d380171b25"
SERVER = Path(__file__).parents[2] / "recordings" / "emulated-gpu-server.json"
SECRETS = (MAC, GUID, UUID, "acme", "10.1.2", "2001:db8", "s3cret", "fe12")


def server():
    """The emulated GPU server."""
    return read_recording(str(SERVER))


def named(**interfaces):
    """Return the lab's server with these interfaces on its first GPU."""
    host = server()
    host.functions = [
        replace(function, interfaces=interfaces) if function.address == "0000:13:00.0" else function
        for function in host.functions
    ]
    return host


def names(host):
    return host.function("0000:13:00.0").interfaces


BY_PLACE = (
    "eth0",
    "ib3",
    "hsi0",
    "hsn1",
    "bond0",
    "team0",
    "usb0",
    "eno1",
    "ens1f0np0",
    "enp132s0f1",
    "enP5p1s0f1",
    "enp3s0f0v12",
    "ibp65s0",
)


@pytest.mark.parametrize("name", [*BY_PLACE, "enp3s0f0npf0vf11", "ens3f1d1"])
def test_network_names_from_location_or_number_are_kept(name):
    assert names(anonymous(named(net=[name]))) == {"net": [name]}


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        *(
            ("rdma", name)
            for name in (
                "mlx5_0",
                "bnxt_re1",
                "hfi1_0",
                "efa_0",
                "irdma1",
                "opap4s0",
                "iwp1s0f2",
                "rdmap197s0",
                "rocep65s0f1",
                "ibp65s0",
            )
        ),
        *(
            ("block", name)
            for name in ("sda", "sdab", "vdb", "xvda", "nvme0n1", "nvme1c2n1", "sr0", "md127", "dm-3", "pmem0")
        ),
    ],
)
def test_rdma_and_block_names_from_location_or_number_are_kept(kind, name):
    assert names(anonymous(named(**{kind: [name]}))) == {kind: [name]}


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("net", f"enx{MAC}"),
        ("rdma", f"rocex{GUID}"),
        ("rdma", f"ibx{GUID}"),
        ("net", "acme-uplink"),
        ("net", "sn12345"),
        # Names that an owner may well have chosen, although they are short.
        ("net", "acme"),
        ("net", "tenant7"),
        ("net", "acmep3s0"),
        ("rdma", "acme_1"),
        ("block", "acme0"),
        ("block", "eth0"),
    ],
)
def test_identifying_names_are_replaced_by_numbered_names(kind, name):
    host = named(**{kind: [name]})
    assert names(anonymous(host)) == {kind: [f"{kind}-1"]}
    assert names(host) == {kind: [name]}, "the host itself is left as it is"


def test_equal_names_map_to_one_name_and_different_names_to_different_ones():
    host = named(net=["net-1", "acme-a", "eth0", "acme-b", "acme-a"])
    assert names(anonymous(host))["net"] == ["net-1", "net-2", "eth0", "net-3", "net-2"]
    assert names(anonymous(named(net=["acme-a", "net-1", "net-3"])))["net"] == ["net-2", "net-1", "net-3"]


@pytest.mark.parametrize(
    ("reason", "left"),
    [
        ("holds the mounted file system /", "holds the mounted file system /"),
        ("holds the mounted file system /boot/efi", "holds the mounted file system /boot/efi"),
        ("holds the mounted file system /srv/acme", "holds a mounted file system"),
        ("holds the swap space /dev/mapper/acme-swap", "holds swap space"),
        ("is part of the block device dm-0", "is part of the block device dm-0"),
        ("is part of the block device acme-volume", "is part of a block device"),
        ("carries the default route", "carries the default route"),
        ("carries the default route through bond0", "carries the default route through bond0"),
        (f"carries the default route through enx{MAC}", "carries the default route"),
        ("carries the IPv6 default route through acme-br", "carries the IPv6 default route"),
        ("carries the route to 10.1.2.0/24", "carries a route"),
        ("carries the route to 10.1.2.0/24 through bond0", "carries a route"),
        ("has the address 2001:db8::5054:ff:fe12:3456", "has an address"),
        ("is under the interface bond0", "is under the interface bond0"),
        ("is under the interface acme-bridge", "is under another interface"),
        ("is the parent of the mediated device 4b20d080", "is the parent of a device for guests"),
        ("a reason that is new here, for acme", "is in use by the host"),
    ],
)
def test_reasons_for_host_use_are_kept_without_identifying_details(reason, left):
    host = server()
    host.function("0000:13:00.0").used_by_host = [reason, reason]
    seen = anonymous(host)
    assert seen.function("0000:13:00.0").used_by_host == [left]
    assert anonymous(seen) == seen


def test_only_listed_kernel_arguments_are_kept():
    host = server()
    host.kernel_arguments = [
        "BOOT_IMAGE=/vmlinuz-acme", f"root=UUID={UUID}", "ro", "intel_iommu=on", "iommu=pt", "hugepagesz=1G",
        "hugepages=0:704,1:704", f"ip=10.1.2.3::10.1.2.1::acme:eno1:none:{MAC}", "rd.iscsi.password=s3cret",
        "pci=realloc", "vfio-pci.ids=10de:2330", 'dyndbg="file acme +p"', "s3cret", "systemd.hostname=acme",
    ]  # fmt: skip
    assert anonymous(host).kernel_arguments == [
        "ro", "intel_iommu=on", "iommu=pt", "hugepagesz=1G", "hugepages=0:704,1:704", "pci=realloc",
        "vfio-pci.ids=10de:2330",
    ]  # fmt: skip


def test_a_written_recording_contains_no_identifiers_of_the_machine():
    host = named(net=[f"enx{MAC}"], rdma=[f"rocex{GUID}"])
    host.functions[2].used_by_host = ["has the address 2001:db8::5054:ff:fe12:3456", "holds the swap space /dev/acme"]
    host.kernel_arguments = ["intel_iommu=on", f"root=UUID={UUID}", "ip=10.1.2.3", "password=s3cret"]
    text = write_recording(host)
    assert [secret for secret in SECRETS if secret in text] == []
    assert not re.search(r"[0-9a-f]{12}", text.replace('"memory', ""))
    assert write_recording(anonymous(host)) == text
