# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Restarts through a BMC: sushy-tools' emulator, with TLS and passwords, on the loopback."""

from __future__ import annotations

import json
import re
import socket
import subprocess
import sys
import time
from pathlib import Path

import bcrypt
import bmc_role
import pytest
from ansible.module_utils.testing import patch_module_args
from bmc_role import PASSWORD, message
from quirky_bmc import QuirkyBmc
from sockets import free_port

from ansible_collections.sailloft.fleet.plugins.modules import node_fence

pytestmark = pytest.mark.fleet

BIN = Path(sys.executable).parent
UUID = "5a11f017-0000-4000-8000-0000000000b1"
OTHER = "5a11f017-0000-4000-8000-0000000000b2"
# A BMC that answers like the emulator, but does not change the power state.
LIAR = """
from sushy_tools.emulator import main
from sushy_tools.emulator.resources.systems.fakedriver import FakeDriver
FakeDriver.set_power_state = lambda self, identity, state: None
main.main()
"""


class Bmc:
    """A running emulator with two systems and the self-signed certificate ``ca``."""

    def __init__(self, folder, power="On", lies=False):
        folder.mkdir()
        self.ca = str(folder / "certificate.pem")
        self.address = f"127.0.0.1:{free_port()}"
        openssl = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=bmc"
        openssl += f" -addext subjectAltName=IP:127.0.0.1 -keyout {folder}/key.pem -out {self.ca}"
        subprocess.run(openssl.split(), check=True, capture_output=True)
        hashed = bcrypt.hashpw(PASSWORD.encode(), bcrypt.gensalt(4)).decode()
        (folder / "users").write_text(f"root:{hashed}\n")
        systems = [
            {"uuid": uuid, "name": name, "power_state": power, "external_notifier": False, "nics": []}
            for uuid, name in ((OTHER, "other"), (UUID, "bm01"))
        ]
        settings = {
            "SUSHY_EMULATOR_SSL_CERT": self.ca,
            "SUSHY_EMULATOR_SSL_KEY": str(folder / "key.pem"),
            "SUSHY_EMULATOR_AUTH_FILE": str(folder / "users"),
            "SUSHY_EMULATOR_STATE_DIR": str(folder),
            "SUSHY_EMULATOR_FAKE_SYSTEMS": systems,
        }
        (folder / "config.py").write_text("".join(f"{name} = {value!r}\n" for name, value in settings.items()))
        command = [sys.executable, "-c", LIAR] if lies else [str(BIN / "sushy-emulator")]
        port = self.address.split(":")[1]
        arguments = ["--fake", "--config", str(folder / "config.py"), "-i", "127.0.0.1", "-p", port]
        self.log = folder / "log"
        with self.log.open("w") as log:
            self.process = subprocess.Popen([*command, *arguments], stdout=log, stderr=subprocess.STDOUT)

    def wait(self):
        """Wait until the emulator listens."""
        for _attempt in range(300):
            with socket.socket() as one:
                if one.connect_ex(("127.0.0.1", int(self.address.split(":")[1]))) == 0:
                    return self
            assert self.process.poll() is None, self.log.read_text()
            time.sleep(0.1)
        raise AssertionError(self.log.read_text())

    def stop(self):
        self.process.terminate()
        self.process.wait(30)

    def requests(self):
        """Return the changing requests in order, as method and path."""
        return [" ".join(found) for found in re.findall(r"(POST|PATCH) (\S+) HTTP", self.log.read_text())]

    def system(self):
        """Return the state of the system, as the BMC reports it."""
        url = f"https://{self.address}/redfish/v1/Systems/{UUID}"
        command = ["curl", "-s", "--cacert", self.ca, "-u", f"root:{PASSWORD}", url]
        shown = subprocess.run(command, check=True, capture_output=True)
        return json.loads(shown.stdout)


start = bmc_role.starting(Bmc)


def restart(folder, **bmc):
    """Have the BMC restart the second of its systems."""
    return bmc_role.restart(folder, **{"system": UUID, "timeout_s": 10, "power_timeout_s": 40, **bmc})


def fence(bmc, capsys, check=False, limit_s=40):
    """Run the module node_fence; return its result. The emulator takes up to 11 s to change the power."""
    given = {"type": "redfish", "address": bmc.address, "ca": bmc.ca, "system": UUID, "power_timeout_s": limit_s}
    arguments = {"node": "bm01", "bmc": {**given, "username": "root", "password": PASSWORD}}
    with patch_module_args({**arguments, "_ansible_check_mode": check}), pytest.raises(SystemExit):
        node_fence.main()
    output = capsys.readouterr().out
    assert PASSWORD not in output
    return json.loads(output)


