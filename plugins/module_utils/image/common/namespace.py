# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Processes beside this one: a build with its own mounts and processes, which end with it, and a signer."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import signal
import sys
import traceback
from collections.abc import Callable, Iterator

from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.errors import ImageError

# linux/sched.h, linux/mount.h, linux/prctl.h. Python has os.unshare only from 3.12 on, and no mount.
CLONE_NEWNS = 0x00020000
CLONE_NEWPID = 0x20000000
MS_REC = 0x4000
MS_PRIVATE = 1 << 18
MS_NOSUID, MS_NODEV, MS_NOEXEC = 2, 4, 8
PR_SET_PDEATHSIG = 1


def isolated(work: Callable[[], object]) -> None:
    """Run ``work`` in a process with its own mount and PID namespaces, and wait for it.

    The process is the first of its PID namespace and ends with its parent, even if that is killed by SIGKILL. The
    kernel then kills all processes that it started, and removes the mounts and loop devices with the last of them.
    Raises the errors of ``work`` as ImageError, and ImageError if the kernel refuses namespaces.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    reading, writing = os.pipe()
    sys.stdout.flush()
    sys.stderr.flush()
    middle = os.fork()
    if middle == 0:
        # unshare() puts only child processes into the new PID namespace, so a second fork is needed. The module's own
        # process must not enter the new namespaces, so it does not call unshare() itself.
        os.close(reading)
        code = 1
        try:
            libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
            if libc.unshare(CLONE_NEWNS | CLONE_NEWPID):
                number = ctypes.get_errno()
                raise ImageError(
                    f"the kernel does not allow namespaces: {os.strerror(number)}",
                    "build as root, outside of a container",
                    subject="the build",
                )
            first = os.fork()
            if first == 0:
                libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
                with _telling(writing):
                    _mount_proc(libc)
                    work()
                os._exit(0)
            code = os.waitstatus_to_exitcode(os.waitpid(first, 0)[1])
        except ImageError as error:
            _tell(writing, error)
        finally:
            os._exit(code)
    os.close(writing)
    with os.fdopen(reading, "rb") as stream:
        answer = stream.read()
    status = os.waitstatus_to_exitcode(os.waitpid(middle, 0)[1])
    if answer:
        raise ImageError(**json.loads(answer))
    if status:
        raise ImageError("was terminated from outside", "run again: complete layers are kept", subject="the build")


def apart(work: Callable[[], bytes]) -> bytes:
    """Return the result of ``work``, done by another process. Raises its ImageError."""
    reading, writing = os.pipe()
    sys.stdout.flush()
    sys.stderr.flush()
    child = os.fork()
    if child == 0:
        os.close(reading)
        code = 1
        with _telling(writing):
            _write(writing, work())
            code = 0
        os._exit(code)
    os.close(writing)
    with os.fdopen(reading, "rb") as stream:
        answer = stream.read()
    if os.waitpid(child, 0)[1] == 0:
        return answer
    if answer:
        raise ImageError(**json.loads(answer))
    raise ImageError("its process was terminated", "run again: complete layers are kept", subject="the signature")


def _mount_proc(libc: ctypes.CDLL) -> None:
    """Mount /proc of the new namespace, with mounts that no other namespace sees."""
    if libc.mount(b"none", b"/", None, MS_REC | MS_PRIVATE, None) or libc.mount(
        b"proc", b"/proc", b"proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, None
    ):
        raise ImageError(
            f"mounting is not allowed: {os.strerror(ctypes.get_errno())}",
            "build as root, outside of a container",
            subject="the build",
        )


@contextlib.contextmanager
def _telling(writing: int) -> Iterator[None]:
    """Tell an error to the parent."""
    try:
        yield
    except ImageError as error:
        _tell(writing, error)
    except OSError as error:
        _tell(
            writing,
            ImageError(
                error.strerror or str(error), "fix it and run again", subject=str(error.filename or "the build")
            ),
        )
    except BaseException:
        _tell(
            writing,
            ImageError(f"internal error in the builder:\n{traceback.format_exc()}", "report it", subject="the build"),
        )


def _tell(writing: int, error: ImageError) -> None:
    _write(writing, json.dumps({"subject": error.subject, "cause": error.cause, "remedy": error.remedy}).encode())


def _write(writing: int, data: bytes) -> None:
    while data:
        data = data[os.write(writing, data) :]
