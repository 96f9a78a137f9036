# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""NX-OS: what is rendered is read back as the same, whoever words it, and remediation ends where it should."""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from nxos_switch import apply, told
from switches import OWN_ASICS, policies, switch

from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.model.errors import FabricError
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.model.qos import (
    ECMP_FIELDS,
    Ecn,
    PortQos,
    Queue,
    Switch,
    Watchdog,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.policy.policy import read_policy
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.switch.inventory import read_switches
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.switch.plan import plan
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.switch.registry import SYSTEMS
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.systems import nxos

PORTS = ["Ethernet1/1", "Ethernet1/2", "Ethernet1/33/1"]
REFERENCE = switch("nxos", PORTS, cable_m=30)


def held(wanted: Switch) -> Switch:
    """``wanted`` less what NX-OS's configuration does not hold."""
    ports = {port: replace(qos, headroom=(None,) * 8, cable_m=None) for port, qos in wanted.ports.items()}
    return replace(wanted, ports=ports)


def test_it_is_registered():
    assert SYSTEMS["nxos"] is nxos


def test_the_reference_comes_back():
    assert nxos.parse(nxos.render(REFERENCE), "leaf1") == held(REFERENCE)


def test_ports_that_are_alike_share_policies_and_others_have_their_own():
    qos = REFERENCE.ports["Ethernet1/2"]
    queues = tuple(replace(each, ecn=Ecn(600_001, 6_000_007, 20)) if each and each.ecn else each for each in qos.queues)
    both = replace(REFERENCE, ports={**REFERENCE.ports, "Ethernet1/2": replace(qos, queues=queues, ip_mtu_bytes=9000)})
    text = nxos.render(both)
    assert nxos.parse(text, "leaf1") == held(both)
    assert "minimum-threshold 150 kbytes maximum-threshold 1500 kbytes " in text
    assert "minimum-threshold 600001 bytes maximum-threshold 6000007 bytes " in text
    assert own(text, "queuing") > own(nxos.render(REFERENCE), "queuing")  # names follow from what a policy says
    assert own(text, "qos") == own(nxos.render(REFERENCE), "qos")
    assert text.count("service-policy type queuing output") == 2  # the system's, and the one port's
    lossy = replace(qos, pfc=(), watchdog=None)
    some = replace(REFERENCE, ports={**REFERENCE.ports, "Ethernet1/2": lossy})
    assert nxos.parse(nxos.render(some), "leaf1") == held(some)


def own(text: str, kind: str) -> set[str]:
    return set(re.findall(rf"policy-map type {kind} (sailloft-\S+)", text))


@settings(max_examples=100, deadline=None)
@given(policies())
def test_any_policy_comes_back(policy):
    wanted = switch("nxos", PORTS, policy)
    text = nxos.render(wanted)
    assert text == nxos.render(switch("nxos", PORTS, policy))
    assert nxos.parse(text, "leaf1") == held(wanted)
    assert nxos.remediation(text, wanted) == ""


def test_a_class_pauses_as_another_priority():
    wanted = switch("nxos", PORTS, {"classes": {"roce": {"priority": 4}}})
    text = nxos.render(wanted)
    assert "  class type network-qos c-8q-nq3\n    mtu 9100\n    pause pfc-cos 4\n" in text
    assert nxos.parse(text, "leaf1") == held(wanted)


def test_every_line_that_is_lost_is_seen_but_those_that_say_the_default():
    lines = nxos.render(REFERENCE).splitlines()
    says_default = {
        "priority-flow-control watch-dog shutdown-multiplier 1",
        "ip load-sharing address source-destination port source-destination",
        "set qos-group 0",
        "bandwidth remaining percent 0",
    }
    for at, line in enumerate(lines):
        if line.strip() == "!":
            continue
        seen = differs("\n".join([*lines[:at], *lines[at + 1 :]]), held(REFERENCE))
        if line.strip() in [f"class type queuing c-out-8q-q{at}" for at in (7, 5, 4, 2, 1)]:
            continue  # what stood under it now stands under the line before, where it may change something
        assert seen is (line.strip() not in says_default), line


def test_every_number_that_is_changed_is_seen():
    text = nxos.render(REFERENCE)
    count = 0
    for number in re.finditer(r"\d+", text):
        before = text[: number.start()]
        line = text[text.rfind("\n", 0, number.start()) + 1 : text.find("\n", number.start())]
        if before.endswith(("weight ", "priority level ")):
            continue  # how the queue's length is averaged, and which strict queue is first, have no term
        if line.strip() in [f"class type queuing c-out-8q-q{at}" for at in (7, 5, 4, 2, 1)]:
            continue  # a queue without a share, said twice
        by = -1 if before.endswith(" mtu ") else 1  # the least of the port's and the no-drop class's counts
        changed = before + str(int(number[0]) + by) + text[number.end() :]
        assert differs(changed, held(REFERENCE)), line
        count += 1
    assert count > 60


@pytest.mark.parametrize(
    ("word", "other"),
    [
        (" weight 0 ecn", " weight 0"),
        ("    set qos-group 3", "    set qos-group 3\n    set dscp 24"),
        ("mode on", "mode auto"),
        ("mode on", "mode off"),
        ("watch-dog-interval on", "watch-dog-interval off"),
        (
            "  priority-flow-control watch-dog-interval on",
            "  priority-flow-control watch-dog-interval on disable-action",
        ),
        (
            "  priority-flow-control watch-dog-interval on",
            "  priority-flow-control watch-dog-interval on interface-multiplier 2",
        ),
        ("    priority level 1", "    bandwidth remaining percent 1"),
        (" kbytes maximum", " bytes maximum"),
        ("address source-destination port source-destination", "address source-destination"),
        ("c-8q-nq3", "c-8q-nq4"),
        ("c-8q-nq3", "c-9q-nq3"),
        ("c-out-8q-q3", "c-out-9q-q3"),
    ],
)
def test_every_word_that_is_changed_is_seen(word, other):
    text = nxos.render(REFERENCE)
    assert word in text
    assert differs(text.replace(word, other), held(REFERENCE))


def differs(text: str, wanted: Switch) -> bool:
    try:
        return nxos.parse(text, "leaf1") != wanted
    except FabricError:
        return True


# The same policy in another hand: classes by names and lists of DSCPs, class maps of queues, a range of ports, the
# classification and the queues at the system, kbytes, other indentation and comments.
BY_HAND = """\
!Command: show running-config
!Running configuration last done at: Sat Nov 21 10:00:00 2026
version 10.5(3) Bios:version 01.10
hostname leaf1
vdc leaf1 id 1
  limit-resource vlan minimum 16 maximum 4094
feature lldp
banner motd ^
interface Ethernet1/9
system qos
^
priority-flow-control watch-dog-interval on
priority-flow-control watch-dog interval 100
priority-flow-control watch-dog shutdown-multiplier 2
priority-flow-control auto-restore multiplier 2
class-map type qos match-all RDMA
 ! RoCE
 match dscp af31
class-map match-any CNP
 match cos 6
 match dscp cs6
class-map type network-qos NODROP
 match qos-group 3
class-map type queuing STRICT
 match qos-group 6
policy-map CLASSIFY
 class RDMA
  set qos-group 3
 class type qos CNP
  set qos-group 6
policy-map type queuing OUT
 class type queuing c-out-q3
  bandwidth percent 50
  random-detect minimum-threshold 150 kbytes maximum-threshold 1500 kbytes drop-probability 100 weight 0 ecn
 class type queuing STRICT
  priority
 class type queuing c-out-q-default
  bandwidth percent 50
  queue-limit dynamic 3
policy-map type network-qos NQ
 class type network-qos NODROP
  mtu 9216
  pause pfc-cos 3
 class type network-qos c-nq-default
  mtu 9216
policy-map type control-plane copp
 class copp-x
  police cir 100 pps bc 32 packets
system qos
 service-policy type network-qos NQ
 service-policy type queuing output OUT no-stats
 service-policy type qos input CLASSIFY
interface Vlan10
 mtu 1500
interface Ethernet1/1-3, Ethernet1/5
 description to gpu01
 mtu 9100
 priority-flow-control mode on
 priority-flow-control watch-dog-interval on
interface mgmt0
 vrf member management
"""


def test_another_hand_says_the_same():
    wanted = switch("nxos", ["Ethernet1/1", "Ethernet1/2", "Ethernet1/3", "Ethernet1/5"])
    assert nxos.parse(BY_HAND, "leaf1") == held(wanted)
    assert nxos.remediation(BY_HAND, wanted) == ""


def test_lists_and_ranges_of_dscps():
    text = BY_HAND.replace("match dscp af31", "match dscp 24-26,30")
    classes = nxos.parse(text, "leaf1").ports["Ethernet1/1"].dscp_to_class
    assert [dscp for dscp, group in enumerate(classes) if group == 3] == [24, 25, 26, 30]


def test_the_first_class_that_matches_counts():
    text = BY_HAND.replace("match dscp cs6", "match dscp 26,48")
    assert nxos.parse(text, "leaf1").ports["Ethernet1/1"].dscp_to_class[26] == 3


def test_a_no_drop_class_without_room_for_the_ports_packets_shows_in_its_mtu():
    text = BY_HAND.replace("  mtu 9216\n  pause", "  pause")
    assert nxos.parse(text, "leaf1").ports["Ethernet1/1"].ip_mtu_bytes == 1500


def test_a_switch_without_qos_says_what_it_does():
    read = nxos.parse("hostname leaf1\ninterface Ethernet1/1\n", "leaf1")
    queues = (Queue(False, 100), *(None,) * 7)
    assert read.ports["Ethernet1/1"] == PortQos(queues=queues, ip_mtu_bytes=1500)
    assert read.ecmp_fields == ECMP_FIELDS


def test_the_protocol_and_ports_of_the_hash():
    text = "ip load-sharing address destination port destination\n" + nxos.render(replace(REFERENCE, ecmp_fields=None))
    assert nxos.parse(text, "leaf1").ecmp_fields == ("destination_ip", "destination_port", "protocol")
    assert nxos.remediation(text, REFERENCE) == ("ip load-sharing address source-destination port source-destination\n")


IN = (
    "class-map type qos match-all A\n  match dscp 26\n  match cos 3\n"
    "policy-map type qos P\n  class A\n    set qos-group 3\n"
)
ON = "interface Ethernet1/1\n  service-policy type qos input P\n"


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("", "leaf1: configuration: no line of it is NX-OS's"),
        ('{"ins_api": {"code": "501"}}', "no line of it is NX-OS's"),
        ("hostname a\n% Invalid command at '^' marker.", "line 2 .* not a line of NX-OS's configuration"),
        (
            "hostname a\nqos map dscp 26 to traffic-class 3",
            "line 2 .* not a line of NX-OS's configuration; correct the",
        ),
        ("hostname a\nbanner motd #\nhello", "ends within a banner"),
        (ON, "line 2 .* there is no policy-map type qos P; define it, or detach it"),
        ("system qos\n  service-policy type network-qos N\ninterface Ethernet1/1", "no policy-map type network-qos N"),
        (IN.replace("match dscp 26\n  ", "match dscp 26-\n  ") + ON, "'' is not a number of 0 to 63"),
        (IN + ON, "line 1 .* depends on more than itself; match DSCPs alone"),
        (IN.replace("class A", "class B") + ON, "line 5 'class B': there is no class-map type qos B"),
        (IN.replace("group 3", "group 8").replace("  match cos 3\n", "") + ON, "'8' is not a number of 0 to 7"),
        ("hostname a\nservice-policy type qos input P", "line 2 .* it stands under nothing"),
        ("interface Ethernet\n", "'Ethernet' is neither a port nor a range"),
        (
            "interface Ethernet1/1\n  priority-flow-control mo",
            "line 2 'priority-flow-control mo': not a setting of NX-OS",
        ),
        ("interface Ethernet1/1\n  service-policy type qos", "line 2 'service-policy type qos': not a setting"),
        ("hostname a\npriority-flow-control watch-dog interval", "line 2 .* not a setting of the watchdog"),
        ("hostname a\nip load-sharing address both", "line 2 .* not a way of NX-OS to share load"),
        (nxos.render(REFERENCE).replace("drop-probability 100 weight 0 ecn", ""), "does not say where marking begins"),
        (nxos.render(REFERENCE).replace(" kbytes ", " packets "), "how many bytes packets are is not said"),
        (
            nxos.render(REFERENCE).replace("percent 50\n    random", "perc\n    random"),
            "not a setting of NX-OS's queues",
        ),
        (nxos.render(REFERENCE).replace("pause pfc-cos 3", "pause pfc"), "'pause pfc': not a pause of NX-OS"),
        (nxos.render(REFERENCE).replace("pfc-cos 3", "pfc-cos 9"), "'9' is not a number of 0 to 7"),
    ],
)
def test_what_cannot_be_read_is_refused_with_its_line(text, error):
    with pytest.raises(FabricError, match=error):
        nxos.parse(text, "leaf1")


