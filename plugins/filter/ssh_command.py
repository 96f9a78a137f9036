# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Build the ssh command that a tool such as rsync needs to connect to a host in the same way as Ansible."""

from __future__ import annotations

DOCUMENTATION = r"""
name: ssh_command
short_description: Return the ssh command with which Ansible reaches a host, for rsync
version_added: 0.1.0
author:
  - The Sailloft maintainers (@sailloft)
description:
  - M(ansible.posix.synchronize) ignores connection variables that are templates in the inventory, because it does not
    render them. The result is for its C(--rsh).
  - It does not contain the host's name and user, which are part of rsync's destination. The command never asks a
    question.
options:
  _input:
    description: The host's variables, such as C(hostvars[inventory_hostname]).
    type: dict
    required: true
"""

EXAMPLES = r"""
rsync_opts:
  - --rsh={{ hostvars[inventory_hostname] | sailloft.fleet.ssh_command | quote }}
"""

RETURN = r"""
_value:
  description: The command, in one line.
  type: str
"""

import shlex
from collections.abc import Mapping
from typing import Any

from ansible.errors import AnsibleFilterError

# Options that the inventory quotes for a shell.
ARGUMENTS = ("ansible_ssh_common_args", "ansible_ssh_extra_args")
# The timeouts for a host that does not answer, or stops answering. ssh uses the first of repeated options: those of
# the inventory take precedence.
GIVE_UP = "-o ConnectTimeout=15 -o ServerAliveInterval=15 -o ServerAliveCountMax=4"


def ssh_command(variables: Mapping[str, Any]) -> str:
    """Return "ssh -o BatchMode=yes -p PORT -i KEY ...". Raises AnsibleFilterError if no host's variables are given."""
    if not isinstance(variables, Mapping):
        raise AnsibleFilterError(f"ssh_command: {type(variables).__name__} is no host's variables; give hostvars[HOST]")
    command = ["ssh", "-o", "BatchMode=yes", "-p", str(variables.get("ansible_port") or 22)]
    key = variables.get("ansible_ssh_private_key_file") or variables.get("ansible_private_key_file")
    if key:
        command += ["-i", shlex.quote(str(key))]
    arguments = [str(variables[name]).strip() for name in ARGUMENTS if variables.get(name)]
    return " ".join([*command, *arguments, GIVE_UP])


class FilterModule:
    """The filters of this file."""

    def filters(self) -> dict[str, Any]:
        return {"ssh_command": ssh_command}
