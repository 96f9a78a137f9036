# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The wait for a program: any status is an answer; nobody listening is an error."""

from __future__ import annotations

import http.server
import socket
import threading

from messages import raises

from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.errors import HostError
from ansible_collections.sailloft.fleet.plugins.module_utils.monitoring_host.daemons import Daemon, wait


def test_any_status_is_an_answer():
    class Refuses(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_error(401)

        def log_message(self, *_arguments):
            """Print nothing."""

    with http.server.HTTPServer(("127.0.0.1", 0), Refuses) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        daemon = Daemon("a.service", (), url=f"http://127.0.0.1:{server.server_port}/")
        wait(daemon, lambda: True, limit_s=10)
        # The program has ended, and another one answers.
        with raises(HostError, "a.service", "another program"):
            wait(daemon, lambda: False, limit_s=0)
        server.shutdown()


def test_a_program_that_does_not_answer_is_named():
    # A bound socket that does not listen refuses connections.
    with socket.socket() as bound, raises(HostError, "a.service", "journalctl"):
        bound.bind(("127.0.0.1", 0))
        wait(Daemon("a.service", (), url=f"http://127.0.0.1:{bound.getsockname()[1]}/"), lambda: True, limit_s=0)
