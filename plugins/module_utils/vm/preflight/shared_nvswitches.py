# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The checks of NVSwitches that virtual machines share: the host's Fabric Manager, and the active partition. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from ansible_collections.sailloft.fleet.plugins.module_utils.common.texts import excerpt
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.devices.eligibility import HostDevices
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.devices.nvswitch_boards import SharedPartition
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.observed.fabric_manager import FabricManager
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.plan.plan import DomainPlan
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.preflight.findings import REFUSE, WARN, Finding

WHY = "without an active partition CUDA does not start in the guest, or its GPUs have no NVLink"
WITHOUT_NVLINK = ", or turn NVLink off in the guest (NVreg_NvLinkDisable=1)"
MATCHING = (
    "install Fabric Manager of the guests' driver version with FABRIC_MODE=1, and fmpm (NVIDIA/Fabric-Manager-Client)"
)


def findings(
    plan: DomainPlan, host_devices: HostDevices, manager: FabricManager | None, starting: bool
) -> Iterator[Finding]:
    """Find what keeps the partition of a virtual machine from being active.

    A virtual machine of one GPU can do without NVLink, and is only warned. The partition must be active when the
    virtual machine is ``starting``.
    """
    shared = plan.chosen.shared
    if shared is None:
        return
    severity = WARN if len(shared.physical_ids) == 1 else REFUSE
    problem = _problem(shared, host_devices, manager if starting else None, starting)
    if problem is None:
        return
    statement, remedy, unknown = problem
    yield Finding(
        plan.name,
        f"its GPUs are partition {shared.partition} of Fabric Manager in shared mode, and {statement}",
        WHY,
        remedy + (WITHOUT_NVLINK if severity == WARN else ""),
        WARN if unknown else severity,
    )


def _problem(
    shared: SharedPartition, host_devices: HostDevices, manager: FabricManager | None, starting: bool
) -> tuple[str, str, bool] | None:
    """Return (what is wrong, remedy, whether it is only not known); None if nothing is."""
    if not shared.switches:
        return "the host has no function that manages its NVSwitches", "read the host as root", False
    serving = sorted({host_devices.holder[address] for address in shared.switches if address in host_devices.holder})
    if serving:
        return f"whether it is active in service VM {excerpt(serving)} was not checked", "see fmpm -l there", True
    wrong = [address for address in shared.switches if host_devices.functions[address].driver != shared.driver]
    if wrong:
        driver = host_devices.functions[wrong[0]].driver
        return (
            f"{excerpt(wrong)} has {f'driver {driver}' if driver else 'no driver'} on the host, where Fabric Manager "
            f"needs {shared.driver}",
            "release it (gpu_host_vfio_released: [nvswitch, nvswitch_management]) and run gpu_hosts.yml, or give one "
            "virtual machine all GPUs of the board",
            False,
        )
    if not starting:
        return None
    if manager is None or manager.partitions is None:
        cause = manager.cause if manager else "it was not asked"
        return f"Fabric Manager of the host does not list it ({cause})", MATCHING, False
    listed = manager.partitions.get(shared.partition)
    if listed is None or listed.gpus != shared.physical_ids:
        gpus = ", ".join(map(str, listed.gpus)) if listed else "no GPU"
        return (
            f"Fabric Manager lists it with {gpus}, not with physical id {', '.join(map(str, shared.physical_ids))}",
            "set gpu_partitions and gpu_module_ids as fmpm -l and nvidia-smi -q show them",
            False,
        )
    if not listed.active:
        return "it is not active", f"activate it: fmpm -a {shared.partition}", False
    return None
