# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Trials with a program in QEMU's place that speaks QMP: it is polled until all is as planned, and always ended."""

from __future__ import annotations

import json
import os
import socket
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from machines import lab, plan
from messages import raises

from ansible_collections.sailloft.fleet.plugins.module_utils.vm.common.errors import DomainError
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.plan.plan import DomainPlan
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.trial import boot, stand_ins

# The program answers each command with the next of its answers; events come between them.
QEMU = """#!{python}
import json, os, socket, sys
answers = json.loads({answers!r})
server = socket.socket(socket.AF_UNIX)
server.bind(sys.argv[-1].split(":", 1)[1].split(",")[0])
server.listen()
with open({record!r}, "w") as record:
    json.dump([os.getpid(), sys.argv[1:], []], record)
stream = server.accept()[0].makefile("rwb")
def send(data):
    stream.write(json.dumps(data).encode() + b"\\n")
    stream.flush()
send({{"QMP": {{}}}})
asked = []
while True:
    line = stream.readline()
    if not line:
        sys.exit()
    asked.append(json.loads(line)["execute"])
    with open({record!r}, "w") as record:
        json.dump([os.getpid(), sys.argv[1:], asked], record)
    send({{"event": "RESUME"}})
    send({{"return": {{}}}} if asked[-1] == "qmp_capabilities" else answers.pop(0) if len(answers) > 1 else answers[0])
"""


class Trial:
    """A trial of a plan with nothing but a device of the guest's own."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder, self.record = folder, folder / "record"
        self.image = folder / "image"
        self.image.touch()
        monkeypatch.setattr(boot, "POLL_S", 0.01)
        monkeypatch.setattr(boot, "IMAGES", dict.fromkeys(("efi", "bios"), (str(folder / "no"), str(self.image))))

    def run(self, *answers: dict[str, Any], firmware: str | None = None, timeout_s: float = 20) -> dict[str, Any]:
        """Return the result of a trial in which QEMU gives these answers, the last one again and again."""
        program = self.folder / "qemu"
        text = QEMU.format(python=sys.executable, answers=json.dumps(answers), record=str(self.record))
        program.write_text(text)
        program.chmod(0o755)
        return boot.run(small(), firmware, str(program), timeout_s)

    @property
    def seen(self) -> tuple[int, list[str], list[str]]:
        """Return the program's process id, its arguments, and the commands that it got."""
        pid, arguments, commands = json.loads(self.record.read_text())
        return pid, arguments, commands


