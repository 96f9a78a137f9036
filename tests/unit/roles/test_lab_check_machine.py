# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The check of this machine before the lab starts: its findings with real sockets, files and libvirt's test driver."""

from __future__ import annotations

import json
import os
import pwd
import re
import shutil
import socket
import subprocess
import sys
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path

import pytest
import yaml
from sockets import free_port

LAB = Path(__file__).parents[3] / "roles/lab"
MACHINES = yaml.safe_load((LAB / "vars/main.yml").read_text(encoding="utf-8"))["__lab_machines"]
SCRIPT = LAB / "files/check-machine"
loader = SourceFileLoader("check_machine", str(SCRIPT))
check = module_from_spec(spec_from_loader(loader.name, loader))
sys.dont_write_bytecode, before = True, sys.dont_write_bytecode
loader.exec_module(check)
sys.dont_write_bytecode = before
USER = pwd.getpwuid(os.getuid()).pw_name


def request(folder, *asked, machines=MACHINES, uri="test:///default"):
    return {
        "asked": asked,
        "machines": machines,
        "instance": "lab",
        "bmc_port": 22008,
        "cache": str(folder),
        "uri": uri,
    }


@pytest.mark.skipif(shutil.which("virsh") is None, reason="needs virsh")
def test_all_findings_of_the_machines_asked_for_are_listed_together(tmp_path):
    """libvirt's test driver has a running virtual machine "test"."""
    ssh, cable = free_port(), free_port(socket.SOCK_DGRAM)
    machines = {
        "test": {"memory_mib": 1},
        "big": {
            "memory_mib": 1 << 30,
            "mac": "02:00:00:00:00:01",
            "ssh_port": {"lab": ssh},
            "cable_port": {"lab": cable},
        },
        "other": {"memory_mib": 1 << 30, "ssh_port": {"lab": ssh}},
    }

    def findings(*asked):
        command = [sys.executable, SCRIPT, json.dumps(request(tmp_path, *asked, machines=machines))]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()

    with socket.socket() as tcp, socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp:
        tcp.bind(("127.0.0.1", ssh))
        tcp.listen()
        udp.bind(("127.0.0.1", cable))
        lines = [line for line in findings("test", "big") if "GB" not in line]
    assert len(lines) == 4
    subjects = ("a virtual machine test ", "big need ", f"port {ssh} (tcp)", f"port {cable} (udp)")
    assert [line.startswith(subject) for line, subject in zip(lines, subjects)] == [True] * 4
    assert f"(pid {os.getpid()})" in lines[2]
    assert f"(pid {os.getpid()})" in lines[3]
    assert all("; " in line for line in lines)  # the next step
    assert [line.split()[:4] for line in findings("test") if "GB" not in line] == [["a", "virtual", "machine", "test"]]


@pytest.mark.skipif(shutil.which("virsh") is None, reason="needs virsh")
@pytest.mark.parametrize("template", ["gpu_server", "boot_server", "diskless_node", "roce_machine"])
def test_a_machine_of_the_lab_is_known_as_such(tmp_path, template):
    title = re.search(r"<title>.*</title>", (LAB / f"templates/{template}.xml.j2").read_text(encoding="utf-8"))[0]
    node = tmp_path / "node.xml"  # test_driver.c of libvirt
    node.write_text(
        "<node><domain type='test'><name>hv01</name>"
        f"{title}<memory unit='KiB'>1024</memory><os><type>hvm</type></os></domain></node>"
    )
    asked = request(tmp_path, "hv01", machines={"hv01": {"memory_mib": 1}}, uri=f"test://{node}")
    done = subprocess.run([sys.executable, SCRIPT, json.dumps(asked)], capture_output=True, text=True, check=True)
    assert "virtual machine" not in done.stdout
    assert check.defined(asked["uri"]).keys() == {"hv01"}


def test_ports_are_those_of_the_definitions():
    numbers = {
        name: sorted(port.number for port in check.ports({name: machine}, request("/", name)))
        for name, machine in MACHINES.items()
    }
    assert numbers == {
        "hv01": [2201, 22010, 22011, 22012, 22013],
        "boot01": [2202, 22021, 22023],
        "bm01": [22008, 22020],
        "bm02": [22008, 22022],
        "ro01": [2203, 22030],
        "ro02": [2204, 22032],
        "sw01": [2205, 22031, 22033],
    }


def test_memory_is_that_of_all_machines_to_start():
    both = {name: MACHINES[name] for name in ("hv01", "boot01")}
    needed = sum(machine["memory_mib"] for machine in both.values())
    assert check.memory(both, needed) == []
    (line,) = check.memory(both, needed - 1)
    assert re.search(rf"hv01, boot01 .*{needed} MiB.*{needed - 1} MiB", line)
    assert check.available_mib("MemFree: 1 kB\nMemAvailable:   2097152 kB\n") == 2048


def test_the_disk_counts_what_the_cache_already_has(tmp_path, monkeypatch):
    cache = tmp_path / "not/yet"
    monkeypatch.setattr(check, "DISK_BYTES", 0)
    assert check.disk(cache) == []
    monkeypatch.setattr(check, "DISK_BYTES", 1 << 60)
    (line,) = check.disk(cache)
    assert str(cache) in line
    assert "SAILLOFT_CACHE" in line


@pytest.mark.parametrize("user", ["nobody", "no-such-user"])
def test_files_of_another_user_in_swtpms_authority_are_found(tmp_path, user):
    conf, authority = tmp_path / "localca.conf", tmp_path / "ca"
    authority.mkdir()
    (authority / "certserial").write_text("1")
    conf.write_text(f"statedir = {authority}\nsigningkey = {authority}/signkey.pem\n")
    assert check.authority_folder(conf) == authority
    assert check.authority(["bm01"], authority, USER) == []
    (line,) = check.authority(["bm01"], authority, user)
    assert user in line
    if user == "nobody":
        assert line.startswith("bm01 would not start")
        assert USER in line
        assert line.endswith(f"chown -R nobody {authority}")


def test_swtpms_user_is_that_of_libvirts_configuration(tmp_path):
    conf = tmp_path / "qemu.conf"
    assert check.swtpm_user(conf) == "tss"
    conf.write_text('#swtpm_user = "tss"\n')
    assert check.swtpm_user(conf) == "tss"
    conf.write_text('#swtpm_user = "tss"\nswtpm_user = "swtpm"\n')
    assert check.swtpm_user(conf) == "swtpm"
    assert check.authority(["bm01"], check.authority_folder(tmp_path / "none"), "tss") == []
