# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The QEMU process of a running domain, as the kernel sees it: its arguments, its memory, its threads."""

from __future__ import annotations

import os
import re
from typing import Any

from ansible_collections.sailloft.fleet.plugins.module_utils.common.ranges import parse_ranges
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.common.errors import DomainError

PID_FILES = "/run/libvirt/qemu"
VCPU_THREAD = re.compile(r"CPU (\d+)/\w+")


def read(name: str, proc: str = "/proc", pid_files: str = PID_FILES) -> dict[str, Any] | None:
    """Read the facts of the QEMU process of domain ``name``; return None if there is none (any more).

    Keys: pid, arguments, accelerated, memory (see ``memory_map``), locked_bytes, pinning (vCPU as text: host CPUs),
    emulator_cpus. Raises DomainError if reading the process is not permitted.
    """
    try:
        with open(f"{pid_files}/{name}.pid", encoding="ascii") as file:
            pid = int(file.read())
        base = f"{proc}/{pid}"
        arguments = _text(f"{base}/cmdline").rstrip("\0").split("\0")
        pinning, emulator = {}, []
        for thread in sorted(os.listdir(f"{base}/task"), key=int):
            match = VCPU_THREAD.fullmatch(_text(f"{base}/task/{thread}/comm").strip())
            cpus = parse_ranges(_field(_text(f"{base}/task/{thread}/status"), "Cpus_allowed_list") or "")
            if match:
                pinning[match[1]] = cpus
            elif int(thread) == pid:
                emulator = cpus
        locked = _field(_text(f"{base}/status"), "VmLck") or "0 kB"
        return {
            "pid": pid,
            "arguments": arguments,
            "accelerated": is_accelerated(arguments),
            "memory": memory_map(_text(f"{base}/numa_maps")),
            "locked_bytes": int(locked.split()[0]) * 1024,
            "pinning": pinning,
            "emulator_cpus": emulator,
        }
    except (FileNotFoundError, ProcessLookupError):
        return None
    except PermissionError as error:
        raise DomainError(
            f"its QEMU process cannot be read ({error})", "run the module as root", domain=name
        ) from error


def is_accelerated(arguments: list[str]) -> bool:
    """Return True if the arguments make QEMU use KVM."""
    text = " ".join(arguments)
    return bool(re.search(r"(accel[ =]kvm|-enable-kvm|-accel kvm)", text))


def memory_map(numa_maps: str) -> list[dict[str, Any]]:
    """Return the huge-page mappings of /proc/PID/numa_maps, summed by page size and policy.

    Each row: {"page_bytes": 2097152, "policy": "bind:0", "pages_by_node": {"0": 256}}, sorted. Format:
    Documentation/admin-guide/mm/numa_memory_policy and mm/hugetlbfs of Linux, fs/proc/task_mmu.c.
    """
    rows: dict[tuple[int, str], dict[str, int]] = {}
    for line in numa_maps.splitlines():
        columns = line.split()
        if "huge" not in columns[2:]:
            continue
        values = dict(word.partition("=")[::2] for word in columns[2:])
        pages = rows.setdefault((int(values.get("kernelpagesize_kB", "0")) * 1024, columns[1]), {})
        for key, value in values.items():
            if re.fullmatch(r"N\d+", key):
                pages[key[1:]] = pages.get(key[1:], 0) + int(value)
    return [
        {"page_bytes": size, "policy": policy, "pages_by_node": dict(sorted(pages.items()))}
        for (size, policy), pages in sorted(rows.items())
    ]


def _field(status: str, name: str) -> str | None:
    for line in status.splitlines():
        key, _colon, value = line.partition(":")
        if key == name:
            return value.strip()
    return None


def _text(path: str) -> str:
    with open(path, encoding="utf-8", errors="replace") as file:
        return file.read()
