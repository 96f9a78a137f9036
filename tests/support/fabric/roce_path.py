# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A leaf-spine fabric with its RoCE NICs, and its parts by name."""

from __future__ import annotations

import json
from dataclasses import asdict, replace

from switches import port_qos

from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.model.links import End
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.model.qos import (
    Nic,
)

LEAVES, SPINES = ("leaf1", "leaf2"), ("spine1", "spine2")


# gpu1 - leaf1 - both spines - leaf2 - gpu2
LINKS = [
    (End("gpu1", "mlx5_0"), End("leaf1", "h1")),
    (End("gpu2", "mlx5_0"), End("leaf2", "h1")),
    *((End(leaf, f"u{at}"), End(spine, leaf)) for leaf in LEAVES for at, spine in enumerate(SPINES, 1)),
]


def nic(policy):
    """Return a NIC with the settings of the policy."""
    qos = port_qos(policy)
    priority = {each.traffic_class: each.priority for each in (*policy.classes, policy.cnp, policy.default)}
    class_of = {each.priority: each.traffic_class for each in (*policy.classes, policy.cnp, policy.default)}
    wanted = tuple(sorted(each.priority for each in policy.classes))
    return Nic(
        name="mlx5_0",
        interface="eth0",
        trust="dscp",
        dscp_to_priority=tuple(priority[each] for each in policy.dscp_to_class()),
        priority_to_class=tuple(class_of.get(each, policy.default.traffic_class) for each in range(8)),
        queues=tuple(queue and replace(queue, ecn=None) for queue in qos.queues),
        pfc=qos.pfc,
        notification=wanted,
        reaction=wanted,
        cnp_dscp=policy.cnp.dscp,
        cm_tos=policy.classes[0].tos,
        ip_mtu_bytes=policy.ip_mtu_bytes,
        may_mark=True,
        dcbx_by_host=True,
        priority_to_buffer=tuple(qos.pfc.index(each) + 1 if each in qos.pfc else 0 for each in range(8)),
        buffer_bytes=(262144, *(159744 if each < len(qos.pfc) else 0 for each in range(7))),
        cable_m=5,
    )


def reading(function, **changes):
    """Return what roce_nic_info returns for a NIC, with ``changes``."""
    card = {"speed_gbit_s": 400, "mac": None, "vfs": [], "vfs_unread": "", "uncovered": []}
    return json.loads(json.dumps({**asdict(function), "cannot": {}, "gids": None, **card, **changes}))


def at(values, place, value):
    """Return ``values`` with ``value`` at ``place``."""
    return (*values[:place], value, *values[place + 1 :])
