# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The present state of the machine, or of the image, that gets the software of a GPU node."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass, field

from ansible_collections.sailloft.fleet.plugins.module_utils.gpu_node.software.systems import APT, SupportedSystem, find
from ansible_collections.sailloft.fleet.plugins.module_utils.gpu_node.storage import facts
from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.errors import HostError
from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.system import System as Host
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model import function_roles as roles

PCI = "/sys/bus/pci/devices"
# PCI base class and sub-class: other bridge (NVSwitch), 3D controller and VGA (PCI Code and ID Assignment).
NVSWITCH_CLASS, GPU_CLASSES = 0x0680, (0x0302, 0x0300)
# UEFI specification, section 3.3: the variable's attributes are its first four bytes.
SECURE_BOOT = "/sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c"
QUERIES = {
    "apt": ["dpkg-query", "--show", "--showformat=${db:Status-Status} ${Package} ${Version}\n"],
    "dnf": ["rpm", "--query", "--all", "--queryformat", "installed %{NAME} %{EPOCH}:%{VERSION}-%{RELEASE}\n"],
}


@dataclass(frozen=True)
class SoftwareDevices:
    """The PCI functions that decide on the software.

    ``old_gpus`` are the addresses of GPUs that the open kernel modules cannot drive. ``management`` are those of
    ConnectX functions through which NVSwitches of an NVLink 5 board are managed; ``unknown`` are those of functions
    that could be such ones, because their VPD cannot be read.
    """

    gpus: int = 0
    nvswitches: int = 0
    old_gpus: tuple[str, ...] = ()
    management: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()


@dataclass(frozen=True)
class MachineFacts:
    """Facts that the plan depends on. ``secure_boot`` and ``devices`` are None in an image: its node is not known.

    ``kernels`` are those that need modules: the running one, or in an image all of its kernels. ``modules`` has the
    version of nvidia.ko by kernel, for kernels that have it; ``installed`` has versions by package. ``loaded`` is the
    version of the running driver. ``rails`` as in ``cufile.render``, if it needs them. ``nvme_multipath`` and
    ``registry`` as in ``StorageFacts``.
    """

    system: SupportedSystem
    version: str
    in_image: bool
    kernels: tuple[str, ...]
    architecture: str
    devices: SoftwareDevices | None
    secure_boot: bool | None
    installed: dict[str, str] = field(default_factory=dict)
    modules: dict[str, str] = field(default_factory=dict)
    loaded: str | None = None
    rails: tuple[str, ...] = ()
    nvme_multipath: bool | None = None
    registry: str | None = None


def observe(host: Host, in_image: bool) -> MachineFacts:
    """Return the machine of ``host``. Raises HostError for a distribution that the table does not have."""
    release = dict(
        line.split("=", 1) for line in (host.read("/etc/os-release") or "").splitlines() if re.match(r"\w+=", line)
    )
    distribution, version = ("".join(shlex.split(release.get(key, ""))) for key in ("ID", "VERSION_ID"))
    system = find(distribution, version)
    if system is None:
        raise HostError(
            f"gpu_node: {distribution or 'this system'} {version} is not in the table of distributions",
            "use one that NVIDIA's driver, DCGM and DOCA are supported on: docs/how-to/gpu-nodes.md lists them",
        )
    kernels = _image_kernels(host) if in_image else (host.read("/proc/sys/kernel/osrelease") or "",)
    return MachineFacts(
        system=system,
        version=version,
        in_image=in_image,
        kernels=tuple(kernels),
        architecture=host.machine(),
        devices=None if in_image else _devices(host),
        secure_boot=None if in_image else _secure_boot(host),
        installed=_installed(host, system),
        modules=_modules(host, tuple(kernels)),
        loaded=None if in_image else _loaded(host),
        nvme_multipath=None if in_image else facts.multipath(host),
        registry=None if in_image else facts.registry(host),
    )


def _image_kernels(host: Host) -> tuple[str, ...]:
    """Return an image's kernels: the directories that contain modules, not those that removed kernels left behind."""
    return tuple(name for name in host.names("/lib/modules") if host.exists(f"/lib/modules/{name}/kernel"))


def _devices(host: Host) -> SoftwareDevices:
    ids = {
        address: [_number(host, address, name) for name in ("vendor", "device", "class")] for address in host.names(PCI)
    }
    gpus = {
        address: device
        for address, (vendor, device, class_code) in ids.items()
        if vendor == roles.NVIDIA and class_code >> 8 in GPU_CLASSES
    }
    management: list[str] = []
    unknown: list[str] = []
    # VPD takes milliseconds, and only boards with NVLink 5, or virtual machines that serve them, have such functions.
    if not gpus or any(roles.is_nvlink5_chip(roles.NVIDIA, device) for device in gpus.values()):
        for address, (vendor, device, _class) in ids.items():
            if (vendor, device) == (roles.MELLANOX, roles.CONNECTX7) and not host.exists(f"{PCI}/{address}/physfn"):
                manages = _manages(host, address)
                (unknown if manages is None else management if manages else []).append(address)
    return SoftwareDevices(
        gpus=len(gpus),
        nvswitches=sum(
            vendor == roles.NVIDIA and class_code >> 8 == NVSWITCH_CLASS for vendor, _device, class_code in ids.values()
        ),
        old_gpus=tuple(address for address, device in gpus.items() if roles.lacks_open_modules(roles.NVIDIA, device)),
        management=tuple(management),
        unknown=tuple(unknown) if gpus else (),
    )


def _number(host: Host, address: str, name: str) -> int:
    text = host.read(f"{PCI}/{address}/{name}") or ""
    return int(text, 16) if re.fullmatch("0x[0-9a-f]{1,8}", text) else 0


def _manages(host: Host, address: str) -> bool | None:
    """Return whether a ConnectX manages NVSwitches; without the file it has no VPD, and does not."""
    try:
        data = host.read_bytes(f"{PCI}/{address}/vpd")
        return data is not None and roles.manages_nvswitches(data)
    except HostError:
        return None


def _loaded(host: Host) -> str | None:
    """Return 595.91.07 of "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  595.91.07  Release Build ..."."""
    match = re.search(
        r"^NVRM version:.*?\s(\d+(?:\.\d+)+)\s", host.read("/proc/driver/nvidia/version") or "", re.MULTILINE
    )
    return match[1] if match else None


def _secure_boot(host: Host) -> bool:
    value = host.read_bytes(SECURE_BOOT)
    return bool(value) and value is not None and value[-1] == 1


def _installed(host: Host, system: SupportedSystem) -> dict[str, str]:
    output = host.run(QUERIES[system.packages])
    rows = (line.split() for line in output.splitlines())
    kernels_too = {}
    for row in rows:
        if len(row) == 3 and row[0] == "installed":
            kernels_too[row[1]] = row[2].replace("(none):", "")
    return kernels_too


def _modules(host: Host, kernels: tuple[str, ...]) -> dict[str, str]:
    versions = {}
    for kernel in kernels:
        try:
            versions[kernel] = host.run(["modinfo", "--set-version", kernel, "--field", "version", "nvidia"]).strip()
        except HostError:
            # There is no module, or kmod is not installed yet: DKMS depends on its package.
            continue
    return {kernel: version for kernel, version in versions.items() if version}


def headers(machine: MachineFacts) -> list[str]:
    """Return the packages with the headers of the kernels that need modules."""
    if machine.system.packages == APT:
        return [f"linux-headers-{kernel}" for kernel in machine.kernels]
    return [f"kernel-devel-{kernel}" for kernel in machine.kernels]
