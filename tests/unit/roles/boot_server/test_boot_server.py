# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The role boot_server: its configuration, which the servers themselves check, its input, and publishing."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml
from boot_server_role import dnsmasq_configuration, render
from messages import Mentions
from playing import ANSIBLE, ansible_playbook

ROOT = Path(__file__).parents[4]
CONTENT = b"layer" * 1000
DNSMASQ = shutil.which("dnsmasq", path="/usr/sbin:/usr/bin:/sbin")
NODES = [{"name": "bm01", "mac": "52:54:00:aa:bb:01", "address": "10.9.0.11"}]


def dnsmasq(mode: str, **changed: object) -> str:
    return dnsmasq_configuration(NODES, boot_server_dhcp=mode, **changed)


@pytest.mark.skipif(not DNSMASQ, reason="no dnsmasq on this machine (bindep.txt)")
@pytest.mark.parametrize("mode", ["full", "proxy"])
@pytest.mark.parametrize(
    "changed", [{}, {"boot_server_gateway": "10.9.0.254", "boot_server_name_servers": ["10.9.0.2"]}]
)
def test_dnsmasq_accepts_its_configuration(tmp_path, mode, changed):
    file = tmp_path / "dnsmasq.conf"
    file.write_text(dnsmasq(mode, **changed))
    subprocess.run([DNSMASQ, "--test", f"--conf-file={file}"], check=True, capture_output=True)
    file.write_text(file.read_text() + "no-such-option\n")
    assert subprocess.run([DNSMASQ, "--test", f"--conf-file={file}"], capture_output=True, check=False).returncode


def test_addresses_are_given_in_full_mode_only():
    assert "dhcp-host=52:54:00:aa:bb:01,10.9.0.11,bm01\n" in dnsmasq("full")
    assert "dhcp-host=52:54:00:aa:bb:01\n" in dnsmasq("proxy")
    assert "static" not in dnsmasq("proxy")


@pytest.mark.parametrize("mode", ["full", "proxy"])
def test_ipxe_gets_the_servers_address_with_the_file(mode):
    """iPXE takes no file from a proxy without the server's address; tests/image_boot boots iPXE."""
    assert "dhcp-boot=tag:ipxe,tftp://10.9.0.1/start.ipxe,,10.9.0.1\n" in dnsmasq(mode)


def test_ipxe_tries_every_server_repeatedly():
    text = render("start.ipxe.j2", boot_server_servers=["http://10.9.0.1", "http://10.9.0.2"])
    tries = [line for line in text.splitlines() if line.startswith("chain ")]
    assert [line.split()[-2] for line in tries] == [
        f"http://10.9.0.{number}/nodes/${{mac:hexhyp}}.ipxe" for number in (1, 2)
    ]
    assert all(line.endswith(" ||") for line in tries)
    assert text.startswith("#!ipxe\n")
    assert text.endswith("goto again\n")


def checked(tmp_path: Path, changed: dict[str, object]) -> tuple[int, str]:
    """Run the role's checks with these variables; return the exit status and the output on one line."""
    values = {
        "ansible_python_interpreter": sys.executable,
        "boot_server_interface": "lo",
        "boot_server_address": "10.9.0.1",
        "boot_server_netmask": "255.255.255.0",
        "boot_server_nodes": NODES,
    }
    # The whole role would configure this machine.
    return played(tmp_path, {**values, **changed}, "check.yml")


def played(tmp_path: Path, values: dict[str, object], tasks: str, *arguments: str) -> tuple[int, str]:
    """Run some of the role's tasks on this machine; return the exit status and the output on one line."""
    role = {"name": "sailloft.fleet.boot_server"}
    parts = [{"ansible.builtin.include_role": {**role, "tasks_from": part}} for part in tasks.split()]
    grouped = [{"ansible.builtin.group_by": {"key": "nodes"}}] if not values.get("boot_server_nodes", True) else []
    play = [{"hosts": "localhost", "gather_facts": False, "vars": values, "tasks": [*grouped, *parts]}]
    (tmp_path / "play.yml").write_text(json.dumps(play))
    status, output = ansible_playbook("-i", "localhost,", "-c", "local", str(tmp_path / "play.yml"), *arguments)
    return status, " ".join(output.split())


@pytest.mark.parametrize(
    ("changed", "facts"),
    [
        (
            {
                "boot_server_nodes": [{**NODES[0], "mac": "52:54:00:aa:bb"}, {**NODES[0], "name": "bm02"}],
                "boot_server_gateway": "router",
                "boot_server_subnets": [{"network": "10.9.0.128/25", "gateway": "10.9.0.129"}],
                "boot_server_http_port": 70000,
            },
            (
                *("boot_server_http_port: 70000", "65535", "boot_server_gateway is router", "IPv4"),
                *("boot_server_servers", "http://10.9.0.1:70000"),
                *("boot_server_subnets: 10.9.0.128/25", "10.9.0.0/24", "boot_server_address"),
                *("node bm01: '52:54:00:aa:bb'", "MAC address", "nodes bm01, bm02", "10.9.0.11"),
            ),
        ),
        pytest.param({"boot_server_interface": "no-such0"}, ("no interface no-such0",), marks=pytest.mark.long),
    ],
)
@pytest.mark.fleet
def test_bad_input_is_refused_before_anything_is_touched(tmp_path, changed, facts):
    status, output = checked(tmp_path, changed)
    assert status == 2, output
    assert Mentions(*facts).missing_from(output) == [], output


