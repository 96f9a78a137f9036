# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Qdiscs, filters and hashes of Linux as tc, ip and sysctl print them."""

from __future__ import annotations

import json

import pytest
from messages import Mentions, raises
from refusals import refuses

from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.model.errors import FabricError
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.model.qos import Ecn, PortQos, Queue
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.running.linux import LinuxPort, ecmp_of, read_model

NO_DSCP = (None,) * 64
ALL = ("destination_ip", "destination_port", "protocol", "source_ip", "source_port")
ADDRESSES = ("destination_ip", "source_ip")
STRICT, HALF = Queue(True), Queue(False, 50)


def ets(bands=3, strict=1, quanta=(1, 1), priomap=(2,) * 16):
    options = {"bands": bands, "strict": strict, "quanta": list(quanta), "priomap": list(priomap)}
    return {"kind": "ets", "handle": "1:", "root": True, "options": options}


def red(band, handle="1034:", **options):
    values = {"min": 1000, "max": 9000, "probability": 0.25, "ecn": True, **options}
    return {"kind": "red", "handle": handle, "parent": f"1:{band:x}", "options": values}


def flower(tos, mask="fc", band=1, **other_keys):
    keys = {"ip_tos": tos, "ip_tos_mask": mask, "eth_type": "ipv4"}
    return {"protocol": "all", "kind": "flower", "options": {"keys": keys, "classid": f"1:{band}"}, **other_keys}


def port(*qdiscs, filters=()):
    return LinuxPort(
        "leaf1", "p1", {"links": {"p1": 9100}, "qdiscs": {"p1": list(qdiscs)}, "filters": {"p1": list(filters)}}
    )


def qos(*qdiscs, filters=()):
    return port(*qdiscs, filters=filters).qos()


def refused(*qdiscs, filters=()):
    with pytest.raises(FabricError) as error:
        qos(*qdiscs, filters=filters)
    return str(error.value).removeprefix("leaf1: p1: ")


COMPARE = "; compare it with `tc -d qdisc show` there"


@pytest.mark.parametrize(
    "qdiscs",
    [
        (),
        ({"kind": "fq", "root": True},),
        ({"kind": "ingress", "handle": "ffff:"}, {"kind": "clsact"}),
        ({"kind": "mq", "root": True}, {"kind": "fq", "parent": ":1"}),
    ],
)
def test_a_port_without_classes_has_only_an_mtu(qdiscs):
    assert qos(*qdiscs) == PortQos(ip_mtu_bytes=9100)


def test_a_qdisc_without_a_root_is_refused():
    assert refused({"kind": "clsact"}, {"kind": "red", "handle": "5:"}) == Mentions("qdisc red 5:")


def test_bands_are_queues_and_their_handles_have_queue_and_class():
    qos_read = qos(ets(), red(1, "1034:"), red(2, "1061:"), red(3, "1007:"))
    ecn = Ecn(1000, 9000, 25)
    queues = {3: Queue(True, None, ecn), 6: Queue(False, 50, ecn), 0: Queue(False, 50, ecn)}
    assert qos_read.queues == tuple(queues.get(number) for number in range(8))
    assert qos_read.class_to_queue == (None, 6, None, None, 3, None, None, 0)
    assert qos_read.dscp_to_class == (7,) * 64


def test_a_band_without_a_handle_gets_the_highest_numbers_that_are_free():
    qos_read = qos(ets(), red(1, "1076:"), {"kind": "fq", "handle": "8001:", "parent": "1:2"})
    assert qos_read.queues[7] == Queue(True, None, Ecn(1000, 9000, 25))
    assert qos_read.class_to_queue == (None, None, None, None, None, 5, 7, 6)


@pytest.mark.parametrize(
    ("count", "handles"), [(0, ()), (9, ()), (2, ("1034:", "1035:")), (2, ("1034:", "1024:")), (2, ("1034:", "1034:"))]
)
def test_bands_that_are_not_8_different_queues_and_classes_are_refused(count, handles):
    children = [red(position + 1, handle) for position, handle in enumerate(handles)]
    assert refused(ets(count, count, ()), *children) == Mentions(f"{count} bands", "1", "8", "queues", "classes")


@pytest.mark.parametrize("count", [1, 8])
def test_one_to_eight_bands_are_read(count):
    qos_read = qos(ets(count, count, (), [count - 1] * 16))
    assert [queue for queue in qos_read.queues if queue] == [STRICT] * count


