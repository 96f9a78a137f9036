# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Encrypt the secrets of nodes from the variables of each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ansible.errors import AnsibleActionFail
from ansible.module_utils.parsing.convert_bool import boolean

from ansible_collections.sailloft.fleet.plugins.plugin_utils.nodes.named import NamedNodesAction

SETTINGS = {"content", "mode", "owner", "group"}


def secrets_rows(names: list[str], hostvars: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return rows of name, ek and secrets (files with a path). Raises AnsibleActionFail, without secret content."""
    rows = []
    for name in names:
        if name not in hostvars:
            raise AnsibleActionFail(f"node {name}: not in the inventory; correct the option nodes")
        variables = hostvars[name]
        ek = variables.get("node_identity_ek")
        if not ek:
            raise AnsibleActionFail(
                f"node {name}: has no node_identity_ek; run the role node_identity with tasks_from: enroll on it"
            )
        secrets = variables.get("node_identity_secrets") or {}
        if not isinstance(secrets, Mapping):
            raise AnsibleActionFail(
                f"node {name}: node_identity_secrets is not a dictionary; write it as path: {{content: ...}}"
            )
        files = [_file(name, path, secrets[path]) for path in secrets]
        shared = [path for path in secrets if path in (variables.get("node_boot_files") or ())]
        if shared:
            raise AnsibleActionFail(
                f"node {name}: {shared[0]} is in node_identity_secrets and in node_boot_files: each boot would write "
                "the secret over the other; remove it from one of them"
            )
        measured = boolean(variables.get("node_identity_measured", variables.get("node_boot_secure_boot", False)))
        proven = not measured or _quoted(variables)
        rows.append({"name": name, "ek": ek, "secrets": files, "measured": measured, "proven": proven})
    return rows


def _quoted(variables: Mapping[str, Any]) -> bool:
    """Return whether a quote of the node was verified in this run (tasks_from: quote)."""
    quoted = variables.get("node_identity_quoted")
    return isinstance(quoted, Mapping) and bool(quoted.get("verified"))


def _file(node: str, path: Any, file: Any) -> dict[str, Any]:
    if not isinstance(file, Mapping) or "content" not in file or set(file) - SETTINGS:
        raise AnsibleActionFail(
            f"node {node}: node_identity_secrets: {path} is not a dictionary with content and, optionally, mode, owner "
            "and group; write it as path: {content: ...}"
        )
    # Ansible's own message about a wrong type would show the content.
    if isinstance(file["content"], (Mapping, list)):
        raise AnsibleActionFail(f"node {node}: node_identity_secrets: the content of {path} is not text; quote it")
    return {"path": path, **file}


class ActionModule(NamedNodesAction):
    """Run the module with the keys and secrets of nodes."""

    def rows(self, names: list[str], hostvars: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Return the module's option ``nodes``. Raises AnsibleActionFail."""
        return secrets_rows(names, hostvars)
