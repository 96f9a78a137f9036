# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The settings of a host that follow from its virtual machine with the whole host (``gpu_vm_whole_host``)."""

from __future__ import annotations

from typing import Any, Callable

from ansible_collections.sailloft.fleet.plugins.module_utils.common import values
from ansible_collections.sailloft.fleet.plugins.module_utils.common.settings import Settings
from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.errors import HostError, RequestError
from ansible_collections.sailloft.fleet.plugins.module_utils.topology import whole_host as share
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.errors import TopologyError
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.model import Host

# No driver of the host takes the guest's virtual function, and its address is the same after each boot.
OF_VFS = {"count": 1, "drivers_autoprobe": False, "derive_addresses": True}


def derived(host: Host, whole_host: dict[str, Any]) -> dict[str, list[Any]]:
    """Return ``pages``, ``functions`` (VFs) and ``devices`` (for vfio-pci) of hugepages, sriov and vfio_binding.

    Raises HostError.
    """
    request = Settings(RequestError, "gpu_vm_whole_host", whole_host)
    memory_mib = request.value("memory_mib", values.within(1, 1 << 32, "MiB"))
    page_mib = request.value("huge_page_mib", values.among(0, *share.PAGE_SIZES_MIB), share.PAGE_SIZES_MIB[0])
    try:
        pages = share.memory(host, memory_mib, page_mib).pages()
    except TopologyError as error:
        raise HostError.of(error) from error
    divided = share.nics_to_divide(host) if "nics" not in request.data else []
    nics_with_gpus = share.nics_with_gpus(host)
    functions = [{"devices": [nic.address for nic in divided], **OF_VFS}] if divided else []
    # VFs from the time when the groups were not known: vfio-pci cannot have such a NIC.
    outdated = [nic.address for nic in nics_with_gpus if nic.sriov and nic.sriov.now]
    functions += [{"devices": outdated, "count": 0}] if outdated else []
    return {"pages": pages, "functions": functions, "devices": ["gpu", *(nic.address for nic in nics_with_gpus)]}


# Options of the module gpu_host, and the key of ``derived`` whose value they get if they are empty.
DERIVED_OPTIONS = {"hugepages": "pages", "sriov": "functions", "vfio": "devices"}


def completed(params: dict[str, Any], read_topology: Callable[[], Host]) -> dict[str, Any]:
    """Return the ``params`` of gpu_host; huge pages, VFs and bindings that are empty are derived from ``whole_host``.

    ``read_topology`` is called only if there is something to derive from. Raises HostError.
    """
    if not params["whole_host"]:
        return params
    if not params["now"]:
        raise RequestError("gpu_vm_whole_host: an image has no devices and no memory", "leave it out in an image")
    settings = derived(read_topology(), params["whole_host"])
    return {**params, **{option: params[option] or settings[key] for option, key in DERIVED_OPTIONS.items()}}
