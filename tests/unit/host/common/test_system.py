# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

import errno
import os

import pytest
from messages import Mentions, raises

from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.errors import HostError, KernelRefusedError
from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.system import System, refusal


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
    with raises(HostError, "/grubenv", "efi/grubenv"):
        system.replace("/grubenv", b"new")
    assert os.listdir(tmp_path) == ["grubenv"]


def test_a_loop_of_links_is_refused(system, tmp_path):
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    with raises(HostError, "/a", "loop"):
        system.replace("/a", b"new")


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
    with pytest.raises(HostError, match=r"1.*/sys/x"):
        system.poke("/sys/x", "1")


def test_a_refused_register_write_is_reported_as_a_number(system):
    with pytest.raises(HostError, match=r"0x5d.*0x14e.*/config"):
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
    with raises(HostError, "sh -c echo no >&2; exit 3", "3", "no"):
        system.run(["sh", "-c", "echo no >&2; exit 3"])
    with pytest.raises(HostError, match="no-such-tool"):
        system.run(["no-such-tool"])


@pytest.mark.parametrize(
    ("data", "offset", "what"),
    [(b"1", 0, "'1'"), (b"\x01\x02", 2, "0x201 at offset 0x2"), (b"\x01", 1, "0x1 at offset 0x1")],
)
def test_a_refused_write_is_shown_as_text_or_as_a_register(data, offset, what):
    assert refusal("/x", data, offset, "no") == Mentions(what, "/x")


def test_a_refused_write_has_the_number_of_its_error(system):
    with pytest.raises(KernelRefusedError) as refused:
        system.poke("/sys/x", "1")
    assert refused.value.errno == errno.ENOENT


@pytest.mark.parametrize(("offset", "call"), [(0, "write"), (4, "pwrite")])
def test_a_write_that_the_kernel_accepts_only_in_part_is_an_error(system, tmp_path, monkeypatch, offset, call):
    (tmp_path / "a").write_bytes(b"12345678")
    monkeypatch.setattr(os, call, lambda *_arguments: 1)
    with raises(HostError, "1", "3", "/a"):
        system.poke_bytes("/a", b"abc", offset)


def test_a_handle_is_closed_after_a_write(system, tmp_path, monkeypatch):
    (tmp_path / "a").write_bytes(b"")
    closed = []
    close = os.close
    monkeypatch.setattr(os, "close", lambda handle: closed.append(handle) or close(handle))
    system.poke("/a", "1")
    assert len(closed) == 1


def test_what_cannot_be_read_written_or_removed_is_named(system, tmp_path):
    (tmp_path / "folder").mkdir()
    read = "cannot read /folder: Is a directory; look at its file system"
    for call, message in (
        (lambda: system.read("/folder"), read),
        (lambda: system.read_bytes("/folder"), read),
        (
            lambda: system.replace("/folder", b""),
            Mentions("/folder", "read-only"),
        ),
        (
            lambda: system.remove("/folder"),
            Mentions("/folder", "read-only"),
        ),
    ):
        with pytest.raises(HostError) as refused:
            call()
        assert str(refused.value) == message
    assert os.listdir(tmp_path) == ["folder"]


def test_texts_are_stripped_and_names_are_sorted(system, tmp_path):
    for name in ("b", "a", "c"):
        (tmp_path / name).write_bytes(b" x\xff \n")
    assert (system.read("/a"), system.read_bytes("a")) == ("x\ufffd", b" x\xff \n")
    assert system.names("/") == ["a", "b", "c"]
    assert (system.names("/a"), system.read("/a/b"), system.read_bytes("/a/b")) == ([], None, None)
    (tmp_path / "d").symlink_to("drivers/vfio-pci")
    assert system.link_name("/d") == "vfio-pci"
    assert [system.exists(path) for path in ("/a", "/d", "/e")] == [True, True, False]


def test_as_many_links_are_followed_as_linux_follows(system, tmp_path):
    (tmp_path / "0").write_bytes(b"old")
    for number in range(1, 42):
        (tmp_path / str(number)).symlink_to(str(number - 1))
    assert [(tmp_path / name).exists() for name in ("40", "41")] == [True, False]
    system.replace("/40", b"new")
    assert (tmp_path / "0").read_bytes() == b"new"
    with pytest.raises(HostError, match="symbolic"):
        system.replace("/41", b"newer")


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ("exit 1", "no output"),
        ("echo out; exit 1", "out"),
        ("echo out; echo err >&2; exit 1", "err"),
        ("for one in 1 2 3 4; do echo $one >&2; done; exit 1", "2; 3; 4"),
    ],
)
def test_a_failed_command_is_named_with_its_last_three_lines(system, script, message):
    with raises(HostError, script, "1", message):
        system.run(["sh", "-c", script])


def test_a_command_runs_in_the_c_locale_with_the_systems_path(system, monkeypatch):
    monkeypatch.setenv("LC_ALL", "de_DE.UTF-8")
    monkeypatch.setenv("KEPT", "yes")
    found = system.run(["sh", "-c", "echo $LC_ALL $PATH $KEPT"])
    assert found == "C /usr/sbin:/usr/bin:/sbin:/bin yes\n"
