# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The work of the modules gpu_domain and gpu_domain_info: observe, plan, decide, apply."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ansible_collections.sailloft.fleet.plugins.module_utils.common import values
from ansible_collections.sailloft.fleet.plugins.module_utils.common.ranges import format_ranges
from ansible_collections.sailloft.fleet.plugins.module_utils.common.texts import excerpt
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.accelerators import recognise
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.model import Host
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.processes import mapped_bars, open_files
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.read.files import Files
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.read.saved import read_saved
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.read.sysfs import read_host
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.common.errors import DomainError
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.drift.drift import drift
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.drift.host import no_plan
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.drift.plan import Wanted
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.libvirt import overlay_disks
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.libvirt.actions import (
    DomainDecision,
    decide,
    disk_actions,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.libvirt.client import Client
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.libvirt.xml_diff import (
    differences,
    running_differences,
    side_by_side,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.observed import disk_files, fabric_manager, qemu_process
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.observed.hypervisor import (
    Hypervisor,
    ObservedDomain,
    holdings,
    unpinned_guests,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.observed.in_use import reserve
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.plan import whole_host
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.plan.plan import DomainPlan
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.plan.planner import plan_domains
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.preflight import checks, disk_use, programs
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.preflight.findings import (
    WARN,
    Finding,
    RefusedError,
    unplannable,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.preflight.platform import stall_s
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.render.outputs import returned_of
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.request.parse import (
    parse_module_ids,
    parse_partitions,
    parse_specs,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.request.spec import DomainSpec

# The longest timeout for the shutdown of a guest: one day.
SHUTDOWN_MAX_S = 86400

# The order of the actions over all domains of a call: resources are released before anything starts.
PHASES = ("stop", "undefine", "remove_disks", "make_disks", "define", "autostart", "no_autostart", "start", "resume")


def compare(params: dict[str, Any]) -> tuple[list[dict[str, Any]], list[str], list[int]]:
    """Return each domain's name and nccl_topology, the reasons to run ``converge``, and the CPUs that are pinned.

    Without a line, ``converge`` would neither change nor report anything. ``params`` are those of the module. Raises
    DomainError, TopologyError.
    """
    result = _converge(params, check_mode=True, paths_may_come=False)
    lines = [f"{row['name']}: {', '.join(row['actions'])}" for row in result["domains"] if row["changed"]]
    lines += [f"{row['name']}: a restart is required" for row in result["domains"] if row["restart_required"]]
    topologies = [{"name": row["name"], "nccl_topology": row.get("nccl_topology")} for row in result["domains"]]
    return topologies, lines + [str(Finding(**item)) for item in result["findings"]], result["pinned_cpus"]


def converge(params: dict[str, Any], check_mode: bool) -> dict[str, Any]:
    """Bring the domains of the module's ``params`` into their state. Raises DomainError, TopologyError."""
    return _converge(params, check_mode, paths_may_come=check_mode)


def _converge(params: dict[str, Any], check_mode: bool, paths_may_come: bool) -> dict[str, Any]:
    state = params["state"]
    try:
        values.integer(params["shutdown_timeout_s"], 0, SHUTDOWN_MAX_S, "seconds")
    except values.InvalidValueError as error:
        raise DomainError(f"shutdown_timeout_s {error.cause}", error.remedy) from error
    specs = parse_specs(whole_host.requests(params))
    module_ids = parse_module_ids(params["gpu_module_ids"])
    partitions = parse_partitions(params["gpu_partitions"])
    client = Client(params["uri"])
    try:
        hypervisor = client.observe(programs.observed_paths(specs))
        hypervisor.files = disk_files.observe(disk_use.paths(specs, hypervisor))
        findings: list[Finding] = []
        plans: dict[str, DomainPlan] = {}
        returned: dict[str, dict[str, Any]] = {}
        if state != "absent":
            host = _host(params)
            findings += _reserve(host, hypervisor)
            specs = parse_specs(whole_host.requests(params, host, early=paths_may_come))
            plans = {
                plan.name: plan for plan in _planned(host, specs, hypervisor, module_ids, partitions, paths_may_come)
            }
            returned = {name: returned_of(plan, host) for name, plan in plans.items()}
        decisions = {
            spec.name: decide(
                spec.name,
                state,
                hypervisor.domains.get(spec.name),
                returned[spec.name]["xml"] if spec.name in returned else None,
                spec.uuid,
                spec.autostart,
                params["allow_restart"],
            )
            for spec in specs
        }
        removed: dict[str, list[str]] = {}
        for spec in specs:
            if state == "absent" and params["remove_disks"]:
                removed[spec.name], kept_files = disk_use.removable(spec, specs, hypervisor)
                findings += kept_files
            actions = disk_actions(spec, state, set(hypervisor.missing_paths), removed.get(spec.name, []))
            decisions[spec.name].actions += actions
        if plans:
            starting = {name for name, decision in decisions.items() if "start" in decision.actions}
            losing = [
                item for name in sorted(starting) for item in plans[name].chosen.all() if item.driver != "vfio-pci"
            ]
            reserve(host, hypervisor, mapped_bars(Files(), losing) if losing else [])
            stopping = {name for name, decision in decisions.items() if "stop" in decision.actions}
            shared = any(plan.chosen.shared for plan in plans.values())
            manager = fabric_manager.read() if shared else None
            findings += checks.check(
                list(plans.values()), host, hypervisor, starting, stopping, paths_may_come, manager
            )
        findings += [item for spec in specs for item in _unknown(spec.name, decisions[spec.name])]
        if not check_mode:
            _apply(client, specs, decisions, returned, removed, params["shutdown_timeout_s"])
    finally:
        client.close()
    rows = [{**_row(spec, decisions[spec.name], hypervisor), **returned.get(spec.name, {})} for spec in specs]
    for row in rows:
        row["boot_stall_s"] = stall_s(plans[row["name"]], hypervisor) if row["name"] in plans else 0
    return {
        "changed": any(row["changed"] for row in rows),
        "restart_required": any(row["restart_required"] for row in rows),
        "findings": [item.to_dict() for item in findings],
        "domains": rows,
        "pinned_cpus": _pinned_cpus(plans, {spec.name for spec in specs}, hypervisor),
        "diff": [
            _diff(spec, decisions[spec.name], returned.get(spec.name, {}).get("xml", ""), hypervisor)
            for spec in specs
            if decisions[spec.name].changed
        ],
    }


def _reserve(host: Host, hypervisor: Hypervisor) -> list[Finding]:
    """Mark the devices of ``host`` that something on this machine has; return a finding if that is not known."""
    opened, unread = open_files(Files(), host.functions)
    reserve(host, hypervisor, opened)
    if not unread:
        return []
    return [
        Finding(
            "",
            f"the open files of {unread} processes could not be read",
            "a device that one of them uses, such as a guest outside libvirt, is not seen",
            "run as root (become: true)",
            WARN,
        )
    ]


def _pinned_cpus(plans: dict[str, DomainPlan], requested: set[str], hypervisor: Hypervisor) -> list[int]:
    """Return the host's CPUs that are pinned to vCPUs, by ``plans`` and by domains that are not ``requested``."""
    unrequested = (observed for name, observed in hypervisor.domains.items() if name not in requested)
    pinned = {cpu for observed in unrequested for cpu in holdings(observed.inactive_xml).cpus}
    return sorted(pinned.union(*(cell.cpus for plan in plans.values() for cell in plan.processors.cells)))


def _planned(
    host: Host,
    specs: list[DomainSpec],
    hypervisor: Hypervisor,
    module_ids: dict[str, int],
    partitions: dict[int, tuple[int, ...]],
    paths_may_come: bool,
) -> list[DomainPlan]:
    """Return the plans. If planning fails, raise RefusedError, including the findings that need no plan."""
    try:
        return plan_domains(host, specs, hypervisor, module_ids, partitions)
    except DomainError as error:
        raise RefusedError([unplannable(error), *checks.of_requests(specs, hypervisor, paths_may_come)]) from error


def _unknown(name: str, decision: DomainDecision) -> Iterator[Finding]:
    paths = dict.fromkeys(item.path for item in [*decision.differences, *decision.live_differences] if item.unknown)
    if paths:
        yield Finding(
            name,
            f"its definition has {excerpt(list(paths))}, which was not requested",
            "it is not known whether this version of libvirt adds it by itself, so it is left unchanged",
            "remove it with virsh edit if it was added manually, otherwise report it with libvirt's version",
            WARN,
        )


def info(params: dict[str, Any]) -> dict[str, Any]:
    """Return the domains of the module's ``params`` as they are, with plan and drift.

    Raises DomainError, TopologyError.
    """
    specs = parse_specs(whole_host.requests(params))
    module_ids = parse_module_ids(params["gpu_module_ids"])
    partitions = parse_partitions(params["gpu_partitions"])
    client = Client(params["uri"])
    try:
        hypervisor = client.observe([])
        host = _host(params)
        _reserve(host, hypervisor)
        plans: dict[str, DomainPlan] = {}
        unplanned = None
        try:
            if specs:
                specs = parse_specs(whole_host.requests(params, host, early=True))
                plans = {plan.name: plan for plan in plan_domains(host, specs, hypervisor, module_ids, partitions)}
        except DomainError as error:
            # Existing domains can still be reported, and usually show the reason.
            if not any(spec.name in hypervisor.domains for spec in specs):
                raise
            unplanned = str(error)
        names = [spec.name for spec in specs]
        names += [
            name for name in (params["names"] or ([] if specs else sorted(hypervisor.domains))) if name not in names
        ]
        requested = {spec.name for spec in specs}
        pinned = _pinned_cpus(plans, requested if plans else set(), hypervisor)
        guests = unpinned_guests(hypervisor.domains, set(pinned))
        return {
            "domains": [
                _info(
                    name,
                    hypervisor.domains.get(name),
                    plans.get(name),
                    host,
                    unplanned if name in requested else None,
                    client,
                )
                for name in names
            ],
            "pinned_cpus": pinned,
            "unpinned_guests": {name: format_ranges(cpus) for name, cpus in guests.items()},
        }
    finally:
        client.close()


def _host(params: dict[str, Any]) -> Host:
    host = read_host() if params["topology"] is None else read_saved(params["topology"])
    recognise(host, params["accelerators"])
    return host


def _apply(
    client: Client,
    specs: list[DomainSpec],
    decisions: dict[str, DomainDecision],
    returned: dict[str, dict[str, Any]],
    removed: dict[str, list[str]],
    timeout_s: int,
) -> None:
    for phase in PHASES:
        for spec in specs:
            if phase not in decisions[spec.name].actions:
                continue
            if phase == "make_disks":
                overlay_disks.make(spec)
            elif phase == "remove_disks":
                overlay_disks.remove(spec.name, removed[spec.name])
            elif phase == "stop":
                client.stop(spec.name, timeout_s)
            elif phase == "undefine":
                client.undefine(spec.name)
            elif phase == "define":
                client.define(returned[spec.name]["xml"])
            elif phase == "start":
                client.start(spec.name)
            elif phase == "resume":
                client.resume(spec.name)
            else:
                client.set_autostart(spec.name, phase == "autostart")


def _row(spec: DomainSpec, decision: DomainDecision, hypervisor: Hypervisor) -> dict[str, Any]:
    domain = hypervisor.domains.get(spec.name)
    state = domain.state if domain else "absent"
    for action in decision.actions:
        state = {
            "define": "shutoff" if state == "absent" else state,
            "stop": "shutoff",
            "start": "running",
            "resume": "running",
            "undefine": "absent",
        }.get(action, state)
    return {
        "name": spec.name,
        "state_before": domain.state if domain else "absent",
        "state": state,
        "changed": decision.changed,
        "actions": [phase for phase in PHASES if phase in decision.actions],
        "differences": [item.to_dict() for item in decision.differences],
        "live_differences": [item.to_dict() for item in decision.live_differences],
        "restart_required": decision.restart_required,
    }


def _diff(spec: DomainSpec, decision: DomainDecision, wanted_xml: str, hypervisor: Hypervisor) -> dict[str, str]:
    domain = hypervisor.domains.get(spec.name)
    texts = {"before": "", "after": ""}
    if domain is None:
        texts["after"] = wanted_xml
    elif "undefine" in decision.actions:
        texts["before"] = domain.inactive_xml
    else:
        texts = side_by_side(decision.differences)
    steps = [action for action in decision.actions if action != "define"]
    return {
        "before_header": f"domain {spec.name} ({domain.state if domain else 'absent'})",
        "after_header": f"domain {spec.name}" + (f" ({', '.join(steps)})" if steps else ""),
        **texts,
    }


def _info(
    name: str, have: ObservedDomain | None, plan: DomainPlan | None, host: Host, unplanned: str | None, client: Client
) -> dict[str, Any]:
    row: dict[str, Any] = {
        "name": name,
        "exists": have is not None,
        "state": have.state if have else "absent",
        "autostart": have.autostart if have else False,
        "uuid": have.uuid if have else None,
        "inactive_xml": have.inactive_xml if have else None,
        "live_xml": have.live_xml if have else None,
        "process": qemu_process.read(name) if have and have.running else None,
        "addresses": client.addresses(name) if have and have.running else [],
    }
    wanted: Wanted | None = None
    if plan is not None:
        row.update(returned_of(plan, host))
        row["fabric_manager"] = fabric_manager.read().to_dict() if plan.chosen.shared else None
        wanted = Wanted.of(plan, row["xml"])
    row["drift"] = drifted(have, host, wanted, unplanned)
    if wanted is not None:
        row["differences"] = [item.to_dict() for item in differences(wanted.xml, have.inactive_xml)] if have else []
        row["live_differences"] = (
            [item.to_dict() for item in running_differences(wanted.xml, have.live_xml)]
            if have and have.live_xml
            else []
        )
    return row


def drifted(
    have: ObservedDomain | None, host: Host, wanted: Wanted | None, unplanned: str | None
) -> list[dict[str, Any]]:
    """Return the drift for gpu_domain_info; ``unplanned`` is the reason why a requested domain has no plan."""
    items = [no_plan(unplanned)] if unplanned else []
    if have is not None:
        items += drift(host, have.inactive_xml, have.live_xml, wanted)
    return [item.to_dict() for item in items]