@pytest.mark.parametrize(
    ("policy", "changes", "error"),
    [
        ({}, {"ip_mtu_bytes": 575}, "an MTU of 575 bytes is beyond NX-OS's 576 to 9216"),
        ({}, {"ip_mtu_bytes": None}, "no MTU is wanted"),
        ({}, {"watchdog": Watchdog(200, 200, "forward")}, "cannot forward a stuck queue's packets"),
        (
            {},
            {"watchdog": Watchdog(200, 250, "drop")},
            "cannot act after 200 ms and end after 250 ms; give pfc_watchdog",
        ),
        ({}, {"watchdog": Watchdog(1100, 1100, "drop")}, "detection_ms up to 1000"),
        ({}, {"watchdog": Watchdog(100, 20_000, "drop")}, "restoration_ms up to 100 intervals"),
        ({}, {"dscp_to_class": (None,) * 64}, "DSCP 0 has no traffic class"),
        ({"classes": {"roce": {"queue": 4}}}, {}, "NX-OS sends traffic class 3 to queue 3, not 4"),
        ({"cnp": {"priority": 5}}, {}, "traffic class 6 never pauses, so NX-OS has no priority 5 for it"),
        ({}, {"pfc": (3, 5)}, "priority 5 pauses, and no traffic class has it"),
        ({"ecmp_fields": ["source_port"]}, {}, "NX-OS's hash cannot take source_port alone"),
    ],
)
def test_what_nxos_cannot_is_refused(policy, changes, error):
    with pytest.raises(FabricError, match=error):
        nxos.render(switch("nxos", PORTS, policy, **changes))


