# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A BMC on the loopback that serves Redfish documents: a real HTTPS server, without a real machine."""

from __future__ import annotations

import base64
import json
import ssl
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from quirky_bmc import certificate

from ansible_collections.sailloft.fleet.plugins.module_utils.health.readers.bmc.target import Bmc

USER, PASSWORD = "monitor", "s3cr3t-of-the-bmc"
ACCOUNT = "Basic " + base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()


class RedfishBmc:
    """Serves the documents that it has by path. One may be bytes, a status, or a number of seconds to wait (float).

    It repeats the request's account in each error, as some BMCs do, and counts other methods than GET in ``changes``.
    """

    def __init__(self, folder: Path, documents: dict[str, Any]) -> None:
        folder.mkdir(exist_ok=True)
        self.ca, key = certificate(folder)
        self.documents = documents
        self.changes: list[str] = []
        owner = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            timeout = 60
            disable_nagle_algorithm = True

            def do_GET(self) -> None:
                document = owner.documents.get(self.path.rstrip("/"), 404)
                if isinstance(document, float):
                    time.sleep(document)
                    document = {}
                account = self.headers["Authorization"] or ""
                # Anyone may read the root (DSP0266, "Authentication").
                if account != ACCOUNT and self.path.rstrip("/") != "/redfish/v1":
                    document = 401
                if isinstance(document, int):
                    return self.answer(document, account.encode(), account)
                return self.answer(200, document if isinstance(document, bytes) else json.dumps(document).encode())

            def do_POST(self) -> None:
                owner.changes.append(f"{self.command} {self.path}")
                body = self.rfile.read(int(self.headers["Content-Length"] or 0))
                status, location = owner.change(self.path, self.headers["Content-Type"] or "", body)
                self.answer(status, b"{}", location=location)

            do_PATCH = do_DELETE = do_PUT = do_POST  # noqa: N815

            def answer(self, status: int, body: bytes, message: str | None = None, location: str = "") -> None:
                self.send_response(status, message)
                if self.close_connection:
                    self.send_header("Connection", "close")
                if location:
                    self.send_header("Location", location)
                if status in (301, 308):
                    self.send_header("Location", f"{self.path}/")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *arguments: object) -> None:
                """Print no line for each request."""

        class Server(ThreadingHTTPServer):
            def handle_error(self, *arguments: object) -> None:
                """Print nothing of a client that went away."""

        self.server = Server(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.ca, key)
        self.server.socket = context.wrap_socket(self.server.socket, server_side=True)
        self.address = f"127.0.0.1:{self.server.server_address[1]}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def change(self, path: str, kind: str, body: bytes) -> tuple[int, str]:
        """Do what a request other than GET wants; return the status and the path of its task, "" for none."""
        return 200, ""

    def target(self, **changed: Any) -> Bmc:
        """Return the account with which a controller reads this BMC."""
        return Bmc(
            **{
                "host": "gpu01",
                "address": self.address,
                "username": USER,
                "password": PASSWORD,
                "ca": self.ca,
                "timeout_s": 60.0,
                **changed,
            }
        )

    def stop(self) -> None:
        self.server.shutdown()
        self.server.server_close()


CHASSIS = "/redfish/v1/Chassis/1"
SUPPLIES = f"{CHASSIS}/PowerSubsystem/PowerSupplies"


def collection(*paths: str) -> dict[str, Any]:
    """Return a collection with these members."""
    return {"Members": [{"@odata.id": path} for path in paths]}


def status(health: str | None = "OK", state: str = "Enabled", **more: Any) -> dict[str, Any]:
    """Return a document with a status."""
    return {"Status": {"State": state, **({"Health": health} if health else {})}, **more}


def new(supplies: dict[str, Any], redundancy: list[Any] | None = None, system: Any = None) -> dict[str, Any]:
    """Return the documents of a server with PowerSubsystem and these supplies by name."""
    return {
        "/redfish/v1/Chassis": collection(CHASSIS),
        CHASSIS: {"PowerSubsystem": {"@odata.id": f"{CHASSIS}/PowerSubsystem"}},
        f"{CHASSIS}/PowerSubsystem": status(
            PowerSupplies={"@odata.id": SUPPLIES}, PowerSupplyRedundancy=redundancy or []
        ),
        SUPPLIES: collection(*(f"{SUPPLIES}/{name}" for name in supplies)),
        **{f"{SUPPLIES}/{name}": document for name, document in supplies.items()},
        "/redfish/v1/Systems": collection("/redfish/v1/Systems/1"),
        "/redfish/v1/Systems/1": system or {"Id": "1", "Status": {"HealthRollup": "OK"}},
    }


def old(power: Any = None, thermal: Any = None, system: Any = None) -> dict[str, Any]:
    """Return the documents of a server with the old resources Power and Thermal."""
    return {
        "/redfish/v1/Chassis": collection(CHASSIS),
        CHASSIS: {"Power": {"@odata.id": f"{CHASSIS}/Power"}, "Thermal": {"@odata.id": f"{CHASSIS}/Thermal"}},
        f"{CHASSIS}/Power": power if power is not None else {"PowerSupplies": [status(Name="PSU1")]},
        f"{CHASSIS}/Thermal": thermal if thermal is not None else {"Fans": [status(Name="Fan 1")]},
        "/redfish/v1/Systems": collection("/redfish/v1/Systems/1"),
        "/redfish/v1/Systems/1": system or {"Id": "1", "Status": {"Health": "OK"}},
    }
