# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The configuration of a placement on vSphere, as plain data. Pure.

``read_back.py`` reads what vCenter has into the same form, so that both are compared key by key:

- guest_id, hardware_version, firmware, memory_mib, vcpus, cores_per_socket, threads_per_core, cores_per_numa_node
  (0: vSphere decides), iommu, memory_reservation_mib, memory_locked, cpu_reservation_mhz, latency_sensitivity,
  device_group
- extra: those keys of extraConfig that this collection owns
- devices: passed-through functions, each with type (fixed, dynamic, sriov), id (address, or vendor:device) and
  numa_node (its virtual one); networks: port groups in order; disks_mib: sizes in order
"""

from __future__ import annotations

from typing import Any

from ansible_collections.sailloft.fleet.plugins.module_utils.vm.plan.placement import Placement
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.vsphere import bars, versions
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.vsphere.request import VsphereRequest

USE_64BIT = "pciPassthru.use64bitMMIO"
MMIO_SIZE = "pciPassthru.64bitMMIOSizeGB"
ALLOW_P2P = "pciPassthru.allowP2P"
RELAX_ACS = "pciPassthru.RelaxACSforP2P"
LARGE_PAGES = "sched.mem.lpage.enable1GPage"
NODE_AFFINITY = "numa.nodeAffinity"
# The keys of extraConfig that a plan sets or removes. All others belong to vCenter or somebody else, and stay.
OWNED = (USE_64BIT, MMIO_SIZE, ALLOW_P2P, RELAX_ACS, LARGE_PAGES, NODE_AFFINITY)


def configure(
    request: VsphereRequest, placement: Placement, esxi: str, cpu_mhz: int, api: tuple[int, ...], hardware: str = ""
) -> dict[str, Any]:
    """Return the wanted configuration on a host with ESXi release ``esxi`` and processors of ``cpu_mhz``.

    ``hardware`` is the current or the requested virtual hardware; "" is the newest of the release.

    Virtual NUMA, virtual hyperthreads and a device's virtual node are left out if the API or the virtual hardware is
    too old for them; settings that the user requested by name are not left out.
    """
    spec, settings, processors = request.spec, request.vsphere, placement.processors
    hardware = hardware or versions.newest_hardware(esxi)
    has_virtual_numa = api >= versions.API_8 and versions.hardware(hardware) >= versions.NEEDS["numa_node"][1]
    cells = processors.cells
    vcpus = sum(len(cell.vcpus) for cell in cells)
    threads = processors.threads if has_virtual_numa else 1
    cores = vcpus // threads // len(cells)
    passed = placement.chosen.all()
    reserved = bool(passed) or spec.lock_memory
    high = settings.latency_sensitivity == "high" and spec.pin_cpus
    cell_of = {cell.host_node: cell.id for cell in cells}
    return {
        "guest_id": settings.guest_id,
        "hardware_version": hardware,
        "firmware": spec.firmware,
        "memory_mib": spec.memory_mib,
        "vcpus": vcpus,
        "cores_per_socket": cores,
        "threads_per_core": threads,
        "cores_per_numa_node": cores if has_virtual_numa else 0,
        "iommu": spec.remaps_interrupts,
        "memory_reservation_mib": spec.memory_mib if reserved else 0,
        "memory_locked": reserved,
        # Latency sensitivity high gives each vCPU a core of its own; only virtual hyperthreads share one, which is then
        # reserved once (VMware vSphere 8.0, "vSphere Resource Management", full CPU reservation for vHT).
        "cpu_reservation_mhz": vcpus // threads * cpu_mhz if high else 0,
        "latency_sensitivity": "high" if high else "normal",
        "device_group": settings.device_group,
        "extra": _extra(request, placement),
        "devices": sorted(
            # A device group is one setting; the vendor defines its devices.
            (
                _device(item, settings.passthrough, cell_of, placement, has_virtual_numa)
                for item in passed
                if item.physical_function or not settings.device_group
            ),
            key=lambda device: (
                device["type"],
                device["id"],
                -1 if device["numa_node"] is None else device["numa_node"],
            ),
        ),
        "networks": request.networks,
        "disks_mib": request.disks_mib,
    }


def _extra(request: VsphereRequest, placement: Placement) -> dict[str, str]:
    spec = request.spec
    extra = {}
    passed = placement.chosen.all()
    if placement.chosen.gpus:
        size = spec.mmio_window_mib // 1024 or bars.mmio_gib(placement.chosen.gpus)
        extra[USE_64BIT], extra[MMIO_SIZE] = "TRUE", str(size)
    if len(passed) > 1:
        extra[ALLOW_P2P] = extra[RELAX_ACS] = "TRUE"
    if spec.huge_page_mib == 1024:
        extra[LARGE_PAGES] = "TRUE"
    if spec.strict_memory:
        extra[NODE_AFFINITY] = ",".join(str(cell.host_node) for cell in placement.processors.cells)
    return extra


def _device(
    item: Any, passthrough: str, cell_of: dict[int, int], placement: Placement, has_virtual_numa: bool
) -> dict[str, Any]:
    node = placement.host_devices.host.node_of(item)
    row = {
        "type": "fixed",
        "id": item.address,
        "numa_node": cell_of.get(node) if has_virtual_numa and node is not None else None,
    }
    if item.physical_function:
        row["type"] = "sriov"
    elif passthrough == "dynamic":
        row.update(type="dynamic", id=f"{item.vendor_id:04x}:{item.device_id:04x}")
    return row


def differences(wanted: dict[str, Any], have: dict[str, Any]) -> list[dict[str, Any]]:
    """Return each key that differs, with path, wanted and have; keys of ``extra`` one by one."""
    differing = []
    for key in wanted:
        if key == "extra":
            for name in OWNED:
                if wanted["extra"].get(name) != have["extra"].get(name):
                    differing.append(
                        {"path": f"extra.{name}", "wanted": wanted["extra"].get(name), "have": have["extra"].get(name)}
                    )
        elif key == "disks_mib":
            # Larger disks, and disks that are not in the request, stay as they are.
            have_mib = have[key][: len(wanted[key])]
            if len(have_mib) < len(wanted[key]) or any(
                size < wanted_mib for size, wanted_mib in zip(have_mib, wanted[key])
            ):
                differing.append({"path": key, "wanted": wanted[key], "have": have[key]})
        elif wanted[key] != have[key]:
            differing.append({"path": key, "wanted": wanted[key], "have": have[key]})
    return differing