@pytest.fixture
def trial(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Trial:
    return Trial(tmp_path, monkeypatch)


def small(**changes: Any) -> DomainPlan:
    request = {"gpus": {}, "nics": {}, "disks": [], "interfaces": [], "vcpus": 1, "memory_mib": 1024}
    return plan(lab(), **{**request, **changes})


def answer() -> dict[str, Any]:
    """Return the answer of a guest that is as planned: a port with the serial device."""
    port = small().root.ports[0]
    device = {"bus": port.bus, "slot": 0, "function": 0, "qdev_id": "serial-0", "regions": []}
    span = {"base": 1, "limit": 0}
    bus = {"secondary": port.bus, "subordinate": port.last_bus, "prefetchable_range": span}
    bridge = {"bus": 0, "slot": port.slot, "function": 0, "qdev_id": f"port{port.index}", "regions": []}
    return {"return": [{"devices": [{**bridge, "pci_bridge": {"bus": bus, "devices": [device]}}]}]}


NOTHING = {"return": [{"devices": []}]}
MISSING = [
    "pcie-root-port 1: planned at 0000:00:02.0, found nowhere: the firmware did not reach it",
    "virtio serial 0: planned at 0000:01:00.0, found nowhere: the firmware did not reach it",
]


def ended(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


def test_a_guest_is_polled_until_it_is_as_planned(trial):
    result = trial.run(NOTHING, NOTHING, answer())
    assert result.pop("seconds") >= 0
    assert result == {"firmware": "efi", "as_planned": True, "findings": [], "left_out": []}
    pid, arguments, commands = trial.seen
    assert commands == ["qmp_capabilities", "query-pci", "query-pci", "query-pci"]
    assert arguments[:-2] == stand_ins.arguments(small(), "efi", str(trial.image))
    assert arguments[-2] == "-qmp"
    assert ended(pid)


def test_the_firmware_of_a_trial_may_be_another_than_the_plans(trial):
    assert trial.run(answer(), firmware="bios")["firmware"] == "bios"
    assert "-bios" in trial.seen[1]


@pytest.mark.parametrize(("last", "polls"), [(19.9, 2), (20, 2), (20.1, 1)])
def test_a_guest_that_is_not_as_planned_in_time_has_findings(trial, monkeypatch, last, polls):
    """The clock stands still until the first answer, and jumps to ``last`` and then far ahead after each."""
    compare, times = stand_ins.compare, [last, 1000.0]
    clock = SimpleNamespace(now=0.0, monotonic=lambda: clock.now, sleep=time.sleep)

    def late(of: DomainPlan, answer: Any) -> Any:
        clock.now = times.pop(0)
        return compare(of, answer)

    monkeypatch.setattr(boot, "time", clock)
    monkeypatch.setattr(stand_ins, "compare", late)
    result = trial.run(NOTHING)
    assert (result["as_planned"], [item["message"] for item in result["findings"]]) == (False, MISSING)
    pid, _arguments, commands = trial.seen
    assert commands == ["qmp_capabilities", *["query-pci"] * polls]
    assert result["seconds"] == (1000.0 if polls == 2 else last)
    assert ended(pid)


@pytest.mark.parametrize(("timeout_s", "waits_s"), [(20, 20), (1, 1), (0.5, 1)])
def test_an_answer_is_awaited_until_the_end_of_the_trial_or_for_a_second(trial, monkeypatch, timeout_s, waits_s):
    waited: list[float] = []

    class Socket(socket.socket):
        def settimeout(self, value: float) -> None:
            waited.append(value)
            super().settimeout(10)

    monkeypatch.setattr(boot, "time", SimpleNamespace(monotonic=lambda: 5.0, sleep=time.sleep))
    monkeypatch.setattr(boot.socket, "socket", Socket)
    assert trial.run(answer(), timeout_s=timeout_s)["as_planned"] is True
    assert waited == [waits_s]


def test_an_error_of_qmp_is_an_error(trial):
    with raises(DomainError, "gpu-vm", "query-pci: no PCI"):
        trial.run({"error": {"desc": "no PCI"}})
    assert ended(trial.seen[0])


@pytest.mark.parametrize(
    ("count", "told"), [(1, "1 things are not as planned: a"), (4, "4 things are not as planned: a; b; c")]
)
def test_the_first_three_findings_of_a_failed_trial_are_an_error(monkeypatch, count, told):
    findings = [{"message": text} for text in "abcd"[:count]]
    result = {"as_planned": False, "firmware": "efi", "seconds": 12.6, "findings": findings}
    monkeypatch.setattr(boot, "run", lambda _plan: result)
    with raises(DomainError, "gpu-vm", "efi", "13 s", told):
        boot.prove(small())
    result["as_planned"] = True
    assert boot.prove(small()) is result


def test_missing_parts_are_named_with_their_packages(tmp_path, monkeypatch):
    monkeypatch.setattr(boot, "IMAGES", {"efi": ("/no/a", "/no/b"), "bios": ("/no/c",)})
    with raises(DomainError, "gpu-vm", "efi", "/no/a", "/no/b", "ovmf", "edk2-ovmf"):
        boot.run(small())
    with pytest.raises(DomainError) as caught:
        boot.run(small(), "bios")
    assert str(caught.value).endswith("looked for /no/c; install seabios or seabios-bin")
    (tmp_path / "image").touch()
    monkeypatch.setattr(boot, "IMAGES", {"efi": (str(tmp_path / "image"),)})
    with raises(DomainError, "gpu-vm", "no-such-qemu", "qemu-system-x86", "qemu-system-x86-core", "boot_trial"):
        boot.run(small(), qemu_binary="no-such-qemu")


def test_the_longest_trial_is_five_minutes():
    assert (boot.TIMEOUT_S, boot.POLL_S) == (300, 0.25)
