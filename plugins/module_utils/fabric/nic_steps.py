# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""From what a NIC has to what it is to have: the writes, in an order that is safe while traffic runs.

PFC goes off first where it goes, and on last where it comes: no priority is ever lossless without its buffer, its queue
and its marking.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ansible_collections.sailloft.fleet.plugins.module_utils.fabric import dcb, mlnx_qos
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.nic_plan import differences
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.nic_seen import Seen
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.state import CLASSES, Nic

TOOLS: dict[str, Any] = {"dcb": dcb, "mlnx_qos": mlnx_qos}


@dataclass(frozen=True)
class Step:
    """One write: a command, or ``text`` to the kernel's file ``path``; RDMA-CM's ToS where there is neither."""

    setting: str  # a field of Nic
    argv: tuple[str, ...] = ()
    path: str = ""
    text: str = ""


def steps(seen: Seen, wanted: Nic) -> list[Step]:
    """What to write, in order; empty where ``seen`` is as ``wanted``."""
    differing = set(differences(wanted, seen))
    interface = wanted.interface
    tool = TOOLS[seen.dcb.tool] if seen.dcb else None
    staying = tuple(priority for priority in seen.nic.pfc if priority in wanted.pfc)
    written: list[Step] = []

    def commands(setting: str, argvs: list[list[str]]) -> None:
        written.extend(Step(setting, tuple(argv)) for argv in argvs)

    if "pfc" in differing and staying != seen.nic.pfc:
        commands("pfc", tool.set_pfc(interface, staying, seen.nic.cable_m))
    if "dcbx_by_host" in differing and seen.dcb and seen.dcb.by_host is False:
        commands("dcbx_by_host", tool.take_over(interface))
    if "ip_mtu_bytes" in differing:
        written.append(Step("ip_mtu_bytes", path=f"/sys/class/net/{interface}/mtu", text=str(wanted.ip_mtu_bytes)))
    if "cable_m" in differing:
        commands("cable_m", tool.set_delay(interface, staying, wanted.cable_m))
    if differing & {"buffer_bytes", "priority_to_buffer"}:
        commands("buffer_bytes", tool.set_buffers(interface, wanted.buffer_bytes, wanted.priority_to_buffer))
    willing = bool(seen.dcb and seen.dcb.willing) and "dcbx_by_host" in differing
    if differing & {"queues", "priority_to_class"} or willing:
        commands("queues", tool.set_queues(interface, wanted))
    if differing & {"dscp_to_priority", "trust"}:
        table = {
            dscp: priority
            for dscp, priority in enumerate(wanted.dscp_to_priority)
            if seen.nic.dscp_to_priority[dscp] != priority or "trust" in differing
        }
        commands("dscp_to_priority", tool.map_dscps(interface, table))
    for setting, point in (("notification", "roce_np"), ("reaction", "roce_rp")):
        if setting in differing:
            wish, now = getattr(wanted, setting), getattr(seen.nic, setting) or ()
            for priority in range(CLASSES):
                if (priority in wish) != (priority in now):
                    path = f"{seen.ecn_path}/{point}/enable/{priority}"
                    written.append(Step(setting, path=path, text=str(int(priority in wish))))
    if "cnp_dscp" in differing:
        written.append(Step("cnp_dscp", path=seen.cnp_path, text=str(wanted.cnp_dscp)))
    if "cm_tos" in differing:
        written.append(Step("cm_tos", text=str(wanted.cm_tos)))
    if "forced_tos" in differing:
        path = f"/sys/class/infiniband/{wanted.name}/tc/1/traffic_class"
        # -1: none is forced (mlx5_ib's traffic_class_store takes what is below 0 for that).
        written.append(Step("forced_tos", path=path, text=str(-1 if wanted.forced_tos is None else wanted.forced_tos)))
    if "pfc" in differing and staying != wanted.pfc:
        commands("pfc", tool.set_pfc(interface, wanted.pfc, wanted.cable_m or seen.nic.cable_m))
    return written