@pytest.mark.parametrize(
    ("root", "queues"),
    [
        ({"kind": "prio", "options": {"bands": 2, "priomap": [1] * 16}}, [STRICT, STRICT]),
        ({"kind": "ets", "options": {"bands": 2, "quanta": [1, 1], "priomap": [1] * 16}}, [HALF, HALF]),
        ({"kind": "ets", "options": {"bands": 1, "strict": 1, "priomap": [0] * 16}}, [STRICT]),
        (ets(3, 1, (100, 201)), [STRICT, Queue(False, 33), Queue(False, 67)]),
    ],
)
def test_bands_are_strict_or_have_a_share(root, queues):
    qos_read = qos({"handle": "1:", "root": True, **root})
    assert [queue for queue in reversed(qos_read.queues) if queue] == queues


@pytest.mark.parametrize(
    ("root", "cause"),
    [
        (ets(3, 1, (1,)), "ets has 3 bands, 1 strict, and quanta [1]"),
        (ets(3, 1, (1, 0)), "ets has 3 bands, 1 strict, and quanta [1, 0]"),
        (
            {**ets(), "options": {"bands": 1, "strict": 0, "quanta": 7, "priomap": []}},
            "ets has 1 bands, 0 strict, and quanta 7",
        ),
        ({**ets(), "options": {"quanta": [1]}}, "qdisc ets 1: has no bands"),
        ({**ets(), "options": None}, "qdisc ets 1: has no bands"),
        ({**ets(), "options": {"bands": 1, "strict": 1}}, "qdisc ets 1: has no priomap"),
    ],
)
def test_incomplete_bands_are_refused(root, cause):
    assert refused(root) == f"{cause}{COMPARE}"


def test_only_qdiscs_below_the_root_belong_to_bands():
    other_qdiscs = [
        {"kind": "red", "handle": "1012:", "parent": "2:1", "options": {}},
        {"kind": "ingress", "handle": "ffff:", "parent": "1:1"},
        {"kind": "clsact", "handle": "1013:", "parent": "1:2"},
    ]
    assert qos(ets(), *other_qdiscs) == qos(ets())


@pytest.mark.parametrize("minor", ["0", "4", "a", "x", ""])
def test_a_qdisc_of_a_band_that_does_not_exist_is_refused(minor):
    child = {"kind": "red", "handle": "5:", "parent": f"1:{minor}"}
    assert refused(ets(), child) == Mentions("qdisc 5:", f"1:{minor}", "3 bands")


@pytest.mark.parametrize(
    ("options", "ecn"),
    [
        ({}, Ecn(1000, 9000, 25)),
        ({"probability": 0}, Ecn(1000, 9000, 0)),
        ({"probability": 1}, Ecn(1000, 9000, 100)),
        ({"probability": 0.499}, Ecn(1000, 9000, 50)),
        ({"ecn": False}, None),
        ({"harddrop": True}, None),
        ({"adaptive": True}, None),
    ],
)
def test_red_marks_packets_if_it_has_ecn(options, ecn):
    assert qos(ets(), red(1, **options)).queues[3].ecn == ecn


def test_another_qdisc_of_a_band_marks_no_packets():
    assert qos(ets(), {**red(1), "kind": "fq_codel"}).queues[3].ecn is None


def test_the_probability_of_older_kernels_is_computed():
    child = red(1, Plog=14)
    del child["options"]["probability"]
    assert qos(ets(), child).queues[3].ecn == Ecn(1000, 9000, 49)  # 8000 / 16384
    del child["options"]["Plog"]
    assert refused(ets(), child) == Mentions("red", "no probability", "tc -d")
    del child["options"]["max"]
    assert refused(ets(), child) == Mentions("qdisc red 1034:", "max")


@pytest.mark.parametrize("probability", [-0.01, 1.01])
def test_an_impossible_probability_is_refused(probability):
    assert refused(ets(), red(1, probability=probability)) == Mentions("red", f"probability {probability}")


NAMED = (ets(), red(1, "1010:"), red(2, "1021:"), red(3, "1032:"))


def dscps(*filters, priomap=(2,) * 16):
    """Return the classes (0, 1, 2 by band) of the DSCPs."""
    return qos(ets(priomap=priomap), *NAMED[1:], filters=filters).dscp_to_class


def at(default, **classes):
    return tuple(classes.get(f"_{dscp}", default) for dscp in range(64))


