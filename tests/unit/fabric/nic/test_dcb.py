# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The output of dcb(8) is read or refused."""

from __future__ import annotations

import json

import pytest
from messages import Mentions, raises

from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.model.errors import FabricError
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.model.qos import Queue
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.nic import dcb
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.nic.seen import Dcb

SHOWN = {
    "app": {"dscp_prio": [[26, 3], [26, 4], [63, 7]]},
    "ets": {
        "willing": False, "ets_cap": 0, "prio_tc": [0, 1, 2, 3, 4, 5, 6, 7],
        "tc_tsa": ["ets", "strict", "vendor", "ets", "strict", "strict", "strict", "strict"],
        "tc_bw": [100, 0, 0, 0, 0, 0, 0, 0],
    },
    "pfc": {"pfc_cap": 255, "delay": 65535, "prio_pfc": [False, False, False, True, "on", "off", False, False]},
    "buffer": {"total_size": (1 << 32) - 1, "prio_buffer": [0] * 8, "buffer_size": [(1 << 32) - 1] + [0] * 7},
    "dcbx": {"host": True, "lld_managed": False},
}  # fmt: skip


def shown(**changes):
    return dcb.parse("eth0", {name: json.dumps(part) for name, part in {**SHOWN, **changes}.items()})


def test_the_output_of_dcb_is_read():
    dcb_read = shown()
    assert (dcb_read.tool, dcb_read.trust, dcb_read.by_host, dcb_read.willing) == ("dcb", "dscp", True, False)
    assert dcb_read.dscp_priorities == {26: (3, 4), 63: (7,)}
    assert dcb_read.dscp_to_priority()[26] is None
    assert dcb_read.dscp_to_priority()[63] == 7
    assert dcb_read.priority_to_class == (0, 1, 2, 3, 4, 5, 6, 7)
    assert dcb_read.queues[:4] == (Queue(False, 100), Queue(True), None, Queue(False, 0))
    assert (dcb_read.classes_at_most, dcb_read.lossless_at_most, dcb_read.delay, dcb_read.pfc) == (
        8,
        255,
        65535,
        (3, 4),
    )
    assert dcb_read.buffer_bytes[0] == dcb_read.buffer_total_bytes == (1 << 32) - 1
    assert shown(ets={**SHOWN["ets"], "ets_cap": 4}).classes_at_most == 4
    assert shown(dcbx={"host": True, "lld_managed": True}).by_host is False
    assert shown(app={}).trust == "pcp"
    assert dcb.parse("eth0", dict.fromkeys(dcb.OBJECTS)) == Dcb("dcb")


@pytest.mark.parametrize(
    ("part", "values"),
    [
        ("app", {"dscp_prio": {}}),
        ("app", {"dscp_prio": [[64, 0]]}),
        ("app", {"dscp_prio": [[0, 8]]}),
        ("app", {"dscp_prio": [[0]]}),
        ("app", {"dscp_prio": [[True, 0]]}),
        ("ets", {"ets_cap": 256}),
        ("ets", {"prio_tc": [0] * 7}),
        ("ets", {"prio_tc": [8] * 8}),
        ("ets", {"tc_bw": [101] * 8}),
        ("pfc", {"pfc_cap": 256}),
        ("pfc", {"delay": 65536}),
        ("pfc", {"prio_pfc": [1] * 8}),
        ("buffer", {"total_size": 1 << 32}),
        ("buffer", {"buffer_size": [-1] * 8}),
        ("buffer", {"prio_buffer": [8] * 8}),
    ],
)
def test_invalid_output_of_dcb_is_refused(part, values):
    (name,) = values
    with pytest.raises(FabricError, match=rf"eth0: 'dcb -j {part} show': it printed {name} "):
        shown(**{part: {**SHOWN[part], **values}})


@pytest.mark.parametrize(
    ("part", "name", "minimum", "maximum"),
    [
        ("ets", "ets_cap", 0, 255),
        ("pfc", "pfc_cap", 0, 255),
        ("pfc", "delay", 0, 65535),
        ("buffer", "total_size", 0, (1 << 32) - 1),
    ],
)
def test_numbers_of_dcb_are_read_up_to_their_limits(part, name, minimum, maximum):
    field = {"ets_cap": "classes_at_most", "pfc_cap": "lossless_at_most", "total_size": "buffer_total_bytes"}
    for number in (minimum, maximum):
        value_read = getattr(shown(**{part: {**SHOWN[part], name: number}}), field.get(name, name))
        assert value_read == (8 if (name, number) == ("ets_cap", 0) else number)
    for wrong in (minimum - 1, maximum + 1, True, None, str(minimum), float(minimum)):
        with pytest.raises(FabricError, match=rf"it printed {name} {wrong!r}: "):
            shown(**{part: {**SHOWN[part], name: wrong}})


