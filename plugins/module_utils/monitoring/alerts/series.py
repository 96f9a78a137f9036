# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Series of the alerts' tests, and alerts of what sailloft-health finds. Pure."""

from __future__ import annotations

from ansible_collections.sailloft.fleet.plugins.module_utils.monitoring.model import GONE, WARNING, Alert, Case


def at(name: str = "n1", role: str = "node", rack: str = "r1", host: str = "", feed: str = "") -> str:
    """Return the labels of a target as they stand in a series."""
    labels = f'instance="{name}",host="{host or name}",rack="{rack}",role="{role}"'
    return f'{labels},feed="{feed}"' if feed else labels


def up(job: str, of: str) -> str:
    """Return the series that says whether a target answers."""
    return f'{"probe_success" if job in ("ssh", "bmc", "boot") else "up"}{{job="{job}",{of}}}'


def down(*hosts: str) -> dict[str, tuple[float, float]]:
    """Return the series of hosts whose node exporter and SSH stop to answer."""
    return {up(job, host): (1, 0) for host in hosts for job in ("node", "ssh")}


def fault(check: str, layer: str = "hardware", action: str = "drain") -> Case:
    """Return the case of a fault that sailloft-health finds."""
    labels = f'check="{check}",kind="gpu",place="0000:4b:00.0",layer="{layer}",action="{action}"'
    return Case({f'sailloft_health_fault{{{labels},job="node",{at()}}}': (GONE, 1)})


def fault_alert(
    name: str,
    checks: str,
    level: str,
    owner: str,
    text: tuple[str, str, str],
    runbook: str,
    severity: str = WARNING,
    *,
    also: str = "",
    cases: tuple[Case, ...] = (),
    but: str = "",
    hides: bool = False,
) -> Alert:
    """Return the alert of checks, except ``but``, whose first alternative its test uses.

    ``text``: summary, cause, first step.
    ``also``: an expression of dcgm-exporter's metrics that holds sooner, or where sailloft-health does not run.
    """
    exclusion = f',check!="{but}"' if but else ""
    expr = f'sailloft_health_fault{{check=~"{checks}"{exclusion},action!="note",layer!="application"}}'
    summary, cause, step = text
    return Alert(
        name,
        f"{expr} or on (instance) ({also})" if also else expr,
        minutes=1,
        severity=severity,
        owner=owner,
        level=level,
        summary=f"{{{{ $labels.instance }}}}: {summary}",
        cause=cause,
        step=step,
        runbook=runbook,
        place=("instance",),
        cases=(fault(checks.partition("|")[0]), *cases),
        hides=hides,
        checks=checks,
    )