def test_a_node_is_fenced_only_when_its_bmc_says_that_it_is_off(start, capsys):
    bmc = start()
    told = fence(bmc, capsys, check=True)
    assert (told["changed"], told["power_before"], bmc.requests()) == (True, "on", [])
    told = fence(bmc, capsys)
    assert (told.get("changed"), told.get("power_before"), bmc.system()["PowerState"]) == (True, "on", "Off"), told
    assert fence(bmc, capsys)["changed"] is False
    assert fence(start(lies=True), capsys, limit_s=4)["failed"] is True


# The requests for the two boot modes differ in one value only.
@pytest.mark.parametrize("mode", ["UEFI", pytest.param("Legacy", marks=pytest.mark.long)])
def test_a_node_that_is_on_is_restarted_from_the_network(tmp_path, start, mode):
    bmc = start()
    status, output = restart(tmp_path, address=bmc.address, ca=bmc.ca, boot_mode=mode)
    assert status == 0, output
    system = bmc.system()
    assert system["PowerState"] == "On"
    assert system["Boot"]["BootSourceOverrideTarget"] == "Pxe"
    assert system["Boot"]["BootSourceOverrideMode"] == mode
    # The override must come first, or the node would boot from its disk.
    path = f"/redfish/v1/Systems/{UUID}"
    assert bmc.requests() == [f"PATCH {path}", f"POST {path}/Actions/ComputerSystem.Reset"]


@pytest.mark.long
def test_a_node_that_is_off_is_started(tmp_path, start):
    bmc = start(power="Off")
    assert bmc.system()["PowerState"] == "Off"
    status, output = restart(tmp_path, address=bmc.address, ca=bmc.ca)
    assert status == 0, output
    assert bmc.system()["PowerState"] == "On"


@pytest.mark.long
def test_a_wrong_password_is_reported_and_nothing_is_changed(tmp_path, start):
    bmc = start()
    status, output = restart(tmp_path, address=bmc.address, ca=bmc.ca, password="wrong")
    assert status != 0
    assert f"bm01: its BMC {bmc.address} did not restart it: " in message(output)
    assert "returned code 401" in message(output)
    assert "check node_boot_bmc.username and password" in message(output)
    assert bmc.requests() == []


def test_an_untrusted_certificate_is_refused(tmp_path, start):
    bmc = start()
    status, output = restart(tmp_path, address=bmc.address)
    assert status != 0
    assert "certificate verify failed" in message(output)
    assert "set verify_tls to false" in message(output)
    assert bmc.requests() == []
    status, output = restart(tmp_path, address=bmc.address, verify_tls=False)
    assert status == 0, output


@pytest.mark.long
def test_a_bmc_that_does_not_answer_is_reported(tmp_path):
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        began = time.monotonic()
        status, output = restart(tmp_path, address=address, timeout_s=2)
    assert status != 0
    assert f"bm01: its BMC {address} did not restart it: " in message(output)
    assert "timed out" in message(output)
    assert "check whether localhost can reach this address" in message(output)
    assert time.monotonic() - began < 60


@pytest.mark.long
def test_a_bmc_that_accepts_the_command_but_starts_nothing_is_reported(tmp_path, start):
    bmc = start(power="Off", lies=True)
    status, output = restart(tmp_path, address=bmc.address, ca=bmc.ca, power_timeout_s=6)
    assert status != 0
    assert "it accepted the command, but the power is off" in message(output)


@pytest.mark.long
def test_a_missing_or_unnamed_system_is_reported(tmp_path, start):
    bmc = start()
    status, output = restart(tmp_path, address=bmc.address, ca=bmc.ca, system="bm99")
    assert status != 0
    assert f"it has the systems {UUID}, {OTHER}; node_boot_bmc.system names bm99" in message(output)
    status, output = bmc_role.restart(tmp_path, address=bmc.address, ca=bmc.ca)
    assert status != 0
    assert "names none" in message(output)
    assert "check node_boot_bmc.system" in message(output)
    assert bmc.requests() == []


@pytest.mark.long
def test_a_node_with_http_boot_alone_is_refused_where_a_boot_server_is_a_proxy(tmp_path):
    bmc = QuirkyBmc(tmp_path / "quirky", targets=["Hdd", "UefiHttp"])
    try:
        status, output = bmc_role.restart(tmp_path, http_boot=False, address=bmc.address, ca=bmc.ca)
    finally:
        bmc.stop()
    assert status != 0
    assert "boot_server_dhcp" in message(output)
    assert bmc.changes == []