def test_rows_of_dcb_are_read_up_to_their_limits():
    ets = {**SHOWN["ets"], "prio_tc": [7] * 8, "tc_bw": [100] * 8, "tc_tsa": ["ets"] * 8}
    assert shown(ets=ets).priority_to_class == (7,) * 8
    assert shown(ets=ets).queues == (Queue(False, 100),) * 8
    buffer = {**SHOWN["buffer"], "prio_buffer": [7] * 8, "buffer_size": [(1 << 32) - 1] * 8}
    assert shown(buffer=buffer).priority_to_buffer == (7,) * 8
    assert shown(buffer=buffer).buffer_bytes == ((1 << 32) - 1,) * 8
    assert shown(app={"dscp_prio": [[0, 0], [63, 7]]}).dscp_priorities == {0: (0,), 63: (7,)}
    assert shown(app={"dscp_prio": []}).trust == "pcp"
    with raises(FabricError, "ets", "tc_tsa", "8"):
        shown(ets={**ets, "tc_tsa": "ets"})
    for row in ([64, 0], [0, 8], [0, 0, 0], (0, True), "00", [-1, 0], [0, -1]):
        with raises(FabricError, "dscp_prio", repr(list(row) if isinstance(row, tuple) else row)):
            shown(app={"dscp_prio": [[1, 1], row]})


@pytest.mark.parametrize(
    ("record", "by_host"),
    [
        ({"host": True}, True),
        ({"host": True, "lld_managed": False}, True),
        ({"host": True, "lld_managed": True}, False),
        ({"host": False}, False),
        ({"host": "yes"}, False),
        ({}, False),
    ],
)
def test_dcbx_is_the_hosts_only_if_dcb_says_so(record, by_host):
    assert shown(dcbx=record).by_host is by_host


@pytest.mark.parametrize(
    ("willing", "read"),
    [(True, True), (False, False), ("on", True), ("off", False), (None, None), (1, None), ("?", None)],
)
def test_willing_is_a_flag_in_either_form(willing, read):
    assert shown(ets={**SHOWN["ets"], "willing": willing}).willing is read


def test_output_that_is_not_a_json_object_is_refused():
    assert refusal_of("[]") == Mentions("eth0", "dcb -j app show", "'[]'", "iproute2")
    assert refusal_of("{") == Mentions("eth0", "dcb -j app show", "'{'", "iproute2")
    assert dcb.parse("eth0", {"app": " \n"}).trust == "pcp"
    assert dcb.show("eth0", "ets") == ["dcb", "-N", "-j", "ets", "show", "dev", "eth0"]


def test_long_invalid_output_is_truncated_in_the_error():
    assert "it printed no JSON: 'x" + "x" * 59 + "'" in refusal_of("x" * 60)
    assert "it printed no JSON: '" + "x" * 57 + "...'" in refusal_of("x" * 61)


def refusal_of(text):
    with pytest.raises(FabricError) as refused:
        dcb.parse("eth0", {"app": text})
    return str(refused.value)


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (129, "Unknown error 129"),
        (130, "Required key not available"),
        (199, "Invalid slot"),
        (200, "Invalid request code"),
        (219, "No locks available"),
        (255, "Operation not permitted"),
        (1234, "Unknown error 1234"),
        (2340, "Unknown error 2340"),
    ],
)
def test_an_error_of_one_byte_is_the_kernels_negative_error(number, text):
    assert dcb.decoded_error(f"a: Unknown error {number}") == f"a: {text}"


def test_unknown_errors_of_dcb_are_replaced_by_the_kernels_error_texts():
    assert dcb.decoded_error("Attribute write: Unknown error 234") == "Attribute write: Invalid argument"
    assert dcb.decoded_error("Unknown error 130") == "Required key not available"
    assert dcb.decoded_error("Unknown error 129") == "Unknown error 129"
