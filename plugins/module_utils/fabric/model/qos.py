# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The QoS of a switch's ports and of a NIC, in vendor-neutral terms.

The same terms describe what is wanted (``plan``), what is rendered from it and what is read back, so that any two can
be compared. None always means "not set, or not visible there"; the path check decides what follows from that.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Optional  # Python 3.9 has no X | Y in expressions

from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.model.errors import FabricError

DSCPS = 64  # RFC 2474: 6 bits
CLASSES = 8  # IEEE 802.1Q: priorities; also the number of traffic classes, and of these systems' unicast queues
Octet = tuple[Optional[int], ...]  # one entry for each class (or DSCP)


@dataclass(frozen=True)
class Ecn:
    """WRED that marks packets instead of dropping them.

    It marks no packet below ``minimum_bytes`` of queue, all above ``maximum_bytes``, and between them with a
    probability that grows linearly to ``probability_percent``.
    """

    minimum_bytes: int
    maximum_bytes: int
    probability_percent: int


@dataclass(frozen=True)
class Queue:
    """One egress queue. ``bandwidth_percent`` is its share of what strict queues leave; None where ``strict``.

    ``unknown_ecn``: the thresholds as configured, of a queue as read that marks at a number of bytes that is not known;
    ``ecn`` is then None.
    """

    strict: bool
    bandwidth_percent: int | None = None
    ecn: Ecn | None = None
    unknown_ecn: str | None = None


@dataclass(frozen=True)
class Headroom:
    """The ingress buffer of one lossless priority.

    ``reserved_bytes`` belong to the priority alone. A pause is sent when the priority's use of the shared buffer
    exceeds 2^``alpha_exponent`` times the free part of the shared buffer. The pause ends when the priority's use of its
    whole buffer has fallen to ``xon_offset_bytes`` below that point, or to ``xon_bytes``, whichever is more
    (sonic-buffer-profile.yang, xon_offset). ``xoff_bytes`` holds what arrives between the sending of a pause and its
    effect.
    """

    reserved_bytes: int
    xoff_bytes: int
    xon_offset_bytes: int
    alpha_exponent: int
    xon_bytes: int = 0


@dataclass(frozen=True)
class BufferShares:
    """The parts into which a system divides the buffer, in percent; as read, None for those that are not shown.

    ``lossless_percent``: the ingress pool of lossless packets. It is a share of the whole buffer where headroom has a
    separate part (``headroom_percent``), else of what headroom leaves. ``egress_percent``: the egress pool of lossless
    packets, which are in both at once. ``alpha_exponent``: a priority pauses when it uses more than
    2^``alpha_exponent`` times the free part of the pool; None: the ASIC's. ``divided_percent``: the part of the ASIC's
    buffer that is so divided; ``divided_bytes``: the same in bytes, where the switch shows it. ``default_of``: the
    model whose default part was taken where the switch was not read or does not say it; "" where none was.
    """

    lossless_percent: int | None = None
    headroom_percent: int | None = None
    alpha_exponent: int | None = None
    egress_percent: int | None = None
    divided_percent: int = 100
    divided_bytes: int | None = None
    default_of: str = ""

    def with_default(self, default: BufferShares) -> BufferShares:
        """Return these parts, with those of ``default`` in place of the ones that are not known."""
        unknown = {
            name: getattr(default, name)
            for name in ("lossless_percent", "headroom_percent", "alpha_exponent", "egress_percent")
            if getattr(self, name) is None
        }
        is_known = not {"lossless_percent", "headroom_percent", "egress_percent"} & unknown.keys()
        return replace(
            self,
            **unknown,
            divided_percent=default.divided_percent,
            default_of="" if is_known else default.default_of,
        )


