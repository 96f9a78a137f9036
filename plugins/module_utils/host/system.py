# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The edge to the machine: files below a root, and commands. All that ``host`` does to a machine goes through here.

The root is a parameter, so that the same code works on a copy of ``/sys`` in a test and on the live one.
"""

from __future__ import annotations

import os
import subprocess
import tempfile

from ansible_collections.sailloft.fleet.plugins.module_utils.host.errors import HostError


class System:
    """A machine whose file system begins at ``root``."""

    def __init__(self, root: str = "/") -> None:
        self.root = root

    def path(self, path: str) -> str:
        """Where the machine's ``path`` lies for us."""
        return os.path.join(self.root, path.lstrip("/"))

    def exists(self, path: str) -> bool:
        """Whether there is anything at ``path``; a dangling link counts."""
        return os.path.lexists(self.path(path))

    def names(self, path: str) -> list[str]:
        """The sorted names in a directory; empty where there is no such directory."""
        try:
            return sorted(os.listdir(self.path(path)))
        except (FileNotFoundError, NotADirectoryError):
            return []

    def link_name(self, path: str) -> str | None:
        """The last part of what a link points to ("vfio-pci"); None where there is no link."""
        try:
            return os.path.basename(os.readlink(self.path(path)))
        except OSError:
            return None

    def read(self, path: str) -> str | None:
        """The text of a file, stripped; None where there is none. Raises HostError where it cannot be read."""
        try:
            with open(self.path(path), encoding="utf-8", errors="replace") as file:
                return file.read().strip()
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise HostError(f"cannot read {path}: {error.strerror}") from error

    def read_bytes(self, path: str) -> bytes | None:
        """The whole content of a file; None where there is none."""
        try:
            with open(self.path(path), "rb") as file:
                return file.read()
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise HostError(f"cannot read {path}: {error.strerror}") from error

    def poke(self, path: str, text: str) -> None:
        """Write to an existing file of the kernel (``/sys``, ``/proc``) in one write. Raises HostError."""
        self.poke_bytes(path, text.encode(), 0)

    def poke_bytes(self, path: str, data: bytes, offset: int) -> None:
        """Write ``data`` at ``offset`` bytes into an existing file of the kernel, in one write."""
        try:
            handle = os.open(self.path(path), os.O_WRONLY)
            try:
                written = os.pwrite(handle, data, offset) if offset else os.write(handle, data)
            finally:
                os.close(handle)
        except OSError as error:
            raise HostError(f"the kernel did not take {data!r} for {path}: {error.strerror}") from error
        if written != len(data):
            raise HostError(f"the kernel took only {written} of {len(data)} bytes for {path}")

    def replace(self, path: str, content: bytes, mode: int = 0o644) -> None:
        """Put a file in place as a whole: at no time is there half of it."""
        target = self.path(path)
        try:
            os.makedirs(os.path.dirname(target), exist_ok=True)
            handle, temporary = tempfile.mkstemp(prefix=".sailloft-", dir=os.path.dirname(target))
            try:
                with os.fdopen(handle, "wb") as file:
                    file.write(content)
                    file.flush()
                    os.fsync(file.fileno())
                os.chmod(temporary, mode)
                os.replace(temporary, target)
            except BaseException:
                os.unlink(temporary)
                raise
        except OSError as error:
            raise HostError(f"cannot write {path}: {error.strerror}") from error

    def remove(self, path: str) -> None:
        """Remove a file; it may be gone already."""
        try:
            os.unlink(self.path(path))
        except FileNotFoundError:
            return
        except OSError as error:
            raise HostError(f"cannot remove {path}: {error.strerror}") from error

    def run(self, argv: list[str], stdin: str | None = None) -> str:
        """Run a command and return what it printed. Raises HostError with the command and its complaint."""
        environment = {**os.environ, "LC_ALL": "C", "PATH": "/usr/sbin:/usr/bin:/sbin:/bin"}
        try:
            done = subprocess.run(argv, input=stdin, capture_output=True, text=True, env=environment, check=False)
        except FileNotFoundError as error:
            raise HostError(f"{argv[0]} is not installed on this host: install its package first") from error
        if done.returncode != 0:
            said = (done.stderr.strip() or done.stdout.strip() or "it said nothing").splitlines()
            raise HostError(f"'{' '.join(argv)}' failed ({done.returncode}): {'; '.join(said[-3:])}")
        return done.stdout
