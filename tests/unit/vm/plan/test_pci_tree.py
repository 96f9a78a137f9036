# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

import pytest
from machines import bridge, endpoint, lab, plan
from messages import raises

from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.model import (
    Cpu,
    Function,
    Host,
    NumaNode,
    RootComplex,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.common.errors import DomainError
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.plan import pci_tree
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.plan.predicted_guest import kept, predict

NAME = "pci0000:10"


def shape(port: pci_tree.Port) -> object:
    """Return the tree below a port as nested tuples."""
    return (
        port.model.replace("pcie-", ""),
        [shape(item) for item in port.ports],
        [item.key for item in port.endpoints],
    )


def machine(*functions: Function) -> Host:
    nodes = [NumaNode(0, list(range(8)), [], 1 << 40)]
    return Host(nodes, [RootComplex(NAME, 0, 0x10, 0)], list(functions), Cpu("x86_64"))


def below(*functions: Function, **changes: object) -> tuple[object, list[str], tuple[int, int]]:
    """Plan a machine of these functions, all endpoints passed through; return (expander's shape, notes, fidelity)."""
    host = machine(*functions)
    nics = [item.address for item in functions if item.kind != "bridge"]
    got = plan(host, gpus={}, nics={"addresses": nics}, huge_page_mib=0, **changes)
    fidelity = kept(got, host)
    return (
        shape(got.root.expanders[0]),
        [note for note in got.notes if "ats" not in note],
        (fidelity.equal, fidelity.total),
    )


def test_the_tree_mirrors_the_host_without_unused_ports() -> None:
    root = plan(gpus={"addresses": ["13:00.0"]}, nics={"addresses": ["15:10.0"]}, vcpus=2).root
    assert [shape(port) for port in root.expanders] == [
        (
            "expander-bus",
            [
                (
                    "root-port",
                    [("switch-upstream-port", [("switch-downstream-port", [], ["0000:13:00.0"])], [])],
                    [],
                ),
                ("root-port", [], ["0000:15:10.0"]),
            ],
            [],
        )
    ]
    assert [port.endpoints[0].role for port in root.ports if port.model == pci_tree.ROOT_PORT] == [
        "serial",
        "disk",
        "interface",
    ]


def test_nested_switches_are_mirrored_with_known_or_unknown_port_types() -> None:
    chain = [("0000:10:00.0", None)]
    chain += [(f"0000:1{step + 1}:00.0", f"0000:1{step}:00.0") for step in range(4)]
    for types in (
        ["root_port", "switch_upstream", "switch_downstream", "switch_upstream", "switch_downstream"],
        [None] * 5,
    ):
        ports = [bridge(address, above, NAME, kind) for (address, above), kind in zip(chain, types)]
        got, notes, _fidelity = below(*ports, endpoint("0000:15:00.0", "0000:14:00.0", NAME, "nic"))
        assert notes == []
        assert got == (
            "expander-bus",
            [
                (
                    "root-port",
                    [
                        (
                            "switch-upstream-port",
                            [
                                (
                                    "switch-downstream-port",
                                    [("switch-upstream-port", [("switch-downstream-port", [], ["0000:15:00.0"])], [])],
                                    [],
                                )
                            ],
                            [],
                        )
                    ],
                    [],
                )
            ],
            [],
        )


def switch_with(ports: int) -> list[Function]:
    """Return a switch with ``ports`` downstream ports, each with a NIC."""
    above = [
        bridge("0000:10:00.0", None, NAME, "root_port"),
        bridge("0000:11:00.0", "0000:10:00.0", NAME, "switch_upstream"),
    ]
    for number in range(ports):
        port = bridge(f"0000:12:{number // 2:02x}.{number % 2}", "0000:11:00.0", NAME, "switch_downstream")
        above += [port, endpoint(f"0000:{0x20 + number:02x}:00.0", port.address, NAME, "nic")]
    return above


def test_a_switch_has_at_most_32_ports() -> None:
    _expander, [(_root_port, [(_upstream, ports, _none)], _no_endpoints)], _nothing = below(*switch_with(32))[0]
    assert len(ports) == 32
    with raises(DomainError, "32", "0000:11:00.0"):
        below(*switch_with(33))


def test_the_root_bus_of_the_guest_has_at_most_48_devices() -> None:
    def disks(count: int) -> pci_tree.Port:
        names = [{"path": f"/dev/vg/{number}", "format": "raw"} for number in range(count)]
        # The serial port and the interface are beside them.
        return plan(gpus={"addresses": ["13:00.0"]}, vcpus=2, disks=names).root

    assert len([port for port in disks(46).ports if port.model == pci_tree.ROOT_PORT]) == 48
    with raises(DomainError, "48", "root bus"):
        disks(47)


def test_ports_of_the_predicted_guest_have_qemus_ids() -> None:
    guest = predict(plan(gpus={"addresses": ["13:00.0"]}, vcpus=2))
    assert {(port.port_type, port.vendor_id, port.device_id) for port in guest.functions if port.kind == "bridge"} == {
        ("root_port", 0x1B36, 0x000C),
        ("switch_upstream", 0x104C, 0x8232),
        ("switch_downstream", 0x104C, 0x8233),
    }


def test_functions_of_one_device_are_on_one_port() -> None:
    port = bridge("0000:10:00.0", None, NAME, "root_port")
    nics = [endpoint(f"0000:11:00.{number}", port.address, NAME, "nic") for number in range(8)]
    got, notes, fidelity = below(port, *nics)
    assert got == ("expander-bus", [("root-port", [], [item.address for item in nics])], [])
    assert (notes, fidelity) == ([], (28, 28))


def test_more_than_8_functions_of_a_root_port_get_a_switch() -> None:
    port = bridge("0000:10:00.0", None, NAME, "root_port")
    nics = [endpoint(f"0000:11:{number // 8:02x}.{number % 8}", port.address, NAME, "nic") for number in range(17)]
    got, notes, fidelity = below(port, *nics)
    ((_root_port, ((_switch, leaves, _none),), nothing),) = got[1]
    assert [len(leaf[2]) for leaf in leaves] == [8, 8, 1]
    assert nothing == []
    (note,) = notes
    assert note.startswith("0000:10:00.0 carries more than one switch or 8 functions, and a port of the guest does not")
    # Behind separate root ports their distance would be that of the root complex.
    assert fidelity == (136, 136)


def test_more_than_8_functions_of_a_switch_port_get_several_ports() -> None:
    up = bridge("0000:11:00.0", "0000:10:00.0", NAME, "switch_upstream")
    down = bridge("0000:12:00.0", up.address, NAME, "switch_downstream")
    nics = [endpoint(f"0000:13:{number // 8:02x}.{number % 8}", down.address, NAME, "nic") for number in range(10)]
    got, notes, fidelity = below(bridge("0000:10:00.0", None, NAME, "root_port"), up, down, *nics)
    assert [len(leaf[2]) for leaf in got[1][0][1][0][1]] == [8, 2]
    assert len(notes) == 1
    assert fidelity == (45, 45)


@pytest.mark.parametrize("functions", [1, 9])
def test_a_function_beside_a_switch_gets_a_port_of_that_switch(functions: int) -> None:
    up = bridge("0000:11:00.0", "0000:10:00.0", NAME, "switch_upstream")
    down = bridge("0000:12:00.0", up.address, NAME, "switch_downstream")
    beside = [
        endpoint(f"0000:11:{1 + number // 8:02x}.{number % 8}", "0000:10:00.0", NAME, "nic")
        for number in range(functions)
    ]
    got, notes, fidelity = below(
        bridge("0000:10:00.0", None, NAME, "root_port"),
        up,
        down,
        *beside,
        endpoint("0000:13:00.0", down.address, NAME, "nic"),
    )
    assert got[1][0][2] == []
    assert len(got[1][0][1]) == 1
    assert "is beside the switch 0000:11:00.0 on the host; in the guest it is on a port of that switch" in notes[0]
    assert fidelity[0] == fidelity[1]


def test_a_function_beside_a_lower_switch_gets_a_port_of_the_upper_switch() -> None:
    chain = [bridge("0000:10:00.0", None, NAME, "root_port")]
    for bus, role in enumerate(["upstream", "downstream", "upstream", "downstream"], 0x11):
        chain.append(bridge(f"0000:{bus:02x}:00.0", chain[-1].address, NAME, f"switch_{role}"))
    beside = endpoint("0000:13:00.1", "0000:12:00.0", NAME, "nic")
    other = bridge("0000:12:01.0", "0000:11:00.0", NAME, "switch_downstream")
    nics = [endpoint("0000:15:00.0", "0000:14:00.0", NAME, "nic"), endpoint("0000:16:00.0", other.address, NAME, "nic")]
    got, notes, fidelity = below(*chain, other, beside, *nics)
    (_root_port, ((_switch, leaves, _none),), _nothing) = got[1][0]
    assert sorted(len(leaf[1]) for leaf in leaves) == [0, 0, 1]
    assert len(notes) == 1
    assert fidelity == (3, 3)


def test_two_switches_behind_one_root_port_are_below_an_added_switch() -> None:
    port = bridge("0000:10:00.0", None, NAME, "root_port")
    functions = [port]
    for number in range(2):
        up = bridge(f"0000:11:00.{number}", port.address, NAME, "switch_upstream")
        down = bridge(f"0000:{0x12 + number:02x}:00.0", up.address, NAME, "switch_downstream")
        functions += [up, down, endpoint(f"0000:{0x20 + number:02x}:00.0", down.address, NAME, "nic")]
    got, notes, fidelity = below(*functions)
    (root_port,) = got[1]
    ((_switch, leaves, _none),) = root_port[1]
    assert [len(leaf[1]) for leaf in leaves] == [1, 1]
    assert len(notes) == 1
    assert fidelity == (1, 1)


def test_a_device_without_a_port_gets_one() -> None:
    up = bridge("0000:11:00.0", "0000:10:00.0", NAME, "switch_upstream")
    got, notes, fidelity = below(
        bridge("0000:10:00.0", None, NAME, "root_port"),
        up,
        endpoint("0000:12:1f.0", up.address, NAME, "nic"),
        endpoint("0000:10:01.0", None, NAME, "nic"),
        endpoint("0000:10:01.1", None, NAME, "nic"),
    )
    assert got == (
        "expander-bus",
        [
            ("root-port", [], ["0000:10:01.0"]),
            ("root-port", [], ["0000:10:01.1"]),
            ("root-port", [("switch-upstream-port", [("switch-downstream-port", [], ["0000:12:1f.0"])], [])], []),
        ],
        [],
    )
    assert len(notes) == 3
    assert all("has no port of its own" in note for note in notes)
    assert fidelity == (3, 3)


def test_switches_without_downstream_ports_are_mirrored_with_ports() -> None:
    """A switch in NCCL's files is its upstream port, and the devices behind it are directly below."""
    top = bridge("0000:11:00.0", None, NAME, "switch_upstream")
    inner = bridge("0000:12:00.0", top.address, NAME, "switch_upstream")
    got, notes, fidelity = below(
        top,
        inner,
        endpoint("0000:13:00.0", top.address, NAME, "nic"),
        endpoint("0000:14:00.0", inner.address, NAME, "nic"),
        endpoint("0000:15:00.0", inner.address, NAME, "nic"),
    )
    leaves = [("switch-downstream-port", [], [f"0000:{bus}:00.0"]) for bus in (13, 14, 15)]
    below_top = [leaves[0], ("switch-downstream-port", [("switch-upstream-port", leaves[1:], [])], [])]
    assert got == ("expander-bus", [("root-port", [("switch-upstream-port", below_top, [])], [])], [])
    assert len(notes) == 3
    assert all("has no port of its own" in note for note in notes)
    assert fidelity == (3, 3)


def test_a_bridge_that_a_guest_cannot_have_is_left_out() -> None:
    odd = bridge("0000:11:00.0", "0000:10:00.0", NAME, "pcie_to_pci_bridge")
    got, notes, _fidelity = below(
        bridge("0000:10:00.0", None, NAME, "root_port"), odd, endpoint("0000:12:00.0", odd.address, NAME, "nic")
    )
    assert got == ("expander-bus", [("root-port", [], ["0000:12:00.0"])], [])
    assert notes == ["bridge 0000:11:00.0 (pcie_to_pci_bridge) is left out: a guest has no such bridge at this place"]


def test_a_flat_guest_has_all_devices_on_its_root_bus() -> None:
    got = plan(mirror_topology=False)
    assert got.root.expanders == []
    assert len(got.root.ports) == 9
    devices = got.to_dict()["devices"]
    assert [item["guest_address"] for item in devices] == [f"0000:0{bus}:00.0" for bus in range(4, 10)]
    assert {item["cell"] for item in devices} == {None}
    fidelity = kept(got, lab())
    assert (fidelity.equal, fidelity.total) == (4, 15)


def test_the_predicted_guest_has_the_planned_nodes_and_paths() -> None:
    guest = predict(plan())
    assert {node.id: node.cpus for node in guest.numa_nodes} == {0: [0, 1], 1: [2, 3]}
    nic = guest.function("0000:24:00.0")
    assert (nic.kind, nic.numa_node, nic.vendor_id) == ("nic", 0, 0x8086)
    assert [step.address for step in guest.path("0000:24:00.0")] == [
        "0000:20:00.0",
        "0000:21:00.0",
        "0000:22:01.0",
        "0000:24:00.0",
    ]
    assert plan().to_dict()["devices"][1]["guest_path"] == [step.address for step in guest.path("0000:24:00.0")]
    assert guest.function("0000:21:00.0").subordinate_bus == 0x24


def test_a_guest_has_at_most_19_root_complexes_in_slots_8_to_26() -> None:
    def expanders(count: int) -> list[pci_tree.Port]:
        complexes = [RootComplex(f"pci{number:04x}:00", number, 0, 0) for number in range(count)]
        nics = [endpoint(f"{number:04x}:00:01.0", None, complexes[number].name, "nic") for number in range(count)]
        host = Host([NumaNode(0, list(range(8)), [], 1 << 40)], complexes, nics, Cpu("x86_64"))
        addresses = [nic.address for nic in nics]
        return plan(host, gpus={}, nics={"addresses": addresses}, vcpus=1, huge_page_mib=0).root.expanders

    assert [port.slot for port in expanders(19)] == list(range(8, 27))
    with raises(DomainError, "gpu-vm", "20", "19"):
        expanders(20)
