# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Read small files below a root directory, with one error that names the path."""

from __future__ import annotations

import errno
import os
import stat

from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.errors import TopologyError

# Linux supports at most 8192 CPUs (NR_CPUS in its Kconfig files); a longer list is an error, and could fill the memory.
LIMIT_CPUS = 1 << 16


class Files:
    """Files below ``root``; every path is given relative to it ("sys/class/net")."""

    def __init__(self, root: str = "/") -> None:
        self._root = root.rstrip("/")

    def path(self, relative: str) -> str:
        """Return the full path, for messages."""
        return f"{self._root}/{relative}"

    def exists(self, relative: str) -> bool:
        """Return True if the path exists."""
        return os.path.exists(self.path(relative))

    def open(self, relative: str) -> int | None:
        """Return a descriptor to read from, None if there is no such file. Raises TopologyError for other causes.

        Pipes and devices are refused: a pipe in a copy of /sys would block, and a device's content is not a file's. A
        directory, which a copy can have in place of a link to one, counts as no file.
        """
        try:
            descriptor = os.open(self.path(relative), os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise self._unreadable(relative, error) from error
        mode = os.fstat(descriptor).st_mode
        if stat.S_ISREG(mode):
            return descriptor
        os.close(descriptor)
        if stat.S_ISDIR(mode):
            return None
        raise TopologyError(f"{self.path(relative)} is not a regular file: this is not a copy of /sys or /proc")

    def text_or_none(self, relative: str, limit: int = 1 << 22) -> str | None:
        """Return the content, at most ``limit`` bytes of it; None if there is no such file.

        NUL characters at the end, which some copies have after a value, are removed.
        """
        content = self.bytes_or_none(relative, limit)
        return None if content is None else content.rstrip(b"\0").decode("utf-8", "backslashreplace")

    def bytes_or_none(self, relative: str, limit: int) -> bytes | None:
        """Return the first ``limit`` bytes; None if there is no such file."""
        descriptor = self.open(relative)
        if descriptor is None:
            return None
        parts = []
        try:
            while limit > 0:
                part = os.read(descriptor, min(limit, 65536))
                if not part:
                    break
                parts.append(part)
                limit -= len(part)
        except OSError as error:
            raise self._unreadable(relative, error) from error
        finally:
            os.close(descriptor)
        return b"".join(parts)

    def text(self, relative: str) -> str:
        """Return the content. Raises TopologyError if there is no such file."""
        text = self.text_or_none(relative)
        if text is None:
            raise TopologyError(
                f"{self.path(relative)} is missing: /sys or /proc is incomplete, or it changed", "read again"
            )
        return text

    def number(self, relative: str) -> int:
        """Return the content as a decimal number. Raises TopologyError if it is none or the file is missing."""
        text = self.text(relative).strip()
        try:
            return int(text)
        except ValueError as error:
            raise TopologyError(f"{self.path(relative)}: {text!r} is not a number") from error

    def names(self, relative: str) -> list[str]:
        """Return the names in a directory, sorted; empty if there is no such directory."""
        try:
            return sorted(os.listdir(self.path(relative)))
        except (FileNotFoundError, NotADirectoryError):
            return []
        except OSError as error:
            raise self._unreadable(relative, error) from error

    def link(self, relative: str) -> str | None:
        """Return the target of a symbolic link, relative to the root, by its text alone; None if there is no link."""
        try:
            target = os.readlink(self.path(relative))
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            if error.errno == errno.EINVAL:  # not a link
                return None
            raise self._unreadable(relative, error) from error
        return os.path.normpath(os.path.join("/", os.path.dirname(relative), target))[1:]

    def _unreadable(self, relative: str, error: OSError) -> TopologyError:
        return TopologyError(f"{self.path(relative)} cannot be read: {error.strerror}", "read it as root")
