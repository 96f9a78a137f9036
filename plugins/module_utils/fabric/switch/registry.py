# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The switch systems that a policy can be rendered for and read back from, by name.

Each is a module of ``systems`` with these names:

``NOT_HELD``: field of PortQos -> why this system's configuration does not hold it (the system decides it itself).
``render(switch) -> str``: the configuration, in the system's own format; only what concerns QoS. Pure: the same bytes.
``parse(text, name) -> Switch``: a running configuration (all of it or this part) in the same terms, whoever wrote
it; FabricError where it is none. ``parse(render(switch), switch.name)`` is ``switch``, less NOT_HELD.
``remediation(running, wanted) -> str``: what to send to change the switch's running configuration to ``wanted``, in
the system's own format; "" where nothing differs. Only what is this project's or contradicts the policy is removed.
``PORT`` and ``PORT_EXAMPLE``: the form of a port's name, and one, for the error about another.
Where it applies:

``ASICS``: the rows of ``asic_table`` that switches with this system have; ``NOT_ASICS``: row -> why it is not rendered
for.
``SIZES_HEADROOM = True``, where the system computes headroom alone: no row and no cable is asked for.
``check_cable(subject, cable_m)``: FabricError where a lossless port cannot have that cable.
``held_cable_m(cable_m)``: the length for which the system keeps headroom where a cable is so long.
``BUFFER_SHARES``: the parts into which it is configured to divide the buffer; ``DEFAULT_SHARES``: its own division
where the ASIC's pools are not the user's own. Else the pools are the ASIC's.
``HAS_POOLS = True``, where ``Switch.pools`` says what its pools must have.
``CLASSIFIES_AT_EGRESS = True``, where a port's ``dscp_to_class`` is for the packets that leave by it; else, without the
name, for those that come in.
"""

from __future__ import annotations

import re
from typing import Protocol

from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.model.qos import Switch
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.systems import (
    cumulus,
    dell_sonic,
    eos,
    junos,
    linux,
    nxos,
    sonic,
)


class SwitchSystem(Protocol):
    """The names that every module of ``systems`` has. Names that only some have are read with getattr and a default."""

    NOT_HELD: dict[str, str]
    PORT: re.Pattern[str]
    PORT_EXAMPLE: str

    def render(self, switch: Switch) -> str: ...

    def parse(self, text: str, name: str) -> Switch: ...

    def remediation(self, running: str, wanted: Switch) -> str: ...


SYSTEMS: dict[str, SwitchSystem] = {
    "cumulus": cumulus,
    "dell_sonic": dell_sonic,
    "eos": eos,
    "junos": junos,
    "linux": linux,
    "nxos": nxos,
    "sonic": sonic,
}
