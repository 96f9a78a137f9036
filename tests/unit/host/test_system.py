# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

import os

import pytest

from ansible_collections.sailloft.fleet.plugins.module_utils.host.errors import HostError
from ansible_collections.sailloft.fleet.plugins.module_utils.host.system import System


@pytest.fixture
def system(tmp_path):
    return System(str(tmp_path))


def test_a_file_is_replaced_as_a_whole(system, tmp_path):
    system.replace("/etc/sailloft/a.json", b"one", 0o600)
    assert (tmp_path / "etc/sailloft/a.json").read_bytes() == b"one"
    assert os.stat(tmp_path / "etc/sailloft/a.json").st_mode & 0o777 == 0o600
    system.replace("/etc/sailloft/a.json", b"two")
    assert os.listdir(tmp_path / "etc/sailloft") == ["a.json"]


def test_a_kill_before_the_rename_leaves_the_old_file(system, tmp_path, monkeypatch):
    system.replace("/a", b"old")

    def killed(*_paths):
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "replace", killed)
    with pytest.raises(KeyboardInterrupt):
        system.replace("/a", b"new")
    assert (tmp_path / "a").read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["a"]


def test_a_file_of_the_kernel_is_not_made(system):
    with pytest.raises(HostError, match=r"the kernel did not take b'1' for /sys/x: No such file"):
        system.poke("/sys/x", "1")


def test_what_is_not_there(system):
    assert system.read("/nothing") is None
    assert system.read_bytes("/nothing") is None
    assert system.names("/nothing") == []
    assert system.link_name("/nothing") is None
    system.remove("/nothing")


def test_bytes_in_the_middle(system, tmp_path):
    (tmp_path / "config").write_bytes(b"abcdef")
    system.poke_bytes("/config", b"XY", 2)
    assert (tmp_path / "config").read_bytes() == b"abXYef"


def test_commands(system):
    assert system.run(["cat"], stdin="here") == "here"
    with pytest.raises(HostError, match=r"'sh -c echo no >&2; exit 3' failed \(3\): no"):
        system.run(["sh", "-c", "echo no >&2; exit 3"])
    with pytest.raises(HostError, match=r"no-such-tool is not installed on this host"):
        system.run(["no-such-tool"])
