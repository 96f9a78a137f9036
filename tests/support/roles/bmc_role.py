# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Run only the part of the role node_boot that talks to a node's BMC."""

from __future__ import annotations

import json

import pytest
import yaml
from playing import ansible_playbook

PASSWORD = "do-not-show-me"


def restart(folder, role_variables=None, **bmc):
    """Have the BMC restart bm01, with the password in node_boot_bmc; return (exit status, output)."""
    given = {"username": "root", "password": PASSWORD, **bmc}
    role = {"name": "sailloft.fleet.node_boot", "tasks_from": "node/restart"}
    tasks = [{"ansible.builtin.include_role": role}]
    playbook = folder / "play.yml"
    playbook.write_text(yaml.safe_dump([{"hosts": "bm01", "gather_facts": False, "tasks": tasks}]))
    variables = folder / "variables.json"
    variables.write_text(json.dumps({"node_boot_bmc": given, **(role_variables or {})}))
    options = ["-vvv", "-i", "bm01,", "-e", f"@{variables}"]
    status, output = ansible_playbook(*options, str(playbook), ANSIBLE_CALLBACK_RESULT_FORMAT="json")
    assert PASSWORD not in output
    return status, output


def starting(kind):
    """Return a fixture that starts BMCs of this kind, each in its own directory, and stops them in the end."""

    @pytest.fixture
    def start(tmp_path):
        started = []

        def call(**how):
            started.append(kind(tmp_path / f"bmc{len(started)}", **how))
            return started[-1].wait()

        yield call
        for bmc in started:
            bmc.stop()

    return start


def message(output):
    """Return the last message of the role."""
    return output.split("Restart the node through its BMC", 1)[1]
