# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""NVUE's REST API over TLS, as far as the role uses it (Cumulus Linux user guide, "NVUE API"): revisions of a tree."""

from __future__ import annotations

import base64
import copy
import json
import ssl
import subprocess
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

USER, PASSWORD = "cumulus", "of the switch"


def merge(into: dict[str, Any], patch: dict[str, Any]) -> None:
    """Merge as in RFC 7396: null removes."""
    for key, value in patch.items():
        if value is None:
            into.pop(key, None)
        elif isinstance(value, dict):
            if not isinstance(into.get(key), dict):
                into[key] = {}
            merge(into[key], value)
        else:
            into[key] = value


class Nvue:
    """The switch. ``fails``: the state that a revision reaches instead of "applied"; ``events``: all requests."""

    def __init__(self, folder: Path, tree: dict[str, Any]) -> None:
        self.applied, self.startup = tree, copy.deepcopy(tree)
        self.revisions: dict[str, dict[str, Any]] = {}
        self.state: dict[str, str] = {}
        self.fails = ""
        self.events: list[str] = []
        self.certificate = folder / "nvue.pem"
        subprocess.run(
            [
                *("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=leaf2"),
                *("-addext", "subjectAltName=IP:127.0.0.1", "-keyout", folder / "nvue.key", "-out", self.certificate),
            ],
            check=True,
            capture_output=True,
        )
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.certificate, folder / "nvue.key")
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self.server.socket = context.wrap_socket(self.server.socket, server_side=True)
        self.url = f"https://127.0.0.1:{self.server.server_port}/nvue_v1"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()

    def answer(self, method: str, path: str, query: dict[str, list[str]], body: Any) -> Any:
        """Return the answer's body; raise KeyError for an unknown path."""
        revision = unquote(path.rpartition("/")[2])
        if (method, path) == ("GET", "/") and query == {"rev": ["applied"], "filled": ["false"]}:
            self.events.append("read")
            return self.applied
        if (method, path) == ("POST", "/revision"):
            name = f"changeset/cumulus/{len(self.revisions) + 1}"  # the names of releases before 5.4
            self.revisions[name], self.state[name] = copy.deepcopy(self.applied), "pending"
            return {name: {"state": "pending", "transition": {"issue": {}, "progress": ""}}}
        if (method, path) == ("PATCH", "/"):
            merge(self.revisions[query["rev"][0]], body)
            return {}
        if method == "PATCH" and body == {"state": "save", "auto-prompt": {"ays": "ays_yes"}} and revision == "applied":
            self.events.append("save")
            self.startup = copy.deepcopy(self.applied)
            return {"state": "save"}
        if method == "PATCH" and body == {"state": "apply", "auto-prompt": {"ays": "ays_yes"}}:
            self.events.append("apply")
            if not self.fails:
                self.applied = self.revisions[revision]
            self.state[revision] = "apply"
            return {"state": "apply"}
        if method == "GET" and path.startswith("/revision/"):
            now = self.state[revision]
            self.state[revision] = self.fails or "applied"  # the state at the next request
            return {"state": now, "transition": {"issue": {"0": {"message": "Invalid config"}} if self.fails else {}}}
        raise KeyError(path)

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        nvue = self

        class Handler(BaseHTTPRequestHandler):
            def handle_one(self) -> None:
                url = urlsplit(self.path)
                text = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                status, found = 200, None
                if (
                    self.headers.get("Authorization")
                    != "Basic " + base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()
                ):
                    status = 401
                else:
                    path = url.path.removeprefix("/nvue_v1")
                    try:
                        found = nvue.answer(self.command, path, parse_qs(url.query), json.loads(text) if text else None)
                    except KeyError:
                        status = 404
                answer = json.dumps(found).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            do_GET = do_POST = do_PATCH = handle_one  # noqa: N815 (http.server's names)

            def log_message(self, *_arguments: Any) -> None:
                """Print nothing to the tests' output."""

        return Handler
