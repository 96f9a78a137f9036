# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A SONiC switch whose image computes headroom (buffer_model dynamic) keeps doing so, and its results are checked."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from messages import Mentions
from patched_sonic import jsonpatch
from refusals import refuses
from sonic_configs import dynamic_config

from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.policy import thresholds
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.policy.asic_table import ASICS
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.switch import configs, rollout
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.systems import sonic

NAMES = tuple(f"Ethernet{8 * number}" for number in range(32))
XOFF = 87_040  # what images before July 2026 compute for 400 Gbit/s and 3 m on Spectrum-3: 2 KiB less than today's


def dump(config, xoff=XOFF):
    """Return what `sonic-db-dump -n APPL_DB` prints after the image has computed the buffers of ``config``."""
    profile = {"pool": "ingress_lossless_pool", "size": str(19_456 + xoff), "xon": "19456", "xoff": str(xoff)}
    groups = [key for key, entry in config["BUFFER_PG"].items() if entry["profile"] == "NULL"]
    size = str(60_817_392 - (2 if groups[0].endswith("3-4") else 1) * len(groups) * xoff)  # the pool gets what is left
    rows = {"BUFFER_POOL_TABLE:ingress_lossless_pool": {"type": "ingress", "mode": "dynamic", "size": size}}
    for key, entry in config["BUFFER_PG"].items():
        port, group = key.split("|")
        cable = config["CABLE_LENGTH"]["AZURE"][port]
        if entry["profile"] == "NULL":
            name = f"pg_lossless_400000_{cable}_profile"
            rows[f"BUFFER_PROFILE_TABLE:{name}"] = {**profile, "dynamic_th": "0"}
            rows[f"BUFFER_PG_TABLE:{port}:{group}"] = {"profile": name}
    dumped = {key: {"type": "hash", "value": value} for key, value in rows.items()}
    return json.dumps(
        {**dumped, "BUFFER_PG_TABLE_KEY_SET": {"type": "set", "value": ["Ethernet0:3"]}}
    )  # while it works


def request(text, **settings):
    ports = {port: {"speed_gbit_s": 400, "cable_m": 3} for port in NAMES}
    switch = {"system": "sonic", "asic": "spectrum3", "ports": ports, **settings}
    return {"policy": None, "switches": {"leaf1": switch}, "hosts": None, "asics": None, "running": {"leaf1": text}}


def plan_of(text, **settings):
    return configs.wanted_and_seen(request(text, **settings))[0]["leaf1"]


def text_of(config, xoff=XOFF):
    return f"{json.dumps(config)}\n{dump(config, xoff)}\n"


def applied(text, wanted):
    """Return the switch's ConfigDB after the change from ``text`` to the plan."""
    config, _end = json.JSONDecoder().raw_decode(text)
    for change in sonic.remediation(text, wanted).split("\n\n"):
        config = jsonpatch.apply_patch(config, json.loads(change))
    return config


def test_the_image_is_given_the_cable_and_computes_the_headroom():
    text = text_of(dynamic_config(NAMES))
    after = applied(text, plan_of(text))
    groups = {key: entry["profile"] for key, entry in after["BUFFER_PG"].items() if entry["profile"] == "NULL"}
    assert groups == {f"{port}|3": "NULL" for port in NAMES}
    assert set(after["CABLE_LENGTH"]["AZURE"].values()) == {"3m"}
    assert not [name for name in after["BUFFER_PROFILE"] if "xoff" in after["BUFFER_PROFILE"][name]]
    # What it then computed is the plan, though this project's formula gives 2 KiB more.
    result = configs.compared(request(text_of(after)))
    assert (result["as_wanted"], result["differences"]) == (True, {"leaf1": []})
    assert sonic.remediation(text_of(after), plan_of(text_of(after))) == ""


def differences_of(text):
    return configs.compared(request(text))["differences"]["leaf1"]


@pytest.mark.parametrize(
    "dumped", ["", "[]", '{"PORT": 5}', '{"BUFFER_PG_TABLE:Ethernet0:3": {"value": {"profile": "gone"}}}']
)
def test_headroom_that_was_not_read_is_not_as_wanted(dumped):
    after = applied(text_of(dynamic_config(NAMES)), plan_of(text_of(dynamic_config(NAMES))))
    (difference,) = differences_of(f"{json.dumps(after)}\n{dumped}")
    assert (difference["ports"], difference["seen"]) == (list(NAMES), "not read")
    asked = {**request(f"{json.dumps(after)}\n{dumped}"), "nics": {}, "nics_wanted": {}, "backup_path": None}
    (_all_have_it, remark) = rollout.planned(asked, check_mode=True, diff_mode=False)["table"]
    assert remark == Mentions("leaf1", "headroom", "not read")


def test_headroom_that_is_too_small_is_named_with_its_ports():
    text = text_of(dynamic_config(NAMES))
    after = applied(text, plan_of(text))
    short = text_of(after).replace(f'"xoff": "{XOFF}"', '"xoff": "70000"')
    (difference,) = differences_of(short)
    assert difference["seen"] == "70000"
    assert difference["wanted"].startswith(str(thresholds.floor_bytes(400, 3, 9100)))


