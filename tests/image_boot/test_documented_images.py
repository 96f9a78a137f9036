# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The images of the documentation and of inventories/blue_vela, as they stand there: built, booted, reached by SSH."""

from __future__ import annotations

import json
import os
import re
import subprocess
import time
from pathlib import Path

import pytest
from boot_images import follow
from boot_network import MAC, NODE, NODE_ADDRESS, RAIL_MAC, HttpServer, Network, Node, stop
from build_host import ROOT, DocumentedSite, images_of_page
from oci_images import OciLayout, debian_tree, tar
from patience import scaled_s

from ansible_collections.sailloft.fleet.plugins.module_utils.image.node.boot_claims import NodePlan
from ansible_collections.sailloft.fleet.plugins.module_utils.image.node.claims import ExpectedImage, SeenNode, prove
from ansible_collections.sailloft.fleet.plugins.module_utils.image.store.sign import Signer

pytestmark = [
    pytest.mark.boot,
    pytest.mark.skipif(os.geteuid() != 0, reason="root alone may build images (make image-boot)"),
]
BOOT_S = 600
RAIL_ADDRESS = "10.9.1.11"
# The kernel may not find the emulator's timer.
ARGUMENTS = ["no_timer_check"]
# It waits for at most 2 minutes, in which a busy emulator does not find its NICs.
WAIT_ONLINE = ("systemd-networkd-wait-online.service",)