def test_what_the_switch_has_once_is_refused_twice():
    qos = REFERENCE.ports["Ethernet1/1"]
    other = switch("nxos", ["a"], {"classes": {"roce": {"priority": 4}}}).ports["a"]
    with pytest.raises(FabricError, match="port Ethernet1/9: its set of paused classes is not Ethernet1/1's"):
        nxos.render(replace(REFERENCE, ports={**REFERENCE.ports, "Ethernet1/9": other}))
    other = replace(qos, watchdog=Watchdog(400, 400, "drop"))
    with pytest.raises(FabricError, match="port Ethernet1/9: its watchdog is not Ethernet1/1's, and NX-OS has one"):
        nxos.render(replace(REFERENCE, ports={**REFERENCE.ports, "Ethernet1/9": other}))
    with pytest.raises(FabricError, match="port Eth1/9: NX-OS has no such name"):
        nxos.render(replace(REFERENCE, ports={"Eth1/9": qos}))


@pytest.mark.parametrize(
    ("detection", "restoration"), [(100, 100), (200, 200), (300, 400), (1000, 60_000), (250, 1000)]
)
def test_times_of_the_watchdog_come_back(detection, restoration):
    wanted = switch("nxos", PORTS, watchdog=Watchdog(detection, restoration, "drop"))
    assert nxos.parse(nxos.render(wanted), "leaf1") == held(wanted)