def test_an_image_whose_formula_is_below_the_floor_gets_a_longer_cable():
    config = dynamic_config(NAMES)
    for port in config["PORT"].values():
        port["speed"] = "100000"
    ports = {port: {"speed_gbit_s": 100, "cable_m": 3} for port in NAMES}
    text = json.dumps(config)
    wanted = configs.wanted_and_seen(request(text, asic="spectrum", ports=ports)).wanted["leaf1"]
    (cable,) = {qos.cable_m for qos in wanted.ports.values()}
    assert 3 < cable < 10
    spectrum, floor = ASICS["spectrum"], thresholds.floor_bytes(100, 3, 9100)
    assert thresholds.spectrum_xoff_bytes(spectrum, 100, 3, 9100) < floor
    assert thresholds.spectrum_xoff_bytes(spectrum, 100, cable, 9100) >= floor


def test_a_cable_that_is_too_short_for_the_image_is_a_difference():
    after = applied(text_of(dynamic_config(NAMES)), plan_of(text_of(dynamic_config(NAMES))))
    after["CABLE_LENGTH"]["AZURE"]["Ethernet0"] = "1m"
    (difference, *_others) = configs.compared(request(text_of(after)))["differences"]["leaf1"]
    assert (difference["ports"], "cable" in difference["what"]) == (["Ethernet0"], True)


def test_a_users_headroom_is_given_to_the_image_as_a_profile():
    text = text_of(dynamic_config(NAMES))
    rows = [{"speed_gbit_s": 400, "cable_m": 10, "headroom_bytes": 150_000}]
    after = applied(text, plan_of(text, headroom=rows))
    profile = after["BUFFER_PROFILE"][after["BUFFER_PG"]["Ethernet0|3"]["profile"]]
    assert profile["xoff"] == "150000"
    assert set(after["CABLE_LENGTH"]["AZURE"].values()) == {"5m"}


def test_a_backup_restores_groups_and_cables():
    before = text_of(dynamic_config(NAMES))
    after = applied(before, plan_of(before))
    for change in sonic.restoration(before, text_of(after), "leaf1").split("\n\n"):
        after = jsonpatch.apply_patch(after, json.loads(change))
    was = dynamic_config(NAMES)
    assert (after["BUFFER_PG"], after["CABLE_LENGTH"]) == (was["BUFFER_PG"], was["CABLE_LENGTH"])


def test_the_stages_of_a_rollout_end_with_the_images_results():
    text = text_of(dynamic_config(NAMES))
    stages, done = [], None
    while True:
        params = {**request(text), "nics": {}, "nics_wanted": {}, "done": done, "backup_path": None}
        plan = rollout.planned(params, check_mode=True, diff_mode=False)
        if not plan["stages"]:
            break
        config, _end = json.JSONDecoder().raw_decode(text)
        for change in plan["changes"]["leaf1"].split("\n\n"):
            config = jsonpatch.apply_patch(config, json.loads(change))
        text, done = text_of(config), plan["stages"][0]["name"]
        stages.append(done)
    assert len(stages) >= 1
    seen, wanted = sonic.parse(text, "leaf1"), plan_of(text)
    assert {port: seen.ports[port] for port in NAMES} == wanted.ports


def test_text_after_the_configuration_that_is_no_dump_is_refused():
    with refuses("leaf1: ConfigDB", "sonic-cfggen"):
        sonic.parse(f"{json.dumps(dynamic_config(NAMES))}\nTraceback", "leaf1")


def test_a_port_that_leaves_the_inventory_keeps_no_lossless_headroom():
    after = applied(text_of(dynamic_config(NAMES)), plan_of(text_of(dynamic_config(NAMES))))
    fewer = replace(plan_of(text_of(after)), ports={NAMES[0]: plan_of(text_of(after)).ports[NAMES[0]]})
    last = applied(text_of(after), fewer)
    assert [key for key, entry in last["BUFFER_PG"].items() if entry["profile"] == "NULL"] == ["Ethernet0|3"]


def test_a_backup_is_the_configuration_alone(tmp_path):
    params = {**request(text_of(dynamic_config(NAMES))), "nics": {}, "nics_wanted": {}, "done": None}
    rollout.planned({**params, "backup_path": str(tmp_path / "run")}, check_mode=False, diff_mode=False)
    assert json.loads((tmp_path / "run/leaf1.sonic").read_text()) == dynamic_config(NAMES)


def test_a_traditional_image_keeps_its_cables():
    config = dynamic_config(NAMES)
    config["DEVICE_METADATA"]["localhost"]["buffer_model"] = "traditional"
    config["BUFFER_PG"] = {key: entry for key, entry in config["BUFFER_PG"].items() if entry["profile"] != "NULL"}
    after = applied(json.dumps(config), plan_of(json.dumps(config)))
    assert after["CABLE_LENGTH"] == config["CABLE_LENGTH"]
    assert (
        replace(plan_of(json.dumps(config)).ports["Ethernet0"], cable_m=3)
        != plan_of(json.dumps(config)).ports["Ethernet0"]
    )
