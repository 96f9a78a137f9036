# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Read the state of a running node: its boot report, the progress of systemd, and failures."""

from __future__ import annotations

import os
import re
from dataclasses import asdict
from typing import Any, Callable

from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.errors import ImageError
from ansible_collections.sailloft.fleet.plugins.module_utils.image.node import measurements
from ansible_collections.sailloft.fleet.plugins.module_utils.image.node.boot_report import FORMAT, PATH, load

# Properties of systemd's manager (org.freedesktop.systemd1(5)), in microseconds of CLOCK_MONOTONIC, which starts with
# the kernel; 0 until the point is reached.
_POINTS = {
    "userspace_s": "UserspaceTimestampMonotonic",
    "finished_s": "FinishTimestampMonotonic",
}
_ASK = ["systemctl", "show", "--property=" + ",".join(["SystemState", *_POINTS.values()])]
_ASK_FAILED = ["systemctl", "list-units", "--state=failed", "--all", "--plain", "--no-legend", "--full", "--no-pager"]

# Arguments that the boot loader and the boot scripts add to the command line, not requested by the image or the node.
_OF_THE_BOOT = re.compile(r"(sailloft\.(image|servers|node|report|nics|signed)|BOOTIF|BOOT_IMAGE|initrd)(=.*)?")

# UEFI specification, "Globally Defined Variables": 1 if the firmware starts only signed programs. Linux puts 4 bytes of
# attributes before it.
SECURE_BOOT = "/sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c"

Run = Callable[[list[str]], "tuple[int, str, str]"]


def read(subject: str, run: Run, root: str = "/") -> dict[str, Any]:
    """Return the state of the node ``subject``: the result of the module node_image_info, without ``changed``.

    ``run`` takes a command's words and returns its status, output and errors. Raises ImageError if the report exists
    and cannot be used, or systemd does not answer.
    """
    kernel = _read(root, "proc/sys/kernel/osrelease").strip()
    command_line = _read(root, "proc/cmdline").strip()
    state, times = _systemd(subject, run)
    report, reason = read_report(subject, root)
    return {
        "image": report["image"] if report else None,
        "report": report,
        "reason": reason,
        "uptime_s": float(_read(root, "proc/uptime").split()[0]),
        "boot_id": _read(root, "proc/sys/kernel/random/boot_id").strip(),
        "kernel": kernel,
        "command_line": command_line,
        "arguments": requested_arguments(command_line),
        "boot_arguments": [word for word in command_line.split() if _OF_THE_BOOT.fullmatch(word)],
        "host_key": _host_key(root),
        "secure_boot": _secure_boot(root),
        "pcrs": measurements.read_pcrs(root),
        "firmware_log": measurements.read_log(os.path.join(root, measurements.LOG)),
        "has_identity": os.path.exists(os.path.join(root, "usr/lib/sailloft/identity")),
        "verity_possible": _has_verity(root, kernel),
        "systemd": {"state": state, **times},
        "failed_units": _failed_units(subject, run),
    }


def requested_arguments(command_line: str) -> list[str]:
    """Return the arguments of ``command_line`` that image and node request, in order, without those the boot adds."""
    return [argument for argument in command_line.split() if not _OF_THE_BOOT.fullmatch(argument)]


def read_report(subject: str, root: str = "/") -> tuple[dict[str, Any] | None, str]:
    """Return the first stage's report, or None and the reason. Raises ImageError if it cannot be used."""
    try:
        text = _read(root, PATH.lstrip("/"))
    except FileNotFoundError:
        return None, (
            f"{subject} did not boot a Sailloft image: it has no {PATH}; "
            "it runs what is on its disk, or an image of another system"
        )
    except OSError as error:
        raise ImageError(
            f"cannot read {PATH}: {error.strerror}", "read it as root (become)", subject=subject
        ) from error
    return {"format": FORMAT, **asdict(load(text, subject))}, ""


def _read(root: str, path: str) -> str:
    with open(os.path.join(root, path), encoding="utf-8", errors="replace") as stream:
        return stream.read()


def _host_key(root: str) -> str:
    """Return type and key of the node's Ed25519 host key, empty if it has none."""
    try:
        return " ".join(_read(root, "etc/ssh/ssh_host_ed25519_key.pub").split()[:2])
    except OSError:
        return ""


def _secure_boot(root: str) -> bool | None:
    """Return whether Secure Boot is on; None if that cannot be read, as on a node with BIOS."""
    try:
        with open(os.path.join(root, SECURE_BOOT.lstrip("/")), "rb") as stream:
            return stream.read()[4:] == b"\x01"
    except OSError:
        return None


def _has_verity(root: str, kernel: str) -> bool:
    """Return whether the kernel has dm-verity: loaded, built in, or as a module that can be loaded."""
    if os.path.isdir(os.path.join(root, "sys/module/dm_verity")):
        return True
    for index in ("modules.builtin", "modules.dep"):
        try:
            if "/dm-verity.ko" in _read(root, f"lib/modules/{kernel}/{index}"):
                return True
        except OSError:
            continue
    return False


def _systemd(subject: str, run: Run) -> tuple[str, dict[str, float | None]]:
    status, output, errors = run(_ASK)
    if status != 0:
        raise _silent(subject, _ASK, errors or output)
    values = dict(line.split("=", 1) for line in output.splitlines() if "=" in line)
    times = {name: int(values.get(key) or 0) for name, key in _POINTS.items()}
    return values.get("SystemState", ""), {name: round(time / 1e6, 3) or None for name, time in times.items()}


def _failed_units(subject: str, run: Run) -> list[str]:
    status, output, errors = run(_ASK_FAILED)
    if status != 0:
        raise _silent(subject, _ASK_FAILED, errors or output)
    return sorted(line.split()[0] for line in output.splitlines() if line.strip())


def _silent(subject: str, command: list[str], output: str) -> ImageError:
    reason = f"{' '.join(command[:2])} failed: {' '.join(output.split()) or 'no output'}"
    return ImageError(reason, "check its console: a node must run systemd", subject=subject)
