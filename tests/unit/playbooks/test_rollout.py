# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""playbooks/rollout.yml on a fleet in which everything but the boot is real (fleet_machines.py)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from fleet_site import NEW, Fleet, needs_root

from ansible_collections.sailloft.fleet.plugins.module_utils.image.store import channels

pytestmark = [needs_root, pytest.mark.fleet]


@pytest.mark.parametrize("fleet", [2, pytest.param(3, marks=pytest.mark.long)], indirect=True)
def test_a_successful_rollout_boots_each_node_once_in_the_order_of_its_steps(fleet):
    status, output = fleet.roll_out()
    assert status == 0, output
    last = fleet.nodes[-1]
    assert fleet.boots() == ["bm01 new pin", *(f"{node} new channel" for node in fleet.nodes[1:])]
    assert set(fleet.runs().values()) == {"new"}
    assert fleet.channel() == "new"
    assert fleet.scripts() == len(fleet.nodes)
    assert "canaries: 1 of 1 booted" in output
    assert f"wave 1/{len(fleet.nodes) - 1}: 1 of 1 booted" in output
    proof = json.loads((fleet.folder / f"proofs/{last}.json").read_text())
    assert proof["holds"] is True


@pytest.mark.long
@pytest.mark.parametrize("fleet", [3], indirect=True)
def test_check_mode_names_the_steps_and_a_second_rollout_changes_nothing(fleet):
    status, output = fleet.roll_out("--check")
    assert status == 0, output
    for line in ("canaries     bm01", "wave 1       bm02", "wave 2       bm03"):
        assert line in output
    assert fleet.boots() == []
    assert fleet.channel() == "old"
    status, output = fleet.roll_out()
    assert status == 0, output
    # The limit may leave out the controller, and a digest is an image, too.
    status, output = fleet.roll_out("--limit", "nodes", node_boot_rollout_image=NEW.digest)
    assert status == 0, output
    assert "changed: [" not in output
    assert len(fleet.boots()) == 3


@pytest.fixture
def new_fleet(fleet):
    """Nodes that were never started, with a channel that does not exist yet."""
    (Path(fleet.store.path) / "channels/stable.ipxe").unlink()
    for script in Path(fleet.store.path, "nodes").iterdir():
        script.unlink()
    for node in fleet.nodes:
        (fleet.folder / node / "up").unlink()
    return fleet


@pytest.mark.long
def test_the_first_rollout_boots_a_fleet_that_was_never_powered_on(new_fleet):
    status, output = new_fleet.roll_out("--check")
    assert status == 0, output
    status, output = new_fleet.roll_out()
    assert status == 0, output
    assert new_fleet.boots()[:2] == ["bm01 new pin", "bm02 new channel"]
    assert set(new_fleet.runs().values()) == {"new"}
    assert new_fleet.channel() == "new"
    assert new_fleet.scripts() == 4
    status, output = new_fleet.roll_out()
    assert status == 0, output
    assert "changed: [" not in output


@pytest.mark.long
def test_a_failed_canary_stops_a_first_rollout_and_leaves_no_channel(new_fleet):
    new_fleet.fate({("bm01", NEW): "sick"})
    status, output = new_fleet.roll_out(node_boot_rollout_budget=3)
    assert status != 0
    assert "bm01 failed in the rollout" in output
    assert new_fleet.boots() == ["bm01 new pin"]
    assert list(Path(new_fleet.store.path, "channels").iterdir()) == []
    assert channels.node_scripts(new_fleet.store) == {}
    new_fleet.fate({})
    # bm01 runs the image, and is healthy now.
    (new_fleet.folder / "bm01/sick").write_text("no")
    status, output = new_fleet.roll_out()
    assert status == 0, output
    assert set(new_fleet.runs().values()) == {"new"}


# A mute node answers, but nothing can be read from it. A hung node does not answer.
@pytest.mark.long
@pytest.mark.parametrize("fate", ["sick", "lost", "mute", "hung"])
@pytest.mark.parametrize("fleet", [2], indirect=True)
def test_a_failed_canary_is_rolled_back_and_no_other_node_boots(fleet, fate):
    fleet.fate({("bm01", NEW): fate})
    # The timeout is longer than the reading of a healthy node takes on a loaded machine.
    status, output = fleet.roll_out(node_boot_rollout_budget=3, __node_boot_read_s=20)
    assert status != 0
    assert fleet.boots() == ["bm01 new pin", "bm01 old channel"]
    assert set(fleet.runs().values()) == {"old"}
    assert fleet.channel() == "old"
    assert fleet.scripts() == 2
    assert "bm01 failed in the rollout" in output


