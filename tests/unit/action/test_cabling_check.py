# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The neighbours that devices see are compared with the cables of inventories/small."""

from __future__ import annotations

import json

import pytest
import sites
from ansible.errors import AnsibleActionFail, AnsibleError
from messages import Mentions

from ansible_collections.sailloft.fleet.plugins.action import cabling_check
from ansible_collections.sailloft.fleet.plugins.module_utils.site.output.names import neighbours_file

BLUEPRINT = str(sites.PROJECT / "inventories/small/blueprint.yml")


@pytest.fixture
def seen():
    """Return the neighbours of gpu01 in the form in which cabling_info returns them, as they are planned."""
    rows = json.loads(neighbours_file(sites.example("small")))["gpu01"]
    return {port: {"device": device, "ports": [there]} for port, (device, there) in rows.items() if port != "bmc"}


@pytest.mark.parametrize("check_mode", [False, True])
def test_correct_cables_have_no_faults(make, seen, check_mode):
    read = {"gpu01": {"neighbours": seen}, "leaf1": {"msg": "no route to host"}, "leaf2": None}
    found = make(cabling_check, check_mode, blueprint=BLUEPRINT, read=read).run(task_vars={})
    assert (found["changed"], found["faults"], found["right"]) == (False, [], 9)
    assert found["silent"] == [
        {"device": "leaf1", "cause": "no route to host"},
        {"device": "leaf2", "cause": Mentions("answer")},
    ]
    assert "leaf1 was not read: no route to host" in "\n".join(found["report"])


def test_swapped_cables_are_one_fault(make, seen):
    seen["ens1np0"], seen["ens3np0"] = seen["ens3np0"], seen["ens1np0"]
    found = make(cabling_check, blueprint=BLUEPRINT, read={"gpu01": {"neighbours": seen}}).run(task_vars={})
    (fault,) = found["faults"]
    assert isinstance(fault, dict)
    assert "swap the ends of the cables gpu01 ens1np0 - leaf1 Ethernet0 and gpu01 ens3np0 - leaf1 Ethernet8" in str(
        found["report"]
    )


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ({"blueprint": BLUEPRINT}, "missing required arguments: read"),
        ({"read": {}}, "one of the following is required: blueprint, netbox"),
        (
            {"read": {}, "blueprint": BLUEPRINT, "netbox": {"a": 1}},
            "parameters are mutually exclusive: blueprint|netbox",
        ),
    ],
)
def test_wrong_arguments_are_refused(make, arguments, why):
    with pytest.raises(AnsibleError) as refused:
        make(cabling_check, **arguments).run(task_vars={})
    assert str(refused.value) == why


def test_a_blueprint_that_does_not_exist_is_named(make):
    with pytest.raises(AnsibleActionFail, match=r"/nowhere/blueprint\.yml"):
        make(cabling_check, blueprint="/nowhere/blueprint.yml", read={}).run(task_vars={})


def test_a_proof_is_written_although_cables_are_wrong_and_is_no_failure(make, seen, tmp_path):
    del seen["ens1np0"]

    def run(check_mode=False):
        given = {"blueprint": BLUEPRINT, "read": {"gpu01": {"neighbours": seen}}, "path": str(tmp_path / "proofs")}
        return make(cabling_check, check_mode, **given).run(task_vars={})

    assert run(check_mode=True)["changed"]
    assert not (tmp_path / "proofs").exists()
    found = run()
    assert ("failed" in found, found["changed"]) == (False, True)
    proof = json.loads((tmp_path / "proofs/cabling.json").read_text())
    assert (proof["format"], proof["holds"]) == ("sailloft-proof/1", False)
    assert not run()["changed"]
