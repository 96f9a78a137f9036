# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The request of a virtual machine with a whole host: from a few settings of the user, or for a plan without any. Pure.

The settings (option ``whole_host`` of the modules, ``gpu_vm_whole_host`` of the role) are ``SHORT``, and any of an
element of ``domains``, which has precedence over what is derived.
"""

from __future__ import annotations

import os
import re
from dataclasses import fields
from typing import Any

from ansible_collections.sailloft.fleet.plugins.module_utils.common import values
from ansible_collections.sailloft.fleet.plugins.module_utils.common.settings import Settings
from ansible_collections.sailloft.fleet.plugins.module_utils.topology import whole_host as share
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model import kinds
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.errors import TopologyError
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.function_roles import (
    is_physical,
    is_virtual,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.model import Function, Host
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.common.errors import DomainError
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.devices.eligibility import (
    HostDevices,
    Obstacle,
    obstacle,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.request import settings
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.request.parse import refusal
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.request.settings import ALL_NODES
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.request.spec import DomainSpec

NAME = "whole-host"
# The role's variable of these settings, which errors name.
SUBJECT = "gpu_vm_whole_host"
# The settings that stand for disks and interfaces.
SHORT = ("image", "bridge", "ssh_keys", "disk_mib")
PUBLIC_KEY = re.compile(r"(^|\s)(ssh|ecdsa|sk)-\S+ AAAA")
# libvirt's directory of images (its storage pool "default").
IMAGES = "/var/lib/libvirt/images"
# The size of a new disk, which takes only the space that the guest has written; as in inventories/vela.
DISK_MIB = 204800


def requests(params: dict[str, Any], host: Host | None = None, early: bool = False) -> list[dict[str, Any]]:
    """Return the ``domains`` of a module's ``params``: those of that option, otherwise that of ``whole_host``.

    ``host``: None before it was read; then the request has its files and interfaces, but no devices and no memory.
    ``early``: a NIC that still has no virtual function takes the place of the one that the role gpu_host will make;
    otherwise it is refused. Raises DomainError.
    """
    if params["domains"] or not params.get("whole_host"):
        return list(params["domains"] or [])
    reader = Settings(refusal(""), SUBJECT, params["whole_host"])
    explicit = {name: value for name, value in reader.data.items() if name not in SHORT}
    derived = {"name": NAME, **_files(reader)}
    if host is None:
        return [{**derived, **explicit}]
    gpus = [gpu.address for gpu in share.whole_gpus(host)]
    if not gpus and "gpus" not in explicit:
        raise DomainError(
            "this host has no GPU that the collection knows",
            "leave whole_host out on it, or name the device in accelerators (gpu_vm_accelerators)",
            domain=str(explicit.get("name", NAME)),
        )
    divided = divided_nics(host, reader.data)
    missing = [nic.address for nic in divided if nic.sriov and not nic.sriov.now]
    if missing and not early:
        raise DomainError(
            f"NIC {', '.join(missing)} has no virtual function yet",
            "run playbooks/gpu_hosts.yml, which makes it; nics: {per_gpu: 1, functions: pf} requests whole NICs",
            domain=str(explicit.get("name", NAME)),
        )
    memory = memory_of(host, reader.data)
    return [
        {
            **derived,
            # All of them: one that cannot be assigned is refused with the cause, not left out.
            "gpus": {"addresses": gpus},
            "nics": {"addresses": [function.address for function in _assignable(host)[0] if function.kind == "nic"]},
            "numa_nodes": [ALL_NODES],
            "memory_mib": memory.total_mib,
            "huge_page_mib": memory.page_mib,
            **explicit,
        }
    ]


def memory_of(host: Host, data: dict[str, Any]) -> share.GuestMemory:
    """Return the memory of the guest from ``memory_mib`` and ``huge_page_mib`` of the settings. Raises DomainError."""
    reader = Settings(refusal(""), SUBJECT, data)
    memory_mib = reader.value("memory_mib", values.within(1, settings.MEMORY_MIB_MAX, "MiB"))
    page_mib = reader.value("huge_page_mib", settings.check_page_size, share.PAGE_SIZES_MIB[0])
    try:
        return share.memory(host, memory_mib, page_mib)
    except TopologyError as error:
        raise DomainError(error.cause, f"{error.remedy}, or specify the domains to plan") from error


def divided_nics(host: Host, data: dict[str, Any]) -> list[Function]:
    """Return the NICs of which gpu_host makes a virtual function; none if ``nics`` of the settings is given."""
    return [] if data.get("nics") is not None else share.nics_to_divide(host)


def host_settings(host: Host, data: dict[str, Any]) -> list[str]:
    """Return in words, a line each, the settings of the host that follow from those of the virtual machine."""
    pages = memory_of(host, data).pages()
    lines = [f"huge pages: {page['count']} of {page['size_mib']} MiB on node {page['node']}" for page in pages]
    nics = [nic.address for nic in divided_nics(host, data)]
    lines += [f"virtual functions: 1 of NIC {', '.join(nics)}"] if nics else []
    lines.append(f"vfio-pci: GPU {', '.join(gpu.address for gpu in share.whole_gpus(host))}")
    nics_in_gpu_groups = [nic.address for nic in share.nics_with_gpus(host)]
    return (
        [*lines, f"vfio-pci: NIC {', '.join(nics_in_gpu_groups)} (in a GPU's IOMMU group)"]
        if nics_in_gpu_groups
        else lines
    )


def whole_host(host: Host) -> dict[str, Any]:
    """Return a request with all GPUs, NICs and NVMe drives that a guest can have, as an element of ``domains``.

    ``domains`` is the modules' option. If a NIC has virtual functions, the request has the first one. The request is on
    every NUMA node that has CPUs and memory, with the memory of ``share.memory``. Raises DomainError if the host has no
    GPU, or if its memory is unknown.
    """
    wanted, obstacles = _assignable(host)
    if not any(function.kind == "gpu" for function in wanted):
        reasons = [f"{gpu.address}: {obstacles[gpu.address]}" for gpu in share.whole_gpus(host)]
        cause = "; ".join(reasons) or "it has none"
        raise DomainError(
            f"no GPU of this host can be assigned to a virtual machine ({cause})", "specify the domains to plan"
        )
    memory = memory_of(host, {})
    devices = {
        key: {"addresses": [function.address for function in wanted if function.kind == kind]}
        for kind, key in kinds.SETTINGS.items()
    }
    return {
        "name": NAME,
        **devices,
        "numa_nodes": [ALL_NODES],
        "memory_mib": memory.total_mib,
        "huge_page_mib": memory.page_mib,
    }


def _assignable(host: Host) -> tuple[list[Function], dict[str, Obstacle]]:
    """Return the devices that one guest can have together, and why it cannot have the others, by address."""
    host_devices = HostDevices(host)
    wanted = [function for function in host.functions if _wanted(host_devices, function)]
    obstacles: dict[str, Obstacle] = {}
    # If a device is refused, others of its IOMMU group may have to be refused as well.
    while True:
        addresses = [function.address for function in wanted]
        reasons = {function.address: obstacle(host_devices, function, NAME, addresses) for function in wanted}
        refused = {address: reason for address, reason in reasons.items() if reason}
        if not refused:
            return wanted, obstacles
        obstacles.update(refused)
        wanted = [function for function in wanted if function.address not in refused]


def _wanted(host_devices: HostDevices, function: Function) -> bool:
    if function.kind == "gpu":
        # One with virtual functions stays in the list, so that its obstacle is reported.
        return not is_virtual(function)
    if function.kind not in kinds.SETTINGS:
        return False
    physical_function = host_devices.functions.get(function.physical_function or "")
    if physical_function is not None and physical_function.sriov is not None:
        return physical_function.sriov.vfs[:1] == [function.address]
    return is_physical(function)


def check_public_key(value: Any) -> str:
    """Return ``value`` if it is a line of an authorized_keys file (sshd(8))."""
    key = values.text(value)
    if not PUBLIC_KEY.search(key):
        raise values.InvalidValueError(
            f"{key[:80]!r} is not a public SSH key",
            "give the content of the file: \"{{ lookup('ansible.builtin.file', '~/.ssh/id_ed25519.pub') }}\"",
        )
    return key


def _files(reader: Settings) -> dict[str, Any]:
    """Return the disks and interfaces that the settings of ``SHORT`` stand for. Raises DomainError."""
    reader.only(*SHORT, *(item.name for item in fields(DomainSpec)))
    name = reader.value("name", settings.check_name, NAME)
    derived: dict[str, Any] = {}
    for short, long in (("image", "disks"), ("bridge", "interfaces")):
        if (short in reader.data) == (long in reader.data):
            contradicts = short in reader.data
            raise reader.refuse(
                f"{short} and {long} contradict each other" if contradicts else f"{short} is missing",
                f"leave one out: {long} replaces {short}" if contradicts else f"set it, or {long}",
            )
    if "bridge" in reader.data:
        derived["interfaces"] = [{"type": "bridge", "source": reader.value("bridge", settings.check_source)}]
    if "image" not in reader.data:
        for short in ("ssh_keys", "disk_mib"):
            if short in reader.data:
                raise reader.refuse(f"{short} needs image", "leave it out where disks are given")
        return derived
    size_mib = reader.value("disk_mib", values.within(1, settings.DISK_MIB_MAX, "MiB"), DISK_MIB)
    derived["disks"] = [{"path": f"{IMAGES}/{name}.qcow2", "size_mib": size_mib, **_base(reader.data["image"])}]
    if "ssh_keys" in reader.data:
        seed = {"path": f"{IMAGES}/{name}-seed.iso", "format": "raw", "read_only": True}
        derived["disks"].append({**seed, "ssh_keys": reader.value("ssh_keys", values.each(check_public_key))})
    return derived


def _base(image: Any) -> dict[str, Any]:
    """Return base, base_url and base_checksum of the disk for ``image``: a path, or its ``url`` and ``checksum``.

    The name of a downloaded image has the checksum, so that another image never replaces the base of existing disks.
    """
    if isinstance(image, str):
        if "://" in image:
            remedy = "give a dictionary of url and checksum, so that the download is checked"
            raise DomainError(f"{SUBJECT}.image: {image!r} is an address without a checksum", remedy)
        return {"base": Settings(refusal(""), SUBJECT, {"image": image}).value("image", values.path)}
    reader = Settings(refusal(""), f"{SUBJECT}.image", image)
    reader.only("url", "checksum")
    reader.need("url", "checksum")
    url, checksum = reader.value("url", settings.check_url), reader.value("checksum", settings.check_checksum)
    digest = checksum.partition(":")[2][:12]
    return {"base": f"{IMAGES}/{digest}-{os.path.basename(url)}", "base_url": url, "base_checksum": checksum}
