# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""roce_policy: its defaults, its refusals, and the property that no accepted policy is ambiguous."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from switches import policies

from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.model.errors import FabricError
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.model.qos import CLASSES, ECMP_FIELDS, Ecn, Watchdog
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.policy.policy import Policy, read_policy

TWO = {"roce": {}, "storage": {"dscp": 20, "traffic_class": 4, "bandwidth_percent": 20}}


@pytest.mark.parametrize("nothing", [None, {}, {"classes": None, "cnp": None, "pfc_watchdog": None}])
def test_an_empty_policy_has_the_default_settings(nothing):
    policy = read_policy(nothing)
    (roce,) = policy.classes
    assert (roce.name, roce.mode, roce.dscp, roce.ect, roce.tos) == ("roce", "lossless", 26, 2, 106)
    assert (roce.traffic_class, roce.priority, roce.queue, roce.bandwidth_percent, roce.ecn) == (3, 3, 3, 50, None)
    cnp, default = policy.cnp, policy.default
    assert (cnp.dscp, cnp.traffic_class, cnp.priority, cnp.queue) == (48, 6, 6, 6)
    assert (default.traffic_class, default.priority, default.queue, default.bandwidth_percent) == (0, 0, 0, 50)
    assert (policy.ip_mtu_bytes, policy.switch_ip_mtu_bytes, policy.path_mtu_bytes) == (9000, 9100, 4096)
    assert policy.watchdog == Watchdog(200, 200, "drop")
    assert policy.ecmp_fields == tuple(sorted(ECMP_FIELDS))
    assert policy.lossless == (roce,)
    assert policy.dscp_to_class() == tuple({26: 3, 48: 6}.get(dscp, 0) for dscp in range(64))


def test_two_classes_are_read():
    policy = read_policy({"classes": TWO, "default": {"bandwidth_percent": 30}})
    assert [rdma_class.name for rdma_class in policy.classes] == ["roce", "storage"]
    assert (policy.classes[1].priority, policy.classes[1].queue, policy.default.bandwidth_percent) == (4, 4, 30)


def test_a_lossy_policy_has_no_watchdog():
    policy = read_policy({"classes": {"roce": {"mode": "lossy"}}})
    assert policy.watchdog is None
    assert policy.lossless == ()


def test_given_settings_replace_the_defaults():
    policy = read_policy(
        {
            "classes": {
                "roce": {
                    "dscp": 24,
                    "ect": 1,
                    "traffic_class": 5,
                    "priority": 4,
                    "queue": 2,
                    "bandwidth_percent": 60,
                    "ecn": {"minimum_bytes": 1000, "maximum_bytes": 2000, "probability_percent": 5},
                }
            },
            "cnp": {"dscp": 46, "traffic_class": 7, "priority": 1, "queue": 5},
            "default": {"traffic_class": 1, "priority": 0, "queue": 3},
            "mtu_bytes": 4200,
            "switch_mtu_bytes": 9216,
            "path_mtu_bytes": 2048,
            "pfc_watchdog": {"detection_ms": 400, "restoration_ms": 600, "action": "forward"},
            "ecmp_fields": ["source_port", "destination_ip"],
        }
    )
    (roce,) = policy.classes
    assert (roce.tos, roce.traffic_class, roce.priority, roce.queue) == (24 << 2 | 1, 5, 4, 2)
    assert roce.ecn == Ecn(1000, 2000, 5)
    assert (policy.cnp.traffic_class, policy.cnp.priority, policy.cnp.queue) == (7, 1, 5)
    assert (policy.default.priority, policy.default.queue, policy.default.bandwidth_percent) == (0, 3, 40)
    assert (policy.ip_mtu_bytes, policy.switch_ip_mtu_bytes, policy.path_mtu_bytes) == (4200, 9216, 2048)
    assert policy.watchdog == Watchdog(400, 600, "forward")
    assert policy.ecmp_fields == ("destination_ip", "source_port")


def test_the_default_switch_mtu_is_at_least_the_given_host_mtu():
    policy = read_policy({"path_mtu_bytes": 256, "mtu_bytes": 9216})
    assert (policy.ip_mtu_bytes, policy.switch_ip_mtu_bytes) == (9216, 9216)


def roce(**settings):
    return {"classes": {"roce": settings}}


