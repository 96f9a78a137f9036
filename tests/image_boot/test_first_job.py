# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""examples/first_job on the image of inventories/small: three emulated nodes, one of which loses its power.

Real: the image as the inventory has it, the boot from the firmware on, two NVMe drives a node, slurmctld and slurmd of
Ubuntu, the page's environment for PyTorch. Emulated: the nodes, without GPUs and TPM, so that the key of munge comes by
SSH and the service for secrets is a stand-in; the shared directory is the emulator's (9p).
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
from boot_images import follow
from boot_network import SERVER, HttpServer, Network, Node, address_of
from build_host import ROOT, DocumentedSite
from first_job import FOLDER, FirstJob, assert_unbroken, begins, checkpoints, installed_packages
from patience import scaled_s
from ubuntu_controller import UbuntuController

from ansible_collections.sailloft.fleet.plugins.filter.checkpoint_interval import checkpoint_interval
from ansible_collections.sailloft.fleet.plugins.module_utils.image.store.sign import Signer
from ansible_collections.sailloft.fleet.plugins.module_utils.scheduler.plan import plan
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.read.recordings import read_recording

pytestmark = [
    pytest.mark.boot,
    pytest.mark.timeout(14400),
    pytest.mark.skipif(os.geteuid() != 0, reason="root alone may build images (make image-boot)"),
]
NAMES = ["gpu01", "gpu02", "gpu03"]
SPARES = ["gpu03"]
STEPS = 6
MEMORY_MIB, DRIVE_BYTES = 2048, 448 << 20
BOOT_S, JOB_S = 1200, 3600
# The emulator answers late. A node is down after SlurmdTimeout.
PATIENCE = {"MessageTimeout": "100", "TCPTimeout": "30", "SlurmdTimeout": "120"}
# The kernel may not find the emulator's timer, and its clock runs away if it trusts the time stamps of a processor that
# waits: munge refuses credentials of another time.
ARGUMENTS = ["no_timer_check", "tsc=unstable"]
STAND_IN = "[Service]\nExecStart=\nExecStart=/bin/true\n"


class SmallNode:
    """A booted node of the image; ``run`` runs a command on it over SSH."""

    def __init__(self, network: Network, name: str, number: int, key: str, shared: dict[str, Path]) -> None:
        self.network, self.name, self.address = network, name, address_of(number)
        options = []
        for drive in (1, 2):
            path = network.folder / f"{name}-drive{drive}"
            with path.open("wb") as file:
                file.truncate(DRIVE_BYTES)
            options += ["-drive", f"if=none,id=d{drive},format=raw,discard=unmap,file={path}"]
            options += ["-device", f"nvme,serial=S{drive},drive=d{drive}"]
        for tag, path in shared.items():
            options += ["-virtfs", f"local,path={path},mount_tag={tag},security_model=none,multidevs=remap"]
        self.node = Node(network, options, memory_mib=MEMORY_MIB, number=number)
        known_hosts = network.folder / f"{name}-known_hosts"
        self.ssh_options = [
            "-F",
            "none",
            "-i",
            os.fspath(key),
            "-o",
            f"UserKnownHostsFile={known_hosts}",
            "-o",
            "BatchMode=yes",
        ]
        self.ssh_options += ["-o", "StrictHostKeyChecking=accept-new", "-o", "ConnectTimeout=60"]

    def ssh(self, command: str, text: str = "") -> subprocess.CompletedProcess[str]:
        words = self.network.inside(["ssh", *self.ssh_options, f"root@{self.address}", command])
        return subprocess.run(words, input=text, capture_output=True, text=True, check=False)

    def run(self, command: str, text: str = "") -> str:
        """Return the output of a command that must succeed."""
        done = self.ssh(command, text)
        assert done.returncode == 0, f"{self.name}: {command}: {done.stdout}{done.stderr}"
        return done.stdout.strip()

    def wait(self) -> None:
        """Wait until the node has booted."""
        begun = time.monotonic()
        while (done := self.ssh("systemctl is-system-running --wait || true")).returncode:
            assert self.node.process.poll() is None, f"the machine ended\n{self.node.console}"
            waited_s = time.monotonic() - begun
            assert waited_s < scaled_s(BOOT_S), f"not reached: {done.stderr}\n{self.node.console[-6000:]}"
            time.sleep(5)

    def lose_power(self) -> None:
        """End the machine at once."""
        self.node.process.kill()
        self.node.process.wait()


def submitted(controller: UbuntuController, folder: Path, checkpoint_s: float) -> FirstJob:
    """Submit the job in the shared directory, which is ``folder`` on this machine."""
    submit = ["sbatch", "--parsable", "--chdir=/shared/first_job", "--mem=1000M"]
    submit += ["--export=PATH=/usr/sbin:/usr/bin:/sbin:/bin"]
    options = [f"--steps={STEPS}", "--batch=2", f"--checkpoint-s={checkpoint_s}"]
    shutil.copy(folder / "first_job.sbatch", controller.root)
    number = controller.run(*submit, "/first_job.sbatch", *options).strip()
    return FirstJob(controller, folder, number, JOB_S)


