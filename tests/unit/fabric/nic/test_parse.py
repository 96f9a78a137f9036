# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""NICs are built from what roce_nic_info returns, and other data is refused."""

from __future__ import annotations

import json
from dataclasses import asdict, replace

import pytest
from messages import raises
from roce_path import nic

from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.model.errors import FabricError
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.model.qos import Nic
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.nic.parse import nic_of, seen_of
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.nic.seen import Seen
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.policy.policy import read_policy

NIC = nic(read_policy({}))
DATA = json.loads(json.dumps(asdict(NIC)))


def test_a_nic_is_read_as_it_was_returned():
    assert nic_of("gpu1", {**DATA, "driver": "mlx5_core"}) == NIC
    assert nic_of("gpu1", {"name": "mlx5_0", "interface": "eth0", "queues": [None] * 8}) == Nic("mlx5_0", "eth0")


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
    assert first == Seen(NIC, cannot={"pfc": "no such part"})
    assert seen_of("gpu2", {**DATA, "cannot": {"pfc": "no such part"}}, nics) is first
    assert seen_of("gpu2", DATA, nics) == Seen(NIC)
    shared = seen_of("gpu2", {**DATA, "cannot": {"pfc": "no such part"}}, nics, "it has no cable_m")
    assert shared.cannot == {"pfc": "no such part", "own_buffer": "it has no cable_m"}
    assert len(nics) == 3


NO_NIC = "not a NIC as roce_nic_info returns it"
REMEDY = "give its result unchanged"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"name": None}, "gpu1: name is missing; set it"),
        ({"interface": None}, "gpu1: interface is missing; set it"),
        ({"queues": [{"speed": 1}]}, None),
        ({"queues": [1]}, None),
        ({"queues": 1}, None),
        ({"queues": []}, f"gpu1: {NO_NIC} (queues does not have 8 entries); {REMEDY}"),
        ({"queues": None}, f"gpu1: {NO_NIC} (queues does not have 8 entries); {REMEDY}"),
        ({"dscp_to_priority": [0] * 63}, f"gpu1: {NO_NIC} (dscp_to_priority does not have 64 entries); {REMEDY}"),
        ({"dscp_to_priority": 3}, f"gpu1: {NO_NIC} (dscp_to_priority does not have 64 entries); {REMEDY}"),
        ({"priority_to_class": [0] * 9}, f"gpu1: {NO_NIC} (priority_to_class does not have 8 entries); {REMEDY}"),
        ({"buffer_bytes": [0] * 7}, f"gpu1: {NO_NIC} (buffer_bytes does not have 8 entries); {REMEDY}"),
    ],
)
def test_other_data_is_refused(changes, message):
    with pytest.raises(FabricError) as refused:
        nic_of("gpu1", {**DATA, **changes})
    if message is None:
        assert str(refused.value).startswith(f"gpu1: {NO_NIC} (")
        assert str(refused.value).endswith(f"); {REMEDY}")
    else:
        assert str(refused.value) == message


@pytest.mark.parametrize("cannot", [["pfc"], {"pfc": 1}, {"pfc": ""}, {"trust": "why", "pfc": ""}])
def test_reasons_that_are_no_text_are_refused(cannot):
    with raises(FabricError, "gpu1", "'cannot'", NO_NIC):
        seen_of("gpu1", {**DATA, "cannot": cannot}, {})
