# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Users, files and services of a layer, in a tree without programs; tests/image tests them in a real one."""

from __future__ import annotations

import os
import stat
from dataclasses import replace

import pytest
from messages import Mentions
from recorded_tools import Tools

from ansible_collections.sailloft.fleet.plugins.module_utils.image.build import tree_contents
from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.errors import ImageError
from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.model import File, Layer, Services, User

SITE = Layer("site", "base", "debian", "bookworm", "amd64", ())
KEYS = ("ssh-ed25519 AAAA one", "ssh-ed25519 BBBB two")
OWN = {"owner": str(os.getuid()), "group": str(os.getgid())}


@pytest.fixture
def root(tmp_path):
    """An image with the user "ops" and the group "staff", both with the IDs of the user who runs the tests."""
    folder = tmp_path / "root"
    (folder / "etc").mkdir(parents=True)
    (folder / "etc/passwd").write_text(f"root:x:0:0::/root:/bin/sh\nops:x:{os.getuid()}:{os.getgid()}::/home/ops:\n")
    (folder / "etc/group").write_text(f"staff:x:{os.getgid()}:\n")
    (folder / "bin").mkdir()
    for shell in ("bash", "sh"):
        (folder / "bin" / shell).touch()
    return folder


def mode(path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


def refused(root, answer=lambda argv: "", **own) -> str:
    with pytest.raises(ImageError) as error:
        tree_contents.apply(root, replace(SITE, **own), Tools(answer=answer))
    return str(error.value)


@pytest.mark.parametrize(
    ("user", "command"),
    [
        (User("new"), ["useradd", "--create-home", "--user-group", "--shell", "/bin/bash", "new"]),
        (
            User("new", ("sudo", "adm"), "/bin/sh"),
            ["useradd", "--create-home", "--user-group", "--shell", "/bin/sh", "--groups", "sudo,adm", "new"],
        ),
        (User("ops"), ["usermod", "--shell", "/bin/bash", "ops"]),
        (User("ops", ("sudo",)), ["usermod", "--shell", "/bin/bash", "--append", "--groups", "sudo", "ops"]),
    ],
)
def test_a_user_is_created_or_changed(root, user, command):
    tools = Tools()
    tree_contents.apply(root, replace(SITE, users=(user,)), tools)
    assert tools.commands == [["chroot", str(root), *command]]


@pytest.mark.parametrize(
    ("output", "message"),
    [
        (
            "useradd: group 'gpu' does not exist\n",
            "useradd: group 'gpu' does not exist; create the group with a package",
        ),
        ("chroot: failed\nto run\n", "chroot: failed / to run; add passwd to its packages"),
        ("\n", "it gave no reason; add passwd to its packages"),
    ],
)
def test_a_user_that_cannot_be_created_is_refused_with_the_message_of_the_tool(root, output, message):
    assert refused(root, lambda argv: (6, output), users=(User("new"),)).startswith(f"layer site: user new: {message}")


def test_a_shell_that_the_image_lacks_is_refused(root):
    message = refused(root, users=(User("new", shell="/bin/zsh"),))
    assert "user new" in message
    assert "/bin/zsh" in message


def test_authorized_keys_are_written_before_the_home_folder_exists(root):
    tree_contents.apply(root, replace(SITE, users=(User("ops", authorized_keys=KEYS),)), Tools())
    keys = root / "home/ops/.ssh/authorized_keys"
    assert keys.read_text() == f"{KEYS[0]}\n{KEYS[1]}\n"
    assert (mode(keys), mode(keys.parent)) == (0o600, 0o700)
    assert {(path.stat().st_uid, path.stat().st_gid) for path in (keys, keys.parent)} == {(os.getuid(), os.getgid())}


def test_files_belong_to_the_ids_of_the_image(root, monkeypatch):
    given = []
    monkeypatch.setattr(tree_contents.os, "chown", lambda path, *ids: given.append((str(path.relative_to(root)), *ids)))
    (root / "etc/passwd").write_text("ops:x:1234:1235::/home/ops:/bin/sh\n")
    (root / "etc/group").write_text("staff:x:1236:\n")
    files = (File("/etc/one", content="one", owner="ops", group="staff"),)
    tree_contents.apply(root, replace(SITE, files=files, users=(User("ops", authorized_keys=KEYS),)), Tools())
    assert given == [
        ("home/ops/.ssh", 1234, 1235),
        ("home/ops/.ssh/authorized_keys", 1234, 1235),
        ("etc/one", 1234, 1236),
    ]


def test_writing_authorized_keys_keeps_the_mode_of_an_existing_folder(root):
    folder = root / "home/ops/.ssh"
    folder.mkdir(parents=True)
    folder.chmod(0o750)
    tree_contents.apply(root, replace(SITE, users=(User("ops", authorized_keys=KEYS),)), Tools())
    assert mode(folder) == 0o750
    assert (folder / "authorized_keys").read_text().splitlines() == list(KEYS)


@pytest.mark.parametrize("own", [OWN, {"owner": "ops", "group": "staff"}])
def test_a_file_has_its_content_mode_and_owner(root, tmp_path, own):
    (tmp_path / "source").write_bytes(b"\xff of the build host")
    files = (
        File("/etc/one", content="é\n", mode="4711", **own),
        File("/opt/site/two", source=str(tmp_path / "source"), **own),
    )
    tree_contents.apply(root, replace(SITE, files=files), Tools())
    one, two = root / "etc/one", root / "opt/site/two"
    assert (one.read_bytes(), mode(one)) == ("é\n".encode(), 0o4711)
    assert (two.read_bytes(), mode(two)) == (b"\xff of the build host", 0o644)
    assert mode(two.parent) == 0o755
    assert {(path.stat().st_uid, path.stat().st_gid) for path in (one, two)} == {(os.getuid(), os.getgid())}


def test_a_file_replaces_a_link_and_not_the_target_of_the_link(root):
    (root / "etc/other").write_text("other")
    (root / "etc/one").symlink_to("other")
    tree_contents.apply(root, replace(SITE, files=(File("/etc/one", content="one", **OWN),)), Tools())
    assert not (root / "etc/one").is_symlink()
    assert ((root / "etc/one").read_text(), (root / "etc/other").read_text()) == ("one", "other")


def test_a_file_that_cannot_be_written_is_refused(root):
    (root / "etc/folder").mkdir()
    told = "layer site: file /etc/folder: is a directory in the image; give the path of a file"
    assert refused(root, files=(File("/etc/folder", content="", **OWN),)) == told
    told = f"layer site: file /etc/group/x: {root}/etc/group is not a directory in the image; correct the path"
    assert refused(root, files=(File("/etc/group/x", content="", **OWN),)) == told
    told = "layer site: file /a: cannot read /nowhere/a: No such file or directory; give a file on the build host"
    assert refused(root, files=(File("/a", source="/nowhere/a", **OWN),)) == told
    told = "layer site: file /a: there is no group wheel in the image; add the group, or correct its name"
    assert refused(root, files=(File("/a", content="", owner="ops", group="wheel"),)) == told


def test_a_file_replaces_a_link_to_a_folder(root):
    (root / "etc/one").symlink_to("/etc")
    tree_contents.apply(root, replace(SITE, files=(File("/etc/one", content="one", **OWN),)), Tools())
    assert (root / "etc/one").read_text() == "one"
    assert not (root / "etc/one").is_symlink()


def test_services_are_enabled_then_disabled_then_masked(root):
    tools, services = Tools(), Services(("ssh.service", "a.timer"), ("b.service",), ("c.timer",))
    tree_contents.apply(root, replace(SITE, services=services), tools)
    systemctl = ["systemctl", f"--root={root}"]
    assert tools.commands == [
        [*systemctl, "enable", "--", "ssh.service", "a.timer"],
        [*systemctl, "disable", "--", "b.service"],
        [*systemctl, "mask", "--", "c.timer"],
    ]
    tools = Tools()
    tree_contents.apply(root, replace(SITE, services=Services(masked=("c.timer",))), tools)
    assert tools.commands == [[*systemctl, "mask", "--", "c.timer"]]


@pytest.mark.parametrize(
    ("output", "message"), [("Failed:\nno unit\n", "Failed: / no unit"), ("", "it gave no reason")]
)
def test_a_service_that_cannot_be_enabled_is_refused_with_systemctls_message(root, output, message):
    services = Services(enabled=("a.service", "b.service"))
    assert refused(root, lambda argv: (1, output), services=services) == Mentions(
        "site", "a.service b.service", message
    )
