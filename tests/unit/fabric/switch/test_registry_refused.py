# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The reader of each system refuses what no switch has or prints, by name and cause."""

from __future__ import annotations

import json
import re

import pytest
from messages import raises
from proof_requests import params

from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.model.errors import FabricError
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.switch.registry import SYSTEMS


def running(system):
    return params(system)["running"]["spine1"]


@pytest.mark.parametrize("system", ["cumulus", "dell_sonic", "sonic"])
def test_a_key_that_is_there_twice_is_refused(system):
    text = running(system)
    key, value = re.search(r'"([a-z_-]+)": (\d+|"[^"]+")', text).groups()
    with raises(FabricError, "spine1", key, "twice"):
        SYSTEMS[system].parse(text.replace(f'"{key}": {value}', f'"{key}": {value}, "{key}": 1', 1), "spine1")


OF_LINES = ("eos", "nxos", "cumulus", "dell_sonic", "sonic")
MORE = [(system, f"{blank}--More--") for system in OF_LINES for blank in ("", " ")]


@pytest.mark.parametrize(("system", "pager"), [*MORE, ("junos", "---(more)---"), ("junos", "---(more 50%)---")])
def test_the_text_of_a_pager_is_refused(system, pager):
    lines = running(system).splitlines()
    if len(lines) == 1:
        lines = json.dumps(json.loads(lines[0]), indent=1).splitlines()
    middle = len(lines) // 2
    with pytest.raises(FabricError, match="spine1"):
        SYSTEMS[system].parse("\n".join([*lines[:middle], pager, *lines[middle:], ""]), "spine1")


# The pattern of the thresholds of RoCE's queue, and others that no queue can have.
THRESHOLDS = {
    "eos": (
        r"minimum-threshold \d+ bytes maximum-threshold \d+ bytes",
        "minimum-threshold {} bytes maximum-threshold {} bytes",
    ),
    "nxos": (
        r"minimum-threshold \d+ kbytes maximum-threshold \d+ kbytes",
        "minimum-threshold {} bytes maximum-threshold {} bytes",
    ),
    "cumulus": (r'"max-threshold": \d+, "min-threshold": \d+', '"max-threshold": {1}, "min-threshold": {0}'),
    "sonic": (
        r'"green_max_threshold": "\d+", "green_min_threshold": "\d+"',
        '"green_max_threshold": "{1}", "green_min_threshold": "{0}"',
    ),
    "dell_sonic": (r'"max_threshold": \d+, "min_threshold": \d+', '"max_threshold": {1}, "min_threshold": {0}'),
    "junos": (r"(fill-level) \d+(.*fill-level) \d+", r"\1 {}\2 {}"),
    "linux": (r"min \d+ max \d+", "min {} max {}"),
}  # fmt: skip


@pytest.mark.parametrize("system", sorted(THRESHOLDS))
@pytest.mark.parametrize("thresholds", [(2_000_000, 1_000_000), (1000, 10**30)])
def test_impossible_thresholds_are_refused(system, thresholds):
    pattern, other = THRESHOLDS[system]
    text = running(system)
    if text[:1] in "[{":
        text = json.dumps(json.loads(text), sort_keys=True)
    changed = re.sub(pattern, other.format(*thresholds), text, flags=re.DOTALL)
    assert changed != text
    with pytest.raises(FabricError, match="spine1"):
        SYSTEMS[system].parse(changed, "spine1")


def test_ports_with_one_lane_are_refused():
    config = json.loads(running("sonic"))
    lane = config["PORT"]["Ethernet0"]["lanes"].split(",")[-1]
    config["PORT"]["Ethernet1"] = {**config["PORT"]["Ethernet0"], "lanes": lane}
    with raises(FabricError, "spine1", "PORT|Ethernet1", f"lane {lane}", "Ethernet0"):
        SYSTEMS["sonic"].parse(json.dumps(config), "spine1")
