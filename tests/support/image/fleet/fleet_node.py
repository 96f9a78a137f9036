# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A connection to a node of fleet_machines.py: this machine, with the node's files mounted at their places."""

from __future__ import annotations

import os
import shlex
import signal
from pathlib import Path

from ansible.errors import AnsibleConnectionFailure
from ansible.plugins.connection.local import Connection as Local

DOCUMENTATION = """
name: fleet_node
short_description: A node of the tests' fleet
description: Commands run here, in a mount namespace in which the node's files lie over this machine's.
extends_documentation_fragment: [connection_pipelining]
"""


# The modules by which a rollout changes a boot server's store.
CHANGES = ("node_boot_scripts", "node_image_channel")


class Connection(Local):
    """A local connection whose commands see the node's /run, /proc/cmdline etc.; a node that is down is unreachable."""

    transport = "fleet_node"

    def exec_command(self, cmd, in_data=None, sudoable=True):
        """Run ``cmd`` in the node."""
        node = Path(os.environ["FLEET"]) / self._play_context.remote_addr
        if not (node / "up").exists():
            raise AnsibleConnectionFailure(f"{node.name} does not answer")
        self._end_run(node, cmd)
        inside = f"unshare --mount --propagation private sh {node.parent}/enter {node} {shlex.quote(cmd)}"
        return super().exec_command(inside, in_data=in_data, sudoable=sudoable)

    def _end_run(self, node, cmd):
        """Kill the run before it makes its change with the number FLEET_KILL, from 1, on this boot server."""
        last = int(os.environ.get("FLEET_KILL", 0))
        # The file of the module is made executable, and then run.
        if last and "chmod" not in cmd and any(f"AnsiballZ_{name}.py" in cmd for name in CHANGES):
            calls = node / "calls"
            with calls.open("a") as stream:
                stream.write("x")
            if calls.stat().st_size == last:
                os.kill(os.getppid(), signal.SIGKILL)
                os.kill(os.getpid(), signal.SIGKILL)
