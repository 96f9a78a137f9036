# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A simulated UFM: the parts of its documented REST API that the ufm_* modules need."""

from __future__ import annotations

import io
import json
from typing import Any
from urllib.error import HTTPError

from ansible_collections.sailloft.fleet.plugins.module_utils.infiniband.fabric import fabric_of
from ansible_collections.sailloft.fleet.plugins.module_utils.site.expand.model import Site


class Answer(io.BytesIO):
    """An answer with a status."""

    def __init__(self, data: Any = None, status: int = 200) -> None:
        super().__init__(b"" if data is None else json.dumps(data).encode())
        self.status = status


class SimulatedUfm:
    """A UFM in place of ``open_url``.

    ``pkeys``: P_Key -> its data; ``links``: rows; ``cap``: those of a page at most; ``ports``: port -> the row of an
    unhealthy one; ``late``: how many
    questions pass before a change of ports is listed, or the report is ready. ``requests`` has the methods and paths,
    ``options`` the further arguments of the last request.
    """

    def __init__(self) -> None:
        self.pkeys: dict[str, dict[str, Any]] = {"0x7fff": {"partition": "management", "ip_over_ib": True, "guids": []}}
        self.links: list[dict[str, Any]] = []
        self.pages = True
        self.cap = 1_000_000
        self.ports: dict[str, dict[str, Any]] = {}
        self.late = 0
        self.report: Any = {kind: {"nodes": [], "links": []} for kind in ("added", "removed")}
        self.requests: list[str] = []
        self.logins: set[str] = set()
        self.options: dict[str, Any] = {}
        self._waiting: list[dict[str, Any]] = []

    def __call__(self, url: str, method: str, headers: dict[str, str], data: str | None, **options: Any) -> Answer:
        """Answer a request."""
        version, _slash, path = url.removeprefix("https://ufm.example.com/").partition("/")
        self.requests.append(f"{method} {version}/{path}")
        self.logins.add(headers["Authorization"])
        self.options = options
        body = json.loads(data) if data else {}
        name, _question, query = path.partition("?")
        if (method, path) == ("GET", "resources/pkeys?guids_data=true"):
            return Answer(self.pkeys)
        if (method, path) == ("POST", "resources/pkeys/"):
            return self._add(**body)
        if (method, name) == ("GET", "resources/links"):
            return Answer(self._page(**dict(part.split("=") for part in query.split("&"))))
        if (method, path) == ("GET", "app/unhealthy_ports"):
            return self._unhealthy()
        if (method, path) == ("PUT", "app/unhealthy_ports"):
            self._waiting.append(body)
            return Answer()
        if (method, path) == ("POST", "reports/Topology_Compare"):
            return Answer({"report_id": "7"}, 202)
        if (method, path) == ("GET", "reports/7"):
            self.late -= 1
            return Answer({}, 202 if self.late >= 0 else 200)
        if (method, path) == ("GET", "reports/last_report/Topology_Compare"):
            return Answer(self.report)
        parts = path.split("/")
        if method == "DELETE" and parts[:2] == ["resources", "pkeys"] and parts[3] == "guids":
            partition = self.pkeys[parts[2]]
            partition["guids"] = [row for row in partition["guids"] if row["guid"] not in parts[4].split(",")]
            return Answer()
        raise HTTPError(url, 404, "Not Found", {}, io.BytesIO(b"no such\nresource"))  # type: ignore[arg-type]

    def _add(self, pkey: str, guids: list[str], memberships: list[str], index0: bool, ip_over_ib: bool) -> Answer:
        assert len(guids) == len(memberships)
        partition = self.pkeys.setdefault(
            pkey, {"partition": f"api_pkey_{pkey}", "ip_over_ib": ip_over_ib, "guids": []}
        )
        rows = {row["guid"]: row for row in partition["guids"]}
        for guid, membership in zip(guids, memberships):
            rows[guid] = {"guid": guid, "membership": membership, "index0": index0}
        partition["guids"] = list(rows.values())
        return Answer()

    def _page(self, page_number: str, rpp: str) -> Any:
        if not self.pages:
            return self.links
        rows = min(int(rpp), self.cap)
        start = (int(page_number) - 1) * rows
        return {"data": self.links[start : start + rows]}

    def _unhealthy(self) -> Answer:
        if self._waiting:
            self.late -= 1
        if self.late < 0:
            for body in self._waiting:
                for name in body["ports"]:
                    if body["ports_policy"] == "HEALTHY":
                        self.ports.pop(name, None)
                    else:
                        assert body["action"] == "isolate"
                        self.ports[name] = unhealthy(name, *self._peer(name))
            self._waiting.clear()
        return Answer(list(self.ports.values()))

    def _peer(self, name: str) -> tuple[str, int]:
        """Return GUID and number of the far end of a port."""
        guid, number = name.split("_")
        for row in self.links:
            ends = [(row["source_guid"], row["source_port"]), (row["destination_guid"], row["destination_port"])]
            if (guid, number) in ends:
                far = ends[1 - ends.index((guid, number))]
                return far[0], int(far[1])
        raise AssertionError(f"{name} has no link")


def unhealthy(name: str, peer_guid: str, peer_number: int, condition: Any = "MANUAL") -> dict[str, Any]:
    """Return the row of an unhealthy port, GUID_NUMBER, with the keys of the guide that the modules use."""
    guid, number = name.split("_")
    return {
        "UnhealthyGUID": guid,
        "UnhealthyPortNumber": int(number),
        "PeerGUID": peer_guid,
        "PeerPortNumber": peer_number,
        "Condition": condition,
        "State": "Info",
        "StatusTime": "Wed Apr 29 00:05:32 2020",
    }


def link(one: tuple[str, int], other: tuple[str, int], width: str = "IB_4x") -> dict[str, Any]:
    """Return the row of a link between two ports, each by GUID and number."""
    return {
        "source_guid": one[0],
        "source_port": str(one[1]),
        "destination_guid": other[0],
        "destination_port": str(other[1]),
        "width": width,
        "severity": "Info",
        "name": f"{one[0]}_{one[1]}:{other[0]}_{other[1]}",
        "capabilities": [],
    }


def port(guids: dict[str, Any], switch: str, number: int) -> tuple[str, int]:
    """Return GUID and number of a switch's port."""
    return guids[switch][2:], number


def planned_links(site: Site, guids: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the rows of all links of the fabric "compute"."""
    fabric = fabric_of(site, "compute")
    hcas = [((guids[hca.host][hca.name][2:], 1), port(guids, *far)) for hca, far in fabric.hcas.items()]
    return [link(*ends) for ends in (*hcas, *((port(guids, *low), port(guids, *up)) for low, up in fabric.uplinks))]
