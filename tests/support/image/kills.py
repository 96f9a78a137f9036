# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Kill code at each point at which it changes files: in a child process that ends without any clean-up."""

from __future__ import annotations

import os
import resource
import signal
import sys
import traceback
from collections.abc import Callable, Iterator

# Python's audit events of system calls that change a directory; "open" is one of them if it is for writing. Source:
# Python's documentation, "Audit events table".
CHANGING = {"os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.chmod"}
KILLED = 77


def _child(prepare: Callable[[], None], act: Callable[[], object]) -> int:
    """Run in a child; return the exit code of its wait status, which is negative for a signal."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            prepare()
            act()
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def kill_before(count: int, act: Callable[[], object]) -> bool:
    """Run ``act`` in a child that ends just before its ``count``-th change (from 1); return whether it got that far."""
    seen = 0

    def hook(event: str, arguments: tuple) -> None:
        nonlocal seen
        writes = event == "open" and isinstance(arguments[2], int) and arguments[2] & (os.O_WRONLY | os.O_RDWR)
        if event in CHANGING or writes:
            seen += 1
            if seen == count:
                os._exit(KILLED)

    status = _child(lambda: sys.addaudithook(hook), act)
    assert status in (0, KILLED)
    return status == KILLED


def kills(act: Callable[[], object], again: Callable[[], None]) -> Iterator[int]:
    """Kill ``act`` before its first change, its second and so on; ``again`` restores the state before."""
    count = 1
    while True:
        again()
        if not kill_before(count, act):
            return
        yield count
        count += 1


def kill_while_writing(limit_bytes: int, act: Callable[[], object]) -> None:
    """Run ``act`` in a child that the kernel kills when it writes beyond ``limit_bytes`` of any file."""

    def prepare() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit_bytes, limit_bytes))

    assert _child(prepare, act) == -signal.SIGXFSZ


def fail_while_writing(limit_bytes: int, act: Callable[[], object]) -> None:
    """Run ``act``, which must not raise, in a child whose writes beyond ``limit_bytes`` of any file fail (EFBIG)."""

    def prepare() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit_bytes, limit_bytes))

    assert _child(prepare, act) == 0
