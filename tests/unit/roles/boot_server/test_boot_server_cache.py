# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A cache of blobs: the role's nginx before the role's nginx, and the first stage's shell as the node."""

from __future__ import annotations

import contextlib
import hashlib
import random
import shutil
import socket
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from boot_http import NGINX, serving
from first_stage import shell

pytestmark = pytest.mark.skipif(not (NGINX and shutil.which("busybox")), reason="bindep.txt is not installed")
# Three parts of a cache, the last one incomplete.
LAYER = random.Random(1).randbytes((16 << 20) + 12345)
DIGEST = hashlib.sha256(LAYER).hexdigest()
PARTS = 3
BLOB = f"/blobs/{DIGEST}"


@contextlib.contextmanager
def boot_server(folder: Path, layer: bytes | None = LAYER):
    """Run a boot server, whose store has the layer, as these bytes."""
    folder.mkdir()
    with serving(folder) as server:
        if layer is not None:
            (folder / "store/blobs" / DIGEST).write_bytes(layer)
        yield server


@contextlib.contextmanager
def cache_of(folder: Path, *urls: str):
    folder.mkdir()
    with serving(folder, upstreams=urls) as cache:
        yield cache


def asked(folder: Path) -> int:
    """Return the number of requests for blobs that a server has answered."""
    return sum("GET /blobs/" in line for line in (folder / "access.log").read_text().splitlines())


def booted(tmp_path: Path, cache: str, servers: str) -> str:
    """Let a node fetch the layer; return its output."""
    script = f"""
        caches='{cache}' servers='{servers}'
        fetch {BLOB[1:]} {tmp_path}/layer {len(LAYER)} check_digest {DIGEST}
        echo "from $server"; echo "WARNED $warnings"
    """
    output = shell(tmp_path, script)
    assert (tmp_path / "layer").read_bytes() == LAYER
    return output


def test_a_rack_fetches_each_part_of_a_layer_once(tmp_path):
    with boot_server(tmp_path / "boot") as server, cache_of(tmp_path / "rack", server.url) as cache:
        with ThreadPoolExecutor(8) as nodes:
            answers = list(nodes.map(lambda _: cache(BLOB), range(8)))
        assert all((answer.status, answer.content) == (200, LAYER) for answer in answers)
        assert asked(tmp_path / "boot") == PARTS
        answer = cache(BLOB, Range=f"bytes={len(LAYER) - 10}-")
        assert (answer.status, answer.content) == (206, LAYER[-10:])
        assert booted(tmp_path, cache.url, server.url) == f"from {cache.url}\nWARNED \n"
        assert asked(tmp_path / "boot") == PARTS


def test_a_cache_answers_without_its_boot_servers(tmp_path):
    with contextlib.ExitStack() as stack:
        with boot_server(tmp_path / "boot") as server:
            cache = stack.enter_context(cache_of(tmp_path / "rack", server.url))
            assert cache(BLOB).content == LAYER
        assert cache(BLOB).content == LAYER
        assert cache("/blobs/" + "0" * 64).status == 502


def test_a_cache_has_nothing_but_blobs(tmp_path):
    """Files that are signed, or change, come from boot servers only, so they cannot be old."""
    with boot_server(tmp_path / "boot") as server, cache_of(tmp_path / "rack", server.url) as cache:
        for path in ("/nodes/file", "/channels/file", "/images/x/file", "/identity/file", "/boot/ipxe.efi", "/report"):
            assert server(path).status in (200, 204), path
            assert cache(path).status == 404, path
        for path in ("/blobs/file", "/blobs/.file.new", "/blobs/", BLOB + "/../../nodes/file", BLOB + "?x"):
            assert cache(path).status in (400, 404) or cache(path).content == LAYER, path
        assert cache(BLOB, "PUT", b"x").status in (403, 405)


def test_a_cache_asks_another_boot_server_for_what_one_has_not(tmp_path):
    with (
        boot_server(tmp_path / "first", None) as empty,
        boot_server(tmp_path / "second") as server,
        cache_of(tmp_path / "rack", "http://127.0.0.1:9", empty.url, server.url) as cache,
    ):
        assert cache(BLOB).content == LAYER


def test_bytes_that_were_altered_in_a_cache_are_refused_and_come_from_a_boot_server(tmp_path):
    with boot_server(tmp_path / "boot") as server, cache_of(tmp_path / "rack", server.url) as cache:
        cache(BLOB)
        parts = [path for path in (tmp_path / "rack/cache").rglob("*") if path.is_file()]
        assert len(parts) == PARTS
        with parts[0].open("r+b") as file:
            file.seek(parts[0].stat().st_size - 100)
            file.write(b"altered")
        output = booted(tmp_path, cache.url, server.url)
        assert f"REFUSED: node n1: {BLOB[1:]} from {cache.url}: sha256 wanted {DIGEST}, seen " in output
        assert f"from {server.url}\nWARNED passed over: {cache.url} sent a wrong {BLOB[1:]}: " in output


def test_a_cache_of_a_boot_server_that_lies_is_passed_over(tmp_path):
    with (
        boot_server(tmp_path / "liar", LAYER[:-1] + b"x") as liar,
        boot_server(tmp_path / "boot") as server,
        cache_of(tmp_path / "rack", liar.url) as cache,
    ):
        output = booted(tmp_path, cache.url, server.url)
        assert f"from {server.url}\nWARNED passed over: {cache.url} " in output


@pytest.mark.parametrize("with_cache", [False, True])
def test_nginx_listens_on_its_address_only(tmp_path, with_cache):
    with boot_server(tmp_path / "boot") as server, cache_of(tmp_path / "rack", server.url) as cache:
        port = int((cache if with_cache else server).url.rpartition(":")[2])
        socket.create_connection(("127.0.0.1", port), 10).close()
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.2", port), 10)
