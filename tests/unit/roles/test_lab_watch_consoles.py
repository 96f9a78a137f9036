# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Machines that hang in a boot are reset once, machines that the emulator ended are started, and no others.

Consoles, the host's load and virsh are simulated; virsh records its commands.
"""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path

import pytest

pytestmark = pytest.mark.long

WATCH = Path(__file__).parents[3] / "roles" / "lab" / "files" / "watch-consoles"
SILENT_S = 180
BOOT = "[    0.000000] Linux version 6.1.0\n[    3.1] input: mouse\n"
STALL = "[   60.0] rcu: INFO: rcu_preempt detected stalls on CPUs/tasks:\n"
LOGIN = "\ngpu-server login: "
# A play that runs until a machine is reset, for at most a minute.
UNTIL_RESET = ("sh", "-c", 'for _ in $(seq 300); do [ ! -s "$RESETS" ] || exit 0; /bin/sleep 0.2; done')
# "off" is a stopped machine; "crashed" is a machine that its emulator ends after it was seen running.
VIRSH = """#!/bin/sh
shift 2
case "$*" in
  "domstate --reason crashed-"*)
    if [ -e "$RESETS.seen" ]; then echo "shut off (crashed)"; else echo "running (booted)"; : > "$RESETS.seen"; fi ;;
  "domstate --reason gone-"*) echo "shut off (crashed)" ;;
  domstate*off-*) echo "shut off" ;;
  domstate*) echo running ;;
  start*) rm -f "$RESETS.seen"; echo "$2" >> "$RESETS" ;;
  reset*) echo "$2" >> "$RESETS" ;;
esac
"""


@pytest.fixture
def reset(tmp_path, monkeypatch):
    """Return a function that writes consoles, {machine: (text, seconds ago)}, and returns (reset machines, status)."""
    bin_dir, consoles, resets = (tmp_path / name for name in ("bin", "consoles", "resets"))
    bin_dir.mkdir()
    for name, text in {
        "virsh": VIRSH,
        # The watch calls sleep after it has read the earlier consoles.
        "sleep": '#!/bin/sh\n: > "$WATCHES"\nexec /bin/sleep "$(echo "$1" | sed s/15/0.1/)"\n',
    }.items():
        (bin_dir / name).write_text(text)
        (bin_dir / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{bin_dir}:{os.environ['PATH']}")
    monkeypatch.setenv("RESETS", str(resets))
    watches = tmp_path / "watches"
    monkeypatch.setenv("WATCHES", str(watches))

    def write(written):
        for machine, (text, ago) in written.items():
            console = consoles / machine / "console.log"
            console.parent.mkdir(parents=True, exist_ok=True)
            with console.open("a") as file:
                file.write(text)
            os.utime(console, (time.time() - ago,) * 2)

    def run(now, earlier=None, command=("/bin/sleep", "1.5"), load="0.00"):
        (tmp_path / "loadavg").write_text(f"{load} 0.00 0.00 1/100 1\n")
        monkeypatch.setenv("LOADAVG", str(tmp_path / "loadavg"))
        write(earlier or {})
        watch = subprocess.Popen([WATCH, consoles, "-test", str(SILENT_S), *command], stderr=subprocess.PIPE, text=True)
        until = time.monotonic() + 60
        while not watches.exists() and time.monotonic() < until:
            time.sleep(0.05)
        write(now)
        lines = [line for line in watch.communicate(timeout=90)[1].splitlines() if " boots, " not in line]
        names = resets.read_text().split() if resets.exists() else []
        assert [f"{line.split()[0]}-test" for line in lines] == names
        return names, watch.returncode

    return run


def test_a_machine_that_is_silent_during_its_boot_is_reset(reset):
    assert reset({"hv01": (BOOT, SILENT_S + 5)}, command=UNTIL_RESET) == (["hv01-test"], 0)


def test_the_silence_limit_is_longer_on_a_loaded_host(reset):
    assert reset({"hv01": (BOOT, 2 * SILENT_S)}, load=str(3.0 * os.cpu_count())) == ([], 0)


def test_a_machine_beyond_the_silence_limit_of_a_loaded_host_is_reset(reset):
    assert reset({"hv01": (BOOT, 4 * SILENT_S)}, command=UNTIL_RESET, load=str(3.0 * os.cpu_count())) == (
        ["hv01-test"],
        0,
    )


def test_a_machine_with_repeated_stalls_before_user_space_is_reset(reset):
    assert reset({"hv01": (BOOT + STALL + STALL, 0)}, command=UNTIL_RESET) == (["hv01-test"], 0)


def test_a_machine_whose_kernel_restarts_repeatedly_is_reset(reset):
    assert reset({"hv01": (BOOT * 6, 0)}, command=UNTIL_RESET) == (["hv01-test"], 0)


@pytest.mark.parametrize(
    ("machine", "text", "ago"),
    [
        ("hv01", BOOT, SILENT_S - 60),
        ("hv01", BOOT + STALL, 0),
        ("hv01", BOOT + STALL + LOGIN, SILENT_S + 5),
        ("hv01", BOOT + STALL + BOOT + STALL, 0),
        ("hv01", BOOT * 5, 0),
        ("hv01", BOOT * 4 + LOGIN + BOOT * 4, 0),
        ("hv01", "SeaBIOS (version 1.16.3)\n", SILENT_S + 5),
        ("off", BOOT, SILENT_S + 5),
    ],
    ids=[
        "a pause",
        "one stall",
        "up",
        "a stall in each of two boots",
        "five boots",
        "a login between boots",
        "no kernel yet",
        "stopped",
    ],
)
def test_machines_that_do_not_hang_are_not_reset(reset, machine, text, ago):
    assert reset({machine: (text, ago)}) == ([], 0)


def test_console_output_from_before_the_watch_is_ignored(reset):
    assert reset({}, earlier={"hv01": (BOOT, SILENT_S + 5)}) == ([], 0)


def test_a_machine_whose_emulator_crashes_is_started_again(reset):
    assert reset({"crashed": (BOOT + LOGIN, 0)}, command=UNTIL_RESET) == (["crashed-test"], 0)


def test_a_machine_that_crashed_before_the_watch_is_not_started(reset):
    assert reset({"gone": (BOOT + LOGIN, 0)}) == ([], 0)


def test_the_exit_status_is_that_of_the_command(reset):
    assert reset({}, command=("sh", "-c", "/bin/sleep 1; exit 3")) == ([], 3)


def test_the_last_console_line_of_a_boot_is_shown(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    (tmp_path / "virsh").write_text(VIRSH)
    (tmp_path / "virsh").chmod(0o755)
    console = tmp_path / "console.log"
    progress = [WATCH.with_name("boot-progress"), console, "hv01", "qemu:///system", "180", tmp_path / "state"]
    for text, shown in (
        (BOOT + "\x1b[0;32m  OK  \x1b[0m Reached\r\n", "  OK   Reached\n"),
        (BOOT + LOGIN, ""),
        ("BIOS\n", ""),
    ):
        console.write_text(text)
        done = subprocess.run(progress, capture_output=True, text=True, check=True)
        assert done.stdout == shown
