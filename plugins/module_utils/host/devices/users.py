# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The current users of a PCI function: guests, by their VFIO group, and the host itself, from the topology."""

from __future__ import annotations

import os

from ansible_collections.sailloft.fleet.plugins.module_utils.host import guests
from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.system import System
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.model import Function


def of_functions(system: System, functions: list[Function]) -> dict[str, list[str]]:
    """Return the users of each of ``functions`` as text, by address; unused functions are left out."""
    users: dict[str, list[str]] = {}
    groups = {str(function.iommu_group) for function in functions if function.driver == "vfio-pci"}
    holders = _group_holders(system, groups) if groups else {}
    for function in functions:
        reasons = list(function.used_by_host)
        if function.driver == "vfio-pci":
            reasons += holders.get(str(function.iommu_group), [])
        if reasons:
            users[function.address] = reasons
    return users


def in_words(users: dict[str, list[str]]) -> str:
    """Return the users as text: "0000:15:10.0: guest db1 (process 4711)"."""
    return "; ".join(f"{address}: {', '.join(reasons)}" for address, reasons in sorted(users.items()))


def _group_holders(system: System, groups: set[str]) -> dict[str, list[str]]:
    """Return the processes that have /dev/vfio/GROUP open, by group."""
    holders: dict[str, list[str]] = {}
    for process in system.names("/proc"):
        if not process.isdigit():
            continue
        for descriptor in system.names(f"/proc/{process}/fd"):
            try:
                target = os.readlink(system.path(f"/proc/{process}/fd/{descriptor}"))
            except OSError:
                continue  # it was closed meanwhile
            group = target[len("/dev/vfio/") :]
            if target.startswith("/dev/vfio/") and group in groups:
                names = holders.setdefault(group, [])
                if _process(system, process) not in names:
                    names.append(_process(system, process))
    return holders


def _process(system: System, process: str) -> str:
    arguments = guests.arguments_of(system, process)
    name = guests.name_of(arguments)
    program = os.path.basename(arguments[0]) if arguments else "ended"
    return f"guest {name} (process {process})" if name else f"process {process} ({program})"
