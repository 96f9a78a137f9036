# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The role node_boot restarts a node through a BMC that speaks IPMI alone: OpenIPMI's ipmi_sim, on the loopback."""

from __future__ import annotations

import shutil
import socket
import subprocess
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import bmc_role
import pytest
from bmc_role import PASSWORD, message
from sockets import free_port

from ansible_collections.sailloft.fleet.plugins.module_utils.image.node import bmc_ipmi
from ansible_collections.sailloft.fleet.plugins.module_utils.image.node.bmc import BmcError, BootBmc

pytestmark = [
    pytest.mark.fleet,
    pytest.mark.skipif(not shutil.which("ipmi_sim"), reason="Debian's package openipmi has ipmi_sim"),
]

# A user of IPMI 2.0; ipmi_sim offers it together with the allowed authentication types of older versions.
LAN = """\
name "bm01"
set_working_mc 0x20
startlan 1
  addr 127.0.0.1 {port}
  priv_limit admin
  allowed_auths_admin none md2 md5 straight
  guid a123456789abcdefa123456789abcdef
endlan
chassis_control "{folder}/chassis 0x20"
startnow false
user 2 true "root" "{password}" admin 10 none md2 md5 straight
"""
CONTROLLER = "mc_setbmc 0x20\nmc_add 0x20 0 no-device-sdrs 0x23 9 8 0x9f 0x1291 0xf02 persist_sdr\nmc_enable 0x20\n"
# ipmi_sim runs this script for the chassis with arguments such as "0x20 get power" and "0x20 set reset 1".
CHASSIS = """\
#!/bin/sh
cd {folder}
if [ "$2" = get ]; then
    echo "$3:$(cat "$3")"
else
    echo "$3 $4" >> orders
    case "$3 $(cat fate)" in
    reset*dies) echo 0 > power ;;
    reset* | power*lies | boot*forgets) ;;
    *) echo "$4" > "$3" ;;
    esac
fi
"""


class Bmc:
    """A running BMC of a node with power 1 or 0; its fate: "lies" ignores power commands, "dies" powers off at a reset,
    "forgets" ignores the boot device."""

    def __init__(self, folder: Path, power: int = 1, fate: str = "") -> None:
        self.folder = folder
        (folder / "state").mkdir(parents=True)
        self.port = free_port(socket.SOCK_DGRAM)
        for name, value in (("power", str(power)), ("boot", "none"), ("fate", fate)):
            (folder / name).write_text(value)
        (folder / "lan.conf").write_text(LAN.format(folder=folder, port=self.port, password=PASSWORD))
        (folder / "controller").write_text(CONTROLLER)
        (folder / "chassis").write_text(CHASSIS.format(folder=folder))
        (folder / "chassis").chmod(0o755)
        command = ["ipmi_sim", "-n", "-c", "lan.conf", "-f", "controller", "-s", "state"]
        with (folder / "log").open("w") as log:
            self.process = subprocess.Popen(command, cwd=folder, stdout=log, stderr=subprocess.STDOUT)

    def wait(self) -> Bmc:
        """Wait until the port is open."""
        deadline = time.monotonic() + 60
        while f"0100007F:{self.port:04X} " not in Path("/proc/net/udp").read_text():
            assert self.process.poll() is None, (self.folder / "log").read_text()
            assert time.monotonic() < deadline, (self.folder / "log").read_text()
            time.sleep(0.05)
        return self

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait(10)

    def restart(self, folder: Path, **bmc) -> tuple[int, str]:
        return bmc_role.restart(folder, **{"type": "ipmi", "address": "127.0.0.1", "port": self.port, **bmc})

    def orders(self) -> list[str]:
        """Return the changing commands, in order."""
        file = self.folder / "orders"
        return file.read_text().splitlines() if file.exists() else []


start = bmc_role.starting(Bmc)


def test_a_node_that_is_on_is_restarted_from_the_network(tmp_path, start):
    bmc = start()
    status, output = bmc.restart(tmp_path)
    assert status == 0, output
    # The boot device must come first, or the node would boot from its disk.
    assert bmc.orders() == ["boot pxe", "reset 1"]


@pytest.mark.long
def test_a_node_that_is_off_is_started(tmp_path, start):
    bmc = start(power=0)
    status, output = bmc.restart(tmp_path)
    assert status == 0, output
    assert bmc.orders() == ["boot pxe", "power 1"]


@pytest.mark.parametrize("wrong", ["password", pytest.param("username", marks=pytest.mark.long)])
def test_a_wrong_user_or_password_is_reported_and_nothing_is_changed(tmp_path, start, wrong):
    bmc = start()
    status, output = bmc.restart(tmp_path, **{wrong: "wrong"})
    assert status != 0
    assert "bm01: its BMC 127.0.0.1 did not restart it: " in message(output)
    assert f"check node_boot_bmc.{wrong}" in message(output)
    assert bmc.orders() == []


@pytest.mark.long
def test_a_bmc_that_does_not_answer_is_reported(tmp_path, start):
    bmc = start()
    bmc.stop()
    status, output = bmc.restart(tmp_path)
    assert status != 0
    assert "bm01: its BMC 127.0.0.1 did not restart it: it did not answer; check whether localhost" in message(output)


@pytest.mark.long
def test_a_bmc_that_accepts_the_command_but_starts_nothing_is_reported(tmp_path, start):
    bmc = start(power=0, fate="lies")
    status, output = bmc.restart(tmp_path, power_timeout_s=3)
    assert status != 0
    assert "did not restart it: System did not accomplish power state change" in message(output)


@pytest.mark.long
def test_a_bmc_that_forgets_the_boot_device_is_reported_and_restarts_nothing(tmp_path, start):
    bmc = start(fate="forgets")
    status, output = bmc.restart(tmp_path)
    assert status != 0
    assert "shows no override" in message(output)
    assert bmc.orders() == ["boot pxe"]


@pytest.mark.long
def test_a_node_whose_power_does_not_come_on_is_reported(tmp_path, start):
    bmc = start(fate="dies")
    status, output = bmc.restart(tmp_path, power_timeout_s=3)
    assert status != 0
    assert "the power is off, not on" in message(output)


def test_fencing_powers_off_and_believes_only_what_it_reads_back(tmp_path, start):
    """restart_vm.yml starts nothing elsewhere before this is done."""
    bmc, liar = start(), start(fate="lies")

    def fence(one: Bmc, check: bool) -> str:
        # As in a module: pyghmi waits for ever for a second session with a BMC in one process.
        wanted = BootBmc("127.0.0.1", "root", PASSWORD, type="ipmi", port=one.port, power_timeout_s=3)
        with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as process:
            return process.submit(bmc_ipmi.fence, wanted, check).result(60)

    assert fence(bmc, check=True) == "on"
    assert bmc.orders() == []
    assert fence(bmc, check=False) == "on"
    assert (bmc.folder / "power").read_text().strip() == "0"
    assert fence(bmc, check=False) == "off"
    assert len(bmc.orders()) == 1
    with pytest.raises(BmcError):
        fence(liar, check=False)
    assert (liar.folder / "power").read_text().strip() == "1"