@pytest.mark.parametrize(
    ("filters", "classes"),
    [
        ((), at(2)),
        ((flower(0x68),), at(2, _26=0)),
        ((flower(0x68, band=2), flower(0x68)), at(2, _26=1)),
        ((flower(0x68, pref=2), flower(0x68, band=2, pref=1)), at(2, _26=1)),
        ((flower(0x68, pref=1), flower(0x68, band=2)), at(2, _26=1)),  # without a preference, it is the first
        # ECN's two bits belong to the mask: only some packets of this DSCP match.
        ((flower(0x68, "ff"),), at(2, _26=None)),
        ((flower(0x69, "fd"),), at(2, _26=None)),
        ((flower(0x60, "f0"),), at(2, _24=0, _25=0, _26=0, _27=0)),
        ((flower(0x68, protocol="ip"), flower(0x68, protocol="ipv6")), at(2, _26=0)),
        ((flower(0x68, protocol="ip"),), at(2, _26=None)),
        ((flower(0x68, protocol="arp"),), at(2)),
        ((flower(0x68, parent="1:"),), at(2, _26=0)),
        ((flower(0x68, parent="ffff:"),), at(2)),
        (({"protocol": "all", "kind": "matchall", "options": {"flowid": "1:2"}},), at(1)),
        (({"protocol": "all", "kind": "matchall", "options": {"classid": "1:z"}},), NO_DSCP),
        (({"protocol": "all", "kind": "bpf", "options": {"classid": "1:1"}},), NO_DSCP),
        (({"protocol": "all", "kind": "flower", "options": {"keys": {}, "classid": "1:1"}},), at(0)),
        ((flower(0x68), {"protocol": "all", "kind": "basic", "options": {}}), at(None, _26=0)),
    ],
)
def test_filters_put_dscps_into_classes(filters, classes):
    assert dscps(*filters) == classes


def test_a_filter_without_a_mask_takes_the_whole_byte():
    rule = {"protocol": "all", "kind": "flower", "options": {"keys": {"ip_tos": 0x68}, "classid": "1:1"}}
    assert dscps(rule) == at(2, _26=None)


def test_a_filter_with_another_key_takes_only_some_packets():
    rule = flower(0x68)
    rule["options"]["keys"]["ip_proto"] = "udp"
    assert dscps(rule) == NO_DSCP


def u32(match, protocol="ip"):
    return {"protocol": protocol, "kind": "u32", "options": {"match": match, "flowid": "1:1"}}


@pytest.mark.parametrize(
    ("change", "classes"),
    [
        ({}, at(2, _26=0)),
        ({"off": 4}, NO_DSCP),
        ({"offmask": "f"}, NO_DSCP),
        ({"mask": "ffc0000"}, NO_DSCP),
        ({"value": "", "mask": ""}, at(0)),
    ],
)
def test_u32_matches_the_tos_byte_of_the_first_word(change, classes):
    four = {"value": "680000", "mask": "fc0000", "off": 0, **change}
    six = {**four, **{key: f"{four[key]}0" for key in ("value", "mask") if four[key]}}
    assert dscps(u32(four), u32(six, "ipv6")) == classes


def test_u32_with_several_matches_is_not_understood():
    assert dscps(u32(None), u32(None, "ipv6")) == NO_DSCP


@pytest.mark.parametrize("priomap", [[2] * 15 + [1], [2] * 15, []])
def test_without_one_band_for_all_priorities_other_dscps_have_no_class(priomap):
    assert dscps(flower(0x68), priomap=priomap) == at(None, _26=0)


@pytest.mark.parametrize("target", ["1:0", "1:4", "2:1"])
def test_a_filter_to_a_band_that_does_not_exist_is_refused(target):
    rule = {"protocol": "all", "kind": "matchall", "options": {"classid": target}}
    assert refused(*NAMED, filters=[rule]) == Mentions(target, "3 bands")


@pytest.mark.parametrize("band", [-1, 3])
def test_priorities_of_a_band_that_does_not_exist_are_refused(band):
    assert refused(ets(priomap=[band] * 16)) == Mentions("priomap", f"band {band}", "3 bands")


def test_filters_that_were_not_read_are_refused():
    unread = port(ets())
    unread.filters = None
    with refuses("leaf1: p1", "filters", "READING"):
        unread.qos()


def hashing(policy, fields="0", six=None):
    by_family = {"ipv4": (policy, fields), "ipv6": six or (policy, fields)}
    return {
        f"net.{family}.fib_multipath_hash_{key}": value
        for family, values in by_family.items()
        for key, value in zip(("policy", "fields"), values)
    }