@pytest.mark.parametrize(
    "changed",
    [
        {"boot_server_gateway": "10.9.0.254", "boot_server_name_servers": ["10.9.0.2"], "boot_server_http_port": 8080},
        pytest.param(
            {"boot_server_dhcp": "proxy", "boot_server_nodes": [{"name": "bm01", "mac": "52-54-00-AA-BB-01"}]},
            marks=pytest.mark.long,
        ),
        pytest.param(
            {
                "boot_server_subnets": [{"network": "10.9.16.0/20", "gateway": "10.9.16.1"}],
                "boot_server_nodes": [
                    {"name": "gh01", "mac": "52-54-00-AA-BB-01", "address": "10.9.17.3", "architecture": "aarch64"}
                ],
            },
            marks=pytest.mark.long,
        ),
    ],
)
@pytest.mark.fleet
def test_valid_input_is_accepted(tmp_path, changed):
    status, output = checked(tmp_path, changed)
    assert status == 0, output


@pytest.mark.parametrize("master", [False, pytest.param(True, marks=pytest.mark.long)])
@pytest.mark.fleet
def test_check_mode_without_a_store_predicts_the_published_images(tmp_path, master):
    if master:
        (tmp_path / "master/images").mkdir(parents=True)
    values = {
        "ansible_python_interpreter": sys.executable,
        "boot_server_store_dir": str(tmp_path / "store"),
    }
    store = f"node_image_store_dir={tmp_path}/master"  # of the build host: no variable of the play
    status, output = played(tmp_path, values, "publish.yml", "--check", "-e", store)
    assert status == 0, output
    assert f"localhost: would get all images of {tmp_path}/master on localhost" in output
    assert ("which the first build creates" in output) != master
    assert not (tmp_path / "store").exists()


@pytest.mark.parametrize(
    ("family", "missing", "package"),
    [
        ("Debian", "/usr/lib/ipxe/ipxe-arm64.efi", "ipxe"),
        pytest.param(
            *("RedHat", "/usr/share/ipxe/arm64-efi/snponly.efi", "ipxe-bootimgs-aarch64"), marks=pytest.mark.long
        ),
    ],
)
@pytest.mark.fleet
def test_nodes_without_an_ipxe_file_for_their_architecture_are_named(tmp_path, family, missing, package):
    paths = yaml.safe_load((ROOT / "roles/boot_server/vars/main.yml").read_text())["__boot_server_ipxe_packages"]
    for places in paths.values():
        for place in places.values():
            place["path"] = f"{tmp_path}{place['path']}"
            if place["path"] != f"{tmp_path}{missing}":
                Path(place["path"]).parent.mkdir(parents=True, exist_ok=True)
                Path(place["path"]).touch()
    values = {
        "ansible_python_interpreter": sys.executable,
        "ansible_facts": {"os_family": family},
        "boot_server_address": "10.9.0.1",
        "boot_server_netmask": "255.255.255.0",
        "boot_server_interface": "lo",
        "boot_server_nodes": NODES,
        "__boot_server_installed": {"changed": False},
    }
    (tmp_path / "paths.json").write_text(json.dumps({"__boot_server_ipxe_packages": paths}))
    status, output = played(tmp_path, values, "check.yml ipxe.yml", "-e", f"@{tmp_path}/paths.json")
    assert status == 0, output
    aarch64 = {"architecture": "aarch64"}
    arm = [{"name": f"gh{at}", "mac": f"02:00:00:00:00:0{at}", "address": f"10.9.0.2{at}", **aarch64} for at in (1, 2)]
    status, output = played(
        tmp_path, {**values, "boot_server_nodes": NODES + arm}, "check.yml ipxe.yml", "-e", f"@{tmp_path}/paths.json"
    )
    assert status == 2, output
    assert (
        f"localhost: has no {tmp_path}{missing}, which only some releases of package {package} contain; gh1, gh2 "
        "would boot with it; install such a release of the package, or put an iPXE for aarch64 there"
    ) in output


