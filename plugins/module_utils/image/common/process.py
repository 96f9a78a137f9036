# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Run commands of the builder and pass on their output while they run."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import threading
from typing import Callable

from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.errors import ImageError

# A function that takes argv and the environment, and returns the exit status and the output, standard error included.
Run = Callable[..., "subprocess.CompletedProcess[str]"]
CHECK_S = 5
# user:password@ of a URL (RFC 3986). A password may have an unescaped "@", but no "/".
CREDENTIALS = re.compile(r"(?<=://)[^/\s\"']*@")


def run(
    argv: list[str],
    env: dict[str, str] | None = None,
    show: Callable[[str], object] = lambda line: None,
    fault: Callable[[], ImageError | None] | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run a command, pass each line that it prints to ``show``, and return its status and output.

    ``fault`` is called every CHECK_S seconds; once it returns an error, the command and its processes are killed.

    The lines and the output have no user and password in URLs, such as a proxy's.
    The caller must handle a status other than 0. Raises ImageError if the program does not exist, and the error that
    ``fault`` returned.
    """
    try:
        process = subprocess.Popen(
            argv,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=fault is not None,
        )
    except FileNotFoundError as error:
        program = os.path.basename(argv[0])
        raise ImageError("it is not installed on the build host", "install its package", subject=program) from error
    lines = []
    ended = threading.Event()
    errors: list[ImageError] = []
    if fault:
        threading.Thread(target=_watch, args=(process, fault, ended, errors), daemon=True).start()
    try:
        with process:
            for line in map(without_credentials, process.stdout or ()):
                lines.append(line)
                show(line.rstrip("\n"))
    finally:
        ended.set()
    if errors:
        raise errors[0]
    return subprocess.CompletedProcess(argv, process.returncode, "".join(lines))


def without_credentials(text: str) -> str:
    """Return the text with "***" in the place of user and password of each URL."""
    return CREDENTIALS.sub("***@", text)


def _watch(
    process: subprocess.Popen[str],
    fault: Callable[[], ImageError | None],
    ended: threading.Event,
    errors: list[ImageError],
) -> None:
    """Kill the session of ``process`` once ``fault`` returns an error, and append it to ``errors``."""
    while not ended.wait(CHECK_S):
        error = fault()
        if error:
            try:
                os.killpg(process.pid, signal.SIGKILL)
            except ProcessLookupError:
                return  # the process has just ended
            errors.append(error)
            return
