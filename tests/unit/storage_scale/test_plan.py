# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

import json

import pytest
from messages import Mentions
from scale_outputs import nodes, wanted

from ansible_collections.sailloft.fleet.plugins.module_utils.storage_scale import plan
from ansible_collections.sailloft.fleet.plugins.module_utils.storage_scale.request import ScaleError


def test_nodes_with_equal_ports_are_one_class_and_rails_choose_the_ports():
    fleet = {**nodes("n1", "n3"), **nodes("n2", devices=3)}
    hosts = json.loads(plan.inventory(wanted(), fleet))["all"]["hosts"]
    assert hosts["n1"] == hosts["n3"] != hosts["n2"]
    hosts = json.loads(plan.inventory(wanted(rails=[1]), fleet))["all"]["hosts"]
    assert hosts["n1"] == hosts["n3"] == hosts["n2"]


@pytest.mark.parametrize(
    ("changes", "link_layer", "settings"),
    [
        (
            {},
            "InfiniBand",
            {"verbsRdma": "enable", "verbsPorts": "mlx5_0/1/0 mlx5_1/1/0", "verbsGPUDirectStorage": "enable"},
        ),
        (
            {"gpudirect": False, "fabric_per_rail": True},
            "Ethernet",
            {"verbsRdma": "enable", "verbsPorts": "mlx5_0/1/0 mlx5_1/1/1", "verbsRdmaCm": "enable"},
        ),
        (
            {"rails": [1]},
            "InfiniBand",
            {"verbsRdma": "enable", "verbsPorts": "mlx5_1/1/0", "verbsGPUDirectStorage": "enable"},
        ),
    ],
)
def test_a_node_has_the_ports_of_its_rails(changes, link_layer, settings):
    chosen = plan.ports(wanted(**changes), "n1", nodes(link_layer=link_layer)["n1"])
    assert plan.settings(wanted(**changes), chosen) == settings


def test_a_node_without_a_wanted_rail_is_refused():
    with pytest.raises(ScaleError) as error:
        plan.inventory(wanted(rails=[0, 5]), nodes())
    assert str(error.value) == Mentions("n1", "5")
    with pytest.raises(ScaleError):
        plan.inventory(wanted(), nodes(devices=0))
