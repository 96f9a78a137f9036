# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The packages of a GPU node by package system, with the versions that a release pins. Pure.

Sources of the names: NVIDIA Driver Installation Guide, "Compute-only" installations of Debian, Ubuntu and RHEL, and
"Version locking packages for Ubuntu / Debian" (from branch 590 on, NVIDIA's package names for Ubuntu do not contain the
branch); Fabric Manager user guide; DCGM user guide, "Installation"; GPUDirect Storage installation guide; DOCA-Host
profiles; Ubuntu's archive for precompiled modules. This project has not installed a package from a vendor's archive.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from ansible_collections.sailloft.fleet.plugins.module_utils.gpu_node.software import request as r
from ansible_collections.sailloft.fleet.plugins.module_utils.gpu_node.software.machine import MachineFacts, headers
from ansible_collections.sailloft.fleet.plugins.module_utils.gpu_node.software.releases import BY_DRIVER, Release
from ansible_collections.sailloft.fleet.plugins.module_utils.gpu_node.software.systems import (
    APT,
    UBUNTU,
    SupportedSystem,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.gpu_node.storage.modes import NVIDIA_FS

# From this branch on, NVIDIA's package names for Ubuntu do not contain the branch.
PLAIN_NAMES_FROM = 590


@dataclass(frozen=True)
class Package:
    """A package; ``version`` is the upstream version with its epoch, None for any."""

    name: str
    version: str | None = None

    def is_installed(self, installed: dict[str, str]) -> bool:
        """Return True if a revision of the version is installed (``installed``: versions by name)."""
        installed_version = installed.get(self.name)
        if installed_version is None or self.version is None:
            return installed_version is not None
        wanted = re.escape(self.version.rpartition(":")[2])
        return bool(re.fullmatch(rf"(\d+:)?{wanted}(\.\d+)*([-+~].*)?", installed_version))

    @property
    def glob(self) -> str:
        """Return the pattern of the version with any revision: 3.1 matches 3.1.0, but not 3.10."""
        return f"{self.version}*" if str(self.version).count(".") > 1 else f"{self.version}.*"

    def spec(self, packages: str) -> str:
        """Return the name and version in the form that the modules apt and dnf take."""
        if self.version is None:
            return self.name
        return f"{self.name}={self.glob}" if packages == APT else f"{self.name}-{self.glob.rpartition(':')[2]}"


def wanted(request: r.SoftwareRequest, machine: MachineFacts, fabric: str, doca: str | None) -> list[Package]:
    """Return all packages, in the order of installation. ``fabric`` is not AUTO; ``doca`` is DOCA's version or None."""
    release, system = BY_DRIVER[request.driver], machine.system
    packages = _driver(request, machine, release)
    if fabric != r.NONE:
        packages += _fabric(system, release, fabric, request.modules)
    if request.dcgm:
        # Only the Debian packages have this epoch.
        dcgm = f"1:{release.dcgm}"
        packages += [Package(f"datacenter-gpu-manager-4-{part}", dcgm) for part in ("core", f"cuda{release.cuda}")]
    if request.storage == NVIDIA_FS:
        packages += [Package(name, release.nvidia_fs) for name in ("nvidia-fs", "nvidia-fs-dkms")]
    packages += [Package("doca-ofed", doca)] if doca else [Package(name) for name in _inbox(system)]
    # ethtool sets the rings.
    packages += [Package("ethtool"), *(Package(name) for name in request.extra_packages)]
    return list(dict.fromkeys(packages))


def every_name(installed: dict[str, str]) -> list[str]:
    """Return the installed packages that a plan of any release would install for GPUs, without those of inbox RDMA."""
    pattern = (
        r"(lib)?nvidia-(driver-cuda|persistenced|fabric-?manager|nscq|kernel-open-dkms|compute|compute-utils|utils"
        r"|dkms|fs|fs-dkms|headless-no-dkms)(-\d{3})?(-server)?(-open)?|nvidia-dkms-open|kmod-nvidia-open-dkms"
        r"|libnvsdm|nvlsm|datacenter-gpu-manager-4-(core|cuda\d+)|doca-ofed"
        r"|linux-modules-nvidia-\d{3}-server-open-[a-z0-9.-]+"
    )
    return sorted(name for name in installed if re.fullmatch(pattern, name))


def _driver(request: r.SoftwareRequest, machine: MachineFacts, release: Release) -> list[Package]:
    system, version, branch = machine.system, release.driver, release.branch
    if request.modules == r.PRECOMPILED:
        # Canonical builds and signs the modules for each kernel; their package has the kernel's version.
        return [
            *(Package(f"linux-modules-nvidia-{branch}-server-open-{kernel}") for kernel in machine.kernels),
            Package(f"nvidia-headless-no-dkms-{branch}-server-open", version),
            Package(f"nvidia-utils-{branch}-server", version),
        ]
    if system.packages != APT:
        names = ["kmod-nvidia-open-dkms", "nvidia-driver-cuda", "nvidia-persistenced"]
    elif system.name != UBUNTU:
        names = ["nvidia-kernel-open-dkms", "nvidia-driver-cuda", "nvidia-persistenced"]
    elif branch >= PLAIN_NAMES_FROM:
        names = ["nvidia-dkms-open", "libnvidia-compute", "nvidia-persistenced"]
    else:
        parts = ("nvidia-dkms-{}-open", "libnvidia-compute-{}", "nvidia-compute-utils-{}", "nvidia-utils-{}")
        names = [part.format(branch) for part in parts]
    return [*(Package(name) for name in headers(machine)), *(Package(name, version) for name in names)]


def _fabric(system: SupportedSystem, release: Release, fabric: str, modules: str) -> list[Package]:
    version, branch = release.driver, release.branch
    plain = branch >= PLAIN_NAMES_FROM and modules == r.DKMS
    if system.packages != APT:
        names = ["nvidia-fabricmanager" if plain else "nvidia-fabric-manager", "libnvidia-nscq"]
    elif plain:
        names = ["nvidia-fabricmanager", "libnvidia-nscq"]
    else:
        names = [f"nvidia-fabricmanager-{branch}", f"libnvidia-nscq-{branch}"]
    packages = [Package(name, version) for name in names]
    if fabric == r.NVLINK5:
        # The subnet manager of NVLink 5 has its own versions.
        packages += [Package("libnvsdm", version), Package("nvlsm")]
    return packages


def _inbox(system: SupportedSystem) -> list[str]:
    """Return the packages of the distribution's own RDMA user space; its kernel has the drivers."""
    return (
        ["rdma-core", "ibverbs-providers", "ibverbs-utils"]
        if system.packages == APT
        else ["rdma-core", "libibverbs-utils"]
    )
