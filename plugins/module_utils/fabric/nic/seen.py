# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The result of reading one function of a NIC: its QoS, and the settings that the function and its driver support."""

from __future__ import annotations

from dataclasses import dataclass, field

from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.model.qos import CLASSES, DSCPS, Nic, Octet, Queue


@dataclass(frozen=True)
class Dcb:
    """A network interface's data center bridging, as a tool reports it. None: the driver does not have that part.

    ``dscp_priorities``: by DSCP, all priorities that it is mapped to (more than one where entries were added, not
    replaced). ``classes_at_most`` and ``lossless_at_most``: how many traffic classes it has, and how many priorities
    may pause. ``by_host``: false where firmware runs DCBX; ``willing``: true where a DCBX peer may set ETS.
    """

    tool: str  # "dcb" or "mlnx_qos"
    trust: str | None = None
    dscp_priorities: dict[int, tuple[int, ...]] | None = None
    priority_to_class: Octet | None = None
    queues: tuple[Queue | None, ...] | None = None
    classes_at_most: int = CLASSES
    pfc: tuple[int, ...] | None = None
    lossless_at_most: int = CLASSES
    delay: int | None = None  # of PFC; for mlx5 the length of the cable in metres
    priority_to_buffer: Octet | None = None
    buffer_bytes: Octet | None = None
    buffer_total_bytes: int | None = None
    by_host: bool | None = None
    willing: bool | None = None

    def dscp_to_priority(self) -> Octet:
        """Return the priority of each of the 64 DSCPs; None where a DSCP has no priority, or several."""
        table = self.dscp_priorities or {}
        return tuple(table[dscp][0] if len(table.get(dscp, ())) == 1 else None for dscp in range(DSCPS))


@dataclass(frozen=True)
class VirtualFunction:
    """A VF as the host of its physical function shows it.

    ``vlan``: the VLAN that the NIC adds to its packets, 0 for none; ``qos``: the priority in these tags. ``mode``: of
    the NIC's embedded switch ("legacy" or "switchdev"; None: unknown); ``representor``: the VF's interface in it.
    """

    index: int
    mac: str | None
    vlan: int = 0
    qos: int = 0
    mode: str | None = None
    representor: str | None = None


@dataclass(frozen=True)
class SeenNic:
    """One function of a NIC as it was read.

    ``cannot``: field of Nic -> why this function has no such setting. ``driver``: the kernel driver ("mlx5_core").
    ``address``: the PCI address; ``parent``: a VF's physical function, where it can be seen.
    ``ecn_path``: the directory of the vendor driver's ECN settings; ``cnp_path``: the file with the CNPs' DSCP.
    ``gids``: by index, the version of RoCE and the kind of address ("RoCE v2, IPv4"); None where they were not read.
    ``vfs``: of a physical function; ``vfs_unread``: why they cannot be read. ``uncovered``: active Ethernet ports of
    the same card whose RDMA devices were not named.
    """

    nic: Nic
    dcb: Dcb | None = None
    cannot: dict[str, str] = field(default_factory=dict)
    driver: str | None = None
    address: str | None = None
    parent: Nic | None = None
    speed_gbit_s: int | None = None
    ecn_path: str = ""
    cnp_path: str = ""
    mac: str | None = None
    gids: tuple[str | None, ...] | None = None
    vfs: tuple[VirtualFunction, ...] = ()
    vfs_unread: str = ""
    uncovered: tuple[str, ...] = ()
