# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Pairs of devices that are not as far apart in the guest as on the host, the worst first. Pure."""

from __future__ import annotations

from itertools import combinations

from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model import kinds
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.model import Host
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.paths import PATH_CLASSES, path_class
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.common.labels import name
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.drift.item import HOST, Drift
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.drift.plan import REMEDY, Wanted
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.libvirt.read_xml import Definition
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.render.host_record import Recorded, record

KINDS = tuple(kinds.SETTINGS)
AT_MOST = 3
RANK = {word: number for number, word in enumerate(PATH_CLASSES)}
# By default NCCL uses GPUDirect RDMA for pairs that are PXB or nearer (NCCL_NET_GDR_LEVEL, NCCL user guide).
NEAR = RANK["PXB"]


def pairs_apart(have: Definition, wanted: Wanted | None, host: Host, side: str) -> list[Drift]:
    """Return at most AT_MOST pairs of GPUs, NICs and NVMe drives, and one item that counts the others.

    A pair that is as planned is not drift, even if its class differs on the host: the plan's notes say why. Without a
    record of the host, a difference is assigned to ``side``.
    """
    functions = host.by_address()
    devices = [
        functions[address]
        for address in sorted(have.places)
        if address in functions and functions[address].kind in KINDS
    ]
    old = have.recorded
    moved = {
        item.address
        for item in devices
        if item.address in old
        and _place(record(functions, item.address, host.node_of(item))) != _place(old[item.address])
    }
    ordered_items = []
    for first, second in combinations(sorted(devices, key=lambda item: (KINDS.index(item.kind), item.address)), 2):
        on_host = path_class(host, first.address, second.address)
        in_guest = path_class(have.guest, have.places[first.address], have.places[second.address])
        if on_host == in_guest or (wanted and in_guest == _planned(wanted, first.address, second.address)):
            continue
        fall = RANK[on_host] - RANK[in_guest]
        mixed = {first.kind, second.kind} == {"gpu", "nic"}
        since = bool({first.address, second.address} & moved)
        # The largest differences of class come first, then pairs of a GPU and a NIC, which matter most to NCCL.
        order = (-abs(fall), not mixed, first.address, second.address)
        ordered_items.append((order, pair_drift(name(first), name(second), on_host, in_guest, since, side)))
    ordered_items.sort(key=lambda pair: pair[0])
    items = [item for _order, item in ordered_items]
    if len(items) <= AT_MOST:
        return items
    omitted = items[AT_MOST:]
    count = f"{len(omitted)} more pairs are" if len(omitted) > 1 else "1 more pair is"
    places = [HOST] if all(item.where == [HOST] for item in omitted) else [side]
    return [
        *items[:AT_MOST],
        Drift(
            f"{count} at a different distance in the guest than on the host",
            places,
            "as above: NCCL plans with wrong distances",
            REMEDY[side],
        ),
    ]


def _place(recorded: Recorded) -> tuple[str, str]:
    return recorded.path, recorded.node


def _planned(wanted: Wanted, first: str, second: str) -> str | None:
    if first not in wanted.places or second not in wanted.places:
        return None
    return path_class(wanted.guest, wanted.places[first], wanted.places[second])


def pair_drift(first: str, second: str, on_host: str, in_guest: str, moved: bool, side: str) -> Drift:
    """Return the drift of two devices whose path class in the guest is not that on the host."""
    near_there, near_here = RANK[in_guest] <= NEAR, RANK[on_host] <= NEAR
    farther = RANK[on_host] > RANK[in_guest]
    if moved:
        lost_switch = f"{first} now shares no switch with {second}: GPUDirect falls from {in_guest} to {on_host}"
        summary = (
            lost_switch
            if farther and near_there and not near_here
            else f"{first} and {second}: {in_guest} in the guest, now {on_host} on the host"
        )
        direction = "nearer" if farther else "farther"
        consequence = f"the guest still sees {in_guest}, so NCCL considers them {direction} than they are"
        return Drift(summary, [HOST], consequence, REMEDY[side])
    summary = f"{first} and {second}: {on_host} on the host, {in_guest} in the guest"
    consequence = "NCCL considers them nearer than they are and sends their traffic over a slow path"
    if not farther:
        consequence = "NCCL considers them farther apart than they are"
        if near_here and not near_there:
            consequence = "NCCL sees no switch between them, and sends their traffic through the CPU"
    return Drift(summary, [side], consequence, REMEDY[side])
