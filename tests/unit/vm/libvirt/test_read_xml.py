# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Domains of other programs, read from small pieces of XML: cells, memory, pins, and the tree of their devices."""

from __future__ import annotations

import pytest
from machines import lab
from messages import raises

from ansible_collections.sailloft.fleet.plugins.module_utils.vm.common.errors import DomainError
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.libvirt import read_xml
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.libvirt.read_xml import DefinedCell, Definition

TWO_CELLS = """<cpu><numa>
<cell id='0' cpus='0-1' memory='2097152'/><cell id='1' cpus='2,4' memory='2' unit='GiB'/>
</numa></cpu>"""


def read(xml: str) -> Definition:
    return read_xml.read(f"<domain><name>a</name>{xml}</domain>", lab().by_address())


def test_a_domain_without_cells_has_one_with_all_of_its_memory_and_vcpus():
    assert read("<memory>1048576</memory><vcpu>3</vcpu>").cells == [DefinedCell(0, [0, 1, 2], 1024)]
    assert read("<memory unit='GiB'>2</memory>").cells == [DefinedCell(0, [], 2048)]
    assert read("").cells == [DefinedCell(0, [], 0)]


def test_cells_have_their_vcpus_memory_and_node():
    found = read(TWO_CELLS)
    assert found.cells == [DefinedCell(0, [0, 1], 2048), DefinedCell(1, [2, 4], 2048)]
    assert [(node.id, node.cpus, node.siblings, node.memory_bytes) for node in found.guest.numa_nodes] == [
        (0, [0, 1], [[0], [1]], 2 << 30), (1, [2, 4], [[2], [4]], 2 << 30),
    ]  # fmt: skip
    assert [found.cell(number) for number in (0, 1, 2, None)] == [*found.cells, None, None]
    assert [found.vcpu_cell(number) for number in (1, 4, 3)] == [*found.cells, None]


@pytest.mark.parametrize(
    ("tune", "nodes", "strict"),
    [
        ("", [[], []], [False, False]),
        ("<memory nodeset='0-1'/>", [[0, 1], [0, 1]], [True, True]),
        ("<memory mode='preferred' nodeset='0'/>", [[0], [0]], [False, False]),
        ("<memory mode='strict' placement='auto'/>", [[], []], [False, False]),
        (
            "<memory mode='strict' nodeset='0'/><memnode cellid='1' mode='interleave' nodeset='1'/>",
            [[0], [1]],
            [True, False],
        ),
        ("<memnode cellid='0' nodeset='3'/>", [[3], []], [True, False]),
    ],
)
def test_memory_is_bound_by_cell_or_for_all(tune, nodes, strict):
    found = read(f"{TWO_CELLS}<numatune>{tune}</numatune>").cells
    assert ([cell.nodes for cell in found], [cell.strict for cell in found]) == (nodes, strict)


@pytest.mark.parametrize(
    ("pages", "sizes"),
    [
        ("<page size='2048' unit='KiB'/>", [2, 2]),
        ("<page size='2048'/>", [2, 2]),
        ("<page size='1' unit='GiB' nodeset='1'/>", [0, 1024]),
        ("<page size='2' unit='MiB' nodeset='0'/><page size='1' unit='GiB' nodeset='1-2'/>", [2, 1024]),
        ("", [0, 0]),
    ],
)
def test_pages_are_those_of_the_cell_or_of_all(pages, sizes):
    xml = f"{TWO_CELLS}<memoryBacking><hugepages>{pages}</hugepages></memoryBacking>"
    assert [cell.page_mib for cell in read(xml).cells] == sizes


def test_pins_are_named_by_their_thread():
    pins = """<vcpupin vcpu='3' cpuset='1-2'/><vcpupin vcpu='0' cpuset='5'/><emulatorpin cpuset='0'/>
<iothreadpin iothread='1' cpuset='7,9'/>"""
    assert read(f"<cputune>{pins}</cputune>").pins == {
        "vCPU 3": [1, 2], "vCPU 0": [5], "the emulator": [0], "I/O thread 1": [7, 9],
    }  # fmt: skip
    assert read("").pins == {}


def controller(index: int, model: str, place: str = "", inner: str = "") -> str:
    address = f"<address type='pci' {place}/>" if place else ""
    return f"<controller type='pci' index='{index}' model='{model}'>{inner}{address}</controller>"


