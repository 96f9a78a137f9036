# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Apt itself, downloading from a very slow archive."""

from __future__ import annotations

import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from messages import raises

from ansible_collections.sailloft.fleet.plugins.module_utils.image.common import process
from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.errors import ImageError
from ansible_collections.sailloft.fleet.plugins.module_utils.image.families import downloads


class Dripping(BaseHTTPRequestHandler):
    """Send 1,000 of a million bytes ten times a second, for 30 s at most."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", "1000000")
        self.end_headers()
        try:
            for _part in range(300):
                self.wfile.write(bytes(1000))
                time.sleep(0.1)
        except ConnectionError:
            pass  # apt was ended

    def log_message(self, *_arguments: object) -> None:
        pass


def test_apt_is_stopped_if_an_archive_is_slower_than_the_minimum_rate(tmp_path, monkeypatch):
    monkeypatch.setattr(process, "CHECK_S", 0.2)
    monkeypatch.setattr(downloads, "WINDOW_S", 2)
    lists = tmp_path / "lists"
    (lists / "partial").mkdir(parents=True)
    server = ThreadingHTTPServer(("127.0.0.1", 0), Dripping)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    (tmp_path / "sources.list").write_text(f"deb [trusted=yes] http://127.0.0.1:{server.server_port}/ ./\n")
    settings = {
        "Dir::State::lists": lists,
        "Dir::Cache": tmp_path,
        "Dir::Etc::sourcelist": tmp_path / "sources.list",
        "Dir::Etc::sourceparts": "-",
        "APT::Sandbox::User": "root",
        "Acquire::http::Proxy::127.0.0.1": "DIRECT",
    }
    command = ["apt-get", "-q", *(f"-o{name}={value}" for name, value in settings.items()), "update"]
    with raises(ImageError, "base", "2", "65536"):
        process.run(command, fault=downloads.Downloads("layer base", [lists]))
    server.shutdown()
