# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Run Ansible as a user does, for tests."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]
# The program of this interpreter's environment, whatever PATH is.
ANSIBLE = str(Path(sys.executable).with_name("ansible-playbook"))


def ansible_playbook(*arguments: str, folder: Path = ROOT, **environment: str) -> tuple[int, str]:
    """Run ansible-playbook in a directory, with the checkout's settings; return (exit status, output)."""
    settings = {"ANSIBLE_NOCOLOR": "1", "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg")}
    done = subprocess.run(
        [ANSIBLE, *arguments],
        cwd=folder,
        env={**os.environ, **settings, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout


def collection_path(name: str) -> Path:
    """Return the directory of an installed collection."""
    spec = importlib.util.find_spec(f"ansible_collections.{name}")
    assert spec
    assert spec.submodule_search_locations
    return Path(spec.submodule_search_locations[0])


def only_collections(folder: Path, *names: str) -> dict[str, str]:
    """Return the environment in which Ansible finds this collection and the named ones of the environment only."""
    for name in names:
        target = folder / "ansible_collections" / name.replace(".", "/")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.symlink_to(collection_path(name))
    return {
        "ANSIBLE_COLLECTIONS_SCAN_SYS_PATH": "false",
        "ANSIBLE_COLLECTIONS_PATH": f"{ROOT}/.collections:{folder}",
    }


def play_of_hosts(
    folder: Path, tasks: list[dict[str, object]], hosts: dict[str, dict[str, object]], *options: str, **shared: object
) -> dict[str, dict[str, dict[str, object]]]:
    """Run tasks once for hosts with their variables, all on this machine; return {host: {task's name: its result}}.

    A process of Ansible takes seconds, so cases with different variables are the hosts of one play. Variables are those
    of an inventory; ``shared`` are variables of all hosts.
    """
    local = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable}
    inventory = folder / "hosts.json"
    inventory.write_text(json.dumps({"all": {"vars": {**local, **shared}, "hosts": hosts}}))
    playbook = folder / "play.json"
    playbook.write_text(json.dumps([{"hosts": "all", "gather_facts": False, "tasks": tasks}]))
    _status, output = ansible_playbook(
        *options, f"-i{inventory}", str(playbook), ANSIBLE_STDOUT_CALLBACK="ansible.posix.json"
    )
    # Warnings come before the JSON, the times of tasks after it.
    told, _end = json.JSONDecoder().raw_decode(output, output.index('{\n    "custom_stats"'))
    (play,) = told["plays"]
    return {
        host: {
            task["task"]["name"].rpartition(" : ")[2]: task["hosts"][host]
            for task in play["tasks"]
            if host in task["hosts"]
        }
        for host in hosts
    }
