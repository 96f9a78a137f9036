# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A connection to a stand-in host that has every setting: it answers each module after a fixed time.

Nothing is started: what is left of a run is what it costs the controller. noop_fleet.py says what the answers are.
"""

from __future__ import annotations

import ast
import json
import os
import re
import time

from ansible.plugins.connection import ConnectionBase

DOCUMENTATION = """
name: answering
short_description: A stand-in host that has every setting
description: It answers each module after a fixed time.
extends_documentation_fragment: [connection_pipelining]
"""
# Ansible's wrapper of a module (ansible/executor/module_common.py).
MODULE = re.compile(r"^ *module_fqn='[\w.]+\.(\w+)',$", re.MULTILINE)
PARAMS = re.compile(r"^ *params=('.*'|\".*\"),$", re.MULTILINE)
with open(os.environ["STAND_IN_ANSWERS"], encoding="utf-8") as file:
    ANSWERS = json.load(file)
DELAY_S = float(os.environ["STAND_IN_DELAY_S"])


class Connection(ConnectionBase):
    """Modules come by the standard input of an interpreter; all else is the folder that Ansible makes before."""

    transport = "answering"
    has_pipelining = True

    def _connect(self):
        self._connected = True
        return self

    def exec_command(self, cmd, in_data=None, sudoable=True):
        """Return (status, output, errors)."""
        super().exec_command(cmd, in_data=in_data, sudoable=sudoable)
        with open(os.environ["STAND_IN_LOG"], "a", encoding="utf-8") as log:
            log.write(".")
        time.sleep(DELAY_S)
        if not in_data:
            made = re.search(r"echo ([\w.-]+)=", cmd)
            return 0, f"{made[1]}=/stand-in/{made[1]}\n".encode() if made else b"/stand-in\n", b""
        payload = in_data.decode()
        name = MODULE.search(payload)[1]
        answer = {"changed": False, **ANSWERS.get(name, {})}
        if name == "command":
            given = json.loads(ast.literal_eval(PARAMS.search(payload)[1]))["ANSIBLE_MODULE_ARGS"]
            line = given["_raw_params"]
            output = next((said for part, said in ANSWERS["command"].items() if part in line), "")
            answer = {"changed": True, "rc": 0, "stdout": output, "stdout_lines": [output], "stderr": ""}
        return 0, json.dumps(answer).encode(), b""

    def put_file(self, in_path, out_path):
        """Take a file."""
        super().put_file(in_path, out_path)

    def fetch_file(self, in_path, out_path):
        """Refuse: there is none."""
        super().fetch_file(in_path, out_path)
        raise FileNotFoundError(in_path)

    def close(self):
        """Do nothing."""
        self._connected = False
