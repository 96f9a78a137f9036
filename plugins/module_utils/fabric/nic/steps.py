# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Writes that take a NIC from its current to its wanted settings, in an order that is safe while traffic runs.

PFC that must be off is turned off first, and PFC that must be on is turned on last, so that no priority is ever
lossless without its buffer, its queue and its marking.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.model.errors import FabricError
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.model.qos import CLASSES, Nic, Octet
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.nic import dcb, mlnx_qos
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.nic.plan import differences
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.nic.seen import SeenNic


class Tool(Protocol):
    """A tool that sets an interface's DCB: each function returns the commands that do so."""

    def map_dscps(self, interface: str, table: Mapping[int, int], /) -> list[list[str]]:
        """Trust DSCP, and map these DSCPs to these priorities."""

    def set_queues(self, interface: str, wanted: Nic, /) -> list[list[str]]:
        """Set the scheduler and the traffic classes of priorities."""

    def set_pfc(self, interface: str, priorities: tuple[int, ...], cable_m: int | None, /) -> list[list[str]]:
        """Enable PFC on exactly these priorities."""

    def set_delay(self, interface: str, priorities: tuple[int, ...], cable_m: int, /) -> list[list[str]]:
        """Set the length of the cable."""

    def set_buffers(self, interface: str, sizes: Octet, priority_to_buffer: Octet, /) -> list[list[str]]:
        """Set the buffers' sizes in bytes, and the buffer of each priority."""

    def unmap_dscps(self, interface: str, /) -> list[list[str]]:
        """Trust no DSCP."""

    def take_over(self, interface: str, /) -> list[list[str]]:
        """Give DCBX to the host instead of the firmware."""

    def hand_back(self, interface: str, /) -> list[list[str]]:
        """Give DCBX to the firmware."""


TOOLS: dict[str, Tool] = {"dcb": dcb, "mlnx_qos": mlnx_qos}


@dataclass(frozen=True)
class NicStep:
    """One write: a command, or ``text`` to the kernel's file ``path``; a step without either writes RDMA-CM's ToS."""

    setting: str  # a field of Nic
    argv: tuple[str, ...] = ()
    path: str = ""
    text: str = ""


def _tool(seen: SeenNic) -> Tool:
    """Return the tool that sets the DCB of ``seen``. Raises FabricError where there is none."""
    if seen.dcb is None:
        reason = seen.cannot.get("queues", "no tool shows it")
        raise FabricError(
            f"its DCB cannot be set: {reason}",
            "make 'dcb ets show' work on it, or leave it out",
            subject=f"{seen.nic.name} ({seen.nic.interface})",
        )
    return TOOLS[seen.dcb.tool]


def steps(seen: SeenNic, wanted: Nic) -> list[NicStep]:
    """Return the writes, in order; empty where ``seen`` is as ``wanted``.

    Raises FabricError where DCB must be set and there is no DCB. A plan never requests that, but a backup may.
    """
    differing = set(differences(wanted, seen))
    interface = wanted.interface
    staying = tuple(priority for priority in seen.nic.pfc if priority in wanted.pfc)
    written: list[NicStep] = []

    def commands(setting: str, argvs: list[list[str]]) -> None:
        written.extend(NicStep(setting, tuple(argv)) for argv in argvs)

    if "pfc" in differing and staying != seen.nic.pfc:
        commands("pfc", _tool(seen).set_pfc(interface, staying, seen.nic.cable_m))
    if "dcbx_by_host" in differing and seen.dcb and seen.dcb.by_host is False:
        commands("dcbx_by_host", _tool(seen).take_over(interface))
    if "ip_mtu_bytes" in differing:
        written.append(NicStep("ip_mtu_bytes", path=f"/sys/class/net/{interface}/mtu", text=str(wanted.ip_mtu_bytes)))
    if "cable_m" in differing and wanted.cable_m is not None:
        commands("cable_m", _tool(seen).set_delay(interface, staying, wanted.cable_m))
    if differing & {"buffer_bytes", "priority_to_buffer"}:
        commands("buffer_bytes", _tool(seen).set_buffers(interface, wanted.buffer_bytes, wanted.priority_to_buffer))
    willing = bool(seen.dcb and seen.dcb.willing) and "dcbx_by_host" in differing
    if differing & {"queues", "priority_to_class"} or willing:
        commands("queues", _tool(seen).set_queues(interface, wanted))
    if "trust" in differing and wanted.trust == "pcp":
        commands("trust", _tool(seen).unmap_dscps(interface))
    elif differing & {"dscp_to_priority", "trust"}:
        commands(
            "dscp_to_priority", _tool(seen).map_dscps(interface, _dscps_to_map(seen, wanted, "trust" in differing))
        )
    written += _points(seen, wanted, differing)
    if "cnp_dscp" in differing:
        written.append(NicStep("cnp_dscp", path=seen.cnp_path, text=str(wanted.cnp_dscp)))
    if "cm_tos" in differing:
        written.append(NicStep("cm_tos", text=str(wanted.cm_tos)))
    if "forced_tos" in differing:
        path = f"/sys/class/infiniband/{wanted.name}/tc/1/traffic_class"
        # -1 means that none is forced (mlx5_ib's traffic_class_store treats every value below 0 so).
        written.append(
            NicStep("forced_tos", path=path, text=str(-1 if wanted.forced_tos is None else wanted.forced_tos))
        )
    if "pfc" in differing and staying != wanted.pfc:
        commands("pfc", _tool(seen).set_pfc(interface, wanted.pfc, wanted.cable_m or seen.nic.cable_m))
    if "dcbx_by_host" in differing and wanted.dcbx_by_host is False:
        # A restored NIC: the last step, because some drivers refuse it.
        commands("dcbx_by_host", _tool(seen).hand_back(interface))
    return written


def _dscps_to_map(seen: SeenNic, wanted: Nic, every: bool) -> dict[int, int]:
    """Return the priority of each DSCP to be mapped: of all if ``every``, else of those that differ."""
    return {
        dscp: priority
        for dscp, priority in enumerate(wanted.dscp_to_priority)
        if priority is not None and (every or seen.nic.dscp_to_priority[dscp] != priority)
    }


def _points(seen: SeenNic, wanted: Nic, differing: set[str]) -> list[NicStep]:
    """Return the writes that turn the notification and reaction points of priorities on or off."""
    written = []
    for setting, point in (("notification", "roce_np"), ("reaction", "roce_rp")):
        if setting not in differing:
            continue
        goal, now = getattr(wanted, setting), getattr(seen.nic, setting) or ()
        for priority in range(CLASSES):
            if (priority in goal) != (priority in now):
                path = f"{seen.ecn_path}/{point}/enable/{priority}"
                written.append(NicStep(setting, path=path, text=str(int(priority in goal))))
    return written
