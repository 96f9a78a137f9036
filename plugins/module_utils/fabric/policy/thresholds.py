# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Compute bytes from ASIC, speed, cable and MTU: a lossless priority's headroom, whether it fits, and ECN's thresholds.

Headroom (xoff) holds the packets that still arrive after a pause was sent.

- Its minimum follows from physics and the standard. It is the sum (``floor_bytes``) of a frame that was being sent when
  the pause was due, a frame that the peer had begun when the pause arrived, the bytes on the cable in both directions,
  and the time within which the peer must obey (IEEE 802.1Q, Annex N, formerly 802.1Qbb, Annex O; quanta: IEEE 802.3,
  31B.3.7). Less headroom loses packets, so it is refused, whatever its source. More than CEILING_FACTOR times the
  minimum must be a wrong unit.
- NVIDIA's headroom is from NVIDIA's formula, for the exact length of the cable (sonic-swss,
  cfgmgr/buffer_headroom_mellanox.lua).
- Other headroom is from the ASIC's profile (``asic_table``). Between the cables of two rows it is interpolated
  linearly, in whole cells, because only the bytes on the cable depend on its length, in proportion. Below the shortest
  cable it is that of the shortest. Profiles are made for PROFILE_IP_MTU_BYTES; for longer packets, MTU_FACTOR times the
  difference is added.

The headroom of all ports together must fit into the chip, beside its pools (``free_bytes``).

ECN must mark before PFC pauses, or PFC slows senders down (Zhu et al., "Congestion Control for Large-Scale
RDMA Deployments", SIGCOMM 2015, section 4). A port pauses a priority that uses more than alpha times the free part of
the ingress pool. In the worst case, the queues of all ports have the same length, and the packets from one port are
spread evenly over the queues of all n ports. Then, with c classes on n ports and all queues at q bytes, a port uses
n q bytes and P - c n q bytes of the pool are free, so that no port pauses below

    q = alpha P / (n (1 + alpha c))                                    (``pfc_queue_bytes``)

This is the paper's t_ECN < beta (B - 8 n t_flight) / (8 n (beta + 1)), with alpha = beta / 8, c = 8, and P the part of
the buffer that headroom leaves. Here, P is the ingress pool of lossless packets, whose use makes PFC pause; it is less
than half of the chip on Spectrum. Where ports differ, the smallest alpha is used for all.

If marking only begins just below q, almost no packets are marked at q. At least MARKED_PERCENT of packets must be
marked at q: the highest probability of the HPCC artifact's DCQCN (Li et al., "HPCC: High Precision Congestion Control",
SIGCOMM 2019, PMAX_MAP). A receiver sends at most one CNP per flow in 50 microseconds (DCQCN, section 3.1). In that
time, a flow with a 32nd of 400 Gbit/s sends 18 packets of 4096 bytes, of which at least one is marked with a
probability of 98%.

The reference is Cumulus Linux's `nv set qos roce` (its user guide, "RDMA over Converged Ethernet"): marking begins at
REFERENCE_MINIMUM_BYTES, ends at REFERENCE_RATIO times that, and all packets above are marked. Cumulus Linux has one
number for all speeds. Here it is the number for REFERENCE_GBIT_S, and other speeds are in proportion, because the queue
that keeps a link busy is a share of bandwidth times round-trip time (Alizadeh et al., "Data Center TCP", SIGCOMM 2010,
section 3.4). Where the reference marks too late, marking begins at q / 2 at the latest, and ends where q gets
MARKED_PERCENT: the lower threshold keeps links busy, the upper one only sets the slope. Marking begins at one RoCE
packet at the earliest.

A queue of less than bandwidth times round-trip time / 7 cannot keep a link busy (same section, inequality 13, for TCP;
the share for DCQCN is not published). ``busy_link_bytes`` is that for ROUND_TRIP_S; thresholds below it are named.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction

from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.model.errors import FabricError
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.model.qos import BufferShares, Ecn, Headroom
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.policy.asic_table import Asic
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.policy.asics import ASICS_VARIABLE

REFERENCE_GBIT_S = 100
REFERENCE_MINIMUM_BYTES = 150_000
REFERENCE_RATIO = 10
REFERENCE_PROBABILITY_PERCENT = 100
MARKED_PERCENT = 20
ECN_STEP_BYTES = 1_000  # so that systems that count in kilobytes hold the same number
ROUND_TRIP_S = Fraction(8, 10**6)  # an assumption: three switches and short cables, without queues
BUSY_LINK_DIVISOR = 7

