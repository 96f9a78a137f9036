# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Use NetBox's REST API: lists are read page by page, and many objects are written with each request.

The modules of netbox.netbox are not used: they write one object in a call, which took 15 minutes for four servers.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from typing import Any
from urllib.error import HTTPError
from urllib.parse import urlencode

from ansible_collections.sailloft.fleet.plugins.module_utils.site.errors import SiteError

# The options of the modules; their documentation is in plugins/doc_fragments/netbox.py.
ARGUMENTS: dict[str, Any] = {
    "netbox_url": {"type": "str", "required": True},
    "netbox_token": {"type": "str", "required": True, "no_log": True},
    "validate_certs": {"type": "bool", "default": True},
}
# The default of NetBox's MAX_PAGE_SIZE. Where the administrator has set a smaller one, NetBox returns shorter pages.
PAGE = 1000
# NetBox writes a request in one transaction, and its web servers stop it after a minute or two (gunicorn.py: 120 s).
AT_ONCE = 100
# gunicorn accepts a URL of at most 4094 characters, and a value of a filter has at most 50 characters (IPv6).
VALUES_AT_ONCE = 50
TIMEOUT_S = 300
REMEDIES = {
    401: "check the token",
    403: "check the token and the permissions of its user",
    404: "check the URL",
}


class NetboxApi:
    """A connection to one NetBox. ``open_url`` is Ansible's function of that name, or a substitute."""

    def __init__(self, arguments: dict[str, Any], open_url: Callable[..., Any]) -> None:
        """Take the values of ``ARGUMENTS``."""
        token = arguments["netbox_token"]
        self._url = arguments["netbox_url"].rstrip("/")
        self._open_url = open_url
        self._verified = arguments["validate_certs"]
        self._headers = {
            "Accept": "application/json",
            "Content-Type": "application/json",
            "Authorization": f"{'Bearer' if token.startswith('nbt_') else 'Token'} {token}",
        }

    def read(self, path: str, query: Iterable[tuple[str, Any]] = ()) -> list[dict[str, Any]]:
        """Return all objects of a path (``dcim/devices``) that match the query. Raises SiteError."""
        objects: list[dict[str, Any]] = []
        while True:
            page = [*query, ("limit", PAGE), ("offset", len(objects)), ("ordering", "id")]
            url = f"{self._url}/api/{path}/?{urlencode(page)}"
            answer = self._ask("GET", url)
            try:
                objects += answer["results"]
                if not answer["results"] or len(objects) >= answer["count"]:
                    return objects
            except (KeyError, TypeError):
                raise _no_answer(url) from None

    def read_named(self, path: str, name: str, values: Sequence[str], *query: tuple[str, Any]) -> list[dict[str, Any]]:
        """Return all objects for which the filter ``name`` has one of the values. Raises SiteError."""
        return [
            part
            for start in range(0, len(values), VALUES_AT_ONCE)
            for part in self.read(path, [*((name, value) for value in values[start : start + VALUES_AT_ONCE]), *query])
        ]

    def write(self, method: str, path: str, objects: Sequence[tuple[str, dict[str, Any]]]) -> list[dict[str, Any]]:
        """Write (name, object) pairs and return the objects in NetBox's form. POST creates, PATCH changes.

        The names are for error messages. Raises SiteError.
        """
        url = f"{self._url}/api/{path}/"
        written: list[dict[str, Any]] = []
        for start in range(0, len(objects), AT_ONCE):
            part = objects[start : start + AT_ONCE]
            written += self._ask(method, url, [row for _name, row in part], [name for name, _each in part])
        return written

    def require_rights(self, needs: Iterable[tuple[str, str]]) -> None:
        """Refuse a token that may not do all of ``needs``: (POST or PATCH, path). Raises SiteError.

        NetBox names the methods of the token and its user in its answer to OPTIONS; PUT stands for PATCH. A user whose
        permissions have constraints may still be refused an object.
        """
        methods_by_path: dict[str, set[str]] = {}
        for method, path in needs:
            methods_by_path.setdefault(path, set()).add(method)
        missing = []
        for path, methods in sorted(methods_by_path.items()):
            allowed = self._ask("OPTIONS", f"{self._url}/api/{path}/").get("actions") or {}
            missing += [
                f"{right} {path}"
                for method, shown, right in (("POST", "POST", "add"), ("PATCH", "PUT", "change"))
                if method in methods and shown not in allowed
            ]
        if missing:
            raise SiteError(
                f"the token may not {', '.join(missing)}; nothing was written",
                "enable writing for the token, and give its user these permissions",
                subject="NetBox",
            )

    def _ask(self, method: str, url: str, data: Any = None, names: Sequence[str] = ()) -> Any:
        try:
            with self._open_url(
                url,
                method=method,
                headers=self._headers,
                data=None if data is None else json.dumps(data),
                validate_certs=self._verified,
                timeout=TIMEOUT_S,
            ) as answer:
                return json.load(answer)
        except HTTPError as error:
            cause = _error_text(error.read(), names)
            raise SiteError(
                f"{url.partition('?')[0]}: {error}: {cause}", _remedy_of(error.code, bool(names)), subject="NetBox"
            ) from None
        except OSError as error:
            raise SiteError(f"{url.partition('?')[0]}: {error}", _remedy(error), subject="NetBox") from None
        except ValueError:
            raise _no_answer(url) from None


def incomplete(error: Exception) -> SiteError:
    """Return the error for a response without a key, or with a value of another type."""
    remedy = "check that the URL is a NetBox URL, and that its version is 4.2 or later"
    return SiteError(f"its response has no {error}", remedy, subject="NetBox")


def _no_answer(url: str) -> SiteError:
    return SiteError(f"{url.partition('?')[0]}: this is not a response of NetBox", "check the URL", subject="NetBox")


def _remedy_of(status: int, written: bool) -> str:
    if status >= 500:
        return "see NetBox's log"
    return REMEDIES.get(status, "change the blueprint or NetBox" if written else "check the URL and netbox_site")


def _remedy(error: OSError) -> str:
    if "CERTIFICATE" in str(error).upper():
        return "add the certificate's CA to the system's trusted CAs, or set netbox_validate_certs to false for a test"
    return "check the URL, and that NetBox is running and reachable from this machine"


def _error_text(body: bytes, names: Sequence[str]) -> str:
    """Return the causes in NetBox's answer, which is about one object, or a list with an entry for each object."""
    try:
        answer = json.loads(body)
    except ValueError:
        return "this is not a response of NetBox"
    if isinstance(answer, list) and len(answer) == len(names):
        return "; ".join(f"{name}: {_text(error)}" for name, error in zip(names, answer) if error)
    # NetBox writes devices and cables one by one, and its answer does not say which of them it is about.
    subject = f"one of {names[0]} to {names[-1]}: " if len(names) > 1 else ""
    return subject + _text(answer)


def _text(answer: Any) -> str:
    if isinstance(answer, dict):
        return ", ".join(
            _text(error) if name in ("detail", "error", "__all__", "non_field_errors") else f"{name}: {_text(error)}"
            for name, error in answer.items()
        )
    return " ".join(map(_text, answer)) if isinstance(answer, list) else str(answer)
