# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The guest's PCI tree: expander buses, ports and their devices, arranged as on the host. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.model import Function
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.common.errors import DomainError
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.devices.eligibility import HostDevices

ROOT = "pcie-root"
EXPANDER = "pcie-expander-bus"
ROOT_PORT = "pcie-root-port"
UPSTREAM = "pcie-switch-upstream-port"
DOWNSTREAM = "pcie-switch-downstream-port"

# The only port that PCI Express allows below each port (None: the root bus). libvirt has a model for each.
BELOW = {None: ROOT_PORT, ROOT_PORT: UPSTREAM, UPSTREAM: DOWNSTREAM, DOWNSTREAM: UPSTREAM}
MODEL_OF_TYPE = {"root_port": ROOT_PORT, "switch_upstream": UPSTREAM, "switch_downstream": DOWNSTREAM}

# Slots on the guest's own root bus. q35 has its chipset at slot 31 (and libvirt looks for sound and USB at 27 and 29),
# and slot 1 is for a video card. Between them are the ports of virtio devices, eight per slot, and the expander buses.
PORT_SLOTS = range(0x02, 0x08)
EXPANDER_SLOTS = range(0x08, 0x1B)
SLOTS = 32
FUNCTIONS = 8


@dataclass
class Endpoint:
    """The device in a port: ``role`` "hostdev" (``key`` its host address) or a virtio device (``key`` its number)."""

    role: str
    key: str
    slot: int = 0
    function: int = 0


@dataclass
class Port:
    """A bus and the port above it, or a root bus. ``index`` is libvirt's, ``bus`` is the firmware's number.

    ``slot`` and ``function`` are the place of the port on the bus above. ``host`` is the bridge (or root complex) of
    the host that it mirrors, or None if the guest needs a port that the host does not have.
    """

    model: str
    host: str | None = None
    cell: int | None = None
    slot: int = 0
    function: int = 0
    index: int = 0
    bus: int = 0
    last_bus: int = 0
    ports: list[Port] = field(default_factory=list)
    endpoints: list[Endpoint] = field(default_factory=list)

    def walk(self) -> Iterator[Port]:
        """Yield this port and all ports below, in the order in which firmware finds them."""
        yield self
        for port in self.ports:
            yield from port.walk()

    def hot_plug(self, port: Port) -> bool:
        """Return True if ``port``, directly below, supports hot plug: only on the guest's own root bus.

        OVMF reserves I/O and memory space for every such port. With 14 of them, 10 on switches, OVMF 2022.11 gave no
        device of a recorded server (Supermicro 4029GP) an address; without hot plug on the switches every device got
        one.
        """
        return self.model == ROOT and port.model == ROOT_PORT

    @property
    def expanders(self) -> list[Port]:
        """Return the expander buses directly below."""
        return [port for port in self.ports if port.model == EXPANDER]


def address(bus: int, slot: int, function: int) -> str:
    """Return the address as the guest writes it; a PCI Express guest of QEMU has domain 0 only."""
    return f"0000:{bus:02x}:{slot:02x}.{function:x}"


