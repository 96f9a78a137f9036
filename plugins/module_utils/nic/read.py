# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Read the RoCE NICs of a machine: all of their QoS, from the kernel's files and the DCB tools.

Sources: Documentation/ABI/stable/sysfs-class-infiniband (ports, gid_attrs), Documentation/ABI/testing/sysfs-class-net
(mtu, speed, phys_port_name), drivers/infiniband/hw/mlx5/cong.c (cc_params in debugfs), drivers/infiniband/core/
cma_configfs.c (default_roce_tos); for the vendor's driver, the files that Mellanox/network-operator#269 and
NVIDIA/nccl#2383 show (ecn; tc/1/traffic_class: "Global tclass=106", or empty).
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.model.errors import FabricError
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.model.qos import CLASSES, Nic
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.nic import dcb, mlnx_qos
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.nic.plan import OF_THE_PORT
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.nic.seen import Dcb, SeenNic
from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.errors import HostError
from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.system import System

DEVICES = "/sys/class/infiniband"
NETWORK = "/sys/class/net"
CONNECTIONS = "/sys/kernel/config/rdma_cm"
CONGESTION = "/sys/kernel/debug/mlx5"
PORT = "1"  # mlx5, bnxt_re and irdma have one device per port
REPRESENTOR = re.compile(r"^(c\d+)?pf\d+(vf|sf)\d+$")  # Documentation/networking/representors.rst
# Device IDs of vendor 0x15b3 whose functions are always VFs; a guest has no other way to recognise a VF. From the table
# mlx5_core_pci_table (drivers/net/ethernet/mellanox/mlx5/core/main.c, MLX5_PCI_DEV_IS_VF).
MLX5_VFS = ("0x1012", "0x1014", "0x1016", "0x1018", "0x101a", "0x101c", "0x101e", "0xa2d3")


def names(system: System) -> tuple[list[str], dict[str, str]]:
    """Return the RDMA devices whose link is Ethernet; and, by name, why some cannot be read (as in containers)."""
    ethernet, left_out = [], {}
    for name in system.names(DEVICES):
        if _link(system, name) == "Ethernet":
            try:
                _interface(system, name)
                ethernet.append(name)
            except HostError as error:
                left_out[name] = str(error)
    return ethernet, left_out


def read(system: System, wanted: list[str]) -> dict[str, SeenNic]:
    """Return the named RDMA devices, physical functions before VFs. Raises HostError for the first that is none."""
    existing = system.names(DEVICES)
    for name in wanted:
        if name not in existing:
            shown = f"RDMA devices: {', '.join(existing)}" if existing else "no driver has made any: see 'rdma link'"
            raise HostError(f"{name}: no such RDMA device on this host", shown)
        if _link(system, name) != "Ethernet":
            raise HostError(f"{name}: its link is {_link(system, name)}, which has no RoCE", "leave it out")
    seen = {name: _function(system, name) for name in wanted}
    return dict(sorted(seen.items(), key=lambda item: item[1].nic.is_vf))


def _link(system: System, name: str) -> str | None:
    return system.read(f"{DEVICES}/{name}/ports/{PORT}/link_layer")


def _function(system: System, name: str) -> SeenNic:
    device = f"{DEVICES}/{name}/device"
    interface = _interface(system, name)
    physical = system.link_name(f"{device}/physfn")
    is_vf = bool(physical) or (
        system.read(f"{device}/vendor") == "0x15b3" and system.read(f"{device}/device") in MLX5_VFS
    )
    driver = system.link_name(f"{device}/driver")
    address = system.link_name(device)
    cannot: dict[str, str] = {}
    if is_vf:
        parents = system.names(f"{device}/physfn/infiniband")
        parent = _function(system, parents[0]).nic if parents else None
        reason = f"it is a VF, and the port belongs to its physical function{f' ({physical})' if physical else ''}"
        cannot.update(dict.fromkeys(OF_THE_PORT, reason))
        nic = Nic(name, interface, is_vf=True, may_mark=parent.trust == "dscp" if parent else None)
        bridging, ecn, cnp = None, "", ""
    else:
        parent = None
        bridging, reason = _bridging(system, interface)
        nic = _with_dcb(Nic(name, interface, may_mark=True), bridging, driver, reason, cannot)
        nic, ecn, cnp = _with_congestion(system, nic, address, cannot)
    nic = _with_marking(system, nic, cannot)
    return SeenNic(nic, bridging, cannot, driver, address, parent, _speed_gbit_s(system, interface), ecn, cnp)


