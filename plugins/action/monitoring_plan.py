# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""Plan the monitoring of a site from its inventory, on the controller."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

import yaml

from ansible_collections.sailloft.fleet.plugins.module_utils.monitoring.model import MonitoredHost
from ansible_collections.sailloft.fleet.plugins.module_utils.monitoring.plan import MonitoringPlan, plan
from ansible_collections.sailloft.fleet.plugins.plugin_utils.controller_action import ControllerAction
from ansible_collections.sailloft.fleet.plugins.plugin_utils.named_variables import VariablesOfHost
from ansible_collections.sailloft.fleet.plugins.plugin_utils.planned_files import write_plan
from ansible_collections.sailloft.fleet.plugins.plugin_utils.role_values import is_literal

SETTINGS: dict[str, Any] = {
    "site": {"type": "str"},
    "jobs": {"type": "dict"},
    "limits": {"type": "dict"},
    "disabled_alerts": {"type": "dict"},
    "receivers": {"type": "dict"},
    "routes": {"type": "list", "elements": "dict"},
    "runbooks": {"type": "str"},
    "blackbox": {"type": "str"},
    "alertmanagers": {"type": "list", "elements": "str"},
    "timing": {"type": "dict"},
    "client": {"type": "dict"},
    "replica": {"type": "str"},
    "rules": {"type": "dict"},
    "retention": {"type": "dict"},
    "thanos": {"type": "dict"},
}


HEADER = "# Written by sailloft.fleet.monitoring_plan: change the inventory instead.\n"


class ActionModule(ControllerAction):
    """Plan and write; no host is reached."""

    OPTIONS: ClassVar[dict[str, Any]] = {**SETTINGS, "path": {"type": "path"}}

    def act(self, arguments: dict[str, Any], variables: dict[str, Any]) -> dict[str, Any]:
        """Return the result of the module."""
        groups: Mapping[str, list[str]] = variables.get("groups", {})
        path = arguments["path"]
        hosts = monitored_hosts(groups, variables.get("hostvars", {}))
        planned = plan({name: arguments[name] for name in SETTINGS}, hosts, groups)
        texts = planned_texts(planned)
        return {
            "summary": planned.summary,
            "unmonitored": planned.unmonitored,
            "files": sorted(texts),
            "stale": _stale(path, texts) if path else [],
            **write_plan(path, texts, self._task.check_mode),
        }


def planned_texts(planned: MonitoringPlan) -> dict[str, str]:
    """Return the texts of all files by name."""
    return {**planned.texts, **{name: to_yaml(data) for name, data in planned.documents.items()}}


def to_yaml(data: Any) -> str:
    """Return the text of a file, without anchors and in the order of the data."""
    return HEADER + yaml.dump(data, Dumper=_Dumper, sort_keys=False, width=1000, allow_unicode=True)


class _Dumper(yaml.SafeDumper):
    def ignore_aliases(self, data: Any) -> bool:
        """Write equal parts in full."""
        return True


# Values of the inventory are of Ansible's own classes (ansible-core 2.19), which are written as what they extend. The
# first class that fits counts, and a bool is an int.
for _kind in (bool, str, int, float, list, dict):
    _Dumper.add_multi_representer(_kind, yaml.SafeDumper.yaml_representers[_kind])


def monitored_hosts(groups: Mapping[str, Iterable[str]], hostvars: Any) -> list[MonitoredHost]:
    """Return the hosts of the inventory with what labels and addresses need.

    Reading the variables of a host costs more than all the rest, so templates alone are evaluated, at any depth, and
    all of a host with one further reading.
    """
    groups_by_host: dict[str, list[str]] = {}
    for group, names in groups.items():
        for name in names:
            groups_by_host.setdefault(name, []).append(group)
    hosts = []
    for name, own_groups in groups_by_host.items():
        if name == "localhost":
            continue
        raw = hostvars.raw_get(name) if hasattr(hostvars, "raw_get") else hostvars.get(name, {})
        variables = {key: raw[key] for key in VARIABLES if key in raw}
        templates = [key for key, value in variables.items() if not is_literal(value)]
        evaluated = VariablesOfHost(name, hostvars[name] if templates else {})
        variables.update({key: evaluated[key] for key in templates})
        hosts.append(_host(name, own_groups, variables))
    return hosts


VARIABLES = (
    *("ansible_host", "ansible_port", "gpu_guest_host", "monitoring_address", "site_addresses", "site_blocks"),
    *("site_feed", "site_host", "site_ports", "site_rack", "site_spare", "site_unit"),
)


def _host(name: str, groups: list[str], variables: Mapping[str, Any]) -> MonitoredHost:
    ports = variables.get("site_ports") or {}
    return MonitoredHost(
        name,
        tuple(groups),
        address=str(variables.get("ansible_host") or name),
        addresses=variables.get("site_addresses") or {},
        listens_on=str(variables.get("monitoring_address") or ""),
        ssh_port=int(variables.get("ansible_port") or 0) or None,
        rack=str(variables.get("site_rack") or ""),
        unit=variables.get("site_unit"),
        blocks=variables.get("site_blocks") or {},
        feed=str(variables.get("site_feed") or ""),
        hypervisor=str(variables.get("gpu_guest_host") or variables.get("site_host") or ""),
        spare=bool(variables.get("site_spare")),
        peers=tuple((port["peer"].split(" ")[0], port["rail"]) for port in ports.values() if "rail" in port),
    )


def _stale(folder: str, texts: Mapping[str, str]) -> list[str]:
    """Return the files of an earlier plan that this one does not have."""
    names = []
    for part in ("targets", "dashboards"):
        names += [os.path.relpath(path, folder) for path in sorted(glob.glob(os.path.join(folder, part, "*.json")))]
    paths = [
        os.path.join(folder, name) for name in (*names, "alertmanager.yml", "thanos/objstore.yml") if name not in texts
    ]
    return [path for path in paths if os.path.exists(path)]
