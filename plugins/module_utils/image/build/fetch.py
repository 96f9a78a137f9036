# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Fetch the lists of archives, each only once and with a time limit."""

from __future__ import annotations

import contextlib
import http.client
import time
import urllib.error
from collections.abc import Callable
from typing import Any

from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.errors import ImageError

FETCH_TIMEOUT_S = 60
# The time limit for a whole file of a few hundred kilobytes.
FETCH_DEADLINE_S = 120
# A hundred times Debian's InRelease: another answer must not fill the build host's memory.
MOST_BYTES = 1 << 25


class Fetcher:
    """A callable that returns the bytes at a URL, and fetches each URL only once.

    Raises ImageError, or FileNotFoundError if the server does not have the file.
    """

    def __init__(self, open_url: Callable[..., Any], deadline_s: float = FETCH_DEADLINE_S) -> None:
        self._open_url = open_url
        self._deadline_s = deadline_s
        self._found: dict[str, bytes] = {}

    def __call__(self, url: str) -> bytes:
        if url not in self._found:
            self._found[url] = self._fetch(url)
        return self._found[url]

    def _fetch(self, url: str) -> bytes:
        try:
            answer = self._open_url(url, timeout=FETCH_TIMEOUT_S)
            with contextlib.closing(answer):
                return self._whole(url, answer)
        except urllib.error.HTTPError as error:
            if error.code == 404:
                raise FileNotFoundError(url) from error
            raise _no_answer(url, f"the server answers {error.code} {error.reason}") from error
        except (OSError, ValueError) as error:
            reason = getattr(error, "reason", error)
            if isinstance(reason, FileNotFoundError) or "No such file" in str(reason):
                raise FileNotFoundError(url) from error
            raise _no_answer(url, f"cannot be reached: {reason}") from error
        except http.client.HTTPException as error:
            raise _no_answer(url, f"cannot be read: {str(error) or type(error).__name__}") from error

    def _whole(self, url: str, answer: Any) -> bytes:
        """Read the whole answer. The timeout only covers silence; the deadline ends a transfer that is too slow."""
        deadline = time.monotonic() + self._deadline_s
        parts: list[bytes] = []
        while True:
            part: bytes = answer.read1(1 << 16)
            if not part:
                # The number of bytes that http.client still expects; answers of other kinds have no such attribute.
                if getattr(answer, "length", None):
                    raise http.client.IncompleteRead(b"".join(parts), answer.length)
                return b"".join(parts)
            parts.append(part)
            if sum(map(len, parts)) > MOST_BYTES:
                raise _no_answer(url, f"sent more than {MOST_BYTES} bytes, too many for such a file")
            if time.monotonic() > deadline:
                raise _no_answer(
                    url, f"sent only {sum(map(len, parts))} bytes in {self._deadline_s:g} s, not the whole file"
                )


def _no_answer(url: str, reason: str) -> ImageError:
    return ImageError(
        reason, "correct its url, or check the network and the proxy of the build host", subject=f"archive {url}"
    )
