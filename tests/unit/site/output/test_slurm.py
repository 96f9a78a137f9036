# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Slurm's tree."""

from __future__ import annotations

import sites

from ansible_collections.sailloft.fleet.plugins.module_utils.site.output.slurm import compute_fabric, topology_conf


def test_leaves_that_nodes_share_are_one_switch():
    assert topology_conf(sites.site(), "fabric").splitlines() == [
        "# Fabric fabric of test",
        "SwitchName=layer1-1 Nodes=gpu[01-02]",
        "SwitchName=layer1-2 Nodes=gpu[03-04]",
        "SwitchName=layer2-1 Switches=layer1-[1-2]",
    ]


def test_rails_pods_and_cores_are_three_layers_of_switches():
    site = sites.example("blue_vela")
    lines = topology_conf(site, compute_fabric(site)).splitlines()
    assert lines[1] == "SwitchName=layer1-1 Nodes=node-[0001-0032]"
    assert lines[17:] == [
        "SwitchName=layer2-1 Switches=layer1-[1-4]",
        "SwitchName=layer2-2 Switches=layer1-[5-8]",
        "SwitchName=layer2-3 Switches=layer1-[9-12]",
        "SwitchName=layer2-4 Switches=layer1-[13-16]",
        "SwitchName=layer3-1 Switches=layer2-[1-4]",
    ]


def test_a_site_with_one_layer_has_one_switch():
    assert topology_conf(sites.example("small"), "fabric").splitlines()[1:] == ["SwitchName=layer1-1 Nodes=gpu[01-04]"]
    assert compute_fabric(sites.site(links=None, checks=None)) == ""
