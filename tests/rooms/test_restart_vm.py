# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A virtual machine of a crashed server starts on another one, only after the BMC says that the first is off.

Real: a libvirtd, QEMU and its disk locks on each of two servers, the playbooks, sushy-tools' Redfish emulator. Made up:
the servers are rooms of one machine, the shared storage is a directory of it, the virtual machine has no GPU and boots
nothing, and the power of the BMC is the life of the room. Needs root: make rooms.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from rooms import Rooms
from sockets import free_port

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="a room needs root")

SHARED = "/var/lib/libvirt/shared"
SETUP = """
ip link add br0 type bridge
ip link set br0 up
cat >$root/etc/libvirt/qemu.conf <<'END'
stdio_handler = "file"
security_driver = "none"
namespaces = []
cgroup_controllers = []
user = "root"
group = "root"
END
"""
DOMAIN = {
    "name": "train-01",
    "memory_mib": 64,
    "vcpus": 1,
    "huge_page_mib": 0,
    "lock_memory": False,
    "strict_memory": False,
    "pin_cpus": False,
    "accelerator": "qemu",
    "firmware": "bios",
    "disks": [{"path": f"{SHARED}/train-01.qcow2"}],
    "interfaces": [{"type": "bridge", "source": "br0"}],
    "autostart": False,
}
UUID = "5a11f017-0000-4000-8000-0000000000a1"
# The emulator of a BMC whose system is a room, unless there is a file "stuck": then its power never changes.
BMC = """
import os, signal, sys
from pathlib import Path
from sushy_tools.emulator import main
from sushy_tools.emulator.resources.systems.fakedriver import FakeDriver

folder = Path(os.environ["ROOMS"])

def set_power_state(self, identity, state):
    if "Off" in state and not (folder / "stuck").exists():
        os.kill(int((folder / "gpu1" / "pid").read_text()), signal.SIGKILL)
        self._update(identity, power_state="Off")

FakeDriver.set_power_state = set_power_state
main.main()
"""


class Servers(Rooms):
    """Two servers with libvirt, gpu1 with the virtual machine, and the BMC of gpu1."""

    def __init__(self, folder: Path) -> None:
        super().__init__(
            folder,
            {"gpu_hosts": ["gpu1", "gpu5"]},
            SHARED,
            SETUP,
            python=sys.executable,
            vm_shared_paths=[SHARED],
            gpu_vm_keep_host_off_pinned_cpus=False,
            gpu_vm_places=f"{folder}/vms",
        )
        openssl = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=bmc"
        openssl += f" -addext subjectAltName=IP:127.0.0.1 -keyout {folder}/bmc.key -out {folder}/bmc.pem"
        subprocess.run(openssl.split(), check=True, capture_output=True)
        self.port = free_port()
        bmc = {"address": f"127.0.0.1:{self.port}", "username": "root", "password": "none", "ca": f"{folder}/bmc.pem"}
        self.hosts = self.inventory["all"]["children"]["rooms"]["children"]["gpu_hosts"]["hosts"]
        self.hosts["gpu1"].update(gpu_vm_domains=[DOMAIN], node_boot_bmc={**bmc, "power_timeout_s": 10})

    def start(self) -> None:
        """Start all, and the virtual machine on gpu1."""
        super().start()
        systems = [{"uuid": UUID, "name": "gpu1", "power_state": "On", "external_notifier": False, "nics": []}]
        (self.folder / "bmc.py").write_text(
            f"SUSHY_EMULATOR_SSL_CERT = '{self.folder}/bmc.pem'\nSUSHY_EMULATOR_SSL_KEY = '{self.folder}/bmc.key'\n"
            f"SUSHY_EMULATOR_FAKE_SYSTEMS = {systems!r}\nSUSHY_EMULATOR_STATE_DIR = '{self.folder}'\n"
        )
        options = ["--fake", "--config", str(self.folder / "bmc.py"), "-i", "127.0.0.1", "-p", str(self.port)]
        with (self.folder / "bmc.log").open("w") as log:
            emulator = subprocess.Popen(
                ["setpriv", "--pdeathsig", "KILL", sys.executable, "-c", BMC, *options],
                stdout=log,
                stderr=log,
                env={**os.environ, "ROOMS": str(self.folder)},
            )
        self.holders.append(emulator)
        for name in self.names:
            self.run(name, "sh", "-c", "setsid /usr/sbin/libvirtd >/run/libvirtd.log 2>&1 </dev/null &")
            self.wait(f"libvirt of {name}", lambda name=name: "Id" in self.virsh(name, "list", check=False))
        disk = str(self.folder / "shared" / "train-01.qcow2")
        subprocess.run(["qemu-img", "create", "-q", "-f", "qcow2", disk, "8M"], check=True)
        role = {"hosts": "gpu1", "gather_facts": False, "roles": ["sailloft.fleet.gpu_vm"]}
        (self.folder / "role.json").write_text(json.dumps([role]))
        status, output = self.play(str(self.folder / "role.json"))
        assert status == 0, output

    def virsh(self, name: str, *words: str, check: bool = True) -> str:
        """Return what virsh prints on a server."""
        return self.run(name, "virsh", *words, check=check)

    def running(self, name: str) -> bool:
        """Return whether the virtual machine runs on a server."""
        return "train-01" in self.virsh(name, "list", "--name")

    def restart(self, *options: str) -> tuple[int, str]:
        """Run the playbook."""
        return self.play("restart_vm.yml", "-e", "vm=train-01", "-e", "to=gpu5", *options)


