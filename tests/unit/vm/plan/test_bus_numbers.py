# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

import pytest
from machines import bridge, endpoint, plan
from messages import raises

from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.model import Host, NumaNode, RootComplex
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.common.errors import DomainError
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.plan import bus_numbers, pci_tree
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.plan.pci_tree import Port


def switch(leaves: int) -> Port:
    """Return an expander bus with one switch."""
    downs = [Port(pci_tree.DOWNSTREAM, slot=slot) for slot in range(leaves)]
    return Port(
        pci_tree.EXPANDER, host="pci", ports=[Port(pci_tree.ROOT_PORT, ports=[Port(pci_tree.UPSTREAM, ports=downs)])]
    )


@pytest.mark.parametrize("leaves", [1, 2, 16])
def test_a_switch_with_n_leaves_needs_n_plus_3_buses(leaves: int) -> None:
    assert bus_numbers.needed(switch(leaves)) == leaves + 3


def test_buses_of_expanders_are_not_counted_for_the_root_bus() -> None:
    root = Port(pci_tree.ROOT, ports=[Port(pci_tree.ROOT_PORT, slot=2), switch(2), switch(4)])
    assert bus_numbers.needed(root) == 2
    bus_numbers.assign("a", root)
    assert [expander.bus for expander in root.expanders] == [32, 64]
    assert [expander.last_bus for expander in root.expanders] == [36, 70]


def test_bus_numbers_equal_those_that_seabios_assigned() -> None:
    """The addresses were read with "info pci" from QEMU 7.2 with SeaBIOS in the lab, and with lspci in the guest."""
    got = {item["host_address"]: item["guest_address"] for item in plan().to_dict()["devices"]}
    assert got == {
        "0000:13:00.0": "0000:23:00.0",
        "0000:14:00.0": "0000:24:00.0",
        "0000:15:10.0": "0000:25:00.0",
        "0000:83:00.0": "0000:43:00.0",
        "0000:84:00.0": "0000:44:00.0",
        "0000:85:10.0": "0000:45:00.0",
    }


def test_expander_buses_are_closer_together_if_numbers_are_scarce() -> None:
    root = Port(pci_tree.ROOT, ports=[switch(25) for _number in range(8)])
    bus_numbers.assign("a", root)
    assert [expander.bus for expander in root.expanders] == [4, 32, 60, 88, 116, 144, 172, 200]
    full = Port(pci_tree.ROOT, ports=[switch(28) for _number in range(8)] + [switch(4)])
    bus_numbers.assign("a", full)
    assert full.expanders[-1].last_bus == 255


def test_one_bus_too_many_is_refused() -> None:
    root = Port(pci_tree.ROOT, ports=[switch(28) for _number in range(8)] + [switch(5)])
    with raises(DomainError, "virtual machine a", "257", "256"):
        bus_numbers.assign("a", root)


def test_overlapping_bus_ranges_are_refused() -> None:
    root = Port(pci_tree.ROOT, ports=[switch(2), switch(2)])
    bus_numbers.assign("a", root)
    for expander, start in zip(root.expanders, (8, 11)):
        bus_numbers.number(expander, start)
    with raises(DomainError, "8-12", "bus 11"):
        bus_numbers.check_ranges("a", root)


def test_a_plan_that_needs_too_many_buses_is_refused() -> None:
    functions = []
    complexes = [RootComplex(f"pci{domain:04x}:00", domain, 0, 0) for domain in range(10)]
    for domain, root_complex in enumerate(complexes):
        base = f"{domain:04x}:00"
        for slot in range(25):
            port = f"{base}:{slot:02x}.0"
            functions.append(bridge(port, None, root_complex.name, "root_port"))
            gpu = endpoint(f"{domain:04x}:{slot + 1:02x}:00.0", port, root_complex.name, "nvme", bars=[])
            functions.append(gpu)
    host = Host([NumaNode(0, list(range(8)), [], 1 << 40)], complexes, functions)
    with raises(DomainError, "264", "256", "4", "pci0000:00", "26"):
        plan(host, gpus={}, nics={}, nvme={"count": 250})
