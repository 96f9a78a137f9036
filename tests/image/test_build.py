# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Builds are reproducible, build only what changed, and leave nothing behind."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from messages import raises

from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.errors import ImageError
from ansible_collections.sailloft.fleet.plugins.module_utils.image.store import sign
from ansible_collections.sailloft.fleet.plugins.module_utils.image.store.manifest import digest


def snapshot(folder: Path) -> dict[str, bytes]:
    return {
        os.fspath(path.relative_to(folder)): path.read_bytes() if path.is_file() else b""
        for path in sorted(folder.rglob("*"))
    }


def unpacked(layer: Path, into: Path, *names: str) -> Path:
    subprocess.run(["unsquashfs", "-quiet", "-no-progress", "-d", into, layer / "layer.squashfs", *names], check=True)
    return into


# The copied layers are not built again: the largest takes half a minute.
@pytest.mark.parametrize("copied", [("base", "gpu"), pytest.param((), marks=pytest.mark.long)], ids=["top", "all"])
def test_two_hosts_build_the_same_bytes(site, other, requested, copied):
    for layer in copied:
        folder = site.tree("node")[layer]
        shutil.copytree(folder, other.cache / "layers" / folder.name, symlinks=True)
    (outcome,), _lines, _seconds = other.build(requested)
    assert set(outcome.built) == set(requested) - set(copied)
    ours, theirs = (host.store.manifest(host.store.current("node")) for host in (site, other))
    assert [layer.sha256 for layer in ours.layers] == [layer.sha256 for layer in theirs.layers]
    assert snapshot(Path(site.store.path)) == snapshot(Path(other.store.path))


def test_the_manifest_is_signed_and_the_blobs_match_it(site):
    name = site.store.current("node")
    data, signature = site.store.read(name, "manifest.json"), site.store.read(name, "manifest.json.minisig")
    assert digest(data) == name
    assert sign.verifies(data, signature, sign.read_public_key(site.keys / "image.pub"))
    assert not sign.verifies(
        data.replace(b"debian", b"ubuntu", 1), signature, sign.read_public_key(site.keys / "image.pub")
    )
    manifest = site.store.manifest(name)
    assert not site.store.missing_blobs(manifest)
    for layer in manifest.layers:
        blob = Path(site.store.path, "blobs", layer.sha256)
        data_bytes = layer.verity.data_bytes
        checked = subprocess.run(
            [
                *("veritysetup", "verify", "--no-superblock", f"--hash-offset={data_bytes}", "--hash=sha256"),
                *(f"--data-blocks={data_bytes // 4096}", "--data-block-size=4096", "--hash-block-size=4096"),
                *(f"--salt={layer.verity.salt}", blob, blob, layer.verity.root_sha256),
            ],
            capture_output=True,
            text=True,
            check=False,
        )
        assert checked.returncode == 0, checked.stderr


def test_the_image_contains_no_files_of_a_node_and_no_date_of_the_build(site, tmp_path):
    trees = {name: unpacked(folder, tmp_path / name) for name, folder in site.tree("node").items()}
    today = re.compile(time.strftime(r"%Y-%m-%d|%a %b %e|%d %b %Y").encode())
    folders = site.tree("node")
    for name, tree in trees.items():
        listing = json.loads((folders[name] / "listing.json").read_text())
        epoch = json.loads((folders[name] / "layer.json").read_text())["entry"]["inputs"]["source_date_epoch"]
        files = [path for path, entry in listing.items() if entry["type"] == "file"]
        assert not [path for path in files if path.startswith(("/var/log/", "/var/lib/apt/lists/", "/tmp/", "/run/"))]
        assert not [
            path for path in files if re.match(r"/etc/ssh/ssh_host|/boot/(vmlinuz|initrd)|/etc/(passwd|shadow)-$", path)
        ]
        assert not [path for path in files if path.startswith("/var/cache/") and "/debconf/" not in path]
        for path in files:
            assert not today.search((tree / path[1:]).read_bytes()), f"{path} of layer {name} has the day of the build"
            assert os.stat(tree / path[1:]).st_mtime <= epoch
    assert (trees["base"] / "etc/machine-id").read_text() == ""
    assert not (trees["base"] / "etc/hostname").exists()


def test_the_image_has_the_requested_content(site, tmp_path):
    tree = unpacked(site.tree("node")["gpu"], tmp_path / "gpu")
    assert (tree / "etc/motd").read_text() == "GPU node\n"
    assert (tree / "home/ops/.ssh/authorized_keys").stat().st_mode & 0o777 == 0o600
    assert (tree / "home/ops/.ssh/authorized_keys").stat().st_uid == (tree / "home/ops").stat().st_uid != 0
    assert re.search(r"^adm:.*\bops\b", (tree / "etc/group").read_text(), re.MULTILINE)
    assert os.readlink(tree / "etc/systemd/system/apt-daily.timer") == "/dev/null"
    assert (tree / "etc/systemd/system/multi-user.target.wants/ssh.service").is_symlink()
    # The layer has only its own part.
    assert not (tree / "usr/bin/bash").exists()
    assert not (tree / "etc/fstab").exists()


