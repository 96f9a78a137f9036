# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Boot a plan's PCI tree in an emulated guest until the firmware has enumerated it as planned, or until a timeout."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import tempfile
import time
from typing import Any

from ansible_collections.sailloft.fleet.plugins.module_utils.vm.common.errors import DomainError
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.plan.plan import DomainPlan
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.trial import stand_ins

QEMU = "qemu-system-x86_64"
# The paths of the images: first Debian and Ubuntu, then Fedora and RHEL. SeaBIOS has the same path in all of them.
IMAGES = {
    "efi": ("/usr/share/OVMF/OVMF_CODE_4M.fd", "/usr/share/edk2/ovmf/OVMF_CODE.fd"),
    "bios": ("/usr/share/seabios/bios-256k.bin",),
}
PACKAGES = {"efi": "ovmf (Debian, Ubuntu) or edk2-ovmf (Fedora, RHEL)", "bios": "seabios or seabios-bin"}
# The trial of a correct plan ends before this; a wide OVMF window on a busy machine took 95 s.
TIMEOUT_S = 300
POLL_S = 0.25


def run(
    plan: DomainPlan, firmware: str | None = None, qemu_binary: str = QEMU, timeout_s: float = TIMEOUT_S
) -> dict[str, Any]:
    """Boot ``plan`` with ``firmware`` ("efi", "bios"; None: the plan's) and compare what it enumerates with the plan.

    Returns firmware, as_planned, seconds, findings (``Mismatch.to_dict``) and left_out (sentences). Everything that is
    not as planned after ``timeout_s`` is a finding. QEMU is terminated in every case. Raises DomainError if QEMU or
    the firmware is missing, or if QEMU refuses the arguments.
    """
    firmware = firmware or plan.spec.firmware
    image = _image(plan, firmware)
    binary = shutil.which(qemu_binary)
    if binary is None:
        raise DomainError(
            f"no {qemu_binary} to boot the plan with",
            "install qemu-system-x86 (Debian, Ubuntu) or qemu-system-x86-core (Fedora), or leave boot_trial out",
            domain=plan.name,
        )
    start = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="sailloft-boot-") as folder:
        path = os.path.join(folder, "qmp")
        command = [binary, *stand_ins.arguments(plan, firmware, image), "-qmp", f"unix:{path},server=on,wait=off"]
        with open(os.path.join(folder, "stderr"), "w+b") as errors:
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=errors, stderr=errors)
            try:
                findings = _watch(plan, process, path, start + timeout_s)
            except OSError as error:
                errors.seek(0)
                message = errors.read().decode(errors="replace").strip() or str(error)
                raise DomainError(f"QEMU does not boot the plan: {message}", domain=plan.name) from error
            finally:
                process.kill()
                process.wait()
    return {
        "firmware": firmware,
        "as_planned": not findings,
        "seconds": round(time.monotonic() - start, 1),
        "findings": [finding.to_dict() for finding in findings],
        "left_out": stand_ins.left_out(plan),
    }


def prove(plan: DomainPlan) -> dict[str, Any]:
    """Call ``run`` with the plan's firmware. Raises DomainError that names the first thing that is not as planned."""
    result = run(plan)
    if not result["as_planned"]:
        messages = [finding["message"] for finding in result["findings"]]
        raise DomainError(
            f"booted with {result['firmware']} for {result['seconds']:.0f} s, {len(messages)} things are not as "
            f"planned: {'; '.join(messages[:3])}",
            "the planner is wrong: report it with the topology",
            domain=plan.name,
        )
    return result


def _image(plan: DomainPlan, firmware: str) -> str:
    for path in IMAGES[firmware]:
        if os.path.exists(path):
            return path
    raise DomainError(
        f"no image of firmware {firmware} to boot the plan with, looked for {', '.join(IMAGES[firmware])}",
        f"install {PACKAGES[firmware]}",
        domain=plan.name,
    )


def _watch(plan: DomainPlan, process: subprocess.Popen[bytes], path: str, end: float) -> list[stand_ins.Mismatch]:
    """Poll QEMU until everything is as planned, or until ``end``. Raises OSError if QEMU ends."""
    with socket.socket(socket.AF_UNIX) as connection:
        while True:
            try:
                connection.connect(path)
                break
            except OSError:
                if process.poll() is not None or time.monotonic() > end:
                    raise
                time.sleep(POLL_S)
        connection.settimeout(max(end - time.monotonic(), 1))
        with connection.makefile("rwb") as stream:
            _line(stream)
            _ask(stream, "qmp_capabilities")
            while True:
                findings = stand_ins.compare(plan, _ask(stream, "query-pci"))
                if not findings or time.monotonic() > end:
                    return findings
                time.sleep(POLL_S)


def _ask(stream: Any, command: str) -> Any:
    stream.write(json.dumps({"execute": command}).encode() + b"\n")
    stream.flush()
    while True:
        answer = _line(stream)
        # QEMU also sends events between its answers.
        if "return" in answer:
            return answer["return"]
        if "error" in answer:
            raise OSError(f"QMP {command}: {answer['error']['desc']}")


def _line(stream: Any) -> Any:
    line = stream.readline()
    try:
        return json.loads(line)
    except ValueError as error:
        raise OSError("QEMU ended") from error