def hostdev(source: str, place: str) -> str:
    return f"<hostdev type='pci'><source><address {source}/></source><address type='pci' {place}/></hostdev>"


GPU = "domain='0x0000' bus='0x13' slot='0x00' function='0x0'"


def test_devices_are_at_the_addresses_that_firmware_gives_their_buses():
    devices = [
        controller(0, "pcie-root"),
        controller(1, "pcie-root-port", "bus='0x00' slot='0x02' function='0x1'"),
        controller(2, "pcie-root-port", "bus='0x00' slot='0x02' function='0x0'"),
        controller(3, "pcie-expander-bus", "bus='0x00' slot='0x08'", "<target busNr='64'><node>1</node></target>"),
        controller(4, "pcie-root-port", "bus='0x03' slot='0x00'"),
        hostdev(GPU, "bus='0x04' slot='0x00' function='0x0'"),
        hostdev("bus='0x15' slot='0x10' function='0x2'", "bus='0x01' slot='0x1f' function='0x3'"),
        hostdev("domain='0x10000' bus='0xe1'", "bus='0x02'"),
        "<hostdev type='usb'/>",
    ]
    found = read(f"<devices>{''.join(devices)}</devices>")
    # The port at function 0 gets the first bus, whatever its index.
    assert found.places == {
        "0000:13:00.0": "0000:41:00.0", "0000:15:10.2": "0000:02:1f.3", "10000:e1:00.0": "0000:01:00.0",
    }  # fmt: skip
    guest = found.guest
    assert [(item.name, item.numa_node) for item in guest.root_complexes] == [("pci0000:00", None), ("pci0000:40", 1)]
    assert guest.function("0000:41:00.0").kind == "gpu"
    assert guest.function("0000:41:00.0").numa_node == 1
    # A device that the host lacks is of an unknown kind.
    lost = guest.function("0000:01:00.0")
    assert (lost.kind, lost.class_code, lost.vendor_id, lost.device_id) == ("other", 0, 0, 0)
    assert [item.address for item in guest.functions if item.kind == "bridge"] == [
        "0000:00:02.0", "0000:00:02.1", "0000:40:00.0",
    ]  # fmt: skip


def test_devices_of_a_domain_without_addresses_or_with_unknown_buses_have_no_place():
    unplaced = "<hostdev type='pci'><source><address bus='0x13'/></source></hostdev>"
    sourceless = "<hostdev type='pci'><address type='pci' bus='0x00'/></hostdev>"
    lost_bus = hostdev(GPU, "bus='0x09'")
    assert read(f"<devices>{unplaced}{sourceless}{lost_bus}</devices>").places == {}
    # A controller on a bus that is not there is left out.
    lost = controller(5, "pcie-root-port", "bus='0x09' slot='0x00'")
    on_root = hostdev(GPU, "slot='0x03'")
    assert read(f"<devices>{lost}{on_root}</devices>").places == {"0000:13:00.0": "0000:00:03.0"}


def test_a_device_that_the_host_lacks_has_the_kind_of_the_record():
    record = (
        "<metadata><s:plan xmlns:s='https://github.com/sailloft/sailloft/plan/1'><s:device address='0000:99:00.0' "
        "kind='gpu' model='10de:2330'/></s:plan></metadata>"
    )
    device = hostdev("bus='0x99'", "slot='0x03'")
    gone = read(f"{record}<devices>{device}</devices>").guest.function("0000:00:03.0")
    assert (gone.kind, gone.vendor_id, gone.device_id) == ("gpu", 0x10DE, 0x2330)


@pytest.mark.parametrize(
    "xml", ["<cpu><numa><cell id='x'/></numa></cpu>", "<memory unit='furlong'>1</memory>", "<vcpu>"]
)
def test_other_xml_is_refused(xml):
    with raises(DomainError, "XML", "virsh dumpxml"):
        read(xml)


def test_an_interface_of_type_hostdev_is_a_passed_through_device():
    vf = "<source><address type='pci' bus='0x15' slot='0x10' function='0x0'/></source>"
    found = read(f"<devices><interface type='hostdev'>{vf}<address type='pci' slot='0x04'/></interface></devices>")
    assert found.places == {"0000:15:10.0": "0000:00:04.0"}
