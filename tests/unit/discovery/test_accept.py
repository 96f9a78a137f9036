# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The choice of the unknown machines that become nodes."""

from __future__ import annotations

import time

import pytest
import sites
import yaml
from machine_reports import row

from ansible_collections.sailloft.fleet.plugins.module_utils.discovery import accept
from ansible_collections.sailloft.fleet.plugins.module_utils.discovery.accept import InventoryNode, Plan
from ansible_collections.sailloft.fleet.plugins.module_utils.discovery.errors import DiscoveryError
from ansible_collections.sailloft.fleet.plugins.module_utils.discovery.report import ReportedNic
from ansible_collections.sailloft.fleet.plugins.module_utils.site.cabling.planned import planned

SITE = sites.site()
PLAN = Plan(planned(SITE))
NODES = {name: InventoryNode(name, "", SITE.devices[name].rack.name) for name in ("gpu01", "gpu02", "gpu03", "gpu04")}
MACS = [f"52:54:00:00:00:{number:02x}" for number in range(1, 5)]


def switch_ports(node: str) -> list[tuple[str, str]]:
    """Return the switch ports at which a node's NICs are planned."""
    return [
        (far.device, far.interface)
        for link in PLAN.cables.links
        for end, far in ((link.one, link.other), (link.other, link.one))
        if end.device == node
    ]


def in_place(mac: str, node: str, **fields: object) -> dict:
    return row(mac, *switch_ports(node), **fields)


def test_interfaces_are_found_by_their_cables_and_that_of_the_boot_by_its_name():
    ports = switch_ports("gpu01")[:2]
    ends = [(link.one, link.other) for link in PLAN.cables.links]
    near = {(far.device, far.interface): end.interface for one in ends for end, far in (one, one[::-1])}
    names = [near[port] for port in ports]
    nics = [
        ReportedNic("eth0", MACS[0]),
        *(ReportedNic(f"eth{at}", MACS[at], neighbour=port[0], ports=(port[1],)) for at, port in enumerate(ports, 1)),
        ReportedNic("eth3", MACS[3], neighbour="other", ports=("swp1",)),
        ReportedNic("eth4", MACS[0], neighbour=ports[0][0], ports=(ports[0][1],)),
    ]
    found = PLAN.interfaces("gpu01", row(MACS[0], nics=tuple(nics)))
    assert found == {"eth0": MACS[0], names[0]: MACS[1], names[1]: MACS[2]}
    assert PLAN.interfaces("gpu02", row(MACS[0], nics=tuple(nics))) == {"eth0": MACS[0]}


def accepted(wanted: dict[str, str], *rows: dict, replace: bool = False, **nodes: InventoryNode) -> dict[str, str]:
    machines = accept.newest([rows])
    found = accept.accept(wanted, machines, {**NODES, **nodes}, PLAN, replace)
    return {each.name: each.machine["mac"] for each in found}


def refusal(*arguments: object, **named: object) -> str:
    with pytest.raises(DiscoveryError) as caught:
        accepted(*arguments, **named)
    return str(caught.value)


def test_machines_are_matched_with_the_nodes_planned_at_their_switch_ports():
    rows = [in_place(MACS[0], "gpu02"), in_place(MACS[1], "gpu01"), row(MACS[2], ("other", "swp1"))]
    assert accepted({"gpu01": "", "gpu02": ""}, *rows) == {"gpu01": MACS[1], "gpu02": MACS[0]}
    # One cable of a node is enough, and a domain in the switch's name does not matter.
    switch, port = switch_ports("gpu03")[-1]
    assert accepted({"gpu03": ""}, row(MACS[0], (f"{switch}.example.com", port))) == {"gpu03": MACS[0]}
    # Another place of the same machine's cables is named.
    assert accepted({"gpu04": MACS[2]}, *rows) == {"gpu04": MACS[2]}


