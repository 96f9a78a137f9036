# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Dell Enterprise SONiC: the arguments of the resource modules of the collection dellemc.enterprise_sonic, as JSON.

The form is ``{"sonic_qos_maps": {"config": ..., "state": "merged"}, ...}`` by module, to be applied in the order of
``SHAPES``. ``parse`` reads either this form or what the modules gather: ansible_network_resources,
``{"qos_maps": ..., ...}``. Options, ranges and defaults are those of the modules' documentation, version 3.2.0.

Differences from the community's SONiC:

- No buffer profile can be bound to a priority group. With ``buffer_init`` the system computes headroom itself from each
  port's speed and ``cable_length``. Changing ``buffer_init`` restarts the switch.
- At most two priorities of a port can have PFC, and there is one map from priorities to queues for all ports.
- ``state: merged`` removes nothing: ``remediation`` has steps of ``state: deleted`` for that.
"""

from __future__ import annotations

import re

from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.model.qos import Switch
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.model.switch_system import SwitchSystem
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.running.dell_sonic import SYSTEM, DellSonicReader
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.systems.parts.dell_sonic_change import (
    remediation,
    restoration,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.systems.parts.dell_sonic_render import (
    held_cable_m,
    render,
)

PORT = re.compile(r"Eth\d+(/\d+){1,2}|Ethernet\d+")


def parse(text: str, name: str) -> Switch:
    """Parse the QoS of all Ethernet ports from the modules' arguments or from what they gather.

    Raises FabricError for the first error.
    """
    return DellSonicReader(text, name).switch()


DELL_SONIC = SwitchSystem(
    name=SYSTEM,
    render=render,
    parse=parse,
    remediation=remediation,
    restoration=restoration,
    port=PORT,
    port_example="Eth1/1, or Ethernet0 where interface naming is native",
    not_held={
        "headroom": "the system computes it from the port's speed and cable_length, and no module binds a buffer "
        "profile",
        "cable_m": "held as 5, 40 or 300 m, the least that is not shorter",
    },
    # From sonic-buildimage's device/dell: Z9264F, Z9332F, Z9664F, Z9864F, S5200F and Z9432F.
    asics=("tomahawk2", "tomahawk3", "tomahawk4", "tomahawk5", "trident3", "trident4"),
    held_cable_m=held_cable_m,
    interruptions={"buffer_init": "the switch restarts"},  # sonic_qos_buffer of dellemc.enterprise_sonic
)
