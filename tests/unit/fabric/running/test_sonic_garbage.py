"""Readers of SONiC configurations accept or refuse any broken configuration, and raise no other exception."""

from __future__ import annotations

import copy
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sonic_configs import PORTS, default_config, with_brackets
from switches import switch

from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.model.errors import FabricError
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.systems import dell_sonic, sonic

ANYTHING = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=3)
    | st.sampled_from(["3-4", "[A|b]", "|"]),
    lambda values: st.lists(values, max_size=2) | st.dictionaries(st.text(max_size=3), values, max_size=2),
    max_leaves=3,
)
DELL = json.loads(dell_sonic.render(switch("dell_sonic", ["Eth1/1"])))


def places(value, path=()):
    yield path
    if isinstance(value, (dict, list)):
        for key, element in value.items() if isinstance(value, dict) else enumerate(value):
            yield from places(element, (*path, key))


def broken(config, data):
    """Return the text of ``config`` with one to three values replaced by anything, or keys by any text."""
    config = copy.deepcopy(config)
    for _time in range(data.draw(st.integers(1, 3))):
        path = data.draw(st.sampled_from([place for place in places(config) if place]))
        holder = config
        for key in path[:-1]:
            holder = holder[key]
        if isinstance(holder, dict) and data.draw(st.booleans()):
            holder[data.draw(st.text(max_size=4) | st.sampled_from(["Ethernet0|9-3", "a|b|c", "|", ","]))] = holder.pop(
                path[-1]
            )
        else:
            holder[path[-1]] = data.draw(ANYTHING)
    return json.dumps(config)


def refusal(call, *arguments):
    """Return the message of a refused call, or the prefix of such messages if the call succeeds."""
    try:
        call(*arguments)
    except FabricError as error:
        return str(error)
    return "leaf1: "


@pytest.mark.parametrize("form", [default_config, lambda: with_brackets(default_config())], ids=["new", "old"])
@given(data=st.data())
@settings(deadline=None, max_examples=150)
def test_a_broken_sonic_configuration_is_read_or_refused(form, data):
    text = broken(form(), data)
    assert refusal(sonic.parse, text, "leaf1").startswith("leaf1: ")
    assert refusal(sonic.remediation, text, switch("sonic", list(PORTS))).startswith("leaf1: ")


@given(data=st.data())
@settings(deadline=None, max_examples=300)
def test_a_broken_dell_sonic_configuration_is_read_or_refused(data):
    assert refusal(dell_sonic.parse, broken(DELL, data), "leaf1").startswith("leaf1: ")
