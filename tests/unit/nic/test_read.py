# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The values read of a NIC, from recordings with single files changed."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from messages import Mentions

from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.errors import HostError
from ansible_collections.sailloft.fleet.plugins.module_utils.nic import read

PF, VF = "/sys/devices/pci0000:3a/0000:3b:00.0", "/sys/devices/pci0000:3a/0000:3b:00.2"
VENDORS_DRIVER = "only the vendor's driver (MLNX_OFED, DOCA) has"


def one(system, name="mlx5_0"):
    return read.read(system, [name])[name]


def refusal(system, *names):
    with pytest.raises(HostError) as error:
        read.read(system, list(names))
    return str(error.value)


def test_a_nic_of_the_vendors_driver_is_read_completely(host):
    seen = one(host())
    assert (seen.driver, seen.address, seen.parent, seen.speed_gbit_s) == ("mlx5_core", "0000:3b:00.0", None, 400)
    assert seen.ecn_path == "/sys/class/net/ens1np0/ecn"
    assert seen.cnp_path == "/sys/class/net/ens1np0/ecn/roce_np/cnp_dscp"
    nic = seen.nic
    assert (nic.name, nic.interface, nic.is_vf, nic.may_mark) == ("mlx5_0", "ens1np0", False, True)
    assert (nic.notification, nic.reaction, nic.cnp_dscp) == ((0, 3), (0, 3), 48)
    assert (nic.forced_tos, nic.cm_tos, nic.ip_mtu_bytes, nic.cable_m, nic.dcbx_by_host) == (None, 0, 1500, 7, True)
    assert seen.cannot == {}


def test_a_nic_of_the_kernels_driver_has_the_reasons_for_what_is_missing(host):
    system = host("mlx5-upstream")
    seen = one(system)
    assert (seen.nic.cnp_dscp, seen.ecn_path) == (48, "")
    assert seen.cnp_path == "/sys/kernel/debug/mlx5/0000:3b:00.0/cc_params/np_cnp_dscp"
    switch = f"{VENDORS_DRIVER} a switch for it; the firmware's is ROCE_CC_PRIO_MASK_P1"
    assert seen.cannot == {
        "notification": switch,
        "reaction": switch,
        "forced_tos": Mentions(VENDORS_DRIVER),
    }
    shutil.rmtree(system.path("/sys/kernel/debug/mlx5"))
    seen = one(system)
    assert (seen.nic.cnp_dscp, seen.cnp_path) == (None, "")
    assert seen.cannot["cnp_dscp"] == Mentions("ecn", "mlx5's", "cc_params")


@pytest.mark.parametrize(
    ("physfn", "why"),
    [
        (True, Mentions("VF", "0000:3b:00.0")),
        (False, Mentions("VF", "physical")),
    ],
)
def test_a_vf_has_the_reason_for_what_belongs_to_the_port(host, physfn, why):
    system = host("mlx5-upstream")
    if not physfn:
        Path(system.path(f"{VF}/physfn")).unlink()
    seen = one(system, "mlx5_2")
    assert (seen.nic.is_vf, seen.nic.may_mark, seen.parent is not None) == (True, False if physfn else None, physfn)
    assert (seen.dcb, seen.ecn_path, seen.cnp_path, seen.nic.cm_tos) == (None, "", "", 0)
    assert all(reason == why for name, reason in seen.cannot.items() if name != "forced_tos")
    assert {"pfc", "trust", "queues"} < set(seen.cannot)


def test_a_vf_whose_physical_function_has_no_rdma_device_may_not_be_known_to_mark(host):
    system = host("mlx5-upstream")
    shutil.rmtree(system.path(f"{PF}/infiniband"))
    seen = one(system, "mlx5_2")
    assert (seen.nic.is_vf, seen.nic.may_mark, seen.parent) == (True, None, None)


@pytest.mark.parametrize(
    ("vendor", "device", "is_vf"),
    [
        *(
            ("0x15b3", device, True)
            for device in ("0x1012", "0x1014", "0x1016", "0x1018", "0x101a", "0x101c", "0x101e", "0xa2d3")
        ),
        ("0x15b3", "0x1021", False),
        ("0x14e4", "0x101e", False),
    ],
)
def test_a_vf_in_a_guest_is_known_by_vendor_and_device(host, vendor, device, is_vf):
    system = host()
    system.put(f"{PF}/vendor", vendor)
    system.put(f"{PF}/device", device)
    assert one(system).nic.is_vf is is_vf


def test_physical_functions_are_returned_before_vfs(host):
    assert list(read.read(host("mlx5-upstream"), ["mlx5_2", "mlx5_0"])) == ["mlx5_0", "mlx5_2"]


@pytest.mark.parametrize(
    ("text", "speed"),
    [("400000", 400), ("25000", 25), ("1500", 1), ("999", 0), ("1", 0), ("0", None), ("-1", None), (None, None)],
)
def test_the_speed_is_read_in_gbit_s(host, text, speed):
    system = host()
    if text is None:
        Path(system.path(f"{PF}/net/ens1np0/speed")).unlink()
    else:
        system.put(f"{PF}/net/ens1np0/speed", text + "\n")
    assert one(system).speed_gbit_s == speed


@pytest.mark.parametrize("text", ["", "1.5", "0x30", "--1", "48 "])
def test_a_kernel_file_without_a_number_is_refused(host, text):
    system = host()
    system.put(f"{PF}/net/ens1np0/ecn/roce_np/cnp_dscp", text)
    if text.strip().isdecimal():
        assert one(system).nic.cnp_dscp == 48
    else:
        assert refusal(system, "mlx5_0") == (Mentions("/sys/class/net/ens1np0/ecn/roce_np/cnp_dscp", text))


