#!/usr/bin/env python3
# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Run a play and interrupt it in the middle of a task.

    cut_off.py kill "Kernel arguments" "test -e /etc/default/grub.d/90-sailloft.cfg" ansible-playbook site.yml
    cut_off.py disconnect "Kernel arguments" true ansible-playbook site.yml

``kill`` ends the play with all its workers by SIGKILL, and the module that they left running on the host.
``disconnect`` ends only the SSH connection; the play ends by itself, and the module continues. Both act as soon as the
task has begun and the command after the task's name succeeds on the host. The connection is found by its socket in
ANSIBLE_SSH_CONTROL_PATH_DIR.

The exit status is 0 if the play was killed, the play's own status if its connection was cut, and 99 if the play ended
before it could be interrupted. The play's output is copied to the output.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

NOTHING_TO_CUT_OFF = 99
# A module that is sent through a pipe runs as the interpreter of the lab's machines without an argument.
END_MODULES = "pkill -KILL -f '^/usr/bin/python3$' && echo a module was ended on the host || [ $? = 1 ]"


def over_connection(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run ssh over (or on) the last connection that the play has made; never open a new connection."""
    sockets = sorted(Path(os.environ["ANSIBLE_SSH_CONTROL_PATH_DIR"]).iterdir(), key=lambda path: path.stat().st_ctime)
    return subprocess.run(
        ["ssh", "-o", f"ControlPath={sockets[-1] if sockets else '/none'}", "-o", "ProxyCommand=false", *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )


def wait_for(play: subprocess.Popen[bytes], log: Path, task: str, seen: str) -> bool:
    """Wait until the play is in the task and the command succeeds on the host; return False if the play ends before."""
    begun = re.compile(rf"^TASK \[(.+ : )?{re.escape(task)}\] \**$", re.MULTILINE)
    while play.poll() is None:
        if begun.search(log.read_text(encoding="utf-8")) and over_connection("host", seen).returncode == 0:
            return play.poll() is None
        time.sleep(0.05)
    return False


def cut_off(play: subprocess.Popen[bytes], how: str) -> None:
    """End the play or its connection."""
    if how == "kill":
        os.killpg(play.pid, signal.SIGKILL)
        print(over_connection("host", END_MODULES).stdout)
    else:
        for pid in re.findall(r"Master running \(pid=(\d+)\)", over_connection("-O", "check", "host").stdout):
            os.kill(int(pid), signal.SIGKILL)


def main() -> int:
    """Run the play, interrupt it, and return the exit status that the module's docstring describes."""
    how, task, seen, *command = sys.argv[1:]
    environment = {
        **os.environ,
        # Without this, Ansible prints a task's name only when the task has a result.
        "ANSIBLE_DISPLAY_SKIPPED_HOSTS": "true",
        "ANSIBLE_NOCOLOR": "1",
        "ANSIBLE_FORCE_COLOR": "0",
        "PYTHONUNBUFFERED": "1",
    }
    with tempfile.TemporaryDirectory() as folder:
        # The log is a file, because processes that outlive the play could keep a pipe open.
        log = Path(folder, "log")
        with log.open("wb") as output:
            play = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=environment,
                start_new_session=True,
            )
        cut = wait_for(play, log, task, seen)
        if cut:
            cut_off(play, how)
        status = play.wait()
        print(log.read_text(encoding="utf-8"))
    if not cut:
        print(f"the play ended (status {status}) before it could be cut off in task {task!r}", file=sys.stderr)
        return NOTHING_TO_CUT_OFF
    return 0 if how == "kill" else status


if __name__ == "__main__":
    sys.exit(main())
