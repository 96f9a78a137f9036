# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A blueprint is written to a simulated NetBox (tests/support/site/netbox_api.py) once."""

from __future__ import annotations

import netbox_api
import pytest
import sites
from ansible.errors import AnsibleActionFail, AnsibleError

from ansible_collections.sailloft.fleet.plugins.action import netbox_write

BLUEPRINT = str(sites.PROJECT / "inventories/small/blueprint.yml")


@pytest.fixture
def arguments():
    """Yield the arguments for an empty NetBox that is served on loopback."""
    with netbox_api.served(netbox_api.NetBox()) as url:
        yield {"netbox_url": url, "netbox_token": "token", "blueprint": BLUEPRINT}


def test_a_blueprint_is_written_once(make, arguments):
    planned = make(netbox_write, check_mode=True, **arguments).run(task_vars={})
    first = make(netbox_write, **arguments).run(task_vars={})
    second = make(netbox_write, **arguments).run(task_vars={})
    assert (planned["changed"], first["changed"], second["changed"]) == (True, True, False)
    assert "diff" not in first


def test_the_difference_is_returned_if_it_is_wanted(make, arguments):
    found = make(netbox_write, check_mode=True, diff=True, **arguments).run(task_vars={})
    assert "gpu01" in str(found["diff"])


def test_the_default_manufacturer_is_various(make, arguments):
    found = make(netbox_write, diff=True, **arguments).run(task_vars={})
    assert "various" in str(found["diff"])
    other = make(netbox_write, diff=True, manufacturer="Site", **arguments).run(task_vars={})
    assert "Site" in str(other["diff"])


@pytest.mark.parametrize("missing", ["blueprint", "netbox_url", "netbox_token"])
def test_an_argument_that_is_missing_is_named(make, arguments, missing):
    del arguments[missing]
    with pytest.raises(AnsibleError, match=f"missing required arguments: {missing}"):
        make(netbox_write, **arguments).run(task_vars={})


def test_a_blueprint_that_does_not_exist_is_named(make, arguments):
    with pytest.raises(AnsibleActionFail, match=r"/nowhere/blueprint\.yml"):
        make(netbox_write, **{**arguments, "blueprint": "/nowhere/blueprint.yml"}).run(task_vars={})
