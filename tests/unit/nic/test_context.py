# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""GIDs, VFs and other ports of a card, from recordings with files and answers of tools added in the kernel's form."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.nic.seen import VirtualFunction
from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.errors import HostError
from ansible_collections.sailloft.fleet.plugins.module_utils.nic import context, ensure

PF = "/sys/devices/pci0000:3a/0000:3b:00.0"
PORT = f"{PF}/infiniband/mlx5_0/ports/1"
MAC = "b2:4d:a3:3d:57:fb"


def one(system, name="mlx5_0"):
    return context.read(system, [name])[name]


def put_gid(system, index, gid, version, interface="ens1np0"):
    system.put(f"{PORT}/gids/{index}", gid + "\n")
    if version:
        system.put(f"{PORT}/gid_attrs/types/{index}", version + "\n")
        system.put(f"{PORT}/gid_attrs/ndevs/{index}", interface + "\n")


def test_each_gid_has_its_version_and_kind_of_address(host):
    system = host()
    put_gid(system, 0, "fe80:0000:0000:0000:0ac0:ebff:feda:1cfb", "IB/RoCE v1")
    put_gid(system, 1, "fe80:0000:0000:0000:0ac0:ebff:feda:1cfb", "RoCE v2")
    put_gid(system, 2, "0000:0000:0000:0000:0000:ffff:0a41:000b", "IB/RoCE v1")
    put_gid(system, 3, "0000:0000:0000:0000:0000:ffff:0a41:000b", "RoCE v2")
    put_gid(system, 5, "fd93:0000:0000:0000:0000:0000:0000:0001", "RoCE v2", "ens1np0.100")
    put_gid(system, 6, "0000:0000:0000:0000:0000:ffff:a9fe:0001", "RoCE v2")
    put_gid(system, 7, "0000:0000:0000:0000:0000:0000:0000:0000", "")
    assert one(system).gids == (
        "RoCE v1, link-local",
        "RoCE v2, link-local",
        "RoCE v1, IPv4",
        "RoCE v2, IPv4",
        None,
        "RoCE v2, IPv6, of ens1np0.100",
        "RoCE v2, link-local",
    )


def with_vfs(system, **vf):
    """Let ``ip`` show one VF in the form of iproute2 (ip/ipaddress.c, print_vfinfo), and devlink a legacy switch."""
    link = {"ifname": "ens1np0", "link_type": "ether", "vfinfo_list": [{"vf": 0, "address": MAC, **vf}]}
    eswitch = {"dev": {"pci/0000:3b:00.0": {"mode": "legacy"}}}
    answers = {"ip": json.dumps([link]), "devlink": json.dumps(eswitch)}
    simulated = system.run
    system.run = lambda argv, stdin=None: answers[argv[0]] if argv[0] in answers else simulated(argv, stdin)
    system.put(f"{PF}/sriov_numvfs", "1\n")
    return answers


def test_a_vf_has_the_vlan_and_its_priority(host):
    system = host()
    with_vfs(system, vlan_list=[{"vlan": 100, "qos": 5}])
    assert one(system).vfs == (VirtualFunction(0, MAC, 100, 5, "legacy"),)


def test_a_representor_shows_switchdev_mode(host):
    system = host("mlx5-upstream")
    with_vfs(system)
    assert one(system).vfs == (VirtualFunction(0, MAC, 0, 0, "switchdev", "ens1pf0vf0"),)


def test_a_mode_that_devlink_does_not_show_is_unknown(host):
    system = host()
    with_vfs(system)["devlink"] = ""
    assert one(system).vfs == (VirtualFunction(0, MAC, 0, 0, None),)


def test_vfs_that_cannot_be_read_have_the_reason(host):
    system = host()
    with_vfs(system)["ip"] = "[]"
    seen = one(system)
    assert seen.vfs == ()
    assert "ens1np0" in seen.vfs_unread


def test_a_nic_without_vfs_is_not_asked_for_them(host):
    system = host()
    one(system)
    assert [argv for argv in system.commands if argv[0] == "ip"] == []


@pytest.mark.parametrize(
    ("state", "wanted", "uncovered"),
    [
        ("4: ACTIVE", ["mlx5_0"], ("mlx5_1",)),
        ("1: DOWN", ["mlx5_0"], ()),
        ("4: ACTIVE", ["mlx5_0", "mlx5_1"], ()),
    ],
)
def test_the_other_active_port_of_the_card_is_named_if_it_is_not_wanted(host, state, wanted, uncovered):
    system = host()
    device = f"{PF[:-1]}1"
    for path, text in (
        ("ports/1/link_layer", "Ethernet"),
        ("ports/1/state", state),
        ("ports/1/gid_attrs/ndevs/0", "x"),
    ):
        system.put(f"{device}/infiniband/mlx5_7/{path}", text + "\n")
    second = Path(system.path("/sys/class/infiniband/mlx5_1"))
    second.unlink()
    second.symlink_to(system.path(f"{device}/infiniband/mlx5_7"))
    Path(system.path(f"{device}/infiniband/mlx5_7/device")).symlink_to(system.path(device))
    if len(wanted) > 1:
        system.put(f"{device}/net/ens1f1np1/mtu", "1500\n")
        Path(system.path("/sys/class/net/ens1f1np1")).symlink_to(system.path(f"{device}/net/ens1f1np1"))
        system.dcb["ens1f1np1"] = system.dcb["ens1np0"]
    assert context.read(system, wanted)["mlx5_0"].uncovered == uncovered


def test_a_second_port_of_one_device_is_named(host):
    system = host()
    for path, text in (("link_layer", "Ethernet"), ("state", "4: ACTIVE")):
        system.put(f"{PF}/infiniband/mlx5_0/ports/2/{path}", text + "\n")
    assert one(system).uncovered == ("mlx5_0 port 2",)


def test_a_result_has_what_was_read(host):
    system = host()
    with_vfs(system, vlan_list=[{"vlan": 7}])
    put_gid(system, 0, "fd93:0000:0000:0000:0000:0000:0000:0001", "RoCE v2")
    system.put(f"{PF}/net/ens1np0/address", "b8:3f:d2:9e:10:04\n")
    shown = json.loads(json.dumps(ensure.shown(one(system))))
    assert (shown["mac"], shown["gids"], shown["uncovered"]) == ("b8:3f:d2:9e:10:04", ["RoCE v2, IPv6"], [])
    assert [(vf["mac"], vf["vlan"], vf["qos"]) for vf in shown["vfs"]] == [(MAC, 7, 0)]


def test_a_refused_file_of_a_gid_counts_as_none(host):
    system = host()
    put_gid(system, 0, "fd93:0000:0000:0000:0000:0000:0000:0001", "")
    Path(system.path(f"{PORT}/gid_attrs/types/0")).mkdir(parents=True)
    with pytest.raises(HostError):
        system.read(f"{PORT}/gid_attrs/types/0")
    assert one(system).gids == ()
