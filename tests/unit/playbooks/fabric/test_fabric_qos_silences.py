# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""playbooks/fabric_qos.yml silences the devices that it changes, and no other, until its end."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from simulated_fabric import LOSSLESS

pytestmark = [pytest.mark.fleet, pytest.mark.long]


class Alertmanager(ThreadingHTTPServer):
    """Answers as one that has one active silence, and keeps what it was asked."""

    def __init__(self):
        self.asked = asked = []

        class Handler(BaseHTTPRequestHandler):
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

        super().__init__(("127.0.0.1", 0), Handler)


@pytest.fixture
def alertmanager():
    with Alertmanager() as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


def silenced(alertmanager):
    """Return the hosts of the one silence that was made and ended."""
    ((_method, path, body), *rest) = alertmanager.asked
    assert path == "/api/v2/silences"
    assert [(method, path) for method, path, _body in rest] == [
        ("GET", "/api/v2/silence/7"),
        ("DELETE", "/api/v2/silence/7"),
    ]
    return body["matchers"][0]["value"]


def place(alertmanager):
    return ("-e", json.dumps({"play_silences": {"urls": [f"http://127.0.0.1:{alertmanager.server_port}"]}}))


@pytest.mark.parametrize("limit", [(), ("--limit", "leaf1")])
def test_a_run_silences_the_devices_that_it_changes_until_its_end(fabric, alertmanager, limit):
    fabric.apply(LOSSLESS, "leaf2")
    status, output = fabric.play(*place(alertmanager), *limit, policy=LOSSLESS)
    assert status == 0, output
    assert silenced(alertmanager) == "leaf1"


def test_a_run_that_loses_all_its_devices_ends_the_silence(fabric, alertmanager):
    fabric.apply(LOSSLESS, "leaf2")
    (fabric.leaf1 / "die").write_text("1")
    status, output = fabric.play(*place(alertmanager), "--limit", "leaf1,localhost", policy=LOSSLESS)
    assert status != 0
    assert silenced(alertmanager) == "leaf1", output
