# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""accept_nodes.yml on a boot server, which is this machine with a /var/lib of its own: from reports to host_vars."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import netbox_api
import pytest
import sites
import yaml
from machine_reports import machine
from playing import ANSIBLE, ROOT

from ansible_collections.sailloft.fleet.plugins.module_utils.discovery import report
from ansible_collections.sailloft.fleet.plugins.module_utils.site.cabling.planned import planned

pytestmark = pytest.mark.fleet
MACS = [f"52:54:00:00:00:{number:02x}" for number in range(1, 4)]
PLAYBOOK = ROOT / "playbooks/accept_nodes.yml"


class DiscoveredSite:
    """The small site of blueprints, whose nodes have no machines yet, and a boot server with reports."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.inventory = folder, folder / "site"
        (self.inventory / "host_vars").mkdir(parents=True)
        (folder / "var/sailloft-pending").mkdir(parents=True)
        (folder / "var/sailloft-health-keeper").mkdir()
        (folder / "store/identity").mkdir(parents=True)
        (self.inventory / "blueprint.yml").write_text(sites.TEXT)
        (self.inventory / "hosts.yml").write_text(
            yaml.safe_dump(
                {
                    "boot_servers": {
                        "hosts": {"boot01": {"ansible_connection": "local"}},
                        "vars": {
                            "ansible_python_interpreter": sys.executable,
                            "boot_server_store_dir": f"{folder}/store",
                            "node_image_store_dir": f"{folder}/store",
                        },
                    },
                }
            )
        )

    def report(self, mac: str, node: str = "", **fields: object) -> None:
        """Let a machine report that is in a node's place."""
        links = planned(sites.site()).links
        ports = [tuple(link.far(end)) for link in links for end in (link.one, link.other) if end.device == node]
        content = report.dump(replace(machine(mac, *ports), **fields))
        (self.folder / "var/sailloft-pending" / mac.replace(":", "-")).write_bytes(content)

    def run(self, *arguments: str) -> tuple[int, str]:
        """Run the playbook; return its exit status and its output on one line."""
        command = shlex.join([str(ANSIBLE), "-i", str(self.inventory), str(PLAYBOOK), *arguments])
        script = f"mount --bind {self.folder}/var /var/lib || exit 99; exec {command}"
        done = subprocess.run(
            ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", script],
            cwd=ROOT,
            env={**os.environ, "ANSIBLE_NOCOLOR": "1", "ANSIBLE_LOCALHOST_WARNING": "0"},
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode == 99:
            pytest.skip("no mount namespaces here")
        return done.returncode, " ".join((done.stdout + done.stderr).split())

    def files(self) -> dict[str, str]:
        """Return all files of the inventory's host_vars."""
        folder = self.inventory / "host_vars"
        return {str(path.relative_to(folder)): path.read_text() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture
def site(tmp_path: Path) -> DiscoveredSite:
    return DiscoveredSite(tmp_path)


def accept(**nodes: str) -> tuple[str, str]:
    return "-e", yaml.safe_dump({"accept_nodes": nodes}, default_flow_style=True).strip()


def test_machines_are_shown_accepted_by_name_and_replaced(site):
    site.report(MACS[0], "gpu01")
    site.report(MACS[1])
    (site.folder / "var/sailloft-pending/52-54-00-00-00-99").write_bytes(b"\xff{{ x }}")
    status, output = site.run()
    assert status == 0, output
    assert "gpu01" in output
    assert all(mac in output for mac in (MACS[0], MACS[1], "52:54:00:00:00:99"))
    assert site.files() == {}

    wanted = accept(gpu01="", gpu02=MACS[1])
    status, output = site.run(*wanted, "--check", "--diff")
    assert status == 0, output
    assert f'+node_boot_mac: "{MACS[0]}"' in output
    assert site.files() == {}
    status, output = site.run(*wanted)
    assert status == 0, output
    files = site.files()
    assert {name: yaml.safe_load(text)["node_boot_mac"] for name, text in files.items()} == {
        "gpu01/accepted.yml": MACS[0],
        "gpu02/accepted.yml": MACS[1],
    }
    status, output = site.run(*wanted)
    assert status == 0, output
    assert "changed=1" not in output
    assert site.files() == files

    # Its board is replaced: another MAC address, TPM and BMC.
    site.report(MACS[2], "gpu01", serial="S-2", bmc_address="10.9.1.99")
    (site.folder / "var/sailloft-pending" / MACS[0].replace(":", "-")).unlink()
    (site.inventory / "enrolled").mkdir()
    (site.inventory / "group_vars").mkdir()
    (site.inventory / "group_vars/nodes.yml").write_text(
        """
node_identity_enrolled_dir: "{{ inventory_dir }}/enrolled"
node_identity_ek: "{{ lookup('file', node_identity_enrolled_dir ~ '/' ~ inventory_hostname, errors='ignore') or '' }}"
"""
    )
    olds = [site.inventory / "enrolled/gpu01", site.folder / "var/sailloft-health-keeper/gpu01"]
    olds += [site.folder / "store/identity" / name for name in ("gpu01", ".gpu01.signer")]
    others = [path.with_name(path.name.replace("gpu01", "gpu02")) for path in olds]
    for path in (*olds, *others):
        path.write_text("old")
    status, output = site.run(*accept(gpu01=""))
    assert status == 2, output
    assert "accept_nodes_replace" in output
    assert all(path.exists() for path in olds)
    status, output = site.run(*accept(gpu01=""), "-e", "accept_nodes_replace=true", "--check", "--diff")
    assert status == 0, output
    assert all(path.exists() for path in olds)
    status, output = site.run(*accept(gpu01=""), "-e", "accept_nodes_replace=true")
    assert status == 0, output
    assert [path for path in olds if path.exists()] == []
    assert [path for path in others if not path.exists()] == []
    found = yaml.safe_load(site.files()["gpu01/accepted.yml"])
    assert (found["node_boot_mac"], found["site_machine"]["serial"]) == (MACS[2], "S-2")
    assert site.files()["gpu02/accepted.yml"] == files["gpu02/accepted.yml"]


def test_with_netbox_the_machines_are_written_there_too(site, monkeypatch):
    monkeypatch.setenv("NETBOX_TOKEN", "token")
    site.report(MACS[0], "gpu01", serial="S-7")
    box = netbox_api.filled(sites.site())

    def shown():
        (device,) = (each for each in box.paths["dcim/devices"] if each["name"] == "gpu01")
        return device["serial"], [each["mac_address"] for each in box.paths["dcim/mac-addresses"]]

    with netbox_api.served(box) as url:
        wanted = (*accept(gpu01=""), "-e", f"netbox_url={url}")
        status, output = site.run(*wanted, "--check", "--diff")
        assert status == 0, output
        assert "devices gpu01 serial: S-7" in output
        assert (shown(), site.files()) == (("", []), {})
        status, output = site.run(*wanted)
        assert status == 0, output
        assert shown() == ("S-7", [MACS[0]])
        assert list(site.files()) == ["gpu01/accepted.yml"]
        site.report(MACS[0], "gpu01", serial="S-8")
        status, output = site.run(*wanted)
        assert status == 2, output
        assert all(fact in output for fact in ("S-7", "S-8", "accept_nodes_replace"))


@pytest.mark.long
def test_what_a_person_wrote_is_never_overwritten_or_hidden(site):
    site.report(MACS[0], "gpu01")
    wanted = (*accept(gpu01=""), "-e", "accept_nodes_replace=true")
    folder = site.inventory / "host_vars"
    for name, text, facts in (
        ("gpu01.yml", "ansible_user: me\n", ["host_vars/gpu01.yml", "move it into"]),
        ("gpu01", "ansible_user: me\n", ["host_vars/gpu01: ", "move it into"]),
        ("gpu01/accepted.yml", "ansible_user: me\n", ["gpu01/accepted.yml", "a person wrote"]),
        ("gpu01/mine.yml", f"node_boot_mac: '{MACS[1]}'\n", ["gpu01", "node_boot_mac", MACS[1], "a person wrote"]),
        ("gpu01/mine.yml", f"node_boot_mac: '{MACS[1]}'\nnode_identity_ek: AAAA\n", ["gpu01", "node_identity_ek"]),
    ):
        file = folder / name
        file.parent.mkdir(exist_ok=True)
        file.write_text(text)
        status, output = site.run(*wanted)
        assert status == 2, (name, text, output)
        assert [fact for fact in facts if fact not in output] == [], output
        assert site.files() == {name: text}
        file.unlink()
        if file.parent != folder:
            for path in file.parent.iterdir():
                path.unlink()
            file.parent.rmdir()
