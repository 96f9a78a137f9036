# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Objects of vSphere's API, made up, and the whole model of the host that is read from them."""

from __future__ import annotations

from types import SimpleNamespace as Object

import pytest

from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.model import (
    Cpu,
    Function,
    Host,
    NumaNode,
    Passthrough,
    RootComplex,
    Sriov,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.read.vsphere import read_esxi

MISSING = "vSphere's API does not report BARs, links, ACS, ATS, MaxReadReq, IOMMU groups and NUMA distances"
PORT, GPU, NIC, VF, DISK = "0000:3a:00.0", "0000:3b:00.0", "0000:5e:00.0", "0000:5e:00.1", "0000:00:17.0"


def device(address, parent, class_id, vendor=0x10DE, model=0x2330):
    # The API's numbers are signed, of 16 bits.
    def signed(number):
        return number - 0x10000 if number > 0x7FFF else number

    return Object(
        id=address,
        parentBridge=parent,
        classId=class_id,
        vendorId=signed(vendor),
        deviceId=signed(model),
        subVendorId=signed(0x8086),
        subDeviceId=signed(0xFFFE),
    )


def passthrough(address, capable=True, enabled=True, active=True, **sriov):
    return Object(id=address, passthruCapable=capable, passthruEnabled=enabled, passthruActive=active, **sriov)


def of_sriov(address, capable=True, active=True, now=1, total=8, **more):
    return passthrough(
        address,
        sriovCapable=capable,
        sriovActive=active,
        numVirtualFunction=now,
        maxVirtualFunctionSupported=total,
        **more,
    )


def package(vendor="intel", features=None):
    return Object(vendor=vendor, description="A CPU", cpuFeature=features)


def register(bits, level=0x80000008 - (1 << 32), digits=None):
    text = digits if digits is not None else f"{bits:032b}"
    return Object(level=level, eax=":".join(text[at : at + 4] for at in range(0, len(text), 4)))


def hardware(**changes):
    nodes = [
        Object(typeId=1, cpuID=[5, 4, 7, 6], memorySize=2 << 30, memoryRangeLength=1, pciId=[NIC, VF]),
        Object(typeId=0, cpuID=[0, 1, 2, 3], memorySize=None, memoryRangeLength=1 << 30, pciId=[PORT, GPU]),
    ]
    values = {
        "cpuInfo": Object(numCpuThreads=8, numCpuCores=4),
        "numaInfo": Object(numaNode=nodes),
        "memorySize": 3 << 30,
        "pciDevice": [
            device(GPU, PORT, 0x0302),
            device(PORT, "", 0x0604, 0x8086, 0x2030),
            device(NIC, "0000:5d:00.0", 0x0200, 0x15B3, 0x101D),
            device(VF, "0000:5d:00.0", 0x0200, 0x15B3, 0x101E),
            device(DISK, None, 0x0106, 0x8086, 0xA182),
        ],
        "cpuPkg": [package()],
        "cpuFeature": [register(0x46)],
    }
    return Object(**{**values, **changes})


def properties(**changes):
    values = {
        "hardware": hardware(),
        "config.pciPassthruInfo": [
            passthrough(GPU),
            of_sriov(NIC, capable=True),
            passthrough(DISK, False, False, False),
        ],
        "config.network.pnic": [Object(device="vmnic0", pci=NIC), Object(device="vmnic1", pci="0000:99:00.0")],
        "config.product": Object(version="8.0.3"),
    }
    return {**values, **changes}


def virtual(address=VF, pnic="vmnic0", is_virtual=True):
    return Object(pciDevice=Object(id=address), pnic=pnic, virtualFunction=is_virtual)


def function(address, root, parent, code, vendor, model, kind, node, **more):
    return Function(
        address, root, parent, code, vendor, model, kind, None, subsystem_vendor_id=0x8086,
        subsystem_device_id=0xFFFE, numa_node=node, **more,
    )  # fmt: skip


def test_the_whole_host_is_read():
    assert read_esxi(properties(), [virtual()]) == Host(
        numa_nodes=[
            NumaNode(0, [0, 1, 2, 3], [[0, 1], [2, 3]], 1 << 30),
            NumaNode(1, [4, 5, 6, 7], [[4, 5], [6, 7]], 2 << 30),
        ],
        root_complexes=[
            RootComplex("pci0000:00", 0, 0x00, None),
            RootComplex("pci0000:3a", 0, 0x3A, 0),
            RootComplex("pci0000:5e", 0, 0x5E, 1),
        ],
        functions=[
            function(
                DISK, "pci0000:00", None, 0x010600, 0x8086, 0xA182, "other", None,
                passthrough=Passthrough(False, False, False),
            ),
            function(PORT, "pci0000:3a", None, 0x060400, 0x8086, 0x2030, "bridge", 0),
            function(
                GPU, "pci0000:3a", PORT, 0x030200, 0x10DE, 0x2330, "gpu", 0, passthrough=Passthrough(True, True, True)
            ),
            function(
                NIC, "pci0000:5e", None, 0x020000, 0x15B3, 0x101D, "nic", 1,
                passthrough=Passthrough(True, True, True), sriov=Sriov(8, 1, [VF]), interfaces={"net": ["vmnic0"]},
            ),
            function(VF, "pci0000:5e", None, 0x020000, 0x15B3, 0x101E, "nic", 1, physical_function=NIC),
        ],
        cpu=Cpu("x86_64", "GenuineIntel", "A CPU", "vmx", 0x46),
        kernel_release="ESXi 8.0.3",
        source="vsphere",
        notes=[MISSING],
    )  # fmt: skip


def test_a_host_without_optional_properties_is_read():
    bare = hardware(numaInfo=None, pciDevice=None, cpuPkg=None, cpuFeature=None)
    assert read_esxi({"hardware": bare}) == Host(
        numa_nodes=[NumaNode(0, list(range(8)), [[0, 1], [2, 3], [4, 5], [6, 7]], 3 << 30)],
        root_complexes=[],
        functions=[],
        cpu=Cpu(),
        source="vsphere",
        notes=[MISSING, "the host reports nothing about passthrough: its IOMMU is off, or the account may not read it"],
    )


@pytest.mark.parametrize(
    ("threads", "cores", "siblings"),
    [
        (4, 4, [[0], [1], [2], [3]]),
        (4, 2, [[0, 1], [2, 3]]),
        (4, 1, [[0, 1, 2, 3]]),
        (4, 0, [[0, 1, 2, 3]]),
        (4, 8, [[0], [1], [2], [3]]),
        (5, 2, [[0, 1], [2, 3], [4]]),
    ],
)
def test_threads_of_a_core_have_consecutive_numbers(threads, cores, siblings):
    info = Object(numCpuThreads=threads, numCpuCores=cores)
    (node,) = read_esxi({"hardware": hardware(numaInfo=Object(numaNode=None), cpuInfo=info, pciDevice=[])}).numa_nodes
    assert (node.id, node.cpus, node.siblings) == (0, list(range(threads)), siblings)


@pytest.mark.parametrize(
    ("vendor", "cpu"),
    [
        ("intel", Cpu("x86_64", "GenuineIntel", "A CPU", "vmx")),
        ("AMD", Cpu("x86_64", "AuthenticAMD", "A CPU", "svm")),
        ("other", Cpu(None, None, "A CPU", None)),
        (None, Cpu(None, None, "A CPU", None)),
    ],
)
def test_the_vendor_of_the_processor_gives_its_architecture(vendor, cpu):
    read = read_esxi(properties(hardware=hardware(cpuPkg=[package(vendor), package("intel")], cpuFeature=None)))
    assert read.cpu == cpu


@pytest.mark.parametrize(
    ("features", "bits"),
    [
        ([register(46)], 46),
        ([register(32)], 32),
        ([register(31)], None),
        # Bits 15:8 are the linear address bits.
        ([register(0x3034)], 0x34),
        ([register(0xFF00)], None),
        ([register(46, level=0x80000008)], 46),
        ([register(46, level=0x80000007)], None),
        ([register(46, level=1), register(52)], 52),
        ([register(0, digits="0" * 31)], None),
        ([register(0, digits="0" * 24 + "0010111x")], None),
        ([register(0, digits="x" * 24 + "00101110")], 46),
        ([Object(level=0x80000008, eax=None)], None),
        ([], None),
    ],
)
def test_the_address_bits_are_the_last_byte_of_eax_of_leaf_80000008(features, bits):
    read = read_esxi(properties(hardware=hardware(cpuFeature=features)))
    assert read.cpu.physical_address_bits == bits
    of_package = hardware(cpuFeature=None, cpuPkg=[package(features=features)])
    assert read_esxi(properties(hardware=of_package)).cpu.physical_address_bits == bits


@pytest.mark.parametrize(
    ("address", "info", "used"),
    [
        (GPU, passthrough(GPU, capable=False), True),
        (GPU, passthrough(GPU, capable=True, enabled=False, active=False), False),
        (NIC, passthrough(NIC, capable=False), True),
        (NIC, of_sriov(NIC, enabled=False, active=False, now=0), False),
        (DISK, passthrough(DISK, capable=False), False),
    ],
)
def test_a_device_that_esxi_does_not_offer_is_in_use(address, info, used):
    read = read_esxi(properties(**{"config.pciPassthruInfo": [info]}))
    assert read.function(address).used_by_host == (["ESXi does not offer it for passthrough"] if used else [])


@pytest.mark.parametrize(
    ("info", "sriov", "used"),
    [
        (of_sriov(NIC, now=2, capable=True), Sriov(8, 2), False),
        (of_sriov(NIC, active=False, now=2), Sriov(8, 0), False),
        (of_sriov(NIC, capable=False), None, False),
        (passthrough(NIC), None, False),
    ],
)
def test_virtual_functions_are_counted_if_sriov_is_active(info, sriov, used):
    read = read_esxi(properties(**{"config.pciPassthruInfo": [info]})).function(NIC)
    assert (read.sriov, bool(read.used_by_host)) == (sriov, used)


@pytest.mark.parametrize(("active", "now", "used"), [(True, 1, False), (True, 0, True), (False, 1, True)])
def test_a_nic_that_is_not_offered_is_free_only_with_virtual_functions(active, now, used):
    info = of_sriov(NIC, active=active, now=now)
    info.passthruCapable = False
    read = read_esxi(properties(**{"config.pciPassthruInfo": [info]})).function(NIC)
    assert bool(read.used_by_host) is used


def test_a_virtual_function_that_is_not_offered_is_free():
    infos = [passthrough(VF, capable=False)]
    read = read_esxi(properties(**{"config.pciPassthruInfo": infos}), [virtual()])
    assert (read.function(VF).physical_function, read.function(VF).used_by_host) == (NIC, [])


@pytest.mark.parametrize(
    "target", [virtual(is_virtual=False), virtual(pnic="vmnic9"), virtual("0000:77:00.0"), virtual(pnic="vmnic1")]
)
def test_virtual_functions_of_unknown_nics_are_left_out(target):
    read = read_esxi(properties(), [target])
    assert read.function(NIC).sriov == Sriov(8, 1)
    assert read.notes == [MISSING, f"vCenter does not report which functions are the virtual functions of {NIC}"]


def test_a_virtual_function_has_no_interface_of_the_host():
    nics = [Object(device="vmnic0", pci=NIC), Object(device="vmnic1", pci=VF)]
    read = read_esxi(properties(**{"config.network.pnic": nics}), [virtual()])
    assert [read.function(address).interfaces for address in (NIC, VF)] == [{"net": ["vmnic0"]}, {}]


@pytest.mark.parametrize(
    ("parent", "known", "root"),
    [
        (PORT, {}, "pci0000:3a"),
        ("0000:39:00.0", {}, "pci0000:3b"),
        ("", {}, "pci0000:3b"),
        (None, {}, "pci0000:3b"),
        # The bridges are above each other.
        (PORT, {PORT: GPU}, "pci0000:3a"),
    ],
)
def test_the_root_complex_is_that_of_the_uppermost_known_bridge(parent, known, root):
    devices = [device(GPU, parent, 0x0302), device(PORT, known.get(PORT, ""), 0x0604)]
    read = read_esxi(properties(hardware=hardware(pciDevice=devices)))
    assert read.function(GPU).root_complex == root


def test_a_root_complex_with_functions_on_two_nodes_has_no_node():
    devices = [device(GPU, None, 0x0302), device("0000:3b:01.0", None, 0x0302)]
    nodes = [
        Object(typeId=number, cpuID=[number], memorySize=1, memoryRangeLength=1, pciId=[item.id])
        for number, item in enumerate(devices)
    ]
    read = read_esxi(properties(hardware=hardware(pciDevice=devices, numaInfo=Object(numaNode=nodes))))
    assert read.root_complexes == [RootComplex("pci0000:3b", 0, 0x3B, None)]
    nodes[1].pciId = None
    read = read_esxi(properties(hardware=hardware(pciDevice=devices, numaInfo=Object(numaNode=nodes))))
    assert read.root_complexes == [RootComplex("pci0000:3b", 0, 0x3B, 0)]
    assert read.notes == [MISSING, "the host does not report the NUMA node of 0000:3b:01.0"]


def test_bridges_that_are_above_each_other_end_the_path():
    above = "0000:39:00.0"
    devices = [device(GPU, PORT, 0x0302), device(PORT, above, 0x0604), device(above, PORT, 0x0604)]
    read = read_esxi(properties(hardware=hardware(pciDevice=devices)))
    assert read.function(GPU).root_complex == "pci0000:39"