@pytest.fixture(scope="module")
def servers():
    folder = Path(tempfile.mkdtemp(prefix="sailloft-rooms-", dir="/tmp"))
    folder.chmod(0o755)
    made = Servers(folder)
    try:
        made.start()
        yield made
    finally:
        made.close()


def test_a_server_that_answers_keeps_its_virtual_machine(servers):
    assert servers.running("gpu1")
    status, output = servers.restart()
    assert status != 0
    assert re.search(r"gpu1 answers", output)
    assert servers.running("gpu1")
    assert not servers.running("gpu5")


def test_nothing_starts_until_the_bmc_says_off(servers):
    # Nothing listens on port 1: the server hangs, and its virtual machine still runs.
    servers.hosts["gpu1"].update(ansible_connection="ssh", ansible_host="127.0.0.1", ansible_port=1)
    (servers.folder / "stuck").touch()
    status, output = servers.restart()
    assert status != 0
    assert "did not power it off" in output
    assert servers.running("gpu1")
    assert "train-01" not in servers.virsh("gpu5", "list", "--all", "--name")
    (servers.folder / "stuck").unlink()


def test_it_starts_on_the_other_server_and_a_second_run_changes_nothing(servers):
    before = servers.virsh("gpu1", "dumpxml", "train-01")
    status, output = servers.restart("--check", "--diff")
    assert status == 0, output
    assert "<name>train-01</name>" in output
    assert servers.running("gpu1")
    assert "train-01" not in servers.virsh("gpu5", "list", "--all", "--name")
    status, output = servers.restart()
    assert status == 0, output
    assert not Path("/proc", (servers.folder / "gpu1/pid").read_text().strip()).exists()
    assert servers.running("gpu5")
    after = servers.virsh("gpu5", "dumpxml", "train-01")
    for found in (r"<uuid>.*</uuid>", r"<mac address=.*/>", r"<source file=.*/>"):
        assert re.search(found, after)[0].split(" index=")[0] == re.search(found, before)[0].split(" index=")[0]
    status, output = servers.restart()
    assert status == 0, output
    assert servers.changed(output)["gpu5"] == 0
    # The inventory still has it on gpu1, which is not reached for this.
    status, output = servers.play(str(servers.folder / "role.json"))
    assert status != 0
    assert "it runs on gpu5" in output
