# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The signed statement on a simulated fleet: limited runs, check mode, second runs, two boot servers."""

from __future__ import annotations

import pytest
from fleet_machines import mac
from fleet_site import NEW, OLD, needs_root

from ansible_collections.sailloft.fleet.plugins.module_utils.image.store import statement

pytestmark = [pytest.mark.fleet, needs_root]


def stated(store):
    return statement.load(store.contents("nodes", statement.STATEMENT), "statement")


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
    assert (after.sequence, stated(second)) == (before.sequence + 1, after)
    changed = [row.name for address, row in after.nodes.items() if row != before.nodes[address]]
    assert (changed, after.nodes[mac("bm02")].image, after.nodes[mac("bm01")].image) == (
        ["bm02"],
        NEW.digest,
        OLD.digest,
    )
    status, output = fleet.play("node_scripts.yml", "-l", "bm02", **pin)
    assert (status, "changed=0" in output) == (0, True), output
    assert stated(fleet.store) == after
