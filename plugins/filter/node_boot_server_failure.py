# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Report the boot servers that did not answer or failed."""

from __future__ import annotations

DOCUMENTATION = r"""
name: node_boot_server_failure
short_description: Report why a task on all boot servers failed
version_added: 0.1.0
author:
  - The Sailloft maintainers (@sailloft)
description:
  - Reads the result of a task that was delegated to the boot servers with C(ignore_errors) and C(ignore_unreachable),
    and names each host that failed, the cause and the next step.
options:
  _input:
    description:
      - The task's result. The items of its loop are hosts, or stores with C(host).
    type: dict
    required: true
  host:
    description: The host that was asked, if the task has no loop over hosts.
    type: str
    default: ""
"""

EXAMPLES = r"""
msg: "{{ written | sailloft.fleet.node_boot_server_failure }}"
"""

RETURN = r"""
_value:
  description: A sentence, or an empty text if all hosts succeeded.
  type: str
"""

from collections.abc import Mapping
from typing import Any


def node_boot_server_failure(answers: Mapping[str, Any], host: str = "") -> str:
    """Return the sentence."""
    failed = [answer for answer in answers.get("results") or [answers] if _lost(answer) or answer.get("failed")]
    if not failed:
        return ""
    # The task of each of several nodes may contact the same server; a repeated text is listed once.
    texts = list(dict.fromkeys(_text(answer, host) for answer in failed))
    unreachable = list(dict.fromkeys(host or _host(answer.get("item")) for answer in failed if _lost(answer)))
    remedy = (
        f"Bring {', '.join(unreachable)} back, or remove it from node_boot_servers in the inventory, and run"
        if unreachable
        else "Fix that, and run"
    )
    return (
        f"{'; '.join(texts)}. The run ends here; no channel or script is partly written. {remedy} the same playbook "
        "again: it continues from there"
    )


def _lost(answer: Mapping[str, Any]) -> bool:
    return bool(answer.get("unreachable"))


def _text(answer: Mapping[str, Any], host: str) -> str:
    reason = str(answer.get("msg") or "no reason was given").strip()
    return f"{host or _host(answer.get('item'))}{' does not answer' if _lost(answer) else ''}: {reason}"


def _host(item: Any) -> str:
    """Return the host of a loop's item, which is the name of a host or a store with ``host``."""
    return str(item["host"] if isinstance(item, Mapping) else item or "")


class FilterModule:
    """The filters of this file."""

    def filters(self) -> dict[str, Any]:
        """Return the filters by name."""
        return {"node_boot_server_failure": node_boot_server_failure}
