#!/usr/bin/env python3
# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Receive the messages of Alertmanager: receiver.py ADDRESS FILE, with a line for each alert that fires or ends."""

from __future__ import annotations

import json
import sys
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path


class Receiver(BaseHTTPRequestHandler):
    """Writes down what is posted with the right token."""

    def do_POST(self) -> None:
        """Take a message."""
        message = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.headers["Authorization"] != "Bearer the-token-of-the-hook":
            self.send_error(401)
            return
        with FILE.open("a", encoding="utf-8") as stream:
            for alert in message["alerts"]:
                labels = alert["labels"]
                print(alert["status"], labels["alertname"], labels.get("instance", ""), sep=" ", file=stream)
                print(json.dumps(alert), file=sys.stderr, flush=True)
        self.send_response(200)
        self.end_headers()


ADDRESS, FILE = sys.argv[1], Path(sys.argv[2])
HTTPServer((ADDRESS, 9999), Receiver).serve_forever()
