# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The checks for everything that is known to fail later, before anything is changed. Pure.

The planner itself refuses an impossible plan (bus numbers, MMIO window, address bits, devices, CPUs). This module finds
everything that prevents a plan on this host now, not only the first problem.
"""

from __future__ import annotations

from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.architecture import SUPPORTED, architecture
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.model import Host
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.devices.eligibility import (
    HostDevices,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.observed.fabric_manager import FabricManager
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.observed.hypervisor import Hypervisor
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.observed.in_use import holdings_of
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.plan.plan import DomainPlan
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.preflight import (
    devices,
    disk_use,
    memory,
    platform,
    programs,
    shared_nvswitches,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.preflight.findings import (
    REFUSE,
    Finding,
    RefusedError,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.request.spec import DomainSpec


def check(
    plans: list[DomainPlan],
    host: Host,
    hypervisor: Hypervisor,
    starting: set[str],
    stopping: set[str],
    paths_may_come: bool,
    manager: FabricManager | None = None,
) -> list[Finding]:
    """Find what prevents defining ``plans`` or starting ``starting``, and what they lose without an error.

    ``stopping`` are the domains that will be stopped before any is started. If ``paths_may_come`` is True,
    missing files are accepted: in check mode, an earlier task only reports that it would make them. ``manager`` is the
    host's Fabric Manager, if it was asked.

    Returns the warnings. Raises RefusedError, with all findings, if one of them refuses.
    """
    host_devices = HostDevices(host)
    listed = {plan.name for plan in plans}
    for observed in hypervisor.domains.values():
        if observed.name not in listed:
            host_devices.holder.update(dict.fromkeys(holdings_of(observed, listed=False).devices, observed.name))
    for plan in plans:
        host_devices.holder.update({function.address: plan.name for function in plan.chosen.all()})

    findings: list[Finding] = []
    if architecture(host.cpu) is None:
        findings.append(
            Finding(
                "",
                "the topology does not contain the processor's architecture",
                f"GPU virtual machines are for {SUPPORTED} only",
                "read the topology on the host itself with host_topology_info",
            )
        )
    for plan in plans:
        findings += programs.versions(plan, hypervisor)
        findings += programs.atomic_operations(plan, hypervisor)
        findings += programs.machine(plan, hypervisor)
        findings += programs.firmware(plan, hypervisor)
        findings += devices.in_use(plan, host_devices)
        findings += devices.host_drivers(plan, host_devices)
        findings += devices.isolation(plan, host_devices)
        findings += devices.losses(plan, host_devices)
        findings += shared_nvswitches.findings(plan, host_devices, manager, plan.name in starting)
        findings += programs.shared_cpus(plan, hypervisor, stopping)
        findings += platform.of_host(plan, host, hypervisor)
    findings += memory.of_host(plans, host)
    specs = [plan.spec for plan in plans]
    findings += disk_use.conflicts_on_host(specs, hypervisor, stopping)
    findings += of_requests(specs, hypervisor, paths_may_come)
    to_start = [plan for plan in plans if plan.name in starting]
    findings += programs.still_running(to_start, hypervisor, stopping)
    for plan in to_start:
        findings += memory.hugetlbfs(plan.spec, hypervisor)
    # A domain that only restarts releases its memory first.
    findings += memory.free([plan for plan in to_start if plan.name not in stopping], host)
    if any(item.severity == REFUSE for item in findings):
        raise RefusedError(findings)
    return findings


def without_libvirt(plans: list[DomainPlan], host: Host) -> list[Finding]:
    """Run the part of ``check`` that needs no libvirt: memory that the host lacks, losses without an error, its facts.

    Returns the warnings. Raises RefusedError, with all findings, if one of them refuses.
    """
    host_devices = HostDevices(host)
    findings = [item for plan in plans for item in devices.losses(plan, host_devices)]
    for plan in plans:
        findings += platform.of_facts(plan, host)
    findings += memory.of_host(plans, host)
    if any(item.severity == REFUSE for item in findings):
        raise RefusedError(findings)
    return findings


def of_requests(specs: list[DomainSpec], hypervisor: Hypervisor, paths_may_come: bool) -> list[Finding]:
    """Return the findings on requests that need no plan: networks and files."""
    findings: list[Finding] = []
    for spec in specs:
        findings += programs.networks(spec, hypervisor)
        findings += programs.boot_source(spec)
        if not paths_may_come:
            findings += programs.paths(spec, hypervisor)
    return findings