OLD = switch("nxos", PORTS, {"classes": {"roce": {"dscp": 24, "bandwidth_percent": 40, "traffic_class": 4}}})
LOSSY = switch("nxos", PORTS, {"classes": {"roce": {"mode": "lossy"}}})
STARTS = {
    "nothing": "hostname leaf1\n",
    "an older policy": nxos.render(OLD),
    "a lossy policy": nxos.render(LOSSY),
    "another hand": BY_HAND.replace("match dscp af31", "match dscp 10"),
    "lines on the ports": BY_HAND.replace(
        "interface Vlan10",
        "interface Ethernet1/1\n service-policy type qos input GONE\n service-policy type queuing output OUT\n"
        " priority-flow-control mode off\n priority-flow-control watch-dog-interval on disable-action\n"
        "interface Vlan10",
    ),
    "a policy of ours that was changed": nxos.render(REFERENCE)
    .replace("set qos-group 3", "set qos-group 4")
    .replace("match dscp 26", "match dscp 26\n  match dscp 27")
    .replace("    pause pfc-cos 3\n", "    pause pfc-cos 4\n")
    .replace("  class type queuing c-out-8q-q7\n    bandwidth remaining percent 0\n", ""),
}


@pytest.mark.parametrize("start", STARTS)
@pytest.mark.parametrize("wanted", [REFERENCE, LOSSY], ids=["lossless", "lossy"])
def test_remediation_ends_at_what_is_wanted(start, wanted):
    running = (
        STARTS[start]
        .replace("interface Ethernet1/9\nsystem qos\n^\n", "^\n")
        .replace("interface Ethernet1/1-3, Ethernet1/5", "interface Ethernet1/2")
    )
    after = apply(running, nxos.remediation(running, wanted))
    read = nxos.parse(after, "leaf1")
    assert {port: read.ports[port] for port in PORTS} == held(wanted).ports
    assert nxos.remediation(after, wanted) == ""


