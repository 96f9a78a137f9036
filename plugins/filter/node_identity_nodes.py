# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Convert nodes' secrets from the inventory to the form of the module node_identity."""

from __future__ import annotations

DOCUMENTATION = r"""
name: node_identity_nodes
short_description: Convert the variables of nodes for the module node_identity
version_added: 0.1.0
extends_documentation_fragment: sailloft.fleet.of_nodes
description:
  - Takes C(node_identity_ek) and C(node_identity_secrets) of each node.
  - Errors never contain the content of a secret.
"""

EXAMPLES = r"""
nodes: "{{ ['bm01', 'bm02'] | sailloft.fleet.node_identity_nodes(hostvars) }}"
"""

RETURN = r"""
_value:
  description: A dictionary of name, ek and secrets for each node, where secrets is a list of files.
  type: list
  elements: dict
"""

from collections.abc import Mapping
from typing import Any

from ansible.errors import AnsibleFilterError

SETTINGS = {"content", "mode", "owner", "group"}


def node_identity_nodes(names: Any, hostvars: Any) -> list[dict[str, Any]]:
    """Return rows of name, ek and secrets (files with a path). Raises AnsibleFilterError, without secret content."""
    rows = []
    for name in names:
        if name not in hostvars:
            raise AnsibleFilterError(f"node {name}: not in the inventory; correct node_identity_nodes")
        variables = hostvars[name]
        ek = variables.get("node_identity_ek")
        if not ek:
            raise AnsibleFilterError(
                f"node {name}: has no node_identity_ek; run the role node_identity with tasks_from: enroll on it"
            )
        secrets = variables.get("node_identity_secrets") or {}
        if not isinstance(secrets, Mapping):
            raise AnsibleFilterError(
                f"node {name}: node_identity_secrets is not a dictionary; write it as path: {{content: ...}}"
            )
        rows.append({"name": name, "ek": ek, "secrets": [_file(name, path, secrets[path]) for path in secrets]})
    return rows


def _file(node: str, path: Any, file: Any) -> dict[str, Any]:
    if not isinstance(file, Mapping) or "content" not in file or set(file) - SETTINGS:
        raise AnsibleFilterError(
            f"node {node}: node_identity_secrets: {path} is not a dictionary with content and, optionally, mode, owner "
            "and group; write it as path: {content: ...}"
        )
    # Ansible's own message about a wrong type would show the content.
    if isinstance(file["content"], (Mapping, list)):
        raise AnsibleFilterError(f"node {node}: node_identity_secrets: the content of {path} is not text; quote it")
    return {"path": path, **file}


class FilterModule:
    """The filters of this file."""

    def filters(self) -> dict[str, Any]:
        """Return the filters by name."""
        return {"node_identity_nodes": node_identity_nodes}
