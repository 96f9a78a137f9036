# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A connection to a stand-in host, node or BMC: it answers each module after a fixed time.

No process is started for a host, so only the controller's own cost remains. answers.json has the answer of each module,
and the answer of all other modules under "*". An entry is an answer; {"of": answers by a part of the module's
arguments}; or a list of the answer before the host restarts and the answer after it. An answer with "restarts" restarts
the host. HOST in an answer stands for the host's name.
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
    """A connection with pipelining. A command without input is the creation of Ansible's temporary directory."""

    transport = "answering"
    has_pipelining = True

    def _connect(self):
        self._connected = True
        return self

    def reset(self):
        """Do nothing, because no connection is kept."""

    def exec_command(self, cmd, in_data=None, sudoable=True):
        """Return status, output and errors."""
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
        if name == "node_boot_restart":
            return 0, json.dumps(self._restart(json.loads(given)["nodes"])).encode(), b""
        bmc = BMC.search(given)
        host = bmc[1].split('"')[-1].removeprefix("https://") if bmc else self._play_context.remote_addr
        reply = ANSWERS[name] if name in ANSWERS else ANSWERS["*"]
        if isinstance(reply, dict) and "of" in reply:  # answers by a part of the module's arguments
            reply = next(answer for part, answer in reply["of"].items() if part in given)
        restarted = FOLDER / "restarted" / host
        if isinstance(reply, list):  # the answers before and after the restart
            reply = reply[restarted.exists()]
        reply = dict(reply)
        if reply.pop("restarts", False):
            restarted.touch()
        return 0, json.dumps(reply).replace("HOST", host).encode(), b""

    def _restart(self, nodes):
        """Restart all nodes of a call, and return the module's result."""
        for row in nodes:
            (FOLDER / "restarted" / row["node"]).touch()
        restarted = {"msg": "", "requested": True, "since_s": DELAY_S}
        return {"changed": True, "nodes": {row["node"]: restarted for row in nodes}}

    def put_file(self, in_path, out_path):
        """Accept a file."""
        super().put_file(in_path, out_path)

    def fetch_file(self, in_path, out_path):
        """Refuse, because the stand-in has no files."""
        super().fetch_file(in_path, out_path)
        raise FileNotFoundError(in_path)

    def close(self):
        """Do nothing."""
        self._connected = False
