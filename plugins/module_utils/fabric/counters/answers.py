# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The answers of a switch to the commands of a task with a loop, as Ansible registers them. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

# What NVUE is asked of each port, and the name of all these answers together in the table of counters.
_OF_A_PORT = re.compile(r"interface/(.+)/counters/qos")
OF_ALL_PORTS = "interface/PORT/counters/qos"
_OK = 200  # HTTP


class Answers(NamedTuple):
    """The output by command, and by command why there is none, or none of some ports."""

    shown: dict[str, Any]
    failures: dict[str, str]


def answers(results: Iterable[Mapping[str, Any]]) -> Answers:
    """Return the answers; ``results``: those of ansible.builtin.command or uri, or of a network collection's modules.

    Each has the command as ``item``. Output of a command that failed is none, however complete it looks.
    """
    read = Answers({}, {})
    for result in results:
        command = str(result.get("item"))
        port = _OF_A_PORT.fullmatch(command)
        failure = _failure(result)
        if port and failure:
            read.failures.setdefault(OF_ALL_PORTS, f"{port[1]}: {failure}")
        elif port:
            read.shown.setdefault(OF_ALL_PORTS, {})[port[1]] = _output(result)
        elif failure:
            read.failures[command] = failure
        else:
            read.shown[command] = _output(result)
    return read


def _failure(result: Mapping[str, Any]) -> str:
    """Return why a command has failed; "" if it has not. A task's failed_when may say that it never fails."""
    code = result.get("rc")
    failed = any(result.get(state) for state in ("failed", "unreachable", "exception"))
    if not failed and code in (None, 0) and result.get("status", _OK) == _OK and _output(result) is not None:
        return ""
    text = str(result.get("stderr") or result.get("msg") or "").strip()
    return (text.splitlines() or [f"it ended with {code}" if code else "no answer"])[-1]


def _output(result: Mapping[str, Any]) -> Any:
    """Return the output of a module: text, one text or tree of each command, XML, or JSON; None without any."""
    for name in ("stdout", "xml", "json"):
        output = result.get(name)
        output = (output[0] if output else None) if name == "stdout" and isinstance(output, list) else output
        if output not in (None, ""):
            return output
    return None
