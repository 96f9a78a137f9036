# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A file's capabilities (capabilities(7)), such as those of ping: additional rights of every user who runs it.

The kernel keeps them in the extended attribute security.capability, as struct vfs_cap_data or vfs_ns_cap_data, in
little-endian words of 32 bits. The first word has revision and flags; words of the permitted and of the inheritable set
follow alternately; in revision 3 the last word is the user of their namespace. Source: Linux'
include/uapi/linux/capability.h. getcap is not used: it is one process for each file, and prints no users of namespaces.
"""

from __future__ import annotations

import errno
import os
import struct

ATTRIBUTE = "security.capability"
# The names of the capabilities, in the order of their numbers.
NAMES = (
    "chown",
    "dac_override",
    "dac_read_search",
    "fowner",
    "fsetid",
    "kill",
    "setgid",
    "setuid",
    "setpcap",
    "linux_immutable",
    "net_bind_service",
    "net_broadcast",
    "net_admin",
    "net_raw",
    "ipc_lock",
    "ipc_owner",
    "sys_module",
    "sys_rawio",
    "sys_chroot",
    "sys_ptrace",
    "sys_pacct",
    "sys_admin",
    "sys_boot",
    "sys_nice",
    "sys_resource",
    "sys_time",
    "sys_tty_config",
    "mknod",
    "lease",
    "audit_write",
    "audit_control",
    "setfcap",
    "mac_override",
    "mac_admin",
    "syslog",
    "wake_alarm",
    "block_suspend",
    "audit_read",
    "perfmon",
    "bpf",
    "checkpoint_restore",
)
EFFECTIVE = 1
WORDS = {0x01000000: 3, 0x02000000: 5, 0x03000000: 6}  # revision -> number of words


def read(path: str) -> str:
    """Return the attribute of the file itself as hexadecimal text; empty if it has none. Raises OSError."""
    try:
        return os.getxattr(path, ATTRIBUTE, follow_symlinks=False).hex()
    except OSError as error:
        if error.errno in (errno.ENODATA, errno.ENOTSUP):
            return ""
        raise


def text(value: str | None) -> str:
    """Return a result of ``read`` as readable text: "cap_net_raw=ep". An unknown form is returned unchanged."""
    if not value:
        return "none"
    try:
        data = bytes.fromhex(value)
        numbers = struct.unpack(f"<{len(data) // 4}I", data)
    except (ValueError, struct.error):
        return value
    if not numbers or WORDS.get(numbers[0] & 0xFF000000) != len(numbers):
        return value
    pairs = numbers[1:3] if len(numbers) == 3 else numbers[1:5]
    permitted, inheritable = (sum(word << 32 * index for index, word in enumerate(pairs[side::2])) for side in (0, 1))
    sets: dict[str, list[str]] = {}
    for number in range(64):
        letters = "e" if numbers[0] & EFFECTIVE and (permitted | inheritable) >> number & 1 else ""
        letters += ("i" if inheritable >> number & 1 else "") + ("p" if permitted >> number & 1 else "")
        if letters:
            sets.setdefault(letters, []).append(f"cap_{NAMES[number] if number < len(NAMES) else number}")
    text = " ".join(f"{','.join(names)}={letters}" for letters, names in sorted(sets.items())) or "none set"
    return f"{text} (user {numbers[5]})" if len(numbers) == 6 else text