@pytest.mark.skipif(not shutil.which("rsync"), reason="no rsync on this machine (bindep.txt)")
@pytest.mark.fleet
def test_publishing_to_a_full_disk_fails_and_a_later_run_completes_it(tmp_path):
    """The store is on a real file system of 1 MiB, in its own mount namespace."""
    for folder in ("master/blobs", "master/images", "served"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "master/blobs/small").write_bytes(b"s" * 100_000)
    (tmp_path / "master/blobs/zbig").write_bytes(b"b" * 2_000_000)
    (tmp_path / "master/images/image").write_bytes(b"manifest")
    values = {
        "ansible_python_interpreter": sys.executable,
        "boot_server_store_dir": str(tmp_path / "served"),
    }
    role = {"ansible.builtin.include_role": {"name": "sailloft.fleet.boot_server", "tasks_from": "publish"}}
    (tmp_path / "play.yml").write_text(
        json.dumps([{"hosts": "localhost", "gather_facts": False, "vars": values, "tasks": [role]}])
    )
    command = f"{ANSIBLE} -i localhost, -c local {tmp_path}/play.yml -e node_image_store_dir={tmp_path}/master"
    script = f"""
        mount -t tmpfs -o size=1m none {tmp_path}/served || exit 99
        mkdir {tmp_path}/served/blobs {tmp_path}/served/images
        {command}; echo "status $?"
        find {tmp_path}/served -type f
        mount -o remount,size=4m {tmp_path}/served
        {command} >&2 || exit 98
        cd {tmp_path}/served && cat blobs/small blobs/zbig images/image | sha256sum
    """
    done = subprocess.run(
        ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", script],
        cwd=ROOT,
        env={**os.environ, "ANSIBLE_NOCOLOR": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode == 99:
        pytest.skip("no mount namespaces here")
    assert done.returncode == 0, done.stdout + done.stderr
    output = " ".join(done.stdout.split())
    assert f"localhost: the copy to {tmp_path}/served failed: " in output
    assert "No space left on device" in output
    assert "collect_images.yml" in output
    # No image is there without its blobs, and no blob is incomplete.
    left = output.partition("status 2 ")[2].split()
    assert left[:-2] == [f"{tmp_path}/served/blobs/small"]
    whole = b"s" * 100_000 + b"b" * 2_000_000 + b"manifest"
    assert left[-2] == hashlib.sha256(whole).hexdigest()


@pytest.mark.skipif(not shutil.which("rsync"), reason="no rsync on this machine (bindep.txt)")
def test_rsync_stops_if_a_server_does_not_answer(tmp_path):
    tasks = yaml.safe_load((ROOT / "roles/boot_server/tasks/publish.yml").read_text())[-1]["block"]
    options = tasks[0]["ansible.posix.synchronize"]["rsync_opts"]
    assert options[-2:] == ["--timeout=60", "--stop-after=60"]
    (tmp_path / "silent").write_text("#!/bin/sh\nexec sleep 30\n")
    (tmp_path / "silent").chmod(0o755)
    began = time.monotonic()
    command = [
        "rsync",
        "--recursive",
        f"--rsh={tmp_path}/silent",
        "--timeout=2",
        "--stop-after=60",
        f"{tmp_path}/",
        "boot01:/x",
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert time.monotonic() - began < 20
    assert done.returncode == 30  # a timeout, by rsync(1)
    assert "timeout" in done.stderr


def test_the_role_checks_its_input_first():
    names, first = yaml.safe_load((ROOT / "roles/boot_server/tasks/main.yml").read_text())[:2]
    assert "sailloft.fleet.role_variables" in names
    assert first["ansible.builtin.import_tasks"] == "check.yml"


@pytest.mark.long
@pytest.mark.skipif(not shutil.which("rsync"), reason="no rsync on this machine (bindep.txt)")
@pytest.mark.fleet
def test_publishing_repairs_a_truncated_blob(tmp_path):
    task = yaml.safe_load((ROOT / "roles/boot_server/tasks/publish.yml").read_text())[-1]["block"][0]
    master, served = tmp_path / "master/blobs", tmp_path / "served/blobs"
    for folder in (master, served):
        folder.mkdir(parents=True)
    for name in ("whole", "cut"):
        (master / name).write_bytes(CONTENT)
    (master / ".new.new").write_bytes(CONTENT)
    command = ["rsync", "--recursive", "--times", *task["ansible.posix.synchronize"]["rsync_opts"]]
    subprocess.run([*command, f"{master}/", f"{served}/"], check=True)
    before = (served / "whole").stat().st_ino
    (served / "cut").write_bytes(CONTENT[:100])
    subprocess.run([*command, f"{master}/", f"{served}/"], check=True)
    assert (served / "cut").read_bytes() == CONTENT
    assert (served / "whole").stat().st_ino == before
    assert sorted(path.name for path in served.iterdir()) == ["cut", "whole"]


def test_a_server_that_would_boot_no_node_is_refused(tmp_path):
    status, output = checked(tmp_path, {"boot_server_nodes": []})
    assert status != 0
    assert "it would boot no node, because none has node_boot_mac (localhost)" in output
