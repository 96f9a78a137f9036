# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The work of vsphere_gpu_vm and vsphere_gpu_vm_info: read a cluster once, plan, compare, apply, read back."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from ansible_collections.sailloft.fleet.plugins.module_utils.vm.common.errors import DomainError
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.plan.placement import Placement, place
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.preflight.findings import (
    REFUSE,
    WARN,
    Finding,
    RefusedError,
    unplannable,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.request.parse import parse_module_ids
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.request.spec import DomainSpec
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.vsphere import (
    preflight,
    read_back,
    request,
    results,
    versions,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.vsphere.config_spec import Builder
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.vsphere.hosts.choose import choose
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.vsphere.results import MachineRow
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.vsphere.session import Login, Session
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.vsphere.site import Esxi, VirtualMachine, VsphereCluster
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.vsphere.wanted import configure, differences

# The limit if the host reports none: vSphere 7 U1 and later (VMware Configuration Maximums).
MAX_VCPUS = 768
POLL_S = 2.0


def converge(params: dict[str, Any], check_mode: bool, progress: Callable[[str], None] | None = None) -> dict[str, Any]:
    """Bring the virtual machines of the module's ``params`` into their state. Raises DomainError, TopologyError."""
    state = params["state"]
    requests = request.parse(params["domains"], sizes=state != "absent")
    module_ids = parse_module_ids(params["gpu_module_ids"])
    with Session(Login.of(params), progress) as session:
        site = VsphereCluster(session, params["cluster"])
        rows = _rows(requests, site, state, params["accelerators"], module_ids)
        findings: list[Finding] = []
        if state != "absent":
            findings += _plan(rows, site, session.api_version, params["accelerators"], module_ids)
        for row in rows:
            decide(row, state, params["allow_restart"])
        if state != "absent":
            findings += _reservations(rows, site)
        if any(item.severity == REFUSE for item in findings):
            raise RefusedError(findings)
        if state != "planned" and not check_mode:
            _apply(rows, site, session, params)
    return {
        "changed": state != "planned" and any(row.actions for row in rows),
        "restart_required": any(row.restart_required for row in rows),
        "findings": [item.to_dict() for item in findings],
        "domains": [results.returned(row) for row in rows],
        "hosts": results.topologies(rows),
        "diff": [results.diff(row) for row in rows if row.actions or row.differences],
    }


def info(params: dict[str, Any]) -> dict[str, Any]:
    """Return the virtual machines of ``params`` as they are; those with a request have plan and differences."""
    requests = request.parse(params["domains"] or [])
    with Session(Login.of(params)) as session:
        site = VsphereCluster(session, params["cluster"])
        module_ids = parse_module_ids(params["gpu_module_ids"])
        rows = _rows(requests, site, "planned", params["accelerators"], module_ids)
        findings = _plan(rows, site, session.api_version, params["accelerators"], module_ids)
        for row in rows:
            decide(row, "present", False)
        requested = {row.name for row in rows}
        names = params["names"] or ([] if rows else sorted(site.machines))
        unrequested = [site.machines[name] for name in names if name in site.machines and name not in requested]
    return {
        "changed": False,
        "hosts": results.topologies(rows),
        "findings": [item.to_dict() for item in findings],
        "domains": [
            *(results.described(row.machine, row, site) for row in rows),
            *(results.described(machine, None, site) for machine in unrequested),
        ],
    }


def _rows(
    requests: list[request.VsphereRequest],
    site: VsphereCluster,
    state: str,
    accelerators: dict[str, bool],
    module_ids: dict[str, int],
) -> list[MachineRow]:
    """Return a row for each request, with the host that it is on, that it names, or that is chosen for it."""
    if state == "absent":
        anywhere = next(iter(site.hosts.values()))
        on = {item.name: site.machines[item.name].host if item.name in site.machines else "" for item in requests}
        hosts = {name: site.hosts.get(host, anywhere) for name, host in on.items()}
    else:
        hosts = choose(
            requests, site, lambda host, specs: place_on(host, specs, site, accelerators, module_ids), accelerators
        )
    return [_row(item, site, state, hosts[item.name]) for item in requests]


def _row(item: request.VsphereRequest, site: VsphereCluster, state: str, host: Esxi) -> MachineRow:
    machine = site.machines.get(item.name)
    requested_host = item.vsphere.host
    if machine is not None and state != "absent" and requested_host and requested_host != machine.host:
        raise DomainError(
            f"it is on host {machine.host}, but vsphere.host is {requested_host}",
            "move it with vCenter (powered off), or set vsphere.host to its current host",
            domain=item.name,
        )
    row = MachineRow(item, host, machine=machine)
    if machine is not None:
        row.have, row.ways = read_back.read(machine.config, site.network_names), read_back.ways(machine.config)
    return row


def place_on(
    host: Esxi, specs: list[DomainSpec], site: VsphereCluster, accelerators: dict[str, bool], module_ids: dict[str, int]
) -> list[Placement]:
    """Plan virtual machines on a host together. Raises DomainError where they have no place."""
    model = site.model(host, accelerators)
    current = read_back.holdings({name: machine.config for name, machine in host.machines.items()}, model)
    capability = host.properties.get("capability")
    max_vcpus = (capability.maxSupportedVcpus if capability else None) or MAX_VCPUS

    def limit(_spec: DomainSpec) -> int:
        return max_vcpus

    return place(model, specs, current, limit, module_ids)


def _plan(
    rows: list[MachineRow],
    site: VsphereCluster,
    api: tuple[int, ...],
    accelerators: dict[str, bool],
    module_ids: dict[str, int],
) -> list[Finding]:
    """Plan the virtual machines of each host together; return the findings about each of them."""
    findings: list[Finding] = []
    for host in {row.host.name: row.host for row in rows}.values():
        rows_of_host = [row for row in rows if row.host is host]
        if host.unusable:
            cause = f"host {host.name} {host.unusable}"
            for row in rows_of_host:
                row.unplanned = Finding(row.name, cause, "nothing can be changed on it", "wait or choose another")
                findings.append(row.unplanned)
            continue
        model = site.model(host, accelerators)
        try:
            placements = place_on(host, [row.request.spec for row in rows_of_host], site, accelerators, module_ids)
        except DomainError as error:
            findings.append(unplannable(error))
            for row in rows_of_host:
                row.unplanned = findings[-1]
            continue
        for row, placement in zip(rows_of_host, placements):
            settings = row.request.vsphere
            hardware = (
                row.have["hardware_version"]
                if row.have and not settings.hardware_version
                else settings.hardware_version
            )
            row.model, row.placement = model, placement
            row.wanted = configure(row.request, placement, host.release, host.cpu_mhz, api, hardware)
            findings += versions.missing(row.name, row.wanted, api)
            findings += preflight.of_request(row.request, placement, row.wanted, host.release, model)
    return findings


def decide(row: MachineRow, state: str, allow_restart: bool) -> None:
    """Set the actions of one virtual machine."""
    machine = row.machine
    if state == "absent":
        if machine is not None:
            row.actions = [*(["power_off"] if machine.state != "stopped" else []), "destroy"]
        return
    if row.wanted is None:
        return
    if machine is None or row.have is None:
        row.actions = ["create"] + (["power_on"] if state == "running" else [])
        return
    row.differences = differences(row.wanted, row.have)
    running = machine.state != "stopped"
    stops = state == "stopped" and running
    if row.differences:
        if running and not allow_restart and not stops:
            row.restart_required = True
            return
        row.actions = ["power_off"] if running else []
        paths = {item["path"] for item in row.differences}
        row.actions += ["upgrade"] if "hardware_version" in paths else []
        row.actions += ["reconfigure"] if paths - {"hardware_version"} else []
        if state == "running" or (running and state == "present"):
            row.actions.append("power_on")
    elif stops:
        row.actions = ["power_off"]
    elif state == "running" and machine.state != "running":
        # A suspended virtual machine resumes (PowerOnVM_Task).
        row.actions = ["power_on"]


def _reservations(rows: list[MachineRow], site: VsphereCluster) -> list[Finding]:
    """Return findings on reservations that hosts or datastores cannot meet; on an unchanged host they only warn."""
    findings: list[Finding] = []
    disks_mib: dict[str, int] = {}
    for host in {row.host.name: row.host for row in rows if row.wanted}.values():
        wanted_of_host = {row.name: row.wanted for row in rows if row.host is host and row.wanted}
        other_machines = {name: machine for name, machine in host.machines.items() if name not in wanted_of_host}
        model = site.model(host)
        of_nodes: dict[int, int] = {}
        for holdings in read_back.holdings(
            {name: machine.config for name, machine in other_machines.items()}, model
        ).values():
            for node, memory_mib in holdings.memory_mib.items():
                of_nodes[node] = of_nodes.get(node, 0) + memory_mib
        running = {
            name: read_back.read(machine.config, site.network_names)
            for name, machine in other_machines.items()
            if machine.running
        }
        overcommitted = list(preflight.of_host(host.name, model, host.cpu_mhz, wanted_of_host, running, of_nodes))
        if not any(row.actions for row in rows if row.host is host):
            # These exist already: reservations of others are no reason to fail a run that changes nothing.
            overcommitted = [replace(item, severity=WARN) for item in overcommitted]
        findings += overcommitted
    for row in rows:
        if "create" in row.actions and row.wanted:
            store = site.datastore(row.request.vsphere.datastore, row.name)
            disks_mib[store] = disks_mib.get(store, 0) + sum(row.wanted["disks_mib"])
    return findings + list(preflight.of_datastores(disks_mib, site.free_bytes))


def _apply(rows: list[MachineRow], site: VsphereCluster, session: Session, params: dict[str, Any]) -> None:
    limit_s = params["task_timeout_s"]
    specs = {row.name: _spec(row, site) for row in rows if {"create", "reconfigure"} & set(row.actions)}
    for phase in results.PHASES:
        rows_of_phase = [row for row in rows if phase in row.actions]
        if phase == "power_off":
            shut_down(rows_of_phase, session, params["shutdown_timeout_s"], limit_s)
            continue
        tasks = {}
        for row in rows_of_phase:
            label = f"{row.name}: {phase.replace('_', ' ')}"
            tasks[row.name] = (
                label,
                session.call(label, _request(phase, row, site, session, specs.get(row.name)), row.name),
            )
        references = session.wait(tasks, limit_s)
        if phase == "create":
            for row in rows_of_phase:
                row.machine = VirtualMachine(
                    row.name, references[row.name], None, False, "stopped", row.host.name, False
                )
    verify(rows, site, session)


def _spec(row: MachineRow, site: VsphereCluster) -> Any:
    settings = row.request.vsphere
    builder = Builder(
        row.name,
        site.model(row.host),
        lambda: site.target(row.host),
        site.networks,
        settings.sriov_network,
        row.machine.config if row.machine else None,
    )
    return builder.build(row.wanted or {}, row.have, site.datastore(settings.datastore, row.name))


def _request(phase: str, row: MachineRow, site: VsphereCluster, session: Session, spec: Any) -> Callable[[], Any]:
    """Return the request that starts the task of a phase."""

    def machine() -> Any:
        return session.bound(row.machine.reference) if row.machine else None

    wanted = row.wanted or {}
    return {
        "destroy": lambda: machine().Destroy_Task(),
        "create": lambda: site.folder(row.host).CreateVM_Task(
            spec, site.pool(row.host), session.bound(row.host.reference)
        ),
        "upgrade": lambda: machine().UpgradeVM_Task(wanted["hardware_version"]),
        "reconfigure": lambda: machine().ReconfigVM_Task(spec),
        "power_on": lambda: machine().PowerOnVM_Task(session.bound(row.host.reference)),
    }[phase]


def shut_down(rows: list[MachineRow], session: Session, timeout_s: int, limit_s: int) -> None:
    """Ask the guests with VMware Tools to shut down, and power off those that have not done so in ``timeout_s``."""
    shutting_down = [row for row in rows if row.machine and row.machine.tools and timeout_s]
    for row in shutting_down:
        session.call(f"{row.name}: shut down", _power(row, session, "ShutdownGuest"), row.name)
    end = time.monotonic() + timeout_s
    off: set[str] = set()
    while shutting_down and len(off) < len(shutting_down) and time.monotonic() < end:
        time.sleep(POLL_S)
        machines = session.read({"VirtualMachine": ["name", "runtime.powerState"]})["VirtualMachine"]
        names = {row.name for row in shutting_down}
        off = {item["name"] for _reference, item in machines if str(item["runtime.powerState"]) == "poweredOff"} & names
    tasks = {}
    for row in rows:
        if row.name not in off and row.machine:
            label = f"{row.name}: power off"
            tasks[row.name] = (label, session.call(label, _power(row, session, "PowerOffVM_Task"), row.name))
    session.wait(tasks, limit_s)


def _power(row: MachineRow, session: Session, method: str) -> Callable[[], Any]:
    """Return the request that calls a method of the virtual machine without arguments."""
    return lambda: getattr(session.bound(row.machine.reference), method)() if row.machine else None


def verify(rows: list[MachineRow], site: VsphereCluster, session: Session) -> None:
    """Read back changed virtual machines, and slots of started ones. Raises DomainError for settings that were lost."""
    changed = [row for row in rows if {"create", "reconfigure", "upgrade"} & set(row.actions)]
    started = [row for row in rows if "power_on" in row.actions]
    if not changed and not started:
        return
    machines = session.read({"VirtualMachine": ["name", "config"]})["VirtualMachine"]
    configs = {item["name"]: item["config"] for _reference, item in machines if "config" in item}
    for row in started:
        if row.name in configs:
            row.ways = read_back.ways(configs[row.name])
    unapplied = []
    for row in changed:
        have = read_back.read(configs[row.name], site.network_names) if row.name in configs else None
        remaining = (
            differences(row.wanted or {}, have)
            if have
            else [{"path": "", "wanted": "the virtual machine", "have": None}]
        )
        unapplied += [
            f"{row.name}: {item['path']} is {item['have']!r}, wanted {item['wanted']!r}" for item in remaining
        ]
    if unapplied:
        raise DomainError(
            "vCenter accepted the change but has other values:\n" + "\n".join(unapplied),
            "check the limits of the host and of the virtual hardware; report it with the versions of ESXi and vCenter",
        )