@settings(max_examples=25, deadline=None)
@given(policies(), policies())
def test_remediation_leads_from_any_policy_to_any_other(first, second):
    running, wanted = nxos.render(switch("nxos", PORTS[:2], first)), switch("nxos", PORTS, second)
    after = apply(running, nxos.remediation(running, wanted))
    assert nxos.parse(after, "leaf1") == held(wanted)
    assert nxos.remediation(after, wanted) == ""
    for kind in ("qos", "queuing", "network-qos"):
        assert own(after, kind) == own(nxos.render(wanted), kind)


@pytest.mark.parametrize("wanted", [REFERENCE, LOSSY], ids=["lossless", "lossy"])
@pytest.mark.parametrize("start", ["nothing", "an older policy"])
def test_what_was_stopped_after_any_line_is_completed(start, wanted):
    running = STARTS[start]
    sent = nxos.remediation(running, wanted).splitlines()
    for end in range(len(sent)):
        half = apply(running, "\n".join(sent[:end]))
        nxos.parse(half, "leaf1")
        read = nxos.parse(apply(half, nxos.remediation(half, wanted)), "leaf1")
        assert {port: read.ports[port] for port in PORTS} == held(wanted).ports, sent[end]


@settings(max_examples=300, deadline=None)
@given(st.sampled_from([nxos.render(REFERENCE), BY_HAND]), st.data())
def test_a_damaged_text_is_read_or_refused(text, data):
    """No text ends in anything but a Switch or a FabricError."""
    at = data.draw(st.integers(0, len(text)))
    broken = text[:at] + data.draw(st.sampled_from(["", "x", " ", "\n", "-", "9", "!", "\t\t"])) + text[at:]
    for each in (broken, text[:at], text[at:]):
        with suppress(FabricError):
            nxos.parse(each, "leaf1")
        with suppress(FabricError):
            nxos.remediation(each, REFERENCE)


