# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The reach of devices of a host by PCIe. Pure.

The rules are those of Linux drivers/pci/p2pdma.c (calc_map_type_and_dist, host_bridge_whitelist): requests go straight
below a switch whose ports do not redirect them, or through a host bridge that is known to route them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from ansible_collections.sailloft.fleet.plugins.module_utils.pci.registers import (
    PCI_ACS_EC,
    PCI_ACS_RR,
    PCI_CFG_SPACE_EXP_SIZE,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.gpudirect.acs_plan import AcsPlan
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.model import Function, Host
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.paths import Paths

# Intel's host bridges that route between root ports: device id of 00.0 on a root bus -> True if the bridge also routes
# to other root complexes (pci_p2pdma_whitelist of Linux drivers/pci/p2pdma.c; REQ_SAME_HOST_BRIDGE: it does not).
INTEL_HOST_BRIDGES = {
    0x3C00: False,
    0x3C01: False,
    0x2F00: False,
    0x2F01: False,
    0x2030: True,
    0x2031: True,
    0x2032: True,
    0x2033: True,
    0x2020: True,
    0x09A2: True,
}
# AMD's processors since Zen (family 17h) route between all root ports (cpu_supports_p2pdma in the same file).
AMD_ZEN = re.compile(r"\b(EPYC|Ryzen)\b")


class Reach:
    """The reachability of devices, from the current ACS bits of ports and, ``as_planned``, those that the plan sets."""

    def __init__(self, host: Host, gpus: list[Function], purpose: str, as_planned: bool = True) -> None:
        self._host = host
        self._paths = Paths(host)
        self._plan = AcsPlan(host, gpus, purpose)
        self._masks = {port.address: port.mask for port in self._plan.ports} if as_planned else {}

    def unread(self, addresses: Iterable[str]) -> list[str]:
        """Return the ports above devices whose ACS is not known, because config space was not read as root."""
        ports = {port.address: port for address in addresses for port in self._paths.path_to(address)[:-1]}
        return sorted(address for address, port in ports.items() if port.config_bytes < PCI_CFG_SPACE_EXP_SIZE)

    def below_one_switch(self, first: str, second: str) -> bool:
        """Return whether the devices share a switch."""
        return self._plan.turns(first, second) is not None

    def redirected(self, first: str, second: str) -> bool:
        """Return whether the switch that the devices share redirects their requests to the root complex."""
        return any(self._redirects(port) for port in self._plan.turns(first, second) or ())

    def forbidden(self, first: str, second: str, within_node: bool = False) -> str | None:
        """Return why the host does not route requests from one device to the other; None if it does.

        ``within_node``: requests through a host bridge count only within a NUMA node.
        """
        for port in (step for address in (first, second) for step in self._paths.path_to(address)[:-1]):
            if port.acs and port.acs.control & PCI_ACS_EC:
                return f"ACS egress control is on at port {port.address}"
        if self.below_one_switch(first, second) and not self.redirected(first, second):
            return None
        functions = self._host.function(first), self._host.function(second)
        nodes = {self._host.node_of(function) for function in functions}
        if within_node and (None in nodes or len(nodes) > 1):
            return "they are on different NUMA nodes"
        same_complex = functions[0].root_complex == functions[1].root_complex
        across = self._routes(functions[0]), self._routes(functions[1])
        if None in across or (not same_complex and False in across):
            return "the host bridge above is not known to route between its ports"
        return None

    def _redirects(self, address: str) -> bool:
        acs = self._host.function(address).acs
        if acs is None:
            return False
        mask = self._masks.get(address)
        return bool((mask.applied(acs.control, acs.capability) if mask else acs.control) & PCI_ACS_RR)

    def _routes(self, function: Function) -> bool | None:
        """Return True if the host bridge routes to other root complexes, False if only between its own ports.

        None if it is not known to route at all.
        """
        cpu = self._host.cpu
        if cpu.vendor == "AuthenticAMD":
            return True if AMD_ZEN.search(cpu.model or "") else None
        bridges = [
            item.device_id
            for item in self._host.functions
            if item.root_complex == function.root_complex
            and item.parent is None
            and item.address.endswith(":00.0")
            and item.vendor_id == 0x8086
        ]
        return next((INTEL_HOST_BRIDGES[device] for device in bridges if device in INTEL_HOST_BRIDGES), None)
