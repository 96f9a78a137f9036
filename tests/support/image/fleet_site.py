# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A site with the nodes of fleet_machines.py, its boot servers, its BMC and its inventory, on which playbooks run."""

from __future__ import annotations

import json
import os
import shutil
import socket
import sys
import time
from pathlib import Path

import pytest
from build_host import make_keys
from fleet_machines import ENTER, boot, mac, make_node, start_bmc, system
from image_samples import Sample
from playing import ANSIBLE, ansible_playbook
from sockets import free_port

from ansible_collections.sailloft.fleet.plugins.module_utils.image.serving import issue
from ansible_collections.sailloft.fleet.plugins.module_utils.image.serving.node_scripts import ensure
from ansible_collections.sailloft.fleet.plugins.module_utils.image.store import channels, node_files, statement
from ansible_collections.sailloft.fleet.plugins.module_utils.image.store.sign import Signer
from ansible_collections.sailloft.fleet.plugins.module_utils.image.store.store import Store

ROOT = Path(__file__).parents[3]
KNOWS = (statement.FORMAT, node_files.FORMAT)
OLD = Sample("gpu-node", knows=KNOWS, base=b"base", gpu=b"driver 1")
NEW = Sample("gpu-node", knows=KNOWS, base=b"base", gpu=b"driver 2")
URLS = ["http://127.0.0.1"]

needs_root = pytest.mark.skipif(
    os.geteuid() != 0 or not shutil.which("unshare"), reason="a node is a mount namespace, which root alone may make"
)


class Fleet:
    """A boot server, its BMC, and nodes that all run the old image from the channel stable."""

    def __init__(self, folder, nodes):
        self.folder = folder
        self.nodes = nodes
        self.servers = {"boot01": {"ansible_connection": "local"}}
        self.store = Store(str(folder / "store"))
        make_keys(folder / "keys")
        (folder / "enter").write_text(ENTER)
        self.fate({})
        for sample in (OLD, NEW):
            sample.publish(self.store, folder / "cache")
        channels.promote(self.store, "stable", OLD.digest)
        self.rows = [{"name": node, "mac": mac(node), "channel": "stable", "servers": URLS} for node in nodes]
        ensure(self.store, self.rows, False)
        self.sign(OLD)
        for node in nodes:
            make_node(folder, node)
            boot(folder, node)
        (folder / "boots").unlink()
        self.port = free_port()
        self.bmc = start_bmc(folder, nodes, self.port)
        self._inventory()

    def sign(self, image):
        """Sign that the nodes, which follow the channel stable, boot this image."""
        terms = issue.Terms(90, int(time.time()))
        stable = [{"name": "stable", "digest": image.digest}]
        served = {"host": "boot01", "channels": stable, "images": [], "files": [], "statement": 0, "now_s": terms.now_s}
        signer = Signer(str(self.folder / "keys" / "image.key"), str(self.folder / "keys" / "image.pub"))
        issue.ensure(self.store, issue.StatementRequest(self.rows), [served], signer, terms, False)

    def _inventory(self):
        variables = {
            "ansible_python_interpreter": sys.executable,
            "boot_server_store_dir": self.store.path,
            "node_image_store_dir": self.store.path,
            "node_image_signing_key": str(self.folder / "keys" / "image.key"),
            "node_image_public_key": str(self.folder / "keys" / "image.pub"),
            "node_boot_server_urls": URLS,
            "proofs_path": str(self.folder / "proofs"),
            "node_boot_timeout_s": 6,
            "node_boot_restart_timeout_s": 3,
            "node_boot_health": {
                "command": ["grep", "-q", "no", str(self.folder / "{{ inventory_hostname }}" / "sick")]
            },
        }
        hosts = {
            node: {
                "ansible_connection": "fleet_node",
                "node_boot_mac": mac(node),
                "node_boot_bmc": {
                    "address": f"127.0.0.1:{self.port}",
                    "username": "root",
                    "password": "none",
                    "ca": str(self.folder / "bmc.pem"),
                    "system": system(node),
                },
            }
            for node in self.nodes
        }
        local = {"ansible_connection": "local"}
        children = {"nodes": {"hosts": hosts}, "boot_servers": {"hosts": self.servers}}
        whole = {"all": {"hosts": {"localhost": local}, "vars": variables, "children": children}}
        (self.folder / "hosts.yml").write_text(json.dumps(whole))

    def add_server(self, name, last=True):
        """Add a boot server whose separate store is a copy of boot01's; return its store."""
        store = self.folder / name / "store"
        shutil.copytree(self.store.path, store)
        (self.folder / name / "up").touch()
        new = {name: {"ansible_connection": "fleet_node"}}
        self.servers = {**self.servers, **new} if last else {**new, **self.servers}
        self._inventory()
        return Store(str(store))

    def wait(self):
        for _attempt in range(300):
            with socket.socket() as one:
                if one.connect_ex(("127.0.0.1", self.port)) == 0:
                    return self
            assert self.bmc.poll() is None, (self.folder / "bmc.log").read_text()
            time.sleep(0.1)
        raise AssertionError((self.folder / "bmc.log").read_text())

    def stop(self):
        self.bmc.terminate()
        self.bmc.wait(30)

    def fate(self, fates):
        """Set the fates of nodes that boot an image: {(node, Sample): "lost", ...}."""
        text = json.dumps({f"{node} {image.digest}": fate for (node, image), fate in fates.items()})
        (self.folder / "fates.json").write_text(text)

    def command(self, playbook, *arguments, **variables):
        given = [ANSIBLE, "-i", str(self.folder / "hosts.yml"), str(ROOT / "playbooks" / playbook), *arguments]
        return [*given, "-e", json.dumps(variables)]

    def environment(self):
        return {
            **os.environ,
            "FLEET": str(self.folder),
            "ANSIBLE_CONNECTION_PLUGINS": str(Path(__file__).with_name("fleet")),
            "ANSIBLE_NOCOLOR": "1",
        }

    def play(self, playbook, *arguments, **variables):
        """Run a playbook and return (exit status, output)."""
        return ansible_playbook(*self.command(playbook, *arguments, **variables)[1:], **self.environment())

    def roll_out(self, *arguments, **variables):
        given = {"node_boot_rollout_image": "gpu-node", "node_boot_rollout_waves": ["1", "2"], **variables}
        return self.play("rollout.yml", *arguments, **given)

    def boots(self):
        """Return the boots so far, in order: "bm01 new pin"."""
        path = self.folder / "boots"
        names = {OLD.digest[:12]: "old", NEW.digest[:12]: "new"}
        words = [line.split() for line in path.read_text().splitlines()] if path.exists() else []
        return [f"{node} {names[digest]} {by}" for node, digest, by in words]

    def runs(self):
        """Return what each node runs now: "old", "new" or "nothing"."""
        names = {OLD.digest: "old", NEW.digest: "new"}
        up = {node: (self.folder / node / "up").exists() for node in self.nodes}
        return {
            node: names[json.loads((self.folder / node / "boot.json").read_text())["image"]] if up[node] else "nothing"
            for node in self.nodes
        }

    def channel(self):
        return {OLD.digest: "old", NEW.digest: "new"}[channels.known(self.store, "stable").digest]

    def scripts(self):
        """Return the number of nodes' scripts that follow the channel."""
        return sum("channels/stable" in text for text in channels.node_scripts(self.store).values())