def test_each_package_is_listed_with_the_layer_that_installed_it(site):
    manifest = site.store.manifest(site.store.current("node"))
    brought = {package.name: package.layer for package in manifest.packages}
    assert (brought["bash"], brought["openssh-server"], brought["less"]) == ("base", "gpu", "site")
    bill = json.loads(Path(site.store.path, "blobs", manifest.sbom_sha256).read_text())
    assert bill["bomFormat"] == "CycloneDX"
    assert {item["name"] for item in bill["components"]} == set(brought)


def test_an_unchanged_image_is_not_built(site, requested):
    before = snapshot(Path(site.store.path))
    (outcome,), _lines, seconds = site.build(requested)
    assert (outcome.changed, outcome.built) == (False, ())
    assert seconds < site.seconds / 4
    assert snapshot(Path(site.store.path)) == before


def test_check_mode_predicts_the_image_that_the_run_publishes(site, requested):
    before = snapshot(Path(site.store.path))
    requested["site"]["packages"].append("jq")
    (foreseen,), _lines, seconds = site.checking().build(requested)
    assert snapshot(Path(site.store.path)) == before
    assert foreseen.changed
    assert foreseen.built == ("site",)
    assert any(re.match(r"  \+ jq ", line) for line in foreseen.diff)
    assert seconds < site.seconds / 2
    (done,), _lines, _seconds = site.build(requested)
    assert (done.digest, done.built, done.diff) == (foreseen.digest, (), foreseen.diff)
    site.build({**requested, "site": {"parent": "gpu", "packages": ["less"]}})
    assert site.store.current("node") == site.outcomes[0].digest


@pytest.mark.parametrize(
    ("change", "message"),
    [
        # The error of apt: quickly by test_dependencies_that_no_archive_fulfils_are_named.
        pytest.param(
            lambda requested: requested["site"]["packages"].append("nonesuch"),
            "layer site: Unable to locate package nonesuch",
            marks=pytest.mark.long,
        ),
        (
            lambda requested: requested["base"]["archives"][0].update(url="http://127.0.0.1:9/debian"),
            "archive http://127.0.0.1:9/debian/dists/bookworm/InRelease: cannot be reached",
        ),
        (
            lambda requested: requested["base"]["archives"][0].update(release_sha256={"bookworm": "0" * 64}),
            "but " + "0" * 64 + " is pinned",
        ),
        (
            lambda requested: requested["site"].update(services={"enabled": ["nonesuch"]}),
            "layer site: systemctl enable nonesuch",
        ),
        pytest.param(
            lambda requested: requested["site"].update(users=[{"name": "x", "groups": ["nonesuch"]}]),
            "layer site: user x: ",
            marks=pytest.mark.long,
        ),
        pytest.param(
            lambda requested: requested["site"].update(files=[{"path": "/etc/x", "content": "", "owner": "nonesuch"}]),
            "there is no user nonesuch in the image",
            marks=pytest.mark.long,
        ),
    ],
)
def test_a_failed_build_gives_a_one_line_error_and_leaves_nothing(site, requested, change, message):
    before = snapshot(Path(site.store.path))
    change(requested)
    with pytest.raises(ImageError) as caught:
        site.build(requested)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
    assert snapshot(Path(site.store.path)) == before
    assert not (site.cache / "work").exists()


def test_a_killed_build_leaves_nothing_and_the_next_one_finishes(site, requested):
    requested["site"]["packages"].append("rsync")
    before = snapshot(Path(site.store.path))
    script = (
        "import sys, json; sys.path[:0] = json.loads(sys.argv[1])\n"
        "from pathlib import Path; from build_host import BuildHost\n"
        "site = BuildHost(Path(sys.argv[2]), Path(sys.argv[3]))\n"
        "import ansible_collections.sailloft.fleet.plugins.module_utils.image.build.build as build\n"
        "site.build(json.loads(sys.argv[4]))\n"
    )
    arguments = [json.dumps(sys.path), site.folder, site.keys, json.dumps(requested)]
    process = subprocess.Popen([sys.executable, "-c", script, *map(os.fspath, arguments)])
    until = time.monotonic() + 600
    while not any((site.cache / "work").glob("layer-0/upper/usr/share/doc/rsync")):
        assert process.poll() is None
        assert time.monotonic() < until
        time.sleep(0.02)
    with raises(ImageError, process.pid, "building"):
        site.build(requested)
    process.send_signal(signal.SIGKILL)
    process.wait()
    until = time.monotonic() + 60
    # The kernel removes the mounts, and with them the loop devices, a moment after the last process has ended.
    while our_processes(site.cache) or os.fspath(site.cache) in loop_devices():
        assert time.monotonic() < until
        time.sleep(0.05)
    assert os.fspath(site.cache) not in Path("/proc/self/mounts").read_text()
    assert snapshot(Path(site.store.path)) == before
    (outcome,), _lines, _seconds = site.checking().build(requested)
    assert outcome.built == ("site",)
    assert not (site.cache / "work").exists()


def loop_devices() -> str:
    return subprocess.run(["losetup", "-a"], check=True, capture_output=True, text=True).stdout


def our_processes(folder: Path) -> list[str]:
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = path.read_bytes()
        except OSError:
            continue
        if os.fsencode(folder / "work") in line:
            found.append(os.fsdecode(line))
    return found
