# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The commands that bring a machine back, and the differences of queueing that count."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
import switches
from messages import raises

from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.model.errors import FabricError
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.systems import linux

WANTED = switches.switch("linux", ["p2", "p1"])
READ = json.loads(Path(__file__).with_name("linux_reading.json").read_text())
QUEUEING = [line for line in linux.render(WANTED).splitlines() if line.startswith("tc ")]


def of(port: str) -> list[str]:
    return [line for line in QUEUEING if f" dev {port} " in line]


def back(backup: dict[str, Any], now: dict[str, Any]) -> list[str]:
    text = linux.restoration(json.dumps(backup), json.dumps(now), "leaf1")
    assert not text or text.startswith("#!/bin/sh\nset -eu\n")
    assert not text or text.endswith("\n")
    return text.splitlines()[2:]


def without(read: dict[str, Any], port: str, *qdiscs: dict[str, Any]) -> dict[str, Any]:
    """Return a reading in which a port has only these qdiscs, and no filters."""
    reading = copy.deepcopy(read)
    reading["qdiscs"] = [qdisc for qdisc in reading["qdiscs"] if qdisc["dev"] != port]
    reading["qdiscs"] += [{"dev": port, "root": True, **qdisc} for qdisc in qdiscs]
    reading["filters"][port] = []
    return reading


def changed(path: str, value: Any) -> dict[str, Any]:
    """Return the reading with another value at a path such as "links.1.mtu"."""
    reading = copy.deepcopy(READ)
    *parents, last = (int(key) if key.isdecimal() else key for key in path.split("/"))
    node = reading
    for key in parents:
        node = node[key]
    assert node[last] != value
    node[last] = value
    return reading


def test_nothing_is_sent_if_nothing_differs():
    assert linux.restoration(json.dumps(READ), json.dumps(READ), "leaf1") == ""


def test_mtu_and_hash_are_brought_back():
    index = next(index for index, link in enumerate(READ["links"]) if link["ifname"] == "p1")
    assert back(READ, changed(f"links/{index}/mtu", 1500)) == ["ip link set dev p1 mtu 9100"]
    key = "net.ipv4.fib_multipath_hash_policy"
    assert back(READ, changed(f"sysctl/{key}", "0")) == [f"sysctl -q -w {key}=3"]
    assert back(changed(f"sysctl/{key}", "0"), READ) == [f"sysctl -q -w {key}=0"]


def test_queueing_of_ours_is_built_again():
    assert back(READ, without(READ, "p1", {"kind": "noqueue", "handle": "0:"})) == of("p1")


def test_queueing_is_built_again_from_a_script_without_an_mtu():
    script = "".join(f"{line}\n" for line in ["#!/bin/sh", "set -eu", *of("p1")])
    text = linux.restoration(script, "#!/bin/sh\nset -eu\ntc qdisc del dev p1 root 2>/dev/null || true\n", "leaf1")
    assert text == script
    assert text.splitlines()[2] == "tc qdisc del dev p1 root 2>/dev/null || true"


@pytest.mark.parametrize(
    "qdiscs", [(), *(({"kind": kind, "handle": "0:"},) for kind in ("noqueue", "mq", "fq_codel", "pfifo_fast"))]
)
def test_a_default_qdisc_comes_back_when_ours_is_removed(qdiscs):
    assert back(without(READ, "p1", *qdiscs), READ) == ["tc qdisc del dev p1 root 2>/dev/null || true"]


def test_a_device_that_is_gone_is_left_out():
    removed = without(READ, "p1")
    removed["links"] = [link for link in removed["links"] if link["ifname"] != "p1"]
    assert back(READ, removed) == []
    assert back(removed, READ) == []


@pytest.mark.parametrize("kind", ["htb", "ets"])
def test_queueing_of_others_cannot_be_built_again(kind):
    options = {"bands": 1, "strict": 1, "priomap": [0] * 16}
    foreign = without(READ, "p1", {"kind": kind, "handle": "8001:", "options": options})
    with raises(FabricError, "leaf1", "p1", kind):
        back(foreign, READ)


def place(kind: str, number: int = 0) -> int:
    """Return where a port's qdisc of this kind is in the reading."""
    return [index for index, qdisc in enumerate(READ["qdiscs"]) if (qdisc["dev"], qdisc["kind"]) == ("p1", kind)][
        number
    ]


RED, ETS = place("red"), place("ets")


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (f"qdiscs/{RED}/options/probability", 0.99),
        (f"qdiscs/{RED}/options/min", 1),
        (f"qdiscs/{RED}/options/ecn", False),
        (f"qdiscs/{RED}/handle", "1034:"),
        (f"qdiscs/{RED}/parent", "1:1"),
        (f"qdiscs/{ETS}/options/quanta", [5000, 5001]),
        ("filters/p1/0/options/classid", "1:1"),
        ("filters/p1/0/options/keys/ip_tos", 100),
        ("filters/p1/0/options/keys/ip_tos_mask", "f8"),
        ("filters/p1/0/protocol", "ipv6"),
    ],
)
def test_a_difference_of_queueing_is_mended(path, value):
    assert back(READ, changed(path, value)) == of("p1")


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (f"qdiscs/{RED}/options/probability", 0.99502),
        ("filters/p1/0/options/keys/eth_type", "ipv6"),
        ("filters/p1/0/pref", 7),
    ],
)
def test_other_differences_do_not_count(path, value):
    assert back(READ, changed(path, value)) == []


def test_qdiscs_of_arriving_packets_do_not_count():
    added = copy.deepcopy(READ)
    added["qdiscs"] += [{"dev": "p1", "kind": kind, "handle": "ffff:"} for kind in ("ingress", "clsact")]
    assert back(READ, added) == []


def test_filters_that_were_not_read_differ_from_ours():
    unread = copy.deepcopy(READ)
    del unread["filters"]["p1"]
    assert back(READ, unread) == of("p1")
    bare = {"protocol": "ip", "kind": "matchall", "options": {"classid": "1:1"}}
    added = copy.deepcopy(READ)
    added["filters"]["p1"].append(bare)
    assert back(READ, added) == of("p1")
