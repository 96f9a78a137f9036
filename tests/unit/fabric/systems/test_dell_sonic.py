from __future__ import annotations

import copy
import importlib
import json
from dataclasses import replace

import pytest
from ansible.module_utils.common.arg_spec import ArgumentSpecValidator
from hypothesis import given, settings
from hypothesis import strategies as st
from switches import policies, switch

from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.model.errors import FabricError
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.model.qos import (
    Ecn,
    PortQos,
    Queue,
    Switch,
    Watchdog,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.switch.registry import SYSTEMS
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.systems import dell_sonic
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.systems.parts import dell_sonic_render

PORTS = ["Eth1/1", "Eth1/2"]
TWO = {
    "classes": {
        "roce": {"bandwidth_percent": 40},
        "storage": {"dscp": 34, "traffic_class": 4, "bandwidth_percent": 20},
    }
}


def dell(policy=None, ports=None, **changes) -> Switch:
    return switch("dell_sonic", list(PORTS if ports is None else ports), policy, **changes)


def rendered(wanted: Switch) -> dict:
    return json.loads(dell_sonic.render(wanted))


def read(config: dict) -> Switch:
    return dell_sonic.parse(json.dumps(config), "leaf1")


def held(wanted: Switch) -> Switch:
    """Return ``wanted`` without NOT_HELD."""
    nothing = {"headroom": (None,) * 8, "cable_m": None}
    assert nothing.keys() == dell_sonic.NOT_HELD.keys()
    return replace(wanted, ports={port: replace(qos, **nothing) for port, qos in wanted.ports.items()})


def gathered(arguments: dict) -> dict:
    """As ansible_network_resources has it after the modules' own validation: with all of their defaults."""
    found = {}
    for module, given_arguments in arguments.items():
        resource = module[len("sonic_") :]
        valid = validate(module, given_arguments)
        assert not valid.error_messages, (module, valid.error_messages)
        found[resource] = valid.validated_parameters["config"]
    return json.loads(json.dumps(found))


def validate(module: str, arguments: dict):
    resource = module[len("sonic_") :]
    path = "ansible_collections.dellemc.enterprise_sonic.plugins.module_utils.network.sonic.argspec"
    argspec = importlib.import_module(f"{path}.{resource}.{resource}")
    spec = getattr(argspec, f"{resource.capitalize()}Args").argument_spec
    return ArgumentSpecValidator(spec).validate(arguments)


def test_it_is_registered():
    assert SYSTEMS["dell_sonic"] is dell_sonic


def test_the_reference_as_a_person_would_write_it():
    arguments = rendered(dell(ports=["Eth1/1"]))
    assert {each["state"] for each in arguments.values()} == {"merged"}
    config = {module: each["config"] for module, each in arguments.items()}
    assert list(config) == sorted(dell_sonic.MODULES)
    [interface] = config["sonic_qos_interfaces"]
    assert interface["name"] == "Eth1/1"
    assert interface["pfc"] == {
        "asymmetric": False,
        "priorities": [{"dot1p": 3, "enable": True}],
        "watchdog_action": "drop",
        "watchdog_detect_time": 200,
        "watchdog_restore_time": 200,
    }
    bound = interface["qos_maps"]
    maps = config["sonic_qos_maps"]
    [dscp] = maps["dscp_maps"]
    assert dscp["name"] == bound["dscp_fwd_group"]
    assert dscp["entries"][26] == {"dscp": 26, "fwd_group": "3"}
    assert dscp["entries"][48] == {"dscp": 48, "fwd_group": "6"}
    [queue] = maps["fwd_group_queue_maps"]
    assert queue["name"] == bound["fwd_group_queue"]
    assert queue["entries"] == [{"fwd_group": str(at), "queue_index": at} for at in (0, 3, 6)]
    [stops] = maps["pfc_priority_queue_maps"]
    assert stops["name"] == bound["pfc_priority_queue"] == "SAILLOFT_PFC"
    assert stops["entries"] == [{"dot1p": at, "queue_index": at} for at in (0, 3, 6)]
    [policy] = config["sonic_qos_scheduler"]
    assert policy["name"] == interface["scheduler_policy"]
    assert policy["schedulers"] == [
        {"sequence": 0, "scheduler_type": "dwrr", "weight": 50},
        {"sequence": 3, "scheduler_type": "dwrr", "weight": 50},
        {"sequence": 6, "scheduler_type": "strict"},
    ]
    [wred] = config["sonic_qos_wred"]
    assert interface["queues"] == [{"id": 3, "wred_profile": wred.pop("name")}]
    assert wred == {
        "ecn": "green",
        "green": {"enable": True, "min_threshold": 150000, "max_threshold": 1500000, "drop_probability": 100},
    }
    assert config["sonic_qos_buffer"] == {"buffer_init": True}
    assert config["sonic_interfaces"] == [{"name": "Eth1/1", "mtu": 9100}]
    assert config["sonic_ecmp_load_share"]["ipv6"]["ipv6_next_hdr"] is True
    assert len(config["sonic_ecmp_load_share"]["ipv4"]) == 5


@given(policies())
@settings(deadline=None)
def test_what_is_rendered_is_read_back_and_the_modules_take_it(policy):
    wanted = dell(policy)
    arguments = rendered(wanted)
    assert read(arguments) == held(wanted)
    again = read(gathered(arguments))
    # The modules gather a cable's length of 40 m where none was set.
    assert held(again) == held(wanted)


def test_two_lossless_classes_are_read_back():
    wanted = dell(TWO)
    assert read(rendered(wanted)) == held(wanted)
    assert wanted.ports["Eth1/1"].pfc == (3, 4)


def test_the_modules_refuse_what_is_not_theirs():
    """So that the test above can fail."""
    arguments = rendered(dell())
    for module, path, value, why in [
        ("sonic_qos_wred", (0, "ecn"), "ecn_all", "value of ecn must be one of: green, got: ecn_all"),
        (
            "sonic_qos_scheduler",
            (0, "schedulers", 0, "scheduler_type"),
            "STRICT",
            "value of scheduler_type must be one of: dwrr, wrr, strict, got: STRICT",
        ),
        ("sonic_qos_interfaces", (0, "pfc", "watchdog"), 200, "config.pfc.watchdog. Supported parameters include: "),
        ("sonic_qos_maps", ("dscp_maps", 0, "entries", 0, "dscp"), "x", "argument 'dscp' is of type str"),
        ("sonic_qos_buffer", ("buffer_init",), "x", "argument 'buffer_init' is of type str"),
        ("sonic_interfaces", (0, "mtu"), "x", "argument 'mtu' is of type str"),
    ]:
        broken = copy.deepcopy(arguments[module])
        holder = broken["config"]
        for each in path[:-1]:
            holder = holder[each]
        holder[path[-1]] = value
        (said,) = validate(module, broken).error_messages
        assert said.startswith(why)
        assert validate(module, arguments[module]).error_messages == []


@pytest.mark.parametrize(
    ("cable_m", "length", "seen"), [(1, "5m", 5), (5, "5m", 5), (6, "40m", 40), (300, "300m", 300)]
)
def test_a_cable_has_the_length_that_is_not_shorter(cable_m, length, seen):
    wanted = dell(cable_m=cable_m)
    arguments = rendered(wanted)
    assert arguments["sonic_qos_interfaces"]["config"][0]["cable_length"] == f"{seen}m"
    assert read(arguments).ports["Eth1/1"].cable_m == seen


def test_what_this_system_cannot_have_is_refused():
    three = (2, 3, 4)
    for changes, said in [
        ({"cable_m": 301}, r"leaf1: Eth1/1: a cable of 301 m"),
        ({"pfc": three}, r"leaf1: Eth1/1: PFC on priorities 2, 3, 4, and this system takes 2"),
        (
            {"queues": (Queue(False, 50, Ecn(999, 5000, 1)), *[None] * 7)},
            r"leaf1: Eth1/1: an ECN threshold of 999 b",
        ),
        ({"queues": (Queue(False, 50, Ecn(1000, 12480001, 1)), *[None] * 7)}, r"threshold of 12480001 bytes"),
    ]:
        with pytest.raises(FabricError, match=said):
            dell_sonic.render(dell(**changes))


def test_one_map_of_pfc_for_all_ports():
    wanted = dell()
    other = replace(wanted.ports["Eth1/1"], priority_to_queue=(None,) * 8)
    with pytest.raises(FabricError, match=r"leaf1: its ports differ"):
        dell_sonic.render(replace(wanted, ports={**wanted.ports, "Eth1/2": other}))


def test_the_same_input_the_same_bytes_with_sorted_keys():
    text = dell_sonic.render(dell())
    dell_sonic_render._text.cache_clear()
    assert dell_sonic.render(copy.deepcopy(dell())) == text
    assert text == json.dumps(json.loads(text), indent=2, sort_keys=True) + "\n"


def test_a_lossy_switch_is_not_restarted_for_its_buffers():
    arguments = rendered(dell({"classes": {"roce": {"mode": "lossy"}}}))
    assert not {"sonic_qos_buffer", "sonic_qos_pfc"} & arguments.keys()
    assert "pfc" not in arguments["sonic_qos_interfaces"]["config"][0]


# What no term of Switch holds.
NO_TERM = {
    ("sonic_qos_buffer", "buffer_init"),
    ("sonic_qos_pfc", "counter_poll"),
    ("sonic_qos_pfc", "poll_interval"),
    ("sonic_qos_interfaces", "asymmetric"),
    ("sonic_qos_interfaces", "watchdog_action"),  # "drop" where it is not set
    ("sonic_qos_scheduler", "dwrr"),  # what is not strict, set or not
}


def leaves(value, path=()):
    for at, each in value.items() if isinstance(value, dict) else enumerate(value):
        if isinstance(each, (dict, list)):
            yield from leaves(each, (*path, at))
        else:
            yield (*path, at), each


def outcome(config):
    try:
        return read(config)
    except FabricError as error:
        return str(error)


def test_each_setting_that_is_taken_away_is_missed():
    arguments = rendered(dell({"classes": {"roce": {"bandwidth_percent": 60}}}, ports=["Eth1/1"]))
    before = read(arguments)
    count = 0
    for path, value in leaves(arguments):
        if path[1] == "state":
            continue
        broken = copy.deepcopy(arguments)
        holder = broken
        for each in path[:-1]:
            holder = holder[each]
        del holder[path[-1]]
        no_term = {(path[0], path[-1]), (path[0], value)} & NO_TERM
        assert (outcome(broken) == before) is bool(no_term), path
        count += not no_term
    assert count > 150


def test_what_the_modules_gather_of_a_switch_as_it_comes():
    """Forms of the examples in the documentation of sonic_qos_interfaces and sonic_qos_maps, version 3.2.0."""
    config = {
        "interfaces": [{"name": "Eth1/5", "mtu": 9100}, {"name": "Vlan10", "mtu": 9100}, {"name": "Loopback0"}],
        "qos_maps": {
            "dscp_maps": [{"name": "dscp_map1", "entries": [{"dscp": 3, "fwd_group": "3"}]}],
            "pfc_priority_pg_maps": [{"name": "pfc_pg_map1", "entries": [{"dot1p": 3, "pg_index": 4}]}],
            "fwd_group_pg_maps": [{"name": "fwd_pg_map1", "entries": [{"fwd_group": "3", "pg_index": 4}]}],
        },
        "qos_scheduler": [
            {
                "name": "policy1",
                "schedulers": [
                    {"sequence": 3, "scheduler_type": "dwrr", "weight": 15},
                    {"sequence": 4, "scheduler_type": "wrr", "weight": 45},
                    {"sequence": 255, "pir": 10},
                ],
            }
        ],
        "qos_wred": [
            {"name": "off", "green": {"enable": False, "min_threshold": 1000, "max_threshold": 5000}},
            {"name": "on", "ecn": "green", "green": {"enable": True, "min_threshold": 1000, "max_threshold": 5000}},
        ],
        "qos_interfaces": [
            {
                "name": "Eth1/5",
                "cable_length": "40m",
                "scheduler_policy": "policy1",
                "queues": [{"id": 3, "wred_profile": "on"}, {"id": 4, "wred_profile": "off"}, {"id": 5}],
                "qos_maps": {
                    "dscp_fwd_group": "dscp_map1",
                    "fwd_group_pg": "fwd_pg_map1",
                    "pfc_priority_pg": "pfc_pg_map1",
                },
                "pfc": {
                    "asymmetric": False,
                    "watchdog_action": "alert",
                    "watchdog_detect_time": 100,
                    "watchdog_restore_time": 200,
                    "priorities": [{"dot1p": 3, "enable": True}, {"dot1p": 4, "enable": False}],
                },
            },
            {"name": "CPU", "scheduler_policy": "policy1"},
        ],
    }
    found = read(config)
    assert found.ecmp_fields is None
    assert list(found.ports) == ["Eth1/5"]
    qos = found.ports["Eth1/5"]
    assert qos.dscp_to_class[3] == 3
    assert qos.class_to_priority[3] == 3
    assert qos.pfc == (3,)
    assert qos.queues[3] == Queue(False, 25, Ecn(1000, 5000, 0))
    assert qos.queues[4] == Queue(False, 75)
    assert qos.watchdog == Watchdog(100, 200, "alert")
    assert qos.cable_m == 40


def test_nothing_set_is_nothing_seen():
    assert read({}) == Switch("leaf1", "dell_sonic", {}, None)
    assert read({"qos_interfaces": [{"name": "Eth1/1"}]}).ports == {"Eth1/1": PortQos()}


def put(module, *path_and_value):
    *path, last, value = path_and_value

    def change(arguments):
        holder = arguments.setdefault(module, {})
        for each in path:
            holder = holder[each]
        holder[last] = value

    return change


BAD = [
    (lambda arguments: arguments.update(sonic_qos_wred=[]), "leaf1: sonic_qos_wred: [] are no arguments"),
    (put("sonic_qos_wred", "config", "x"), "leaf1: sonic_qos_wred: 'x' is no list"),
    (put("sonic_qos_wred", "config", ["x"]), "leaf1: sonic_qos_wred: 'x' is no object"),
    (put("sonic_qos_wred", "config", [{}]), "leaf1: sonic_qos_wred: {} has no name"),
    (put("sonic_qos_wred", "config", [{"name": "a"}, {"name": "a"}]), "leaf1: sonic_qos_wred a: it stands there twice"),
    (put("sonic_qos_wred", "config", []), "sonic_qos_wred has no profile 'SAILLOFT_ECN"),
    (put("sonic_qos_wred", "config", 0, "green", "min_threshold", 2000000), "is above max_threshold 1500000"),
    (put("sonic_qos_wred", "config", 0, "green", "drop_probability", 101), "drop_probability 101 is not"),
    (put("sonic_qos_wred", "config", 0, "green", "min_threshold", True), "min_threshold True is not"),
    (put("sonic_qos_scheduler", "config", []), "leaf1: sonic_qos_interfaces Eth1/1 scheduler_policy: sonic_qos_sched"),
    (put("sonic_qos_scheduler", "config", 0, "schedulers", 0, "weight", 0), "weight 0 is not a whole number of 1 to"),
    (put("sonic_qos_scheduler", "config", 0, "schedulers", 0, "scheduler_type", ["x"]), "scheduler_type ['x'] is unk"),
    (put("sonic_qos_interfaces", "config", 0, "cable_length", ["x"]), "cable_length ['x']"),
    (put("sonic_qos_maps", "config", []), "leaf1: sonic_qos_maps: [] is no object"),
    (put("sonic_qos_maps", "config", "dscp_maps", []), "Eth1/1 dscp_fwd_group: dscp_maps has no map 'SAILLOFT_DSCP"),
    (put("sonic_qos_maps", "config", "dscp_maps", 0, "entries", 0, "dscp", 64), "dscp 64 is not a whole number of 0"),
    (put("sonic_qos_maps", "config", "dscp_maps", 0, "entries", 0, "fwd_group", "8"), "fwd_group '8' is not a whole"),
    (put("sonic_qos_maps", "config", "dscp_maps", 0, "entries", 0, {}), "an entry has no dscp"),
    (put("sonic_qos_interfaces", "config", 0, "pfc", "priorities", [{"dot1p": 8}]), "dot1p 8 is not a whole number"),
    (put("sonic_qos_interfaces", "config", 0, "pfc", "watchdog_action", "panic"), "watchdog_action 'panic'"),
    (put("sonic_qos_interfaces", "config", 0, "pfc", "watchdog_detect_time", 20), "watchdog_detect_time 20 is not"),
    (
        put("sonic_qos_interfaces", "config", 0, "cable_length", "7m"),
        "sonic_qos_interfaces Eth1/1: cable_length '7m'",
    ),
    (put("sonic_qos_interfaces", "config", 0, "scheduler_policy", ["x"]), "no policy ['x']"),
    (put("sonic_qos_interfaces", "config", 0, "queues", 0, "wred_profile", ["x"]), "no profile ['x']"),
    (put("sonic_interfaces", "config", 0, "mtu", 100), "leaf1: sonic_interfaces Eth1/1: mtu 100"),
    (put("sonic_ecmp_load_share", "config", "ipv4", 1), "leaf1: sonic_ecmp_load_share ipv4: 1 is no object"),
]


@pytest.mark.parametrize(("change", "said"), BAD, ids=range(len(BAD)))
def test_what_is_no_configuration_is_refused_with_the_next_step(change, said):
    arguments = rendered(dell(ports=["Eth1/1"]))
    change(arguments)
    with pytest.raises(FabricError) as refused:
        read(arguments)
    assert said in str(refused.value)
    assert refused.value.remedy


@pytest.mark.parametrize("text", ["", "{", "[]", "null", "[" * 100_000])
def test_what_is_no_json_of_modules_is_refused(text):
    with pytest.raises(FabricError, match=r"leaf1: configuration: .*gather"):
        dell_sonic.parse(text, "leaf1")


KEYS = ("name", "id", "dot1p", "dscp", "fwd_group", "sequence")


def same_entry(mine: dict, other: dict) -> bool:
    key = next(key for key in KEYS if key in other)
    return mine.get(key) == other[key]


def merge(there, given):
    """Merge as the modules' ``merged`` does: options over options, elements of lists by their keys."""
    if isinstance(there, dict) and isinstance(given, dict):
        return {**there, **{key: merge(there.get(key), each) for key, each in given.items()}}
    if isinstance(there, list) and isinstance(given, list):
        found = list(there)
        for each in given:
            old = next((at for at, mine in enumerate(found) if same_entry(mine, each)), None)
            if old is None:
                found.append(each)
            else:
                found[old] = merge(found[old], each)
        return found
    return given


def delete(there, given):
    """Remove as their ``deleted`` does: an option named with its value goes, and an element by its key alone."""
    if isinstance(there, dict) and isinstance(given, dict):
        found = {}
        for key, value in there.items():
            left = value
            if isinstance(given.get(key), (dict, list)):
                left = delete(value, given[key])
            elif key in given and key not in KEYS:
                assert given[key] == value, f"{key}: {given[key]!r} is to go, and {value!r} is there"
                left = None
            if left is not None:
                found[key] = left
        return found
    for each in given:
        assert any(same_entry(mine, each) for mine in there), f"{each} is to go, and is not there"
    found = []
    for mine in there:
        named = next((each for each in given if same_entry(mine, each)), None)
        if named is None or len(named) > 1:
            found.append(mine if named is None else delete(mine, named))
    return found


def after(running: str, steps: str) -> str:
    """Return the resources gathered after ``steps``, each of which the module's own validation accepts."""
    config = json.loads(running)
    for step in json.loads(steps or "[]"):
        valid = validate(step["module"], {"config": step["config"], "state": step["state"]})
        assert not valid.error_messages, (step, valid.error_messages)
        given_config = json.loads(json.dumps(valid.validated_parameters["config"]), object_hook=without_none)
        if step["state"] == "deleted" and step["module"] == "sonic_qos_interfaces":  # as remove_default_entries does
            for each in given_config:
                each.pop("cable_length", None)
                for option in ("asymmetric", "watchdog_action"):
                    each.get("pfc", {}).pop(option, None)
        resource = step["module"][len("sonic_") :]
        there = config.get(resource, [] if isinstance(given_config, list) else {})
        config[resource] = (delete if step["state"] == "deleted" else merge)(there, given_config)
    return json.dumps(config)


def without_none(options: dict) -> dict:
    return {key: each for key, each in options.items() if each is not None}


def text_of(wanted: Switch) -> str:
    return json.dumps(gathered(rendered(wanted)), default=str)


OLD = {"classes": {"old": {"dscp": 10, "traffic_class": 5, "bandwidth_percent": 30}}, "cnp": {"dscp": 46}}


def by_hand() -> dict:
    """The reference under names of somebody else's."""
    return json.loads(text_of(dell()).replace("SAILLOFT_", "MY_"))


def edited() -> dict:
    """The reference, its maps, its policy and its ports changed by somebody."""
    config = json.loads(text_of(dell()))
    config["qos_maps"]["pfc_priority_queue_maps"][0]["entries"] += [{"dot1p": 1, "queue_index": 1}]
    config["qos_maps"]["dscp_maps"][0]["entries"][26]["fwd_group"] = "1"
    schedulers = config["qos_scheduler"][0]["schedulers"]
    schedulers[2] = {"sequence": 6, "scheduler_type": "dwrr", "weight": 10}
    schedulers.append({"sequence": 1, "scheduler_type": "dwrr", "weight": 10})
    schedulers.append({"sequence": 255, "pir": 10})
    config["qos_wred"][0]["green"]["enable"] = False
    config["qos_maps"]["pfc_priority_pg_maps"] = [{"name": "pg", "entries": [{"dot1p": 3, "pg_index": 4}]}]
    port = config["qos_interfaces"][0]
    port["qos_maps"]["pfc_priority_pg"] = "pg"
    port["pfc"] = {
        "asymmetric": True,
        "priorities": [{"dot1p": 4, "enable": True}, {"dot1p": 3, "enable": False}],
        "watchdog_action": "alert",
        "watchdog_detect_time": 400,
    }
    port["queues"] = [{"id": 5, "wred_profile": config["qos_wred"][0]["name"]}]
    config["qos_interfaces"].append({"name": "CPU", "scheduler_policy": "copp"})
    config["qos_scheduler"].append({"name": "copp", "schedulers": []})
    return config


STARTS = {
    "nothing": {},
    "an older policy": json.loads(text_of(dell(OLD))),
    "by hand": by_hand(),
    "ours, edited": edited(),
    "broken references": {"qos_interfaces": [{"name": "Eth1/1", "scheduler_policy": "x", "queues": [{"id": 3}]}]},
}


@pytest.mark.parametrize("start", STARTS)
@pytest.mark.parametrize("mode", ["lossless", "lossy"])
def test_remediation_ends_at_what_is_wanted(start, mode):
    wanted = dell({"classes": {"roce": {"mode": mode}}})
    running = json.dumps(STARTS[start])
    done = after(running, dell_sonic.remediation(running, wanted))
    assert held(dell_sonic.parse(done, "leaf1")) == held(wanted)
    assert dell_sonic.remediation(done, wanted) == ""
    names = {each["name"] for each in json.loads(done)["qos_scheduler"]}
    assert sum(name.startswith("SAILLOFT_") for name in names) == (start != "by hand")


@pytest.mark.parametrize("start", ["nothing", "an older policy", "ours, edited"])
def test_what_was_stopped_after_any_step_is_completed(start):
    wanted = dell()
    running = json.dumps(STARTS[start])
    steps = json.loads(dell_sonic.remediation(running, wanted))
    for end in range(len(steps)):
        half = after(running, json.dumps(steps[:end]))
        dell_sonic.parse(half, "leaf1")
        done = after(half, dell_sonic.remediation(half, wanted))
        assert held(dell_sonic.parse(done, "leaf1")) == held(wanted), steps[end]


def test_a_port_that_rewrites_dscps_is_seen_and_stops():
    config = json.loads(text_of(dell()))
    config["qos_maps"]["fwd_group_dscp_maps"] = [{"name": "fd", "entries": [{"fwd_group": "3", "dscp": 10}]}]
    config["qos_interfaces"][0]["qos_maps"]["fwd_group_dscp"] = "fd"
    running = json.dumps(config)
    assert dell_sonic.parse(running, "leaf1").ports["Eth1/1"].rewrites_dscp
    assert not dell_sonic.parse(running, "leaf1").ports["Eth1/2"].rewrites_dscp
    done = after(running, dell_sonic.remediation(running, dell()))
    assert held(dell_sonic.parse(done, "leaf1")) == held(dell())
    assert json.loads(done)["qos_maps"]["fwd_group_dscp_maps"] == config["qos_maps"]["fwd_group_dscp_maps"]


def test_an_entry_of_a_map_without_what_it_maps_is_refused():
    config = json.loads(text_of(dell()))
    del config["qos_maps"]["dscp_maps"][0]["entries"][3]["dscp"]
    with pytest.raises(FabricError, match="an entry has no dscp"):
        dell_sonic.remediation(json.dumps(config), dell())


def test_nothing_is_sent_where_it_means_the_same():
    assert dell_sonic.remediation(text_of(dell()), dell()) == ""
    assert dell_sonic.remediation(json.dumps(by_hand()), dell()) == ""
    assert dell_sonic.remediation(dell_sonic.render(dell()), dell()) == ""


def test_remediation_sends_only_what_differs_and_keeps_what_a_module_would_default():
    config = json.loads(text_of(dell(cable_m=5)))
    config["interfaces"][1]["mtu"] = 1500
    config["qos_interfaces"][0]["pfc"].update(watchdog_detect_time=400, watchdog_action="alert")
    sent = json.loads(dell_sonic.remediation(json.dumps(config), dell()))
    pfc = {"watchdog_detect_time": 200, "watchdog_action": "drop"}
    assert sent == [
        {
            "module": "sonic_qos_interfaces",
            "state": "merged",
            # 5 m: nothing is wanted of it, and the module would write 40 m.
            "config": [{"name": "Eth1/1", "cable_length": "5m", "pfc": pfc}],
        },
        {"module": "sonic_interfaces", "state": "merged", "config": [{"name": "Eth1/2", "mtu": 9100}]},
    ]


def test_what_another_port_uses_stays():
    config = json.loads(text_of(dell(OLD, ports=["Eth1/1", "Eth1/9"])))
    running = json.dumps(config)
    wanted = dell(ports=["Eth1/1"])
    done = after(running, dell_sonic.remediation(running, wanted))
    seen = dell_sonic.parse(done, "leaf1").ports
    before = dell_sonic.parse(running, "leaf1").ports["Eth1/9"]
    # There is one map of PFC for all ports.
    assert seen["Eth1/9"] == replace(before, priority_to_queue=seen["Eth1/1"].priority_to_queue)
    assert replace(seen["Eth1/1"], cable_m=None) == held(wanted).ports["Eth1/1"]


@given(policies(), policies(), st.booleans())
@settings(deadline=None, max_examples=40)
def test_remediation_leads_from_any_policy_to_any_other(first, second, alike):
    ports = PORTS if alike else PORTS[:1]
    running, wanted = text_of(dell(first, ports=ports)), dell(second)
    done = after(running, dell_sonic.remediation(running, wanted))
    assert held(dell_sonic.parse(done, "leaf1")) == held(wanted)
    assert dell_sonic.remediation(done, wanted) == ""
    assert {each["name"] for each in json.loads(done)["qos_scheduler"]} == {
        each["name"] for each in rendered(wanted)["sonic_qos_scheduler"]["config"]
    }