@pytest.mark.parametrize(
    ("setting", "minimum", "maximum"),
    [
        ("dscp", 0, 63),
        ("ect", 1, 2),
        ("traffic_class", 1, 7),
        ("priority", 1, 7),
        ("queue", 1, 7),
        ("bandwidth_percent", 1, 99),
    ],
)
def test_a_class_may_have_the_least_and_the_most_of_each_setting(setting, minimum, maximum):
    for number in (minimum, maximum):
        (only,) = read_policy(roce(**{setting: number})).classes
        assert getattr(only, setting) == number


@pytest.mark.parametrize("setting", ["traffic_class", "priority", "queue"])
@pytest.mark.parametrize("of", ["cnp", "default"])
def test_cnp_and_other_traffic_may_have_the_first_and_the_last_class(setting, of):
    other_class = {"cnp": "default", "default": "cnp"}[of]
    for number in (0, 7):
        policy = read_policy(
            {of: {setting: number}, other_class: dict.fromkeys(("traffic_class", "priority", "queue"), 5)}
        )
        assert getattr(getattr(policy, of), setting) == number


def test_the_limits_of_other_settings_are_accepted():
    assert read_policy({"cnp": {"dscp": 0}}).cnp.dscp == 0
    assert read_policy({"cnp": {"dscp": 63}}).cnp.dscp == 63
    assert (
        read_policy({**roce(bandwidth_percent=99), "default": {"bandwidth_percent": 1}}).default.bandwidth_percent == 1
    )
    assert (
        read_policy({**roce(bandwidth_percent=1), "default": {"bandwidth_percent": 99}}).classes[0].bandwidth_percent
        == 1
    )
    for path_mtu, lowest in ((256, 352), (512, 608), (1024, 1120), (2048, 2144), (4096, 4192)):
        policy = read_policy({"path_mtu_bytes": path_mtu, "mtu_bytes": lowest, "switch_mtu_bytes": lowest})
        assert (policy.path_mtu_bytes, policy.ip_mtu_bytes, policy.switch_ip_mtu_bytes) == (path_mtu, lowest, lowest)
    lowest = {"minimum_bytes": 1000, "maximum_bytes": 1000, "probability_percent": 1}
    assert read_policy(roce(ecn=lowest)).classes[0].ecn == Ecn(1000, 1000, 1)
    highest = {"minimum_bytes": 7 * 10**9, "maximum_bytes": 7 * 10**9}
    assert read_policy(roce(ecn=highest)).classes[0].ecn == Ecn(7 * 10**9, 7 * 10**9, 100)
    for detection, restoration in ((100, 100), (5000, 60000)):
        given_ms = {"detection_ms": detection, "restoration_ms": restoration}
        assert read_policy({"pfc_watchdog": given_ms}).watchdog == Watchdog(detection, restoration, "drop")


def test_a_class_name_may_have_16_characters():
    assert read_policy({"classes": {"a" * 16: {}}}).classes[0].name == "aaaaaaaaaaaaaaaa"


def test_a_policy_may_turn_the_watchdog_off():
    assert read_policy({"pfc_watchdog": False}).watchdog is None
    assert read_policy({**roce(mode="lossy"), "pfc_watchdog": False}).watchdog is None


