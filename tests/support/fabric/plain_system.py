"""A switch system for tests: its configuration is the terms themselves, as JSON. It holds all but the watchdog."""

from __future__ import annotations

import json
import re
from dataclasses import asdict

from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.model.errors import FabricError
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.model.qos import (
    Ecn,
    Headroom,
    PortQos,
    Queue,
    Switch,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.model.switch_system import SwitchSystem


def render(switch: Switch) -> str:
    ports = {}
    for name, qos in switch.ports.items():
        ports[name] = asdict(qos)
        del ports[name]["watchdog"]
    return json.dumps({"ports": ports, "ecmp_fields": switch.ecmp_fields}, indent=1) + "\n"


def parse(text: str, name: str) -> Switch:
    try:
        data = json.loads(text)
    except ValueError as error:
        raise FabricError("not a configuration of a plain switch", "give its JSON", subject=f"switch {name}") from error
    ports = {}
    for port, given in data["ports"].items():
        queues = [
            each and Queue(each["strict"], each["bandwidth_percent"], each["ecn"] and Ecn(**each["ecn"]))
            for each in given["queues"]
        ]
        headroom = [each and Headroom(**each) for each in given["headroom"]]
        tables = {key: tuple(value) for key, value in given.items() if isinstance(value, list)}
        ports[port] = PortQos(
            **{**tables, "queues": tuple(queues), "headroom": tuple(headroom)}, ip_mtu_bytes=given["ip_mtu_bytes"]
        )
    return Switch(name, "plain", ports, tuple(data["ecmp_fields"]))


def not_defined(*_given: object) -> str:
    raise AssertionError("this system has no changes")


PLAIN = SwitchSystem(
    name="plain",
    render=render,
    parse=parse,
    remediation=not_defined,
    restoration=not_defined,
    port=re.compile(".+"),
    port_example="swp1",
    not_held={"watchdog": "this system has none"},
)