@pytest.mark.parametrize(
    ("sysctl", "fields"),
    [
        (hashing("0"), ADDRESSES),
        (hashing("1"), ALL),
        (hashing("2"), None),  # of inner packets
        (hashing("3", "0x0037"), ALL),
        (hashing("3", "3"), ADDRESSES),
        (hashing("3", "1"), ("source_ip",)),
        (hashing("3", "2"), ("destination_ip",)),
        (hashing("3", "4"), ("protocol",)),
        (hashing("3", "0x0010"), ("source_port",)),
        (hashing("3", "32"), ("destination_port",)),
        (hashing("3", "8"), ()),  # the flow label, of which no policy asks
        (hashing("0", six=("3", "3")), ADDRESSES),
        (hashing("0", six=("1", "0")), None),
        ({}, None),
    ],
)
def test_the_hash_is_read_where_both_ip_versions_have_the_same(sysctl, fields):
    assert ecmp_of(sysctl, "leaf1") == fields


@pytest.mark.parametrize("sysctl", [hashing("x"), hashing("3", "many"), hashing("3", None), hashing([3])])
def test_an_invalid_hash_is_refused(sysctl):
    with raises(FabricError, "leaf1", "net.ipv4.fib_multipath_hash_policy", "policy", "valid"):
        ecmp_of(sysctl, "leaf1")


READ = {
    "links": [{"ifname": "lo", "mtu": 65536, "link_type": "loopback"}, {"ifname": "p1", "mtu": 9100}],
    "qdiscs": [{"dev": "p1", "kind": "ets"}, {"dev": "p1", "kind": "red"}],
    "filters": {
        "p1": [{"protocol": "ip"}, {"kind": "u32", "options": {"ht_divisor": 1}}, {"kind": "flower", "options": {}}]
    },
    "sysctl": {"a": "1"},
}


def test_the_output_of_tc_and_ip_is_read():
    assert read_model(f" \n{json.dumps(READ)}", "leaf1") == {
        "links": {"p1": 9100},
        "qdiscs": {"p1": READ["qdiscs"]},
        "filters": {"p1": [{"kind": "flower", "options": {}}]},
        "sysctl": {"a": "1"},
        "flags": {"lo": (["UP"], None), "p1": (["UP"], None)},
        "rules": [("nftables: not read, because the command nft is missing", ())],
        "lower": {},
        "tagged": [],
        "kinds": {"lo": {}, "p1": {}},
    }


def test_a_script_is_read_as_if_it_had_run():
    assert read_model("sysctl a=1\n", "leaf1")["sysctl"] == {"a": "1"}


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        ("{", "not JSON ("),
        *(
            (json.dumps({**READ, key: 7}), f"{key} is missing, or not in the form that tc and ip print;")
            for key in READ
        ),
        (json.dumps({**READ, "links": [{"ifname": "p1"}]}), "not in the form that tc and ip print (KeyError('mtu'));"),
        (json.dumps({**READ, "filters": {"p1": 7}}), "not in the form that tc and ip print (TypeError("),
    ],
)
def test_other_text_is_refused(text, cause):
    with pytest.raises(FabricError) as error:
        read_model(text, "leaf1")
    assert str(error.value).startswith(f"leaf1: what was read by tc: {cause}")


@pytest.mark.parametrize("tool", ["ethtool --json -a", "dcb -j pfc show dev"])
@pytest.mark.parametrize("shown", [5, "x", [5], [[]], {"prio_pfc": 5}, {"prio": []}, {"p1": []}])
def test_pauses_in_another_form_are_refused(tool, shown):
    reading = {"links": [], "qdiscs": [], "filters": {}, "sysctl": {}, tool: {"p1": shown}}
    with raises(FabricError, "leaf1", "READING"):
        read_model(json.dumps(reading), "leaf1")


@pytest.mark.parametrize(("rx", "tx"), [(True, False), (None, False), ("off", True)])
def test_a_pause_that_is_not_shown_as_off_counts_as_on(rx, tx):
    shown = {"p1": [{"ifname": "p1", "rx": rx, "tx": tx}], "lo": None}
    reading = {"links": [], "qdiscs": [], "filters": {}, "sysctl": {}, "ethtool --json -a": shown}
    assert ("link pause rx", ("p1",)) in read_model(json.dumps(reading), "leaf1")["rules"]


def test_repeated_keys_make_a_filter_unreadable():
    text = json.dumps(READ).replace('"options": {}', '"options": {"match": {"off": 0}, "match": {"off": 4}}')
    assert read_model(text, "leaf1")["filters"]["p1"] == [{"kind": "flower", "options": {"match": None}}]