@pytest.mark.long
@pytest.mark.parametrize("fleet", [3], indirect=True)
def test_a_healthy_canary_follows_the_channel_again_if_another_fails(fleet):
    fleet.fate({("bm01", NEW): "sick"})
    status, output = fleet.roll_out(node_boot_rollout_canaries=["bm01", "bm02"])
    assert status != 0, output
    assert sorted(fleet.boots()) == ["bm01 new pin", "bm01 old channel", "bm02 new pin"]
    assert fleet.runs() == {"bm01": "old", "bm02": "new", "bm03": "old"}
    assert (fleet.channel(), fleet.scripts()) == ("old", 3)


@pytest.mark.long
def test_channel_and_failed_nodes_are_rolled_back_if_failures_exceed_the_budget(fleet):
    fleet.fate({("bm02", NEW): "ill", ("bm03", NEW): "liar"})
    status, output = fleet.roll_out(node_boot_rollout_budget=1, node_boot_rollout_waves=["1", "1"])
    assert status != 0
    # bm04 was never booted, bm03 never left the old image, and bm01, which is healthy, is not changed.
    assert fleet.boots() == ["bm01 new pin", "bm02 new channel", "bm03 new channel", "bm02 old channel"]
    assert fleet.runs() == {"bm01": "new", "bm02": "old", "bm03": "old", "bm04": "old"}
    assert fleet.channel() == "old"
    assert "is still in the previous boot" in output
    assert "gpu.service" in output


def dying_gate(fleet):
    """Return the file of a health check with tasks, during which a sick node stops answering."""
    gate = fleet.folder / "gate.yml"
    files = str(fleet.folder / "{{ inventory_hostname }}")
    dies = {"cmd": f"! grep -q yes {files}/sick || rm {files}/up"}
    gate.write_text(
        json.dumps(
            [
                {"ansible.builtin.shell": dies, "delegate_to": "localhost"},
                {"ansible.builtin.command": {"argv": ["true"]}},
            ]
        )
    )
    return str(gate)


@pytest.mark.long
@pytest.mark.parametrize("node", ["bm01", "bm02"])
def test_a_node_that_is_lost_during_its_health_check_is_rolled_back(fleet, node):
    fleet.fate({(node, NEW): "sick"})
    status, output = fleet.roll_out(node_boot_health={"tasks": dying_gate(fleet)})
    assert status != 0
    assert fleet.boots()[-2:] == [f"{node} new {'pin' if node == 'bm01' else 'channel'}", f"{node} old channel"]
    assert fleet.channel() == "old"
    assert fleet.scripts() == 4
    assert fleet.runs() == {"bm01": "old" if node == "bm01" else "new", "bm02": "old", "bm03": "old", "bm04": "old"}
    assert f"{node} failed in the rollout" in output


@pytest.mark.long
def test_the_only_node_is_rolled_back_if_it_is_lost_during_its_health_check(tmp_path):
    fleet = Fleet(tmp_path, ["bm01"])
    try:
        fleet.wait().fate({("bm01", NEW): "sick"})
        status, output = fleet.roll_out(node_boot_health={"tasks": dying_gate(fleet)})
    finally:
        fleet.stop()
    assert status != 0
    assert fleet.boots() == ["bm01 new pin", "bm01 old channel"]
    assert (fleet.channel(), fleet.runs(), fleet.scripts()) == ("old", {"bm01": "old"}, 1)
    assert "rollback, canaries failed: bm01" in output
    assert "bm01 failed in the rollout" in output


