# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Receivers of logs: a stand-in for Elasticsearch's bulk API with TLS, and the broker that librdkafka mocks in kcat."""

from __future__ import annotations

import contextlib
import ctypes
import json
import re
import select
import signal
import socket
import socketserver
import ssl
import subprocess
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path


class BulkReceiver:
    """A server of ``/_bulk`` as Elasticsearch answers it: it can refuse a request, single lines, or be slow.

    ``refuse_requests``: the status of all answers, such as 503. ``refuse_lines``: status of a line by its message.
    """

    def __init__(self, folder: Path, port: int) -> None:
        self.folder, self.port = folder, port
        self.by_id: dict[str, dict[str, str]] = {}
        self.requests = 0
        self.refuse_requests = 0
        self.refuse_lines: dict[str, int] = {}  # a 429 is given once
        self.delay_s = 0.0
        self.server: ThreadingHTTPServer | None = None

    @property
    def messages(self) -> list[str]:
        return [record["message"] for record in self.by_id.values()]

    def start(self) -> None:
        self.server = ThreadingHTTPServer(("127.0.0.1", self.port), self._handler())
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.folder / "server.pem", self.folder / "server.key")
        self.server.socket = context.wrap_socket(self.server.socket, server_side=True)
        threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True).start()

    def stop(self) -> None:
        if self.server:
            self.server.shutdown()
            self.server.server_close()
            self.server = None

    def take(self, lines: list[str]) -> tuple[int, object]:
        """Return status and answer of a request."""
        self.requests += 1
        time.sleep(self.delay_s)
        if self.refuse_requests:
            return self.refuse_requests, {"error": "refused"}
        items = []
        for action, text in zip(lines[::2], lines[1::2]):
            place = json.loads(action)["create"]
            record = json.loads(text)
            status = self.refuse_lines.get(record["message"], 201)
            if status == 429:
                del self.refuse_lines[record["message"]]
            if place["_id"] in self.by_id:
                status = 409
            if status == 201:
                self.by_id[place["_id"]] = {**record, "_index": place["_index"]}
            item = {"_index": place["_index"], "_id": place["_id"], "status": status}
            items.append(
                {"create": item if status == 201 else {**item, "error": {"type": "made up", "reason": "none"}}}
            )
        return 200, {"took": 1, "errors": any(each["create"]["status"] != 201 for each in items), "items": items}

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_arguments: object) -> None:
                pass

            def _answer(self, status: int, data: object) -> None:
                body = json.dumps(data).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def do_GET(self) -> None:
                self._answer(200, {})

            do_HEAD = do_GET  # noqa: N815 (its name in the library)

            def do_POST(self) -> None:
                text = self.rfile.read(int(self.headers["Content-Length"])).decode()
                if self.headers.get("Authorization") != "Basic bG9nczpzZWNyZXQ=":
                    self._answer(401, {"error": "logs:secret is wanted"})
                else:
                    self._answer(*receiver.take(text.splitlines()))

        return Handler


def certificate(folder: Path, address: str = "127.0.0.1") -> Path:
    """Make the key and the certificate of an address, which is its own authority; return its path."""
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"),
            *("-subj", f"/CN={address}", "-addext", f"subjectAltName=IP:{address}", "-days", "2"),
            *("-keyout", folder / "server.key", "-out", folder / "server.pem"),
        ],
        capture_output=True,
        check=True,
    )
    return folder / "server.pem"


class MockBroker:
    """A Kafka broker that librdkafka simulates inside kcat, the consumer, on a port of its own.

    It has no TLS, and tells its clients its own address. With ``tls``, the directory of a certificate, it therefore
    runs in a network of its own, and a server with TLS has the same address here, which wants the certificate of its
    clients.
    """

    def __init__(self, folder: Path, tls: Path | None = None) -> None:
        self.output, self.log = folder / "kafka.out", folder / "kafka.log"
        options = ["-u", "-q", "-C", "-t", "logs", "-b", "none", "-X", "test.mock.num.brokers=1", "-d", "mock"]
        apart = ["unshare", "--net", "sh", "-c", 'ip link set lo up && exec "$@"', "sh"] if tls else []
        with open(self.output, "wb") as output, open(self.log, "wb") as log:
            self.process = subprocess.Popen([*apart, "kcat", *options], stdout=output, stderr=log)
        until = time.monotonic() + 60
        while not (place := re.search(r"bootstrap.servers=(\S+)", self.log.read_text())):
            assert time.monotonic() < until, self.log.read_text()
            time.sleep(0.02)
        self.address = place.group(1)
        self.secured = self._forward(int(self.address.rpartition(":")[2]), tls) if tls else None

    @property
    def messages(self) -> list[str]:
        lines = self.output.read_text().splitlines()
        return [json.loads(line)["message"] for line in lines if line.endswith("}")]

    @contextlib.contextmanager
    def hung(self) -> Iterator[None]:
        """Let it answer nothing, although its port is open."""
        self.process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self.process.send_signal(signal.SIGCONT)

    @contextlib.contextmanager
    def reached_at(self, port: int) -> Iterator[None]:
        """Listen on another port, which says where the broker is."""
        server = self._forward(port)
        try:
            yield
        finally:
            _end(server)

    def _forward(self, port: int, tls: Path | None = None) -> socketserver.ThreadingTCPServer:
        broker = ("127.0.0.1", int(self.address.rpartition(":")[2]))
        network = f"/proc/{self.process.pid}/ns/net"

        class Forward(socketserver.BaseRequestHandler):
            def handle(self) -> None:
                if tls:  # each connection has a thread, whose further sockets belong to this network
                    with open(network) as file:
                        assert ctypes.CDLL(None).setns(file.fileno(), 0) == 0
                with contextlib.suppress(OSError), socket.create_connection(broker) as other:
                    if tls:
                        with _context(tls).wrap_socket(self.request, server_side=True) as secured:
                            _relay(secured, other)
                    else:
                        _relay(self.request, other)

        server = socketserver.ThreadingTCPServer(("127.0.0.1", port), Forward)
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        return server

    def stop(self) -> None:
        if self.secured:
            _end(self.secured)
        self.process.kill()
        self.process.wait()


def _end(server: socketserver.ThreadingTCPServer) -> None:
    server.shutdown()
    server.socket.close()


def _context(folder: Path) -> ssl.SSLContext:
    """Return a server's context, which wants the certificate of the directory from its clients."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "server.pem", folder / "server.key")
    context.load_verify_locations(folder / "server.pem")
    context.verify_mode = ssl.CERT_REQUIRED
    return context


def _relay(one: socket.socket, other: socket.socket) -> None:
    """Copy both ways until one side ends."""
    far = {one: other, other: one}
    while True:
        waiting = [side for side in far if isinstance(side, ssl.SSLSocket) and side.pending()]
        for side in waiting or select.select(list(far), [], [])[0]:
            data = side.recv(65536)
            if not data:
                return
            far[side].sendall(data)
