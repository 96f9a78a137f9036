# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The build host receives what only the controller has: the script of the first stage and Ansible's configuration."""

from __future__ import annotations

import pytest
from ansible import constants

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
