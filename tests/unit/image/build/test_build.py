# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What a build reads from archives, keys and the store, where that is damaged: a clear refusal or a new beginning."""

from __future__ import annotations

import os
import socket
import threading
import time

import pytest
from ansible.module_utils.urls import open_url
from image_samples import Sample

from ansible_collections.sailloft.fleet.plugins.module_utils.image.build import build, layers
from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.errors import ImageError
from ansible_collections.sailloft.fleet.plugins.module_utils.image.store import sign
from ansible_collections.sailloft.fleet.plugins.module_utils.image.store.store import Store


@pytest.mark.parametrize("answer", [b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf", b"SSH-2.0-OpenSSH_9.2\r\n"])
def test_a_server_that_breaks_off_or_speaks_otherwise_is_told(answer):
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            with server.accept()[0] as connection:
                connection.recv(10000)
                connection.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        url = f"http://127.0.0.1:{server.getsockname()[1]}/InRelease"
        with pytest.raises(ImageError, match=rf"^archive {url}: cannot be read"):
            build._Fetcher(open_url)(url)
        thread.join()


def test_an_archive_that_drips_is_given_up():
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            with server.accept()[0] as connection:
                connection.recv(10000)
                connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n")
                for _byte in range(100):
                    try:
                        connection.sendall(b"x")
                    except OSError:
                        return  # the builder has gone
                    time.sleep(0.2)

        thread = threading.Thread(target=serve)
        thread.start()
        url = f"http://127.0.0.1:{server.getsockname()[1]}/InRelease"
        began = time.monotonic()
        with pytest.raises(ImageError, match=rf"^archive {url}: sent [5-7] bytes in 1 s, and not all; "):
            build._Fetcher(open_url, deadline_s=1)(url)
        assert time.monotonic() - began < 5
        thread.join()


def test_a_public_key_that_is_no_text_is_told(tmp_path):
    (tmp_path / "image.pub").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ImageError, match="is not a minisign public key"):
        sign.read_public_key(tmp_path / "image.pub")


def test_a_listing_of_the_store_that_is_damaged_counts_as_none(tmp_path):
    image, store = Sample("gpu-node", base=b"base"), Store(str(tmp_path / "store"))
    image.publish(store, tmp_path / "blobs")
    listing = image.manifest.layers[0].listing_sha256
    (tmp_path / "store/blobs" / listing).write_text("{")
    assert build._current(store, image.digest) == (None, {})


def test_what_no_build_wanted_for_long_leaves_the_cache(tmp_path):
    long_ago = time.time() - build.UNUSED_S - 60
    names = ("layers/a", "apt/lists-a", "dnf/rocky-a", "dnf/rocky-b", "apt/archives-debian")
    for name in names:
        (tmp_path / name).mkdir(parents=True)
        os.utime(tmp_path / name, (long_ago, long_ago))
    root = tmp_path / "root"
    root.mkdir()
    with layers.mounted_caches(tmp_path, root, {"var/cache/dnf": "dnf/rocky-b"}, lambda argv: None):
        pass
    build._sweep(tmp_path)
    assert [name for name in names if (tmp_path / name).is_dir()] == ["dnf/rocky-b", "apt/archives-debian"]
