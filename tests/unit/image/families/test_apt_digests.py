# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Packages that apt has in the cache are used only if their digests are those of lists and release."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest
from messages import raises
from recorded_tools import Tools

from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.caches import Caches
from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.errors import ImageError
from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.model import Archive, Layer
from ansible_collections.sailloft.fleet.plugins.module_utils.image.families import apt, apt_digests

LIST = "a_debian_dists_bookworm_main_binary-amd64_Packages"


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


@pytest.fixture(params=["InRelease", "Release"])
def release(request, tmp_path) -> Path:
    """The release of an archive with a list of two packages, of which one is in the cache."""
    lists, archives = tmp_path / "lists", tmp_path / "archives"
    lists.mkdir()
    archives.mkdir()
    (archives / "bash_5.2-1_amd64.deb").write_bytes(b"bash")
    packages = "".join(
        f"Package: {name}\nSize: 4\nSHA256: {sha256(name.encode())}\n\n" for name in ("bash", "dash")
    ).encode()
    (lists / LIST).write_bytes(packages)
    lines = [
        "MD5Sum:",
        f" {'0' * 32} {len(packages)} main/binary-amd64/Packages",
        "SHA256:",
        f" {sha256(packages)} {len(packages)} main/binary-amd64/Packages",
        f" {'1' * 64}        9 main/binary-amd64/Packages.xz",
    ]
    path = lists / f"a_debian_dists_bookworm_{request.param}"
    path.write_text("\n".join(lines) + "\n")
    return path


def test_lists_and_packages_with_the_digests_of_the_release_are_used(release):
    lists, archives = release.parent, release.parent.parent / "archives"
    apt_digests.require_releases(lists, "base", {"http://a bookworm": sha256(release.read_bytes())})
    apt_digests.require_lists(lists)
    assert apt_digests.remove_altered(archives, lists) == []
    assert (archives / "bash_5.2-1_amd64.deb").exists()


def test_a_release_that_is_not_that_of_the_layers_key_is_refused(release):
    with raises(ImageError, "http://a bookworm", "base", "changed", "2" * 64):
        apt_digests.require_releases(release.parent, "base", {"http://a bookworm": "2" * 64})


def test_a_list_that_was_altered_is_refused_and_removed(release):
    path = release.parent / LIST
    path.write_bytes(path.read_bytes().replace(b"bash", b"bush"))
    with raises(ImageError, LIST, "release"):
        apt_digests.require_lists(release.parent)
    assert not path.exists()


def test_a_package_of_the_same_size_that_no_list_has_is_removed(release):
    archives = release.parent.parent / "archives"
    (archives / "bash_5.2-1_amd64.deb").write_bytes(b"evil")
    (archives / "lock").touch()
    assert apt_digests.remove_altered(archives, release.parent) == ["bash_5.2-1_amd64.deb"]
    assert [path.name for path in archives.iterdir()] == ["lock"]


@pytest.mark.parametrize("is_better_then", [True, False])
def test_a_cached_package_that_differs_from_its_list_is_fetched_again(tmp_path, is_better_then):
    """The tools are recorded, so nothing is mounted: the tree's own directories stand for the cache."""
    root = tmp_path / "root"
    lists, archives = root / apt.LISTS, root / apt.ARCHIVES
    for folder in (lists, archives):
        folder.mkdir(parents=True)
    (lists / "a_debian_dists_bookworm_InRelease").write_bytes(b"release")
    (lists / LIST).write_text(f"Package: bash\nSHA256: {sha256(b'bash')}\n")
    package = archives / "bash_5.2-1_amd64.deb"
    package.write_bytes(b"evil")

    def answer(argv):
        if "--download-only" in argv and not package.exists():
            package.write_bytes(b"bash" if is_better_then else b"evil")
        return ""

    layer = Layer("base", None, "debian", "bookworm", "amd64", (Archive("http://a/debian", ("bookworm",), ("main",)),))
    tools, caches = Tools(answer=answer), Caches({}, tmp_path)
    given = (root, layer, tools, {"http://a/debian bookworm": sha256(b"release")}, caches, ["bash"])
    if is_better_then:
        apt.fetch(*given)
        assert package.read_bytes() == b"bash"
    else:
        with raises(ImageError, "layer base", package.name, "sha256"):
            apt.fetch(*given)
        assert not package.exists()
    assert ["--download-only" in command for command in tools.commands] == [False, True, True]
