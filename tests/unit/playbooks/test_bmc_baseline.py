# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""playbooks/bmc_baseline.yml on a fleet in which all but the boot is real (fleet_machines.py)."""

from __future__ import annotations

import json

import pytest
from fleet_site import needs_root

pytestmark = [needs_root, pytest.mark.fleet]

WANTED = {"unknown": {"bios": {"ProcTurboMode": "Disabled"}}}
DRAIN = {"node_boot_drain": {"command": ["true"]}}


def play(fleet, *arguments, **variables):
    return fleet.play("bmc_baseline.yml", *arguments, **{"node_boot_baselines": WANTED, **variables})


def proof(fleet):
    return json.loads((fleet.folder / "proofs/bmc-baseline.json").read_text())


@pytest.mark.parametrize("fleet", [2], indirect=True)
def test_nodes_are_set_one_after_the_other_and_read_back(fleet):
    status, output = play(fleet)
    assert status == 2, output
    assert proof(fleet)["holds"] is False
    # Nothing drains the nodes.
    status, output = play(fleet, node_boot_baseline_set=["bios"])
    assert status == 2, output
    assert "node_boot_drain" in output
    status, output = play(fleet, "--check", "--diff", node_boot_baseline_set=["bios"], **DRAIN)
    assert status == 0, output
    assert "+bm01 bios ProcTurboMode: Disabled" in output
    assert fleet.boots() == []
    status, output = play(fleet, node_boot_baseline_set=["bios"], **DRAIN)
    assert status == 0, output
    assert fleet.boots() == ["bm01 old channel", "bm02 old channel"]
    assert proof(fleet)["holds"] is True
    status, output = play(fleet, node_boot_baseline_set=["bios"], **DRAIN)
    assert (status, "changed=0" in output, len(fleet.boots())) == (0, True, 2), output


@pytest.mark.parametrize("fleet", [2], indirect=True)
def test_a_value_that_is_not_applied_keeps_the_node_out_of_service_and_ends_the_run(fleet):
    (fleet.folder / "fates.json").write_text('{"bm01 bios": "forgets"}')
    returned = fleet.folder / "returned"
    hook = {"node_boot_return": {"command": ["touch", str(returned)]}}
    status, output = play(fleet, node_boot_baseline_set=["bios"], **DRAIN, **hook)
    assert status == 2, output
    assert "accepted it" in output
    assert fleet.boots() == ["bm01 old channel"]
    assert not returned.exists()


@pytest.mark.long
@pytest.mark.parametrize("fleet", [2], indirect=True)
def test_an_impossible_value_is_refused_before_any_node_is_drained(fleet):
    drained = fleet.folder / "drained"
    wanted = {"unknown": {"bios": {"ProcTurboMode": "Off"}}}
    status, output = play(
        fleet,
        node_boot_baselines=wanted,
        node_boot_baseline_set=["bios"],
        node_boot_drain={"command": ["touch", str(drained)]},
    )
    assert (status, "nothing was sent" in output, drained.exists(), fleet.boots()) == (2, True, False, []), output
