# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Commands in a room cannot reach files outside of it; tests/image/test_hostile.py tries all ways out of a build."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
from pathlib import Path

import pytest
from messages import raises

from ansible_collections.sailloft.fleet.plugins.module_utils.image.common import room, system_calls
from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.errors import ImageError
from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.process import run
from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.room import entered
from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.tools import command_in

made = pytest.mark.skipif(
    os.geteuid() != 0 or not shutil.which("bwrap"), reason="needs root and bubblewrap (bindep.txt)"
)


@pytest.fixture
def root(tmp_path) -> Path:
    """An image's tree beside a file of the build host."""
    (tmp_path / "host").write_text("the build host's")
    (tmp_path / "root/etc").mkdir(parents=True)
    return tmp_path / "root"


@made
@pytest.mark.parametrize("above", ["/run/..", "../run/.."])
def test_name_servers_are_written_only_within_the_image(root, above):
    (root / "etc/resolv.conf").symlink_to(f"{above}/../host")
    subprocess.run(entered(root, ["true"], network=True), check=True, capture_output=True)
    assert (root.parent / "host").read_text() == "the build host's"


@made
@pytest.mark.parametrize("target", ["../run/systemd/resolve/stub-resolv.conf", None])
def test_name_servers_are_in_a_room_with_network_and_not_left_in_the_image(root, target):
    if target:
        (root / "etc/resolv.conf").symlink_to(target)
    command = ["cat", f"{root}/run/systemd/resolve/stub-resolv.conf" if target else f"{root}/etc/resolv.conf"]
    done = run(entered(root, command, network=True))
    assert done.stdout == Path("/etc/resolv.conf").read_text()
    assert os.path.lexists(root / "etc/resolv.conf") == bool(target)
    assert run(entered(root, command)).returncode != 0


@made
def test_a_command_sees_only_the_tree_and_what_it_is_lent(root, monkeypatch):
    (root / "etc/name").write_text("image")
    (root.parent / "lent").write_text("lent")
    monkeypatch.setenv("http_proxy", "http://ops:word@proxy")
    script = f"cat {root}/etc/name {root.parent}/lent; ls {root.parent}; echo $http_proxy"
    script += "; ls /proc | grep -c ^[0-9]; exit 3"
    done = run(entered(root, ["sh", "-c", script], readable=[root.parent / "lent"]), env=dict(os.environ))
    # The shell, ls or grep, and bubblewrap.
    *lines, processes = done.stdout.splitlines()
    assert (done.returncode, lines) == (3, ["imagelentlent", "root", ""])
    assert int(processes) <= 5
    with_network = run(entered(root, ["sh", "-c", "echo $http_proxy"], network=True), env=dict(os.environ))
    assert with_network.stdout == "http://***@proxy\n"


@made
def test_a_lent_path_may_be_a_link_or_in_a_directory_that_is_lent_too(root, tmp_path):
    (tmp_path / "lent").mkdir()
    (tmp_path / "target").write_text("target")
    (tmp_path / "lent/link").symlink_to(tmp_path / "target")
    (tmp_path / "outer").symlink_to(tmp_path / "target")
    paths = [tmp_path / "lent", tmp_path / "lent/link", tmp_path / "outer"]
    assert run(entered(root, ["cat", *map(str, paths[1:])], readable=paths)).stdout == "targettarget"


@made
def test_a_services_start_is_refused_unless_the_image_has_its_own_policy(root):
    policy = root / "usr/sbin/policy-rc.d"
    assert run(entered(root, ["cat", str(policy)])).returncode != 0
    policy.parent.mkdir(parents=True)
    (policy.parent / "invoke-rc.d").touch()
    assert "exit 101" in run(entered(root, ["cat", str(policy)])).stdout
    assert not policy.exists()
    policy.write_text("own\n")
    assert run(entered(root, ["cat", str(policy)])).stdout == "own\n"
    assert policy.read_text() == "own\n"


@made
def test_what_a_room_leaves_behind_is_removed_within_the_image(root):
    """The command replaces the directory of the policy by a link to one of the build host."""
    (root / "usr/sbin").mkdir(parents=True)
    (root / "usr/sbin/invoke-rc.d").touch()
    host = root.parent / "sbin"
    host.mkdir()
    (host / "policy-rc.d").write_text("the build host's")
    script = f"mv {root}/usr/sbin {root}/usr/moved; ln -s {host} {root}/usr/sbin"
    run(entered(root, ["sh", "-c", script]))
    assert (root / "usr/sbin").is_symlink()
    assert (host / "policy-rc.d").read_text() == "the build host's"
    assert not (root / "usr/moved/policy-rc.d").exists()


@made
def test_descriptors_and_devices_of_the_build_host_are_not_inherited(root):
    changed = os.stat("/dev/null").st_ctime_ns
    script = "for n in /proc/self/fd/*; do readlink $n; done; chmod 0600 /dev/null /proc/self/fd/0"
    done = run(entered(root, ["sh", "-c", script]))
    names = {name for name in done.stdout.splitlines() if not name.startswith(("pipe:", f"{root}/"))}
    assert names <= {"/proc/self/fd"}
    assert os.stat("/dev/null").st_ctime_ns == changed


@pytest.mark.parametrize("name", ["dev", "proc", "run", "tmp"])
def test_a_link_in_the_place_of_a_directory_that_is_mounted_over_is_refused(root, name):
    (root / name).symlink_to("/etc")
    with raises(ImageError, f"/{name}", root, "directory"):
        entered(root, ["true"])


def test_missing_directories_are_made_with_their_modes(root):
    entered(root, ["true"])
    modes = {name: stat.S_IMODE((root / name).stat().st_mode) for name in ("dev", "proc", "run", "tmp")}
    assert modes == {"dev": 0o755, "proc": 0o755, "run": 0o755, "tmp": 0o1777}


def test_the_command_is_found_in_that_of_the_room(root):
    assert command_in(entered(root, ["apt-get", "install", "--", "bash"])) == ["apt-get", "install", "--", "bash"]
    assert command_in(["umount", "/x"]) == ["umount", "/x"]


def test_a_kernel_without_user_namespaces_is_named_with_the_setting(monkeypatch):
    answer = subprocess.CompletedProcess([], 1, "unshare: unshare failed: No space left on device\n")
    monkeypatch.setattr(room.process, "run", lambda argv: answer)
    with raises(ImageError, "build", "No space left on device", "user.max_user_namespaces"):
        room.require_namespaces()


def test_a_machine_whose_system_calls_are_not_known_is_refused(monkeypatch):
    monkeypatch.setattr(system_calls.platform, "machine", lambda: "ppc64le")
    with raises(ImageError, "ppc64le", "x86_64"):
        system_calls.program()
