# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Local file systems on real loop devices: made, mounted, kept and wiped, and never on a drive that is somebody's."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from messages import raises
from storage_host import StorageHost, needs_loops

from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.errors import HostError, RequestError
from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.system import System
from ansible_collections.sailloft.fleet.plugins.module_utils.storage import ensure, file_systems, units
from ansible_collections.sailloft.fleet.plugins.module_utils.storage.drives import MADE, read_superblock

pytestmark = needs_loops
ONE = {"name": "scratch", "drives": ["0000:10:00.0"]}
S3 = {"name": "data", "endpoint": "https://s3", "bucket": "data", "path": "/data", "cache": "scratch", "size_gib": 1}
KEYS = {"data": {"access_key_id": "AKIA1", "secret_access_key": "geheim"}}
TWO = {"name": "scratch", "drives": ["0000:10:00.0", "0000:11:00.0"], "layout": "single"}


@pytest.fixture
def make_host(tmp_path):
    hosts = []

    def make(*nodes):
        hosts.append(StorageHost(tmp_path, *nodes))
        return hosts[-1]

    yield make
    for host in hosts:
        host.close()


def content_of(host, number=0):
    with open(host.loops[number], "rb") as device:
        return device.read(1 << 20)


def test_check_predicts_the_run_and_the_second_run_changes_nothing(make_host):
    host = make_host(0)
    predicted = host.apply(ONE, check=True)
    assert host.commands == []
    assert content_of(host) == bytes(1 << 20)
    made = host.apply(ONE)
    assert (predicted.before, predicted.after) == (made.before, made.after)
    (fact,) = made.facts["file_systems"]
    assert (fact["label"], fact["path"], fact["drives"]) == ("scratch", "/scratch", ["0000:10:00.0"])
    shown = subprocess.run(["xfs_info", host.path("/scratch")], check=True, capture_output=True, text=True).stdout
    assert "sunit=0" in shown
    assert os.stat(host.path("/scratch")).st_mode & 0o7777 == 0o1777
    host.commands.clear()
    assert not host.apply(ONE).changed
    assert host.commands == []


def test_single_drives_get_a_file_system_each_and_keep_it_whatever_their_order(make_host):
    host = make_host(0, 0)
    first = host.apply(TWO).facts["file_systems"]
    assert [fact["path"] for fact in first] == ["/scratch0", "/scratch1"]
    swapped = host.apply({**TWO, "drives": TWO["drives"][::-1]})
    assert not [name for name in swapped.after if name.startswith("file system")]
    assert swapped.facts["file_systems"] == first


def test_a_file_system_is_kept_over_a_new_image_by_its_label(make_host):
    host = make_host(0)
    (before,) = host.apply(ONE).facts["file_systems"]
    Path(host.path("/scratch/checkpoint")).write_text("step 100")
    host.reboot(imaged=True)
    again = host.apply(ONE)
    assert "file system scratch" not in again.after
    assert again.facts["file_systems"] == [before]
    assert Path(host.path("/scratch/checkpoint")).read_text() == "step 100"


def test_one_that_is_not_kept_is_made_anew_in_a_new_image_but_not_by_a_reboot(make_host):
    host = make_host(0)
    wiped = {**ONE, "keep": False}
    (before,) = host.apply(wiped).facts["file_systems"]
    host.reboot()
    assert not [name for name in host.apply(wiped, check=True).after if name.startswith("file system")]
    host.mount("scratch.mount")
    assert not host.apply(wiped).changed
    host.reboot(imaged=True)
    assert "file system scratch" in host.apply(wiped, check=True).after
    (after,) = host.apply(wiped).facts["file_systems"]
    assert after["uuid"] != before["uuid"]
    assert not host.apply(wiped).changed


def test_what_was_kept_is_not_wiped_when_the_policy_changes_later(make_host):
    host = make_host(0)
    host.apply(ONE)
    host.reboot(imaged=True)
    (kept,) = host.apply(ONE).facts["file_systems"]
    host.reboot()
    assert host.apply({**ONE, "keep": False}).facts["file_systems"] == [kept]


@pytest.mark.parametrize(
    "command",
    [
        ["mkfs.xfs", "-q", "-L", "other"],
        ["mkfs.ext4", "-q", "-L", "scratch"],
        ["mkswap"],
        ["sfdisk", "--quiet"],
    ],
)
@pytest.mark.parametrize("keep", [True, False])
def test_a_drive_with_a_signature_of_somebody_else_is_refused_before_another_is_written(make_host, command, keep):
    host = make_host(0, 0)
    subprocess.run([*command, host.loops[1]], check=True, capture_output=True, input=b"label: gpt\n")
    before = content_of(host, 1)
    with raises(HostError, "0000:11:00.0", "wipefs"):
        host.apply({**TWO, "keep": keep})
    assert content_of(host, 1) == before
    assert content_of(host, 0) == bytes(1 << 20)
    assert host.commands == []
    assert not host.exists("/etc")


