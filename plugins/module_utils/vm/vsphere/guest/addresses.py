# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The guest addresses of passed-through devices, which vSphere's API does not report. Pure.

ESXi gives each device a slot number at its first start (``pciPassthruN.pciSlotNumber``, ``ethernetN.pciSlotNumber``).
VMware KB 2047927, "Mapping PCI slot numbers to guest-visible PCI bus topology": the number is FFF.BBBBB.DDDDD in bits.
With BBBBB 0 it is device DDDDD of bus 0; otherwise it is device DDDDD below function FFF of the bridge
``pciBridge(BBBBB-1)``, which has a slot number of its own. So vCenter gives the way to a device, and the tree that was
read in the guest gives the address at its end.

From virtual hardware 20 on, EFI gives a guest another tree (Broadcom KB 407595), and neither article says that the ways
are still the same. So a way is used only if it ends at a device of the planned vendor and model. Otherwise, a device
is identified by its model if it is the only one of that model both in the plan and in the guest; all others remain
unknown.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.model import Function, Host

# The bits of a slot number: function, bridge plus 1, device.
FUNCTION_SHIFT, BRIDGE_SHIFT, FIVE_BITS, THREE_BITS = 10, 5, 31, 7


def way(slot: int, bridges: Mapping[int, int]) -> list[str] | None:
    """Return the steps from bus 0 down to a slot number, each as "DEVICE.FUNCTION" in hexadecimal digits.

    ``bridges`` are the slot numbers of pciBridgeN by N. Return None if one of them is missing, or if they form a loop.
    """
    steps: list[str] = []
    function_below = 0  # the function of the bridge that the step below is on
    seen: set[int] = set()
    while True:
        steps.insert(0, f"{slot & FIVE_BITS:02x}.{function_below}")
        bridge = (slot >> BRIDGE_SHIFT) & FIVE_BITS
        if not bridge:
            return steps
        function_below = (slot >> FUNCTION_SHIFT) & THREE_BITS
        if bridge - 1 not in bridges or bridge in seen:
            return None
        seen.add(bridge)
        slot = bridges[bridge - 1]


def locate(devices: list[Function], ways: Mapping[str, list[str]], guest: Host) -> dict[str, str]:
    """Return the guest addresses of the host's ``devices`` by host address, without those that are unknown.

    ``ways`` are those of ``way`` by host address.
    """
    guest_address_of: dict[str, str] = {}
    for function in devices:
        end = _end(ways.get(function.address, []), guest)
        if end is not None and _model(end) == _model(function):
            guest_address_of[function.address] = end.address
    if len(set(guest_address_of.values())) < len(guest_address_of):
        # Two devices cannot have one address, so the ways are those of another tree.
        guest_address_of = {}
    planned = Counter(map(_model, devices))
    guest_models = Counter(map(_model, guest.functions))
    by_model = {_model(function): function.address for function in guest.functions}
    for function in devices:
        model = _model(function)
        if function.address not in guest_address_of and planned[model] == guest_models[model] == 1:
            guest_address_of[function.address] = by_model[model]
    return guest_address_of


def _model(function: Function) -> tuple[int, int]:
    return function.vendor_id, function.device_id


def _end(steps: list[str], guest: Host) -> Function | None:
    """Return the function at the end of a way in the guest, or None."""
    function: Function | None = None
    for number, step in enumerate(steps):
        parent = function.address if function else None
        function = next(
            (
                item
                for item in guest.functions
                if item.parent == parent
                and item.address.endswith(f":{step}")
                and (number or item.address.startswith("0000:00:"))
            ),
            None,
        )
        if function is None:
            return None
    return function
