# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

import os

import pytest

from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.errors import HostError
from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.system import System


@pytest.fixture
def system(tmp_path):
    return System(str(tmp_path))


def test_a_file_is_replaced_and_no_temporary_file_remains(system, tmp_path):
    system.replace("/etc/sailloft/a.json", b"one")
    assert (tmp_path / "etc/sailloft/a.json").read_bytes() == b"one"
    assert os.stat(tmp_path / "etc/sailloft/a.json").st_mode & 0o777 == 0o644
    system.replace("/etc/sailloft/a.json", b"two")
    assert os.listdir(tmp_path / "etc/sailloft") == ["a.json"]


def test_a_file_is_on_the_disk_before_its_name_is_and_the_name_before_it_returns(system, tmp_path, disk_calls):
    system.replace("/a.json", b"new")
    (first, temporary, content), (second, source, target), last = disk_calls
    assert (first, content, second, source) == ("fsync", b"new", "replace", temporary)
    assert target == str(tmp_path / "a.json")
    assert last == ("fsync", str(tmp_path), None)


def test_a_file_keeps_its_owner_and_mode(system, tmp_path):
    (tmp_path / "grubenv").write_bytes(b"old")
    os.chmod(tmp_path / "grubenv", 0o600)
    if os.getuid() == 0:
        os.chown(tmp_path / "grubenv", 12, 34)
    before = os.stat(tmp_path / "grubenv")
    system.replace("/grubenv", b"new")
    after = os.stat(tmp_path / "grubenv")
    assert after.st_ino != before.st_ino
    assert (after.st_mode, after.st_uid, after.st_gid) == (before.st_mode, before.st_uid, before.st_gid)


@pytest.mark.parametrize("named", ["../efi/EFI/redhat/grubenv", "/boot/efi/EFI/redhat/grubenv"])
def test_a_link_is_kept_and_its_target_is_replaced(system, tmp_path, named):
    """GRUB on RHEL 8 with UEFI reads the target, which is on the EFI system partition."""
    target = tmp_path / "boot/efi/EFI/redhat/grubenv"
    target.parent.mkdir(parents=True)
    target.write_bytes(b"old")
    link = tmp_path / "boot/grub2/grubenv"
    link.parent.mkdir()
    link.symlink_to(named)
    system.replace("/boot/grub2/grubenv", b"new")
    assert os.readlink(link) == named
    assert target.read_bytes() == b"new"
    assert not target.is_symlink()
    assert (os.listdir(link.parent), os.listdir(target.parent)) == (["grubenv"], ["grubenv"])


def test_a_link_to_a_link_is_followed_to_the_end(system, tmp_path):
    (tmp_path / "c").write_bytes(b"old")
    (tmp_path / "b").symlink_to("c")
    (tmp_path / "a").symlink_to("b")
    system.replace("/a", b"new")
    assert (tmp_path / "c").read_bytes() == b"new"
    assert (os.readlink(tmp_path / "a"), os.readlink(tmp_path / "b")) == ("b", "c")


def test_writing_through_a_dangling_link_is_refused(system, tmp_path):
    (tmp_path / "grubenv").symlink_to("efi/grubenv")
    with pytest.raises(HostError) as refused:
        system.replace("/grubenv", b"new")
    assert str(refused.value) == (
        "cannot write /grubenv: it is a symbolic link to efi/grubenv, which does not exist; mount the file system "
        "that it points to, or remove the link"
    )
    assert os.listdir(tmp_path) == ["grubenv"]


def test_a_loop_of_links_is_refused(system, tmp_path):
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    with pytest.raises(HostError) as refused:
        system.replace("/a", b"new")
    assert str(refused.value) == "cannot write /a: its symbolic links form a loop; remove the link"


def test_a_kill_before_the_rename_leaves_the_old_file(system, tmp_path, monkeypatch):
    system.replace("/a", b"old")

    def killed(*_paths):
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "replace", killed)
    with pytest.raises(KeyboardInterrupt):
        system.replace("/a", b"new")
    assert (tmp_path / "a").read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["a"]


def test_a_missing_kernel_file_is_not_created(system):
    with pytest.raises(
        HostError, match=r"^the kernel refused to write '1' to /sys/x: No such file or directory; see the kernel's log$"
    ):
        system.poke("/sys/x", "1")


def test_a_refused_register_write_is_reported_as_a_number(system):
    with pytest.raises(HostError, match=r"^the kernel refused to write 0x5d at offset 0x14e to /config: No such file"):
        system.poke_bytes("/config", b"\x5d\x00", 0x14E)


def test_missing_files_are_read_as_empty_and_removed_without_an_error(system):
    assert system.read("/nothing") is None
    assert system.read_bytes("/nothing") is None
    assert system.names("/nothing") == []
    assert system.link_name("/nothing") is None
    system.remove("/nothing")


def test_bytes_are_written_at_an_offset(system, tmp_path):
    (tmp_path / "config").write_bytes(b"abcdef")
    system.poke_bytes("/config", b"XY", 2)
    assert (tmp_path / "config").read_bytes() == b"abXYef"


def test_commands_return_their_output_and_failures_are_named(system):
    assert system.run(["cat"], stdin="here") == "here"
    with pytest.raises(HostError, match=r"'sh -c echo no >&2; exit 3' failed \(3\): no"):
        system.run(["sh", "-c", "echo no >&2; exit 3"])
    with pytest.raises(HostError, match=r"no-such-tool is not installed on this host"):
        system.run(["no-such-tool"])
