# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""release.yml on an emulated node, by SSH: its NVMe drives, of QEMU, are in use, kept, and erased.

QEMU's controller offers Format NVM and no sanitize. Needs root: make storage.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import storage_machine as machine
from playing import ROOT, ansible_playbook

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="mmdebstrap makes the root as root")
TENANT, BLOCKS = b"data of the tenant before".ljust(4096, b"."), 2048
DISKS = "lsblk --nodeps --noheadings --raw --output PATH,SERIAL"
NAMED = [{"pci": machine.SECOND_NODE[0]}, {"serial": "S2"}]


class Released:
    """The node that is released, and the inventory that has it."""

    def __init__(self, node: machine.Node, folder: Path) -> None:
        self.node, self.folder = node, folder
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", folder / "key"], check=True)
        for number in range(1, machine.DRIVES):
            with (node.folder / f"drive{number}").open("r+b") as drive:
                for offset in (0, machine.DRIVE_BYTES // 2):
                    drive.seek(offset)
                    drive.write(TENANT * BLOCKS)

    def answers(self, port: int) -> None:
        """Write the inventory of the node at this port."""
        self.port = port
        known = "-o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -o LogLevel=ERROR -F none"
        variables = {
            "ansible_host": "127.0.0.1",
            "ansible_port": port,
            "ansible_user": "root",
            "ansible_ssh_private_key_file": str(self.folder / "key"),
            "ansible_ssh_common_args": known,
            "ansible_pipelining": True,
            "node_boot_drain": {"command": ["touch", str(self.folder / "drained")]},
        }
        whole = {"all": {"children": {"nodes": {"hosts": {"node07": variables}}}}}
        (self.folder / "hosts.json").write_text(json.dumps(whole))

    def play(self, *options: str, **wipe: object) -> tuple[int, str]:
        """Run the playbook with these settings of node_boot_wipe; return its status, and its output in one line."""
        given = json.dumps({"node_boot_wipe": {"policy": "on_release", "disks": NAMED, **wipe}})
        playbook = str(ROOT / "playbooks/release.yml")
        inventory = str(self.folder / "hosts.json")
        status, output = ansible_playbook("-i", inventory, playbook, "-l", "node07", "-e", given, *options)
        return status, " ".join(output.split())

    def run(self, command: str) -> str:
        """Return the output of a command on the node, which must succeed."""
        options = ["StrictHostKeyChecking=no", "UserKnownHostsFile=/dev/null", "LogLevel=ERROR", "BatchMode=yes"]
        words = ["ssh", "-F", "none", "-i", self.folder / "key", "-p", str(self.port)]
        words += [word for option in options for word in ("-o", option)]
        return subprocess.check_output([*words, "root@127.0.0.1", command], text=True)

    def left(self, number: int) -> int:
        """Return how many blocks of a drive, read from its file on this host, have the tenant's data."""
        return (self.node.folder / f"drive{number}").read_bytes().count(TENANT)


@pytest.fixture(scope="module")
def released(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Released]:
    folder = tmp_path_factory.mktemp("released")
    found = Released(machine.Node(tmp_path_factory.mktemp("node")), folder)
    with found.node.answering((folder / "key.pub").read_text()) as port:
        found.answers(port)
        yield found


def test_nothing_is_erased_while_one_of_the_disks_is_in_use_or_kept(released: Released):
    released.run("mkdir -p /mnt && modprobe ext4 && mount /dev/disk/by-label/somebodys /mnt")
    array = "mdadm --create /dev/md0 --run --assume-clean --metadata=1.0 --level=0 --raid-devices=2"
    paths = {serial: path for path, serial in (row.split() for row in released.run(DISKS).splitlines())}
    members = f"{paths['S2']} {paths['S3']}"
    released.run(f"{array} {members}")
    status, output = released.play(disks=[*NAMED, {"serial": "S0"}])
    assert status == 2, output
    assert "is mounted on /mnt" in output
    assert "it is part of /dev/md0 (raid0)" in output
    # The node is out of service all the same.
    assert (released.folder / "drained").exists()
    released.run("umount /mnt && mdadm --quiet --stop /dev/md0")
    status, output = released.play(disks=[*NAMED, {"serial": "S0"}], keep_labels=["somebodys"])
    assert status == 2, output
    assert "has the label somebodys, which is kept" in output
    status, output = released.play(method="sanitize")
    assert status == 2, output
    assert "does not offer sanitize" in output
    assert [released.left(number) for number in (1, 2, 3)] == [2 * BLOCKS] * 3


def test_the_named_disks_alone_are_formatted_and_read_back(released: Released):
    status, output = released.play("--check", "--diff")
    assert status == 0, output
    assert "S1 erased (format)" in output
    assert "S2 erased (format)" in output
    assert [released.left(number) for number in (1, 2, 3)] == [2 * BLOCKS] * 3
    status, output = released.play("--diff")
    assert status == 0, output
    assert "S1 erased (format)" in output
    # No mark is left either; the drives that nobody named have their data.
    for number in (1, 2):
        data = (released.node.folder / f"drive{number}").read_bytes()
        assert data.count(0) == len(data)
    assert released.left(3) == 2 * BLOCKS
    assert released.run(f"{DISKS},LABEL | grep somebodys").split()[1:] == ["S0", "somebodys"]
