# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A domain without drift and its host, as libvirt and topology report them."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from libvirt_definitions import REQUEST
from machines import MIB, lab, plan

from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.model import Host, HugePages
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.drift.plan import Wanted
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.libvirt import read_xml
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.render.domain_xml import render

FILES = Path(__file__).parents[2] / "unit/vm/libvirt/xml"


DEFINED = (FILES / "inactive.xml").read_text(encoding="utf-8")


LIVE = (FILES / "live.xml").read_text(encoding="utf-8")


WANTED = render(plan(**REQUEST))


DEVICES = re.findall(r'device address="([^"]+)"', DEFINED)


def host() -> Host:
    """Return the emulated server with the domain running: its devices are bound, and both nodes have pages of 2 MiB."""
    made = lab()
    for node in made.numa_nodes:
        node.huge_pages = [HugePages(2 * MIB, 256, 256)]
    for address in DEVICES:
        made.function(address).driver = "vfio-pci"
    return made


def wanted_of(xml: str) -> Wanted:
    """Return the wanted domain for any XML, whether or not a plan would produce it."""
    made = read_xml.read(xml, host().by_address())
    return Wanted(xml, made.guest, made.places)


def gone(address: str) -> Callable[[Host], None]:
    def change(on: Host) -> None:
        on.functions = [item for item in on.functions if item.address != address]

    return change