FRAME_OVERHEAD_BYTES = 14 + 4 + 4  # Ethernet's header, a VLAN tag, the checksum: IEEE 802.3 and 802.1Q
PROFILE_IP_MTU_BYTES = 9100  # SONiC's default MTU of a port
MTU_FACTOR = Fraction(272, 100)  # of calculate_xoff in Linux, drivers/net/ethernet/mellanox/mlx5/core/en/port_buffer.c
# Vendors' rows are 1.1 to 9.9 times the minimum; Tomahawk 6's row for 800 Gbit/s and a cable of 1 m is 10.4 times it.
CEILING_FACTOR = 12
# The maximum ratio of all ports' headroom to the headroom pool: SONiC's example of over_subscribe_ratio
# (sonic-buildimage, src/sonic-yang-models/doc/Configuration.md, DEFAULT_LOSSLESS_BUFFER_PARAMETER).
OVERSUBSCRIPTION = 2

# From buffer_headroom_mellanox.lua: the speed of light in a cable, the quanta of 512 bits within which a peer must obey
# a pause (IEEE 802.3, 31B.3.7), the bytes in MAC and PHY (asic_table.j2), and the size of the lossless packets that
# SONiC expects. The file has no quanta for 1600 Gbit/s; they are not less than at 800 Gbit/s.
CABLE_M_S = 198_000_000
QUANTA = {
    1: 2,
    10: 67,
    25: 80,
    40: 118,
    50: 147,
    100: 394,
    200: 453,
    400: 905,
    800: 905,
}
QUANTUM_BYTES = 512 // 8
MAC_PHY_BYTES = Fraction(8 * 1024, 10)
LOSSLESS_MTU_BYTES = 1024
LEAST_PACKET_BYTES = 64
# The share that the file gives the bytes of small packets, where 50% of the packets are small: a small packet by the
# mean one. 50: small_packet_percentage of files/build_templates/buffers_config.j2 (sonic-buildimage 3bf26956f1,
# 2024-12-02).
SMALL_BYTES_SHARE = Fraction(2 * LEAST_PACKET_BYTES, LEAST_PACKET_BYTES + LOSSLESS_MTU_BYTES)
SMALL_PACKET_BYTES = 2 * 1024  # headroom_compensation (sonic-swss b20a59691, 2026-07-28)


@dataclass(frozen=True)
class HeadroomSum:
    """The headroom of all lossless priorities on all ports: their own bytes, and the bytes that arrive after pauses."""

    reserved_bytes: int = 0
    xoff_bytes: int = 0
    label: str = ""  # "2 lossless classes on 32 ports"

    @property
    def bytes(self) -> int:
        return self.reserved_bytes + self.xoff_bytes


def frame_bytes(ip_mtu_bytes: int) -> int:
    """Return the bytes of the frame around the largest IP packet."""
    return ip_mtu_bytes + FRAME_OVERHEAD_BYTES


def response_bytes(speed_gbit_s: int) -> int:
    """Return the bytes that arrive in the time within which a peer must obey a pause."""
    reference_speed = max((speed for speed in QUANTA if speed <= speed_gbit_s), default=min(QUANTA))
    return QUANTA[reference_speed] * QUANTUM_BYTES


