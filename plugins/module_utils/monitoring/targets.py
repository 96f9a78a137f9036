# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The targets of Prometheus, for its file_sd_configs: one file a job, one line a target. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping

from ansible_collections.sailloft.fleet.plugins.module_utils.common.texts import excerpt
from ansible_collections.sailloft.fleet.plugins.module_utils.monitoring.errors import MonitoringError
from ansible_collections.sailloft.fleet.plugins.module_utils.monitoring.model import MonitoredHost, ScrapeJob

# The label "role" of the hosts of a group; of a host in several, the first.
ROLES = {
    "gpu_guests": "guest",
    "gpu_hosts": "hypervisor",
    "boot_servers": "boot_server",
    "roce_switches": "switch",
    "ib_switches": "switch",
    "monitoring_servers": "monitoring",
    "gpu_nodes": "node",
    "nodes": "node",
}
SWITCHES = tuple(group for group, role in ROLES.items() if role == "switch")
SERVERS = tuple(group for group in ROLES if group not in SWITCHES)
MONITORING = ("monitoring_servers",)
# The intervals of node exporter and dcgm-exporter are those of arXiv 2407.05467, table 3.
JOBS = {
    "node": ScrapeJob(SERVERS, 9100),
    "dcgm": ScrapeJob(("gpu_guests", "gpu_nodes"), 9400, interval_s=5),
    "ssh": ScrapeJob(tuple(ROLES), 22, module="ssh_banner"),
    "bmc": ScrapeJob(SERVERS, 443, network="bmc", module="tcp_connect"),
    "boot": ScrapeJob(("boot_servers",), 80, module="tcp_connect"),
    "prometheus": ScrapeJob(MONITORING, 9090),
    "alertmanager": ScrapeJob(MONITORING, 9093),
    "blackbox": ScrapeJob(MONITORING, 9115),
}
# Labels that Prometheus or a target sets itself, and ours: no kind of block may have such a name.
RESERVED = (
    *("alertname", "feed", "group", "host", "instance", "job", "level", "limits", "owner", "rack", "rail", "role"),
    *("severity", "spare", "unit", "uplinks"),
)


def target_files(
    hosts: Iterable[MonitoredHost], jobs: Mapping[str, ScrapeJob], limit_groups: Iterable[str] = ()
) -> dict[str, str]:
    """Return the text of each job's file by job, of those that have targets.

    ``limit_groups``: the groups with limits of their own. Raises MonitoringError for two hosts with one address.
    """
    hosts = sorted(hosts, key=lambda host: host.name)
    labels = {host.name: _labels(host, limit_groups) for host in hosts}
    for name, rail in _rails(hosts).items():
        if name in labels:
            labels[name]["rail"] = str(rail)
    for name, uplinks in _uplinks(hosts).items():
        if name in labels:
            labels[name]["uplinks"] = uplinks
    files = {}
    for name, job in jobs.items():
        by_target: dict[str, str] = {}
        for host, target in _targets(hosts, name, job):
            first = by_target.setdefault(target, host.name)
            if first != host.name:
                raise MonitoringError(
                    f"{first} and {host.name} have the same address {target}",
                    "correct the address of one of them in the inventory",
                    subject=f"job {name}",
                )
        lines = [json.dumps({"targets": [target], "labels": labels[host]}) for target, host in by_target.items()]
        if lines:
            files[name] = "[\n" + ",\n".join(lines) + "\n]\n"
    return files


def unmonitored(hosts: Iterable[MonitoredHost], jobs: Mapping[str, ScrapeJob]) -> list[str]:
    """Return the lines that name the hosts without a target: of a job for lack of an address, or of all jobs."""
    hosts = sorted(hosts, key=lambda host: host.name)
    lines = []
    in_jobs = set()
    for name, job in jobs.items():
        wanted = [host.name for host in hosts if not set(job.groups).isdisjoint(host.groups)]
        reached = {host.name for host, _target in _targets(hosts, name, job)}
        in_jobs |= reached
        lacking = [host for host in wanted if host not in reached]
        if lacking:
            lines.append(f"{name}: no address in the network {job.network}: {excerpt(lacking)}")
    without = [host.name for host in hosts if host.name not in in_jobs]
    if without:
        lines.append(f"in no group of a job: {excerpt(without)}")
    return lines


def _targets(hosts: Iterable[MonitoredHost], name: str, job: ScrapeJob) -> Iterator[tuple[MonitoredHost, str]]:
    groups = set(job.groups)
    for host in hosts:
        listens_on = host.address if job.module else host.listens_on or host.address
        address = host.addresses.get(job.network, "") if job.network else listens_on
        if address and not groups.isdisjoint(host.groups):
            port = host.ssh_port if name == "ssh" and host.ssh_port else job.port
            yield host, host_port(address, port)


def host_port(address: str, port: int) -> str:
    """Return HOST:PORT of an address, which may be one of IPv6."""
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"


def _labels(host: MonitoredHost, limit_groups: Iterable[str]) -> dict[str, str]:
    for kind in host.blocks:
        if kind in RESERVED and kind != "rack":
            raise MonitoringError(
                f"a kind of block has the name {kind!r}, which is a label of its own", "rename it", subject="blueprint"
            )
    limits = [group for group in limit_groups if group in host.groups]
    labels = {
        "instance": host.name,
        "host": host.hypervisor or host.name,
        "role": next((role for group, role in ROLES.items() if group in host.groups), ""),
        "rack": host.rack,
        "unit": "" if host.unit is None else str(host.unit),
        **{kind: str(number) for kind, number in host.blocks.items() if kind != "rack"},
        "feed": host.feed,
        "spare": "true" if host.spare else "",
        "limits": f",{','.join(limits)}," if limits else "",
    }
    return {name: value for name, value in labels.items() if value}


def _rails(hosts: Iterable[MonitoredHost]) -> dict[str, int]:
    """Return the rail of each switch all of whose hosts are connected with the same one."""
    rails: dict[str, set[int]] = {}
    for host in hosts:
        for switch, rail in host.peers:
            rails.setdefault(switch, set()).add(rail)
    return {switch: numbers.pop() for switch, numbers in rails.items() if len(numbers) == 1}


def _uplinks(hosts: Iterable[MonitoredHost]) -> dict[str, str]:
    """Return a name of the leaves of each host, and of each leaf all of whose hosts have the same leaves.

    It is that of the first of these leaves: a label with eight names would be on each series.
    """
    leaves_of = {host.name: tuple(sorted({switch for switch, _rail in host.peers})) for host in hosts if host.peers}
    sets: dict[str, set[tuple[str, ...]]] = {}
    for leaves in leaves_of.values():
        for leaf in leaves:
            sets.setdefault(leaf, set()).add(leaves)
    groups = {leaves for leaves in leaves_of.values() if all(len(sets[leaf]) == 1 for leaf in leaves)}
    names = {host: leaves[0] for host, leaves in leaves_of.items() if leaves in groups}
    return {**names, **{leaf: leaves[0] for leaves in groups for leaf in leaves}}
