# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The guest's windows for memory-mapped I/O: their size, and the check that they fit. Pure.

A bridge forwards 64-bit prefetchable memory in one window, which may lie anywhere, and everything else in one that
must lie below 4 GiB (PCI-to-PCI Bridge Architecture Specification, "Memory Base/Limit", "Prefetchable Base/Limit").
"""

from __future__ import annotations

from dataclasses import dataclass

from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.model import Bar, Function
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.common.errors import DomainError
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.common.units import GIB, MIB
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.plan.pci_tree import EXPANDER, Port

# A bridge's windows are in steps of 1 MiB; OVMF gives a hot-plug port at least 2 MiB below and 32 MiB above 4 GiB
# (OvmfPkg/PciHotPlugInitDxe).
HOT_PLUG_LOW_BYTES = 2 * MIB
HOT_PLUG_HIGH_BYTES = 32 * MIB
# OVMF gives each such port 1/256 of a window larger than 32 GiB, whatever is behind it. Observed with OVMF 2022.11:
# 512 MiB of 128 GiB, 2 GiB of 512 GiB, 8 GiB of 2 TiB. Without this share in the plan, one of eight 128 GiB BARs got no
# address.
OVMF_PORT_SHARE = 256
# QEMU's virtio devices have at most this: 16 KiB prefetchable, and 4 KiB for MSI-X (hw/virtio/virtio-pci.c).
VIRTIO_BAR_BYTES = 16 * 1024
# On q35, OVMF uses 0xC0000000 to 0xFC000000 for PCI (OvmfPkg); SeaBIOS uses a little more.
LOW_WINDOW_BYTES = 0xFC000000 - 0xC0000000
# A bridge forwards I/O in steps of 4 KiB. IO_STEPS has the number of ports with an I/O BAR behind them for which the
# firmware has room beside the chipset. Observed with SeaBIOS 1.16.3, which halts at one more ("out of I/O address
# space"), and with OVMF 2022.11 (0x6000 to 0xFFFF), which then leaves some devices without memory, too.
IO_PORT_STEP_BYTES = 4096
IO_STEPS = {"bios": 14, "efi": 9}
# q35's default pci-hole64-size (QEMU, Q35_PCI_HOST_HOLE64_SIZE_DEFAULT).
SMALLEST_WINDOW_BYTES = 32 * GIB
# x86 has 52 physical address bits at most (Intel SDM volume 3, 4.1.4).
LARGEST_WINDOW_BYTES = 2**51
# QEMU's phys-bits if the CPU model does not take the host's (TCG_PHYS_ADDR_BITS).
DEFAULT_ADDRESS_BITS = 40
# An AMD host cannot map the range from here to 1 TiB (HyperTransport), so QEMU 7.1+ moves memory to 1 TiB if RAM and
# window do not fit below it (QEMU hw/i386/pc.c, AMD_HT_START, AMD_ABOVE_1TB_START).
AMD_HYPERTRANSPORT_START_BYTES = 0xFD00000000
AMD_MOVED_START_BYTES = 1024 * GIB


@dataclass
class Window:
    """The bytes below and above 4 GiB that the devices need, and the 64-bit window that the guest gets."""

    low_bytes: int
    high_bytes: int
    window_bytes: int
    address_bits: int | None


def size_up(
    name: str,
    root: Port,
    functions: dict[str, Function],
    memory_mib: int,
    address_bits: int | None,
    vendor: str | None,
    wanted_mib: int,
    firmware: str,
    most_bits: int | None = None,
) -> Window:
    """Return the window for the tree. ``wanted_mib`` other than 0 overrides the computed size, and must not be smaller.

    ``firmware`` is "efi" or "bios": OVMF's reserves grow with the window, which is doubled until it holds them.

    ``most_bits`` are the address bits that the guest could have on its host, for the remedy.

    Raises DomainError that names the device with the largest BARs. If ``address_bits`` is None, the host's are unknown
    and there is no check against them.
    """
    buses = [root, *root.expanders]
    _check_io(name, root, functions, firmware)
    low = _together(buses, functions, False, HOT_PLUG_LOW_BYTES)
    if low > LOW_WINDOW_BYTES:
        culprit = _largest(root, functions, high=False)
        raise DomainError(
            f"its devices need {low // MIB} MiB of memory space below 4 GiB, but a guest has "
            f"{LOW_WINDOW_BYTES // MIB} MiB",
            f"{culprit} needs most of it: leave it out",
            domain=name,
        )
    window = wanted_mib * MIB or SMALLEST_WINDOW_BYTES
    high = _together(buses, functions, True, _high_reserve(window, firmware))
    while not wanted_mib and window < high and window < LARGEST_WINDOW_BYTES:
        window *= 2
        high = _together(buses, functions, True, _high_reserve(window, firmware))
    if wanted_mib and window < high:
        raise DomainError(
            f"mmio_window_mib {wanted_mib} is too small: its devices need {-(-high // MIB)} MiB",
            "leave it out",
            domain=name,
        )
    if address_bits is not None:
        # The window is above all memory. Memory below 4 GiB is counted, too, which is on the safe side.
        start = round_up(4 * GIB + memory_mib * MIB, GIB)
        limit = 2**address_bits
        if vendor == "AuthenticAMD" and start + window > AMD_HYPERTRANSPORT_START_BYTES:
            if limit > AMD_MOVED_START_BYTES:
                start += AMD_MOVED_START_BYTES - 4 * GIB
            else:
                limit = AMD_HYPERTRANSPORT_START_BYTES
        if start + window > limit:
            culprit = _largest(root, functions, high=True)
            more_bits_fit = most_bits is not None and most_bits > address_bits and start + window <= 2**most_bits
            raise DomainError(
                f"{memory_mib} MiB of memory and a 64-bit MMIO window of {window // GIB} GiB do not fit into "
                f"{address_bits} physical address bits ({limit // GIB} GiB)",
                f"{culprit} has the largest BARs: assign fewer devices to it"
                + (f", or set physical_address_bits: {most_bits}" if more_bits_fit else ""),
                domain=name,
            )
    return Window(low, high, window, address_bits)


def ovmf_window_mib(window: Window) -> int:
    """Return the value for fw_cfg's opt/ovmf/X-PciMmio64Mb, in MiB, or 0 if OVMF's own window is large enough."""
    return window.window_bytes // MIB if window.window_bytes > SMALLEST_WINDOW_BYTES else 0


def is_high(region: Bar) -> bool:
    """Return True if a BAR behind a bridge may be above 4 GiB."""
    return region.width_bits == 64 and region.prefetchable


def _check_io(name: str, root: Port, functions: dict[str, Function], firmware: str) -> None:
    steps, carriers = 0, []
    for port in root.walk():
        keys = [endpoint.key for endpoint in port.endpoints if endpoint.role == "hostdev"]
        regions = [region for key in keys for region in functions[key].bars if region.kind == "io"]
        steps += -(-sum(power_of_two(region.size_bytes) for region in regions) // IO_PORT_STEP_BYTES)
        carriers += [key for key in keys if any(region.kind == "io" for region in functions[key].bars)]
    if steps > IO_STEPS[firmware]:
        raise DomainError(
            f"{len(carriers)} of its devices have I/O BARs and need {steps} windows of 4 KiB, but firmware {firmware} "
            f"has room for {IO_STEPS[firmware]} and would leave devices out",
            f"assign fewer of {', '.join(carriers[:3])}{', ...' if len(carriers) > 3 else ''}",
            domain=name,
        )


def _high_reserve(window_bytes: int, firmware: str) -> int:
    """Return the bytes above 4 GiB that the firmware gives every port at least."""
    if firmware == "efi" and window_bytes > SMALLEST_WINDOW_BYTES:
        return max(window_bytes // OVMF_PORT_SHARE, HOT_PLUG_HIGH_BYTES)
    return HOT_PLUG_HIGH_BYTES


def _together(buses: list[Port], functions: dict[str, Function], high: bool, reserve: int) -> int:
    """Return the bytes that the windows of all root buses take, one after the other in the order of the buses.

    OVMF puts each window into the first gap that holds it, which takes no more. Windows sorted by size could take less,
    but a small root bus in front moves the next one to the following multiple of its alignment.
    """
    end = 0
    for bus in buses:
        size, alignment = _span(bus, functions, high, reserve)
        end = round_up(end, alignment) + size
    return end


def _span(port: Port, functions: dict[str, Function], high: bool, reserve: int) -> tuple[int, int]:
    """Return (size, alignment) of a bus's window, packed as by the firmware, with the largest alignment first."""
    parts = []
    for endpoint in port.endpoints:
        if endpoint.role == "hostdev":
            for region in functions[endpoint.key].bars:
                if region.kind == "memory" and is_high(region) == high:
                    size = power_of_two(region.size_bytes)
                    parts.append((size, size))
        else:
            parts.append((VIRTIO_BAR_BYTES, VIRTIO_BAR_BYTES))
    # Expander buses are counted separately.
    parts += [_span(child, functions, high, reserve) for child in port.ports if child.model != EXPANDER]
    end = 0
    for size, alignment in sorted(parts, key=lambda part: part[1], reverse=True):
        end = round_up(end, alignment) + size
    return max(round_up(end, MIB), reserve), max([MIB, *(part[1] for part in parts)])


def _largest(root: Port, functions: dict[str, Function], high: bool) -> str:
    def wants(address: str) -> int:
        return sum(
            region.size_bytes
            for region in functions[address].bars
            if region.kind == "memory" and is_high(region) == high
        )

    addresses = [endpoint.key for port in root.walk() for endpoint in port.endpoints if endpoint.role == "hostdev"]
    if not addresses:
        return "no passed-through device"
    address = max(addresses, key=lambda item: (wants(item), item))
    return f"{functions[address].kind} {address} ({wants(address) // MIB} MiB)"


def round_up(number: int, step: int) -> int:
    """Return the number rounded up to a multiple of ``step``."""
    return -(-number // step) * step


def power_of_two(number: int) -> int:
    """Return the number rounded up to a power of two: BARs have no other sizes."""
    return 1 << max(number - 1, 0).bit_length()
