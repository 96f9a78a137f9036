# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""playbooks/fabric_qos.yml silences the devices that it changes, and no other."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from simulated_fabric import LOSSLESS

pytestmark = [pytest.mark.fleet, pytest.mark.long]


def test_a_run_silences_the_devices_that_it_changes_until_its_end(fabric):
    asked = []

    class Alertmanager(BaseHTTPRequestHandler):
        def answer(self):
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            asked.append((self.command, self.path, json.loads(body) if body else None))
            text = json.dumps({"silenceID": "7", "status": {"state": "active"}}).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        do_GET = do_POST = do_DELETE = answer  # noqa: N815

        def log_message(self, *_arguments):
            """Say nothing."""

    fabric.apply(LOSSLESS, "leaf2")
    with ThreadingHTTPServer(("127.0.0.1", 0), Alertmanager) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        place = {"play_silences": {"urls": [f"http://127.0.0.1:{server.server_port}"]}}
        status, output = fabric.play("-e", json.dumps(place), policy=LOSSLESS)
        server.shutdown()
    assert status == 0, output
    ((_method, path, body), *rest) = asked
    assert (path, body["matchers"][0]["value"]) == ("/api/v2/silences", "leaf1")
    assert [(method, path) for method, path, _body in rest] == [
        ("GET", "/api/v2/silence/7"),
        ("DELETE", "/api/v2/silence/7"),
    ]
