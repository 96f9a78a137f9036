# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The state of the host when a domain was planned, kept in the domain's own metadata. Pure.

libvirt keeps the element as it is given (https://libvirt.org/formatdomain.html, "metadata": one top-level element per
name space). It has only facts that a reboot of an unchanged host does not change: no driver, no group number, and the
limit of a link instead of its current speed, which may be lower while the device is idle.
"""

from __future__ import annotations

import xml.etree.ElementTree as ET
from dataclasses import asdict, dataclass

from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.model import Function, Host

NAMESPACE = "https://github.com/sailloft/sailloft/plan/1"
ET.register_namespace("sailloft", NAMESPACE)

# A link is between one of these and what is below it; upstream and downstream ports of a switch are in one chip.
LINK_PORTS = frozenset({"root_port", "switch_downstream"})


@dataclass
class Recorded:
    """One passed-through function as it was planned; every value is text, "" where it is not known.

    ``path`` is the root complex and the bridges down to the function, ``group`` the other members of its IOMMU group
    except bridges, ``model`` the PCI ids, ``link`` the highest rate that both ends of its link support.
    """

    address: str
    kind: str
    model: str
    node: str
    path: str
    group: str
    link: str


def record(functions: dict[str, Function], address: str, node: int | None = None) -> Recorded:
    """Return the record of the function at ``address``, which is on ``node`` of the host (``Host.node_of``).

    The path ends at a loop or a gap above the function.
    """
    function = functions[address]
    path: list[str] = []
    parent = function.parent
    while parent in functions and parent not in path:
        path.insert(0, parent)
        parent = functions[parent].parent
    group = [
        item.address
        for item in functions.values()
        if function.iommu_group is not None
        and item.iommu_group == function.iommu_group
        and item.kind != "bridge"
        and item.address != address
    ]
    return Recorded(
        address=address,
        kind="VF" if function.physical_function else function.kind,
        model=f"{function.vendor_id:04x}:{function.device_id:04x}",
        node="" if node is None else str(node),
        path=" ".join([function.root_complex, *path]),
        group=" ".join(sorted(group)),
        link=link_words(*link_limit(functions, function)),
    )


def link_limit(functions: dict[str, Function], function: Function) -> tuple[float | None, int | None]:
    """Return the GT/s and lanes that both ends of the link above ``function`` support; None: unknown.

    A virtual function has no link of its own (PCI Express Base Specification, SR-IOV), so that of its physical function
    is returned.
    """
    owner = functions.get(function.physical_function or function.address, function)
    ends = [owner.link]
    port = functions.get(owner.parent or "")
    # Without root privileges, a port's type is not readable, but its link is in /sys.
    if port is not None and port.port_type in (*LINK_PORTS, None):
        ends.append(port.link)
    speeds = [end.max_speed_gt_s for end in ends if end and end.max_speed_gt_s]
    widths = [end.max_width for end in ends if end and end.max_width]
    return min(speeds, default=None), min(widths, default=None)


def link_words(speed_gt_s: float | None, width: int | None) -> str:
    """Return the link as lspci writes it: "16 GT/s x16"; "" if either is unknown."""
    return f"{speed_gt_s:g} GT/s x{width}" if speed_gt_s and width else ""


def write(domain: ET.Element, host: Host, addresses: list[str]) -> None:
    """Write the record of the host's devices at ``addresses`` into a domain's XML, if there are any."""
    functions = host.by_address()
    rows = [record(functions, address, host.node_of(functions[address])) for address in sorted(addresses)]
    if rows:
        plan = ET.SubElement(ET.SubElement(domain, "metadata"), f"{{{NAMESPACE}}}plan")
        for row in rows:
            ET.SubElement(plan, f"{{{NAMESPACE}}}device", asdict(row))


def read(domain: ET.Element) -> dict[str, Recorded]:
    """Read the record of a domain's XML, by address; empty if it has none."""
    names = list(Recorded.__dataclass_fields__)
    rows = [
        Recorded(**{name: item.get(name, "") for name in names})
        for item in domain.iterfind(f"metadata/{{{NAMESPACE}}}plan/{{{NAMESPACE}}}device")
    ]
    return {row.address: row for row in rows}
