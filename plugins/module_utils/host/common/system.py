# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Access to the machine: files below a root, and commands. All that ``host`` does to a machine uses this module.

The root is a parameter, so that the same code works on a copy of ``/sys`` in a test and on the live one.
"""

from __future__ import annotations

import contextlib
import errno
import io
import os
import stat
import subprocess

from ansible_collections.sailloft.fleet.plugins.module_utils.common.disk import write_atomic
from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.errors import HostError, KernelRefusedError

# The most links that Linux follows in one path: include/linux/namei.h, MAXSYMLINKS.
LINKS_MAX = 40
SELINUX = "security.selinux"


def root_remedy(error: OSError, otherwise: str) -> str:
    """Return the remedy of a refused access: to run as root where that is the cause, else ``otherwise``."""
    denied = error.errno in (errno.EACCES, errno.EPERM) and os.geteuid() != 0
    return f"run as root (become: true); this ran as user {os.geteuid()}" if denied else otherwise


def refusal(path: str, data: bytes, offset: int, reason: str) -> str:
    """Return the message for a refused write, which shows text as it is and a register as a number."""
    value = f"{int.from_bytes(data, 'little'):#x} at offset {offset:#x}" if offset else repr(data.decode())
    return f"the kernel refused to write {value} to {path}: {reason}"


class System:
    """A machine whose file system begins at ``root``."""

    def __init__(self, root: str = "/") -> None:
        self.root = root

    def path(self, path: str) -> str:
        """Return the path below ``root`` of the machine's ``path``."""
        return os.path.join(self.root, path.lstrip("/"))

    def machine(self) -> str:
        """Return the processor architecture as ``uname -m`` has it; in an image's root, that of the build host."""
        return os.uname().machine

    def exists(self, path: str) -> bool:
        """Return True if there is anything at ``path``; a dangling link counts."""
        return os.path.lexists(self.path(path))

    def names(self, path: str) -> list[str]:
        """Return the sorted names in a directory; empty if there is no such directory."""
        try:
            return sorted(os.listdir(self.path(path)))
        except (FileNotFoundError, NotADirectoryError):
            return []

    def link_name(self, path: str) -> str | None:
        """Return the last part of a link's target ("vfio-pci"); None if there is no link."""
        try:
            return os.path.basename(os.readlink(self.path(path)))
        except OSError:
            return None

    def read(self, path: str) -> str | None:
        """Return the text of a file, stripped; None if there is none. Raises HostError if it cannot be read."""
        content = self.read_bytes(path)
        # StringIO makes all ends of lines "\n", as a file that is opened as text does.
        return None if content is None else io.StringIO(content.decode(errors="replace"), newline=None).read().strip()

    def read_bytes(self, path: str) -> bytes | None:
        """Return the whole content of a file; None if there is none. Raises HostError if it cannot be read."""
        try:
            with open(self.path(path), "rb") as file:
                return file.read()
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise HostError(
                f"cannot read {path}: {error.strerror}", root_remedy(error, "look at its file system")
            ) from error

    def is_executable(self, path: str) -> bool:
        """Return True if there is a program at ``path``."""
        return os.access(self.path(path), os.X_OK)

    def make_executable(self, path: str) -> None:
        """Let everyone run the file. Raises HostError."""
        try:
            os.chmod(self.path(path), 0o755)
        except OSError as error:
            remedy = root_remedy(error, "check whether its file system is read-only")
            raise HostError(f"cannot make {path} executable: {error.strerror}", remedy) from error

    def poke(self, path: str, text: str) -> None:
        """Write to an existing file of the kernel (``/sys``, ``/proc``) in one write. Raises HostError."""
        self.poke_bytes(path, text.encode(), 0)

    def poke_bytes(self, path: str, data: bytes, offset: int) -> None:
        """Write ``data`` at ``offset`` bytes into an existing file of the kernel, in one write.

        Raises KernelRefusedError.
        """
        try:
            handle = os.open(self.path(path), os.O_WRONLY)
            try:
                written = os.pwrite(handle, data, offset) if offset else os.write(handle, data)
            finally:
                os.close(handle)
        except OSError as error:
            raise KernelRefusedError(
                refusal(path, data, offset, str(error.strerror)),
                error.errno,
                root_remedy(error, "see the kernel's log"),
            ) from error
        if written != len(data):
            raise HostError(
                f"the kernel accepted only {written} of {len(data)} bytes for {path}", "see the kernel's log"
            )

    def replace(self, path: str, content: bytes) -> None:
        """Replace a file as a whole: a partial file never exists.

        A symbolic link is kept: the file that it points to is replaced, in its own directory. An existing file keeps
        its owner, mode and SELinux context; a new one has mode 0644. Raises HostError, also for a dangling link, which
        usually means that a file system is not mounted.
        """
        target = self._followed(path)
        try:
            os.makedirs(os.path.dirname(target), exist_ok=True)
            write_atomic(target, content, lambda handle: _take_over(target, handle))
        except OSError as error:
            raise HostError(
                f"cannot write {path}: {error.strerror}",
                root_remedy(error, "check whether its file system is full or read-only"),
            ) from error

    def _followed(self, path: str) -> str:
        """Return the path below ``root`` of the file that ``path`` names, links followed. Raises HostError."""
        target = self.path(path)
        for _link in range(LINKS_MAX + 1):
            if not os.path.islink(target):
                return target
            link = os.readlink(target)
            target = self.path(link) if link.startswith("/") else os.path.join(os.path.dirname(target), link)
            if not os.path.lexists(target):
                raise HostError(
                    f"cannot write {path}: it is a symbolic link to {link}, which does not exist",
                    "mount the file system that it points to, or remove the link",
                )
        raise HostError(f"cannot write {path}: its symbolic links form a loop", "remove the link")

    def remove(self, path: str) -> None:
        """Remove a file; it may be gone already."""
        try:
            os.unlink(self.path(path))
        except FileNotFoundError:
            return
        except OSError as error:
            raise HostError(
                f"cannot remove {path}: {error.strerror}",
                root_remedy(error, "check whether its file system is read-only"),
            ) from error

    def run(self, argv: list[str], stdin: str | None = None, timeout_s: float | None = None) -> str:
        """Run a command and return its output. Raises HostError with the command and its error message."""
        environment = {**os.environ, "LC_ALL": "C", "PATH": "/usr/sbin:/usr/bin:/sbin:/bin"}
        try:
            process = subprocess.run(
                argv, input=stdin, capture_output=True, text=True, env=environment, check=False, timeout=timeout_s
            )
        except FileNotFoundError as error:
            raise HostError(f"{argv[0]} is not installed on this host", "install its package first") from error
        except subprocess.TimeoutExpired as error:
            raise HostError(
                f"'{' '.join(argv)}' did not finish in {timeout_s} s", "find out what it waits for, and run again"
            ) from error
        if process.returncode != 0:
            lines = (process.stderr.strip() or process.stdout.strip() or "no output").splitlines()
            raise HostError(
                f"'{' '.join(argv)}' failed ({process.returncode}): {'; '.join(lines[-3:])}",
                "correct what it reports, and run again",
            )
        return process.stdout


def _take_over(target: str, handle: int) -> None:
    """Give the open file the owner, mode and SELinux context of ``target``; mode 0644 if ``target`` does not exist."""
    try:
        old = os.stat(target)
    except FileNotFoundError:
        os.fchmod(handle, 0o644)
        return
    new = os.fstat(handle)
    if (old.st_uid, old.st_gid) != (new.st_uid, new.st_gid):
        os.fchown(handle, old.st_uid, old.st_gid)
    os.fchmod(handle, stat.S_IMODE(old.st_mode))
    # A file system without extended attributes (the EFI system partition's) has no context to keep.
    with contextlib.suppress(OSError):
        os.setxattr(handle, SELINUX, os.getxattr(target, SELINUX))
