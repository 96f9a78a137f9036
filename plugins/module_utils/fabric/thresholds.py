# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""From ASIC, speed, cable and MTU to bytes: the headroom of a lossless priority, and where ECN begins to mark.

Formulas, with their sources:

- Headroom is the ASIC's profile (``asics``), for the next longer cable that it knows. Profiles are made for
  PROFILE_IP_MTU_BYTES; a longer packet adds MTU_FACTOR times what it is longer.
- The profile, or the user's own number, must lie in a band around two formulas that know no ASIC:
  SONiC's (sonic-swss, cfgmgr/buffer_headroom_mellanox.lua) and the Linux driver's of NVIDIA's NICs
  (drivers/net/ethernet/mellanox/mlx5/core/en/port_buffer.c). Vendors' own profiles differ from these by up to 3.9
  times, so the band is BAND_FACTOR times both ways: it finds bytes given as kilobytes, and cables of another fabric.
- ECN must mark before PFC pauses, or it is PFC that slows senders down (Zhu et al., "Congestion Control for Large-Scale
  RDMA Deployments", SIGCOMM 2015, section 4): t_ECN < beta (B - 8 n t_flight) / (8 n (beta + 1)), for 8 priorities that
  all pause on n ports. Here alpha is beta / 8, what one priority may take of what is free, and the 8 are the policy's
  classes: t_ECN < alpha (B - headroom) / (n (1 + alpha classes)). Where ports differ, all keep to the smallest alpha.
- Marking begins at REFERENCE_MINIMUM_BYTES for REFERENCE_GBIT_S, in proportion to the speed, ends at REFERENCE_RATIO
  times that, and marks all above: Cumulus Linux's `nv set qos roce` (its user guide, "RDMA over Converged Ethernet"),
  which has one number for all speeds. In proportion, since the queue that keeps a link busy is a share of bandwidth
  times round trip (Alizadeh et al., "Data Center TCP", SIGCOMM 2010, section 3.4). The bound above lowers it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from fractions import Fraction

from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.asics import ASICS_VARIABLE, Asic
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.error import FabricError
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.state import Ecn, Headroom

REFERENCE_GBIT_S = 100
REFERENCE_MINIMUM_BYTES = 150_000
REFERENCE_RATIO = 10
REFERENCE_PROBABILITY_PERCENT = 100
ECN_STEP_BYTES = 1_000  # so that systems that count kilobytes hold the same number

FRAME_OVERHEAD_BYTES = 14 + 4 + 4  # Ethernet's header, a VLAN tag, the checksum: IEEE 802.3 and 802.1Q
PROFILE_IP_MTU_BYTES = 9100  # SONiC's default of a port
MTU_FACTOR = Fraction(272, 100)  # of calculate_xoff in mlx5's port_buffer.c
BAND_FACTOR = 4

# buffer_headroom_mellanox.lua: the speed of light in a cable, IEEE 802.3 31B.3.7's quanta of 512 bits in which a peer
# must obey a pause, the bytes in MAC and PHY (asic_table.j2), and the lossless packets that SONiC expects.
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
MLX5_LEAST_GBIT_S = 40


def sonic_xoff_bytes(asic: Asic, speed_gbit_s: int, cable_m: int, frame_bytes: int) -> int:
    """SONiC's formula, with its default traffic (small packets only); whole KiB.

    lossless MTU + occupancy (MTU + 2 cable speed / (8 c) + MAC and PHY + quanta), where occupancy is how many bytes of
    cells a byte of the worst packets takes.
    """
    cell = asic.cell_bytes
    # The worst packet: the smallest, alone in a cell; or, where cells are small, one byte more than a cell holds.
    occupancy = Fraction(cell, LEAST_PACKET_BYTES) if cell > 2 * LEAST_PACKET_BYTES else Fraction(2 * cell, 1 + cell)
    known = max((speed for speed in QUANTA if speed <= speed_gbit_s), default=min(QUANTA))
    on_cable = Fraction(2 * cable_m * speed_gbit_s * 10**9, 8 * CABLE_M_S)
    in_flight = frame_bytes + on_cable + MAC_PHY_BYTES + QUANTA[known] * QUANTUM_BYTES
    return -(-(LOSSLESS_MTU_BYTES + in_flight * occupancy) // 1024) * 1024


def mlx5_xoff_bytes(speed_gbit_s: int, cable_m: int, frame_bytes: int) -> int:
    """The mlx5 driver's formula: (301 + 2.16 metres) Gbit/s + 2.72 MTU, for 40 Gbit/s at least."""
    speed = max(speed_gbit_s, MLX5_LEAST_GBIT_S)
    return int((301 + Fraction(216, 100) * cable_m) * speed + MTU_FACTOR * frame_bytes)


def band_bytes(asic: Asic, speed_gbit_s: int, cable_m: int, ip_mtu_bytes: int) -> tuple[int, int]:
    """The least and the most headroom (xoff) that is believed."""
    frame = ip_mtu_bytes + FRAME_OVERHEAD_BYTES
    found = (
        sonic_xoff_bytes(asic, speed_gbit_s, cable_m, frame),
        mlx5_xoff_bytes(speed_gbit_s, cable_m, frame),
    )
    return min(found) // BAND_FACTOR, max(found) * BAND_FACTOR


def headroom_of(
    asic: Asic,
    speed_gbit_s: int,
    cable_m: int,
    ip_mtu_bytes: int,
    own: Mapping[tuple[int, int], int],
    subject: str,
) -> Headroom:
    """The headroom of one lossless priority of a port.

    ``own``: the user's xoff in bytes by (speed, longest cable); where it has the port's speed and a cable as long, its
    number stands instead of the profile's xoff, as it is. Raises FabricError, in the name of ``subject``, where nobody
    has a number for the port, or where the number is not believed.
    """
    cables = sorted(cable for speed, cable in asic.headroom if speed == speed_gbit_s)
    if not cables:
        known = sorted({speed for speed, _rest in asic.headroom})
        raise FabricError(
            subject,
            f"{asic.title} has no headroom profile for {speed_gbit_s} Gbit/s"
            + (f", but for {', '.join(map(str, known))}" if known else ""),
            f"give the ASIC's profile for it, with its source, in {ASICS_VARIABLE}",
        )
    own_cable = min((cable for speed, cable in own if speed == speed_gbit_s and cable >= cable_m), default=None)
    row_cable = min((cable for cable in cables if cable >= cable_m), default=None)
    if own_cable is None and row_cable is None:
        raise FabricError(
            subject,
            f"a cable of {cable_m} m is longer than {asic.title}'s profiles for {speed_gbit_s} Gbit/s, which end at "
            f"{cables[-1]} m",
            f"give headroom_bytes for {speed_gbit_s} Gbit/s and {cable_m} m",
        )
    row = asic.headroom[speed_gbit_s, cables[-1] if row_cable is None else row_cable]
    if own_cable is not None:
        xoff, whose, longest, mtu = own[speed_gbit_s, own_cable], "headroom_bytes", own_cable, ip_mtu_bytes
    else:
        mtu = max(ip_mtu_bytes, PROFILE_IP_MTU_BYTES)
        more = MTU_FACTOR * (mtu - PROFILE_IP_MTU_BYTES)
        xoff = row.xoff_bytes + -(-more // asic.cell_bytes) * asic.cell_bytes
        whose, longest = f"the headroom of {asic.title}'s profile", row_cable or cable_m
    least, most = band_bytes(asic, speed_gbit_s, longest, mtu)
    if not least <= xoff <= most:
        frame = mtu + FRAME_OVERHEAD_BYTES
        sonic = sonic_xoff_bytes(asic, speed_gbit_s, longest, frame)
        mlx5 = mlx5_xoff_bytes(speed_gbit_s, longest, frame)
        raise FabricError(
            subject,
            f"{whose} of {xoff} bytes for {speed_gbit_s} Gbit/s, {longest} m and IP packets of {mtu} bytes is not "
            f"within {least} to {most} bytes: SONiC's formula gives {sonic}, the mlx5 driver's {mlx5}, and "
            f"{BAND_FACTOR} times off is the most that is believed",
            "give it in bytes, for this speed and cable",
        )
    return replace(row, xoff_bytes=xoff)


def headroom_sum_bytes(headrooms: Iterable[Headroom], lossless: int) -> int:
    """What that many lossless priorities take on ports with these headrooms, one of each port."""
    return lossless * sum(each.reserved_bytes + each.xoff_bytes for each in headrooms)


def ecn_bound_bytes(asic: Asic, headroom_bytes: int, ports: int, classes: int, alpha_exponent: int) -> Fraction:
    """Below what queue marking must begin so that it does before any port pauses.

    ``headroom_bytes``: of all ports; ``classes``: how many share the buffer; alpha is 2^``alpha_exponent``.
    """
    alpha = Fraction(2) ** alpha_exponent
    return alpha * (asic.buffer_bytes - headroom_bytes) / (ports * (1 + alpha * classes))


def reference_ecn(speed_gbit_s: int, ip_mtu_bytes: int) -> Ecn:
    """The reference profile's marking for that speed; from one packet on at the least."""
    scaled = REFERENCE_MINIMUM_BYTES * speed_gbit_s // REFERENCE_GBIT_S // ECN_STEP_BYTES * ECN_STEP_BYTES
    minimum = max(scaled, _least_bytes(ip_mtu_bytes))
    return Ecn(minimum, minimum * REFERENCE_RATIO, REFERENCE_PROBABILITY_PERCENT)


def bounded_ecn(ecn: Ecn, bound_bytes: Fraction, ip_mtu_bytes: int, subject: str) -> Ecn:
    """``ecn``, lowered as a whole so that it begins below the bound.

    Raises FabricError, in the name of ``subject``, where the bound leaves no room for one packet.
    """
    if ecn.minimum_bytes < bound_bytes:
        return ecn
    minimum = (_whole(bound_bytes) - 1) // ECN_STEP_BYTES * ECN_STEP_BYTES
    if minimum < _least_bytes(ip_mtu_bytes):
        raise FabricError(
            subject,
            f"to act before PFC, ECN would have to begin below {_whole(bound_bytes)} bytes of queue, and a packet "
            f"has {ip_mtu_bytes + FRAME_OVERHEAD_BYTES}",
            "take a larger alpha, shorter cables, a smaller MTU, fewer ports or fewer classes",
        )
    return Ecn(minimum, minimum * REFERENCE_RATIO, ecn.probability_percent)


def check_ecn(ecn: Ecn, bound_bytes: Fraction, subject: str, name: str) -> None:
    """Raise FabricError, in the name of ``subject``, where the policy's own numbers of class ``name`` mark too late."""
    if ecn.minimum_bytes >= bound_bytes:
        raise FabricError(
            subject,
            f"PFC could pause before class {name} marks: its ECN begins at {ecn.minimum_bytes} bytes, and must begin "
            f"below {_whole(bound_bytes)} here",
            "lower minimum_bytes, or leave ecn out: then it is compiled",
        )


def _least_bytes(ip_mtu_bytes: int) -> int:
    return -(-(ip_mtu_bytes + FRAME_OVERHEAD_BYTES) // ECN_STEP_BYTES) * ECN_STEP_BYTES


def _whole(bound_bytes: Fraction) -> int:
    """The least whole number that is not below it: whole numbers are below the one if they are below the other."""
    return -(-bound_bytes.numerator // bound_bytes.denominator)
