# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The paths that are removed from an image's root, and which entries of a layer differ from the layer below."""

from __future__ import annotations

import os
import stat

import pytest

from ansible_collections.sailloft.fleet.plugins.module_utils.image.request import forbidden

EPOCH = 86400 * 20_000 + 5
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="device files and owners")


@pytest.mark.parametrize(
    "path",
    [
        *("/dev/x", "/proc/x", "/sys/x", "/run/x/y", "/tmp/x", "/var/tmp/x", "/lost+found/x", "/tmp"),
        *("/var/lib/systemd/coredump/x", "/var/log/x", "/var/log/a/b", "/var/cache/x", "/etc/passwd-", "/etc/subgid-"),
        *("/boot/vmlinuz-6.1", "/boot/initrd.img-6.1", "/boot/loader/x", "/lib/modules/6.1/vmlinuz", "/root/.cache/x"),
        *("/etc/ssh/ssh_host_rsa_key", "/etc/ssh/ssh_host_rsa_key.pub", "/var/lib/dbus/machine-id"),
    ],
)
def test_files_of_one_machine_or_build_are_taken_away(path):
    assert forbidden.takes_away(path) is True


@pytest.mark.parametrize(
    "path",
    [
        *("/etc/passwd", "/device/x", "/var/lib/x", "/var/cache/debconf/x", "/var/cache/debconf", "/boot/config-6.1"),
        *("/srv/tmp/x", "/etc/ssh/sshd_config", "/lib/modules/6.1/build/vmlinuz", "/var", "/root/.profile"),
        "/etc/ssh/deep/ssh_host_rsa_key",
    ],
)
def test_other_files_stay(path):
    assert forbidden.takes_away(path) is False


def write(path, text="", mode=0o644):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(mode)
    return path


def test_directories_of_a_running_machine_are_emptied_and_stay(tmp_path):
    for name in ("dev/a/b", "var/tmp/x", "var/log/a/b", "var/cache/a/b", "var/cache/debconf/a/b"):
        write(tmp_path / name)
    (tmp_path / "tmp").mkdir()
    (tmp_path / "tmp/link").symlink_to("/etc")
    (tmp_path / "var/log/link").symlink_to("a")
    forbidden.normalise(tmp_path, EPOCH)
    left = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*")}
    assert left == {
        *("dev", "tmp", "var", "var/tmp", "var/log", "var/log/a", "var/log/link", "var/cache", "var/cache/a"),
        *("var/cache/debconf", "var/cache/debconf/a", "var/cache/debconf/a/b"),
    }


@pytest.mark.parametrize("before", [None, "0123\n", "uninitialized\n", "link"])
def test_the_machine_id_becomes_an_empty_file(tmp_path, before):
    (tmp_path / "etc").mkdir()
    path = tmp_path / "etc/machine-id"
    other = write(tmp_path / "id", "kept")
    if before == "link":
        path.symlink_to(other)
    elif before is not None:
        write(path, before)
    forbidden.normalise(tmp_path, EPOCH)
    assert not path.is_symlink()
    assert (path.read_text(), stat.S_IMODE(path.stat().st_mode)) == ("", 0o444)
    assert other.read_text() == "kept"


def test_an_empty_machine_id_is_not_written_again(tmp_path):
    path = write(tmp_path / "etc/machine-id", "", 0o640)
    forbidden.normalise(tmp_path, EPOCH)
    assert stat.S_IMODE(path.stat().st_mode) == 0o640


def test_a_root_without_etc_gets_no_machine_id(tmp_path):
    forbidden.normalise(tmp_path, EPOCH)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("day", "limited"), [("0", "0"), ("20000", "20000"), ("20001", "20000"), ("", "")])
def test_the_day_of_a_password_change_is_at_most_that_of_the_archive(tmp_path, day, limited):
    path = write(tmp_path / "etc/shadow", f"root:*:{day}:0:30000:7:::\nops:!:5:30000::::\n", 0o640)
    forbidden.normalise(tmp_path, EPOCH)
    assert path.read_text() == f"root:*:{limited}:0:30000:7:::\nops:!:5:30000::::\n"


def pruned(tmp_path, make_upper, make_below):
    """Return whether an entry of the layer is removed since it equals the entry below it."""
    upper, below = tmp_path / "upper", tmp_path / "below"
    for folder in (upper, below):
        folder.mkdir()
    make_upper(upper / "x")
    make_below(below / "x")
    forbidden.prune(upper, below, EPOCH)
    return not os.path.lexists(upper / "x")


def file(text="one", mode=0o644, owner=None, attribute=None):
    def make(path):
        write(path, text, mode)
        if owner is not None:
            os.chown(path, *owner)
        if attribute is not None:
            os.setxattr(path, "trusted.sailloft", attribute)

    return make


def link(target):
    return lambda path: path.symlink_to(target)


def device(minor, kind=stat.S_IFCHR):
    return lambda path: os.mknod(path, kind | 0o600, os.makedev(1, minor))


def folder(mode=0o755, name=None):
    def make(path):
        path.mkdir()
        path.chmod(mode)
        if name:
            write(path / name)

    return make


@as_root
@pytest.mark.parametrize(
    ("upper", "below", "same"),
    [
        (file(), file(), True),
        (file(), file("two"), False),
        (file(), file("three"), False),
        (file(mode=0o600), file(), False),
        (file(owner=(1, 0)), file(owner=(0, 0)), False),
        (file(owner=(0, 1)), file(owner=(0, 0)), False),
        (file(attribute=b"a"), file(attribute=b"a"), True),
        (file(attribute=b"a"), file(attribute=b"b"), False),
        (file(attribute=b"a"), file(), False),
        (file(), link("one"), False),
        (link("one"), link("one"), True),
        (link("one"), link("two"), False),
        (device(3), device(3), True),
        (device(3), device(5), False),
        (device(3), device(3, stat.S_IFBLK), False),
        (folder(), folder(), True),
        (folder(0o700), folder(), False),
        (folder(name="a"), folder(name="a"), True),
        (folder(name="a"), folder(name="b"), False),
        (folder(), file(), False),
        (file(), folder(), False),
        (file(), lambda path: None, False),
        (folder(), lambda path: None, False),
    ],
)
def test_an_entry_is_removed_if_it_equals_the_one_below(tmp_path, upper, below, same):
    assert pruned(tmp_path, upper, below) is same


@as_root
def test_the_root_of_a_layer_gets_owner_mode_and_time_of_the_one_below(tmp_path):
    for name in ("upper", "below"):
        (tmp_path / name).mkdir(mode=0o700)
    os.chown(tmp_path / "below", 3, 4)
    (tmp_path / "below").chmod(0o751)
    forbidden.prune(tmp_path / "upper", tmp_path / "below", EPOCH)
    status = (tmp_path / "upper").stat()
    assert (status.st_uid, status.st_gid, stat.S_IMODE(status.st_mode)) == (3, 4, 0o751)
    assert (status.st_mtime, status.st_atime) == (EPOCH, EPOCH)


@as_root
def test_only_attributes_of_overlayfs_are_removed(tmp_path):
    path = write(tmp_path / "upper/x")
    (tmp_path / "below").mkdir()
    os.setxattr(path, "trusted.overlay.origin", b"1")
    os.setxattr(path, "trusted.other", b"1")
    forbidden.prune(tmp_path / "upper", tmp_path / "below", EPOCH)
    assert os.listxattr(path) == ["trusted.other"]
