# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""reimage.yml, node_scripts.yml and bmc_baseline.yml on a fleet whose boots alone are not real (fleet_machines.py)."""

from __future__ import annotations

import json
import os
import time

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


@pytest.mark.long
@pytest.mark.parametrize("fleet", [2], indirect=True)
def test_a_node_whose_bmc_is_not_known_is_not_even_drained(fleet):
    drained = fleet.folder / "drained"
    variables = {
        "node_boot_bmc": {"username": "{{ 'root' }}"},
        "node_boot_drain": {"command": ["touch", str(drained)], "host": "localhost"},
    }
    for arguments in (["--check"], []):
        status, output = fleet.play("reimage.yml", "-l", "bm02", *arguments, **variables)
        assert status == 2
        assert "bm02: node_boot_bmc: missing required arguments: address, password" in " ".join(output.split())
        assert "argument_spec_data" not in output
    assert (fleet.boots(), drained.exists()) == ([], False)


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


@pytest.mark.parametrize("fleet", [1], indirect=True)
def test_the_console_of_a_node_that_does_not_boot_is_in_the_error(fleet):
    fleet.fate({("bm01", OLD): "lost"})
    (fleet.folder / "bm01.log").write_text("2026-11-29 02:50:40 the first stage refused the layer, asked none\n")
    console = {"node_bmc_console_server": "localhost", "node_bmc_console_dir": str(fleet.folder)}
    status, output = fleet.play("reimage.yml", "-l", "bm01", **console)
    assert status == 2, output
    assert "is not up" in output
    # Silent since before the restart.
    assert "the first stage refused" not in output
    os.utime(fleet.folder / "bm01.log", (time.time() + 60,) * 2)
    status, output = fleet.play("reimage.yml", "-l", "bm01", **console)
    assert status == 2, output
    assert "is not up" in output
    # It has the password of the BMC, which is masked.
    assert "the first stage refused the layer, asked" in output
    assert "asked none" not in output
    status, output = fleet.play("reimage.yml", "-l", "bm01", **{**console, "node_bmc_console_dir": "/nonexistent"})
    assert status == 2, output
    assert "is not up" in output


WANTED = {"unknown": {"bios": {"ProcTurboMode": "Disabled"}}}
DRAIN = {"node_boot_drain": {"command": ["true"]}}


def set_baseline(fleet, *arguments, **variables):
    return fleet.play("bmc_baseline.yml", *arguments, **{"node_bmc_baselines": WANTED, **variables})


def proof(fleet):
    return json.loads((fleet.folder / "proofs/bmc-baseline.json").read_text())


@pytest.mark.parametrize("fleet", [2], indirect=True)
def test_nodes_are_set_one_after_the_other_and_read_back(fleet):
    status, output = set_baseline(fleet)
    assert status == 2, output
    assert proof(fleet)["holds"] is False
    status, output = set_baseline(fleet, "--check", "--diff", node_bmc_set=["bios"], **DRAIN)
    assert status == 0, output
    assert "bios ProcTurboMode: wanted Disabled, seen Enabled" in output
    assert fleet.boots() == []
    status, output = set_baseline(fleet, node_bmc_set=["bios"], **DRAIN)
    assert status == 0, output
    assert fleet.boots() == ["bm01 old channel", "bm02 old channel"]
    assert proof(fleet)["holds"] is True
    status, output = set_baseline(fleet, node_bmc_set=["bios"], **DRAIN)
    assert (status, "changed=0" in output, len(fleet.boots())) == (0, True, 2), output


# It waits two minutes for the value.
@pytest.mark.long
@pytest.mark.parametrize("fleet", [2], indirect=True)
def test_a_value_that_is_not_applied_keeps_the_node_out_of_service_and_ends_the_run(fleet):
    (fleet.folder / "fates.json").write_text('{"bm01 bios": "forgets"}')
    returned = fleet.folder / "returned"
    hook = {"node_boot_return": {"command": ["touch", str(returned)]}}
    status, output = set_baseline(fleet, node_bmc_set=["bios"], **DRAIN, **hook)
    assert status == 2, output
    assert "accepted it" in output
    assert fleet.boots() == ["bm01 old channel"]
    assert not returned.exists()


@pytest.mark.long
@pytest.mark.parametrize("fleet", [2], indirect=True)
def test_an_impossible_value_is_refused_before_any_node_is_drained(fleet):
    drained = fleet.folder / "drained"
    wanted = {"unknown": {"bios": {"ProcTurboMode": "Off"}}}
    status, output = set_baseline(
        fleet,
        node_bmc_baselines=wanted,
        node_bmc_set=["bios"],
        node_boot_drain={"command": ["touch", str(drained)]},
    )
    assert (status, "of Enabled, Disabled" in output, drained.exists(), fleet.boots()) == (2, True, False, []), output


@pytest.mark.parametrize("fleet", [1], indirect=True)
def test_disks_are_erased_only_by_name_and_policy(fleet):
    drained = fleet.folder / "drained"
    drain = {"node_boot_drain": {"command": ["touch", str(drained)]}}
    named = {"disks": [{"serial": "no-such-disk"}]}
    wipe = {"policy": "on_release", **named}
    for arguments, given, said in (
        ((), wipe, "-l NODE"),
        (("-l", "bm01"), {"policy": "never", **named}, "on_release"),
        (("-l", "bm01"), {"policy": "on_release"}, "0 disks"),
        (("-l", "bm01"), {"policy": "on_release", "disks": [{"device": "/dev/vda"}]}, "serial"),
    ):
        status, output = fleet.play("release.yml", *arguments, node_boot_wipe=given, **drain)
        assert (status, said in output, drained.exists()) == (2, True, False), output
    status, output = fleet.play("release.yml", "-l", "bm01", node_boot_wipe=wipe, **drain)
    assert (status, "no disk with the serial no-such-disk" in output, drained.exists()) == (2, True, True), output


@pytest.mark.parametrize("fleet", [1], indirect=True)
def test_the_consoles_of_a_server_are_shown_without_passwords(fleet):
    console = {"node_bmc_console": {"device": "ipmi"}, "node_bmc_console_server": "bm01"}
    site = {"console_servers": {"hosts": {"bm01": {}}}, "nodes": {"hosts": {"bm01": console}}}
    (fleet.folder / "consoles.json").write_text(json.dumps(site))
    # The library runs the systemctl of the system.
    enter = fleet.folder / "enter"
    bind = 'mount --bind "$1/bin/systemctl" /usr/bin/systemctl\nPATH='
    enter.write_text(enter.read_text().replace("PATH=", bind, 1))
    inventory = ("-i", str(fleet.folder / "consoles.json"), "--check", "--diff", "-vvv")
    status, output = fleet.play("consoles.yml", *inventory, packages_install=False)
    assert status == 0, output
    assert '+CONSOLE name="bm01" dev="ipmi:127.0.0.1"' in output
    assert b"none".hex() not in output


@pytest.mark.long
@pytest.mark.parametrize("fleet", [2], indirect=True)
def test_a_play_in_batches_boots_one_batch_at_a_time(fleet):
    """The second node of a play with serial must not boot when the first one has failed."""
    book = fleet.folder / "batches.yml"
    play = {"hosts": "nodes", "serial": 1, "gather_facts": False, "roles": ["sailloft.fleet.node_boot"]}
    book.write_text(json.dumps([play]))
    fleet.fate({("bm01", OLD): "lost"})
    status, output = fleet.play(str(book), node_boot_force=True)
    assert status == 2, output
    assert fleet.boots() == ["bm01 old channel"]
