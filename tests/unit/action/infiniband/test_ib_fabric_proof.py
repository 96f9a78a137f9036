# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The proof of a fabric is written on the controller, and a fabric that is not as planned fails."""

from __future__ import annotations

import json

import made_up_dumps
import pytest
import sites
from ansible.errors import AnsibleActionFail

from ansible_collections.sailloft.fleet.plugins.action import ib_fabric_proof
from ansible_collections.sailloft.fleet.plugins.module_utils.infiniband.fabric import fabric_of

BLUEPRINT = str(sites.PROJECT / "inventories/blue_vela/blueprint.yml")


def test_a_proof_is_written_and_fails_where_something_was_not_read(make, tmp_path):
    dumps = made_up_dumps.Dumps(fabric_of(sites.example("blue_vela"), "storage"))
    arguments = {
        "blueprint": BLUEPRINT,
        "fabric": "storage",
        "links": dumps.links_text(),
        "forwarding": dumps.forwarding_text(),
        "path": str(tmp_path),
    }
    result = make(ib_fabric_proof, **arguments).run(task_vars={})
    assert (result["holds"], result["failed"], result["changed"]) == (False, True, True)
    claims = json.loads((tmp_path / "infiniband-storage.json").read_text())["claims"]
    held = [claim for claim in claims if claim["holds"]]
    # No cable, log and P_Key was read; the tables are those of a tree without fault.
    assert {claim["layer"] for claim in held} == {"routes"}
    failed = [claim["source"] for claim in claims if claim["layer"] == "routes" and claim["holds"] is False]
    assert failed == ["opensm.log"]
    assert not make(ib_fabric_proof, **arguments).run(task_vars={})["changed"]


def test_text_that_is_no_dump_is_refused(make, tmp_path):
    arguments = {"blueprint": BLUEPRINT, "fabric": "storage", "path": str(tmp_path)}
    text = "Unicast lids [0-9] of switch Lid 2 guid 0x0000000000200000 ('leaf'):\n0x0001 001 # CA\n"
    with pytest.raises(AnsibleActionFail, match=r"opensm-subnet\.lst"):
        make(ib_fabric_proof, links="", forwarding=text, **arguments).run(task_vars={})
