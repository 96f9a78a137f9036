# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A missing base image is downloaded from a real server, complete and with its checksum or not at all."""

from __future__ import annotations

import functools
import hashlib
import http.server
import threading
from pathlib import Path

import pytest

from ansible_collections.sailloft.fleet.plugins.module_utils.vm.common.errors import DomainError
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.libvirt import base_images
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.request.spec import Disk

CONTENT = b"an image" * 200_000


@pytest.fixture
def url(tmp_path):
    (tmp_path / "served").mkdir()
    (tmp_path / "served/cloud.qcow2").write_bytes(CONTENT)
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=str(tmp_path / "served"))
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/cloud.qcow2"
    server.shutdown()


def disk(tmp_path: Path, url: str, checksum: str) -> Disk:
    return Disk("/a.qcow2", base=str(tmp_path / "images/base.qcow2"), base_url=url, base_checksum=checksum)


@pytest.mark.parametrize("algorithm", ["sha256", "sha512"])
def test_a_base_is_downloaded_once(tmp_path, url, algorithm):
    checksum = f"{algorithm}:{hashlib.new(algorithm, CONTENT).hexdigest()}"
    base_images.download(disk(tmp_path, url, checksum), "a")
    assert (tmp_path / "images/base.qcow2").read_bytes() == CONTENT
    (tmp_path / "served/cloud.qcow2").write_bytes(b"another image, which would damage the disks over the base")
    base_images.download(disk(tmp_path, url, checksum), "a")
    assert (tmp_path / "images/base.qcow2").read_bytes() == CONTENT


def test_an_image_with_another_checksum_is_not_kept(tmp_path, url):
    with pytest.raises(DomainError) as error:
        base_images.download(disk(tmp_path, url, "sha256:" + "0" * 64), "a")
    assert error.value.domain == "a"
    assert hashlib.sha256(CONTENT).hexdigest() in error.value.cause
    assert list((tmp_path / "images").iterdir()) == []


def test_a_server_without_the_image_is_named(tmp_path, url):
    missing = url.replace("cloud", "other")
    with pytest.raises(DomainError) as error:
        base_images.download(disk(tmp_path, missing, "sha256:" + "0" * 64), "a")
    assert missing in error.value.cause
    assert not (tmp_path / "images/base.qcow2").exists()
