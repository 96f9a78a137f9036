# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""SONiC switches are planned with the buffers that they have, or refused for what their images lack."""

from __future__ import annotations

import json
import re
from collections import Counter
from fractions import Fraction
from pathlib import Path

import pytest
from patched_sonic import apply, jsonpatch, patch
from planned_switches import planned_as_read
from refusals import refuses
from sonic_configs import default_config

from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.policy import thresholds
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.policy.asic_table import ASICS, REVISION
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.switch import configs
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.switch.rollout import planned

# Facts of images (sonic-buildimage 086b03bd70; tests/sonic_images prints all): ASIC; ports, Gbit/s,
# the cable in m; ingress_lossless_pool's size and xoff, the largest egress pool; the profile: size, xon, xoff, exponent
# of alpha, xon_offset. The row of the ASIC's table has other pools.
IMAGES = {
    "Nokia-IXR7220-H5-64D t0": (
        "tomahawk5", 64, 800, 5, (161176208, 29520896, 161176208), (1248, 2288, 572516, 0, 2288)
    ),
    "Arista-7060X6-64PE-256x200G t1": (
        "tomahawk5", 256, 200, 5, (121964196, 29520896, 121964196), (18796, 0, 300990, 0, 3556)
    ),
    "M2-W6940-128QC t0": (
        "tomahawk5", 128, 400, 5, (162539680, 33374584, 162539680), (18796, 0, 393192, -2, 3556)
    ),
    "Nokia-IXR7220-H4-64D t0": (
        "tomahawk4", 64, 400, 5, (113143792, 48404780, 56571896), (1248, 2288, 307848, 0, 2288)
    ),
    "Arista-7050CX3-32S-C32 t0": (
        "trident3", 32, 100, 300, (32732160, 1622016, 32599040), (4608, 4608, 160000, 0, 4608)
    ),
    "Quanta-IX7-32X t0": ("trident3", 32, 100, 300, (12766208, None, 12766208), (59603, 0, 50176, 1, 3584)),
    "Quanta-IX7-32X t1": ("trident3", 32, 100, 300, (12766208, 196608, 33004032), (9427, 0, 50176, 1, 3584)),
    "Quanta-IX9-32X t0, with a lossless pool": (
        "tomahawk3", 32, 400, 40, (59001152, 7428992, 67108864), (1270, 0, 190500, -2, 2540)
    ),
}  # fmt: skip


def image(ports, speed, cable, pools, profile):
    """Return the configuration of an image, and the ports as in roce_switch_ports."""
    names = tuple(f"Ethernet{number}" for number in range(ports))
    config = default_config(names)
    for port in config["PORT"].values():
        port["speed"] = f"{speed}000"
    config["CABLE_LENGTH"]["AZURE"] = dict.fromkeys(names, f"{cable}m")
    del config["BUFFER_PROFILE"]["pg_lossless_100000_5m_profile"]
    config["BUFFER_PG"] = {key: entry for key, entry in config["BUFFER_PG"].items() if key.endswith("|0")}
    size, headroom_pool, egress = pools
    pool = {"mode": "dynamic", "type": "ingress", "size": str(size)}
    config["BUFFER_POOL"] = {
        "ingress_lossless_pool": pool if headroom_pool is None else {**pool, "xoff": str(headroom_pool)},
        "egress_lossless_pool": {"mode": "static", "type": "egress", "size": str(egress)},
        "egress_lossy_pool": {"mode": "dynamic", "type": "egress", "size": "1"},
    }
    config["BUFFER_PROFILE"]["egress_lossless_profile"]["static_th"] = str(egress)
    if profile:
        fields = dict(zip(("size", "xon", "xoff", "dynamic_th", "xon_offset"), map(str, profile)))
        name = f"pg_lossless_{speed}000_{cable}m_profile"
        config["BUFFER_PROFILE"][name] = {"pool": "ingress_lossless_pool", **fields}
        config["BUFFER_PG"].update({f"{port}|3-4": {"profile": name} for port in names})
    return config, {port: {"speed_gbit_s": speed, "cable_m": 3} for port in names}


def request(asic, config, ports, policy=None):
    return {
        "policy": policy,
        "switches": {"leaf1": {"system": "sonic", "asic": asic, "ports": ports}},
        "hosts": None,
        "asics": None,
        "running": {"leaf1": json.dumps(config)},
    }


def plan_of(*args, **kwargs):
    return planned_as_read(request(*args, **kwargs))["leaf1"]


