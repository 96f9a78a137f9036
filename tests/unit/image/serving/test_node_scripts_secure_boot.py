# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The steps of docs/how-to/secure-boot.md: at each one, each node of a mixed fleet finds what its firmware starts."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
from boot_server_role import dnsmasq_configuration
from build_host import make_keys
from image_samples import SIGNATURE, Sample, refused, tree
from messages import Mentions

from ansible_collections.sailloft.fleet.plugins.module_utils.image.serving import boot_script, issue, node_scripts
from ansible_collections.sailloft.fleet.plugins.module_utils.image.store import channels, contents, statement
from ansible_collections.sailloft.fleet.plugins.module_utils.image.store.sign import Signer
from ansible_collections.sailloft.fleet.plugins.module_utils.image.store.store import Store

pytestmark = pytest.mark.skipif(not shutil.which("minisign"), reason="no minisign on this machine (bindep.txt)")
IMAGE = Sample("gpu-node", base=b"base")
SERVERS = ["http://10.9.0.1"]
MACS = {"bios": "52-54-00-00-00-01", "uefi": "52-54-00-00-00-02", "next": "52-54-00-00-00-03"}
PROGRAM = b"kernel, first stage and command line, signed"


class Site:
    """A boot server whose nodes follow one channel; ``signed`` are the names of those with node_boot_secure_boot."""

    def __init__(self, folder: Path) -> None:
        self.store, self.folder, self.signed = Store(str(folder / "store")), folder, []
        keys = make_keys(folder / "keys")
        self.signer = Signer(str(keys / "image.key"), str(keys / "image.pub"))
        self.now_s = 1_800_000_000

    def build(self, image: Sample, program: bytes = b"") -> None:
        """Publish the image, with a signed program where the site has keys for Secure Boot, and promote it."""
        script = boot_script.image_script(image.manifest, image.digest).encode()
        self.store.publish(image.bytes, SIGNATURE, script, image.files(self.folder / "blobs"), program)
        channels.promote(self.store, "stable", image.digest)

    def run(self) -> None:
        """Do what node_scripts.yml does: sign, and then write the scripts."""
        self.now_s += 60
        rows = [
            {"name": name, "mac": mac, "channel": "stable", "servers": SERVERS, "secure_boot": name in self.signed}
            for name, mac in MACS.items()
        ]
        listed = contents.inventory(self.store, {})
        served = {**listed, "host": "boot01", "files": [], "statement": 0, "now_s": self.now_s}
        issue.ensure(
            self.store, issue.StatementRequest(rows), [served], self.signer, issue.Terms(90, self.now_s), False
        )
        node_scripts.ensure(self.store, rows, False)

    def boots(self, name: str, secure_boot: bool) -> str:
        """Return the digest of the image that the node boots; "" if its firmware refuses what it finds."""
        mac = MACS[name]
        nodes = [
            {"name": each, "mac": MACS[each], "address": "10.9.0.11", "secure_boot": each in self.signed}
            for each in MACS
        ]
        offered = re.search(rf"^dhcp-boot=.*tag:{mac},(nodes/\S+?),,", dnsmasq_configuration(nodes), re.MULTILINE)
        program = self.store.contents(*offered[1].split("/")) if offered else None
        # Firmware that verifies what it starts refuses iPXE.
        if secure_boot and program != PROGRAM:
            return ""
        row = self.stated().nodes[mac.replace("-", ":")]
        if program is None:
            assert "channels/stable.ipxe" in channels.node_scripts(self.store)[mac]
            assert row.image == channels.known(self.store, "stable").digest
        else:
            assert Path(self.store.place(*offered[1].split("/"))).resolve().parent.name == row.image
        return row.image

    def stated(self) -> statement.Statement:
        return statement.load(self.store.contents("nodes", statement.STATEMENT), "statement")


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


def test_no_node_is_locked_out_at_any_step(site):
    old = Sample("gpu-node", base=b"older", knows=())
    site.build(old)
    site.run()
    assert [site.boots(name, secure_boot=False) for name in MACS] == [old.digest] * 3

    # 1. Publish: images have a signed program from now on, and nothing that nodes find changes for it.
    site.build(IMAGE, PROGRAM)
    site.run()
    scripts = channels.node_scripts(site.store)
    assert [site.boots(name, secure_boot=False) for name in MACS] == [IMAGE.digest] * 3

    # 2. Switch, one node first: it boots the signed program, with Secure Boot off still, and the others as before.
    site.signed = ["uefi"]
    site.run()
    assert [site.boots(name, secure_boot=False) for name in MACS] == [IMAGE.digest] * 3
    assert channels.node_scripts(site.store) == scripts

    # 3. Enrol and turn it on. A node that is turned on before it was switched is the one that the order protects.
    assert site.boots("uefi", secure_boot=True) == IMAGE.digest
    assert site.boots("next", secure_boot=True) == ""
    site.signed = ["uefi", "next"]
    site.run()
    assert site.boots("next", secure_boot=True) == IMAGE.digest

    # To go back: off in the firmware, and the playbooks.
    site.signed = ["next"]
    site.run()
    assert [site.boots(name, secure_boot=name == "next") for name in MACS] == [IMAGE.digest] * 3
    assert site.store.contents("nodes", f"{MACS['uefi']}.efi") is None


def test_a_node_whose_image_has_no_signed_program_is_refused_before_anything_changes(site):
    site.build(IMAGE)
    site.run()
    before = tree(site.store.place("nodes"))
    site.signed = ["uefi"]
    assert refused(site.run) == Mentions("uefi", IMAGE.digest, "node_image_secure_boot")
    assert tree(site.store.place("nodes")) == before
    # It boots as before, by iPXE.
    site.signed = []
    assert site.boots("uefi", secure_boot=False) == IMAGE.digest


def test_a_later_image_replaces_what_all_nodes_boot_at_once(site):
    """Also those of nodes with Secure Boot, whose statement and program are of one image."""
    site.signed = ["uefi"]
    for content in (b"base", b"changed"):
        image = Sample("gpu-node", base=content)
        site.build(image, PROGRAM)
        site.run()
        assert site.boots("bios", secure_boot=False) == site.boots("uefi", secure_boot=True) == image.digest
