# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Servers for the first stage."""

from __future__ import annotations

import functools
import http.server
import threading

import pytest
from first_stage import Behaviour, Handler


@pytest.fixture
def serve():
    """Yield a function that starts a server with a behaviour and returns its URL."""
    started = []

    def start(behaviour: Behaviour) -> str:
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Handler, behaviour))
        server.daemon_threads = True
        server.over = threading.Event()
        threading.Thread(target=server.serve_forever, daemon=True).start()
        started.append(server)
        return f"http://127.0.0.1:{server.server_port}"

    yield start
    for server in started:
        server.over.set()
        server.shutdown()
        server.server_close()
