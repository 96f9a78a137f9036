# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Write the configuration of ConMan, which keeps the consoles of nodes in log files. Pure.

Source: conman.conf(5).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from ansible_collections.sailloft.fleet.plugins.module_utils.common.error import SailloftError

NAME = re.compile(r"[A-Za-z0-9_.-]+")
# A quote would end the string; ConMan knows no escape. A percent sign begins a conversion.
FORBIDDEN = re.compile(r'["%\x00-\x1f\x7f]')
# The lengths of IPMI 2.0, sections 22.28 and 22.30.
USER_BYTES, PASSWORD_BYTES = 16, 20
USER = re.compile(rf"[^,\s]{{1,{USER_BYTES}}}")


class ConsoleError(SailloftError):
    """A console that cannot be configured, run or read."""


@dataclass(frozen=True)
class Console:
    """The console of a node. ``device``: ipmi:ADDRESS, unix:PATH, HOST:PORT (telnet), or a program with arguments.

    ``username`` and ``password`` are for IPMI.
    """

    name: str
    device: str
    username: str = ""
    password: str = ""


def config(consoles: Sequence[Console], log_dir: str, port: int) -> str:
    """Return conman.conf: clients only from this host, each console in LOG_DIR/NAME.log. Raises ConsoleError."""
    names = [console.name for console in consoles]
    for name in names:
        if names.count(name) > 1:
            raise ConsoleError("it is there more than once", "name each console once", subject=name)
    head = [
        f'SERVER logdir="{log_dir}"',
        'SERVER logfile="conmand.log"',
        "SERVER loopback=on",
        f"SERVER port={port}",
        'GLOBAL log="%N.log"',
        'GLOBAL logopts="sanitize,timestamp"',
    ]
    return "\n".join(["# Written by Sailloft.", *head, *map(_line, consoles)]) + "\n"


def _line(console: Console) -> str:
    if not NAME.fullmatch(console.name):
        raise ConsoleError("a console's name has letters, digits, '.', '_' and '-'", "rename it", subject=console.name)
    if not console.device or FORBIDDEN.search(console.device):
        cause = f"its device {console.device!r} is empty, or has a quote, a percent sign or a control character"
        raise ConsoleError(cause, "write another one in node_bmc_console.device", subject=console.name)
    line = f'CONSOLE name="{console.name}" dev="{console.device}"'
    if not console.device.startswith("ipmi:"):
        return line
    password = console.password.encode()
    if not USER.fullmatch(console.username) or FORBIDDEN.search(console.username):
        cause = (
            f"its user is not 1 to {USER_BYTES} characters without spaces, commas and quotes, as IPMI and ConMan need"
        )
        raise ConsoleError(cause, "set node_bmc_console.username", subject=console.name)
    if not 1 <= len(password) <= PASSWORD_BYTES or b"\0" in password:
        cause = f"its password has {len(password)} bytes; IPMI takes 1 to {PASSWORD_BYTES}"
        raise ConsoleError(cause, "set node_bmc_console.password", subject=console.name)
    return f'{line} ipmiopts="U:{console.username},P:0x{password.hex()}"'
