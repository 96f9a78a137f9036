# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The path hop by hop: settings that hold, settings that cannot be read, and buffers that wait for each other."""

from __future__ import annotations

from dataclasses import replace

import pytest
from followed_path import FABRIC, GOAL, POLICY, QOS, SEEN, START, app, checked, claimed, first_fault, host, port, site
from hypothesis import given
from messages import Mentions
from plain_system import PLAIN
from roce_path import at
from switches import policies as any_policy

from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.model.links import Cabling, End, buffer_cycle
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.model.qos import Nic, Switch
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.path import switch_checks
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.path.follow import (
    Checker,
    ReadBack,
    claims,
    deadlock,
    follow,
    survey,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.policy.policy import LOSSLESS
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.switch.registry import SYSTEMS


def test_a_path_that_matches_the_policy_has_no_fault():
    parts = checked(POLICY, FABRIC, SEEN)
    assert first_fault(parts) is None
    claims_made = claims(parts, "test")
    assert all(claim.holds for claim in claims_made)
    places = [part.where for part in parts]
    # The parts are in the order of the packets' path over both spines, and then of the CNP's path back.
    order = [
        *("gpu1 NCCL", "gpu1 mlx5_0", "leaf1 h1, in", "leaf1 u1, out", "leaf1 u2, out", "spine1 leaf1, in"),
        *("spine2 leaf2, out", "leaf2 u1, in", "leaf2 h1, out", "gpu2 mlx5_0", "leaf2 h1, in", "leaf1 h1, out"),
    ]
    assert [places.index(place) for place in order] == sorted(places.index(place) for place in order)
    assert len({(part.layer, part.where) for part in parts}) == len(parts)


@pytest.mark.parametrize(("planned", "seen", "short"), [(5, 0, True), (41, 40, True), (5, 40, False), (5, None, True)])
def test_a_configured_cable_shorter_than_planned_is_a_headroom_fault(planned, seen, short):
    def found(reasons):
        port_qos, wanted = replace(QOS, cable_m=seen), replace(QOS, cable_m=planned)
        return [
            finding.claim for finding in switch_checks.ingress(port_qos, POLICY.classes[0], POLICY, reasons, wanted)
        ]

    assert found({}) == [f"headroom is for a cable of {planned} m"] * short
    # If the switch's configuration has no cable length, its headroom cannot be read.
    assert found({"cable_m": "the configuration has no cable length"}) == found({}) * (seen is not None)


# Settings that cannot be read on some NICs: the change, the setting with the reason, and the claim without a result.
NOT_TO_BE_READ = {
    "a driver without NP": ({"notification": None}, "notification", "the notification point of priority 3 is on"),
    "a driver without RP": ({"reaction": None}, "reaction", "the reaction point of priority 3 is on"),
    "a driver without CNPs' DSCP": ({"cnp_dscp": None}, "cnp_dscp", "CNPs leave with DSCP 48"),
    "a driver without DCBX": ({"dcbx_by_host": None}, "dcbx_by_host", "DCBX is the host's"),
    "a driver without buffers": (
        {"priority_to_buffer": (None,) * 8},
        "priority_to_buffer",
        "priority 3 has an ingress buffer of its own",
    ),
    "buffers that are left to the driver": (
        {"priority_to_buffer": (0,) * 8},
        "own_buffer",
        "priority 3 has an ingress buffer of its own",
    ),
}


@pytest.mark.parametrize("name", NOT_TO_BE_READ)
def test_settings_that_a_nic_cannot_show_neither_hold_nor_fail(name):
    change, setting, claim_text = NOT_TO_BE_READ[name]
    for name in ("gpu1", "gpu2"):
        seen = host(SEEN, name, {setting: "its driver has none"}, **change)
        surveyed = list(survey(FABRIC, Checker(POLICY, POLICY.classes[0], seen)))
        assert first_fault(surveyed) is None
        assert {(claim.claim, claim.seen, claim.reason) for claim in claimed(surveyed, None)} == {
            (f"{name} mlx5_0: {claim_text}", None, "its driver has none")
        }


@pytest.mark.parametrize("setting", ["trust", "priority_to_class", "pfc"])
def test_a_physical_function_without_required_settings_fails_for_any_reason(setting):
    nothing = {"trust": None, "priority_to_class": (None,) * 8, "pfc": ()}[setting]
    seen = host(SEEN, "gpu1", {setting: "neither dcb nor mlnx_qos is installed"}, **{setting: nothing})
    fault = first_fault(checked(POLICY, FABRIC, seen))
    assert fault.claim.startswith("gpu1 mlx5_0: ")
    assert fault.reason.endswith(": neither dcb nor mlnx_qos is installed")


def test_port_settings_of_a_vf_are_reported_as_unseen():
    reason = "it is a VF, and the port is its physical function's"
    cannot = dict.fromkeys(("trust", "pfc", "notification", "reaction", "cnp_dscp", "dcbx_by_host"), reason)
    bare = Nic("mlx5_0", "eth0", is_vf=True, cm_tos=106, ip_mtu_bytes=9000)
    changes = {
        nic_field: getattr(bare, nic_field)
        for nic_field in ("trust", "notification", "reaction", "cnp_dscp", "may_mark")
    }
    seen = host(SEEN, "gpu1", cannot, is_vf=True, dcbx_by_host=None, pfc=(), **changes)
    parts = checked(POLICY, FABRIC, seen)
    assert first_fault(parts) is None
    assert [(claim.claim, claim.reason) for claim in claimed(parts, None)] == [
        (
            "gpu1 mlx5_0: this function's packets keep the DSCP that is set",
            "a guest does not see what the physical function of its VF trusts",
        ),
        ("gpu1 mlx5_0: its port has the policy", reason),
        ("gpu1 mlx5_0: the reaction point of priority 3 is on", reason),
    ]


def test_settings_that_a_switch_system_does_not_show_neither_hold_nor_fail(monkeypatch):
    reasons = {"headroom": "sized by itself", "watchdog": "always on", "ip_mtu_bytes": "fixed", "ecmp_fields": "fixed"}
    monkeypatch.setitem(SYSTEMS, "any", replace(PLAIN, not_held=reasons))
    bare = replace(QOS, headroom=(None,) * 8, watchdog=None, ip_mtu_bytes=None)
    leaf = replace(SEEN.switches["leaf1"], ports=dict.fromkeys(SEEN.switches["leaf1"].ports, bare), ecmp_fields=None)
    parts = checked(POLICY, FABRIC, replace(SEEN, switches={**SEEN.switches, "leaf1": leaf}))
    assert first_fault(parts) is None
    assert [(*claim.claim.split(": "), claim.reason) for claim in claimed(parts, None)] == [
        ("leaf1", "ECMP's hash takes the UDP source port", "fixed"),
        ("leaf1 h1, in", "priority 3 has headroom", "sized by itself"),
        ("leaf1 h1, in", "IP packets of 9000 bytes pass", "fixed"),
        ("leaf1 u1, out", "the PFC watchdog is on", "always on"),
        ("leaf1 u1, out", "IP packets of 9000 bytes pass", "fixed"),
        ("leaf1 u2, out", "the PFC watchdog is on", "always on"),
        ("leaf1 u2, out", "IP packets of 9000 bytes pass", "fixed"),
    ]


def test_a_missing_number_of_queue_pairs_is_reported_as_unseen():
    parts = checked(POLICY, FABRIC, app(SEEN, queue_pairs=None))
    assert first_fault(parts) is None
    assert [claim.reason for claim in claimed(parts, None)] == ["how many queue pairs NCCL uses was not given"]


def test_a_cable_with_an_unread_end_is_not_checked():
    unread = replace(SEEN, switches={name: leaf for name, leaf in SEEN.switches.items() if name != "spine2"})
    cables = [[part.where for part in checked(POLICY, FABRIC, seen) if " - " in part.where] for seen in (SEEN, unread)]
    assert [place for place in cables[0] if "spine2" not in place] == cables[1] != cables[0]


def test_a_switch_that_classifies_at_egress_is_checked_at_its_egress_ports():
    leaf = replace(SEEN.switches["leaf1"], system="linux")
    seen = replace(SEEN, switches={**SEEN.switches, "leaf1": leaf})
    assert first_fault(checked(POLICY, FABRIC, seen)) is None
    for dscp, egress, fact in ((26, "u2", "DSCP 26 is traffic class 3"), (48, "h1", "DSCP 48 of CNPs")):
        dscp_to_class = at(QOS.dscp_to_class, dscp, 0)
        parts = checked(POLICY, FABRIC, port(seen, "leaf1", egress, dscp_to_class=dscp_to_class))
        (fault,) = claimed(parts, False)
        assert (fault.wanted, fault.seen) == (QOS.dscp_to_class[dscp], 0)
        assert fault.claim == Mentions(f"leaf1 {egress}, out", fact)
    # Packets that enter by h1 leave by the other ports.
    unheeded = port(seen, "leaf1", "h1", dscp_to_class=at(QOS.dscp_to_class, 26, 0))
    assert first_fault(checked(POLICY, FABRIC, unheeded)) is None
    surveyed = survey(FABRIC, Checker(POLICY, POLICY.classes[0], unheeded))
    assert first_fault(surveyed).claim.startswith("leaf1 h1, out: ")


def test_a_survey_of_a_correct_fabric_finds_no_fault():
    parts = list(survey(FABRIC, Checker(POLICY, POLICY.classes[0], SEEN)))
    assert first_fault(parts) is None
    assert {part.layer for part in parts} == {"application", "sender", "switch", "receiver", "cnp"}


@given(any_policy())
def test_any_policy_holds_if_all_devices_have_it(given_policy):
    policy, fabric, seen = site(given_policy)
    for rdma in policy.classes[:1]:
        checker = Checker(policy, rdma, seen)
        assert first_fault(follow(fabric, START, GOAL, checker)) is None
        assert first_fault(survey(fabric, checker)) is None


def test_pfc_for_a_lossy_class_is_a_fault():
    policy, fabric, seen = site({"classes": {"roce": {"mode": "lossy"}}})
    fault = first_fault(checked(policy, fabric, port(seen, "leaf1", "h1", pfc=(3,))))
    assert fault.claim == Mentions("leaf1 h1, in", "PFC is off for priority 3, whose class is lossy")


def ring(size):
    return Cabling(
        [
            *((End(f"s{number}", "right"), End(f"s{(number + 1) % size}", "left")) for number in range(size)),
            *((End(f"h{number}", "mlx5_0"), End(f"s{number}", "host")) for number in range(size)),
        ],
        [f"s{number}" for number in range(size)],
    )


def test_a_cycle_of_buffers_is_found_in_a_ring_of_five():
    assert buffer_cycle(FABRIC) == []
    # In a ring of three, every path has one link, and no buffer waits for another.
    assert buffer_cycle(ring(3)) == []
    cycle = buffer_cycle(ring(5))
    assert len(cycle) == 5
    assert all(waiting_link[1] == following[0] for waiting_link, following in zip(cycle, [*cycle[1:], cycle[0]]))
    broken = {link: link != cycle[0] for link in cycle}
    assert buffer_cycle(ring(5), broken) == []


def test_a_ring_is_a_fault_only_with_pfc():
    fabric = ring(5)
    switches = {name: Switch(name, "any", dict.fromkeys(("left", "right"), QOS)) for name in fabric.switches}
    seen = ReadBack({}, switches)
    part = deadlock(fabric, Checker(POLICY, POLICY.classes[0], seen))
    assert "watchdog" in part.faults[0].reason
    assert (
        part.faults[0].seen.count("s0") == 2
        or part.faults[0].seen.split(" -> ")[0] == part.faults[0].seen.split(" -> ")[-1]
    )
    lossy = {
        name: replace(switch, ports={port: replace(qos, pfc=()) for port, qos in switch.ports.items()})
        for name, switch in switches.items()
    }
    assert deadlock(fabric, Checker(POLICY, POLICY.classes[0], replace(seen, switches=lossy))).findings == ()


def test_the_path_is_checked_for_each_class_of_a_policy():
    two = {"classes": {"roce": {}, "storage": {"dscp": 10, "traffic_class": 4, "bandwidth_percent": 20}}}
    policy, fabric, seen = site(two)
    assert [rdma_class.mode for rdma_class in policy.classes] == [LOSSLESS, LOSSLESS]
    second = app(seen, tos=policy.classes[1].tos)
    for at_class in (0, 1):
        parts = checked(policy, fabric, second, at_class)
        assert first_fault(parts) is None
        assert ("gpu1 NCCL" in [part.where for part in parts]) == (at_class == 1)
    # An application that belongs to no class is checked for each class.
    assert first_fault(checked(policy, fabric, app(seen, tos=0), 1)).claim.startswith("gpu1 NCCL: ")
