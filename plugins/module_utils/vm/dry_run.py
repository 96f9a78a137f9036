# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The work of the module gpu_plan: read a host, plan, boot the plans in a trial, write them."""

from __future__ import annotations

import os
from typing import Any

from ansible_collections.sailloft.fleet.plugins.module_utils.common import values
from ansible_collections.sailloft.fleet.plugins.module_utils.proof import files
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.accelerators import recognise
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.model import Host
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.read.recordings import read_recording
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.read.saved import read_saved
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.read.sysfs import read_host
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.common.errors import DomainError
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.plan import whole_host
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.plan.planner import plan_domains, require_x86
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.preflight import checks, disk_use
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.preflight.findings import RefusedError
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.render.outputs import plan_files, returned_of
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.render.terminal import show
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.request.parse import (
    parse_module_ids,
    parse_partitions,
    parse_specs,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.trial import boot


def planned(params: dict[str, Any], check_mode: bool) -> dict[str, Any]:
    """Return the module's result for its ``params``. Files are written last, when nothing else can fail.

    Raises DomainError, TopologyError, and ProofError where a file cannot be read or written.
    """
    _check_names(params)
    host = _host(params)
    require_x86(host)
    specs = parse_specs(whole_host.requests(params, host, early=True) or [whole_host.whole_host(host)])
    conflicts = list(disk_use.conflicts((use for spec in specs for use in disk_use.uses(spec)), [], str))
    if conflicts:
        raise RefusedError(conflicts)
    plans = plan_domains(
        host,
        specs,
        gpu_module_ids=parse_module_ids(params["gpu_module_ids"]),
        gpu_partitions=parse_partitions(params["gpu_partitions"]),
    )
    findings = checks.without_libvirt(plans, host)
    rows = [{"name": plan.name, **returned_of(plan, host)} for plan in plans]
    tree = show(params["host_name"], plans, host)
    if params.get("whole_host") and not params["domains"]:
        lines = whole_host.host_settings(host, params["whole_host"])
        tree += ["settings of the host that follow (playbooks/gpu_hosts.yml):", *(f"  {line}" for line in lines)]
    wanted: dict[str, str] = {}
    for plan, row in zip(plans, rows):
        texts = plan_files(plan, host, row) if params["path"] else {}
        wanted.update({os.path.join(params["path"], name): text for name, text in sorted(texts.items())})
    old_texts = {path: files.read(path) for path in wanted}
    differing = [path for path, text in wanted.items() if old_texts[path] != text]
    if params["boot_trial"]:
        for plan, row in zip(plans, rows):
            row["boot_trial"] = boot.prove(plan)
            tree.append(f"booted {plan.name} with {row['boot_trial']['firmware']}: enumerated as planned")
    if not check_mode:
        for path in differing:
            files.write(path, wanted[path])
    return {
        "changed": bool(differing),
        "findings": [item.to_dict() for item in findings],
        "notes": host.notes,
        "tree": tree,
        "domains": rows,
        "files": list(wanted),
        "diff": [
            {"before_header": path, "after_header": path, "before": old_texts[path] or "", "after": wanted[path]}
            for path in differing
            if path.endswith(".xml")
        ],
    }


def _check_names(params: dict[str, Any]) -> None:
    """Refuse an invalid path or host name; the playbook names the directory of the plan after the host."""
    name = params["host_name"]
    try:
        values.text(name, 255)
        if params["path"]:
            values.text(params["path"], values.PATH_BYTES_MAX)
    except values.InvalidValueError as error:
        raise DomainError(f"host_name or path: {error.cause}", error.remedy) from error
    if name in (".", "..") or "/" in name:
        raise DomainError(
            f"host_name {name!r} is not a valid directory name", "use another name, or rename the recording"
        )


def _host(params: dict[str, Any]) -> Host:
    if params["topology"]:
        host = read_saved(params["topology"])
    else:
        host = read_recording(params["recording"]) if params["recording"] else read_host()
    recognise(host, params["accelerators"])
    return host