@dataclass(frozen=True)
class Buffers:
    """The buffers that a switch has, in bytes, as read.

    ``lossless_bytes``: the ingress pool of lossless packets, without headroom; None where the switch sizes it.
    ``headroom_pool_bytes``: what the headroom of all ports shares; 0 where each port has its own. ``lossy_bytes``: the
    other ingress pools. ``egress_bytes``: the largest egress pool. ``headroom``: the profiles that its vendor's
    software made, by speed in Gbit/s and longest cable in metres. ``ports_xoff_bytes``: the xoff of one priority of all
    ports, each by the profile of its speed and configured cable. ``shares``: the configured division of the ASIC's
    buffer, of a system that divides it in percent; the pools are then not known in bytes. ``refusal``: why these
    buffers hold no lossless class; None where they do. ``computed_xoff_bytes``: the xoff that the switch
    itself computed from speed, cable and MTU, by port and priority group, as far as it was read; None where it does not
    compute it.
    """

    lossless_bytes: int | None = None
    headroom_pool_bytes: int = 0
    lossy_bytes: int = 0
    egress_bytes: int = 0
    headroom: Mapping[tuple[int, int], Headroom] = field(default_factory=dict)
    ports_xoff_bytes: int = 0
    shares: BufferShares | None = None
    refusal: FabricError | None = None
    computed_xoff_bytes: Mapping[tuple[str, int], int] | None = None


@dataclass(frozen=True)
class Watchdog:
    """Settings that end a storm of pause frames.

    After ``detection_ms`` without a byte sent, ``action`` ("drop", "forward") is applied to the queue's packets, until
    ``restoration_ms`` have passed without a pause.
    """

    detection_ms: int
    restoration_ms: int
    action: str


@dataclass(frozen=True)
class PortQos:
    """One port, both directions. Ports that are alike share one object.

    ingress: ``dscp_to_class`` (64 entries; None: more than the DSCP decides, or nothing), ``rewrites_dscp`` (packets
    leave with another DSCP than they arrived with), ``class_to_priority`` (8: the priority of the pauses that the port
    sends for a traffic class), ``headroom`` (8, by priority).
    egress: ``class_to_queue`` (8), ``priority_to_queue`` (8: the queue that a received pause stops), ``queues`` (8).
    both: ``pfc``, the priorities that pause; ``watchdog``; ``ip_mtu_bytes``, the largest IP packet that passes;
    ``cable_m``, the longest cable that headroom is for, where the system computes headroom itself (else None).
    """

    dscp_to_class: Octet = (None,) * DSCPS
    rewrites_dscp: bool = False
    class_to_queue: Octet = (None,) * CLASSES
    class_to_priority: Octet = (None,) * CLASSES
    priority_to_queue: Octet = (None,) * CLASSES
    queues: tuple[Queue | None, ...] = (None,) * CLASSES
    pfc: tuple[int, ...] = ()  # ascending
    headroom: tuple[Headroom | None, ...] = (None,) * CLASSES
    watchdog: Watchdog | None = None
    ip_mtu_bytes: int | None = None
    cable_m: int | None = None


@dataclass(frozen=True)
class Override:
    """A statement that can change what packets get, in a way that no field of PortQos shows.

    ``statement``: as in the configuration. ``effect``: what it can change, a word of syntax/overrides.py. ``ports``:
    the ports or port channels that it concerns; empty for the whole switch. ``ip_mtu_bytes``: the largest IP packet
    that it lets pass, of a statement that only concerns larger ones.
    """

    statement: str
    effect: str
    ports: tuple[str, ...] = ()
    ip_mtu_bytes: int | None = None


