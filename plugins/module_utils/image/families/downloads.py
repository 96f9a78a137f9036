# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Enforce a minimum rate of apt's downloads. apt has no setting for it: its timeout of 30 s only covers silence."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path

from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.errors import ImageError

# The rate is the one set for dnf (rpm.py); the window is twice the time that apt waits for a silent server.
LEAST_BYTES_PER_S = 65536
WINDOW_S = 60


class Downloads:
    """A callable that returns an error, about ``subject``, once a file is received too slowly, and None until then.

    ``folders`` are apt's download directories; the file that apt is receiving grows in their directory ``partial``. A
    file that does not grow at all is not an error here: apt handles a silent server, or the file waits to be verified.
    """

    def __init__(self, subject: str, folders: Sequence[Path], clock: Callable[[], float] = time.monotonic) -> None:
        """Begin the first window."""
        self._subject = subject
        self._folders = folders
        self._clock = clock
        self._began_s, self._sizes = clock(), self._received()

    def __call__(self) -> ImageError | None:
        """Check the rate if the window is over, and begin the next window."""
        now_s = self._clock()
        passed_s = now_s - self._began_s
        if passed_s < WINDOW_S:
            return None
        old_sizes, self._began_s, self._sizes = self._sizes, now_s, self._received()
        for name, size in self._sizes.items():
            grown = size - old_sizes.get(name, size)
            if 0 < grown < LEAST_BYTES_PER_S * passed_s:
                return ImageError(
                    f"{name} was received at {grown / passed_s:.0f} bytes/s for {passed_s:.0f} s, "
                    f"less than the minimum of {LEAST_BYTES_PER_S} bytes/s",
                    "use a faster archive in archives, and run again",
                    subject=self._subject,
                )
        return None

    def _received(self) -> dict[str, int]:
        sizes: dict[str, int] = {}
        for folder in self._folders:
            try:
                sizes.update({file.name: file.stat().st_size for file in folder.joinpath("partial").iterdir()})
            except FileNotFoundError:
                continue  # the directory does not exist yet, or a file was complete and moved
        return dict(sorted(sizes.items()))
