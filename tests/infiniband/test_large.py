# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A site of 4,096 nodes with 8 rails: plan, cables, evenness and all shifts, from made-up tables.

ibsim and its opensm would take hours for it, and the texts of its dumps have gigabytes, so the tables are made without
either. It has 32,768 HCAs, 1,024 leaves, 1,024 spines and 512 cores of 64 ports.
"""

from __future__ import annotations

import resource
import time

import made_up_dumps
import pytest
import sites

from ansible_collections.sailloft.fleet.plugins.module_utils.infiniband.fabric import fabric_of
from ansible_collections.sailloft.fleet.plugins.module_utils.infiniband.marks import Marks
from ansible_collections.sailloft.fleet.plugins.module_utils.infiniband.picture import picture
from ansible_collections.sailloft.fleet.plugins.module_utils.infiniband.plan import plan
from ansible_collections.sailloft.fleet.plugins.module_utils.infiniband.proof import cable_claims
from ansible_collections.sailloft.fleet.plugins.module_utils.infiniband.routes.claims import route_claims

BLUEPRINT = """
plugin: sailloft.fleet.blueprint
site: large
domain: large.example.com
floor: {racks_per_row: 64, rack_width_m: 0.6, row_pitch_m: 2.4, tray_m: 0.5, slack_m: 1}
blocks:
  pod: {count: 32, new_row: true}
  network: {inside: pod, count: 4, name: "net-{n:03}", units: 48}
  su: {inside: pod, count: 4}
  rack: {inside: su, count: 8, name: "rack-{n:04}", units: 48}
models:
  node: {units: 6, watts: 1, ports: {compute: {names: "mlx5_[0:7]", speed_gbit_s: 400}}}
  leaf: {watts: 1, ports: {down: {names: "ib[1:32]", speed_gbit_s: 400}, up: {names: "ib[33:64]", speed_gbit_s: 400}}}
  top: {watts: 1, ports: {down: {names: "ib[1:64]", speed_gbit_s: 400}}}
networks: {}
devices:
  nodes: {model: node, per: rack, count: 4, name: "node-{n:04}"}
  leaf: {model: leaf, per: su, count: 8, rack: rack, unit: 46, name: "leaf-{su:03}-{i}"}
  spine: {model: leaf, per: pod, count: 32, rack: network, name: "spine-{pod:02}-{i:02}"}
  core: {model: top, count: 512, rack: network, unit: 20, name: "core-{i:03}"}
links:
  rails: {from: nodes, ports: compute, to: leaf, to_ports: down, medium: fibre, fabric: c, infiniband: true}
  up:
    {from: leaf, ports: up, to: spine, to_ports: down, each: 1, medium: fibre, fabric: c, infiniband: true}
  core:
    {from: spine, ports: up, to: core, to_ports: down, each: 1, planes: 16, medium: fibre, fabric: c, infiniband: true}
media: {fibre: {most_m: 500}}
"""
LINE = "{} {} 0x{:016x} 4x NDR - SW 2 {} 0x{:016x} ( '{}' - '{}' )\n"


def found(fabric, guids):
    """Return what ``ibnetdiscover -p`` would print."""
    number = {name: int(guids[name], 16) for name in fabric.switches}
    hcas = (
        LINE.format("CA 1", 1, int(guids[hca.host][hca.name], 16), port.number, number[port.switch], hca, port.switch)
        for hca, port in fabric.hcas.items()
    )
    ups = (
        LINE.format("SW 1", low.number, number[low.switch], up.number, number[up.switch], low.switch, up.switch)
        for low, up in fabric.uplinks
    )
    return "".join((*hcas, *ups))


@pytest.mark.long
def test_a_site_of_4096_nodes_with_8_rails_is_proved(capsys):
    started = time.process_time()

    def tell(what):
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
        with capsys.disabled():
            print(f"{time.process_time() - started:6.0f} s of processor time, {memory:5} MiB: {what}")

    site = sites.from_text(BLUEPRINT)
    fabric = fabric_of(site, "c")
    guids = {switch: f"0x{0x200000 + at:016x}" for at, switch in enumerate(fabric.switches)}
    for at, hca in enumerate(fabric.hcas):
        guids.setdefault(hca.host, {})[hca.name] = f"0x{0x10000000 + at:016x}"
    assert (len(fabric.hcas), len(fabric.switches), len(fabric.uplinks)) == (32768, 2560, 65536)
    tell("site")
    planned = plan(site, "c", {"managers": ["node-0001 mlx5_0"]}, guids)
    assert len(planned.files["root_guids.conf"].splitlines()) == 512
    tell("plan")
    marks = Marks()
    cables = list(cable_claims(planned, found(fabric, guids), marks))
    assert [claim for claim in cables if claim.holds is not True] == []
    assert len(cables) == 2560
    tell("cables")
    tables = made_up_dumps.Dumps(fabric).tables()
    tell("tables made")
    routes = list(route_claims(fabric, tables, marks))
    assert [claim for claim in routes if claim.holds is not True] == []
    # Evenness of each switch with up ports.
    assert sum("HCAs by up port" in claim.claim for claim in routes) == 2048
    tell("routes")
    assert len(picture(fabric, marks)) < 1_000_000
    tell("picture")
