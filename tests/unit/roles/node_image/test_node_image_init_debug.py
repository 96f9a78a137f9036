# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The first stage's debug shell: the real dropbear in the files of a first stage, and ssh."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from pathlib import Path

import pytest
from first_stage import INIT

from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.errors import ImageError
from ansible_collections.sailloft.fleet.plugins.module_utils.image.first_stage import initramfs, userland
from ansible_collections.sailloft.fleet.plugins.module_utils.image.formats import cpio

pytestmark = pytest.mark.skipif(
    os.geteuid() != 0 or not all(map(shutil.which, ("busybox", "dropbear", "ssh"))),
    reason="needs root, and programs of bindep.txt",
)
SCRIPT = """
busybox mount --rbind /dev {root}/dev
busybox ip link set lo up
exec busybox chroot {root} /bin/busybox sh -c '
    export PATH=/bin:/sbin
    busybox mount -t proc proc /proc
    busybox --install -s /bin
    . /init
    folder=/run
    arguments="{arguments}"
    settings
    open_debug_shell
    echo open >/run/opened
    until [ -e /run/end ]; do sleep 0.1; done
    close_debug_shell
    echo closed >/run/closed
    sleep 100'
"""


@pytest.fixture
def stage(tmp_path):
    """Return a function that starts a first stage with these keys in its image: (root, prefix of commands inside)."""
    started = []

    def start(keys, arguments):
        image, root = tmp_path / "image", tmp_path / "root"
        for entry in userland.entries(Path("/"), userland.DEBUG_PROGRAMS):
            place = image / entry.path
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(entry.data)
        (image / userland.DEBUG_KEYS).parent.mkdir(parents=True, exist_ok=True)
        (image / userland.DEBUG_KEYS).write_text(keys)
        busybox = Path(shutil.which("busybox")).read_bytes()
        files = [cpio.file("init", INIT.read_bytes(), executable=True), *userland.debug_entries(image)]
        files += [cpio.folder(name) for name in initramfs.FOLDERS]
        files += [cpio.link(path, target) for path, target in initramfs.LINKS]
        archive = cpio.archive([*files, cpio.file("bin/busybox", busybox, executable=True)], 0)
        root.mkdir()
        subprocess.run(["busybox", "cpio", "-id", "--quiet"], input=archive, cwd=root, check=True)
        script = SCRIPT.format(root=root, arguments=arguments)
        unshared = ["unshare", "--mount", "--net", "--pid", "--fork", "--kill-child", "sh", "-c", script]
        process = subprocess.Popen(unshared, stderr=subprocess.DEVNULL)
        started.append(process)
        await_file(root / "run/opened")
        child = subprocess.run(["pgrep", "-P", str(process.pid)], capture_output=True, text=True, check=True)
        return root, ["nsenter", "-t", child.stdout.split()[0], "--net"]

    yield start
    for process in started:
        process.kill()
        process.wait()


def await_file(path):
    for _attempt in range(300):
        if path.exists():
            return
        time.sleep(0.1)
    raise AssertionError(path)


def key_pair(tmp_path, name):
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(tmp_path / name)], check=True)
    return (tmp_path / f"{name}.pub").read_text()


def call(inside, key):
    options = ["StrictHostKeyChecking=no", "UserKnownHostsFile=/dev/null", "BatchMode=yes", "IdentitiesOnly=yes"]
    command = [*inside, "ssh", "-i", str(key), "-p", "2222", *(word for one in options for word in ("-o", one))]
    command += ["-F", "none", "root@127.0.0.1", "cat /etc/sailloft/debug_keys"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    return done.returncode, done.stdout


def test_only_a_key_of_the_image_opens_the_shell_and_it_ends_with_the_stage(stage, tmp_path):
    keys = key_pair(tmp_path, "known")
    key_pair(tmp_path, "other")
    root, inside = stage(keys, "sailloft.debug=1")
    assert call(inside, tmp_path / "known") == (0, keys)
    assert call(inside, tmp_path / "other") == (255, "")
    (root / "run/end").touch()
    await_file(root / "run/closed")
    assert call(inside, tmp_path / "known") == (255, "")


@pytest.mark.parametrize(
    ("has_key", "arguments"), [(True, ""), (True, "sailloft.debug=0"), (False, "sailloft.debug=1")]
)
def test_the_shell_needs_the_argument_and_a_key(stage, tmp_path, has_key, arguments):
    keys = key_pair(tmp_path, "known")
    _root, inside = stage(keys if has_key else "", arguments)
    assert call(inside, tmp_path / "known") == (255, "")


def test_keys_without_a_server_are_refused(tmp_path):
    assert userland.debug_entries(tmp_path) == []
    (tmp_path / "etc/sailloft").mkdir(parents=True)
    (tmp_path / userland.DEBUG_KEYS).write_text("ssh-ed25519 AAAA")
    with pytest.raises(ImageError, match="dropbear-bin"):
        userland.debug_entries(tmp_path)
