# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""netbox.yml writes a site; the inventory, ports and cables that are read from NetBox are those of the blueprint.

NetBox is simulated (tests/support/site/netbox_api.py).
"""

from __future__ import annotations

import copy
import json
import os
import subprocess
import sys
from pathlib import Path

import netbox_api
import pytest
import sites
from playing import ROOT, ansible_playbook

from ansible_collections.sailloft.fleet.plugins.module_utils.site.output.inventory import inventory

pytestmark = pytest.mark.fleet  # Ansible reads inventories over HTTP

# The configuration in docs/how-to/netbox.md.
INVENTORY = """
plugin: netbox.netbox.nb_inventory
api_endpoint: URL
token: token
group_by: [device_roles]
group_names_raw: true
compose:
  site_rack: rack.name
groups:
  nodes: role.slug == 'node'
  roce_hosts: role.slug == 'node'
  roce_switches: role.slug in ['leaf', 'spine']
keyed_groups: [{key: site_rack, separator: ""}]
"""


@pytest.fixture
def site():
    return sites.site()


@pytest.fixture
def netbox(site, tmp_path):
    """Serve the site, whose inventory is in tmp_path/site; yield NetBox and its URL."""
    box = netbox_api.filled(site, most=7)
    with netbox_api.served(box) as url:
        folder = tmp_path / "site"
        (folder / "group_vars").mkdir(parents=True)
        (folder / "netbox.yml").write_text(INVENTORY.replace("URL", url))
        system = "roce_switch_system: sonic\nroce_switch_asic: spectrum3\n"
        (folder / "group_vars/roce_switches.yml").write_text(system)
        yield box, url


def listed(folder):
    done = subprocess.run(
        [Path(sys.executable).with_name("ansible-inventory"), "-i", folder, "--list"],
        cwd=ROOT,
        env={**os.environ, "no_proxy": "127.0.0.1"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.replace('"__ansible_unsafe"', '"unsafe"'))


def play(folder, url, playbook, *arguments, **environment):
    given = ("-e", f"netbox_url={url}", "-e", "netbox_token=token", *arguments)
    return ansible_playbook("-i", folder, f"playbooks/{playbook}", *given, no_proxy="127.0.0.1", **environment)


def test_a_site_is_written_to_netbox_once(site, tmp_path):
    file = tmp_path / "blueprint.yml"
    file.write_text(sites.TEXT)
    box = netbox_api.NetBox()
    with netbox_api.served(box) as url:
        # The first run writes, and the second one has nothing to write.
        for changed in (1, 0):
            status, output = play(file, url, "netbox.yml")
            assert (status, f"changed={changed}" in output) == (0, True), output
        assert {each["name"] for each in box.paths["dcim/devices"]} == set(site.devices)
        before = copy.deepcopy(box.paths)
        file.write_text(sites.TEXT.replace("unit: 40", "unit: 36"))
        status, output = play(file, url, "netbox.yml", "--check", "--diff")
        assert (status, "changed=1" in output) == (0, True), output
        assert {"-devices leaf1-1 position: 40", "+devices leaf1-1 position: 36"} <= set(output.split("\n"))
        assert box.paths == before


@pytest.mark.long
def test_check_mode_predicts_that_an_empty_netbox_gets_a_site_and_a_wrong_token_is_named(tmp_path):
    file = tmp_path / "blueprint.yml"
    file.write_text(sites.TEXT)
    box = netbox_api.NetBox()
    with netbox_api.served(box) as url:
        status, output = play(file, url, "netbox.yml", "--check")
        assert (status, "changed=1" in output) == (0, True), output
        assert not any(box.paths.values())
        status, output = play(file, url, "netbox.yml", "-e", "netbox_token=other")
        assert status == 2
        assert "Invalid token; check the token and the permissions of its user" in output


@pytest.mark.long
def test_nb_inventory_has_the_hosts_groups_racks_and_addresses_of_the_blueprint(netbox, site, tmp_path):
    found = listed(tmp_path / "site")
    physical = [device for device in site.devices.values() if device.kind.model]
    names = {group: set(each.get("hosts", [])) for group, each in found.items()}
    for kind in {device.kind.name for device in physical}:
        assert names[kind] == {device.name for device in physical if device.kind.name == kind}
    assert names["nodes"] == names["node"]
    assert names["roce_switches"] == names["leaf"] | names["spine"]
    assert names["rack_1"] == {device.name for device in physical if device.rack.name == "rack-1"}
    own = found["_meta"]["hostvars"]
    assert {name: each["site_rack"]["unsafe"] for name, each in own.items()} == {
        device.name: device.rack.name for device in physical
    }
    assert {name: each["ansible_host"]["unsafe"] for name, each in own.items()} == {
        name: each["vars"]["ansible_host"] for name, each in inventory(site)["hosts"].items()
    }


def test_the_playbooks_have_the_ports_of_the_blueprint(netbox, site, tmp_path):
    folder, (box, url) = tmp_path / "site", netbox
    status, output = play(folder, url, "netbox_links.yml")
    assert status == 0, output
    found = listed(folder)["_meta"]["hostvars"]
    wanted = inventory(site)["hosts"]
    assert wanted["leaf1-1"]["vars"]["roce_switch_ports"]
    assert wanted["gpu01"]["vars"]["roce_host_nics"]
    for name in ("roce_switch_ports", "roce_host_nics"):
        assert {host: each.get(name) for host, each in found.items()} == {
            host: each["vars"].get(name) for host, each in wanted.items()
        }
    # Another length is a change.
    box.paths["dcim/cables"][0]["length"] = 9.5
    status, output = play(folder, url, "netbox_links.yml", "--check", "--diff")
    assert (status, "changed=1" in output) == (0, True), output
    assert '"cable_m": 10' in output


@pytest.mark.long  # it depends only on the ports, which the previous test checks
def test_switches_get_the_same_configuration_from_netbox_as_from_the_blueprint(netbox, tmp_path):
    folder, (_box, url) = tmp_path / "site", netbox
    other = tmp_path / "blueprint"
    (other / "group_vars").mkdir(parents=True)
    (other / "blueprint.yml").write_text(sites.TEXT)
    (other / "group_vars/roce_switches.yml").write_text((folder / "group_vars/roce_switches.yml").read_text())
    # The second run changes nothing.
    for changes in (1, 0):
        status, output = play(folder, url, "netbox_links.yml")
        assert (status, f"changed={changes}" in output) == (0, True), output
    made = {}
    for each in (folder, other):
        written = tmp_path / f"{each.name}-plans"
        status, output = ansible_playbook("-i", each, "playbooks/fabric_config.yml", "-e", f"fabric_path={written}")
        assert status == 0, output
        made[each.name] = {file.name: file.read_text() for file in written.rglob("*") if file.is_file()}
    assert made["site"] == made["blueprint"]
    assert len(made["site"]) >= 6


@pytest.mark.long
def test_cables_are_compared_with_netbox(netbox, tmp_path):
    folder, (_box, url) = tmp_path / "site", netbox
    tool = tmp_path / "lldpcli"
    seen = {"ens1f0np0": ("leaf1-1", "Ethernet0"), "ens1f1np0": ("leaf1-2", "Ethernet0")}
    seen |= {"ens2f0np0": ("leaf1-2", "Ethernet4"), "ens2f1np0": ("leaf1-1", "Ethernet4")}
    rows = [
        {"name": name, "chassis": [{"name": [{"value": far}]}], "port": [{"id": [{"type": "ifname", "value": port}]}]}
        for name, (far, port) in seen.items()
    ]
    tool.write_text(f"#!/bin/sh\necho '{json.dumps({'lldp': [{'interface': rows}]})}'\n")
    tool.chmod(0o755)
    local = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable, "cabling_hosts": "gpu01"}
    path = f"{tmp_path}:{os.environ['PATH']}"
    status, output = play(folder, url, "cabling.yml", "-e", json.dumps(local), COLUMNS="1000", PATH=path)
    assert status == 2, output
    assert "2 cables are correct, 2 wrong, 28 not read" in output
    assert "swap the ends of the cables gpu01 ens2f0np0 - leaf1-1 Ethernet4 and gpu01 ens2f1np0" in output


@pytest.mark.long
def test_a_token_without_read_permission_is_reported(netbox, tmp_path):
    status, output = play(tmp_path / "site", netbox[1], "netbox_links.yml", "-e", "netbox_token=other")
    assert status == 2
    assert "HTTP Error 403" in output
    assert "check the token and the permissions of its user" in output
