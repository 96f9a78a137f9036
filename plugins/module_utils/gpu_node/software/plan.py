# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The plan of a GPU node's software from the request and the machine: refusals, packages, files, services. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from ansible_collections.sailloft.fleet.plugins.module_utils.gpu_node.software import files, packages
from ansible_collections.sailloft.fleet.plugins.module_utils.gpu_node.software import request as r
from ansible_collections.sailloft.fleet.plugins.module_utils.gpu_node.software.machine import MachineFacts
from ansible_collections.sailloft.fleet.plugins.module_utils.gpu_node.software.packages import Package
from ansible_collections.sailloft.fleet.plugins.module_utils.gpu_node.software.releases import BY_DRIVER, RELEASES
from ansible_collections.sailloft.fleet.plugins.module_utils.gpu_node.software.systems import APT
from ansible_collections.sailloft.fleet.plugins.module_utils.gpu_node.storage import cufile
from ansible_collections.sailloft.fleet.plugins.module_utils.gpu_node.storage.modes import (
    NVIDIA_FS,
    P2PDMA,
    P2PDMA_KERNEL,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.errors import RequestError
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.kernel_release import includes

# Both from GPU Operator documentation, gpu-operator-rdma.rst, "Common Prerequisites".
DMABUF_KERNEL = (5, 12)
SUPPORTED_ARCHITECTURE = "x86_64"


@dataclass(frozen=True)
class SoftwarePlan:
    """The software of a node. ``services`` are enabled, in order; ``kernels`` need the modules of ``driver``."""

    driver: str
    fabric: str
    packages: tuple[Package, ...]
    files: dict[str, str]
    services: tuple[str, ...]
    kernels: tuple[str, ...]
    notes: tuple[str, ...] = field(default=())


def kernel_version(kernel: str) -> tuple[int, int]:
    """Return (6, 8) for 6.8.0-60-generic."""
    match = re.match(r"(\d+)\.(\d+)", kernel)
    return (int(match[1]), int(match[2])) if match else (0, 0)


def make(request: r.SoftwareRequest, machine: MachineFacts) -> SoftwarePlan:
    """Return the plan. Raises RequestError, which names all combinations that no vendor supports."""
    doca = _doca(machine) if request.rdma == r.DOCA else None
    fabric, notes = _fabric(request, machine)
    refused = [*_devices(request, machine), *_driver(request, machine), *_parts(request, machine, doca, fabric)]
    if refused:
        raise RequestError("gpu_node: " + "; ".join(f"{cause}: {remedy}" for cause, remedy in refused))
    wanted = packages.wanted(request, machine, fabric, doca)
    texts = {**files.repositories(request, machine.system.packages), **files.settings(request, fabric, machine.rails)}
    if machine.system.packages == APT:
        texts[files.PINS] = files.pins(wanted)
    if machine.system.has_streams:
        texts[files.STREAM] = files.stream(BY_DRIVER[request.driver].branch)
    services = ["nvidia-persistenced.service"]
    services += ["nvidia-fabricmanager.service"] if fabric != r.NONE else []
    services += ["nvidia-dcgm.service"] if request.dcgm else []
    return SoftwarePlan(request.driver, fabric, tuple(wanted), texts, tuple(services), machine.kernels, tuple(notes))


def _devices(request: r.SoftwareRequest, machine: MachineFacts) -> list[tuple[str, str]]:
    """Return the refusals of software that the node's own PCI functions cannot use."""
    devices = machine.devices
    if devices is None:
        return []
    errors = []
    if not (devices.gpus or devices.nvswitches or devices.management):
        errors.append(("this machine has no NVIDIA GPU", "apply the role to GPU nodes only"))
    if devices.old_gpus:
        errors.append(
            (
                f"the open kernel modules of driver {request.driver} are for Turing or newer GPUs, and "
                f"{', '.join(devices.old_gpus)} is older",
                "use another node: every release of the table has open modules",
            )
        )
    if request.fabric == r.NVLINK5 and devices.nvswitches:
        errors.append(
            ("this board has NVSwitch functions, and those with NVLink 5 have none", "set gpu_node_fabric: auto")
        )
    if request.fabric == r.NVSWITCH and devices.management:
        errors.append(
            (f"{devices.management[0]} manages the NVSwitches of an NVLink 5 board", "set gpu_node_fabric: auto")
        )
    if request.fabric == r.AUTO and devices.unknown and not devices.management:
        errors.append(
            (
                f"whether {', '.join(devices.unknown)} manages NVSwitches is not known, because VPD could not be read",
                "run as root, or set gpu_node_fabric",
            )
        )
    return errors


def _driver(request: r.SoftwareRequest, machine: MachineFacts) -> list[tuple[str, str]]:
    system, branch = machine.system, BY_DRIVER[request.driver].branch
    errors = []
    if machine.architecture != SUPPORTED_ARCHITECTURE:
        errors.append(
            (
                f"the table is for {SUPPORTED_ARCHITECTURE}, but this machine is {machine.architecture}",
                "use another host",
            )
        )
    if branch < system.first_branch:
        fit = [release.driver for release in RELEASES if release.branch >= system.first_branch]
        errors.append((f"driver {request.driver} is not supported on {system.shown}", f"set gpu_node_driver: {fit[0]}"))
    if not machine.kernels:
        errors.append(("the image has no kernel to build modules for", "add a kernel to a layer below"))
    for kernel in machine.kernels:
        number = kernel_version(kernel)
        if request.modules == r.PRECOMPILED and branch not in dict(system.precompiled).get(number, ()):
            errors.append(
                (
                    f"no precompiled modules of branch {branch} for kernel {kernel} on {system.shown}",
                    _precompiled(system.precompiled),
                )
            )
        if request.gpudirect == r.DMABUF and number < DMABUF_KERNEL:
            errors.append(
                (
                    f"kernel {kernel} has no dma-buf for RDMA, which Linux has from 5.12 on",
                    "use a newer kernel, or set gpu_node_gpudirect: peermem with gpu_node_rdma: doca",
                )
            )
    if request.modules == r.DKMS and machine.secure_boot and not request.signing:
        errors.append(
            (
                "Secure Boot is on, and modules that DKMS builds are not signed by a key that the firmware knows",
                "set gpu_node_module_signing and enrol the certificate (mokutil "
                "--import), or set gpu_node_modules: precompiled on Ubuntu",
            )
        )
    return errors


def _parts(request: r.SoftwareRequest, machine: MachineFacts, doca: str | None, fabric: str) -> list[tuple[str, str]]:
    system = machine.system
    errors = []
    if request.dcgm and not system.dcgm:
        errors.append((f"DCGM is not supported on {system.shown}", "set gpu_node_dcgm: false"))
    if request.rdma == r.DOCA and doca is None:
        errors.append((f"no DOCA-Host in the table is for {system.name} {machine.version}", "set gpu_node_rdma: inbox"))
    if request.gpudirect == r.PEERMEM and request.rdma != r.DOCA:
        # The kernel's own RDMA has no peer memory interface (gpu-operator-rdma.rst, "Network Device Drivers").
        errors.append(
            ("nvidia-peermem needs DOCA's RDMA drivers", "set gpu_node_gpudirect: dmabuf, or gpu_node_rdma: doca")
        )
    if request.storage == NVIDIA_FS and machine.secure_boot:
        # platform-support.rst of GPU Operator v26.3.3, "Support for GPUDirect Storage".
        errors.append(
            ("nvidia-fs is not supported with Secure Boot", "set gpu_node_storage: p2pdma, or turn Secure Boot off")
        )
    if request.storage == NVIDIA_FS and request.modules == r.PRECOMPILED:
        errors.append(("nvidia-fs is built against the sources of the driver's modules", "set gpu_node_modules: dkms"))
    errors += [
        (
            f"kernel {kernel} is older than 6.2, and has no P2PDMA for file systems",
            "use a newer kernel, or set gpu_node_storage: nvidia_fs",
        )
        for kernel in machine.kernels
        if request.storage == P2PDMA and includes(kernel, P2PDMA_KERNEL) is False
    ]
    if cufile.needs_rails(request.cufile) and not machine.rails:
        errors.append(
            (
                "no RDMA interface has an address here, and gpu_node_storage_settings wants those of the rails",
                "configure the rails first (roce_host), or give the addresses; an image has no rails",
            )
        )
    if request.modules == r.PRECOMPILED and fabric == r.NVLINK5:
        errors.append(("the archive of the precompiled modules has no NVLink 5 packages", "set gpu_node_modules: dkms"))
    return errors


def _precompiled(branches_by_kernel: tuple[tuple[tuple[int, int], tuple[int, ...]], ...]) -> str:
    if not branches_by_kernel:
        return "set gpu_node_modules: dkms"
    available = (
        f"kernel {major}.{minor} with {' or '.join(map(str, branches))}"
        for (major, minor), branches in branches_by_kernel
    )
    return f"available: {', '.join(available)}; or set gpu_node_modules: dkms"


def _doca(machine: MachineFacts) -> str | None:
    for version, minors in machine.system.doca:
        if minors == ("",) or machine.version in minors:
            return version
    return None


def _fabric(request: r.SoftwareRequest, machine: MachineFacts) -> tuple[str, list[str]]:
    if request.fabric != r.AUTO:
        return request.fabric, []
    if machine.devices is None:
        return r.NONE, [
            "no Fabric Manager: an image does not know its nodes; set gpu_node_fabric: nvswitch, or nvlink5 for boards "
            "with NVLink 5"
        ]
    if machine.devices.management:
        return r.NVLINK5, []
    return (r.NVSWITCH if machine.devices.nvswitches else r.NONE), []
