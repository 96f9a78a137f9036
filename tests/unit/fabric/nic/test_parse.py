# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""NICs are built from what roce_nic_info returns, and other data is refused."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import asdict, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from messages import raises
from roce_path import nic, reading

from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.model.errors import FabricError
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.model.qos import Nic, Queue
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.nic.parse import nic_of, reading_of, seen_of
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.nic.seen import SeenNic, VirtualFunction
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.policy.policy import read_policy
from ansible_collections.sailloft.fleet.plugins.module_utils.nic.ensure import shown

NIC = nic(read_policy({}))
DATA = reading(NIC)
VF = {"index": 3, "mac": "02:00:00:00:00:01", "vlan": 0, "qos": 0, "mode": "legacy", "representor": None}


def test_a_nic_is_read_as_it_was_returned():
    assert nic_of("gpu1", {**DATA, "driver": "mlx5_core"}) == NIC
    empty = Nic("mlx5_0", "eth0")
    assert nic_of("gpu1", asdict(empty)) == empty
    read = reading_of("gpu1", {**DATA, "vfs": [VF], "uncovered": ["mlx5_1"], "vfs_unread": "no ip"}, {})
    assert (read.seen, read.vfs, read.vfs_unread) == (SeenNic(NIC), (VirtualFunction(**VF),), "no ip")
    assert (read.speed_gbit_s, read.mac, read.uncovered) == (400, None, ("mlx5_1",))


def test_what_roce_nic_info_returns_is_read():
    seen = SeenNic(NIC, None, {"pfc": "no such part"}, speed_gbit_s=400, gids=("RoCE v2, IPv4", None), mac="02::1")
    assert reading_of("gpu1", shown(seen), {}).seen == SeenNic(NIC, cannot=seen.cannot, gids=seen.gids)


def test_equal_nics_share_one_object():
    nics = {}
    first = nic_of("gpu1", DATA, nics)
    assert nic_of("gpu2", dict(DATA), nics) is first
    third = nic_of("gpu3", {**DATA, "ip_mtu_bytes": 1500}, nics)
    assert third == replace(NIC, ip_mtu_bytes=1500)
    assert len(nics) == 2
    assert nic_of("gpu1", DATA) is not nic_of("gpu1", DATA)


def test_the_reasons_for_missing_settings_are_read():
    nics = {}
    first = seen_of("gpu1", {**DATA, "cannot": {"pfc": "no such part"}}, nics)
    assert first == SeenNic(NIC, cannot={"pfc": "no such part"})
    assert seen_of("gpu2", {**DATA, "cannot": {"pfc": "no such part"}, "mac": "02::1"}, nics) is first
    assert seen_of("gpu2", DATA, nics) == SeenNic(NIC)
    shared = seen_of("gpu2", {**DATA, "cannot": {"pfc": "no such part"}}, nics, "it has no cable_m")
    assert shared.cannot == {"pfc": "no such part", "own_buffer": "it has no cable_m"}
    assert len(nics) == 3


ODD = [
    *({name: value} for name in DATA for value in ([-5], {"a": 1}, 1.5, "")),
    *({name: None} for name in ("name", "interface", "is_vf", "pfc", "queues", "buffer_bytes", "cannot", "uncovered")),
    *({name: None} for name in ("vfs", "vfs_unread", "dscp_to_priority", "priority_to_class", "priority_to_buffer")),
    {"speed_gbit_s": "400"},
    {"uncovered": "mlx5_1"},
    {"pfc": ["3"]},
    {"pfc": [8]},
    {"is_vf": 0},
    {"queues": [{"speed": 1}] * 8},
    {"queues": []},
    {"dscp_to_priority": [0] * 63},
    {"priority_to_buffer": [9] * 8},
    {"buffer_bytes": [0] * 7},
    {"cannot": {"pfc": 1}},
    {"cannot": {"trust": "why", "pfc": ""}},
    {"gids": {"0": "RoCE v2"}},
    *({"vfs": vfs} for vfs in ([{"index": 0}], [3], [{**VF, "qos": None}], {"index": 0})),
]
VALID = [{"vfs_unread": ""}, {"mac": ""}]


def test_other_data_is_refused():
    for changes in (changes for changes in ODD if changes not in VALID):
        with raises(FabricError, "gpu1", "roce_nic_info", *changes):
            pytest.fail(f"{changes}: {reading_of('gpu1', {**DATA, **changes}, {})}")


def test_fields_of_a_later_version_are_ignored():
    queues = [{"strict": True, "bandwidth_percent": None, "ecn": None, "weight": 1}] * 8
    later = reading_of("gpu1", {**DATA, "later": 1, "queues": queues, "vfs": [{**VF, "speed": 1}]}, {})
    assert later.vfs == (VirtualFunction(**VF),)
    assert later.seen.nic.queues == (Queue(True),) * 8


@pytest.mark.parametrize("name", DATA)
def test_a_field_that_is_missing_is_refused(name):
    with raises(FabricError, "gpu1", name):
        reading_of("gpu1", {key: value for key, value in DATA.items() if key != name}, {})


@pytest.mark.parametrize("data", [None, 3, "mlx5_0", [DATA]])
def test_what_is_no_dictionary_is_refused(data):
    for read in (nic_of, lambda subject, nics: reading_of(subject, nics, {})):
        with raises(FabricError, "gpu1"):
            read("gpu1", data)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=3),
    lambda items: st.lists(items, max_size=3) | st.dictionaries(st.text(max_size=3), items, max_size=2),
    max_leaves=4,
)


@given(st.dictionaries(st.sampled_from([*DATA]), JSON, min_size=1, max_size=3))
def test_any_data_is_read_or_refused(changes):
    with suppress(FabricError):
        reading_of("gpu1", {**DATA, **changes}, {})
