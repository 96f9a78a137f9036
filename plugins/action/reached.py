# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Fail with one sentence if the host is not reached.

Ansible's own result is not enough: "unreachable" names neither the address nor a remedy, and is censored where the
task has no_log. It also does not end the playbook where any_errors_fatal requires that: the host is counted as failed
and as unreachable, so the number of failures differs from the number of the play's hosts (ansible-core 2.16 to 2.20,
executor/playbook_executor.py).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from ansible.errors import AnsibleConnectionFailure
from ansible.module_utils.connection import Connection, ConnectionError
from ansible.plugins.action import ActionBase

PREFIX = "Failed to connect to the host via ssh: "
# What Mitogen puts before the lines that ssh printed.
HEADING = re.compile(r"EOF on stream; last \d+ lines received:")
LONGEST = 300  # characters of the cause; the end is kept, because banners come first


@dataclass(frozen=True)
class Refusal:
    """A cause that does not pass by waiting: its pattern, the seconds for which a guest that boots may have it."""

    pattern: re.Pattern[str]
    boot_s: int
    remedy: str


# The words of OpenSSH, Mitogen and paramiko. sshd of a guest may answer before its first boot has written the keys.
REFUSALS = (
    Refusal(
        re.compile("host key verification failed|mismatching host key|host key mismatch", re.IGNORECASE),
        0,
        "Ansible does not ask for a new host key: connect once with ssh and compare it, or set ansible_ssh_common_args "
        "to -o StrictHostKeyChecking=accept-new; if another machine had the address, remove its key: ssh-keygen -R "
        "ADDRESS",
    ),
    Refusal(
        re.compile(r"permission denied \(|too many authentication failures|authentication is incorrect", re.IGNORECASE),
        60,
        "Compare ansible_user and ansible_ssh_private_key_file with the user and the keys that the host accepts",
    ),
)


class ActionModule(ActionBase):
    """Run only `true` on a host, or read the device information of a network device."""

    _supports_check_mode = True

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Run the action."""
        result = super().run(tmp, task_vars)
        _valid, arguments = self.validate_argument_spec(argument_spec={"root": {"type": "bool", "default": False}})
        variables = task_vars or {}
        name = self._task.delegate_to or variables.get("inventory_hostname", "")
        try:
            self._connect()
        except (AnsibleConnectionFailure, ConnectionError) as error:
            reason = cause(str(error))
            result.update(
                failed=True,
                cause=reason,
                msg=f"{name} cannot be reached at {self._address(name, variables)}: {reason}. {remedy(reason)}, "
                "then run again",
            )
        else:
            refusal = self._not_root() if arguments["root"] else None
            if refusal:
                result.update(failed=True, cause=refusal, msg=f"{name}: {refusal}")
        return result

    def _not_root(self) -> str | None:
        """Return the reason why the tasks of the play do not run as root, and the remedy, or None."""
        remedy = "Set ansible_become: true for the host, or give --become"
        answer = self._low_level_execute_command("id -u && id -un")
        if answer["rc"] != 0:
            message = cause(f"{answer['stderr']}\n{answer['stdout']}")
            return f"its tasks need root, and becoming root failed: {message}. Check ansible_become_password and sudo"
        number, user = [*answer["stdout"].split(), "", ""][:2]
        return None if number == "0" else f"its tasks need root, but run as {user or 'another user'}. {remedy}"

    def _connect(self) -> None:
        if self._connection.supports_persistence or self._connection.force_persistence:
            Connection(self._connection.socket_path).get_capabilities()
        else:
            # This does not use become, whose failures are not those of the connection.
            self._low_level_execute_command("true", sudoable=False)

    def _address(self, name: str, variables: dict[str, Any]) -> str:
        host = getattr(self._connection, "host", None) or self._templar.template(variables.get("ansible_host")) or name
        port = getattr(self._connection, "port", None) or self._templar.template(variables.get("ansible_port"))
        return f"{host}, port {port}" if port else str(host)


def cause(message: str) -> str:
    """Return the message of a connection plugin's failure, in one line."""
    line = "; ".join(part.strip() for part in HEADING.sub("", message.replace(PREFIX, "")).splitlines() if part.strip())
    return (line if len(line) <= LONGEST else f"...{line[-LONGEST:]}").rstrip(".")


def refusal_of(reason: str) -> Refusal | None:
    """Return the refusal that a connection's ``cause`` is; None for one that may pass by waiting."""
    return next((refusal for refusal in REFUSALS if refusal.pattern.search(reason)), None)


def remedy(reason: str) -> str:
    """Return the next step for a connection's ``cause``."""
    if refusal := refusal_of(reason):
        return refusal.remedy
    return (
        "Check that it is up and that the inventory has its address, port, user and key (ansible_host, ansible_port, "
        "ansible_user, ansible_ssh_private_key_file)"
    )