def on_cable_bytes(speed_gbit_s: int, cable_m: int) -> int:
    """Return the bytes on a cable in both directions, rounded up."""
    return -(-(2 * cable_m * speed_gbit_s * 10**9) // (8 * CABLE_M_S))


def floor_bytes(speed_gbit_s: int, cable_m: int, ip_mtu_bytes: int) -> int:
    """Return the least headroom that loses nothing: two frames, the cable in both directions, the peer's response."""
    return 2 * frame_bytes(ip_mtu_bytes) + on_cable_bytes(speed_gbit_s, cable_m) + response_bytes(speed_gbit_s)


def spectrum_xoff_bytes(asic: Asic, speed_gbit_s: int, cable_m: int, ip_mtu_bytes: int) -> int:
    """Return NVIDIA's xoff for the image's traffic, in whole KiB.

    The formula is lossless MTU + occupancy * (MTU + cable + MAC and PHY + quanta + tile). Occupancy is the number of
    bytes in cells that one byte takes: of the worst packets for the bytes of small packets, 1 for the others. Without a
    headroom pool, SMALL_PACKET_BYTES are added, unless that is more than small packets alone would need.
    """
    cell = asic.cell_bytes
    # The worst packet is the smallest, alone in a cell, or, where cells are small, one byte longer than a cell.
    occupancy = Fraction(cell, LEAST_PACKET_BYTES) if cell > 2 * LEAST_PACKET_BYTES else Fraction(2 * cell, 1 + cell)
    worst = -(-occupancy // 1)
    tile_bytes, accounting_bytes = asic.formula.value if asic.formula else (0, 0)
    on_cable = Fraction(2 * cable_m * speed_gbit_s * 10**9, 8 * CABLE_M_S)
    in_flight = ip_mtu_bytes + on_cable + MAC_PHY_BYTES + response_bytes(speed_gbit_s) + tile_bytes * speed_gbit_s
    xoff = _whole_kib(LOSSLESS_MTU_BYTES + in_flight * (1 + SMALL_BYTES_SHARE * (worst - 1))) + accounting_bytes
    if not asic.headroom_pool_bytes and xoff + SMALL_PACKET_BYTES < _whole_kib(LOSSLESS_MTU_BYTES + in_flight * worst):
        xoff += SMALL_PACKET_BYTES
    return xoff


def computed_cable_m(asic: Asic, speed_gbit_s: int, cable_m: int, ip_mtu_bytes: int) -> int:
    """Return the length to give to an image that computes headroom: one for which its formula reaches the floor."""
    floor = floor_bytes(speed_gbit_s, cable_m, ip_mtu_bytes)
    while asic.formula is not None and spectrum_xoff_bytes(asic, speed_gbit_s, cable_m, ip_mtu_bytes) < floor:
        cable_m += 1
    return cable_m


def _whole_kib(number: Fraction | int) -> int:
    return int(-(-number // 1024)) * 1024


def headroom_of(
    asic: Asic,
    speed_gbit_s: int,
    cable_m: int,
    ip_mtu_bytes: int,
    own_xoff: Mapping[tuple[int, int], int],
    subject: str,
) -> Headroom:
    """Return the headroom of one lossless priority of a port.

    ``own_xoff``: the user's xoff in bytes by (speed, longest cable). Where it covers the port's speed and cable, its
    number replaces the profile's xoff unchanged. Raises FabricError for ``subject`` where there is no number for the
    port, or where the number is not possible.
    """
    cables = sorted(cable for speed, cable in asic.headroom if speed == speed_gbit_s)
    if not cables:
        speeds = sorted({speed for speed, _cable in asic.headroom})
        raise FabricError(
            f"{asic.title} has no headroom profile for {speed_gbit_s} Gbit/s"
            + (f", only for {', '.join(map(str, speeds))}" if speeds else ""),
            f"add the ASIC's profile for this speed, with its source, to {ASICS_VARIABLE}",
            subject=subject,
        )
    own_cable = min((cable for speed, cable in own_xoff if speed == speed_gbit_s and cable >= cable_m), default=None)
    if own_cable is None and cable_m > cables[-1]:
        raise FabricError(
            f"a cable of {cable_m} m is longer than {asic.title}'s profiles for {speed_gbit_s} Gbit/s, which end at "
            f"{cables[-1]} m",
            f"give headroom_bytes for {speed_gbit_s} Gbit/s and {cable_m} m",
            subject=subject,
        )
    row = asic.headroom[speed_gbit_s, min((cable for cable in cables if cable >= cable_m), default=cables[-1])]
    if own_cable is not None:
        xoff, whose, mtu = own_xoff[speed_gbit_s, own_cable], "headroom_bytes", ip_mtu_bytes
    elif asic.formula is not None:
        mtu = max(ip_mtu_bytes, PROFILE_IP_MTU_BYTES)
        xoff = spectrum_xoff_bytes(asic, speed_gbit_s, cable_m, mtu)
        xoff = max(xoff, _whole_kib(floor_bytes(speed_gbit_s, cable_m, mtu)))
        whose = f"the headroom of {asic.title}'s formula"
    else:
        mtu = max(ip_mtu_bytes, PROFILE_IP_MTU_BYTES)
        xoff = _interpolated(asic, speed_gbit_s, cables, cable_m, mtu)
        whose = f"the headroom of {asic.title}'s profile"
    _check_xoff(xoff, whose, speed_gbit_s, cable_m if own_cable is None else own_cable, mtu, subject)
    return replace(row, xoff_bytes=xoff)


def _interpolated(asic: Asic, speed_gbit_s: int, cables: list[int], cable_m: int, ip_mtu_bytes: int) -> int:
    """Return the profile's xoff, in whole cells, for a cable that is not longer than the longest of ``cables``."""
    longer = next(cable for cable in cables if cable >= cable_m)
    shorter = max((cable for cable in cables if cable <= cable_m), default=longer)
    row = asic.headroom[speed_gbit_s, shorter].xoff_bytes
    added_bytes = MTU_FACTOR * (ip_mtu_bytes - PROFILE_IP_MTU_BYTES)
    if longer > shorter:
        step = asic.headroom[speed_gbit_s, longer].xoff_bytes - row
        added_bytes += step * Fraction(cable_m - shorter, longer - shorter)
    return row + int(-(-added_bytes // asic.cell_bytes) * asic.cell_bytes)


def _check_xoff(xoff: int, whose: str, speed_gbit_s: int, cable_m: int, ip_mtu_bytes: int, subject: str) -> None:
    minimum = floor_bytes(speed_gbit_s, cable_m, ip_mtu_bytes)
    headroom = f"{whose} of {xoff} bytes for {speed_gbit_s} Gbit/s, {cable_m} m and IP packets of {ip_mtu_bytes} bytes"
    parts = (
        f"two frames of {frame_bytes(ip_mtu_bytes)}, {on_cable_bytes(speed_gbit_s, cable_m)} on the cable there and "
        f"back, {response_bytes(speed_gbit_s)} until the peer must obey"
    )
    if xoff < minimum:
        raise FabricError(
            f"{headroom} is less than the {minimum} that may arrive after a pause was sent: {parts}",
            f"give {minimum} or more, in bytes, for this speed and cable",
            subject=subject,
        )
    if xoff > CEILING_FACTOR * minimum:
        raise FabricError(
            f"{headroom} is more than {CEILING_FACTOR} times the {minimum} that may arrive after a pause was sent: "
            f"{parts}",
            "check that it is in bytes, and for this speed and cable",
            subject=subject,
        )


def free_bytes(asic: Asic, need: HeadroomSum, shares: BufferShares | None, subject: str) -> Fraction:
    """Return the bytes for packets, beside the headroom of all ports, in the pool whose use makes PFC pause.

    ``shares``: the parts into which the switch's system divides the buffer. None: the pools are those of the ASIC's
    profile, or, where the switch sizes them itself, half of what headroom leaves, if that is less. Raises FabricError
    for ``subject``, with the sum, where the headroom does not fit.
    """
    remedy = (
        f"make a class lossy, use shorter cables or fewer ports, or describe the switch's pools in {ASICS_VARIABLE}"
    )
    headroom = f"the headroom of {need.label}, {need.bytes} bytes"
    buffer = asic.buffer_bytes
    if shares is not None and shares.headroom_percent is not None:
        divided = shares.divided_bytes or buffer * shares.divided_percent // 100
        part = Fraction(divided * shares.headroom_percent, 100)
        if need.bytes > part:
            raise FabricError(
                f"{headroom}, does not fit into the {shares.headroom_percent}% that the system keeps for headroom of "
                f"the {divided} that ports share of {asic.title}'s buffer: {int(part)}",
                "give headroom a larger part of the switch's buffer while no traffic has to pass (the plan reads it), "
                f"{remedy}",
                subject=subject,
            )
        return Fraction(divided * (shares.lossless_percent or 0), 100)
    if need.bytes >= buffer and (shares is not None or asic.sizes_pools):
        raise FabricError(f"{headroom}, does not fit into {asic.title}'s buffer of {buffer}", remedy, subject=subject)
    if shares is not None:
        return Fraction((buffer - need.bytes) * (shares.lossless_percent or 0), 100)
    if asic.sizes_pools:
        return min(Fraction(asic.pool_bytes), Fraction(buffer - need.bytes, 2))
    if not asic.headroom_pool_bytes:
        pools = asic.pool_bytes + asic.lossy_pool_bytes
        if need.bytes + pools > buffer:
            raise FabricError(
                f"{headroom}, and the pools, {asic.pool_bytes} for lossless and {asic.lossy_pool_bytes} for lossy "
                f"packets, are {need.bytes + pools} together, but {asic.title} has {buffer}",
                remedy,
                subject=subject,
            )
        return Fraction(asic.pool_bytes)
    if need.xoff_bytes > max(OVERSUBSCRIPTION * asic.headroom_pool_bytes, asic.vendor_headroom_bytes):
        vendor_part = f", and than the {asic.vendor_headroom_bytes} of its vendor's profiles for all ports"
        raise FabricError(
            f"the headroom of {need.label} is {need.xoff_bytes} bytes, more than {OVERSUBSCRIPTION} times the pool of "
            f"{asic.headroom_pool_bytes} bytes that they share on {asic.title}"
            + (vendor_part if asic.vendor_headroom_bytes else ""),
            remedy,
            subject=subject,
        )
    if need.reserved_bytes >= asic.shared_bytes:
        raise FabricError(
            f"the {need.reserved_bytes} bytes reserved for {need.label} leave nothing of {asic.title}'s pool of "
            f"{asic.shared_bytes}",
            remedy,
            subject=subject,
        )
    return Fraction(asic.shared_bytes - need.reserved_bytes)


def pfc_queue_bytes(free: Fraction, ports: int, classes: int, alpha_exponent: int) -> Fraction:
    """Return the longest queue up to which no port pauses, whatever the traffic.

    ``free``: the pool whose use makes PFC pause; ``classes``: how many share it; alpha is 2^``alpha_exponent``.
    """
    alpha = Fraction(2) ** alpha_exponent
    return alpha * free / (ports * (1 + alpha * classes))


def marked_percent(ecn: Ecn, queue_bytes: Fraction) -> Fraction:
    """Return the share of packets that are marked at this queue length, in percent."""
    if queue_bytes <= ecn.minimum_bytes:
        return Fraction(0)
    if queue_bytes >= ecn.maximum_bytes:
        return Fraction(100 if queue_bytes > ecn.maximum_bytes else ecn.probability_percent)
    slope = Fraction(ecn.probability_percent, ecn.maximum_bytes - ecn.minimum_bytes)
    return slope * (queue_bytes - ecn.minimum_bytes)


def reference_ecn(speed_gbit_s: int, packet_bytes: int) -> Ecn:
    """Return the reference profile's marking for this speed; it begins at one packet at the earliest."""
    minimum = max(
        _floor_to_step(Fraction(REFERENCE_MINIMUM_BYTES * speed_gbit_s, REFERENCE_GBIT_S)), least_ecn(packet_bytes)
    )
    return Ecn(minimum, minimum * REFERENCE_RATIO, REFERENCE_PROBABILITY_PERCENT)


def bounded_ecn(ecn: Ecn, pfc_bytes: Fraction, packet_bytes: int, subject: str) -> Ecn:
    """Return the reference ``ecn``, lowered until it marks MARKED_PERCENT where PFC may begin to pause.

    Raises FabricError for ``subject`` where even a queue of one packet is too long for that.
    """
    if marked_percent(ecn, pfc_bytes) >= MARKED_PERCENT:
        return ecn
    minimum = max(min(ecn.minimum_bytes, _floor_to_step(pfc_bytes / 2)), least_ecn(packet_bytes))
    maximum = _floor_to_step(minimum + (pfc_bytes - minimum) * ecn.probability_percent / MARKED_PERCENT)
    if maximum <= minimum:
        raise FabricError(
            f"PFC may pause at a queue of {int(pfc_bytes)} bytes or more, and ECN cannot mark earlier: one packet has "
            f"{packet_bytes} bytes",
            "use a larger alpha, shorter cables, a smaller path_mtu_bytes, fewer ports or fewer classes",
            subject=subject,
        )
    return Ecn(minimum, maximum, ecn.probability_percent)


def busy_link_bytes(speed_gbit_s: int) -> int:
    """Return the queue below which marking can leave a link idle."""
    return int(speed_gbit_s * 10**9 * ROUND_TRIP_S / 8 / BUSY_LINK_DIVISOR)


def check_ecn(ecn: Ecn, pfc_bytes: Fraction, subject: str, name: str) -> None:
    """Raise FabricError for ``subject`` where the policy's own thresholds for class ``name`` mark too late."""
    marked = marked_percent(ecn, pfc_bytes)
    if marked < MARKED_PERCENT:
        raise FabricError(
            f"PFC could pause before class {name} marks: at a queue of {int(pfc_bytes)} bytes, where PFC may begin "
            f"to pause, its ECN of {ecn.minimum_bytes} to {ecn.maximum_bytes} bytes at {ecn.probability_percent}% "
            f"marks {float(marked):.2f}% of packets, but must mark {MARKED_PERCENT}%",
            "lower minimum_bytes and maximum_bytes, or omit ecn, which is then compiled",
            subject=subject,
        )


def least_ecn(packet_bytes: int) -> int:
    """Return the least queue at which marking makes sense: one packet, in whole ECN_STEP_BYTES."""
    return -(-packet_bytes // ECN_STEP_BYTES) * ECN_STEP_BYTES


def _floor_to_step(number: Fraction) -> int:
    return int(number // ECN_STEP_BYTES) * ECN_STEP_BYTES
