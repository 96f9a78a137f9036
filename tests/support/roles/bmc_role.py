# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Restart one node through its BMC, as node_boot_fleet does with many."""

from __future__ import annotations

import json

import pytest
import yaml
from playing import ansible_playbook

PASSWORD = "do-not-show-me"


def restart(folder, http_boot=True, **bmc):
    """Have the BMC restart bm01, with the password in node_boot_bmc; return (exit status, output)."""
    given = {"username": "root", "password": PASSWORD, **bmc}
    asked = {"node": "bm01", "bmc": "{{ node_boot_bmc }}", "http_boot": http_boot}
    tasks = [
        {
            "name": "Restart the node through its BMC",
            "sailloft.fleet.node_boot_restart": {"nodes": [asked]},
            "delegate_to": "localhost",
            "register": "told",
        },
        {"ansible.builtin.fail": {"msg": "{{ told.nodes.bm01.msg }}"}, "when": "told.nodes.bm01.msg | length > 0"},
    ]
    playbook = folder / "play.yml"
    playbook.write_text(yaml.safe_dump([{"hosts": "bm01", "gather_facts": False, "tasks": tasks}]))
    variables = folder / "variables.json"
    variables.write_text(json.dumps({"node_boot_bmc": given}))
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
    """Return the messages of the restart."""
    return output.split("Restart the node through its BMC", 1)[1]
