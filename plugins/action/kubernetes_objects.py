# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""Plan the objects of a Kubernetes cluster, write them, and apply them through kubernetes.core, on the controller."""

from __future__ import annotations

import json
import re
from typing import Any, ClassVar

import yaml
from ansible.errors import AnsibleActionFail

from ansible_collections.sailloft.fleet.plugins.module_utils.common.fold import fold
from ansible_collections.sailloft.fleet.plugins.module_utils.kubernetes.cluster import VARIABLES
from ansible_collections.sailloft.fleet.plugins.module_utils.kubernetes.plan import OWNED, PLAN, KubernetesPlan, plan
from ansible_collections.sailloft.fleet.plugins.plugin_utils.blueprint_file import read_site
from ansible_collections.sailloft.fleet.plugins.plugin_utils.controller_action import ControllerAction
from ansible_collections.sailloft.fleet.plugins.plugin_utils.named_variables import VariablesOfHosts
from ansible_collections.sailloft.fleet.plugins.plugin_utils.planned_files import write_changed
from ansible_collections.sailloft.fleet.plugins.plugin_utils.recordings_folder import RecordingsFolder

SETTINGS: dict[str, Any] = {
    "settings": {"type": "dict", "default": {}},
    "blueprint": {"type": "path"},
    "recordings": {"type": "path"},
    "path": {"type": "path"},
    "kubeconfig": {"type": "path"},
}
MODULES = ("kubernetes.core.k8s", "kubernetes.core.k8s_info")


class ActionModule(ControllerAction):
    """Plan, write, apply; nodes are not reached."""

    OPTIONS: ClassVar[dict[str, Any]] = SETTINGS

    def act(self, arguments: dict[str, Any], variables: dict[str, Any]) -> dict[str, Any]:
        """Return the result of the module."""
        if arguments["kubeconfig"]:
            self._need_collection()
        planned = self._plan(arguments, variables)
        written = write_changed(arguments["path"], _texts(planned), self._task.check_mode) if arguments["path"] else []
        applied: list[dict[str, Any]] = []
        absent: list[str] = []
        removed: list[str] = []
        remaining: list[str] = []
        if arguments["kubeconfig"]:
            applied, absent = self._apply(planned, arguments["kubeconfig"], variables)
            removed, remaining = self._remove(planned, arguments["kubeconfig"], variables)
        return {
            "summary": planned.summary,
            "notes": [*planned.notes, *absent, *remaining],
            "objects": planned.objects,
            "kubelets": planned.kubelets,
            "written": [change["after_header"] for change in written],
            "applied": [change["after_header"] for change in applied],
            "removed": removed,
            "diff": [*written, *applied, *({"prepared": f"- {name}\n"} for name in removed)],
            "changed": bool(written or applied or removed),
        }

    def _plan(self, arguments: dict[str, Any], variables: dict[str, Any]) -> KubernetesPlan:
        hostvars = VariablesOfHosts(variables.get("hostvars", {}))
        groups = variables.get("groups", {})
        names = arguments["settings"].get("groups") or ["gpu_nodes"]
        nodes = {node for group in names for node in groups.get(group, ())} if isinstance(names, list) else set()
        planned = plan(
            arguments["settings"],
            groups,
            RecordingsFolder(arguments["recordings"]),
            {node: {name: hostvars[node][name] for name in VARIABLES if name in hostvars[node]} for node in nodes},
            read_site(arguments["blueprint"]) if arguments["blueprint"] else None,
        )
        return planned._replace(objects=_plain(planned.objects), kubelets=_plain(planned.kubelets))

    def _need_collection(self) -> None:
        for name in MODULES:
            if not self._shared_loader_obj.module_loader.has_plugin(name):
                raise AnsibleActionFail(
                    f"{name} is not installed, and kubeconfig is set; run 'ansible-galaxy collection install "
                    "kubernetes.core', or leave kubeconfig out to write the objects only"
                )

    def _call(self, module: str, arguments: dict[str, Any], variables: dict[str, Any]) -> dict[str, Any]:
        """Return the result of a module of kubernetes.core. Raises AnsibleActionFail for its first error."""
        answer: dict[str, Any] = self._execute_module(module_name=module, module_args=arguments, task_vars=variables)
        if answer.get("failed"):
            raise AnsibleActionFail(f"{module} with {arguments['kubeconfig']}: {answer.get('msg')}")
        return answer

    def _apply(
        self, planned: KubernetesPlan, kubeconfig: str, variables: dict[str, Any]
    ) -> tuple[list[dict[str, Any]], list[str]]:
        """Apply all objects. Return the differences, and a line for each node that the cluster has not.

        Nodes are only labelled; kubelet makes them.
        """
        changes: list[dict[str, Any]] = []
        failures: list[str] = []
        absent: list[str] = []
        nodes = planned.objects.get("labels", [])
        complete = [item for part, items in planned.objects.items() if part != "labels" for item in items]
        for objects, state in ((nodes, {"state": "patched"}), (complete, {"state": "present", "apply": True})):
            if not objects:
                continue
            options = {"kubeconfig": kubeconfig, "resource_definition": objects, "continue_on_error": True, **state}
            answer = self._call(MODULES[0], options, variables)
            results = answer["result"]["results"] if len(objects) > 1 else [answer]
            for item, outcome in zip(objects, results):
                name = f"{item['kind']} {item['metadata']['name']}"
                if outcome.get("error"):
                    failures.append(f"{name}: {outcome['error'].get('msg')}")
                elif "method" not in outcome:
                    absent.append(f"{item['metadata']['name']}: the cluster has no such node")
                elif outcome["changed"]:
                    changes.append(_difference(name, item, outcome))
        if failures:
            raise AnsibleActionFail(
                f"{len(failures)} of {len(nodes) + len(complete)} objects were not applied; correct the first cause "
                f"and run this again: {'; '.join(failures)}"
            )
        return changes, absent

    def _remove(
        self, planned: KubernetesPlan, kubeconfig: str, variables: dict[str, Any]
    ) -> tuple[list[str], list[str]]:
        """Remove the objects of an earlier plan that this one has not. Return their names, and what is not removed."""
        managed = {
            (item["apiVersion"], item["kind"], item["metadata"].get("namespace"), item["metadata"]["name"])
            for items in planned.objects.values()
            for item in items
        }
        kinds = {row[:2] for row in managed}
        stale: list[dict[str, Any]] = []
        notes: list[str] = []
        for version, kind in OWNED:
            options = {"kubeconfig": kubeconfig, "api_version": version, "kind": kind}
            try:
                # A cluster without this kind has none.
                answer = self._call(MODULES[1], {**options, "label_selectors": [f"{PLAN}={planned.name}"]}, variables)
            except AnsibleActionFail as error:
                if (version, kind) in kinds:
                    raise
                # Who never applies a kind may not list it.
                notes.append(f"whether an earlier plan left a {kind} is not known: {error}")
                continue
            for item in answer["resources"]:
                metadata = item["metadata"]
                if (version, kind, metadata.get("namespace"), metadata["name"]) not in managed:
                    identity = {key: metadata[key] for key in ("name", "namespace") if key in metadata}
                    stale.append({"apiVersion": version, "kind": kind, "metadata": identity})
        names = [f"{item['kind']} {item['metadata']['name']}" for item in stale]
        if names and planned.unrecorded:
            cause = f"not removed, because there is no recording of {fold(planned.unrecorded)}"
            return [], [*notes, *(f"{name}: of an earlier plan; {cause}" for name in names)]
        if stale:
            self._call(
                MODULES[0], {"kubeconfig": kubeconfig, "resource_definition": stale, "state": "absent"}, variables
            )
        return names, notes


