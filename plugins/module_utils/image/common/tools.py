# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Run the tools that build an image; report each failure, and the package that has a missing tool."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ansible_collections.sailloft.fleet.plugins.module_utils.image.common import process
from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.errors import ImageError

# Tool -> its Debian package. A tool that is not listed has the name of its package.
PACKAGES = {
    "apt-get": "apt",
    "bwrap": "bubblewrap",
    "chroot": "coreutils",
    "dnf": "dnf",
    "dpkg-query": "dpkg",
    "mksquashfs": "squashfs-tools",
    "mount": "mount",
    "nsenter": "util-linux",
    "systemctl": "systemd",
    "unsquashfs": "squashfs-tools",
    "veritysetup": "cryptsetup-bin",
}
# The variables of the builder's environment that are needed to reach the archives.
PROXIES = tuple(name for word in ("http_proxy", "https_proxy", "no_proxy") for name in (word, word.upper()))
# The word before the arguments of a room (room.py); the command in the room comes after the first "--".
ROOM = "sailloft-room"
NO_SPACE = "No space left on device"
TAIL_LINES = 6
# DKMS's words for the log of its compiler.
LOG_NAMED = re.compile(r"Consult (/[\w./+~-]+) for more information")
LINE_CHARACTERS = 400
MOST_LINKS = 40  # as Linux (MAXSYMLINKS in include/linux/namei.h)


class ToolError(ImageError):
    """A tool ended with an error; ``output`` is its whole output, standard error included."""

    def __init__(self, argv: Sequence[str], output: str, *, subject: str) -> None:
        """Describe the failure. ``subject`` names what was being built."""
        if NO_SPACE in output:
            cause, remedy = (
                f"no space is left on the device ({command_in(argv)[0]})",
                "free some space where node_image_cache_dir is",
            )
        else:
            cause = f"{' '.join(command_in(argv)[:4])} failed: {tail(output) or 'no output'}"
            remedy = "fix the reported problem, and run again: complete layers are kept"
        super().__init__(cause, remedy, subject=subject)
        self.output = output


def require(*tools: str) -> None:
    """Raise ImageError for the first of ``tools`` that this machine lacks."""
    for tool in tools:
        if not shutil.which(tool, path=search_path()):
            raise ImageError(
                "not found on the build host",
                f"apt-get install {PACKAGES.get(tool, tool)} (node_image does it unless packages_install is false)",
                subject=f"tool {tool}",
            )


def search_path() -> str:
    """Return PATH with the directories of the administrator's tools, which Ansible's own PATH may lack."""
    return f"{os.environ.get('PATH', '')}:/usr/local/sbin:/usr/sbin:/sbin:/usr/bin:/bin"


@dataclass(frozen=True)
class Run:
    """A callable that runs a tool and returns its output. Raises ToolError, about ``subject``.

    The tool's environment is ``environment`` and the variables that every tool needs. No others are passed on, since
    the settings of the builder's user must not get into an image.
    """

    subject: str
    progress: Callable[[str], object]
    environment: Mapping[str, str] = field(default_factory=dict)
    log: Path | None = None  # a file to which commands and their output are appended

    def __call__(
        self,
        argv: Sequence[str | os.PathLike[str]],
        env: Mapping[str, str] | None = None,
        show: str | None = None,
        fault: Callable[[], ImageError | None] | None = None,
    ) -> str:
        """Run a tool. ``env`` is added to the environment; the first group of lines matching ``show`` is progress.

        ``fault`` is called from time to time; if it returns an error, the tool is ended and the error is raised.
        """
        process = self.process([os.fspath(item) for item in argv], env, show, fault)
        if process.returncode:
            raise ToolError(process.args, process.stdout, subject=self.subject)
        return process.stdout

    def process(
        self,
        argv: list[str],
        env: Mapping[str, str] | None = None,
        show: str | Callable[[str], object] | None = None,
        fault: Callable[[], ImageError | None] | None = None,
    ) -> subprocess.CompletedProcess[str]:
        """Run a tool as ``__call__`` does, but return any exit status; ``show`` may be a function for each line."""
        require(argv[0])
        shown = self._progress_of(show) if isinstance(show, str) else show or (lambda line: None)
        log = os.open(self.log or os.devnull, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

        def write(line: str) -> None:
            # Without space for the log, the command's own message is the cause.
            with contextlib.suppress(OSError):
                os.write(log, f"{line}\n".encode())

        def line_seen(line: str) -> None:
            write(line)
            shown(line)

        try:
            write(f"$ {' '.join(command_in(argv))}")
            return process.run(
                argv,
                {
                    **{name: os.environ[name] for name in PROXIES if name in os.environ},
                    "PATH": search_path(),
                    "LC_ALL": "C.UTF-8",
                    "HOME": "/root",
                    **self.environment,
                    **(env or {}),
                },
                line_seen,
                fault,
            )
        finally:
            os.close(log)

    def _progress_of(self, pattern: str) -> Callable[[str], None]:
        """Return a function that reports the first group of each matching line as progress."""

        def line_seen(line: str) -> None:
            match = re.match(pattern, line)
            if match:
                self.progress(f"{self.subject}: {match.group(1)}")

        return line_seen


def command_in(argv: Sequence[str]) -> Sequence[str]:
    """Return the command that a room runs; another command as it is."""
    return argv[argv.index("--") + 5 :] if ROOM in argv else argv


def tail(output: str) -> str:
    """Return the last lines of an output in one line."""
    return one_line([line for line in output.splitlines() if line.strip()][-TAIL_LINES:])


def one_line(lines: Iterable[str]) -> str:
    """Return the lines that are not empty in one line, without control characters such as colours."""
    texts = (re.sub(r"\x1b\[[0-9;]*[A-Za-z]|[^\x20-\x7e\u00a0-\uffff]", " ", line).strip() for line in lines)
    return " / ".join(text[:LINE_CHARACTERS] for text in texts if text)


def inside(root: Path, path: str, follow: bool = False) -> Path:
    """Return the path on this machine of the image's ``path``; links in its directories are followed within ``root``.

    With ``follow``, a link in the last part is followed too; the path need not exist. A link to /run in an image must
    not lead to this machine's /run. Raises ImageError if links lead in a circle.
    """
    resolved: list[str] = []
    remaining = [part for part in path.split("/") if part not in ("", ".")]
    links = 0
    while remaining:
        part = remaining.pop(0)
        if part == "..":
            del resolved[-1:]
            continue
        path_so_far = root.joinpath(*resolved, part)
        if (remaining or follow) and path_so_far.is_symlink():
            links += 1
            if links > MOST_LINKS:
                raise ImageError("its symbolic links form a loop", "fix the links in the image", subject=path)
            target = os.readlink(path_so_far)
            if target.startswith("/"):
                resolved = []
            remaining = [item for item in target.split("/") if item not in ("", ".")] + remaining
            continue
        resolved.append(part)
    return root.joinpath(*resolved)


def file_inside(root: Path, path: str) -> Path | None:
    """Return the file that the image's ``path`` leads to, with links followed in the image; None if there is none."""
    try:
        place = inside(root, path, follow=True)
    except ImageError:
        return None
    return place if place.is_file() else None
