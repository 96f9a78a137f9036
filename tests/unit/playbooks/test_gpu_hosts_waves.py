# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The hosts of plays: their waves from the inventory, and their selection by the result of a comparison."""

from __future__ import annotations

import re
import time
from pathlib import Path

import pytest
import yaml

from ansible_collections.sailloft.fleet.plugins.filter.gpu_servers import gpu_servers

PLAYBOOKS = Path(__file__).parents[3] / "playbooks"
ROWS = yaml.safe_load((PLAYBOOKS.parent / "meta/run_specs.yml").read_text())["playbooks"]
KEYWORDS = ("serial", "max_fail_percentage")
# Those of bmc_baseline.yml read all hosts in one call, or boot nodes in batches of play_serial themselves.
IN_ONE_CALL = ("Compare the hosts with their baselines", "Set what differs on nodes", "Compare the hosts again")


def runs_a_role(play):
    """Return True if a play runs a role, not only one of its further entry points."""
    imports = [task[name] for task in play.get("tasks", []) for name in task if name.endswith(".import_role")]
    return bool(play.get("roles")) or any("tasks_from" not in role for role in imports)


def wave_settings(play):
    """Return the two keywords of a play whose waves a site sets with play_serial and play_max_fail_percentage."""
    # The first group in the play's pattern, which may be in a template; __names has the hosts of several groups.
    group = re.search(r"[a-z]+_[a-z]+", str(play["hosts"]).replace("__names", ""))
    names = "__names" if "__names" in play.get("vars", {}) else f"groups.{group and group[0]} | default([])"
    first = ", serial=1" if "serial=1" in str(play.get("serial")) else ""
    read = f"({names} | sailloft.fleet.waves(hostvars | default({{}}){first}))"
    return {keyword: f"{{{{ {read}.{keyword} }}}}" for keyword in KEYWORDS}


@pytest.mark.parametrize("playbook", [name for name, row in ROWS.items() if "play_serial" in row.get("variables", [])])
def test_the_plays_that_run_roles_have_the_waves_that_their_playbook_takes(playbook):
    plays = [play for play in yaml.safe_load((PLAYBOOKS / f"{playbook}.yml").read_text()) if "hosts" in play]
    in_waves = [play for play in plays if {key: play.get(key) for key in KEYWORDS} == wave_settings(play)]
    assert in_waves
    at_once = {play["name"] for play in plays if runs_a_role(play) and not set(KEYWORDS) <= set(play)}
    assert at_once <= set(IN_ONE_CALL)


def test_several_groups_are_one_list_in_the_order_of_the_pattern():
    play = yaml.safe_load((PLAYBOOKS / "gpu_nodes.yml").read_text())[1]
    groups = play["hosts"].split(":")
    assert play["vars"]["__names"] == "{{ " + " + ".join(f"(groups.{group} | default([]))" for group in groups) + " }}"


def compared(host, vm, age_s=0):
    return {"__gpu_server_compared": {"held": {"gpu_host": host, "gpu_vm": vm}, "time": time.time() - age_s}}


NAMES = ["same", "old", "vms", "host", "skipped", "new"]


def all_compared():
    """Return the variables of ``NAMES``, whose ages count from now."""
    return {
        "same": compared(True, True),
        "old": compared(True, True, age_s=601),
        "vms": compared(True, False),
        "host": compared(False, False, age_s=601),
        "skipped": {"__gpu_server_compared": {"skipped": True}},
        "new": {},
    }


def test_a_role_runs_on_a_host_unless_the_comparison_found_no_difference():
    assert gpu_servers(NAMES, all_compared(), "gpu_host") == ["host", "skipped", "new"]
    assert gpu_servers(NAMES, all_compared(), "gpu_vm") == ["vms", "host", "skipped", "new"]
    assert gpu_servers(["b", "a"], {}, "gpu_vm") == ["b", "a"]


def test_virtual_machines_are_compared_unless_they_were_or_their_role_runs_in_any_case():
    assert gpu_servers(NAMES, all_compared(), "gpu_vm", to_compare=True) == ["old", "skipped", "new"]
    # gpu_vms.yml without gpu_hosts.yml, and its first play.
    assert gpu_servers(["b", "a"], {}, "gpu_vm", to_compare=True) == ["b", "a"]


def test_an_empty_selection_is_a_pattern_that_matches_no_host():
    assert gpu_servers([], {}, "gpu_vm") == gpu_servers(["same"], all_compared(), "gpu_host") == ["all:!all"]
