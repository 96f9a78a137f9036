# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""BIOS settings on the emulator of sushy-tools, before libvirt's driver test, which it keeps them in.

The emulator applies settings at once, shows no model, and lists its registry under another name than its BIOS does. Its
firmware inventory is empty.
"""

from __future__ import annotations

import subprocess
import sys
import time

import pytest
from quirky_bmc import certificate
from sockets import free_port

from ansible_collections.sailloft.fleet.plugins.module_utils.firmware.baseline import read
from ansible_collections.sailloft.fleet.plugins.module_utils.firmware.nodes import (
    BaselineLimits,
    BaselineNode,
    FirmwareOfNodes,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.image.node.bmc import BootBmc

pytestmark = pytest.mark.fleet
# libvirt forgets the machines of its driver test with the last connection.
EMULATOR = """
import libvirt
kept = libvirt.open("test:///default")
from sushy_tools.emulator import main
main.main()
"""


@pytest.fixture(scope="module")
def account(tmp_path_factory):
    folder = tmp_path_factory.mktemp("emulator")
    ca, key = certificate(folder)
    settings = {
        "SUSHY_EMULATOR_SSL_CERT": ca,
        "SUSHY_EMULATOR_SSL_KEY": key,
        "SUSHY_EMULATOR_STATE_DIR": str(folder),
        "SUSHY_EMULATOR_LIBVIRT_URI": "test:///default",
    }
    (folder / "config.py").write_text("".join(f"{name} = {value!r}\n" for name, value in settings.items()))
    port = free_port()
    arguments = ["--config", str(folder / "config.py"), "-i", "127.0.0.1", "-p", str(port)]
    log = folder / "log"
    with log.open("w") as stream:
        process = subprocess.Popen([sys.executable, "-c", EMULATOR, *arguments], stdout=stream, stderr=stream)
    account = BootBmc(f"127.0.0.1:{port}", "root", "none", ca=ca, timeout_s=10)
    try:
        for _attempt in range(300):
            if not fleet(account, {}).read()["gpu01"].error:
                break
            assert process.poll() is None, log.read_text()
            time.sleep(0.2)
        yield account
    finally:
        process.terminate()
        process.wait(30)


def fleet(account, baseline):
    baselines = read({"unknown": baseline}, "gpu01")
    return FirmwareOfNodes([BaselineNode("gpu01", account, baselines)], "localhost", BaselineLimits(10, 1))


def test_a_setting_is_changed_and_read_back(account):
    for value in ("Disabled", "Enabled"):
        nodes = fleet(account, {"bios": {"ProcTurboMode": value}})
        before = nodes.read()
        after = nodes.set(before, ["bios"])
        assert (before["gpu01"].error, after["gpu01"].holds) == ("", True)
    assert before["gpu01"].differing


@pytest.mark.parametrize(
    "bios", [{"ProcTurboMode": "Off"}, {"NumCores": 12}, {"SysPassword": "x"}, {"EmbeddedSata": False}]
)
def test_what_the_registry_does_not_allow_is_refused(account, bios):
    nodes = fleet(account, {"bios": bios})
    before = nodes.read()
    assert nodes.set(before, ["bios"])["gpu01"].error
    assert nodes.read() == before


def test_an_empty_inventory_of_firmware_is_no_version(account):
    node = fleet(account, {"firmware": {"BIOS": {"version": "1.0.0"}}}).read()["gpu01"]
    assert not node.holds
