# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Linux as the switch.

linux_reading.json is the output of READING after the script of the reference ran. The kernel had no ets, red and
flower, so tc 6.1.0 printed the messages that it had sent itself.
"""

from __future__ import annotations

import contextlib
import copy
import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import switches
from hypothesis import given
from hypothesis import strategies as st
from refusals import refuses

from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.model.errors import FabricError
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.model.qos import (
    Ecn,
    Override,
    PortQos,
    Queue,
    Switch,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.running.linux import READING
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.running.linux_script import red_words
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.systems import linux

PORTS = ["p2", "p1"]
READ = Path(__file__).with_name("linux_reading.json").read_text()


def held(switch: Switch) -> Switch:
    """Return the switch without the settings that Linux does not have."""
    nothing = {field: getattr(PortQos(), field) for field in linux.LINUX.not_held}
    return replace(switch, ports={port: replace(qos, **nothing) for port, qos in switch.ports.items()})


def reference(**changes: Any) -> Switch:
    return switches.switch("linux", PORTS, **changes)


def test_the_role_reads_a_switch_with_the_same_script():
    assert (Path(__file__).parents[4] / "roles/roce_switch/files/read-linux").read_text("utf-8") == READING


def test_the_rendered_reference_is_read_back():
    wanted = reference()
    assert linux.parse(linux.render(wanted), wanted.name) == held(wanted)


def test_the_output_of_tc_is_read_as_the_reference():
    assert linux.parse(READ, "leaf1") == held(reference())
    assert linux.remediation(READ, reference()) == ""


@given(switches.policies())
def test_any_rendered_policy_is_read_back(policy):
    wanted = switches.switch("linux", PORTS, policy)
    text = linux.render(wanted)
    assert text == linux.render(copy.deepcopy(wanted))
    assert linux.parse(text, wanted.name) == held(wanted)
    assert linux.remediation(text, wanted) == ""


@given(st.integers(1, 20_000) | st.integers(1, linux.MOST_BYTES - 1), st.integers(1, 100))
def test_red_uses_the_smallest_ewma_for_any_threshold(minimum, percent):
    arguments = linux.band_qdisc("p1", Ecn(minimum, minimum, percent)).split()[1:]
    shown = red_words(arguments)
    assert (shown["ewma"], shown["min"], shown["max"]) == (1, minimum, minimum)
    assert round(shown["probability"] * 100) == percent
    assert shown["probability"] * 2**32 < 2**32  # the kernel reads a number that does not fit into 32 bits as 0


def test_every_missing_line_is_detected():
    wanted = reference()
    lines = linux.render(wanted).splitlines()
    for position, line in enumerate(lines):
        # The interpreter, its options, and the deletion of previous qdiscs do not change the result.
        if line.startswith(("tc qdisc del", "#!", "set -")):
            continue
        with contextlib.suppress(FabricError):
            seen = linux.parse("\n".join(lines[:position] + lines[position + 1 :]) + "\n", "leaf1")
            assert seen != held(wanted), line


@given(switches.policies(), switches.policies())
def test_an_interrupted_script_can_be_completed_or_reverted(first, second):
    original, wanted = (switches.switch("linux", PORTS, policy) for policy in (first, second))
    old = linux.render(original)
    sent = linux.remediation(old, wanted).splitlines(keepends=True)
    for end in range(len(sent) + 1):
        half = old + "".join(sent[:end])
        linux.parse(half, "leaf1")
        assert linux.parse(half + linux.remediation(half, wanted), "leaf1") == held(wanted), end
        assert linux.parse(half + linux.restoration(old, half, "leaf1"), "leaf1") == held(original), end


def numbers(node: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    for key, value in node.items() if isinstance(node, dict) else enumerate(node):
        if isinstance(value, (dict, list)):
            yield from numbers(value, (*path, key))
        else:
            yield (*path, key)


def test_every_changed_value_in_the_output_of_tc_is_detected():
    reading = json.loads(READ)
    unseen = set()
    for path in numbers({"qdiscs": reading["qdiscs"], "filters": reading["filters"], "sysctl": reading["sysctl"]}):
        mutant = copy.deepcopy(reading)
        node = mutant
        for key in path[:-1]:
            node = node[key]
        value = node[path[-1]]
        node[path[-1]] = (
            not value if isinstance(value, bool) else 2 * value + 7 if isinstance(value, int) else f"{value}7"
        )
        try:
            if linux.parse(json.dumps(mutant), "leaf1") == held(reference()):
                unseen.add(path[-1])
                if path[-1] in ("limit", "ewma", "kind", "handle", "nodrop") and "1033:" in json.dumps(node):
                    assert linux.remediation(json.dumps(mutant), reference()), path
        except FabricError:
            pass
    # Not part of the policy: the limits of queues, the speed of averages, other fields of tc, and the name of pfifo.
    assert unseen <= {"refcnt", "limit", "ewma", "Scell_log", "nodrop", "pref", "kind", "eth_type"}


def test_red_with_a_slow_average_or_a_short_limit_is_remedied():
    for old, new in (('"ewma": 1', '"ewma": 9'), ('"limit": 6000000', '"limit": 1500000')):
        remedy = linux.remediation(READ.replace(old, new, 1), reference())
        assert "tc qdisc add dev p1 root" in remedy
        assert "p2" not in remedy


def test_remediation_changes_only_what_differs():
    wanted = reference()
    assert linux.remediation(READ.replace('"mtu": 9100', '"mtu": 1500', 1), wanted).splitlines()[2:] == [
        "ip link set dev p2 mtu 9100"
    ]
    slow = READ.replace('"net.ipv6.fib_multipath_hash_policy": "3"', '"net.ipv6.fib_multipath_hash_policy": "0"')
    assert linux.remediation(slow, wanted).splitlines()[2:] == ["sysctl -q -w net.ipv6.fib_multipath_hash_policy=3"]
    fresh = json.loads(READ)
    fresh["qdiscs"] = [{"kind": "fq_codel", "handle": "0:", "dev": "p1", "root": True, "options": {}}]
    fresh["filters"] = {"p1": [], "p2": []}
    assert linux.remediation(json.dumps(fresh), wanted).splitlines()[2:] == [
        line for line in linux.render(wanted).splitlines()[2:] if line.startswith("tc")
    ]


def test_a_missing_device_is_refused():
    with refuses("leaf1: p9", "p2, p1"):
        linux.remediation(READ, switches.switch("linux", ["p1", "p9"]))


def test_foreign_qdiscs_are_read_by_their_bands():
    model = json.loads(READ)
    model["qdiscs"] = [
        {"kind": "prio", "handle": "9:", "dev": "p1", "root": True,
         "options": {"bands": 3, "priomap": [1, 2, 2, 2, 1, 2, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1]}},
        {"kind": "red", "handle": "8001:", "dev": "p1", "parent": "9:2",
         "options": {"limit": 60000, "min": 5000, "max": 15000, "ecn": True, "Plog": 14, "ewma": 9}},
        {"kind": "noqueue", "handle": "0:", "dev": "p2", "root": True, "options": {}},
    ]  # fmt: skip
    u32 = {"fh": "800::800", "order": 2048, "key_ht": "800", "bkt": "0", "flowid": "9:2", "not_in_hw": True}
    table = {"parent": "9:", "protocol": "ip", "pref": 3, "kind": "u32", "chain": 0}
    model["filters"]["p1"] = [
        table, {**table, "options": {"fh": "800:", "ht_divisor": 1}},
        {**table, "options": {**u32, "match": {"value": "680000", "mask": "fc0000", "offmask": "", "off": 0}}},
        {**table, "protocol": "ipv6", "pref": 4,
         "options": {**u32, "match": {"value": "6800000", "mask": "fc00000", "offmask": "", "off": 0}}},
    ]  # fmt: skip
    seen = linux.parse(json.dumps(model), "leaf1").ports
    assert seen["p2"] == PortQos(ip_mtu_bytes=9100)
    port = seen["p1"]
    assert port.dscp_to_class[26] == 6
    assert set(port.dscp_to_class) == {6, None}  # other packets follow the kernel's priority, which no DSCP determines
    assert port.queues[5:] == (Queue(True), Queue(True, None, Ecn(5000, 15000, 61)), Queue(True))
    assert port.class_to_queue == (None,) * 5 + (5, 6, 7)


@pytest.mark.parametrize(
    ("change", "dscp_26"),
    [
        ({"keys": {"ip_tos": 104, "ip_tos_mask": "fe"}}, None),  # the mask does not match all packets of the DSCP
        ({"keys": {"ip_tos": 104}}, None),  # only ToS 104, and no packet with ECT
        ({"keys": {"ip_tos": 104, "ip_tos_mask": "fc", "ip_proto": "udp"}}, None),
        ({"keys": {"ip_tos": 96, "ip_tos_mask": "e0"}}, 3),
        ({"keys": {"ip_tos": 96, "ip_tos_mask": "fc"}}, None),  # the filter of IPv6 contradicts it
        ({"keys": {}}, 3),
    ],
)
def test_a_filter_applies_only_to_packets_that_it_matches(change, dscp_26):
    model = json.loads(READ)
    model["filters"]["p1"][0]["options"].update(change)
    assert linux.parse(json.dumps(model), "leaf1").ports["p1"].dscp_to_class[26] == dscp_26


@pytest.mark.parametrize(
    ("old", "new", "fact"),
    [
        ('"parent": "1:2"', '"parent": "1:9"', "p1.*1033: is attached to 1:9"),
        ('"parent": "1:2"', '"parent": "1:x"', "p1.*1033: is attached to 1:x"),
        ('"classid": "1:2"', '"classid": "1:9"', "p1.*leads to 1:9"),
        ('"bands": 3', '"bands": 2', "p1.*2 bands"),
        ('"handle": "1066:"', '"handle": "1033:"', "with different numbers"),
        ('"ewma": 1, "probability": 1', '"ewma": 1', "red has no probability"),
        ('"min": 150000, ', "", "has no min"),
        ('"p1": [', '"p9": [', "filters were not read"),
        ('"mtu": 9100', '"mtu": null', "not in the form that tc and ip print"),
        ('"links"', '"link"', "links is missing"),
        ('fields": "55"', 'fields": "many"', "policy '3' with fields 'many' is not valid"),
    ],
)
def test_invalid_settings_are_refused_with_their_place(old, new, fact):
    with pytest.raises(FabricError, match=fact):
        linux.parse(READ.replace(old, new, 1), "leaf1")


@pytest.mark.parametrize(
    "text",
    ["", "hello\n", "{}", "{", '{"links": [], "qdiscs": 5}', "tc\n", "tc qdisc add dev p1\n",
     "ip link set p1 mtu many\n", "tc qdisc add dev p1 root ets bands 0\n",
     "tc qdisc add dev p1 root ets banana\n", "tc qdisc add dev p1 root red limit 60\n", "tc filter change dev p1 x\n",
     "tc qdisc add dev p1 root handle 1: red limit 9 min 1 max 2 avpkt 1000 burst 9 ecn", "tc class add dev p1 x\n",
     '{"links": [3], "qdiscs": [], "filters": {}, "sysctl": {}}'],
)  # fmt: skip
def test_text_that_is_not_a_configuration_is_refused(text):
    with pytest.raises(FabricError) as caught:
        linux.parse(text, "leaf1")
    assert str(caught.value).startswith("leaf1")


def test_a_truncated_reading_is_refused():
    for end in range(0, len(READ) - 2, 101):
        with pytest.raises(FabricError):
            linux.parse(READ[:end], "leaf1")


@pytest.mark.parametrize(
    ("changes", "fact"),
    [
        ({"queues": (Queue(False, 60), None, None, Queue(False, 50), None, None, Queue(True), None)}, "share 110%"),
        ({"queues": (Queue(False, 100, Ecn(1, 1 << 30, 1)), None, None, Queue(True), None, None, Queue(True), None)},
         "RED cannot"),
        ({"queues": (Queue(False, 100, Ecn(1, 21_474_838, 1)), None, None, Queue(True), None, None, Queue(True), None)},
         "too flat"),
        ({"class_to_queue": (0, 0, None, 3, None, None, 6, None)}, "a class of its own"),
        ({"dscp_to_class": (0,) * 63 + (None,)}, "a DSCP has no class"),
    ],
)  # fmt: skip
def test_settings_that_tc_cannot_represent_are_refused(changes, fact):
    with pytest.raises(FabricError, match=fact):
        linux.render(reference(**changes))


def test_a_port_name_with_shell_characters_is_refused():
    with refuses("leaf1: port 'p1;reboot'", "Linux"):
        linux.render(switches.switch("linux", ["p1;reboot"]))


@pytest.fixture
def namespace() -> Iterator[str]:
    """A network namespace with the two ends of a veth, p1 and p2."""
    name = f"sailloft-tc-{os.getpid()}"
    if os.geteuid() or subprocess.run(["ip", "netns", "add", name], capture_output=True, check=False).returncode:
        pytest.skip("network namespaces are made by root")
    try:
        subprocess.run(
            ["ip", "-n", name, "link", "add", "p1", "type", "veth", "peer", "name", "p2"], check=True
        )  # fmt: skip
        yield name
    finally:
        subprocess.run(["ip", "netns", "del", name], check=True)


def run_in(namespace: str, script: str) -> subprocess.CompletedProcess[str]:
    command = ["ip", "netns", "exec", namespace, "sh", "-s"]
    return subprocess.run(command, input=script, capture_output=True, text=True, check=False)


def test_a_machine_without_queueing_is_read(namespace):
    wanted = Switch("leaf1", "linux", dict.fromkeys(PORTS, PortQos(ip_mtu_bytes=4000)), reference().ecmp_fields)
    original = run_in(namespace, READING).stdout
    assert linux.parse(original, "leaf1").ports["p1"] == PortQos(ip_mtu_bytes=1500)
    assert run_in(namespace, linux.remediation(original, wanted)).returncode == 0
    changed = run_in(namespace, READING).stdout
    assert linux.parse(changed, "leaf1") == wanted
    assert linux.remediation(changed, wanted) == ""


RULES = """set -e
nft add table inet t
nft add chain inet t post '{ type filter hook postrouting priority mangle; }'
nft add chain inet t out '{ type filter hook output priority mangle; }'
nft add rule inet t post oifname p1 ip dscp set cs1
nft add rule inet t post ip6 dscp set af31
nft add rule inet t post @nh,8,8 set 4
nft add rule inet t post meta priority set 1:3
nft add rule inet t post limit rate over 10 mbytes/second drop
nft add rule inet t post limit rate 1/second accept
nft add rule inet t out ip dscp set cs2
ip link add br0 type bridge
ip link set p1 master br0
nft add chain inet t pass '{ type filter hook forward priority filter; }'
nft add chain inet t lose
nft add rule inet t pass oifname br0 limit rate 10/second jump lose
nft add rule inet t pass tcp dport 22 limit rate 1/second accept
nft add rule inet t pass ip saddr vmap '{ 10.0.0.1 : jump lose }'
nft add rule inet t lose quota over 1 mbytes drop
nft add rule inet t out limit rate 1/second drop
"""


def test_rules_of_nftables_are_read(namespace):
    process = run_in(namespace, RULES)
    if process.returncode and shutil.which("nft"):
        pytest.skip(f"this kernel lacks nf_tables or bridges: {process.stderr}")
    assert [(override.statement, override.ports) for override in overrides_in(namespace)] == [
        ("nftables postrouting set ip dscp", ("p1",)),
        ("nftables postrouting set ip6 dscp", ()),
        ("nftables postrouting set @nh bits", ()),
        ("nftables postrouting set meta priority", ()),
        ("nftables postrouting limit drop", ()),
        ("nftables forward limit drop", ("p1",)),
        ("nftables forward limit drop", ()),
    ]


def test_targets_of_iptables_are_read(namespace):
    commands = ["-o p1 -j DSCP --set-dscp 8", "-j CLASSIFY --set-class 1:3", "-j TOS --set-tos 8", "-j ACCEPT"]
    commands.append("-m hashlimit --hashlimit-above 9/sec --hashlimit-name x -j DROP")
    process = run_in(namespace, "".join(f"iptables-nft -t mangle -A POSTROUTING {command}\n" for command in commands))
    if process.returncode and shutil.which("iptables-nft"):
        pytest.skip(f"this kernel lacks nf_tables: {process.stderr}")
    assert [override.statement for override in overrides_in(namespace)] == [
        f"nftables postrouting {action}" for action in ("xt DSCP", "xt CLASSIFY", "xt TOS", "limit drop")
    ]
    without_nft = run_in(
        namespace,
        "mkdir /tmp/$$; for c in ip tc sh ls sysctl grep tr cat; do ln -s $(command -v $c)"
        f" /tmp/$$; done; PATH=/tmp/$$; {READING}",
    ).stdout
    (override,) = links_up(without_nft)
    assert override.statement.startswith("nftables: not read")


def overrides_in(namespace: str) -> tuple[Override, ...]:
    """Return the overrides in a namespace, without its links, which are down or have a small MTU."""
    return links_up(run_in(namespace, READING).stdout)


def links_up(reading: str) -> tuple[Override, ...]:
    return tuple(each for each in linux.parse(reading, "leaf1").overrides if not each.statement.startswith("link "))


def test_the_script_runs_and_its_result_is_read_back(namespace):
    wanted = reference()
    process = run_in(namespace, linux.render(wanted))
    if "kind is unknown" in process.stderr or "classifier not found" in process.stderr:
        pytest.skip("this kernel lacks ets, red or flower")
    assert process.returncode == 0, process.stderr
    seen = run_in(namespace, READING).stdout
    assert linux.parse(seen, "leaf1") == held(wanted)
    assert linux.remediation(seen, wanted) == ""
    assert run_in(namespace, linux.render(wanted)).returncode == 0  # the script may run again
