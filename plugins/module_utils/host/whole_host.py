# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The settings of a host that follow from its virtual machine with the whole host (``gpu_vm_whole_host``)."""

from __future__ import annotations

from typing import Any, Callable

from ansible_collections.sailloft.fleet.plugins.module_utils.given import values
from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.errors import HostError
from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.settings import HostSettings
from ansible_collections.sailloft.fleet.plugins.module_utils.topology import whole_host as share
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.errors import TopologyError
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.model import Host

OPTION = {"whole_host": {"type": "dict"}}
# No driver of the host takes the guest's virtual function, and its address is the same after each boot.
OF_VFS = {"count": 1, "drivers_autoprobe": False, "derive_addresses": True}


def derived(host: Host, whole_host: dict[str, Any]) -> dict[str, list[Any]]:
    """Return ``pages``, ``functions`` (VFs) and ``devices`` (for vfio-pci) of hugepages, sriov and vfio_binding.

    Raises HostError.
    """
    given = HostSettings("whole_host", whole_host)
    memory_mib = given.value("memory_mib", values.within(1, 1 << 32, "MiB"))
    page_mib = given.value("huge_page_mib", values.among(0, *share.PAGE_SIZES_MIB), share.PAGE_SIZES_MIB[0])
    try:
        pages = share.memory(host, memory_mib, page_mib).pages()
    except TopologyError as error:
        raise HostError.of(error) from error
    divided = share.nics_to_divide(host) if "nics" not in given.data else []
    together = share.nics_with_gpus(host)
    functions = [{"devices": [nic.address for nic in divided], **OF_VFS}] if divided else []
    # VFs from the time when the groups were not known: vfio-pci cannot have such a NIC.
    outdated = [nic.address for nic in together if nic.sriov and nic.sriov.now]
    functions += [{"devices": outdated, "count": 0}] if outdated else []
    return {"pages": pages, "functions": functions, "devices": ["gpu", *(nic.address for nic in together)]}


# The settings that are derived where they are not given: the module's option, its key, and the key of ``derived``.
BY_OPTION = (
    ("hugepages", "pages", "pages"),
    ("sriov", "functions", "functions"),
    ("vfio_binding", "devices", "devices"),
)


def completed(params: dict[str, Any], read: Callable[[], Host]) -> dict[str, Any]:
    """Return a module's ``params`` without ``whole_host``: the settings that are empty are derived from it.

    ``pages`` of the module kernel_arguments, ``hugepages``, ``sriov`` and ``vfio_binding`` of gpu_host_boot. ``read``
    returns the host, which is read only if something is derived. Raises HostError.
    """
    made = {name: value for name, value in params.items() if name != "whole_host"}
    if not params.get("whole_host"):
        return made
    settings = derived(read(), params["whole_host"])
    if "pages" in made:
        made["pages"] = made["pages"] or settings["pages"]
    for option, key, name in BY_OPTION:
        if made.get(option) is not None and not made[option].get(key):
            made[option] = {**made[option], key: settings[name]}
    return made
