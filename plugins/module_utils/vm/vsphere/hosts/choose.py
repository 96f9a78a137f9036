# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Choose a host of the cluster for each new virtual machine whose spec names none, from a site that was read before.

An existing virtual machine stays where it is. The others are placed one after the other: those with most GPUs first,
then those with most memory, then by name. Each is placed on the host with the fewest free GPUs of those on which the
planner can plan it, together with all requested virtual machines that are there already. So large sets of GPUs stay
together for later requests. Hosts with equally many free GPUs are tried by name, so the same request and the same site
give the same hosts.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ansible_collections.sailloft.fleet.plugins.module_utils.common.texts import excerpt
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.model import Host
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.common.errors import DomainError
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.request.spec import DomainSpec
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.vsphere import read_back
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.vsphere.request import VsphereRequest
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.vsphere.site import Esxi, VsphereCluster


def choose(
    requests: list[VsphereRequest],
    site: VsphereCluster,
    plan: Callable[[Esxi, list[DomainSpec]], Any],
    accelerators: dict[str, bool],
) -> dict[str, Esxi]:
    """Return the host of each request by name. ``plan`` raises DomainError if the specs have no place on a host.

    Raises DomainError if a named host is missing, or if no host has a place.
    """
    host_of: dict[str, Esxi] = {}
    unplaced: list[VsphereRequest] = []
    for item in requests:
        machine, requested_host = site.machines.get(item.name), item.vsphere.host
        if machine is not None:
            host_of[item.name] = site.hosts[machine.host]
        elif requested_host or len(site.hosts) <= 1:
            host_of[item.name] = site.host(requested_host, item.name)
        else:
            unplaced.append(item)
    if not unplaced:
        return host_of
    usable = {name: host for name, host in site.hosts.items() if not host.unusable}
    on: dict[str, list[DomainSpec]] = {name: [] for name in usable}
    free = {name: _free_gpus(host, site.model(host, accelerators)) for name, host in usable.items()}
    for item in requests:
        name = host_of[item.name].name if item.name in host_of else ""
        if name in usable:
            on[name].append(item.spec)
            free[name] -= 0 if item.name in site.machines else _gpus(item.spec)
    for item in sorted(unplaced, key=lambda request: (-_gpus(request.spec), -request.spec.memory_mib, request.name)):
        name = _first(item, on, free, lambda name, specs: plan(usable[name], specs))
        host_of[item.name] = usable[name]
        on[name].append(item.spec)
        free[name] -= _gpus(item.spec)
    return host_of


def _first(
    item: VsphereRequest,
    on: dict[str, list[DomainSpec]],
    free: dict[str, int],
    plan: Callable[[str, list[DomainSpec]], Any],
) -> str:
    """Return the first host on which a virtual machine can be planned."""
    reasons = []
    for name in sorted(free, key=lambda host: (free[host], host)):
        if free[name] < _gpus(item.spec):
            continue
        try:
            plan(name, [*on[name], item.spec])
        except DomainError as error:
            reasons.append(f"{name}: {error.cause}")
        else:
            return name
    most_free = max(free.values(), default=0)
    reason = excerpt(reasons) or f"the host with the most free GPUs has {most_free}, but it needs {_gpus(item.spec)}"
    raise DomainError(
        f"no host of the cluster has room for it ({reason})",
        "request less, enable passthrough on more hosts, or name a host (vsphere.host) to see all of its reasons",
        domain=item.name,
    )


def _gpus(spec: DomainSpec) -> int:
    return spec.gpus.count + len(spec.gpus.addresses)


def _free_gpus(host: Esxi, model: Host) -> int:
    """Return the number of GPUs that are active for passthrough and held by no virtual machine."""
    configs = {name: machine.config for name, machine in host.machines.items()}
    held_addresses = {
        address for holdings in read_back.holdings(configs, model).values() for address in holdings.devices
    }
    gpus = [item for item in model.functions if item.kind == "gpu" and item.passthrough and item.passthrough.active]
    return sum(item.address not in held_addresses for item in gpus)
