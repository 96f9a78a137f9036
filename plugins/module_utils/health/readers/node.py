# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The node that readers read: its files below a root, its programs, and what the reader kept of its last round.

A reader is a function ``read(node: Node) -> Reading``. It runs in a process of its own, which the round kills at the
reader's deadline and leaves behind if it does not die. It may raise OSError or NotMeasuredError if it can measure
nothing at all: the round makes a Reading with this error.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import selectors
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from ansible_collections.sailloft.fleet.plugins.module_utils.common.error import SailloftError
from ansible_collections.sailloft.fleet.plugins.module_utils.health.model import Expected

# The most bytes of a file or of a program's output. nvidia-smi's XML of 16 GPUs has less than 1 MiB.
LIMIT_BYTES = 16 << 20
# Programs of which only one may run at a time on a node: each call takes the driver's locks; calls that hang pile up.
ALONE = ("nvidia-smi",)
# The most seconds to wait for the end of a program that was killed; one in the kernel (state D) may never end.
KILLED_S = 1.0
POLL_S = 0.05


class NotMeasuredError(SailloftError):
    """Nothing could be measured; ``cause`` says why: no program, no answer in time, no sense in the answer."""


class Ran(NamedTuple):
    """The answer of a program that ended by itself. A status below 0: it was ended by that signal."""

    rc: int
    stdout: str
    stderr: str


def run(argv: Sequence[str], timeout_s: float, locks: str = "", environment: Mapping[str, str] | None = None) -> Ran:
    """Run a program in the locale C, with nothing to read. Raises NotMeasuredError if it gave no complete answer.

    ``locks``: the directory of the lock that a program of ALONE holds until it has really ended. ``environment``: what
    it has beside PATH and the locale.
    """
    end = time.monotonic() + timeout_s
    name = os.path.basename(argv[0])
    if locks and name in ALONE:
        with _locked(os.path.join(locks, f"{name}.lock"), name, end) as lock:
            return _run(argv, timeout_s, end, lock, environment)
    return _run(argv, timeout_s, end, None, environment)


@contextlib.contextmanager
def _locked(path: str, name: str, end: float) -> Iterator[int]:
    """Hold a lock. The program inherits it, so that one that cannot be killed keeps it when its reader is gone."""
    lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError as error:
                if time.monotonic() >= end:
                    process = os.pread(lock, 20, 0).decode(errors="replace").strip() or "unknown"
                    raise NotMeasuredError(f"another {name} still runs (process {process})") from error
                time.sleep(POLL_S)
        yield lock
    finally:
        os.close(lock)


def _run(
    argv: Sequence[str], timeout_s: float, end: float, lock: int | None, environment: Mapping[str, str] | None
) -> Ran:
    try:
        process = subprocess.Popen(
            list(argv),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C", **(environment or {})},
            pass_fds=() if lock is None else (lock,),
        )
    except FileNotFoundError as error:
        raise NotMeasuredError(f"{argv[0]}: no such program") from error
    except OSError as error:
        raise NotMeasuredError(f"{argv[0]}: {error.strerror}") from error
    if lock is not None:
        os.ftruncate(lock, 0)
        os.pwrite(lock, str(process.pid).encode(), 0)
    try:
        stdout, stderr = _answer(process, argv[0], end)
        rc = process.wait(max(0.0, end - time.monotonic()))
    except (subprocess.TimeoutExpired, TimeoutError) as error:
        raise NotMeasuredError(f"{' '.join(argv):.100} gave no answer in {timeout_s:g} s") from error
    finally:
        _end(process)
    return Ran(rc, stdout.decode(errors="replace"), stderr.decode(errors="replace"))


def _answer(process: subprocess.Popen[bytes], name: str, end: float) -> tuple[bytes, bytes]:
    """Return all that the program writes. Raises TimeoutError, and NotMeasuredError for more than LIMIT_BYTES."""
    texts: dict[object, bytearray] = {process.stdout: bytearray(), process.stderr: bytearray()}
    with selectors.DefaultSelector() as selector:
        for stream in filter(None, (process.stdout, process.stderr)):
            selector.register(stream, selectors.EVENT_READ)
        while selector.get_map():
            ready = selector.select(max(0.0, end - time.monotonic()))
            if not ready:
                raise TimeoutError
            for key, _events in ready:
                part = os.read(key.fd, 1 << 16)
                texts[key.fileobj] += part
                if not part:
                    selector.unregister(key.fileobj)
                elif len(texts[key.fileobj]) > LIMIT_BYTES:
                    raise NotMeasuredError(f"{name} wrote more than {LIMIT_BYTES >> 20} MiB")
    return bytes(texts[process.stdout]), bytes(texts[process.stderr])


def _end(process: subprocess.Popen[bytes]) -> None:
    for stream in (process.stdout, process.stderr):
        if stream:
            stream.close()
    if process.poll() is None:
        process.kill()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(KILLED_S)


@dataclass(frozen=True)
class Node:
    """A node as its readers see it. Tests give a fake tree as ``root`` and their own ``run``."""

    expected: Expected
    root: str = "/"
    # What this reader returned as Reading.kept in the last round that was saved: its place in a log.
    kept: dict[str, str] = field(default_factory=dict)
    run: Callable[[Sequence[str], float], Ran] = run

    def path(self, path: str) -> str:
        """Return where an absolute path of the node is: "/sys/bus/pci" below the root."""
        return os.path.join(self.root, path.lstrip("/"))

    def text(self, path: str) -> str:
        """Return a file's text, at most LIMIT_BYTES of it, without white space at its ends. Raises OSError."""
        data = bytearray()
        # /proc/sys refuses a call for more than the kernel can allocate at once, 4 MiB, however short the file.
        with open(self.path(path), "rb", buffering=0) as stream:
            while len(data) < LIMIT_BYTES:
                part = stream.read(1 << 16)
                if not part:
                    break
                data += part
        return data[:LIMIT_BYTES].decode(errors="replace").strip()

    def names(self, path: str) -> list[str]:
        """Return the sorted names in a directory, none if it is absent. Raises OSError if it cannot be read."""
        try:
            return sorted(os.listdir(self.path(path)))
        except FileNotFoundError:
            return []

    @property
    def boot_id(self) -> str:
        """The kernel's random number of this boot. Raises OSError."""
        return self.text("/proc/sys/kernel/random/boot_id")
