# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""One wrong setting of a NIC in a correct fabric is named by the path and the proof: every field of Nic has a row."""

from __future__ import annotations

from dataclasses import fields, replace

import pytest
from messages import Mentions
from proof_requests import params
from roce_path import at, nic, reading

from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.model.qos import Nic, Queue
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.nic.plan import DESCRIBES
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.path import report
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.policy.policy import read_policy
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.proof import prove

NIC = nic(read_policy({}))
TWO = {"classes": {"roce": {}, "storage": {"dscp": 10, "traffic_class": 4, "bandwidth_percent": 20}}}
CHANGES = [
    ("trust", "pcp"),
    ("dscp_to_priority", at(NIC.dscp_to_priority, 26, 0)),
    ("dscp_to_priority", at(NIC.dscp_to_priority, 0, 3)),
    ("dscp_to_priority", at(NIC.dscp_to_priority, 48, 3)),
    ("dscp_to_priority", at(NIC.dscp_to_priority, 63, None)),
    ("priority_to_class", at(NIC.priority_to_class, 1, 3)),
    ("priority_to_class", at(NIC.priority_to_class, 6, 0)),
    ("queues", at(NIC.queues, 6, Queue(False, 0))),
    ("queues", at(NIC.queues, 0, Queue(True))),
    ("pfc", (3, 6)),
    ("notification", (3, 4)),
    ("reaction", (0, 3)),
    ("cnp_dscp", 26),
    ("cm_tos", 104),
    ("forced_tos", 104),
    ("ip_mtu_bytes", 4200),
    ("dcbx_by_host", False),
    ("priority_to_buffer", at(NIC.priority_to_buffer, 1, 1)),
    ("priority_to_buffer", at(NIC.priority_to_buffer, 3, 2)),
    ("buffer_bytes", at(NIC.buffer_bytes, 1, 4096)),
    ("buffer_bytes", at(NIC.buffer_bytes, 0, 4096)),
    ("cable_m", 1),
    ("cable_m", None),
]


def request(changed, policy=None, inventory=None):
    """Return the arguments for a correct fabric in which gpu1 has the NIC ``changed``."""
    asked = {**params("eos", policy), "paths": [], "rdma_class": None, "thresholds": True, "hosts": inventory}
    asked["nics"]["gpu1"] = {"mlx5_0": reading(changed)}
    return asked


def test_each_setting_has_a_row():
    assert {name for name, _value in CHANGES} == {field.name for field in fields(Nic)} - {*DESCRIBES}


@pytest.mark.parametrize(("name", "value"), CHANGES)
def test_a_wrong_setting_is_named_by_the_path_and_the_proof(name, value):
    asked = request(replace(NIC, **{name: value}))
    ends = [{"host": host, "nic": "mlx5_0"} for host in ("gpu1", "gpu2")]
    both_ways = [{"source": ends[0], "destination": ends[1]}, {"source": ends[1], "destination": ends[0]}]
    for paths in ([], both_ways):
        assert {fault["where"] for fault in report.checked({**asked, "paths": paths})["faults"]} == {"gpu1 mlx5_0"}
    failed = [claim.claim for claim in prove(asked)[0].claims if claim.holds is False]
    assert failed
    assert all(claim.startswith("gpu1 mlx5_0: ") for claim in failed)


def test_each_difference_from_the_plan_is_named_with_its_values():
    changed = replace(
        NIC,
        dscp_to_priority=at(NIC.dscp_to_priority, 0, 3),
        buffer_bytes=at(NIC.buffer_bytes, 1, 4096),
        queues=at(NIC.queues, 6, Queue(False, 0)),
        cable_m=1,
    )
    faults = report.checked(request(changed))["faults"]
    assert {fault["what"]: (fault["wanted"], fault["seen"]) for fault in faults} == {
        "dscp_to_priority": ({"priority 0": "DSCP 0"}, {"priority 3": "DSCP 0"}),
        "buffer_bytes": ({"1": 159744}, {"1": 4096}),
        "queues": ({"6": "strict"}, {"6": "0%"}),
        "cable_m": (5, 1),
    }


def test_a_difference_is_named_once_whatever_the_number_of_classes():
    policy = read_policy(TWO)
    assert report.checked(request(nic(policy), TWO))["faults"] == []
    changed = replace(nic(policy), buffer_bytes=at(nic(policy).buffer_bytes, 2, 4096))
    where = [(fault["where"], fault["what"]) for fault in report.checked(request(changed, TWO))["faults"]]
    assert where == [("gpu1 mlx5_0", "buffer_bytes")] * 2  # as sender and as receiver


@pytest.mark.parametrize(
    ("settings", "wanted"),
    [
        ({"speed_gbit_s": 400, "cable_m": 5}, None),
        ({"speed_gbit_s": 400, "cable_m": 40}, {"1": 192512}),
        ({"speed_gbit_s": 100, "cable_m": 5}, {"1": 65536}),
    ],
)
def test_buffers_are_those_of_the_inventorys_speed_and_cable(settings, wanted):
    faults = report.checked(request(NIC, inventory={"gpu1": {"mlx5_0": settings}}))["faults"]
    assert [fault["wanted"] for fault in faults if fault["what"] == "buffer_bytes"] == ([wanted] * 2 if wanted else [])


@pytest.mark.parametrize("buffer_bytes", [NIC.buffer_bytes, at(NIC.buffer_bytes, 1, 4096)])
def test_a_buffer_without_a_planned_size_is_not_held(buffer_bytes):
    changed = replace(NIC, buffer_bytes=buffer_bytes, cable_m=1)
    result = report.checked(request(changed, inventory={"gpu1": {"mlx5_0": {"speed_gbit_s": 400}}}))
    assert result["faults"] == []
    assert [finding["reason"] for finding in result["unseen"] if finding["where"] == "gpu1 mlx5_0"] == [
        Mentions("cable_m")
    ]


def test_queues_that_no_class_uses_are_not_compared():
    """A NIC with fewer than eight traffic classes has no further ones."""
    assert report.checked(request(replace(NIC, queues=(*NIC.queues[:7], None))))["faults"] == []


def test_settings_that_no_nic_can_have_are_named_with_their_host():
    asked = request(NIC, inventory={"gpu1": {"mlx5_0": {"speed_gbit_s": 400, "cable_m": 0}}})
    fault = report.checked(asked)["first_fault"]
    assert (fault["where"], fault["seen"]) == ("gpu1", Mentions("mlx5_0", "cable_m"))
