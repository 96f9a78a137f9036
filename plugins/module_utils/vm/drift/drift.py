# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The drift of a virtual machine: its plan, libvirt definition, running domain and host compared. Pure.

libvirt's definition and the running domain are compared in three ways, none of which needs a plan that was stored
elsewhere:

- with the host as it is now, and as it was when the domain was planned, which the domain's metadata records
  (``host_record``): ``host``, ``paths``;
- with the plan made now, which keeps what the domain holds: ``plan``;
- if there is no plan, with the needs of a GPU guest: memory bound to its node.
"""

from __future__ import annotations

import re

from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.model import Host
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.drift import host as drift_host
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.drift import paths, plan
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.drift.item import (
    DEFINED,
    HOST,
    RUNNING,
    Drift,
    merge,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.libvirt import read_xml
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.libvirt.xml_diff import (
    XmlDifference,
    differences,
    running_differences,
)

RECORD = re.compile(r"metadata(?:/.*\[([0-9a-f:.]+)\].*)?")


def drift(host: Host, inactive_xml: str, live_xml: str | None = None, wanted: plan.Wanted | None = None) -> list[Drift]:
    """Return every difference of a domain in words, the host's first. ``wanted`` is None if there is no plan.

    Raises DomainError if libvirt's XML cannot be read, TopologyError if the host's topology is inconsistent.
    """
    functions = host.by_address()
    sides = [(RUNNING, live_xml)] if live_xml else []
    sides.append((DEFINED, inactive_xml))
    items: list[Drift] = []
    unreported: list[XmlDifference] = []
    for side, xml in sides:
        have = read_xml.read(xml, functions)
        items += drift_host.against_host(have, host, running=live_xml is not None)
        if wanted is not None:
            compared = differences(wanted.xml, xml) if side == DEFINED else running_differences(wanted.xml, xml)
            items += plan.against_plan(compared, have, wanted, side)
            unreported += [item for item in compared if RECORD.fullmatch(item.path)]
        else:
            items += plan.unbound_memory(have, side)
        items += paths.pairs_apart(have, wanted, host, side)
    items += _record(unreported, items)
    return merge(items)


def _record(unreported: list[XmlDifference], items: list[Drift]) -> list[Drift]:
    """Assign each difference of the record to the host's item that reports it; return one item for all the others."""
    unassigned = []
    for item in unreported:
        match = RECORD.fullmatch(item.path)
        address = match[1] if match else None
        items_of_device = [
            item_of_device
            for item_of_device in items
            if address and item_of_device.where == [HOST] and address in item_of_device.what
        ]
        for item_of_device in items_of_device:
            item_of_device.paths.append(item.path)
        if not items_of_device:
            unassigned.append(item)
    if not unassigned:
        return []
    summary = "the domain's record of the host differs from the plan's"
    if any(item.path == "metadata" for item in unassigned):
        summary = "the domain has no record of the host that it was planned for"
    return [
        Drift(
            summary,
            [DEFINED],
            "the guest is not affected; changes on the host are reported less precisely",
            plan.REMEDY[DEFINED],
            [item.path for item in unassigned],
        )
    ]
