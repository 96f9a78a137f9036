# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A plan as libvirt domain XML, in the form in which libvirt itself writes it back. Pure.

Elements and attributes: https://libvirt.org/formatdomain.html.
"""

from __future__ import annotations

import xml.etree.ElementTree as ET
from typing import Any

from ansible_collections.sailloft.fleet.plugins.module_utils.common.ranges import format_ranges
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.libvirt_devices import QEMU_NAMESPACE
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.common.units import KIB
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.plan import pci_tree
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.plan.mmio import ovmf_window_mib
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.plan.plan import DomainPlan, Passed
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.render import host_record

ET.register_namespace("qemu", QEMU_NAMESPACE)
# QEMU hw/vfio/pci.c and pci-quirks.c, since QEMU 2.11.
CLIQUE = "x-nv-gpudirect-clique"


def render(plan: DomainPlan) -> str:
    """Return the XML of the whole domain; it ends with a newline."""
    root = _add(None, "domain", type=plan.accelerator)
    spec = plan.spec
    _add(root, "name", spec.name)
    _add(root, "uuid", spec.uuid)
    host_record.write(root, plan.host, list(plan.guest_addresses()))
    _add(root, "memory", spec.memory_mib * KIB, unit="KiB")
    _memory(root, plan)
    _processors(root, plan)
    _os(root, plan)
    features = _add(root, "features")
    _add(features, "acpi")
    _add(features, "apic")
    if spec.kvm_dedicated and plan.accelerator == "kvm":
        _add(_add(features, "kvm"), "hint-dedicated", state="on")
    if spec.remaps_interrupts:
        # Interrupt remapping needs the I/O APIC in QEMU (kernel-irqchip=split).
        _add(features, "ioapic", driver="qemu")
    _cpu(root, plan)
    if not spec.hpet:
        _add(_add(root, "clock", offset="utc"), "timer", name="hpet", present="no")
    devices = _add(root, "devices")
    _controllers(devices, plan)
    _disks(devices, plan)
    _interfaces(devices, plan)
    _console(devices, plan)
    _rng(devices, plan)
    clique_of = {address: clique.number for clique in plan.cliques.cliques for address in clique.gpus}
    for device in plan.passed():
        _hostdev(devices, device, device.address in clique_of, spec.rom_bar)
    # A balloon would take back memory that VFIO has pinned. A GPU server's guest needs neither a video card nor USB.
    _add(devices, "memballoon", model="none")
    _add(_add(devices, "video"), "model", type="none")
    if spec.guest_iommu:
        iommu = _add(devices, "iommu", model="intel")
        extended = {"eim": "on"} if _vcpus(plan) > 255 else {}
        # VFIO devices behind the guest's IOMMU need caching mode; iotlb lets virtio devices keep translations.
        _add(iommu, "driver", intremap="on", caching_mode="on", **extended, iotlb="on", aw_bits="48")
    elif spec.interrupt_remapping:
        # QEMU refuses a vfio-pci device if the IOMMU has no caching mode (hw/i386/intel_iommu.c). Caching mode costs
        # nothing if the guest translates no DMA (intel_iommu=off, which does not change the remapping of interrupts).
        _add(_add(devices, "iommu", model="intel"), "driver", intremap="on", caching_mode="on", eim="on")
    _firmware_window(root, plan)
    _cliques(root, clique_of)
    ET.indent(root, "  ")
    return ET.tostring(root, encoding="unicode") + "\n"


def _add(parent: ET.Element | None, tag: str, text: Any = None, **attributes: Any) -> ET.Element:
    values = {key: str(value) for key, value in attributes.items()}
    element = ET.Element(tag, values) if parent is None else ET.SubElement(parent, tag, values)
    if text is not None:
        element.text = str(text)
    return element


def _address(parent: ET.Element, bus: int, slot: int, function: int, multifunction: bool = False) -> None:
    attributes = {"multifunction": "on"} if multifunction else {}
    _add(
        parent,
        "address",
        type="pci",
        domain="0x0000",
        bus=f"0x{bus:02x}",
        slot=f"0x{slot:02x}",
        function=f"0x{function:x}",
        **attributes,
    )


def _vcpus(plan: DomainPlan) -> int:
    return sum(len(cell.vcpus) for cell in plan.processors.cells)


def _memory(root: ET.Element, plan: DomainPlan) -> None:
    spec, cells = plan.spec, plan.processors.cells
    if spec.huge_page_mib or spec.lock_memory or spec.memory_threads:
        backing = _add(root, "memoryBacking")
        if spec.huge_page_mib:
            pages = _add(backing, "hugepages")
            # The node set has guest cells, not host nodes.
            every_cell = format_ranges(cell.id for cell in cells)
            _add(pages, "page", size=spec.huge_page_mib * KIB, unit="KiB", nodeset=every_cell)
        if spec.lock_memory:
            # Without a hard limit, libvirt removes the limit on locked memory. A guessed hard limit could kill QEMU.
            _add(backing, "locked")
        if spec.memory_threads:
            # QEMU's own default is one thread (backends/hostmem.c, prealloc-threads).
            _add(backing, "allocation", mode="immediate", threads=spec.memory_threads)
    if spec.strict_memory:
        tune = _add(root, "numatune")
        _add(tune, "memory", mode="strict", nodeset=format_ranges(cell.host_node for cell in cells))
        for cell in cells:
            _add(tune, "memnode", cellid=cell.id, mode="strict", nodeset=cell.host_node)


def _processors(root: ET.Element, plan: DomainPlan) -> None:
    spec, processors = plan.spec, plan.processors
    _add(root, "vcpu", _vcpus(plan), placement="static")
    if spec.iothreads:
        _add(root, "iothreads", spec.iothreads)
    if not spec.pin_cpus:
        return
    tune = _add(root, "cputune")
    for cell in processors.cells:
        for vcpu, cpu in zip(cell.vcpus, cell.cpus):
            _add(tune, "vcpupin", vcpu=vcpu, cpuset=cpu)
    if processors.kept_cpus:
        emulator_cpus = format_ranges(processors.kept_cpus)
        _add(tune, "emulatorpin", cpuset=emulator_cpus)
        for number in range(1, spec.iothreads + 1):
            _add(tune, "iothreadpin", iothread=number, cpuset=emulator_cpus)


def _os(root: ET.Element, plan: DomainPlan) -> None:
    spec = plan.spec
    system = _add(root, "os", **({"firmware": "efi"} if spec.firmware == "efi" else {}))
    _add(system, "type", "hvm", arch="x86_64", machine=plan.machine)
    if spec.firmware == "efi":
        # libvirt finds the image by these features in QEMU's firmware descriptors, so the XML has no path.
        firmware = _add(system, "firmware")
        _add(firmware, "feature", enabled="no", name="enrolled-keys")
        _add(firmware, "feature", enabled="no", name="secure-boot")
    if spec.boot:
        _add(system, "kernel", spec.boot.kernel)
        if spec.boot.initrd:
            _add(system, "initrd", spec.boot.initrd)
        if spec.boot.arguments:
            _add(system, "cmdline", spec.boot.arguments)


def _firmware_window(root: ET.Element, plan: DomainPlan) -> None:
    """Give OVMF a larger 64-bit window through QEMU's fw_cfg: the one that it sizes itself may be too small.

    OvmfPkg/Library/PlatformInitLib reads "opt/ovmf/X-PciMmio64Mb"; libvirt reserves that name in its own sysinfo
    element, so it is written in the QEMU name space.
    """
    mebibytes = ovmf_window_mib(plan.window)
    if plan.spec.firmware == "efi" and mebibytes:
        command = _add(root, f"{{{QEMU_NAMESPACE}}}commandline")
        for value in ("-fw_cfg", f"name=opt/ovmf/X-PciMmio64Mb,string={mebibytes}"):
            _add(command, f"{{{QEMU_NAMESPACE}}}arg", value=value)


def _cliques(root: ET.Element, clique_of: dict[str, int]) -> None:
    """Approve peer-to-peer of GPUs, by a QEMU property for which libvirt has no element.

    libvirt sets properties of a device by its alias: https://libvirt.org/drvqemu.html, "Overriding properties of QEMU
    devices".
    """
    if not clique_of:
        return
    override = _add(root, f"{{{QEMU_NAMESPACE}}}override")
    for address, number in sorted(clique_of.items()):
        device = _add(override, f"{{{QEMU_NAMESPACE}}}device", alias=_alias(address))
        frontend = _add(device, f"{{{QEMU_NAMESPACE}}}frontend")
        _add(frontend, f"{{{QEMU_NAMESPACE}}}property", name=CLIQUE, type="unsigned", value=number)


def _alias(address: str) -> str:
    """Return the alias of a passed-through function; libvirt wants the prefix "ua-" for aliases of users."""
    return "ua-hostdev-" + address.replace(":", "-").replace(".", "-")


def _cpu(root: ET.Element, plan: DomainPlan) -> None:
    cells, threads = plan.processors.cells, plan.processors.threads
    if plan.accelerator == "kvm":
        cpu = _add(root, "cpu", mode="host-passthrough", check="none", migratable="off")
    else:
        cpu = _add(root, "cpu", mode="maximum", check="none", migratable="off")
    sockets = plan.processors.sockets
    cores = _vcpus(plan) // sockets // threads
    _add(cpu, "topology", sockets=sockets, dies=1, cores=cores, threads=threads)
    if plan.accelerator == "kvm":
        _add(cpu, "cache", mode="passthrough")
    if plan.address_bits_mode == "passthrough":
        _add(cpu, "maxphysaddr", mode="passthrough")
    elif plan.address_bits_mode == "emulate":
        _add(cpu, "maxphysaddr", mode="emulate", bits=plan.address_bits)
    if threads > 1 and plan.host.cpu.vendor == "AuthenticAMD" and plan.accelerator == "kvm":
        # Without this, QEMU hides an AMD processor's hardware threads from the guest.
        _add(cpu, "feature", policy="require", name="topoext")
    numa = _add(cpu, "numa")
    for cell in cells:
        item = _add(numa, "cell", id=cell.id, cpus=format_ranges(cell.vcpus), memory=cell.memory_mib * KIB, unit="KiB")
        if len(cells) > 1:
            distances = _add(item, "distances")
            for other_cell, distance in cell.distances.items():
                _add(distances, "sibling", id=other_cell, value=distance)


def _controllers(devices: ET.Element, plan: DomainPlan) -> None:
    _add(devices, "controller", type="usb", index=0, model="none")
    root = plan.root
    controller = _add(devices, "controller", type="pci", index=0, model=root.model)
    _add(controller, "pcihole64", plan.window.window_bytes // KIB, unit="KiB")
    for parent in root.walk():
        slots = [port.slot for port in parent.ports]
        for port in parent.ports:
            _port(devices, parent, port, multifunction=port.function == 0 and slots.count(port.slot) > 1)
    for port, endpoint in plan.endpoints():
        if endpoint.role == "serial":
            serial = _add(devices, "controller", type="virtio-serial", index=0)
            _virtio_driver(serial, plan)
            _address(serial, port.index, endpoint.slot, endpoint.function)


def _port(devices: ET.Element, parent: pci_tree.Port, port: pci_tree.Port, multifunction: bool) -> None:
    controller = _add(devices, "controller", type="pci", index=port.index, model=port.model)
    if port.model == pci_tree.EXPANDER:
        target = _add(controller, "target", busNr=port.bus)
        if port.cell is not None:
            _add(target, "node", port.cell)
    elif port.model != pci_tree.UPSTREAM and not parent.hot_plug(port):
        _add(controller, "target", hotplug="off")
    _address(controller, parent.index, port.slot, port.function, multifunction)


def _virtio_driver(parent: ET.Element, plan: DomainPlan, **attributes: str) -> None:
    if plan.spec.guest_iommu:
        attributes["iommu"] = "on"
    if plan.ats_on_virtio:
        attributes["ats"] = "on"
    if attributes:
        _add(parent, "driver", **attributes)


def _disks(devices: ET.Element, plan: DomainPlan) -> None:
    places = {endpoint.key: (port, endpoint) for port, endpoint in plan.endpoints() if endpoint.role == "disk"}
    bootable = next((number for number, disk in enumerate(plan.spec.disks) if not disk.read_only), None)
    for number, disk in enumerate(plan.spec.disks):
        block = disk.is_block_device
        element = _add(devices, "disk", type="block" if block else "file", device="disk")
        tuning = dict(disk.tuning)
        if plan.spec.iothreads:
            tuning["iothread"] = str(number % plan.spec.iothreads + 1)
        _virtio_driver(element, plan, name="qemu", type=disk.format, **tuning)
        _add(element, "source", **{"dev" if block else "file": disk.path})
        _add(element, "target", dev=f"vd{_letters(number)}", bus="virtio")
        if disk.read_only:
            _add(element, "readonly")
        if number == bootable and not plan.spec.boot:
            _add(element, "boot", order=1)
        port, endpoint = places[str(number)]
        _address(element, port.index, endpoint.slot, endpoint.function)


def _letters(number: int) -> str:
    """Return the letters of a disk as Linux and libvirt name it: a ... z, aa ..."""
    text = ""
    number += 1
    while number:
        number, letter = divmod(number - 1, 26)
        text = chr(ord("a") + letter) + text
    return text


def _interfaces(devices: ET.Element, plan: DomainPlan) -> None:
    places = {endpoint.key: (port, endpoint) for port, endpoint in plan.endpoints() if endpoint.role == "interface"}
    for number, interface in enumerate(plan.spec.interfaces):
        element = _add(devices, "interface", type=interface.type)
        _add(element, "mac", address=plan.spec.mac(number))
        if interface.source:
            _add(element, "source", **{interface.type: interface.source})
        _add(element, "model", type="virtio")
        queues = {"name": "vhost", "queues": str(interface.queues)} if interface.queues > 1 else {}
        _virtio_driver(element, plan, **queues)
        port, endpoint = places[str(number)]
        _address(element, port.index, endpoint.slot, endpoint.function)


def _rng(devices: ET.Element, plan: DomainPlan) -> None:
    for port, endpoint in plan.endpoints():
        if endpoint.role == "rng":
            element = _add(devices, "rng", model="virtio")
            _add(element, "backend", "/dev/urandom", model="random")
            _virtio_driver(element, plan)
            _address(element, port.index, endpoint.slot, endpoint.function)


def _console(devices: ET.Element, plan: DomainPlan) -> None:
    serial = _add(devices, "serial", type="pty")
    _add(serial, "log", file=plan.spec.console_log_path, append="off")
    _add(_add(serial, "target", type="isa-serial", port=0), "model", name="isa-serial")
    channel = _add(devices, "channel", type="unix")
    _add(channel, "target", type="virtio", name="org.qemu.guest_agent.0")
    _add(channel, "address", type="virtio-serial", controller=0, bus=0, port=1)


def _hostdev(devices: ET.Element, device: Passed, aliased: bool, rom_bar: bool) -> None:
    """Write one passed-through device; ``aliased``: with an alias, by which a QEMU property is set."""
    domain, bus, slot_and_function = device.address.split(":")
    slot, function = slot_and_function.split(".")
    element = _add(devices, "hostdev", mode="subsystem", type="pci", managed="yes")
    _add(element, "driver", name="vfio")
    source = {"domain": f"0x{domain}", "bus": f"0x{bus}", "slot": f"0x{slot}", "function": f"0x{function}"}
    _add(_add(element, "source"), "address", **source)
    if aliased:
        _add(element, "alias", name=_alias(device.address))
    if not rom_bar:
        _add(element, "rom", bar="off")
    port, endpoint = device.port, device.endpoint
    first_of_several = endpoint.function == 0 and len(port.endpoints) > 1
    _address(element, port.index, endpoint.slot, endpoint.function, first_of_several)