@pytest.fixture
def site(tmp_path: Path) -> DocumentedSite:
    """The inventory's image, built with a user's key."""
    site = DocumentedSite(tmp_path / "site")
    key = Path(f"{site.key}.pub").read_text().strip()
    site.build({"site_ssh_key": key}, os.fspath(ROOT / "inventories/small"), "boot1")
    return site


@pytest.fixture
def nodes(site: DocumentedSite, network: Network, tmp_path: Path) -> dict[str, SmallNode]:
    """Three nodes that have booted the image, with the shared directory."""
    server = HttpServer(network, Path(site.store.path), 8001)
    keys = Signer(str(site.keys / "image.key"), str(site.keys / "image.pub"))
    follow(site.store, keys, [server.url], NAMES, kernel_arguments=ARGUMENTS)
    network.dnsmasq([server.url], names=NAMES, boot_server_name_servers=[SERVER])
    shared = {"shared": tmp_path / "shared", "packages": installed_packages()}
    shutil.copytree(FOLDER, tmp_path / "shared/first_job")
    (tmp_path / "shared/first_job/packages").mkdir()
    booted = {name: SmallNode(network, name, number, site.key, shared) for number, name in enumerate(NAMES, 1)}
    for node in booted.values():
        node.wait()
        for tag, path in (("shared", "/shared"), ("packages", "/shared/first_job/packages")):
            node.run(f"mkdir -p {path} && mount -t 9p -o trans=virtio,version=9p2000.L,cache=mmap {tag} {path}")
    return booted


def recording(node: SmallNode, folder: Path) -> Path:
    """Record a node with the playbook; return the file."""
    host = {"ansible_host": node.address, "ansible_user": "root", "ansible_ssh_common_args": " ".join(node.ssh_options)}
    inventory = {"all": {"hosts": {node.name: {**host, "ansible_python_interpreter": "/usr/bin/python3"}}}}
    (folder / "recorded.json").write_text(json.dumps(inventory))
    command = [Path(sys.executable).with_name("ansible-playbook"), "-i", folder / "recorded.json"]
    command += ["-e", f"recordings_path={folder}", ROOT / "playbooks/record.yml"]
    done = subprocess.run(node.network.inside(command), cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder / f"{node.name}.json"


@pytest.fixture
def controller(nodes: dict[str, SmallNode], network: Network, tmp_path: Path) -> UbuntuController:
    """The planned cluster in service, with a spare."""
    recorded = read_recording(os.fspath(recording(nodes[NAMES[0]], tmp_path)))
    settings = {
        "controllers": ["boot1"],
        "version": "23.11",
        "partitions": [{"name": "gpu", "groups": ["nodes"], "default": True}],
        "options": PATIENCE,
    }
    planned = plan(settings, {"nodes": NAMES}, dict.fromkeys(NAMES, recorded), None, SPARES)
    controller = UbuntuController(network, "boot1", NAMES, planned.files)
    for node in nodes.values():
        # munge does not start without the node's secrets, which need a TPM.
        node.run("mkdir -p /run/systemd/system/sailloft-identity.service.d")
        node.run("cat >/run/systemd/system/sailloft-identity.service.d/test.conf", STAND_IN)
        node.run("install -o munge -g munge -m 400 /dev/stdin /etc/munge/munge.key", controller.key)
        node.run("systemctl daemon-reload && systemctl restart munge slurmd")
    controller.wait("nodes", lambda: not any(node.is_absent for node in controller.states().values()), 600)
    controller.release(SPARES, *NAMES)
    return controller


def test_the_job_goes_on_with_a_spare_from_its_checkpoint(
    nodes: dict[str, SmallNode], controller: UbuntuController, tmp_path: Path
):
    for node in nodes.values():
        assert node.run("findmnt -no FSTYPE /scratch") == "xfs"
        assert node.run("lsblk -dno TYPE $(findmnt -no SOURCE /scratch)") == "raid0"
    folder = tmp_path / "shared/first_job"
    undisturbed = submitted(controller, folder, 600).wait_for_end()
    assert next(line["backend"] for line in undisturbed if "begin" in line) == "gloo"
    # The nodes are assumed to fail each ten hours: a checkpoint is due each two steps or so, of two minutes.
    measured = next(line for line in undisturbed if "checkpoint" in line)
    advice = checkpoint_interval(2, measured["gb"], measured["gb"] / measured["write_s"], 1, 2 * 36000 / 86400)
    job = submitted(controller, folder, advice["interval_s"])
    job.wait_for_checkpoint()
    nodes["gpu02"].lose_power()
    controller.wait("gpu02 is down", lambda: "DOWN" in controller.states()["gpu02"].states, 600)
    assert controller.release(SPARES, *NAMES) == SPARES
    lines = job.wait_for_end()
    (_start, before), (resumed, after) = begins(lines)
    assert (before, after) == ("gpu[01-02]", "gpu[01,03]")
    assert resumed in checkpoints(lines)
    assert_unbroken(lines, undisturbed, STEPS)
