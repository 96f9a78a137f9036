# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""NVIDIA Cumulus Linux 5.4 to 5.14: the document that ``nv config patch`` takes and ``nv config show`` prints (NVUE).

It is rendered as JSON, which is also YAML: ``[{"set": TREE}]``. TREE is the body of a PATCH on the REST API's root.
Ranges (``swp1-4``, ``24-31``) are read, but never written: the REST API has each key separately.

Sources: Cumulus Linux 5.14 user guide, "Quality of Service" (every command and default used here), "RDMA over Converged
Ethernet" (what ``qos roce`` sets), "Equal Cost Multipath" (hash fields), "NVUE API"; NVUE reference, "QoS" (ranges);
key names and types as in a filled configuration that the API of 5.5.1 returned.

A switch priority (SP) is the packet's class inside the switch and the priority by which PFC pauses. NVUE has
no other class, so a policy is rendered only where traffic class and priority of a class are one number. NVUE's
"traffic-class" is what this project calls a queue.

Explicit settings are used instead of ``qos roce mode``. That mode would set, for the whole switch: trust of PCP and
DSCP with eight DSCPs per priority, SP 3 to queue 3, SP 6 to queue 6 and all others to queue 0; queue 6 strict, 3 and 0
with 50% each; ECN on queues 0 and 3 with 150,000 and 1,500,000 bytes at 100%; an LLDP TLV for UDP 4791; in the lossless
modes, also PFC on SP 3 and a lossless pool. It has no second class and no thresholds by port, and it marks all other
traffic too. Its settings are understood when they are read (modes lossless, lossless-single-ipool, lossy).

Cumulus computes the headroom of a lossless port from ``cable-length`` (10 m by default), its speed and MTU. A profile
with sizes of its own (``port-buffer``, ``xoff-threshold``, ``xon-threshold``) is replaced: the guide leaves them to it.
All ports have the same alpha (``advance-buffer-config default-global ingress-lossless-buffer shared-alpha``). The
lossless pool has half of the memory, as in the guide's example and in ``qos roce``.

Watchdog: a storm is detected after ``robustness`` polling intervals and is over after one interval without a pause; its
packets are dropped. MTU: ``link mtu`` is the IP packet's; no header is added to it (ifupdown2's mtu, as on Linux).
It is 9216 where it is not set ("Switch Port Attributes", 5.9). A field of the hash that is not set is on ("Equal Cost
Multipath", "Custom Hashing", and ``nv show system forwarding``; only the NVUE reference of the commands says off).

From memory, without a source: a profile on a port replaces all of ``default-global`` there, null removes a key, a bond
without an MTU has 9216, and a priority that pauses is in the lossless pool where no pool names it.
"""

from __future__ import annotations

from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.counters.systems import CUMULUS_COUNTERS
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.model.qos import BufferShares, Switch
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.model.switch_system import SwitchSystem
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.running.cumulus import (
    HALF_PERCENT,
    PORT,
    SYSTEM,
    NvueReader,
    document,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.systems.parts.cumulus_change import (
    remediation,
    restoration,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.systems.parts.cumulus_render import render


def parse(text: str, name: str) -> Switch:
    """Parse the switch ``name`` from a running configuration. Raises FabricError where ``text`` is none.

    ``text``: the output of ``nv config show -o json`` or ``-o yaml``, or what the API returns, with or without
    defaults. ``ports`` are the front ports (swp…) and all others with QoS of their own. Defaults are returned for the
    classes to which some DSCP leads, of the MTU and the hash.
    """
    return NvueReader(name, document(text, name)).switch()


CUMULUS = SwitchSystem(
    name=SYSTEM,
    render=render,
    parse=parse,
    remediation=remediation,
    restoration=restoration,
    port=PORT,
    port_example="swp1, or swp1s0 for a part of one",
    not_held={"headroom": "Cumulus computes it from the port's cable-length, speed and MTU"},
    # Cumulus Linux runs only on NVIDIA's switches (NVIDIA's hardware compatibility list).
    asics=("spectrum", "spectrum2", "spectrum3", "spectrum4"),
    buffer_shares=BufferShares(HALF_PERCENT),  # as rendered: traffic-pool default-lossless memory-percent
    # Cumulus Linux 5.14 user guide, "Quality of Service", "switchd and QoS".
    interruptions={
        '"(pfc|traffic-pool|advance-buffer-config)"': "packets can be lost for a moment; no time is given",
    },
    counters=CUMULUS_COUNTERS,
)
