"""Readers of SONiC configurations accept or refuse any broken configuration, and raise no other exception."""

from __future__ import annotations

import copy
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sonic_configs import PORTS, default_config, dynamic_config, with_brackets
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
OTHER_TABLES = {
    "ACL_TABLE": {"T": {"type": "L3", "ports": ["Ethernet0"]}},
    "ACL_RULE": {"T|R": {"DSCP_ACTION": "0"}},
    "PBH_TABLE": {"T": {"interface_list": ["Ethernet0"]}},
    "PBH_RULE": {"T|R": {"hash": "H"}},
    "PORTCHANNEL": {"PortChannel1": {"mtu": "9100"}},
    "PORTCHANNEL_MEMBER": {"PortChannel1|Ethernet0": {}},
    "BUFFER_PORT_INGRESS_PROFILE_LIST": {"Ethernet0": {"profile_list": ["ingress_lossy_profile"]}},
    "SWITCH_HASH": {"GLOBAL": {"ecmp_hash": ["DST_IP"], "lag_hash": "DST_IP"}},
}
FORMS = {
    "new": default_config,
    "old": lambda: with_brackets(default_config()),
    "computed": dynamic_config,
    "others": lambda: {**default_config(), **OTHER_TABLES},
}
WANTED_DELL = switch("dell_sonic", ["Eth1/1"])
DELL = {
    **json.loads(dell_sonic.render(WANTED_DELL)),
    "lag_interfaces": [{"name": "PortChannel1", "members": {"interfaces": [{"member": "Eth1/1"}]}}],
    "fbs_policies": [{"policy_name": "P", "sections": [{"class": "C", "qos": {"output_queue_index": 1}}]}],
}
DELL["sonic_interfaces"]["config"][0].update(speed="SPEED_400GB", auto_negotiate=True, advertised_speed=["400000"])
DELL["sonic_qos_buffer"]["config"]["buffer_profiles"] = [
    {"name": "pg_lossless_400000_40m_profile", "pool": "ingress_lossless_pool", "pause_threshold": 200000}
]
DELL["sonic_qos_maps"]["config"]["pfc_priority_pg_maps"] = [{"name": "A", "entries": [{"dot1p": 3, "pg_index": 3}]}]
DELL["sonic_qos_interfaces"]["config"][0]["qos_maps"]["pfc_priority_pg"] = "A"


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


@pytest.mark.parametrize("form", FORMS)
@given(data=st.data())
def test_a_broken_sonic_configuration_is_read_or_refused(form, data):
    text, whole = broken(FORMS[form](), data), json.dumps(FORMS[form]())
    assert refusal(sonic.parse, text, "leaf1").startswith("leaf1: ")
    assert refusal(sonic.remediation, text, switch("sonic", list(PORTS))).startswith("leaf1: ")
    assert refusal(sonic.restoration, text, whole, "leaf1").startswith("leaf1: ")
    assert refusal(sonic.restoration, whole, text, "leaf1").startswith("leaf1: ")


@given(data=st.data())
def test_a_broken_dell_sonic_configuration_is_read_or_refused(data):
    text = broken(DELL, data)
    assert refusal(dell_sonic.parse, text, "leaf1").startswith("leaf1: ")
    assert refusal(dell_sonic.remediation, text, WANTED_DELL).startswith("leaf1: ")
    for backup, running in ((text, "{}"), ("{}", text), (text, json.dumps(DELL))):
        assert refusal(dell_sonic.restoration, backup, running, "leaf1").startswith("leaf1: ")


def reshaped(config, shape):
    """Yield ``config`` with each object and list in another shape; of a list's elements only the first."""
    for place in places(config):
        changed = copy.deepcopy(config)
        *holders, last = ["", *place]
        holder = {"": changed}
        for key in holders:
            holder = holder[key]
        if place and isinstance(holder[last], (dict, list)) and {0} >= {key for key in place if isinstance(key, int)}:
            holder[last] = shape
            yield place, json.dumps(changed)


@pytest.mark.parametrize("shape", ["x", None, [], {"x": {}}, [None], [["x"]]], ids=repr)
def test_each_setting_in_another_shape_is_read_or_refused(shape):
    for place, text in reshaped({**default_config(PORTS[:1]), **OTHER_TABLES}, shape):
        assert refusal(sonic.parse, text, "leaf1").startswith("leaf1: "), place
        assert refusal(sonic.remediation, text, switch("sonic", PORTS[:1])).startswith("leaf1: "), place
    for place, text in reshaped(DELL, shape):
        assert refusal(dell_sonic.parse, text, "leaf1").startswith("leaf1: "), place
        for backup, running in ((text, "{}"), (json.dumps(DELL), text)):
            assert refusal(dell_sonic.restoration, backup, running, "leaf1").startswith("leaf1: "), place
