#!/usr/bin/env python3
# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Receive messages of Alertmanager, and lines of logs as Elasticsearch does: receiver.py ADDRESS FILE LOGS.

FILE gets a line for each alert that fires or ends, LOGS a line for each line of a log.
"""

from __future__ import annotations

import json
import sys
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path


class Receiver(BaseHTTPRequestHandler):
    """Writes down what is posted; messages only with the right token."""

    def do_POST(self) -> None:
        """Take a message, or lines of logs."""
        text = self.rfile.read(int(self.headers["Content-Length"])).decode()
        if self.path == "/_bulk":
            self.take_logs(text.splitlines())
            return
        message = json.loads(text)
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

    def take_logs(self, lines: list[str]) -> None:
        """Answer as Elasticsearch's bulk API does for lines that are stored."""
        records = [json.loads(line) for line in lines[1::2]]
        with LOGS.open("a", encoding="utf-8") as stream:
            for record in records:
                print(record["host"], record["rack"], record["program"], record["message"], file=stream)
        body = json.dumps({"errors": False, "items": [{"create": {"status": 201}} for _record in records]}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


ADDRESS, FILE, LOGS = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])
HTTPServer((ADDRESS, 9999), Receiver).serve_forever()