def test_hier_config_would_send_the_same_lines_in_another_order():
    """Its lines are ours, but it knows nothing of what NX-OS refuses: it takes away what is still in use."""
    hier_config = pytest.importorskip("hier_config")
    driver = told(hier_config)
    running = nxos.render(OLD)
    theirs = hier_config.WorkflowRemediation(
        hier_config.get_hconfig(driver, running), hier_config.get_hconfig(driver, nxos.render(REFERENCE))
    ).remediation_config
    their_lines = [line.cisco_style_text() for line in theirs.all_children_sorted()]
    sent = nxos.remediation(running, REFERENCE)
    lines = sent.splitlines()
    assert sorted(their_lines) == sorted(lines)
    assert their_lines[0].startswith("no class-map type qos")
    gone = [at for at, line in enumerate(lines) if line.startswith("no ")]
    freed = [at for at, line in enumerate(lines) if line.startswith("  no service-policy")]
    assert len(freed) == len(PORTS)
    assert min(gone) > max(freed)
    assert [lines[at].split(" ")[1] for at in gone] == ["policy-map"] * 3 + ["class-map"]
    # And after ours, it has nothing left to send.
    after = hier_config.get_hconfig(driver, apply(running, sent))
    assert not after.config_to_get_to(hier_config.get_hconfig(driver, nxos.render(REFERENCE))).children


def test_remediation_sends_only_what_differs():
    text = nxos.render(REFERENCE).replace("  mtu 9100\n  prio", "  mtu 1500\n  prio", 1)
    assert nxos.remediation(text, REFERENCE) == "interface Ethernet1/1\n  mtu 9100\n"
    text = nxos.render(REFERENCE).replace("percent 50\n    random", "percent 51\n    random")
    (name,) = own(text, "queuing")
    assert nxos.remediation(text, REFERENCE).splitlines() == [
        f"policy-map type queuing {name}",
        "  class type queuing c-out-8q-q3",
        "    bandwidth remaining percent 50",
    ]


def test_an_object_of_ours_goes_when_nothing_uses_it_and_others_stay():
    left = re.findall(r"policy-map type qos sailloft\S+", nxos.render(OLD))[0]
    text = nxos.render(REFERENCE) + nxos.render(OLD).split("system qos", maxsplit=1)[0] + "policy-map type qos MINE\n"
    lines = nxos.remediation(text, REFERENCE).splitlines()
    assert f"no {left}" in lines
    assert all(
        line.startswith(("no policy-map type ", "no class-map type qos match-any sailloft-tc4")) for line in lines
    )
    assert not any("MINE" in line for line in lines)
    used = text + f"interface Ethernet1/40\n  service-policy type qos input {left.split(' ')[-1]}\n"
    assert f"no {left}" not in nxos.remediation(used, REFERENCE)
    assert "class-map" not in nxos.remediation(used, REFERENCE)


def test_a_cable_beyond_100_m_is_refused_where_a_class_is_lossless():
    nxos.check_cable("leaf1: port Ethernet1/1", 100)
    with pytest.raises(FabricError) as refused:
        nxos.check_cable("leaf1: port Ethernet1/1", 101)
    assert str(refused.value) == (
        "leaf1: port Ethernet1/1: a cable of 101 m needs `pause buffer-size` and its thresholds, which NX-OS requires "
        "beyond 100 m and for which Cisco publishes no numbers; take a cable of 100 m or less, or make the classes "
        "lossy"
    )
    with pytest.raises(FabricError) as refused:
        nxos.check_cable("leaf1: port Ethernet1/1", None)
    assert str(refused.value) == (
        "leaf1: port Ethernet1/1: cable_m is missing, and NX-OS keeps headroom for 100 m of cable; give it"
    )


@pytest.mark.parametrize(
    ("mode", "cable", "planned"), [("lossless", 100, True), ("lossy", 300, True), ("lossless", 300, False)]
)
def test_only_lossless_classes_need_a_short_cable(mode, cable, planned):
    policy = read_policy({"classes": {"roce": {"mode": mode}}})
    ports = {"Ethernet1/1": {"speed_gbit_s": 400, "cable_m": cable}}
    specs = read_switches({"leaf1": {"system": "nxos", "asic": "nexus", "ports": ports}}, asics=OWN_ASICS)
    if planned:
        assert plan(policy, specs)["leaf1"].ports["Ethernet1/1"].headroom == (None,) * 8
        return
    with pytest.raises(FabricError, match="switch leaf1: port Ethernet1/1: a cable of 300 m needs `pause buffer-size`"):
        plan(policy, specs)
