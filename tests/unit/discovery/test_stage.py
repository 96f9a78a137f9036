# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The inspection stage: what it reads, what it reports to a real boot server, and its code without the collection."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from boot_http import NGINX, keeping, serving
from gpu_server import Server
from machine_reports import MAC, machine

from ansible_collections.sailloft.fleet.plugins.module_utils.discovery import install, report, stage
from ansible_collections.sailloft.fleet.plugins.module_utils.discovery import machine as own_machine
from ansible_collections.sailloft.fleet.plugins.module_utils.discovery.report import ReportedNic
from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.errors import HostError

NAME = MAC.replace(":", "-")
# The output of ipmitool 1.8.19 for a BMC with an address of its own, shortened.
LAN = """Set in Progress         : Set Complete
IP Address Source       : Static Address
IP Address              : 10.9.1.7
Subnet Mask             : 255.255.255.0
MAC Address             : 52:54:00:0B:0C:01
Cipher Suite Priv Max   : XXXaXXXXXXXXXXX
                        :     X=Cipher Suite Unused
"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A tree with a serial number, an Ethernet device, an InfiniBand device, and a bridge; without PCI."""
    for name, kind in (("eth7", "1"), ("ib0", "32"), ("br0", "1")):
        folder = tmp_path / "sys/class/net" / name
        folder.mkdir(parents=True)
        for file, text in (("type", kind), ("address", MAC.upper()), ("carrier", "1")):
            (folder / file).write_text(f"{text}\n")
        if name != "br0":
            (folder / "device").mkdir()
    (tmp_path / "sys/bus/pci/drivers/mlx5_core").mkdir(parents=True)
    (tmp_path / "sys/class/net/eth7/device/driver").symlink_to(tmp_path / "sys/bus/pci/drivers/mlx5_core")
    dmi = tmp_path / "sys/class/dmi/id"
    dmi.mkdir(parents=True)
    for file, text in (
        ("sys_vendor", "Maker {{ x }}"),
        ("product_serial", "To be filled by O.E.M."),
        ("board_serial", "B-7"),
    ):
        (dmi / file).write_text(f"{text}\n")
    return tmp_path


def ipmitool(folder: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    """Put a program in place of ipmitool: no BMC is here."""
    (folder / "bin").mkdir()
    (folder / "bin/ipmitool").write_text(f"#!/bin/sh\n{script}\n")
    (folder / "bin/ipmitool").chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}/bin:{os.environ['PATH']}")


def test_a_machine_reports_what_it_has_and_what_it_cannot_read(root, monkeypatch):
    ipmitool(root, monkeypatch, f"cat <<'END'\n{LAN}END")
    found = own_machine.inspect(MAC, str(root), 0)
    assert report.load(report.dump(found), MAC) == found
    assert (found.vendor, found.product, found.serial) == ("Maker __ x __", "", "B-7")
    assert (found.bmc_address, found.bmc_mac) == ("10.9.1.7", "52:54:00:0b:0c:01")
    assert found.nics == (ReportedNic("eth7", MAC, "mlx5_core", True),)
    assert found.topology is None
    [problem] = found.problems
    assert problem.startswith("topology: ")


def test_this_machine_can_be_reported():
    found = own_machine.inspect(MAC, "/", 0)
    assert report.load(report.dump(found), MAC) == found
    assert found.topology["format"]
    assert found.cpus >= 1
    assert found.memory_mib > 0


@pytest.mark.parametrize(
    "script", ["echo 'Could not open device at /dev/ipmi0' >&2; exit 1", "exit 0", "echo 'IP Address : $(id)'"]
)
def test_a_bmc_that_is_not_there_is_a_problem(root, monkeypatch, script):
    ipmitool(root, monkeypatch, script)
    found = own_machine.inspect(MAC, str(root), 0)
    assert (found.bmc_address, found.bmc_mac) == ("", "")
    assert any(problem.startswith("BMC: ") for problem in found.problems)


@pytest.mark.skipif(not NGINX, reason="no nginx on this machine (bindep.txt)")
def test_it_reports_to_all_servers_until_one_has_it_as_a_node(tmp_path):
    reports = tmp_path / "reports"
    reports.mkdir()
    seen = iter([machine(MAC, ("leaf1", "swp1")), *[machine(serial="S-2", nics=(ReportedNic("eth0", MAC),))] * 1000])
    discovery = {"image": "ab" * 32, "ranges": ["127.0.0.9-127.0.0.9"]}
    with serving(tmp_path, discovery) as ask, keeping(tmp_path, tmp_path / "copies", tmp_path / "store/nodes", reports):
        silent = "http://127.0.0.1:9"
        waits = threading.Thread(
            target=stage.wait, args=(MAC, [silent, ask.url], lambda _mac: next(seen), 0.3), daemon=True
        )
        waits.start()
        deadline = time.monotonic() + 60
        while not (reports / NAME).exists() or b"S-2" not in (reports / NAME).read_bytes():
            assert time.monotonic() < deadline
            time.sleep(0.1)
        # What LLDP said once stays.
        assert report.load((reports / NAME).read_bytes(), MAC).nics[0].neighbour == "leaf1"
        (tmp_path / f"store/nodes/{NAME}.ipxe").write_text("#!ipxe\n")
        waits.join(60)
        assert not waits.is_alive()
        assert list(reports.iterdir()) == []


def test_it_is_installed_in_an_image_only(tmp_path):
    server = Server(tmp_path)
    (tmp_path / "usr/lib/systemd").mkdir(parents=True, exist_ok=True)
    (tmp_path / "usr/lib/systemd/systemd").touch()
    with pytest.raises(HostError):
        install.ensure(server, in_image=False)
    predicted = install.ensure(server, True, check=True)
    assert (server.commands, server.effects) == ([], [])
    done = install.ensure(server, True)
    assert (predicted.before, predicted.after) == (done.before, done.after)
    assert set(done.after) == {install.CODE, install.SERVICE_FILE, f"{install.SERVICE} enabled"}
    assert server.commands == [f"systemctl --root=/ enable {install.SERVICE}"]
    assert not set(install.ensure(server, True).after) - {f"{install.SERVICE} enabled"}


def test_its_code_needs_nothing_but_python(tmp_path):
    """The image has no Ansible, and no library of the collection for virtual machines or images."""
    from ansible_collections.sailloft.fleet.plugins.module_utils.host.at_boot import archive

    names = archive.closure(stage.__name__)
    packages = {name.removeprefix(archive.PREFIX).split(".")[0] for name in names}
    assert packages <= {"common", "discovery", "pci", "proof", "site", "topology"}
    (tmp_path / "stage.pyz").write_bytes(archive.build(stage.__name__))
    path, inspects = str(tmp_path / "stage.pyz"), f"print(machine.inspect('{MAC}', '/', 0).mac)"
    code = f"import sys; sys.path.insert(0, {path!r}); import {own_machine.__name__} as machine; {inspects}"
    done = subprocess.run([sys.executable, "-I", "-S", "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout == f"{MAC}\n", done.stderr


def test_the_keeper_knows_the_format_and_the_limit_of_reports():
    import health_keeper

    keeper = health_keeper.load()
    assert (keeper.REPORT_FORMAT, keeper.REPORT_LIMIT_BYTES) == (report.FORMAT, report.LIMIT_BYTES)
    assert json.loads(report.dump(machine()))["format"] == report.FORMAT