# The server is lost before the rollout, while the canary drains, and while the last wave drains.
@pytest.mark.long
@pytest.mark.parametrize(("node", "booted"), [("", 0), ("bm01", 1), ("bm03", 3)])
def test_an_unreachable_boot_server_stops_a_rollout_that_a_later_run_completes(fleet, node, booted):
    second = fleet.add_server("boot02")
    up = fleet.folder / "boot02" / "up"
    drain = {"command": ["sh", "-c", f"[ {{{{ inventory_hostname }}}} != '{node}' ] || rm {up}"]}
    if not node:
        up.unlink()
    status, output = fleet.roll_out(node_boot_drain=drain, node_boot_rollout_waves=["1"])
    assert status == 2, output
    text = " ".join(output.split("PLAY RECAP")[0].split())
    assert "boot02 does not answer" in text
    assert "Bring boot02 back, or remove it from node_boot_servers in the inventory" in text
    assert "unreachable=1" not in output
    assert len(fleet.boots()) == booted
    assert (fleet.channel() == "new") == (booted > 1)
    up.touch()
    status, output = fleet.roll_out(node_boot_rollout_waves=["1"])
    assert status == 0, output
    assert set(fleet.runs().values()) == {"new"}
    assert sorted(line.split()[0] for line in fleet.boots()) == fleet.nodes
    assert channels.known(second, "stable").digest == NEW.digest
    assert channels.node_scripts(second) == channels.node_scripts(fleet.store)


@pytest.mark.long
@pytest.mark.parametrize("fleet", [2], indirect=True)
def test_a_rollout_that_is_limited_to_some_nodes_is_refused(fleet):
    status, output = fleet.roll_out("-l", "bm01")
    assert status != 0
    assert "--limit leaves out bm02" in " ".join(output.split())
    status, output = fleet.roll_out(node_boot_servers=[])
    assert status != 0
    assert "needs boot servers in node_boot_servers" in output
    assert fleet.boots() == []


@pytest.mark.long
def test_an_unreachable_host_of_a_hook_is_named(fleet):
    hook = {"command": ["true"], "host": "bm04"}
    (fleet.folder / "bm04" / "up").unlink()
    status, output = fleet.play("reimage.yml", "-l", "bm02", node_boot_drain=hook)
    assert status == 2, output
    assert "bm02: bm04, where the command true runs, does not answer" in output
    assert fleet.boots() == []


@pytest.mark.long
def test_a_rollout_within_its_budget_continues_and_names_failed_nodes_and_spares(fleet):
    fleet.fate({("bm02", NEW): "lost"})
    in_service = {"command": ["sh", "-c", f"echo {{{{ inventory_hostname }}}} >> {fleet.folder}/returned"]}
    # One of two spares is needed.
    hosts = json.loads((fleet.folder / "hosts.yml").read_text())
    for spare in ("bm03", "bm04"):
        hosts["all"]["children"]["nodes"]["hosts"][spare]["site_spare"] = True
    (fleet.folder / "hosts.yml").write_text(json.dumps(hosts))
    status, output = fleet.roll_out(node_boot_rollout_budget=1, node_boot_return=in_service)
    assert status != 0
    assert (fleet.folder / "returned").read_text().split() == ["bm01", "bm03"]
    assert "out of service bm02, replaced by bm03" in output
    assert fleet.runs() == {"bm01": "new", "bm02": "nothing", "bm03": "new", "bm04": "new"}
    assert fleet.channel() == "new"
    assert "bm02 failed in the rollout" in output
    assert "within the budget of 1" in output


@pytest.mark.long
def test_an_unreachable_node_counts_as_failed_before_anything_is_changed(fleet):
    (fleet.folder / "bm04" / "up").unlink()
    status, output = fleet.roll_out()
    assert status != 0
    assert "nothing was changed: 1 failed (bm04), but the budget is 0" in output
    assert fleet.boots() == []


@pytest.mark.long
def test_a_bmc_with_an_untrusted_certificate_is_refused_unless_tls_is_not_verified(fleet):
    hosts = json.loads((fleet.folder / "hosts.yml").read_text())
    bmc = hosts["all"]["children"]["nodes"]["hosts"]["bm02"]["node_boot_bmc"]
    del bmc["ca"]
    (fleet.folder / "hosts.yml").write_text(json.dumps(hosts))
    status, output = fleet.play("reimage.yml", "-l", "bm02")
    assert status != 0
    assert "node_boot_bmc.ca" in " ".join(output.split())
    assert fleet.boots() == []
    bmc["verify_tls"] = False
    (fleet.folder / "hosts.yml").write_text(json.dumps(hosts))
    status, output = fleet.play("reimage.yml", "-l", "bm02")
    assert status == 0, output