def _interface(system: System, name: str) -> str:
    """Return the network interface of an RDMA device."""
    interfaces = [
        interface
        for interface in system.names(f"{DEVICES}/{name}/device/net")
        if not REPRESENTOR.match(quiet(system, f"{NETWORK}/{interface}/phys_port_name") or "")
    ]
    if len(interfaces) != 1:  # software devices have no PCI device; other devices may have several interfaces
        interfaces = [quiet(system, f"{DEVICES}/{name}/ports/{PORT}/gid_attrs/ndevs/0") or ""]
    bond = quiet(system, f"{DEVICES}/{name}/ports/{PORT}/gid_attrs/ndevs/0")
    members = quiet(system, f"{NETWORK}/{bond}/bonding/slaves") if bond else None
    if members:
        raise HostError(
            f"{name}: it is one RDMA device over {bond}, the bond of {members}, of which only one would be set",
            "use an RDMA device for each port, without the bond, or leave it out of roce_host_nics",
        )
    if not interfaces[0] or not system.exists(f"{NETWORK}/{interfaces[0]}"):
        raise HostError(
            f"{name}: it has no network interface, through which its QoS is set", f"see 'rdma link show {name}/1'"
        )
    return interfaces[0]


def quiet(system: System, path: str) -> str | None:
    """Read a file that some drivers have but do not allow to be read."""
    try:
        return system.read(path)
    except HostError:
        return None


def _number(system: System, path: str) -> int | None:
    text = quiet(system, path)
    if text is None:
        return None
    if not re.fullmatch(r"-?\d+", text):
        raise HostError(f"{path} holds {text!r}, which is not a number", "check which driver created it")
    return int(text)


def _speed_gbit_s(system: System, interface: str) -> int | None:
    speed_mbit_s = _number(system, f"{NETWORK}/{interface}/speed")
    return speed_mbit_s // 1000 if speed_mbit_s and speed_mbit_s > 0 else None


def _bridging(system: System, interface: str) -> tuple[Dcb | None, str]:
    """Read the DCB settings with dcb, or else with mlnx_qos; if neither works, also return why."""
    try:
        printed: dict[str, str | None] = {}
        reason = ""
        for object_name in dcb.OBJECTS:
            try:
                printed[object_name] = system.run(dcb.show(interface, object_name))
            except HostError as error:
                if not any(text in str(error) for text in dcb.NOT_THERE):
                    raise
                printed[object_name] = None
        if printed["ets"] is not None or printed["app"]:
            return _parsed(lambda: dcb.parse(interface, printed)), ""
        reason = "its driver has no DCB"
    except HostError as error:
        if "is not installed" not in str(error):
            raise
        reason = "neither dcb (package iproute2) nor mlnx_qos is installed"
    try:
        text = system.run(mlnx_qos.show(interface))
    except HostError as error:
        if "is not installed" not in str(error):
            raise
        return None, reason
    return _parsed(lambda: mlnx_qos.parse(interface, text)), ""


def _parsed(parse: Callable[[], Dcb]) -> Dcb:
    try:
        return parse()
    except FabricError as error:
        raise HostError.of(error) from error


def _with_dcb(nic: Nic, seen: Dcb | None, driver: str | None, reason: str, cannot: dict[str, str]) -> Nic:
    fields = ("trust", "dscp_to_priority", "priority_to_class", "queues", "pfc")
    if seen is None:
        cannot.update(dict.fromkeys((*fields, "dcbx_by_host", "priority_to_buffer", "buffer_bytes", "cable_m"), reason))
        return nic
    dscp_to_priority = seen.dscp_to_priority() if seen.dscp_priorities is not None else None
    # IEEE 802.1Qbb's delay is in bits, but mlx5 uses it as the cable's metres (en_dcbnl.c, mlx5e_dcbnl_ieee_setpfc).
    cable_m = seen.delay if driver == "mlx5_core" else None
    by_host = False if seen.willing else seen.by_host
    parts = {
        "trust": seen.trust,
        "dscp_to_priority": dscp_to_priority,
        "priority_to_class": seen.priority_to_class,
        "queues": seen.queues,
        "pfc": seen.pfc,
        "priority_to_buffer": seen.priority_to_buffer,
        "buffer_bytes": seen.buffer_bytes,
        "cable_m": cable_m,
        "dcbx_by_host": by_host,
    }
    reasons = {"cable_m": "only mlx5 supports the length of the cable", "dcbx_by_host": "its driver has no DCBX"}
    for name, value in parts.items():
        if value is None:
            cannot[name] = reasons.get(name, f"its driver has no such part of DCB ({seen.tool})")
    return replace(
        nic,
        trust=seen.trust,
        dscp_to_priority=nic.dscp_to_priority if dscp_to_priority is None else dscp_to_priority,
        priority_to_class=nic.priority_to_class if seen.priority_to_class is None else seen.priority_to_class,
        queues=nic.queues if seen.queues is None else seen.queues,
        pfc=nic.pfc if seen.pfc is None else seen.pfc,
        priority_to_buffer=nic.priority_to_buffer if seen.priority_to_buffer is None else seen.priority_to_buffer,
        buffer_bytes=nic.buffer_bytes if seen.buffer_bytes is None else seen.buffer_bytes,
        cable_m=cable_m,
        dcbx_by_host=by_host,
    )