@pytest.mark.parametrize("name", IMAGES)
def test_an_image_is_planned_with_its_own_pools_and_headroom(name):
    asic, count, _speed, _cable, (size, headroom_pool, egress), profile = IMAGES[name]
    config, ports = image(*IMAGES[name][1:])
    switch = plan_of(asic, config, ports)
    port = switch.ports["Ethernet0"]
    if "IX9" in name:  # its profile is for 40 m, and the table's row for 5 m does not contradict it
        assert port.headroom[3].xoff_bytes == 178562
    else:
        assert port.headroom[3].xoff_bytes == profile[2]
        # buffermgrd sets its own profile again when pfc_enable changes, so another one would not stay.
        kept = jsonpatch.apply_patch(config, patch(config, switch))["BUFFER_PG"]["Ethernet0|3"]
        assert kept == config["BUFFER_PG"]["Ethernet0|3-4"]
    # Broadcom's size includes the headroom pool where both are more than egress has.
    shared = size - (headroom_pool or 0) * (size + (headroom_pool or 0) > egress)
    alpha = Fraction(2) ** port.headroom[3].alpha_exponent
    reserved = count * port.headroom[3].reserved_bytes if headroom_pool else 0
    pause_bytes = alpha * (shared - reserved) / (count * (1 + 3 * alpha))
    assert 20 <= thresholds.marked_percent(port.queues[3].ecn, pause_bytes) <= 25
    after = jsonpatch.apply_patch(config, patch(config, switch))
    assert after["BUFFER_POOL"] == config["BUFFER_POOL"]
    assert plan_of(asic, after, ports) == switch


def remarks_of(asic, config, ports):
    given = request(asic, config, ports)
    rest = dict.fromkeys(["nics", "nics_wanted", "backup_path"])
    return [line for line in planned({**given, **rest}, True, False)["table"] if REVISION in line]


def test_buffers_that_differ_from_the_table_are_named_with_the_revision_of_its_file():
    _asic, *described = IMAGES["M2-W6940-128QC t0"]
    row = ASICS["tomahawk5"]
    lines = remarks_of("tomahawk5", *image(*described))
    pool, headroom_pool = (next(line for line in lines if name in line) for name in ("lossless pool", "headroom pool"))
    assert all(part in pool for part in ("leaf1", str(162539680 - 33374584), str(row.shared_bytes), row.title))
    assert all(part in headroom_pool for part in ("leaf1", "33374584", str(row.headroom_pool_bytes)))
    table_xoff = row.headroom[400, 5].xoff_bytes
    lines = remarks_of("tomahawk5", *image(*described[:-1], (18796, 0, table_xoff + 254, -2, 3556)))
    assert [line for line in lines if str(table_xoff) in line and str(table_xoff + 254) in line]


def test_buffers_as_in_the_table_are_not_named():
    row = ASICS["tomahawk5"]
    config, ports = image(64, 800, 5, (row.pool_bytes, row.headroom_pool_bytes, row.buffer_bytes), None)
    assert remarks_of("tomahawk5", config, ports) == []
    assert remarks_of("tomahawk5", default_config(), {"Ethernet0": {"speed_gbit_s": 400, "cable_m": 5}}) != []


def test_headroom_beyond_what_the_vendors_own_configuration_needs_is_refused():
    """32 ports with two priorities of 165,568 bytes share 196,608."""
    config, ports = image(32, 100, 5, (12766208, 196608, 33004032), (1248, 2288, 165568, -3, 2288))
    assert plan_of("trident3", config, ports)
    for port in ports.values():
        port["cable_m"] = 300
    with refuses("switch leaf1", 8724480 * 2, 196608, 10596352):
        classes = {"roce": {}, "two": {"dscp": 1, "traffic_class": 4, "bandwidth_percent": 5}}
        plan_of("trident3", config, ports, {"classes": classes})


def test_profiles_of_the_switch_replace_the_rows_that_contradict_them():
    """The row for 40 m has 446 KB, less than the switch's profile for 5 m; that for 300 m has more."""
    config, ports = image(2, 400, 5, (164619432, 33690560, 164619432), (18796, 0, 612140, 0, 3556))
    xoffs = []
    for cable in (3, 40, 300):
        for port in ports.values():
            port["cable_m"] = cable
        xoffs.append(plan_of("tomahawk5", config, ports).ports["Ethernet0"].headroom[3].xoff_bytes)
    assert xoffs[0] == 612140
    assert 612140 < xoffs[1] < xoffs[2] == 839216


def test_nvidias_headroom_is_the_formulas_and_not_that_of_the_images_old_rows():
    config, ports = image(32, 400, 5, (26451968, None, 60817392), (86016, 37888, 38912, 0, 9216))
    config["BUFFER_POOL"]["ingress_lossy_pool"] = {"mode": "dynamic", "type": "ingress", "size": "26451968"}
    assert plan_of("spectrum3", config, ports).ports["Ethernet0"].headroom[3].xoff_bytes == 89_088


