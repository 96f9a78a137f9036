# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The table of the answers that the variables of hosts hold, as Ansible's templates give them."""

from __future__ import annotations

from ansible.parsing.dataloader import DataLoader
from ansible.template import Templar, trust_as_template
from fleet_answers import answer, fault

from ansible_collections.sailloft.fleet.plugins.filter.node_health_table import node_health_table

GONE = {"unreachable": True, "changed": False, "msg": "Failed to connect"}
SKIPPED = {"skipped": True, "changed": False}


def made(results, bmcs=None, variable="node_health_read"):
    """Return the table of results by node, which reach the filter as Ansible's own containers."""
    hostvars = {name: {} if result is None else {variable: result} for name, result in results.items()}
    variables = {"shown": {"hostvars": hostvars, "bmcs": bmcs, "names": list(results)}}
    given = Templar(DataLoader(), variables=variables).template(trust_as_template("{{ shown }}"))
    return node_health_table(given["names"], given["hostvars"], variable, given["bmcs"])


def test_each_node_is_counted_once_and_one_that_was_not_asked_is_not_known():
    table = made({"n1": answer(), "n2": answer(faults=[fault()]), "n3": GONE, "n4": None, "esxi": SKIPPED})
    assert (table["healthy"], table["faulty"], table["unknown"]) == (["n1"], ["n2"], ["n3", "n4"])
    assert table["holds"] is False
    assert not any("esxi" in line for line in table["lines"])
    assert "1 of 4 nodes healthy" in table["summary"]


def test_a_fleet_without_faults_holds():
    table = made({"n1": answer(), "n2": answer()}, variable="another")
    assert (table["holds"], table["healthy"]) == (True, ["n1", "n2"])


def test_a_node_that_runs_no_check_has_what_its_bmc_says():
    sick = {"format": answer()["health"]["format"], "age_s": 0.0, "faults": [fault(kind="bmc", place="Bay2", part="")]}
    table = made({"n1": answer(), "esxi": SKIPPED}, {"esxi": sick})
    assert (table["healthy"], table["faulty"]) == (["n1"], ["esxi"])
    assert any(line.startswith("1 node: bmc Bay2: ") for line in table["lines"])


def test_the_spares_are_those_of_the_blueprint():
    hostvars = {"n1": {"node_health_read": answer(faults=[fault()])}}
    hostvars["n2"] = {"node_health_read": answer(), "site_spare": True}
    assert "1 of 1 spare healthy: n2" in node_health_table(list(hostvars), hostvars)["lines"]