def test_what_cannot_be_decided_is_refused_with_all_that_is_wrong():
    claims = [in_place(MACS[0], "gpu01"), in_place(MACS[1], "gpu01")]
    text = refusal({"gpu01": ""}, *claims)
    assert MACS[0] in text
    assert MACS[1] in text
    # A person may say which one it is.
    assert accepted({"gpu01": MACS[1]}, *claims) == {"gpu01": MACS[1]}
    text = refusal({"gpu01": "", "gpu02": MACS[3], "gpu99": "", "gpu03": MACS[0]}, *claims)
    assert all(name in text for name in ("gpu01", "gpu02", "gpu99", "gpu03"))
    # At the cables of two nodes: the machine is at neither's place.
    both = row(MACS[0], switch_ports("gpu01")[0], switch_ports("gpu02")[1])
    assert "gpu01" in refusal({"gpu01": ""}, both)
    assert accepted({"gpu01": MACS[0]}, both) == {"gpu01": MACS[0]}


def test_no_machine_becomes_two_nodes():
    stray = row(MACS[0])
    assert MACS[0] in refusal({"gpu01": MACS[0], "gpu02": MACS[0]}, stray)
    assert "gpu02" in refusal({"gpu01": MACS[0]}, stray, gpu02=InventoryNode("gpu02", MACS[0]))


def test_a_node_gets_another_machine_only_if_it_is_replaced():
    old = InventoryNode("gpu01", MACS[0])
    new = in_place(MACS[1], "gpu01")
    assert "accept_nodes_replace" in refusal({"gpu01": ""}, new, gpu01=old)
    assert accepted({"gpu01": ""}, new, gpu01=old, replace=True) == {"gpu01": MACS[1]}
    [acceptance] = accept.accept({"gpu01": ""}, accept.newest([[new]]), {"gpu01": old}, PLAN, True)
    assert acceptance.old_mac == MACS[0]
    # A run that is repeated changes nothing, also while both machines are pending.
    same = accept.newest([[new, in_place(MACS[0], "gpu01")]])
    [acceptance] = accept.accept({"gpu01": ""}, same, {"gpu01": InventoryNode("gpu01", MACS[1])}, PLAN, True)
    assert (acceptance.machine["mac"], acceptance.old_mac) == (MACS[1], "")


def test_without_a_plan_a_person_names_each_machine():
    machines = accept.newest([[in_place(MACS[0], "gpu01")]])
    with pytest.raises(DiscoveryError):
        accept.accept({"gpu01": ""}, machines, NODES, Plan())
    [acceptance] = accept.accept({"gpu01": MACS[0]}, machines, NODES, Plan())
    assert yaml.safe_load(acceptance.text()) == {
        "node_boot_mac": MACS[0],
        "site_machine": {
            "vendor": "Vendor",
            "product": "Model 8",
            "serial": "S-1",
            "bmc_address": "10.9.1.7",
            "bmc_mac": "52:54:00:0b:0c:01",
        },
    }


def test_the_last_report_of_a_machine_counts():
    rows = [[row(MACS[0], serial="old", age_s=90)], [row(MACS[0], serial="new", age_s=5), row(MACS[1])]]
    machines = accept.newest(rows)
    assert {mac: machine["serial"] for mac, machine in machines.items()} == {MACS[0]: "new", MACS[1]: "S-1"}


def test_each_machine_has_a_line_with_what_it_is_and_where():
    rows = [
        in_place(MACS[0], "gpu03"),
        row(MACS[1], vendor="", product="", serial="", bmc_address="", device_counts={}),
    ]
    nodes = {**NODES, "gpu01": InventoryNode("gpu01", MACS[1])}
    here, known = accept.lines(accept.newest([rows]), nodes, PLAN)
    assert all(fact in here for fact in (MACS[0], "S-1", "8 gpu", "10.9.1.7", "gpu03", SITE.devices["gpu03"].rack.name))
    assert MACS[1] in known
    assert "gpu01" in known


@pytest.mark.long
def test_4096_machines_are_matched_within_seconds():
    rows = [in_place(f"52:54:00:01:{number >> 8:02x}:{number & 255:02x}", "gpu01") for number in range(4096)]
    began = time.monotonic()
    accept.lines(accept.newest([rows]), NODES, PLAN)
    assert time.monotonic() - began < 30