def _difference(name: str, item: dict[str, Any], outcome: dict[str, Any]) -> dict[str, Any]:
    """Return what the API server would change, or has changed; a new object as a whole."""
    parts = outcome.get("diff") or {}
    before = parts.get("before", {}) if outcome.get("method") != "create" else {}
    after = parts.get("after", item)
    return {
        "before_header": name,
        "after_header": name,
        "before": _text(before) if before else "",
        "after": _text(after),
    }


def _plain(data: Any) -> Any:
    """Return data without the tags that Ansible adds to values of the inventory; YAML has no form for them."""
    return json.loads(json.dumps(data))


class _ManifestDumper(yaml.SafeDumper):
    """Quotes texts that are numbers to kubectl's YAML and not to PyYAML: 1e03, 0o17."""


_ManifestDumper.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(r"[-+]?(\.[0-9]+|[0-9]+\.?[0-9]*)([eE][-+]?[0-9]+)?$|0o[0-7]+$"),
    list("-+.0123456789"),
)


def _text(*items: dict[str, Any]) -> str:
    dumped = yaml.dump_all(items, Dumper=_ManifestDumper, sort_keys=False, explicit_start=len(items) > 1, width=120)
    return str(dumped)


def _texts(planned: KubernetesPlan) -> dict[str, str]:
    """Return the files by name: one for each part, and one in kubelet/ for each hardware."""
    parts = {f"{part}.yaml": _text(*items) for part, items in planned.objects.items() if items}
    return {**parts, **{f"kubelet/{name}.conf": _text(config) for name, config in planned.kubelets.items()}}