REFUSED = [
    (["roce"], "roce_policy: not a dictionary"),
    ({"clases": {}}, "roce_policy: unknown setting 'clases'; did you mean classes?"),
    ({"classes": {}}, "classes is not a dictionary of at least one class"),
    ({"classes": ["roce"]}, "classes is not a dictionary of at least one class"),
    ({"classes": {"roce": None}}, "roce_policy: class roce: not a dictionary"),
    ({"classes": {"RoCE": {}}}, "class 'RoCE': not a valid name for a RoCE class"),
    ({"classes": {"cnp": {}}}, "class 'cnp': not a valid name for a RoCE class"),
    ({"classes": {"a" * 17: {}}}, "not a valid name for a RoCE class"),
    ({"classes": {3: {}}}, "class 3: not a valid name for a RoCE class"),
    (roce(color="red"), "class roce: unknown setting 'color'"),
    (roce(mode="best"), "class roce: mode: 'best' is unknown"),
    (roce(dscp=64), "class roce: dscp: 64 is not valid; use a whole number from 0 to 63"),
    (roce(dscp="26"), "dscp: '26' is not valid"),
    (roce(dscp=True), "dscp: True is not valid"),
    (roce(dscp=26.0), "dscp: 26.0 is not valid"),
    (roce(ect=0), "ect: 0 is not valid; use a whole number from 1 to 2"),
    (roce(ect=3), "ect: 3 is not valid; use a whole number from 1 to 2"),
    (roce(traffic_class=8), "class roce: traffic_class: 8 is not valid; use a whole number from 0 to 7"),
    (roce(priority=8), "priority: 8 is not valid; use a whole number from 0 to 7"),
    (roce(priority=-1), "priority: -1 is not valid"),
    (roce(queue=8), "queue: 8 is not valid; use a whole number from 0 to 7"),
    (roce(bandwidth_percent=0), "bandwidth_percent: 0 is not valid"),
    (roce(bandwidth_percent=100), "bandwidth_percent: 100 is not valid; use a whole number from 1 to 99"),
    (roce(ecn=5), "class roce.ecn: not a dictionary"),
    (roce(ecn={}), "class roce.ecn: minimum_bytes is missing"),
    (roce(ecn={"minimum_bytes": 5}), "ecn: maximum_bytes is missing"),
    (
        roce(ecn={"minimum_bytes": 0, "maximum_bytes": 5}),
        "minimum_bytes: 0 is not valid; use a whole number from 1000 to 7000000000",
    ),
    (
        roce(ecn={"minimum_bytes": 1, "maximum_bytes": 2000}),
        "class roce.ecn: minimum_bytes: 1 is not valid; use a whole number from 1000 to 7000000000",
    ),
    (roce(ecn={"minimum_bytes": 2000, "maximum_bytes": 7 * 10**9 + 1}), "maximum_bytes: 7000000001 is not valid"),
    (roce(ecn={"minimum_bytes": 6000, "maximum_bytes": 5000}), "minimum_bytes 6000 is above maximum_bytes 5000"),
    (
        roce(ecn={"minimum_bytes": 1000, "maximum_bytes": 5000, "probability_percent": 0}),
        "probability_percent: 0 is not valid; use a whole number from 1 to 100",
    ),
    (roce(ecn={"minimum_bytes": 1000, "maximum_bytes": 5000, "kmin": 3}), "ecn: unknown setting 'kmin'"),
    ({"cnp": 48}, "roce_policy.cnp: not a dictionary"),
    ({"cnp": {"bandwidth_percent": 5}}, "cnp: unknown setting 'bandwidth_percent'"),
    ({"cnp": {"dscp": 99}}, "cnp: dscp: 99 is not valid"),
    ({"default": {"dscp": 0}}, "default: unknown setting 'dscp'"),
    ({"cnp": {"dscp": -1}}, "cnp: dscp: -1 is not valid; use a whole number from 0 to 63"),
    ({"cnp": {"traffic_class": 8}}, "cnp: traffic_class: 8 is not valid; use a whole number from 0 to 7"),
    ({"cnp": {"priority": 8}}, "cnp: priority: 8 is not valid; use a whole number from 0 to 7"),
    ({"cnp": {"queue": 8}}, "cnp: queue: 8 is not valid; use a whole number from 0 to 7"),
    ({"default": {"traffic_class": 8}}, "default: traffic_class: 8 is not valid; use a whole number from 0 to 7"),
    ({"default": {"priority": 8}}, "default: priority: 8 is not valid; use a whole number from 0 to 7"),
    ({"default": {"queue": 8}}, "default: queue: 8 is not valid; use a whole number from 0 to 7"),
    (
        {"default": {"bandwidth_percent": 0}},
        "bandwidth_percent: 0 is not valid; use a whole number from 1 to 99",
    ),
    (
        {"default": {"bandwidth_percent": 100}},
        "bandwidth_percent: 100 is not valid; use a whole number from 1 to 99",
    ),
    ({"default": {"bandwidth_percent": 60}}, "and the RoCE classes add up to 110%; set it to 50"),
    ({"classes": {**TWO, "roce": {"bandwidth_percent": 80}}}, "take 100% of the bandwidth and leave nothing"),
    ({"classes": {**TWO, "roce": {"bandwidth_percent": 90}}}, "take 110% of the bandwidth"),
    ({"path_mtu_bytes": 1500}, "path_mtu_bytes: 1500 is unknown"),
    ({"path_mtu_bytes": 8192}, "path_mtu_bytes: 8192 is unknown"),
    ({"mtu_bytes": 4096}, "path_mtu_bytes 4096 and its headers, 4192 bytes; set path_mtu_bytes to 2048"),
    ({"mtu_bytes": 1500}, "path_mtu_bytes 4096 and its headers, 4192 bytes; set path_mtu_bytes to 1024"),
    ({"mtu_bytes": 351}, "mtu_bytes: 351 is not valid; use a whole number from 352 to 9216"),
    ({"mtu_bytes": 9217}, "mtu_bytes: 9217 is not valid"),
    ({"switch_mtu_bytes": 8999}, "switch_mtu_bytes 8999 is less than mtu_bytes 9000"),
    ({"ecmp_fields": "source_port"}, "cannot spread RoCE's flows"),
    ({"ecmp_fields": ["source_ip"]}, "cannot spread RoCE's flows"),
    ({"ecmp_fields": [["source_port"]]}, "cannot spread RoCE's flows"),
    ({"ecmp_fields": ["source_port", "flow_label"]}, "cannot spread RoCE's flows"),
    ({"pfc_watchdog": "on"}, "pfc_watchdog: not a dictionary"),
    ({"pfc_watchdog": {"action": "reboot"}}, "pfc_watchdog: action: 'reboot' is unknown"),
    ({"pfc_watchdog": {"detection_ms": 99}}, "detection_ms: 99 is not valid; use a whole number from 100 to 5000"),
    (
        {"pfc_watchdog": {"restoration_ms": 60001}},
        "60001 is not valid; use a whole number from 100 to 60000",
    ),
    ({"pfc_watchdog": {"poll": 1}}, "pfc_watchdog: unknown setting 'poll'"),
    ({**roce(mode="lossy"), "pfc_watchdog": True}, "pfc_watchdog is set, but no class is lossless"),
    ({"classes": {"roce": {}, "storage": {"traffic_class": 4, "bandwidth_percent": 9}}}, "have the same dscp 26"),
    ({"classes": {"roce": {}, "storage": {"dscp": 1, "bandwidth_percent": 9}}}, "have the same traffic_class 3"),
    (roce(dscp=48), "roce and cnp have the same dscp 48"),
    (roce(priority=6), "roce and cnp have the same priority 6"),
    (roce(queue=0), "roce and default have the same queue 0"),
    ({"default": {"traffic_class": 6}}, "cnp and default have the same traffic_class 6"),
]


