# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A simulated UFM: the part of its documented REST API that partitions need."""

from __future__ import annotations

import io
import json
from typing import Any
from urllib.error import HTTPError


class SimulatedUfm:
    """A UFM in place of ``open_url``. ``pkeys``: P_Key -> its data; ``requests`` has the methods and paths."""

    def __init__(self) -> None:
        self.pkeys: dict[str, dict[str, Any]] = {"0x7fff": {"partition": "management", "ip_over_ib": True, "guids": []}}
        self.requests: list[str] = []
        self.logins: set[str] = set()

    def __call__(self, url: str, method: str, headers: dict[str, str], data: str | None, **_others: Any) -> io.BytesIO:
        """Answer a request."""
        version, _slash, path = url.removeprefix("https://ufm.example.com/").partition("/")
        self.requests.append(f"{method} {version}/{path}")
        self.logins.add(headers["Authorization"])
        if (method, path) == ("GET", "resources/pkeys?guids_data=true"):
            return io.BytesIO(json.dumps(self.pkeys).encode())
        if (method, path) == ("POST", "resources/pkeys/"):
            self._add(**json.loads(data or ""))
            return io.BytesIO(b"")
        parts = path.split("/")
        if method == "DELETE" and parts[:2] == ["resources", "pkeys"] and parts[3] == "guids":
            partition = self.pkeys[parts[2]]
            partition["guids"] = [row for row in partition["guids"] if row["guid"] not in parts[4].split(",")]
            return io.BytesIO(b"")
        raise HTTPError(url, 404, "Not Found", {}, io.BytesIO(b"no such resource"))  # type: ignore[arg-type]

    def _add(self, pkey: str, guids: list[str], memberships: list[str], index0: bool, ip_over_ib: bool) -> None:
        assert len(guids) == len(memberships)
        partition = self.pkeys.setdefault(
            pkey, {"partition": f"api_pkey_{pkey}", "ip_over_ib": ip_over_ib, "guids": []}
        )
        rows = {row["guid"]: row for row in partition["guids"]}
        for guid, membership in zip(guids, memberships):
            rows[guid] = {"guid": guid, "membership": membership, "index0": index0}
        partition["guids"] = list(rows.values())