def test_a_mounted_drive_is_refused(make_host, tmp_path):
    host = make_host(0)
    subprocess.run(["mkfs.xfs", "-q", "-L", "other", host.loops[0]], check=True)
    (tmp_path / "home").mkdir()
    subprocess.run(["mount", host.loops[0], tmp_path / "home"], check=True)
    try:
        with raises(HostError, "mounted"):
            host.apply(ONE)
    finally:
        subprocess.run(["umount", host.loops[0]], check=True)


def test_a_blank_drive_that_a_program_has_open_is_refused(make_host):
    host = make_host(0)
    with open(host.loops[0], "rb"), raises(HostError, f"process {os.getpid()}"):
        host.apply(ONE)


def test_drives_of_a_node_are_those_that_are_free_and_missing_ones_are_named(make_host):
    host = make_host(1, 0, 1, 1)
    subprocess.run(["mkfs.ext4", "-q", host.loops[0]], check=True)
    host.add_function("0000:40:00.0", 1)
    node = {"name": "scratch", "numa_node": 1, "count": 2, "layout": "single"}
    facts = host.apply(node).facts["file_systems"]
    assert [fact["drives"] for fact in facts] == [["0000:12:00.0"], ["0000:13:00.0"]]
    assert not host.apply(node).changed
    with raises(HostError, "0000:10:00.0: it has a signature", "0000:40:00.0: it has no disk"):
        host.apply({**node, "count": 3})
    with raises(HostError, "0000:40:00.0"):
        host.apply({**ONE, "drives": ["0000:40:00.0"]})


def test_a_label_on_two_drives_is_refused(make_host):
    host = make_host(0, 0)
    for loop in host.loops:
        subprocess.run(["mkfs.xfs", "-q", "-L", "scratch0", loop], check=True)
    with raises(HostError, "scratch0"):
        host.apply(TWO)


class KilledError(Exception):
    """The end of a run."""


@pytest.mark.parametrize("keep", [True, False])
@pytest.mark.parametrize("step", range(8))
def test_a_run_that_is_killed_is_completed_by_the_next(make_host, step, keep, monkeypatch):
    host = make_host(0)
    given = {**ONE, "keep": keep}
    count = iter(range(100))
    real_run, real_replace = StorageHost.run, System.replace

    def run(self, argv, **more):
        if argv[:2] != ["systemctl", "show"] and argv[0] != "lsblk" and next(count) == step:
            raise KilledError
        return real_run(self, argv, **more)

    def replace(self, path, content):
        if path.startswith(MADE) and next(count) == step:
            raise KilledError
        real_replace(self, path, content)

    with monkeypatch.context() as patched:
        patched.setattr(StorageHost, "run", run)
        patched.setattr(System, "replace", replace)
        with pytest.raises(KilledError):
            host.apply(given)
    host.apply(given)
    assert os.stat(host.path("/scratch")).st_mode & 0o7777 == 0o1777
    assert not host.apply(given).changed


def test_a_file_system_that_mkfs_did_not_end_is_made_anew(make_host):
    host = make_host(0)
    host.apply(ONE)
    host.reboot(imaged=True)
    (before,) = [read_superblock(host.loops[0])]
    with open(host.loops[0], "r+b") as device:
        device.seek(126)
        device.write(b"\1")
    (after,) = host.apply(ONE).facts["file_systems"]
    assert after["uuid"] != before.uuid


def test_rights_are_read_back_and_corrected(make_host):
    host = make_host(0)
    given = {**ONE, "purpose": "checkpoints", "owner": "daemon", "group": "12"}
    host.apply(given)
    os.chmod(host.path("/scratch"), 0o700)
    assert list(host.apply(given, check=True).after) == ["/scratch rights"]
    host.apply(given)
    shown = os.stat(host.path("/scratch"))
    assert (shown.st_mode & 0o7777, shown.st_uid, shown.st_gid) == (0o755, 1, 12)
    with raises(HostError, "nobody-has-this"):
        host.apply({**given, "owner": "nobody-has-this"})