def build(
    name: str,
    host_devices: HostDevices,
    devices: list[Function],
    cells: dict[str, int | None],
    virtio: list[Endpoint],
    mirror: bool,
    on_root_ports: frozenset[str] = frozenset(),
) -> tuple[Port, list[str]]:
    """Return the tree for ``devices`` (passed through) and ``virtio`` endpoints, and notes on differences to the host.

    ``cells`` gives the guest cell by root complex. Without ``mirror`` each device gets a root port of its own on the
    guest's root bus: the flat guest that other tools make. With it, the devices ``on_root_ports`` get a root port of
    their own on the expander bus.
    """
    root = Port(ROOT)
    notes: list[str] = []
    loose = [Endpoint("hostdev", function.address) for function in devices] if not mirror else []
    for number, endpoint in enumerate([*virtio, *loose]):
        if number >= len(PORT_SLOTS) * FUNCTIONS:
            raise DomainError(
                f"more than {len(PORT_SLOTS) * FUNCTIONS} devices on the guest's own root bus",
                "assign fewer devices to it",
                domain=name,
            )
        slot, function = PORT_SLOTS[number // FUNCTIONS], number % FUNCTIONS
        root.ports.append(Port(ROOT_PORT, slot=slot, function=function, endpoints=[endpoint]))
    if mirror:
        by_complex: dict[str, list[Function]] = {}
        for device in devices:
            by_complex.setdefault(device.root_complex, []).append(device)
        if len(by_complex) > len(EXPANDER_SLOTS):
            raise DomainError(
                f"its devices are on {len(by_complex)} root complexes, but a guest can have {len(EXPANDER_SLOTS)}",
                "assign fewer devices to it",
                domain=name,
            )
        for slot, (complex_name, members) in zip(EXPANDER_SLOTS, sorted(by_complex.items())):
            expander = Port(EXPANDER, host=complex_name, cell=cells.get(complex_name), slot=slot)
            for device in members:
                if device.address in on_root_ports:
                    port = _add(name, expander, ROOT_PORT, f"{complex_name}/{device.address}")
                    port.endpoints.append(Endpoint("hostdev", device.address))
                else:
                    _plug(name, expander, host_devices, device, notes)
            _divide(name, expander, notes)
            root.ports.append(expander)
    for index, port in enumerate(root.walk()):
        port.index = index
    return root, notes


def _plug(name: str, expander: Port, host_devices: HostDevices, device: Function, notes: list[str]) -> None:
    """Put a device below ``expander`` as it is below its root complex."""
    port = expander
    for address in host_devices.bridges(device.address):
        bridge = host_devices.functions[address]
        wanted = BELOW[None if port is expander else port.model]
        if bridge.port_type == "switch_upstream" and wanted != UPSTREAM:
            # The switch represents itself and the port above it, as in NCCL's files (topology/read/nccl.py).
            port = _below(name, port, wanted, f"{port.host}/{address}")
            wanted = UPSTREAM
        model = MODEL_OF_TYPE.get(bridge.port_type or "", wanted if bridge.port_type is None else None)
        if model != wanted:
            note = f"bridge {address} ({bridge.port_type}) is left out: a guest has no such bridge at this place"
            if note not in notes:
                notes.append(note)
            continue
        port = _below(name, port, model, address)
    if port.model in (EXPANDER, UPSTREAM):
        # An integrated endpoint, or a function on a switch's own bus: the guest needs a port where the host has none.
        model = BELOW[None if port is expander else port.model]
        port = _below(name, port, model, f"{port.host}/{device.address}")
        notes.append(f"{device.address} has no port of its own on the host; in the guest it is below a {model}")
    port.endpoints.append(Endpoint("hostdev", device.address))


def _below(name: str, parent: Port, model: str, host: str) -> Port:
    """Return the port that mirrors ``host`` directly below ``parent``; make it if there is none."""
    for port in parent.ports:
        if port.host == host:
            return port
    return _add(name, parent, model, host)


def _add(name: str, parent: Port, model: str, host: str | None) -> Port:
    """Return a new port directly below ``parent``; root and downstream ports are side by side, one per slot."""
    if len(parent.ports) >= SLOTS:
        raise DomainError(f"more than {SLOTS} ports below {parent.host}", "assign fewer devices to it", domain=name)
    port = Port(model, host=host, slot=len(parent.ports))
    parent.ports.append(port)
    return port


def _divide(name: str, parent: Port, notes: list[str]) -> None:
    """Split ports below ``parent`` with more than a guest's port can have: one switch, or (without ARI) 8 functions.

    The others get ports of their own at the same distance. For a port of a switch, these are other ports of the same
    switch. For a root port, these are ports of an additional switch below it, because another root port would be
    farther away.
    """
    for port in list(parent.ports):
        if port.model in (ROOT_PORT, DOWNSTREAM):
            _divide_port(name, parent, port, notes)
    for port in parent.ports:
        _divide(name, port, notes)


def _divide_port(name: str, parent: Port, port: Port, notes: list[str]) -> None:
    if port.model == ROOT_PORT and len(port.ports) == 1 and port.endpoints:
        # These are functions of the switch's upstream device, such as a management endpoint: a port of it is as near.
        switch = port.ports[0]
        keys = ", ".join(endpoint.key for endpoint in port.endpoints)
        notes.append(
            f"{keys} is beside the switch {switch.host} on the host; in the guest it is on a port of that switch"
        )
        _add(name, switch, DOWNSTREAM, None).endpoints = port.endpoints
        port.endpoints = []
        return
    chunks = [port.endpoints[start : start + FUNCTIONS] for start in range(0, len(port.endpoints), FUNCTIONS)]
    for chunk in chunks:
        for number, endpoint in enumerate(chunk):
            endpoint.function = number
    parts: list[tuple[list[Port], list[Endpoint]]] = [([switch], []) for switch in port.ports]
    parts += [([], chunk) for chunk in chunks]
    if len(parts) <= 1:
        return
    place = "beside it"
    targets = [port]
    if port.model == ROOT_PORT:
        place = "of a switch below it, which the host has not"
        switch = Port(UPSTREAM)
        port.ports, port.endpoints = [switch], []
        parent, targets = switch, []
    targets += [_add(name, parent, DOWNSTREAM, None) for _part in parts[len(targets) :]]
    notes.append(
        f"{port.host} carries more than one switch or {FUNCTIONS} functions, and a port of the guest does not: they "
        f"are behind ports {place}"
    )
    for target, (ports, endpoints) in zip(targets, parts):
        target.ports, target.endpoints = ports, endpoints
        for child in ports:
            child.slot = 0
