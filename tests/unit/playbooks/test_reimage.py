# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""playbooks/reimage.yml and node_scripts.yml on a fleet in which all but the boot is real (fleet_machines.py)."""

from __future__ import annotations

import json

import pytest
from fleet_machines import boot, mac
from fleet_site import NEW, OLD, URLS, needs_root

from ansible_collections.sailloft.fleet.plugins.module_utils.image.serving.node_scripts import ensure
from ansible_collections.sailloft.fleet.plugins.module_utils.image.store import channels, node_files, statement

pytestmark = [needs_root, pytest.mark.fleet]


@pytest.mark.long
def test_an_unreachable_boot_server_stops_a_reimage(fleet):
    fleet.add_server("boot02", last=False)
    (fleet.folder / "boot02" / "up").unlink()
    status, output = fleet.play("reimage.yml", "-l", "bm02")
    assert status == 2, output
    assert "Bring boot02 back" in " ".join(output.split())
    assert fleet.boots() == []


def row(node, **image):
    return {"name": node, "mac": mac(node), "servers": URLS, **(image or {"channel": "stable"})}


@pytest.mark.long
def test_the_script_of_a_removed_node_is_deleted_only_if_the_node_is_named(fleet):
    ensure(fleet.store, [row("bm09")], False)
    status, output = fleet.play("node_scripts.yml")
    assert status == 0, output
    assert "scripts of nodes that the inventory does not have: bm09." in " ".join(output.split())
    assert len(channels.node_scripts(fleet.store)) == 5
    status, output = fleet.play("node_scripts.yml", "-l", "bm01", node_boot_removed=["bm09"])
    assert status == 0, output
    assert sorted(channels.node_scripts(fleet.store)) == sorted(mac(node).replace(":", "-") for node in fleet.nodes)
    assert fleet.boots() == []


@pytest.mark.parametrize("fleet", [2], indirect=True)
def test_one_node_is_reimaged_and_no_other_is_changed(fleet):
    # A canary of another operator, and a node that this checkout does not know yet.
    ensure(fleet.store, [row("bm01", digest=NEW.digest), row("bm09")], False)
    before = channels.node_scripts(fleet.store)
    status, output = fleet.play("reimage.yml", "-l", "bm02", node_boot_server_urls=["http://127.0.0.2"])
    assert status == 0, output
    assert fleet.boots() == ["bm02 old channel"]
    after = channels.node_scripts(fleet.store)
    ours = mac("bm02").replace(":", "-")
    assert "set servers http://127.0.0.2\n" in after.pop(ours)
    assert after == {name: text for name, text in before.items() if name != ours}


@pytest.mark.parametrize("fleet", [2], indirect=True)
def test_a_node_gets_its_own_files_when_it_boots_and_its_proof_has_them(fleet):
    second = fleet.add_server("boot02")
    given = {"node_boot_files": {"/etc/hosts": {"content": "10.9.0.1 {{ inventory_hostname }}\n"}}}
    status, output = fleet.play("node_scripts.yml", "-l", "bm02", "--check", "--diff", **given)
    assert status == 0, output
    assert "+10.9.0.1 bm02" in output
    assert "bm02: /etc/hosts" in output
    assert node_files.present(fleet.store) == []
    status, output = fleet.play("reimage.yml", "-l", "bm02", **given)
    assert status == 0, output
    digest = stated(fleet.store).nodes[mac("bm02")].files
    assert node_files.read(second, digest).startswith("0644 root root /etc/hosts ")
    assert [node_files.present(store) for store in (fleet.store, second)] == [[digest]] * 2
    claims = json.loads((fleet.folder / "proofs" / "bm02.json").read_text())["claims"]
    assert [claim["holds"] for claim in claims if claim["seen"] == digest] == [True]
    assert stated(fleet.store).nodes[mac("bm01")].files == ""


@pytest.mark.long
def test_a_node_that_cannot_report_is_reimaged_if_it_is_selected(fleet):
    fleet.fate({("bm02", OLD): "mute"})
    boot(fleet.folder, "bm02")
    fleet.fate({})
    status, output = fleet.play("reimage.yml")
    assert status != 0
    assert "select nodes (-l NODE)" in output
    status, output = fleet.play("reimage.yml", "-l", "bm02")
    assert status == 0, output
    assert fleet.boots() == ["bm02 old channel"] * 2


def stated(store):
    return statement.load(store.contents("nodes", statement.STATEMENT), "statement")


@pytest.mark.long
def test_a_limited_run_states_only_its_nodes_on_all_servers_and_a_second_one_changes_nothing(fleet):
    second = fleet.add_server("boot02")
    before = stated(fleet.store)
    pin = {"node_boot_image": {"digest": NEW.digest}}
    status, output = fleet.play("node_scripts.yml", "-l", "bm02", "--check", "--diff", **pin)
    assert status == 0, output
    assert f'+      "image": "{NEW.digest}"' in output
    assert stated(fleet.store) == before
    status, output = fleet.play("node_scripts.yml", "-l", "bm02", **pin)
    assert status == 0, output
    after = stated(fleet.store)
    assert (after.sequence > before.sequence, stated(second)) == (True, after)
    changed = [row.name for address, row in after.nodes.items() if row != before.nodes[address]]
    assert (changed, after.nodes[mac("bm02")].image, after.nodes[mac("bm01")].image) == (
        ["bm02"],
        NEW.digest,
        OLD.digest,
    )
    status, output = fleet.play("node_scripts.yml", "-l", "bm02", **pin)
    assert (status, "changed=0" in output) == (0, True), output
    assert stated(fleet.store) == after