@pytest.mark.parametrize(("variable", "message"), REFUSED, ids=[message for _rest, message in REFUSED])
def test_an_invalid_policy_is_refused_with_a_remedy(variable, message):
    with pytest.raises(FabricError) as refused:
        read_policy(variable)
    assert message in str(refused.value)
    assert refused.value.remedy


@given(policies())
def test_accepted_classes_have_unique_queues_priorities_and_dscps(variable):
    policy = read_policy(variable)
    assert isinstance(policy, Policy)
    everyone = [*policy.classes, policy.cnp, policy.default]
    for setting in ("traffic_class", "priority", "queue"):
        numbers = [getattr(traffic, setting) for traffic in everyone]
        assert len(set(numbers)) == len(numbers)
        assert set(numbers) <= set(range(CLASSES))
    table = policy.dscp_to_class()
    assert [table[traffic.dscp] for traffic in everyone[:-1]] == [traffic.traffic_class for traffic in everyone[:-1]]
    assert table.count(policy.default.traffic_class) == 64 - len(everyone) + 1
    assert sum(traffic.bandwidth_percent for traffic in policy.classes) + policy.default.bandwidth_percent == 100
    assert (policy.watchdog is None) == (not policy.lossless)


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["roce", "classes", "cnp", "dscp", "ecn", "minimum_bytes", "pfc_watchdog", "ecmp_fields", "x"]
            ),
            inner,
            max_size=3,
        )
    ),
)


@given(ANYTHING)
def test_any_input_is_accepted_or_refused(variable):
    try:
        read_policy(variable)
    except FabricError as refused:
        text = str(refused)
    else:
        return
    assert text.startswith("roce_policy")
