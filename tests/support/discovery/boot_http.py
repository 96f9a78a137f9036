# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A boot server's nginx with the role's configuration, and the keeper behind it."""

from __future__ import annotations

import contextlib
import http.client
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from boot_server_role import nginx_configuration
from health_keeper import KEEPER
from sockets import wait_for_listener

CONTENT = b"layer" * 1000
NGINX = shutil.which("nginx", path="/usr/sbin:/usr/bin:/sbin")


@contextlib.contextmanager
def serving(
    folder: Path, discovery: Mapping[str, Any] | None = None, upstreams: Sequence[str] = (), **settings: Any
) -> Iterator[Callable[..., Any]]:
    """Run nginx with a store in the directory; yield a function that sends a request, from an address of 127/8.

    With ``upstreams``, the URLs of boot servers, it is a cache, which has no use for the store. ``settings`` are others
    of ``nginx_configuration``.
    """
    for name in ("blobs", "images/x", "channels", "nodes", "identity", "current"):
        (folder / "store" / name).mkdir(parents=True)
        (folder / "store" / name / "file").write_bytes(CONTENT)
    (folder / "store" / "blobs" / ".file.new").write_bytes(CONTENT)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    file = folder / "nginx.conf"
    (folder / "tftp").mkdir()
    for name in ("ipxe.efi", ".hidden"):
        (folder / "tftp" / name).write_bytes(b"iPXE")
    asked = [url.removeprefix("http://") for url in upstreams]
    settings = {"discovery": discovery, "upstreams": asked, **settings}
    file.write_text(nginx_configuration(folder, folder / "store", port, folder / "tftp", **settings))
    command = [NGINX, "-e", folder / "error.log", "-c", file]
    subprocess.run([*command, "-t", "-q"], check=True)
    process = subprocess.Popen([*command, "-g", "daemon off;"], stderr=subprocess.DEVNULL)

    def ask(
        path: str, method: str = "GET", body: bytes | None = None, source: str = "127.0.0.1", **headers: str
    ) -> http.client.HTTPResponse:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60, source_address=(source, 0))
        connection.request(method, path, body, headers=headers)
        answer = connection.getresponse()
        answer.content = answer.read()
        connection.close()
        return answer

    ask.url = f"http://127.0.0.1:{port}"
    try:
        deadline = time.monotonic() + 60
        while True:
            try:
                ask("/")
                break
            except OSError:
                assert time.monotonic() < deadline
                time.sleep(0.05)
        yield ask
    finally:
        process.terminate()
        process.wait(10)


@contextlib.contextmanager
def keeping(folder: Path, copies: Path, *pending: Path, crashes: Sequence[object] = ()) -> Iterator[None]:
    """Run the keeper of the copies behind nginx; ``pending`` are its directories for reports of unknown machines.

    ``crashes`` are the directory of crash dumps, and how many bytes they may have.
    """
    copies.mkdir()
    socket_path = folder / "socket"
    options = [*(["--pending", *pending] if pending else []), *(["--crashes", *crashes] if crashes else [])]
    arguments = [KEEPER, *options, socket_path, folder / "store/identity", copies]
    keeper = subprocess.Popen([sys.executable, "-I", *map(str, arguments)])
    try:
        wait_for_listener(socket_path, keeper)
        yield
    finally:
        keeper.kill()
        keeper.wait()