def test_another_device_at_the_path_is_not_taken_for_it(make_host):
    host = make_host(0)
    host.apply(ONE)
    subprocess.run(["mount", "-t", "tmpfs", "tmpfs", host.path("/scratch")], check=True)
    try:
        assert "scratch.mount as wanted" in host.apply(ONE, check=True).after
    finally:
        subprocess.run(["umount", host.path("/scratch")], check=True)


def test_what_is_left_out_is_unmounted_and_its_data_stays(make_host):
    host = make_host(0)
    host.apply(ONE)
    before = read_superblock(host.loops[0])
    assert host.apply().changed
    assert host.mounted == []
    assert not [name for name in host.names("/etc/systemd/system") if name.endswith((".mount", ".service"))]
    assert read_superblock(host.loops[0]) == before
    assert not host.apply().changed


def test_the_service_of_the_boot_makes_what_is_missing(make_host):
    host = make_host(0)
    settings = {"local": [ONE]}
    lines = []
    assert file_systems.apply(host, settings, lines.append, lambda _seconds: None) == []
    assert read_superblock(host.loops[0]).label == "scratch"
    assert len(lines) == 1
    assert file_systems.apply(host, settings, lines.append, lambda _seconds: None) == []
    assert len(lines) == 1


def test_an_image_gets_units_only_and_no_keys(make_host):
    host = make_host(0)
    (Path(host.root) / "usr/lib/systemd").mkdir(parents=True)
    (Path(host.root) / "usr/lib/systemd/systemd").touch()
    s3 = {
        "name": "data",
        "endpoint": "https://s3",
        "bucket": "data",
        "path": "/data",
        "cache": "scratch",
        "size_gib": 1,
    }
    given = {"local": [ONE], "nfs": [], "s3": [s3], "s3_keys": {}}
    assert ensure.ensure(host, given, in_image=True).changed
    assert content_of(host) == bytes(1 << 20)
    assert {command.split()[1] for command in host.commands} == {"--root=/"}
    assert host.exists(f"/etc/systemd/system/multi-user.target.wants/{units.BOOT_UNIT}")
    assert not ensure.ensure(host, given, in_image=True).changed
    with pytest.raises(RequestError):
        ensure.ensure(host, {**given, "s3_keys": KEYS}, in_image=True)


def test_keys_are_in_a_file_of_roots_alone_and_in_no_difference(make_host):
    host = make_host(0)
    Path(host.path("/data")).mkdir()
    outcome = host.apply(ONE, s3=[S3], s3_keys=KEYS)
    file = Path(host.path("/etc/sailloft/s3_data.env"))
    assert (file.stat().st_mode & 0o777, "geheim" in file.read_text()) == (0o600, True)
    assert "geheim" not in str(outcome.to_result())
    assert not host.apply(ONE, s3=[S3], s3_keys=KEYS).changed
    file.chmod(0o644)
    assert list(host.apply(ONE, s3=[S3], s3_keys=KEYS).after) == ["/etc/sailloft/s3_data.env"]
    assert file.stat().st_mode & 0o777 == 0o600
    other = {"data": {**KEYS["data"], "secret_access_key": "geheimer"}}
    changed = host.apply(ONE, s3=[S3], s3_keys=other)
    assert "geheim" not in str(changed.to_result())
    assert "systemctl restart sailloft-s3-data.service" in host.commands
    host.apply(ONE)
    assert not file.exists()
    assert host.running == []


def test_a_bucket_that_cannot_be_listed_is_never_held(make_host):
    host = make_host(0)
    with raises(HostError, "sailloft-s3-data.service", "No such file"):
        host.apply(ONE, s3=[S3])
    assert "sailloft-s3-data.service as wanted" in host.apply(ONE, s3=[S3], check=True).after
    Path(host.path("/data")).mkdir()
    assert host.apply(ONE, s3=[S3]).changed is False


def test_a_service_that_was_not_restarted_after_a_change_is_by_the_next_run(make_host, monkeypatch):
    host = make_host(0)
    Path(host.path("/data")).mkdir()
    host.apply(ONE, s3=[S3])
    real_run = StorageHost.run

    def run(self, argv, **more):
        if argv[:2] == ["systemctl", "restart"]:
            raise KilledError
        return real_run(self, argv, **more)

    with monkeypatch.context() as patched:
        patched.setattr(StorageHost, "run", run)
        with pytest.raises(KilledError):
            host.apply(ONE, s3=[{**S3, "size_gib": 2}])
    assert host.apply(ONE, s3=[{**S3, "size_gib": 2}]).changed
    assert "systemctl restart sailloft-s3-data.service" in host.commands
    assert not host.apply(ONE, s3=[{**S3, "size_gib": 2}]).changed
