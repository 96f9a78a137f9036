# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A connection to a host that does not exist: modules check their arguments, and answer for a host without settings.

No command runs. A module's own specification checks its arguments, so that a wrong argument from an inventory, a role
or a filter fails here as on a host; absent_answers.py has the results of modules.
"""

from __future__ import annotations

import ast
import importlib
import json
import re

import absent_answers
import argument_specs
from ansible.module_utils.common.arg_spec import ArgumentSpecValidator
from ansible.plugins.connection import ConnectionBase

DOCUMENTATION = """
name: absent_host
short_description: A host that is not there
description: Modules check their arguments, and answer what absent_answers.py says.
extends_documentation_fragment: [connection_pipelining]
"""
# Ansible's module wrapper has these arguments (ansible/executor/module_common.py).
MODULE = re.compile(r"^ *module_fqn=('[\w.]+'),$", re.MULTILINE)
PARAMS = re.compile(r"^ *params=('.*'|\".*\"),$", re.MULTILINE)
FOLDER = "/absent"


def answered(payload: str) -> dict:
    """Return the result of the module in the payload."""
    name, arguments = (ast.literal_eval(found.search(payload)[1]) for found in (MODULE, PARAMS))
    given = json.loads(arguments)["ANSIBLE_MODULE_ARGS"]
    python = importlib.import_module(name)
    taken = {key: value for key, value in given.items() if not key.startswith("_ansible_")}
    specification = argument_specs.of_python(python, "AnsibleModule")
    checked = ArgumentSpecValidator(**specification).validate(taken)
    # The action of copy passes a Windows argument to the module stat (ActionBase._execute_remote_stat).
    if checked.error_messages and not name.startswith("ansible.modules."):
        return {"failed": True, "msg": f"{name}: {'; '.join(checked.error_messages)}"}
    return absent_answers.answer(name.rpartition(".")[2], checked.validated_parameters)


class Connection(ConnectionBase):
    """A connection that receives modules on an interpreter's standard input; other commands make directories."""

    transport = "absent_host"
    has_pipelining = True

    def _connect(self):
        self._connected = True
        return self

    def exec_command(self, cmd, in_data=None, sudoable=True):
        """Return (status, output, errors) of a module, or of Ansible's commands before and after it."""
        super().exec_command(cmd, in_data=in_data, sudoable=sudoable)
        if in_data:
            result = answered(in_data.decode())
            return 0, json.dumps(result).encode(), b""
        if "id -u" in cmd:
            return 0, b"0\nroot\n", b""
        if "mktemp" in cmd:
            return 1, b"", b"nothing can be written"
        made = re.search(r"echo ([\w.-]+)=", cmd)  # mkdir_p_remote_tmp: NAME=DIRECTORY
        return 0, f"{made[1]}={FOLDER}/{made[1]}\n".encode() if made else f"{FOLDER}\n".encode(), b""

    def put_file(self, in_path, out_path):
        """Accept a file."""
        super().put_file(in_path, out_path)

    def fetch_file(self, in_path, out_path):
        """Fail, because there is no file."""
        super().fetch_file(in_path, out_path)
        raise FileNotFoundError(in_path)

    def close(self):
        """Do nothing."""
        self._connected = False
