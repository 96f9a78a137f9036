# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Blueprints for tests: the files of inventories/, a small one to change, and generated ones."""

from __future__ import annotations

import copy
import os
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import strategies as st

from ansible_collections.sailloft.fleet.plugins.module_utils.site.errors import SiteError
from ansible_collections.sailloft.fleet.plugins.module_utils.site.expand.model import Site
from ansible_collections.sailloft.fleet.plugins.module_utils.site.expand.site import expand
from ansible_collections.sailloft.fleet.plugins.module_utils.site.request.read import SETTINGS, read
from ansible_collections.sailloft.fleet.plugins.plugin_utils.blueprint_file import load

PROJECT = Path(__file__).parents[3]
# Two racks of two servers, each with two NICs of two ports; two leaves in each rack, and two spines for all racks.
TEXT = """\
plugin: sailloft.fleet.blueprint
site: test
domain: example.com
blocks:
  network: {units: 42, supplies: 2, supply_watts: 8000}
  rack: {count: 2, units: 42, supplies: 2, supply_watts: 8000, brake_s: 2, breaker_s: 5}
models:
  server:
    units: 8
    watts: 6000
    capped_watts: 3000
    ports:
      nic: {names: "mlx5_[0:3]", interfaces: "ens[1:2]f[0:1]np0", speed_gbit_s: 100, nic_ports: 2}
  leaf:
    units: 1
    watts: 500
    ports:
      down: {names: "Ethernet[0:12:4]", speed_gbit_s: 100}
      up: {names: "Ethernet[16:28:4]", speed_gbit_s: 100}
  spine: {units: 1, watts: 500, ports: {down: {names: "Ethernet[0:28:4]", speed_gbit_s: 100}}}
networks:
  management: {network: 10.0.0.0/24, gateway: 1}
  rail: {network: 10.1.0.0/24, per: rack, count: 4}
devices:
  node:
    model: server
    per: rack
    count: 2
    name: "gpu{n:02}"
    groups: [nodes, roce_hosts]
    vars: {ansible_user: root}
    addresses: {management: 11, rail: {first: 1, ports: nic}}
  leaf: {model: leaf, per: rack, count: 2, unit: 40, name: "leaf{rack}-{i}", groups: [roce_switches],
    addresses: {management: 101}}
  spine: {model: spine, count: 2, rack: network, name: "spine{n}", groups: [roce_switches],
    addresses: {management: 201}}
links:
  fabric: {from: node, ports: nic, to: leaf, to_ports: down, medium: dac, roce: true}
  uplink: {from: leaf, ports: up, to: spine, to_ports: down, each: 2, medium: mmf, fabric: fabric, roce: true}
checks:
  fabric: {oversubscription: 1, survives: [nic, leaf, spine], nic_ports_apart: true}
"""
DATA = {name: value for name, value in yaml.safe_load(TEXT).items() if name in SETTINGS}


def changed(**changes: Any) -> dict[str, Any]:
    """Return the small blueprint's data with changes: "devices.node.count" is devices__node__count; None removes."""
    data = copy.deepcopy(DATA)
    for path, value in changes.items():
        *ways, last = path.split("__")
        place = data
        for way in ways:
            place = place.setdefault(way, {})
        if value is None:
            place.pop(last)
        else:
            place[last] = copy.deepcopy(value)
    return data


def site(**changes: Any) -> Site:
    """Return the small site with changes."""
    return expand(read(changed(**changes)))


def from_text(text: str, file: str = "blueprint.yml") -> Site:
    """Return the site of a blueprint's text."""
    data, source = load(text, file)
    if isinstance(data, dict):
        data.pop("plugin", None)
    return expand(read(data, source))


def example(name: str) -> Site:
    """Return the site of inventories/NAME."""
    file = PROJECT / "inventories" / name / "blueprint.yml"
    return from_text(file.read_text(encoding="utf-8"), str(file.relative_to(PROJECT)))


def harbour(*changes: tuple[str, str]) -> Site:
    """Return the site of harbour.yml, which uses every feature, with texts replaced."""
    text = (Path(__file__).parent / "harbour.yml").read_text(encoding="utf-8")
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    return from_text(text, "harbour.yml")


def stored(file: Path, text: str) -> str:
    """Return the text of an expected file; with SAILLOFT_WRITE_SITES=1, write it first."""
    if os.environ.get("SAILLOFT_WRITE_SITES"):
        file.write_text(text, encoding="utf-8")
    return file.read_text(encoding="utf-8")


@st.composite
def blueprints(draw: st.DrawFn) -> dict[str, Any]:
    """Return data of leaf-spine sites of any size that have enough ports."""
    racks, nodes, leaves, spines = (draw(st.integers(1, most)) for most in (4, 5, 3, 4))
    each, nic_ports, nics = (draw(st.integers(1, most)) for most in (3, 2, 4))
    ports = nics * nic_ports
    total = draw(st.integers(1, racks * nodes))
    return changed(
        blocks__rack__count=racks,
        models__server__ports__nic={"names": f"mlx5_[0:{ports - 1}]", "speed_gbit_s": 100, "nic_ports": nic_ports},
        models__leaf__ports__down__names=f"Ethernet[0:{nodes * ports - 1}]",
        models__leaf__ports__up__names=f"Up[0:{spines * each - 1}]",
        models__spine__ports__down__names=f"Ethernet[0:{racks * leaves * each - 1}]",
        networks__rail__count=ports,
        devices__node__count=nodes,
        devices__node__total=total,
        devices__leaf__count=leaves,
        devices__spine__count=spines,
        links__uplink__each=each,
    )


def refused(**changes: Any) -> str:
    """Return the message of the SiteError that the site with these changes raises."""
    with pytest.raises(SiteError) as caught:
        site(**changes)
    return str(caught.value)