def test_a_file_that_may_not_be_read_counts_as_missing(host):
    system = host()
    for path in (f"{PF}/net/ens1np0/speed", f"{PF}/net/ens1np0/phys_port_name"):
        Path(system.path(path)).unlink()
        # Reading a directory fails, as reading these files of some drivers does.
        Path(system.path(path)).mkdir()
    seen = one(system)
    assert (seen.speed_gbit_s, seen.nic.interface) == (None, "ens1np0")


@pytest.mark.parametrize(
    ("text", "tos"),
    [
        ("Global tclass=106", 106),
        ("rates\nGlobal tclass=7\nmore", 7),
        ("", None),
        ("Global tclass=x", None),
        ("tclass=106", None),
    ],
)
def test_the_forced_tos_is_the_global_traffic_class(host, text, tos):
    system = host()
    system.put("/sys/class/infiniband/mlx5_0/tc/1/traffic_class", text + "\n")
    # re.match looks at the beginning of the file only.
    assert one(system).nic.forced_tos == (None if text.startswith("rates") else tos)


@pytest.mark.parametrize(
    ("port_name", "interface"),
    [
        ("pf0vf0", "ens1np0"),
        ("c1pf0sf12", "ens1np0"),
        ("pf0vf0x", "bond0"),
        ("p1", "bond0"),
        ("xpf0vf0", "bond0"),
    ],
)
def test_representors_are_not_the_interface_of_a_device(host, port_name, interface):
    """If several interfaces remain, the one of the GIDs is used."""
    system = host()
    system.put(f"{PF}/net/other/phys_port_name", port_name + "\n")
    system.put("/sys/class/net/other/phys_port_name", port_name + "\n")
    system.put("/sys/class/net/bond0/mtu", "1500\n")
    system.put("/sys/class/infiniband/mlx5_0/ports/1/gid_attrs/ndevs/0", "bond0\n")
    assert one(system).nic.interface == interface


def test_a_device_over_a_bond_is_refused_with_its_ports(host):
    """Of an mlx5_bond_0 only the first port would be set, and bond0 would keep its MTU."""
    system = host()
    system.put("/sys/class/infiniband/mlx5_0/ports/1/gid_attrs/ndevs/0", "bond0\n")
    system.put("/sys/class/net/bond0/bonding/slaves", "ens1np0 ens1np1\n")
    assert refusal(system, "mlx5_0") == Mentions("mlx5_0", "bond0", "ens1np1")


@pytest.mark.parametrize("name", ["gone", ""])
def test_a_device_without_an_interface_is_refused(host, name):
    system = host()
    shutil.rmtree(system.path(f"{PF}/net"))
    system.put("/sys/class/infiniband/mlx5_0/ports/1/gid_attrs/ndevs/0", name + "\n")
    why = "mlx5_0: it has no network interface, through which its QoS is set; see 'rdma link show mlx5_0/1'"
    assert refusal(system, "mlx5_0") == why
    assert read.names(system) == (["mlx5_1"], {"mlx5_0": why})


def test_devices_that_are_no_roce_nics_are_refused(host):
    system = host("mlx5-upstream")
    assert read.names(system) == (["mlx5_0", "mlx5_2"], {})
    assert refusal(system, "mlx5_0", "mlx5_7") == (Mentions("mlx5_7", "RDMA"))
    assert refusal(system, "mlx5_9") == Mentions("mlx5_9", "InfiniBand", "RoCE")
    shutil.rmtree(system.path("/sys/class/infiniband"))
    assert refusal(system, "mlx5_7") == (Mentions("mlx5_7", "RDMA"))


@pytest.mark.parametrize("missing", ["trust", "pfc", "buffer", "dcbx", "ets"])
def test_parts_of_dcb_that_the_driver_lacks_have_the_reason(host, missing):
    system = host()
    whole = one(system)
    system.dcb["ens1np0"].app = [[0, 0]]
    if missing == "trust":
        assert (whole.nic.trust, whole.cannot) == ("pcp", {})
        return
    system.refused[f"no {missing}"] = ""
    part = f"its driver has no such part of DCB ({whole.dcb.tool})"
    cannot = {
        "pfc": {"pfc": part, "cable_m": "only mlx5 supports the length of the cable"},
        "buffer": {"priority_to_buffer": part, "buffer_bytes": part},
        "dcbx": {"dcbx_by_host": "its driver has no DCBX"},
        "ets": {"priority_to_class": part, "queues": part},
    }[missing]
    assert one(system).cannot == cannot


def test_another_driver_has_no_cable_length(host):
    system = host()
    Path(system.path(f"{PF}/driver")).unlink()
    Path(system.path(f"{PF}/driver")).symlink_to("/sys/bus/pci/drivers/bnxt_en")
    seen = one(system)
    assert (seen.driver, seen.nic.cable_m) == ("bnxt_en", None)
    assert seen.cannot == {"cable_m": Mentions("mlx5")}


@pytest.mark.parametrize(
    ("willing", "by_host", "seen"), [(False, True, True), (True, True, False), (False, False, False)]
)
def test_a_willing_interface_does_not_run_dcbx_by_the_host(host, willing, by_host, seen):
    system = host()
    system.dcb["ens1np0"].ets["willing"] = willing
    if not by_host:
        system.dcb["ens1np0"].dcbx = {"lld_managed": True, "ieee": True}
    assert one(system).nic.dcbx_by_host is seen


def test_rdma_cms_tos_of_a_device_that_rdma_cm_does_not_know_is_none(host):
    system = host()
    shutil.rmtree(system.path("/sys/kernel/config/rdma_cm"))
    assert one(system).nic.cm_tos is None
    assert not system.exists("/sys/kernel/config/rdma_cm")
    system.put("/sys/kernel/config/rdma_cm", "a file")
    assert one(system).nic.cm_tos is None
