# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A connection to a stand-in host, node or BMC: it answers each module after a fixed time.

Nothing is started: what is left of a run is what it costs the controller. answers.json has the answer of each module,
and under "*" that of all others: an answer; {"of": answers by a part of what the module is given}; or a list of the
answer before the host restarts and that after it. An answer with "restarts" restarts the host; HOST in an answer is its
name.
"""

from __future__ import annotations

import ast
import json
import os
import re
import time
from pathlib import Path

from ansible.plugins.connection import ConnectionBase

DOCUMENTATION = """
name: answering
short_description: A stand-in host, node or BMC
description: It answers each module after a fixed time.
extends_documentation_fragment: [connection_pipelining]
"""
# Ansible's wrapper of a module (ansible/executor/module_common.py).
MODULE = re.compile(r"^ *module_fqn='[\w.]+\.(\w+)',$", re.MULTILINE)
PARAMS = re.compile(r"^ *params=('.*'|\".*\"),$", re.MULTILINE)
FOLDER = Path(os.environ["STAND_IN_FOLDER"])
with (FOLDER / "answers.json").open(encoding="utf-8") as file:
    ANSWERS = json.load(file)
DELAY_S = float(os.environ["STAND_IN_DELAY_S"])
BMC = re.compile(r"\b(\S+)\.bmc\b")


class Connection(ConnectionBase):
    """Modules come by the standard input of an interpreter; all else is the folder that Ansible makes before."""

    transport = "answering"
    has_pipelining = True

    def _connect(self):
        self._connected = True
        return self

    def reset(self):
        """Do nothing: no connection is kept."""

    def exec_command(self, cmd, in_data=None, sudoable=True):
        """Return (status, output, errors)."""
        super().exec_command(cmd, in_data=in_data, sudoable=sudoable)
        with (FOLDER / "round_trips").open("a", encoding="utf-8") as log:
            log.write(".")
        time.sleep(DELAY_S)
        if not in_data:
            made = re.search(r"echo ([\w.-]+)=", cmd)
            return 0, f"{made[1]}=/stand-in/{made[1]}\n".encode() if made else b"/stand-in\n", b""
        payload = in_data.decode()
        name = MODULE.search(payload)[1]
        given = json.dumps(json.loads(ast.literal_eval(PARAMS.search(payload)[1]))["ANSIBLE_MODULE_ARGS"])
        bmc = BMC.search(given)
        host = bmc[1].split('"')[-1].removeprefix("https://") if bmc else self._play_context.remote_addr
        said = ANSWERS[name] if name in ANSWERS else ANSWERS["*"]
        if isinstance(said, dict) and "of" in said:  # by a part of what the module is given
            said = next(answer for part, answer in said["of"].items() if part in given)
        restarted = FOLDER / "restarted" / host
        if isinstance(said, list):  # before the restart, and after it
            said = said[restarted.exists()]
        said = dict(said)
        if said.pop("restarts", False):
            restarted.touch()
        return 0, json.dumps(said).replace("HOST", host).encode(), b""

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
