# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Dell Enterprise SONiC's RESTCONF: a tree that is read, patched, partly deleted and copied. See simulated_switch.

``running`` is the tree's JSON. A node is found by its name without the module's name, an element of a list by its key.
"""

from __future__ import annotations

import json
import re
from contextlib import suppress
from typing import Any
from urllib.parse import unquote

from simulated_switch import Case, HttpSwitch, Switch

KEYS = ("interface-id", "name", "dot1p", "dscp", "fwd-group", "sequence")
LOSSLESS = "buffer_mode_lossless"
INTERFACES = "openconfig-interfaces:interfaces"
Tree = Any


class Missing(Exception):  # noqa: N818
    """Raised if nothing is at a path."""


def tree(mtus: dict[str, int]) -> str:
    """Return the tree of a switch that has ports and nothing else."""
    ports = [{"name": name, "config": {"name": name, "enabled": True, "mtu": mtu}} for name, mtu in mtus.items()]
    return json.dumps({INTERFACES: {"interface": ports}, LOSSLESS: False, "openconfig-qos:qos": {}})


class DellSonic(Switch):
    def __init__(self, *given: Any, **told: Any) -> None:
        super().__init__(*given, **told)
        self.http = HttpSwitch(self, self.answer)

    def answer(self, method: str, path: str, body: Any) -> tuple[int, Any]:
        kind, _slash, rest = path.removeprefix("/restconf").strip("/").partition("/")
        if kind == "operations":
            return self.operation(rest, body)
        steps = [unquote(each) for each in rest.strip("/").split("/")]
        self.hears(f"{method} {rest} {json.dumps(body)}")
        if self.refuses and re.search(self.refuses, json.dumps(body)):
            return 400, error("Invalid value")
        if steps[-1] == LOSSLESS:
            steps = [LOSSLESS]
        config = json.loads(self.running)
        try:
            if method == "GET":
                modules = [each.split(":", maxsplit=1)[0] for each in steps if ":" in each] or ["sonic-switch"]
                return 200, {f"{modules[-1]}:{local(steps[-1])}": find(config, steps)}
            if method == "PATCH":
                [given] = body.values()
                patch(config, steps, given)
            else:
                assert method == "DELETE"
                delete(config, steps)
        except Missing:
            return 404, error("Resource not found")
        self.running = json.dumps(config)
        return 204, None

    def operation(self, name: str, body: Any) -> tuple[int, Any]:
        [given] = body.values()
        if name == "openconfig-qos-private:qos-buffer-config":
            self.hears("qos-buffer-config")
            self.running = json.dumps({**json.loads(self.running), LOSSLESS: given["operation"] == "INIT"})
            return 200, {"openconfig-qos-private:output": {"status": 0}}
        assert name == "openconfig-file-mgmt-private:copy"
        source, destination = given["source"], given["destination"]
        self.hears(f"copy {source} {destination}")
        if source.startswith("config://") and source not in self.files:
            result = {"status": -1, "status-detail": f"{source}: no such file"}
        else:
            result = {"status": 0, "status-detail": "SUCCESS."}
            if destination == "running-configuration":
                assert given["copy-config-option"] == "REPLACE"
                self.running = self.files[source]
            elif destination == "startup-configuration":
                self.save()
            else:
                self.files[destination] = self.running
        return 200, {"openconfig-file-mgmt-private:output": result}

    def stop(self) -> None:
        self.http.stop()


def error(message: str) -> Tree:
    return {"ietf-restconf:errors": {"error": [{"error-type": "application", "error-message": message}]}}


def local(name: str) -> str:
    """Return a node's name without its module's name and without its key."""
    return name.partition("=")[0].rpartition(":")[2]


def key_of(element: Tree) -> str:
    return str(next(element[key] for key in KEYS if key in element))


def child(node: Tree, step: str) -> str:
    """Return the name in ``node`` of the node to which a step refers."""
    for name in node if isinstance(node, dict) else ():
        if local(name) == local(step):
            return name
    raise Missing


def find(node: Tree, steps: list[str]) -> Tree:
    for step in steps:
        node = node[child(node, step)]
        if "=" in step:
            key = step.partition("=")[2]
            node = next((each for each in node if key_of(each) == key), None)
            if node is None:
                raise Missing
    return node


def patch(node: Tree, steps: list[str], given: Tree) -> None:
    """Merge ``given`` into the node at the path; missing nodes are made, except elements of lists."""
    for step in steps[:-1]:
        try:
            node = find(node, [step])
        except Missing:
            if "=" in step:
                raise
            node = node.setdefault(step, {})
    try:
        name = child(node, steps[-1])
    except Missing:
        name = steps[-1]
    node[name] = merged(node.get(name), given)


def merged(there: Tree, given: Tree) -> Tree:
    if isinstance(given, dict):
        there = dict(there or {})
        for name, each in given.items():
            with suppress(Missing):
                name = child(there, name)  # as the name is written there
            there[name] = merged(there.get(name), each)
        return there
    if isinstance(given, list):
        found = {key_of(each): each for each in there or []}
        for each in given:
            found[key_of(each)] = merged(found.get(key_of(each)), each)
        return list(found.values())
    return given


def delete(node: Tree, steps: list[str]) -> None:
    gone = find(node, steps)
    above = find(node, steps[:-1])
    name = child(above, steps[-1])
    if "=" in steps[-1]:
        above[name].remove(gone)
    else:
        del above[name]


MTUS = {"Eth1/1": 9100, "Eth1/2": 1500}
CASE = Case(
    DellSonic,
    network_os="dellemc.enterprise_sonic.sonic",
    ports=list(MTUS),
    start=tree(MTUS),
    refuses="green-min-threshold",
    dies_at="copy running-configuration startup-configuration",
    shown=json.dumps({"interfaces": [{"name": name, "mtu": mtu} for name, mtu in MTUS.items()]}),
    whole=False,
)