def _with_congestion(system: System, nic: Nic, address: str | None, cannot: dict[str, str]) -> tuple[Nic, str, str]:
    """Return the NIC with the notification and reaction points and the CNPs' DSCP; and the paths that set these."""
    ecn = f"{NETWORK}/{nic.interface}/ecn"
    if system.exists(f"{ecn}/roce_np"):
        notification, reaction = (_enabled(system, f"{ecn}/{point}") for point in ("roce_np", "roce_rp"))
        cnp = f"{ecn}/roce_np/cnp_dscp"
        cnp_dscp = _number(system, cnp)
        return replace(nic, notification=notification, reaction=reaction, cnp_dscp=cnp_dscp), ecn, cnp
    reason = "only the vendor's driver (MLNX_OFED, DOCA) has a switch for it; the firmware's is ROCE_CC_PRIO_MASK_P1"
    cannot.update(notification=reason, reaction=reason)
    cnp = f"{CONGESTION}/{address}/cc_params/np_cnp_dscp"
    value = _number(system, cnp) if address else None
    if value is None:
        cannot["cnp_dscp"] = "there is neither the vendor driver's 'ecn' nor mlx5's 'cc_params' in debugfs"
        return nic, "", ""
    return replace(nic, cnp_dscp=value), "", cnp


def _enabled(system: System, point: str) -> tuple[int, ...]:
    """Return the priorities on which a congestion point is on."""
    return tuple(priority for priority in range(CLASSES) if _number(system, f"{point}/enable/{priority}") == 1)


def _with_marking(system: System, nic: Nic, cannot: dict[str, str]) -> Nic:
    """Return the NIC with the ToS of RDMA-CM, the device's ToS, and the MTU."""
    path = f"{DEVICES}/{nic.name}/tc/{PORT}/traffic_class"
    text = system.read(path)
    forced = None
    if text is None:
        cannot["forced_tos"] = "only the vendor's driver (MLNX_OFED, DOCA) has a traffic class of the device"
    else:
        tclass = re.match(r"Global tclass=(\d+)$", text, re.MULTILINE)
        forced = int(tclass[1]) if tclass else None
    with connections(system, nic.name) as path:
        cm_tos = _number(system, path)
    mtu = _number(system, f"{NETWORK}/{nic.interface}/mtu")
    if mtu is None:
        raise HostError(
            f"{nic.name}: {NETWORK}/{nic.interface}/mtu cannot be read", f"see 'ip link show {nic.interface}'"
        )
    return replace(nic, forced_tos=forced, cm_tos=cm_tos, ip_mtu_bytes=mtu)


@contextmanager
def connections(system: System, name: str) -> Iterator[str]:
    """Yield the path of the file with RDMA-CM's ToS of a device.

    The kernel shows the file in a directory that a user creates, and keeps the value when the directory is removed
    (cma_configfs.c).
    """
    folder = f"{CONNECTIONS}/{name}"
    created = False
    if system.exists(CONNECTIONS) and not system.exists(folder):
        try:
            os.mkdir(system.path(folder))
            created = True
        except OSError:  # a recording, or a device that RDMA-CM does not know: then the file is missing
            pass
    try:
        yield f"{folder}/ports/{PORT}/default_roce_tos"
    finally:
        if created:
            os.rmdir(system.path(folder))
