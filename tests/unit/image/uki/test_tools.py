# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The tools of Secure Boot: unpacked once for each state of their archive, and only in a version that was tried."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from messages import raises

from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.errors import ImageError
from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.model import Archive
from ansible_collections.sailloft.fleet.plugins.module_utils.image.uki import tools

ARCHIVE = Archive("http://deb.example/debian", ("trixie",), ("main",))


class Host:
    """A build host whose archive has this ukify; ``unpacked`` counts."""

    def __init__(self, folder, monkeypatch, version="ukify 257 (257.13-1~deb13u1)", stub=True):
        self.folder, self.version, self.stub = folder, version, stub
        self.digest, self.unpacked = "1", []
        self.subject, self.progress = "Secure Boot", print
        (folder / "work").mkdir()
        (folder / "cache").mkdir()
        family = SimpleNamespace(release_digests=lambda layer, fetch: {"a": self.digest}, unpack_alone=self.unpack)
        monkeypatch.setattr(tools, "family_of", lambda name: {"debian": family}[name])
        monkeypatch.setattr(tools, "entered", lambda tree, argv, **paths: argv)

    def unpack(self, into, layer, digests, run, lists, names):
        self.unpacked.append((layer.architecture, layer.suite, names))
        place = into / "usr/lib/systemd/boot/efi"
        place.mkdir(parents=True)
        if self.stub:
            name = {"amd64": "x64", "arm64": "aa64"}[layer.architecture]
            (place / f"linux{name}.efi.stub").write_bytes(b"MZ")

    def __call__(self, argv, env=None):
        """Run a command, as tools.Run does."""
        assert argv[-1] == "--version"
        return f"{self.version}\n"

    def tools(self, architecture="amd64"):
        return tools.unpacked(architecture, ARCHIVE, self.folder / "cache", self.folder / "work", None, self)


def test_the_tools_are_unpacked_once_for_each_state_of_the_archive(tmp_path, monkeypatch):
    host = Host(tmp_path, monkeypatch)
    once = host.tools()
    assert once.stub.read_bytes() == b"MZ"
    assert host.tools() == once
    assert host.unpacked == [("amd64", "trixie", tools.PACKAGES)]
    host.digest = "2"
    assert host.tools().key != once.key
    assert len(host.unpacked) == 2


@pytest.mark.parametrize(("name", "debian", "efi"), [("x86_64", "amd64", "x64"), ("aarch64", "arm64", "aa64")])
def test_the_stub_is_that_of_the_images_architecture(tmp_path, monkeypatch, name, debian, efi):
    host = Host(tmp_path, monkeypatch)
    assert host.tools(name).efi_architecture == efi
    assert host.unpacked[0][0] == debian


@pytest.mark.parametrize("version", ["ukify 252 (252.39)", "ukify 256 (256.7)", "no such program"])
def test_an_older_ukify_than_was_tried_is_refused(tmp_path, monkeypatch, version):
    host = Host(tmp_path, monkeypatch, version)
    with raises(ImageError, version, "257", "node_image_secure_boot"):
        host.tools()
    assert list((tmp_path / "cache").iterdir()) == []


def test_an_archive_without_the_stub_is_refused(tmp_path, monkeypatch):
    with raises(ImageError, "linuxx64.efi.stub"):
        Host(tmp_path, monkeypatch, stub=False).tools()