@dataclass(frozen=True)
class Switch:
    """A switch's QoS, wanted or as read. ``ports`` are by the switch's own names, in the inventory's order.

    ``ecmp_fields``: the fields of ECMP_FIELDS that the hash over equal paths uses; None where they cannot be seen.
    ``queue_buffer_bytes``: the bytes that one queue can fill, for systems whose thresholds are in percent of it
    (junos); None for all others. ``own_headroom``: each port has its own headroom, because no pool holds it; of a
    planned switch. ``shares``: the division that a planned switch must have, of a system that divides its buffer in
    percent and where it is not rendered (junos). ``buffers``: those of a switch as read; None where they are not shown.

    ``least_xoff_bytes``: the headroom that a planned switch must at least compute itself, by port.

    ``speeds_gbit_s``: of each port; of a switch as read, where a speed is configured. Only read, never wanted or
    compared: ``overrides``; ``lags``: the members of each port channel; ``lag_fields``: those of ECMP_FIELDS by which a
    port channel spreads packets over its members, where the system has a hash of its own for it.
    """

    name: str
    system: str  # a name in switch/registry.py
    ports: dict[str, PortQos] = field(default_factory=dict)
    ecmp_fields: tuple[str, ...] | None = None  # sorted
    queue_buffer_bytes: int | None = None
    own_headroom: bool = field(default=False, compare=False)
    shares: BufferShares | None = None
    overrides: tuple[Override, ...] = field(default=(), compare=False)
    speeds_gbit_s: Mapping[str, float] = field(default_factory=dict, compare=False)
    lags: Mapping[str, tuple[str, ...]] = field(default_factory=dict, compare=False)
    lag_fields: Mapping[str, tuple[str, ...]] = field(default_factory=dict, compare=False)
    buffers: Buffers | None = field(default=None, compare=False)
    least_xoff_bytes: Mapping[str, int] = field(default_factory=dict, compare=False)

    def distinct_ports(self) -> list[PortQos]:
        """Return each object of ``ports`` once: most ports of a switch are alike."""
        return list({id(qos): qos for qos in self.ports.values()}.values())


ECMP_FIELDS = ("destination_ip", "destination_port", "protocol", "source_ip", "source_port")


@dataclass(frozen=True)
class Nic:
    """The QoS of one function of a NIC, wanted or as read on its host or in its guest.

    ``name`` is the RDMA device ("mlx5_0"), ``interface`` the network interface ("ens1f0np0"). ``trust``: "dscp" or
    "pcp". ``notification`` and ``reaction``: the priorities on which it sends CNPs for marked packets, and on which it
    slows down for CNPs. ``cm_tos``: the ToS byte that RDMA-CM gives new connections; ``forced_tos``: the ToS byte that
    the device gives all connections (its "traffic class"), whatever the application requests; None: the application's.
    ``may_mark``: whether the DSCP that this function sets decides its packets' priority; None where that is unknown.
    ``dcbx_by_host``: whether the host alone sets the DCB part (false: firmware or a peer may, by DCBX).
    ``priority_to_buffer`` and ``buffer_bytes``: the ingress buffers, which hold the headroom of lossless priorities;
    ``cable_m``: the length from which the driver computes when to pause.
    """

    name: str
    interface: str
    is_vf: bool = False
    trust: str | None = None
    dscp_to_priority: Octet = (None,) * DSCPS
    priority_to_class: Octet = (None,) * CLASSES
    queues: tuple[Queue | None, ...] = (None,) * CLASSES  # by traffic class; no ECN: a NIC marks nothing
    pfc: tuple[int, ...] = ()
    notification: tuple[int, ...] | None = None
    reaction: tuple[int, ...] | None = None
    cnp_dscp: int | None = None
    cm_tos: int | None = None
    forced_tos: int | None = None
    ip_mtu_bytes: int | None = None
    may_mark: bool | None = None
    dcbx_by_host: bool | None = None
    priority_to_buffer: Octet = (None,) * CLASSES
    buffer_bytes: Octet = (None,) * CLASSES  # by buffer
    cable_m: int | None = None


@dataclass(frozen=True)
class Application:
    """An application's request to the fabric: ``tos`` is the whole byte (NCCL_IB_TC), DSCP and ECN.

    ``environment``: the variables with which it is started, as far as they were declared; None where none were.
    """

    name: str
    tos: int
    gid_index: int | None = None
    queue_pairs: int | None = None  # per connection; each has its own UDP source port, by which ECMP spreads
    environment: tuple[tuple[str, str], ...] | None = None


def dscp_of(tos: int) -> int:
    """Return the DSCP of a ToS byte: its upper 6 bits (RFC 2474)."""
    return tos >> 2


def ecn_of(tos: int) -> int:
    """Return the ECN field of a ToS byte: 0 not-ECT, 1 ECT(1), 2 ECT(0), 3 CE (RFC 3168)."""
    return tos & 3