def test_pools_that_leave_no_room_for_headroom_are_refused():
    config, ports = image(32, 400, 5, (60000000, None, 60817392), None)
    with refuses("switch leaf1", 60000000, 60817392):
        plan_of("spectrum3", config, ports)


def test_a_pool_that_the_image_sizes_is_planned_from_what_headroom_leaves():
    config, ports = image(32, 400, 5, (1, None, 60817392), None)
    del config["BUFFER_POOL"]["ingress_lossless_pool"]["size"]
    without = configs.wanted_switches(request("spectrum3", config, ports))["leaf1"]
    assert plan_of("spectrum3", config, ports) == without


def lossy_images():
    config, ports = image(2, 400, 5, (1000000, None, 1000000), None)
    config["DEVICE_METADATA"]["localhost"].update(hwsku="SKU-1", type="ToRRouter")
    none = {table: entries for table, entries in config.items() if not table.startswith("BUFFER")}
    del config["BUFFER_QUEUE"], config["BUFFER_PROFILE"]["egress_lossless_profile"]
    pools = {f"{direction}_lossy_pool": {"type": direction} for direction in ("ingress", "egress")}
    profiles = {
        f"{direction}_lossy_profile": {"pool": f"{direction}_lossy_pool"} for direction in ("ingress", "egress")
    }
    lossy = {**config, "BUFFER_POOL": pools, "BUFFER_PROFILE": profiles}
    queues = config
    never = {table: entries for table, entries in none.items() if table != "CABLE_LENGTH"}
    return [
        (none, "BUFFER_POOL|ingress_lossless_pool", ("SKU-1 as ToRRouter", "lossy"), ports),
        (lossy, "BUFFER_POOL|ingress_lossless_pool", ("SKU-1 as ToRRouter", "ingress_lossy_pool", "lossy"), ports),
        (queues, "BUFFER_PROFILE|egress_lossless_profile", ("SKU-1 as ToRRouter", "lossy"), ports),
        (never, "BUFFER_POOL|ingress_lossless_pool", ("config qos reload",), ports),
    ]


@pytest.mark.parametrize(("config", "entry", "facts", "ports"), lossy_images())
def test_an_image_without_lossless_buffers_is_refused_before_its_speeds(config, entry, facts, ports):
    slow = {port: {"speed_gbit_s": 10, "cable_m": 3} for port in ports}  # the ASIC's table has no row for it
    with refuses(f"leaf1: {entry}", *facts):
        plan_of("tomahawk5", config, slow)


@pytest.mark.parametrize(("config", "entry", "facts", "ports"), lossy_images()[:3])
def test_a_comparison_reports_such_a_switch_instead_of_failing(config, entry, facts, ports):
    assert not configs.compared(request("tomahawk5", config, ports))["as_wanted"]


@pytest.mark.parametrize(("config", "entry", "facts", "ports"), lossy_images()[:3])
def test_the_remedy_of_a_lossy_policy_is_possible_on_such_a_switch(config, entry, facts, ports):
    policy = {"classes": {"roce": {"mode": "lossy"}}}
    assert apply(config, plan_of("tomahawk5", config, ports, policy))["QUEUE"]["Ethernet0|3"]["wred_profile"]


def test_a_size_with_a_blank_is_read():
    """Mellanox-SN4700-O8C48's xoff is '6217728 '."""
    config, ports = image(2, 400, 5, (26451968, "6217728 ", 60817392), None)
    assert plan_of("spectrum3", config, ports)


KINDS = {
    "planned": "planned: ",
    "no pools": "(headroom|lossless queues) needs? this (pool|profile)",
    "speed without": "has no headroom profile",
    "too small for ECN": "ECN cannot mark earlier",
    "egress_lossless_profile": "lossless queues share the buffer|a queue drops above",
    "no ports": "no ports are given",
    "not rendered": "not rendered: ",
}


def test_the_page_has_the_results_of_all_images():
    """sonic_images.txt is the output of tests/sonic_images at the revision in its first line."""
    head, *lines = (Path(__file__).parents[1] / "sonic_images.txt").read_text().splitlines()
    assert REVISION.split()[1] in head
    counts = Counter(next(kind for kind, text in KINDS.items() if re.search(text, line)) for line in lines)
    page = (Path(__file__).parents[4] / "docs/background/roce.md").read_text()
    rows = re.findall(r"^\| (\d+) \| (.*) \|$", page, re.M)
    assert {kind: int(number) for number, text in rows for kind in KINDS if kind in text} == counts
    assert f"Of the {len(lines)} default configurations of {REVISION}" in page
