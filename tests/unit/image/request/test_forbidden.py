# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Files that must not be in an image, tested on generated trees."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
from pathlib import Path

import pytest

from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.errors import ImageError
from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.tools import file_inside, inside
from ansible_collections.sailloft.fleet.plugins.module_utils.image.formats.listing import is_whiteout, listing
from ansible_collections.sailloft.fleet.plugins.module_utils.image.request import forbidden

EPOCH = 1_783_764_997
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="whiteouts are device nodes (make image runs as root)")


def put(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def names(root: Path) -> set[str]:
    return {os.fspath(path.relative_to(root)) for path in root.rglob("*") if not path.is_dir() or path.is_symlink()}


def test_files_that_differ_between_builds_or_nodes_are_removed(tmp_path):
    root = put(
        tmp_path,
        {
            "etc/ssh/ssh_host_rsa_key": "secret",
            "etc/munge/munge.key": "secret",
            "etc/bind/rndc.key": "secret",
            "etc/dropbear/dropbear_rsa_host_key": "secret",
            "var/lib/dkms/mok.key": "secret",
            "var/lib/dkms/mok.pub": "x",
            "var/lib/dkms/acpi-call/1.2.2/build/make.log": "x",
            "var/lib/dkms/acpi-call/1.2.2/6.1.0-1-cloud-amd64/x86_64/log/make.log": "x",
            "var/lib/dkms/acpi-call/1.2.2/6.1.0-1-cloud-amd64/x86_64/module/acpi_call.ko": "x",
            "etc/ssh/sshd_config": "",
            "etc/passwd-": "",
            "etc/passwd": "",
            "etc/machine-id": "0123",
            "var/lib/systemd/random-seed": "x",
            "var/log/apt/term.log": "x",
            "var/cache/ldconfig/aux-cache": "x",
            "var/cache/debconf/config.dat": "answers",
            "boot/vmlinuz-6.1": "x",
            "boot/config-6.1": "x",
            "tmp/x": "",
            "run/lock/x": "",
            "root/.bash_history": "",
        },
    )
    forbidden.normalise(root, EPOCH)
    assert names(root) == {
        "var/lib/dkms/acpi-call/1.2.2/6.1.0-1-cloud-amd64/x86_64/module/acpi_call.ko",
        "etc/ssh/sshd_config",
        "etc/passwd",
        "etc/machine-id",
        "var/cache/debconf/config.dat",
        "boot/config-6.1",
    }
    assert (root / "etc/machine-id").read_text() == ""
    assert (root / "var/log/apt").is_dir()


def test_links_out_of_the_image_are_not_followed(tmp_path):
    host = put(tmp_path / "host", {"keep": "", "log/keep": "", "ssh/ssh_host_rsa_key": ""})
    root = put(tmp_path / "root", {"etc/passwd": ""})
    (root / "tmp").symlink_to(host)
    (root / "var").mkdir()
    (root / "var/log").symlink_to(host / "log")
    (root / "etc/ssh").symlink_to(host / "ssh")
    forbidden.normalise(root, EPOCH)
    assert names(host) == {"keep", "log/keep", "ssh/ssh_host_rsa_key"}


def test_password_dates_after_the_date_of_the_archive_are_lowered(tmp_path):
    root = put(tmp_path, {"etc/shadow": "root:*:30000:0:99999:7:::\nold:*:100:0:99999:7:::\nnone:*::0:99999:7:::\n"})
    forbidden.normalise(root, EPOCH)
    assert (root / "etc/shadow").read_text().splitlines() == [
        f"root:*:{EPOCH // 86400}:0:99999:7:::",
        "old:*:100:0:99999:7:::",
        "none:*::0:99999:7:::",
    ]


def test_links_are_followed_within_the_image(tmp_path):
    (tmp_path / "usr/lib").mkdir(parents=True)
    (tmp_path / "lib").symlink_to("/usr/lib")
    (tmp_path / "up").symlink_to("../../../usr")
    assert inside(tmp_path, "/lib/x") == tmp_path / "usr/lib/x"
    assert inside(tmp_path, "/up/lib") == tmp_path / "usr/lib"
    assert inside(tmp_path, "/../../etc/passwd") == tmp_path / "etc/passwd"
    (tmp_path / "round").symlink_to("round")
    with pytest.raises(ImageError, match="loop"):
        inside(tmp_path, "/round/x")
    put(tmp_path, {"usr/lib/file": ""})
    (tmp_path / "last").symlink_to("/lib/file")
    assert inside(tmp_path, "/last") == tmp_path / "last"
    assert inside(tmp_path, "/last", follow=True) == file_inside(tmp_path, "/last") == tmp_path / "usr/lib/file"
    assert file_inside(tmp_path, "/round") is None
    assert file_inside(tmp_path, "/usr/lib") is None


def test_files_equal_to_those_of_the_parent_are_removed_from_the_layer(tmp_path):
    parent = put(tmp_path / "parent", {"same": "1", "other": "1", "mode": "1", "folder/same": "1", "kept/same": "1"})
    upper = put(tmp_path / "upper", {"same": "1", "other": "2", "mode": "1", "folder/same": "1", "new": "1"})
    put(upper, {"kept/same": "1", "kept/new": "1"})
    (upper / "mode").chmod(0o600)
    forbidden.prune(upper, parent, EPOCH)
    assert names(upper) == {"other", "mode", "new", "kept/new"}
    assert not (upper / "folder").exists()
    assert upper.stat().st_mtime == EPOCH


@as_root
def test_whiteouts_are_kept_only_if_they_hide_a_file(tmp_path):
    parent = put(tmp_path / "parent", {"gone": "1", "folder/a": "1", "folder/b": "1"})
    upper = put(tmp_path / "upper", {"folder/b": "1", "fresh/x": "1"})
    for name in ("gone", "never", "fresh/never"):
        os.mknod(upper / name, 0o020000, 0)
    for name in ("folder", "fresh"):
        os.setxattr(upper / name, forbidden.OPAQUE, b"y")
    os.setxattr(upper, "trusted.overlay.uuid", b"random")
    os.setxattr(upper / "fresh/x", "trusted.overlay.origin", b"random")
    forbidden.prune(upper, parent, EPOCH)
    # Each name that an opaque directory hides becomes a whiteout.
    assert {path: entry["type"] for path, entry in listing(upper).items()} == {
        "/gone": "whiteout",
        "/folder": "directory",
        "/folder/a": "whiteout",
        "/fresh": "directory",
        "/fresh/x": "file",
    }
    for path in (upper, *upper.rglob("*")):
        assert not os.listxattr(path, follow_symlinks=False)


@as_root
def test_hidden_files_below_an_opaque_folder_become_whiteouts(tmp_path):
    # After `rm -r folder; mkdir -p folder/deep/deeper`, overlayfs marks only the top directory as opaque.
    parent = put(
        tmp_path / "parent", {"folder/deep/gone": "1", "folder/deep/deeper/gone": "1", "folder/deep/same": "1"}
    )
    upper = put(tmp_path / "upper", {"folder/deep/same": "1", "folder/deep/deeper/new": "1"})
    os.setxattr(upper / "folder", forbidden.OPAQUE, b"y")
    forbidden.prune(upper, parent, EPOCH)
    assert names(upper) == {"folder/deep/gone", "folder/deep/deeper/gone", "folder/deep/deeper/new"}
    assert all(is_whiteout((upper / name).lstat()) for name in ("folder/deep/gone", "folder/deep/deeper/gone"))
    assert not os.listxattr(upper / "folder")


def test_a_listing_contains_all_files_with_their_properties(tmp_path):
    put(tmp_path, {"etc/x": "abc"})
    (tmp_path / "etc/x").chmod(0o640)
    (tmp_path / "link").symlink_to("etc/x")
    os.mkfifo(tmp_path / "fifo")
    found = listing(tmp_path)
    assert found["/etc/x"] == {
        "type": "file",
        "mode": "0640",
        "owner": os.getuid(),
        "group": os.getgid(),
        "size_bytes": 3,
        "sha256": "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad",
    }
    assert (found["/link"]["type"], found["/link"]["target"]) == ("link", "etc/x")
    assert (found["/etc"]["type"], found["/fifo"]["type"]) == ("directory", "fifo")
    shutil.rmtree(tmp_path / "etc")
    assert set(listing(tmp_path)) == {"/link", "/fifo"}


@as_root
def test_attributes_of_links_are_those_of_the_links_themselves(tmp_path):
    parent, upper = put(tmp_path / "parent", {"a": "1"}), put(tmp_path / "upper", {"b": "1"})
    for folder in (parent, upper):
        (folder / "link").symlink_to("/nowhere")
        os.setxattr(folder / "link", "trusted.sailloft", b"1", follow_symlinks=False)
    os.setxattr(upper / "link", "trusted.overlay.origin", b"random", follow_symlinks=False)
    (upper / "other").symlink_to("/nowhere")
    os.setxattr(upper / "other", "trusted.overlay.origin", b"random", follow_symlinks=False)
    forbidden.prune(upper, parent, EPOCH)
    assert names(upper) == {"b", "other"}  # the link is the same below
    assert not os.listxattr(upper / "other", follow_symlinks=False)


@as_root
def test_files_of_equal_size_and_time_are_compared_by_content(tmp_path):
    parent, upper = put(tmp_path / "parent", {"a": "1", "b": "1"}), put(tmp_path / "upper", {"a": "1", "b": "2"})
    for folder in (parent, upper):
        for name in ("a", "b"):
            os.utime(folder / name, (1, 1))
    forbidden.prune(upper, parent, EPOCH)
    assert names(upper) == {"b"}


@pytest.mark.parametrize("number", [errno.ENOTSUP, errno.EIO])
def test_a_file_system_without_attributes_has_none(tmp_path, monkeypatch, number):
    parent, upper = put(tmp_path / "parent", {"a": "1"}), put(tmp_path / "upper", {"a": "2"})

    def fail(path, follow_symlinks):
        raise OSError(number, "failed", str(path))

    monkeypatch.setattr(os, "listxattr", fail)
    with contextlib.nullcontext() if number == errno.ENOTSUP else pytest.raises(OSError, match="failed"):
        forbidden.prune(upper, parent, EPOCH)
    assert names(upper) == {"a"}


@as_root
def test_a_directory_that_is_not_opaque_hides_nothing(tmp_path):
    parent, upper = put(tmp_path / "parent", {"folder/old": "1"}), put(tmp_path / "upper", {"folder/new": "1"})
    (upper / "fresh/deep").mkdir(parents=True)
    os.mknod(upper / "fresh/deep/never", 0o020000, 0)
    forbidden.prune(upper, parent, EPOCH)
    assert names(upper) == {"folder/new"}
    assert list((upper / "fresh/deep").iterdir()) == []