class Booted:
    """A node that was booted from its firmware on, with a second NIC; ``run`` runs a command on it over SSH."""

    def __init__(self, site: DocumentedSite, network: Network, memory_mib: int) -> None:
        self.site, self.network = site, network
        self.server = HttpServer(network, Path(site.store.path), 8001)
        nics = [{"mac": RAIL_MAC, "address": f"{RAIL_ADDRESS}/24"}]
        keys = Signer(str(site.keys / "image.key"), str(site.keys / "image.pub"))
        follow(site.store, keys, [self.server.url], kernel_arguments=ARGUMENTS, nics=nics)
        network.dnsmasq([self.server.url])
        self.node = Node(network, [], memory_mib=memory_mib, rail=True)
        self.known_hosts = network.folder / "known_hosts"

    def know(self, key: str) -> None:
        """Trust this host key of the node, and wait for its sshd."""
        self.known_hosts.write_text("".join(f"{address} {key}\n" for address in (NODE_ADDRESS, RAIL_ADDRESS)))
        deadline = time.monotonic() + scaled_s(BOOT_S)
        while (done := self.ssh("true")).returncode:
            assert self.node.process.poll() is None, f"the machine ended\n{self.node.console}"
            assert time.monotonic() < deadline, f"not reached: {done.stderr}\n{self.node.console[-6000:]}"
            time.sleep(2)

    def reported_key(self) -> str:
        """Return the host key that the node reported to the boot server, with the command of its page."""
        self.node.wait_for("starting gpu-node", BOOT_S)
        page = (ROOT / "docs/how-to/boot-nodes.md").read_text(encoding="utf-8")
        (command,) = re.findall(r"^ {4}(sed -n .* /var/log/nginx/sailloft-report\.log)$", page, re.MULTILINE)
        log = os.fspath(self.server.folder / "sailloft-report.log")
        lines = subprocess.check_output(
            ["sh", "-c", command.replace("/var/log/nginx/sailloft-report.log", log)], text=True
        )
        address, key = lines.splitlines()[-1].split(" ", 1)
        assert address == NODE_ADDRESS
        return key

    def ssh(self, command: str, address: str = NODE_ADDRESS) -> subprocess.CompletedProcess[str]:
        options = ["BatchMode=yes", "ConnectTimeout=30", "StrictHostKeyChecking=yes"]
        options += [f"UserKnownHostsFile={self.known_hosts}"]
        words = ["ssh", "-F", "none", "-i", self.site.key, *(word for option in options for word in ("-o", option))]
        return subprocess.run(
            self.network.inside([*words, f"root@{address}", command]),
            capture_output=True,
            text=True,
            check=False,
        )

    def run(self, command: str, address: str = NODE_ADDRESS) -> str:
        """Return the output of a command that must succeed."""
        done = self.ssh(command, address)
        assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
        return done.stdout.strip()

    def proof_failures(self, may_fail: tuple[str, ...] = ()) -> list[str]:
        """Return the claims of the node's proof that do not hold, with the state that Ansible reads over SSH."""
        self.run("systemctl is-system-running --wait || true")
        options = f"-F none -i {self.site.key} -o StrictHostKeyChecking=yes -o UserKnownHostsFile={self.known_hosts}"
        command = ["ansible", "-i", f"{NODE_ADDRESS},", "all", "-u", "root", "-m", "sailloft.fleet.node_image_info"]
        command += ["-e", json.dumps({"ansible_ssh_common_args": options, "ansible_python_interpreter": "python3"})]
        done = subprocess.run(
            self.network.inside(command),
            cwd=ROOT,
            env={**os.environ, "ANSIBLE_LOAD_CALLBACK_PLUGINS": "1", "ANSIBLE_STDOUT_CALLBACK": "ansible.posix.json"},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        result, _end = json.JSONDecoder().raw_decode(done.stdout, done.stdout.index("{"))
        state = result["plays"][0]["tasks"][0]["hosts"][NODE_ADDRESS]
        digest = self.site.store.current("gpu-node")
        manifest = Path(self.site.store.place("images", digest, "manifest.json")).read_text()
        nics = (f"{MAC} dhcp", f"{RAIL_MAC} {RAIL_ADDRESS}/24")
        plan = NodePlan(MAC, (self.server.url,), f"{self.server.url}/report", nics, 1, booted=True)
        expected = ExpectedImage.of_text(digest, manifest, plan, "stable", ARGUMENTS, list(may_fail))
        return [
            f"{claim.claim}: {claim.seen}"
            for claim in prove(NODE, expected, SeenNode(state)).claims
            if claim.holds is False
        ]


def require_network(booted: Booted) -> None:
    """Check the names and addresses that the first stage gave the booted system."""
    assert booted.run("hostname") == NODE
    addresses = re.findall(r"[0-9.]+/24", booted.run("ip -4 address show scope global"))
    assert sorted(addresses) == [f"{NODE_ADDRESS}/24", f"{RAIL_ADDRESS}/24"]
    assert booted.run("hostname", RAIL_ADDRESS) == NODE


@pytest.fixture
def site(tmp_path: Path) -> DocumentedSite:
    return DocumentedSite(tmp_path / "site")


def test_the_image_of_the_page_is_reached_proven_and_runs_a_container(site: DocumentedSite, network: Network):
    site.build(images_of_page("how-to/node-images.md"))
    booted = Booted(site, network, 3072)
    booted.know(booted.reported_key())
    require_network(booted)
    assert booted.proof_failures(WAIT_ONLINE) == []
    # An overlay on the overlay root is refused; podman's directory takes one.
    overlay = "mkdir -p {0}/u {0}/w {0}/m && mount -t overlay -o lowerdir=/usr,upperdir={0}/u,workdir={0}/w o {0}/m"
    assert booted.ssh(overlay.format("/srv")).returncode != 0
    booted.run(overlay.format("/var/lib/containers/test"))
    libraries = "lib lib64 usr/lib64 usr/lib/x86_64-linux-gnu/libc.so.6 usr/lib/x86_64-linux-gnu/ld-linux-x86-64.so.2"
    booted.run(f"tar -C / -c usr/bin/true {libraries} | podman import - test:1")
    booted.run("podman run --rm --network none test:1 /usr/bin/true")
    assert "overlay" in booted.run("podman info --format '{{.Store.GraphDriverName}}'")
    # A node that panics restarts. QEMU ends at the reboot.
    booted.ssh("(sleep 1; echo c >/proc/sysrq-trigger) >/dev/null 2>&1 &")
    booted.node.process.wait(scaled_s(120))
    assert "Kernel panic" in booted.node.console
    stop(booted.server.process)


def test_an_image_on_a_container_image_is_reached_and_proven(site: DocumentedSite, network: Network, tmp_path: Path):
    # As Debian's on Docker Hub: without kernel and init, with settings that are a container's.
    layout = OciLayout(tmp_path / "layout")
    settings = tar(
        ("usr/sbin/policy-rc.d", "#!/bin/sh\nexit 101\n"), ("etc/hostname", "container\n"), (".dockerenv", "")
    )
    image = layout.image(debian_tree(tmp_path / "tree.tar", ["apt"]), settings)
    layers = images_of_page("how-to/container-images.md")["node_image_layers"]
    layers["base"]["oci"] = {"archive": layout.archive(tmp_path / "image.tar"), "digest": image["digest"]}
    users = images_of_page("how-to/node-images.md")["node_image_layers"]["site"]["users"]
    layers["site"] = {"parent": "base", "users": users}
    site.build({"node_image_layers": layers, "node_image_images": {"gpu-node": {"layer": "site"}}})
    booted = Booted(site, network, 3072)
    booted.know(booted.reported_key())
    require_network(booted)
    assert booted.proof_failures(WAIT_ONLINE) == []


def test_networkmanager_takes_the_settings_of_the_first_stage(site: DocumentedSite, network: Network):
    variables = images_of_page("how-to/node-images.md")
    variables["node_image_layers"]["managed"] = {"parent": "site", "packages": ["network-manager"]}
    site.build({**variables, "node_image_images": {"gpu-node": {"layer": "managed"}}})
    booted = Booted(site, network, 3072)
    booted.know(booted.reported_key())
    require_network(booted)
    connections = booted.run("nmcli -t -f NAME,DEVICE,STATE connection show --active").splitlines()
    assert sum(":activated" in line and line.startswith("sailloft-") for line in connections) == 2, connections
    assert booted.ssh("systemctl is-active systemd-networkd").stdout.strip() == "inactive"


def require_driver(booted: Booted) -> None:
    """Check that NVIDIA's driver loads, for want of a GPU up to its own message."""
    booted.ssh("modprobe nvidia")
    assert "NVRM: No NVIDIA GPU found" in booted.run("dmesg")
    version = booted.run("modinfo -F version nvidia")
    assert booted.run("dpkg-query -Wf '${Version}' 'nvidia-fabricmanager-*'").startswith(f"{version}-")
    assert booted.run("systemctl is-enabled nvidia-fabricmanager") == "enabled"


def test_the_gpu_image_of_the_page_boots_to_the_driver(site: DocumentedSite, network: Network):
    site.build(images_of_page("how-to/gpu-nodes.md"))
    booted = Booted(site, network, 3072)
    booted.know(booted.reported_key())
    require_network(booted)
    require_driver(booted)


def test_the_image_of_blue_vela_is_reached_with_the_temporary_key(site: DocumentedSite, network: Network):
    """Without a TPM, the node has no secrets, and its identity shows the key that it makes for this boot."""
    inventory = os.fspath(ROOT / "inventories" / "blue_vela")
    site.build({"site_ssh_key": Path(f"{site.key}.pub").read_text().strip()}, inventory, "build-1")
    booted = Booted(site, network, 3072)
    console = booted.node.wait_for("a temporary SSH host key is made", BOOT_S)
    fingerprint = re.search(r"SHA256:[A-Za-z0-9+/]+", console)[0]
    assert "SSH host key:" not in console
    keys = subprocess.check_output(
        network.inside(["ssh-keyscan", "-T", "60", "-t", "ed25519", NODE_ADDRESS]), text=True
    )
    key = keys.splitlines()[-1].partition(" ")[2]
    shown = subprocess.check_output(["ssh-keygen", "-l", "-f", "-"], input=f"{NODE_ADDRESS} {key}\n", text=True)
    assert fingerprint in shown
    booted.know(key)
    require_network(booted)
    require_driver(booted)
