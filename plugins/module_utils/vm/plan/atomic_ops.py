# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The choice between the host's switches and PCIe AtomicOps for each GPU that needs them. Pure.

QEMU completes AtomicOps for a device only if it is alone, as function 0, directly below a root port of the guest: not
below a switch, and not beside another function (hw/vfio/pci.c, vfio_pci_enable_rp_atomics, read in 10.0).
"""

from __future__ import annotations

from ansible_collections.sailloft.fleet.plugins.module_utils.common.texts import excerpt
from ansible_collections.sailloft.fleet.plugins.module_utils.topology import atomic_ops
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.model import Function
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.devices.eligibility import HostDevices
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.request.spec import DomainSpec

COST_OF_SWITCHES = (
    "without AtomicOps, which QEMU completes only directly below a root port: programs of ROCm that use them (RCCL) "
    "fail"
)
COST_OF_ROOT_PORTS = "in guests on Intel's processors without peer-to-peer DMA within the host's switch"


def root_ports(
    spec: DomainSpec, host_devices: HostDevices, devices: list[Function]
) -> tuple[frozenset[str], list[str]]:
    """Return the GPUs that get a root port of the guest instead of their place on the host, and notes on the cost."""
    if spec.mirror_topology == "false":
        return frozenset(), []
    out_of_reach = [
        gpu for gpu in devices if atomic_ops.needed(gpu) and not _alone_below_root_port(host_devices, gpu, devices)
    ]
    if spec.mirror_topology == "true":
        names = excerpt([gpu.address for gpu in out_of_reach])
        note = f"mirror_topology: true puts GPU {names} where the host has them, {COST_OF_SWITCHES}; auto avoids that"
        return frozenset(), [note] if out_of_reach else []
    moved, notes = [], []
    stays: dict[str, list[str]] = {}
    for gpu in out_of_reach:
        reason = atomic_ops.obstacle(host_devices.host, gpu.address)
        if reason:
            stays.setdefault(reason, []).append(gpu.address)
        else:
            moved.append(gpu.address)
    unknown = [address for address in moved if not atomic_ops.is_path_read(host_devices.host, address)]
    if moved:
        names = excerpt(moved)
        notes.append(
            f"GPU {names}: a root port in the guest each, {COST_OF_ROOT_PORTS}. Only there QEMU completes AtomicOps, "
            "which ROCm needs; mirror_topology: true keeps the switches"
        )
    if unknown:
        notes.append(f"whether the host's ports above {excerpt(unknown)} pass AtomicOps is not known: read it as root")
    notes += [
        f"GPU {excerpt(addresses)}: no AtomicOps on this host ({reason}), so none in the guest"
        for reason, addresses in stays.items()
    ]
    return frozenset(moved), notes


def _alone_below_root_port(host_devices: HostDevices, gpu: Function, devices: list[Function]) -> bool:
    bridges = host_devices.bridges(gpu.address)
    siblings = [device for device in devices if device.parent == gpu.parent and device is not gpu]
    return len(bridges) == 1 and host_devices.functions[bridges[0]].port_type in ("root_port", None) and not siblings
