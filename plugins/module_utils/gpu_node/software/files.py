# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The files of a GPU node: archives and their keys, pins, modules, limits, ARP. Pure: text by path."""

from __future__ import annotations

from collections.abc import Iterable

from ansible_collections.sailloft.fleet.plugins.module_utils.gpu_node.software import request as r
from ansible_collections.sailloft.fleet.plugins.module_utils.gpu_node.software.packages import Package
from ansible_collections.sailloft.fleet.plugins.module_utils.gpu_node.software.systems import APT
from ansible_collections.sailloft.fleet.plugins.module_utils.gpu_node.storage import cufile
from ansible_collections.sailloft.fleet.plugins.module_utils.gpu_node.storage.modes import NVIDIA_FS, P2PDMA, REGISTRY

OURS = "# Written by sailloft.fleet.gpu_node; changes here are lost.\n"
# This module owns the files of these names: those that are not in the plan are removed.
KEYS = {"apt": "/etc/apt/keyrings/sailloft-{}.asc", "dnf": "/etc/pki/rpm-gpg/RPM-GPG-KEY-sailloft-{}"}
SOURCES = {"apt": "/etc/apt/sources.list.d/sailloft-{}.list", "dnf": "/etc/yum.repos.d/sailloft-{}.repo"}
PINS = "/etc/apt/preferences.d/sailloft-gpu-node"
MODPROBE = "/etc/modprobe.d/sailloft-gpu-node.conf"
MODULES_LOAD = "/etc/modules-load.d/sailloft-gpu-node.conf"
LIMITS = "/etc/security/limits.d/sailloft-gpu-node.conf"
SERVICE_LIMITS = "/etc/systemd/system.conf.d/sailloft-gpu-node.conf"
SYSCTL = "/etc/sysctl.d/60-sailloft-gpu-node.conf"
STREAM = "/etc/dnf/modules.d/nvidia-driver.module"
SETTINGS = (PINS, MODPROBE, MODULES_LOAD, LIMITS, SERVICE_LIMITS, SYSCTL, STREAM)
# A package has a file of this name, too: it is removed only if it begins with our head.
SHARED = {cufile.PATH: cufile.HEAD}
# With several rails on one subnet each NIC answers ARP requests for its own address only, and sends them from it (Linux
# Documentation/networking/ip-sysctl.rst). The values are IBM's: apoorvemohan/HCIR, vela_asplos2025/vmsetup.
ARP = {"net.ipv4.conf.all.arp_announce": 1, "net.ipv4.conf.all.arp_filter": 1, "net.ipv4.conf.all.arp_ignore": 2}


def repositories(request: r.SoftwareRequest, packages: str) -> dict[str, str]:
    """Return the files of the archives and their keys; ``packages`` is apt or dnf."""
    content_by_path = {}
    for archive in request.repositories:
        key, source = KEYS[packages].format(archive.name), SOURCES[packages].format(archive.name)
        content_by_path[key] = archive.key
        if packages == APT:
            fields = ["deb", f"[signed-by={key}]", archive.url, archive.suite, *archive.components]
            content_by_path[source] = OURS + " ".join(fields) + "\n"
        else:
            lines = (
                *(f"[sailloft-{archive.name}]", f"name={archive.name}", f"baseurl={archive.url}"),
                *("enabled=1", "gpgcheck=1", f"gpgkey=file://{key}"),
            )
            content_by_path[source] = OURS + "".join(f"{line}\n" for line in lines)
    return content_by_path


def pins(packages: Iterable[Package]) -> str:
    """Return apt's preferences: the versions of the packages, and the driver's version for all packages of the driver.

    The requested packages depend on others of the same version, and a manual upgrade must not make these newer than the
    kernel modules (apt_preferences(5); a priority above 1000 allows a downgrade).
    """
    blocks = []
    versions: dict[str, list[str]] = {}
    for package in packages:
        if package.version:
            versions.setdefault(package.glob, []).append(package.name)
    for version, names in versions.items():
        repository_pins = (
            ["nvidia-*", "libnvidia-*"] if any("nvidia-persistenced" in n or "nvidia-utils" in n for n in names) else []
        )
        blocks.append(f"Package: {' '.join([*names, *repository_pins])}\nPin: version {version}\nPin-Priority: 1001\n")
    return OURS + "\n" + "\n".join(blocks)


def stream(branch: int) -> str:
    """Return the text that ``dnf module enable nvidia-driver:BRANCH-open`` writes.

    Source: NVIDIA Driver Installation Guide, "Open GPU Kernel Modules Installation", RHEL 8 and 9; without it dnf hides
    the packages of the archive's modules.
    """
    return f"[nvidia-driver]\nname=nvidia-driver\nstream={branch}-open\nprofiles=\nstate=enabled\n\n"


def settings(request: r.SoftwareRequest, fabric: str, rails: tuple[str, ...] = ()) -> dict[str, str]:
    """Return the files of kernel modules, limits, ARP and cuFile; ``rails`` as in ``cufile.render``."""
    load = ["nvidia", "nvidia-uvm"]
    load += ["nvidia-peermem"] if request.gpudirect == r.PEERMEM else []
    load += ["nvidia-fs"] if request.storage == NVIDIA_FS else []
    # Fabric Manager reaches NVLink 5 switches through this interface (Fabric Manager user guide, NVLink 5).
    load += ["ib_umad"] if fabric == r.NVLINK5 else []
    # RDMA pins memory. Sessions get the limit from pam_limits, services from systemd's default.
    limits = (f"{user} {kind} memlock unlimited\n" for user in ("*", "root") for kind in ("soft", "hard"))
    content_by_path = {
        MODPROBE: OURS + "blacklist nouveau\noptions nouveau modeset=0\n" + _p2pdma(request),
        MODULES_LOAD: OURS + "".join(f"{module}\n" for module in load),
        LIMITS: OURS + "".join(limits),
        SERVICE_LIMITS: OURS + "[Manager]\nDefaultLimitMEMLOCK=infinity\n",
    }
    if request.cufile:
        content_by_path[cufile.PATH] = cufile.render(request.cufile, rails)
    if request.rails_on_one_subnet:
        content_by_path[SYSCTL] = OURS + "".join(f"{name} = {value}\n" for name, value in ARP.items())
    return content_by_path


def _p2pdma(request: r.SoftwareRequest) -> str:
    """Return the options of kernel modules for P2PDMA; where the initramfs has nvme, a kernel argument does it too."""
    if request.storage != P2PDMA:
        return ""
    registry = "".join(f"{name}={value};" for name, value in REGISTRY.items())
    return f'options nvme_core multipath=N\noptions nvidia NVreg_RegistryDwords="{registry}"\n'
