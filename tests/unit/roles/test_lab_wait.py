# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The role lab waits for a machine, and starts it again once if its emulator ended or it hangs.

virsh and the machine are simulated: a domain's state is a file, and sshd answers after a start or reset of the domain.
"""

from __future__ import annotations

import json
import os
import socketserver
import sys
import threading

import pytest
from playing import ansible_playbook

VIRSH = """#!/bin/sh
shift 2
case "$1" in
  domstate) cat "$DOMAIN" ;;
  start)
    [ "$(cat "$DOMAIN")" != running ] || { echo "error: Domain is already active" >&2; exit 1; }
    echo running > "$DOMAIN"; echo start >> "$DOMAIN.asked"; : > "$DOMAIN.answers" ;;
  reset)
    [ "$(cat "$DOMAIN")" = running ] || { echo "error: domain is not running" >&2; exit 1; }
    echo reset >> "$DOMAIN.asked"; : > "$DOMAIN.answers" ;;
esac
"""
# A kernel that reports stalls twice hangs.
STANDS_STILL = (
    "[    0.0] Linux version 6.1.0\n" + "[   60.0] rcu: INFO: rcu_preempt detected stalls on CPUs/tasks:\n" * 2
)


@pytest.mark.long
@pytest.mark.parametrize(
    ("state", "console", "asked"), [("shut off", "", "start\n"), ("running", STANDS_STILL, "reset\n")]
)
def test_a_stopped_or_hanging_machine_is_restarted_once(tmp_path, state, console, asked):
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/virsh").write_text(VIRSH)
    (tmp_path / "bin/virsh").chmod(0o755)
    (tmp_path / "machine").mkdir()
    (tmp_path / "machine/console.log").write_text(console)
    domain = tmp_path / "domain"
    domain.write_text(state + "\n")
    answers = tmp_path / "domain.answers"

    class Sshd(socketserver.BaseRequestHandler):
        def handle(self):
            if answers.exists():
                self.request.sendall(b"SSH-2.0-OpenSSH\r\n")

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Sshd) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        given = {
            "__lab_spec": {"ssh_port": {"lab": server.server_address[1]}},
            "__lab_machine_dir": str(tmp_path / "machine"),
            "__lab_domain": "gpu",
            "lab_instance": "lab",
            "lab_uri": "test:///default",
            "lab_boot_silent_s": 180,
            "ansible_python_interpreter": sys.executable,
        }
        role = {"name": "sailloft.fleet.lab", "tasks_from": "machine/wait"}
        play = [{"hosts": "localhost", "gather_facts": False, "tasks": [{"ansible.builtin.include_role": role}]}]
        (tmp_path / "play.yml").write_text(json.dumps(play))
        environment = {"PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}", "DOMAIN": str(domain)}
        options = ["-i", "localhost,", "-c", "local", "-e", json.dumps(given)]
        status, output = ansible_playbook(*options, str(tmp_path / "play.yml"), **environment)
        server.shutdown()
    assert status == 0, output
    assert (tmp_path / "domain.asked").read_text() == asked
