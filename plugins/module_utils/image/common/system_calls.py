# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The filter of a room's system calls, as a program of seccomp(2).

A room's root has the kernel's user id 0, to which the root user's keys on the build host belong too. So a room has no
call of keyrings. The other calls are those of which namespaces do not exist (VSOCK, the kernel's log), or that
container engines refuse since they had most of the kernel's faults.
"""

from __future__ import annotations

import errno
import platform
import struct

from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.errors import ImageError

# linux/audit.h. By machine, in the order of the columns below.
ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
# arch/x86/entry/syscalls/syscall_64.tbl and include/uapi/asm-generic/unistd.h.
REFUSED = {
    "add_key": (248, 217),
    "request_key": (249, 218),
    "keyctl": (250, 219),
    "syslog": (103, 116),
    "open_by_handle_at": (304, 265),
    "perf_event_open": (298, 241),
    "bpf": (321, 280),
    "userfaultfd": (323, 282),
    "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
}
SOCKET = (41, 198)
FAMILIES = (1, 2, 10, 16)  # AF_UNIX, AF_INET, AF_INET6, AF_NETLINK
# x86-64's second numbering of calls (x32) begins here.
FIRST_X32 = 0x40000000
# linux/filter.h, linux/bpf_common.h: load a word, jump if equal, jump if at least, return.
LOAD, IF_EQUAL, IF_LEAST, RETURN = 0x20, 0x15, 0x35, 0x06
# Offsets in struct seccomp_data (linux/seccomp.h).
NUMBER, ARCHITECTURE, FIRST_ARGUMENT = 0, 4, 16
ALLOW, ERROR = 0x7FFF0000, 0x00050000


def program() -> bytes:
    """Return the filter for this machine. Raises ImageError for a machine whose calls are not known."""
    machine = platform.machine()
    if machine not in ARCHITECTURES:
        raise ImageError(
            f"a build cannot be closed on the architecture {machine}",
            f"build on {' or '.join(ARCHITECTURES)}",
            subject=f"build host {platform.node()}",
        )
    column = list(ARCHITECTURES).index(machine)
    steps = [
        (LOAD, 0, 0, ARCHITECTURE),
        # Programs of another architecture, such as i386, have other numbers.
        (IF_EQUAL, 1, 0, ARCHITECTURES[machine]),
        (RETURN, 0, 0, ERROR | errno.ENOSYS),
        (LOAD, 0, 0, NUMBER),
        (IF_LEAST, 0, 1, FIRST_X32),
        (RETURN, 0, 0, ERROR | errno.ENOSYS),
    ]
    for numbers in REFUSED.values():
        steps += [(IF_EQUAL, 0, 1, numbers[column]), (RETURN, 0, 0, ERROR | errno.ENOSYS)]
    # The end: a socket of another family is refused, everything else is allowed.
    steps += [(IF_EQUAL, 0, len(FAMILIES) + 2, SOCKET[column]), (LOAD, 0, 0, FIRST_ARGUMENT)]
    steps += [(IF_EQUAL, len(FAMILIES) - index, 0, family) for index, family in enumerate(FAMILIES)]
    steps += [(RETURN, 0, 0, ERROR | errno.EAFNOSUPPORT), (RETURN, 0, 0, ALLOW)]
    return b"".join(struct.pack("<HBBI", *step) for step in steps)
