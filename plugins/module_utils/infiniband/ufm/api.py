# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Ask a UFM by its REST API: one login, whole answers and paged ones, errors of one sentence without the login.

The requests are those of NVIDIA's UFM Enterprise REST API Guide 6.15 to 6.22. How a token is sent and how an answer is
paged is from NVIDIA's examples (Mellanox/ufm_sdk_3.0, utils/ufm_rest_client.py): the token as it is after "Basic",
below /ufmRestV3, and pages by page_number, from 1, and rpp.
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Callable, Iterator, Mapping
from http.client import HTTPException
from typing import Any, NamedTuple
from urllib.error import HTTPError
from urllib.parse import urlsplit

from ansible_collections.sailloft.fleet.plugins.module_utils.infiniband.errors import InfinibandError

ARGUMENTS: dict[str, Any] = {
    "ufm_url": {"type": "str", "required": True},
    "ufm_username": {"type": "str"},
    "ufm_password": {"type": "str", "no_log": True},
    "ufm_token": {"type": "str", "no_log": True},
    "validate_certs": {"type": "bool", "default": True},
    "ca_path": {"type": "path"},
}
TIMEOUT_S = 300
# Rows of a page, as asked for; a UFM may give fewer.
PAGE = 1000
# A fabric of 4,096 nodes with 8 rails has 100,000 links, of less than 1 KiB each.
MOST_BYTES = 256 << 20
_ANSWER_MOST = 200
_REMEDIES = {
    401: "check user and password, or the token",
    403: "check the role of the user",
    404: "check the URL",
    **dict.fromkeys((301, 302, 303, 307, 308), "write the URL of UFM itself: the login is for this URL only"),
}


class HttpAnswer(NamedTuple):
    """The status and the text of an answer."""

    status: int
    text: str


class Api:
    """A connection to one UFM. ``open_url`` is Ansible's function of that name, or a substitute."""

    def __init__(self, arguments: Mapping[str, Any], open_url: Callable[..., Any]) -> None:
        """Take the values of ``ARGUMENTS``. Raises InfinibandError without a login, and for a URL that is not safe."""
        token, user = arguments["ufm_token"], arguments["ufm_username"]
        if not token and not (user and arguments["ufm_password"]):
            raise _error("there is no login", "set ufm_token, or ufm_username and ufm_password")
        parts = urlsplit(arguments["ufm_url"])
        if parts.scheme != "https" or not parts.hostname or parts.username is not None:
            raise _error("ufm_url is no https URL without a user", "write it like https://ufm.example.com")
        login = token or b64encode(f"{user}:{arguments['ufm_password']}".encode()).decode()
        self._url = f"{arguments['ufm_url'].rstrip('/')}/{'ufmRestV3' if token else 'ufmRest'}"
        self._headers = {"Content-Type": "application/json", "Authorization": f"Basic {login}"}
        self._open_url = open_url
        self._tls = {"validate_certs": arguments["validate_certs"], "ca_path": arguments["ca_path"]}

    def ask(self, method: str, path: str, data: Mapping[str, Any] | None = None) -> HttpAnswer:
        """Return an answer. Raises InfinibandError. A redirection is refused: the login is for this URL only."""
        url = f"{self._url}/{path}"
        body = None if data is None else json.dumps(data)
        try:
            with self._open_url(
                url,
                method=method,
                headers=self._headers,
                data=body,
                timeout=TIMEOUT_S,
                follow_redirects="none",
                **self._tls,
            ) as answer:
                content = answer.read(MOST_BYTES + 1)
                status = answer.status
        except HTTPError as error:
            text = " ".join(error.read(8 * _ANSWER_MOST).decode(errors="replace").split())[:_ANSWER_MOST]
            remedy = _REMEDIES.get(error.code, "see UFM's log")
            raise _error(f"{method} {url}: {error.code} {error.reason}: {text}", remedy) from None
        except (OSError, HTTPException) as error:
            cause = " ".join((str(error) or type(error).__name__).split())[:_ANSWER_MOST]
            raise _error(f"{method} {url}: {cause}", "check the URL and its certificate (ca_path)") from None
        if len(content) > MOST_BYTES:
            raise _error(f"{method} {url}: the answer has more than {MOST_BYTES >> 20} MiB", "check the URL")
        return HttpAnswer(status, content.decode(errors="replace"))

    def read(self, path: str) -> Any:
        """Return the JSON of an answer to GET. Raises InfinibandError."""
        text = self.ask("GET", path).text
        try:
            return json.loads(text)
        except (ValueError, RecursionError):
            raise _error(f"GET {self._url}/{path}: the answer is no JSON", "check the URL") from None

    def rows(self, path: str) -> Iterator[Mapping[str, Any]]:
        """Return the rows of a paged answer; a UFM that does not page gives them all. Raises InfinibandError.

        No document says how many rows a page has at most, so the last page is an empty one, one that is shorter than
        the first, or one of fewer rows than asked for that is there again.
        """
        number, page_rows = 1, 0
        firsts: set[str] = set()
        last: list[Any] = []
        while True:
            data = self.read(f"{path}?page_number={number}&rpp={PAGE}")
            rows = data.get("data") if isinstance(data, dict) else data
            if not isinstance(rows, list):
                raise not_as_documented(path)
            if number > 1 and rows == last and len(rows) < PAGE:
                return
            # A page that was there before would be followed by the same ones for ever.
            if repr(rows[:1]) in firsts:
                raise not_as_documented(path)
            yield from rows
            page_rows = max(page_rows, len(rows))
            if isinstance(data, list) or len(rows) < page_rows or not rows:
                return
            number, last = number + 1, rows
            firsts.add(repr(rows[:1]))


def digits(guid: str) -> str:
    """Return a GUID as 16 digits, as UFM writes it."""
    return f"{int(guid, 16):016x}"


def not_as_documented(path: str) -> InfinibandError:
    """Return the error for an answer of another form than the documented one."""
    return _error(f"its answer to GET {path} has not the documented form", "check the URL and UFM's version")


def _error(cause: str, remedy: str) -> InfinibandError:
    return InfinibandError(cause=cause, remedy=remedy, subject="UFM")
