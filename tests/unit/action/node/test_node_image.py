# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The build host receives what only the controller has: the script of the first stage and Ansible's configuration."""

from __future__ import annotations

import pytest
from ansible import constants
from ansible.errors import AnsibleActionFail
from messages import Mentions

from ansible_collections.sailloft.fleet.plugins.action import node_image

CONFIGURATION = "/srv/site/ansible.cfg"


@pytest.fixture
def arguments(make, monkeypatch):
    """Return a function that returns the module's arguments over a connection, with a configuration or none."""

    def passed(transport="ssh", configuration=CONFIGURATION, **given):
        monkeypatch.setattr(constants, "CONFIG_FILE", configuration)
        action = make(node_image, **given)
        action._connection.transport = transport
        return action.arguments()

    return passed


@pytest.mark.parametrize("given", [{}, {"first_stage": ""}])
def test_the_script_of_the_first_stage_is_passed(arguments, given):
    passed = arguments(name="gpu-node", **given)
    assert passed == {"name": "gpu-node", "first_stage": passed["first_stage"]}
    assert passed["first_stage"].startswith("#!/bin/sh\n")


def test_a_given_script_is_kept(arguments):
    assert arguments(first_stage="#!/bin/dash\n") == {"first_stage": "#!/bin/dash\n"}


def test_a_local_build_uses_the_configuration_of_the_play(arguments):
    assert arguments("local", first_stage="x") == {"first_stage": "x", "ansible_configuration": CONFIGURATION}
    assert arguments("local", None, first_stage="x") == {"first_stage": "x"}
    given = {"first_stage": "x", "ansible_configuration": "/other.cfg"}
    assert arguments("local", **given) == given


@pytest.mark.parametrize(
    ("role", "name", "near"),
    [
        ("storage_client", "storage_client_nsf", "storage_client_nfs"),
        ("storage_client", "storge_client_nfs", "storge_client_nfs"),
        ("storage_client", "storage_client_of_the_site", "storage_client"),
        ("gpu_node", "gpu_node_mig_of", "gpu_node_mig_off"),
    ],
)
def test_a_misspelt_variable_of_a_layers_role_is_refused_before_the_build(arguments, role, name, near):
    layers = {"base": {}, "gpu": {"roles": [{"name": f"sailloft.fleet.{role}", "vars": {name: []}}]}}
    with pytest.raises(AnsibleActionFail) as refused:
        arguments(layers=layers)
    assert str(refused.value) == Mentions("layer gpu", role, name, near)


@pytest.mark.parametrize(
    "roles",
    [
        [{"name": "sailloft.fleet.storage_client", "vars": {"storage_client_nfs": [], "packages_install": False}}],
        # Of another role, of the site, of other collections, and what the module refuses.
        [{"name": "sailloft.fleet.storage_client", "vars": {"gpu_node_mig_off": True, "site_storage": 1}}],
        [{"name": "their.own.storage_client", "vars": {"storage_client_nsf": []}}],
        [{"name": "sailloft.fleet.storage_client"}, "sailloft.fleet.gpu_node", {"name": 7, "vars": []}],
        {"name": "sailloft.fleet.storage_client"},
    ],
)
def test_other_variables_and_forms_are_passed_to_the_build_host(arguments, roles):
    for layers in ({"gpu": {"roles": roles}}, {"gpu": roles}, roles):
        assert arguments(layers=layers)["layers"] == layers
