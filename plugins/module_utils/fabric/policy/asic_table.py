# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Switch ASICs: their buffers, and the headroom that their vendors give a lossless priority.

One file because it is one table: constants only, with the source of each row.

Vendors publish little of this data. The values are from the files that they ship with SONiC. Paths below are in
sonic-buildimage (github.com/sonic-net/sonic-buildimage) as of 086b03bd70 (2026-08-23), each with the last commit that
changed it.

- ``buffer_bytes``: the size of the largest pool that a vendor's file gives a switch with this chip. Broadcom's: of
  Arista-7260CX3-C64 (``buffers_defaults_t1.j2``), Quanta-IX9-32X (t0), Arista-7060X6-64PE-C256S2 (t0), Quanta-IX7-32X
  (t1); of the others and NVIDIA's the row's own file.
- ``pool_bytes`` and ``headroom_pool_bytes``: ``size`` and ``xoff`` of ``ingress_lossless_pool`` in the file for leaf
  switches (``buffers_defaults_t0.j2``). PFC pauses when the use of this pool is too high. Without ``xoff`` there is no
  headroom pool: each port has its own headroom beside the pools. Broadcom's ``size`` includes ``xoff`` on some chips
  (Tomahawk 3 to 6, Trident 4, Jericho 2) and not on others (Tomahawk 2, Trident 3). It does where the sum of both is
  more than the whole buffer.
- ``lossy_pool_bytes``: ``ingress_lossy_pool``, 0 where lossy packets use the lossless pool.
- ``headroom``: ``pg_profile_lookup.ini``. Broadcom's columns are used unchanged: ``size`` is the priority's own part,
  and ``xoff`` is added to it. NVIDIA's ``size`` includes ``xoff``, so the priority's own part is size - xoff. This part
  equals the profile's ``xon``, except on ports of 8 lanes, whose size has one more packet of the port's MTU
  (``speed_overhead`` in sonic-swss, cfgmgr/buffer_headroom_mellanox.lua). There, a pause ends 9,216 or 8,192 bytes
  below the point where it began. ``threshold`` is the exponent of alpha; NVIDIA's is always 0.
- ``formula``: NVIDIA's images compute headroom (SONIC_BUFFER_MODEL=dynamic, platform/mellanox/rules.mk, 8ffa0fad9e)
  with cfgmgr/buffer_headroom_mellanox.lua (sonic-swss, 422271e7e, 2026-08-01). The rows are from its earlier versions:
  Spectrum-4's count all packets as small, and those of the older chips assume that the peer obeys a pause within
  3.8 KiB, but IEEE 802.3 allows up to 905 quanta. Therefore xoff is computed with the formula, and a row gives only the
  priority's own part.
- ``sizes_pools``: the same images size the ingress pools from what headroom leaves (cfgmgr/buffer_pool_mellanox.lua,
  same commit), half for each.
- ``lossless_classes``: SONiC makes these profiles for two priorities, 3 and 4 (files/build_templates/qos_config.j2).
- ``unicast_queues``: the same file gives each port queues 0 to 7.
- ``bandwidth_gbit_s``: as its vendor announced the chip: 32 ports of 100 Gbit/s (Spectrum, Trident 3), 64 of 100
  (Spectrum-2, Tomahawk 2), 32 of 400 (Spectrum-3, Tomahawk 3, Trident 4), 64 of 400 (Tomahawk 4), 64 of 800
  (Spectrum-4, Tomahawk 5), 64 of 1600 (Tomahawk 6); of the others it was not found.

Rows that contradict other rows of their table are left out, with a comment. No missing value is estimated: for an ASIC
or a speed that is not here, users give their own values with their source (``roce_asics``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum

from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.model.qos import CLASSES, Headroom

REVISION = "sonic-buildimage 086b03bd70"  # of which the vendors' files are


class Formula(Enum):
    """The way a vendor computes xoff from speed, cable and MTU.

    ``value``: bytes kept on a tile for each Gbit/s, and bytes added for the ASIC's own accounting.
    """

    SPECTRUM = 0, 0
    SPECTRUM4 = 15, 0  # kb_on_tile: Gbit/s x 120 / 8; also Spectrum-5
    SPECTRUM6 = 0, 18 * 1024  # spectrum6_headroom_compensation


@dataclass(frozen=True)
class Asic:
    """One ASIC. ``headroom`` is that of one priority of one port, by (speed in Gbit/s, longest cable in metres).

    ``alpha_exponent``: for systems that size headroom themselves and so need no row; None: the rows' exponent.
    """

    name: str
    title: str
    buffer_bytes: int
    pool_bytes: int
    cell_bytes: int  # the unit in which the buffer is allocated
    lossless_classes: int
    unicast_queues: int
    headroom: Mapping[tuple[int, int], Headroom]
    source: str
    headroom_pool_bytes: int = 0
    lossy_pool_bytes: int = 0
    formula: Formula | None = None
    sizes_pools: bool = False
    alpha_exponent: int | None = None
    bandwidth_gbit_s: int | None = None  # of all ports together, in one direction
    vendor_headroom_bytes: int = 0  # what the vendor's own configuration of a switch takes from the headroom pool

    @property
    def shared_bytes(self) -> int:
        """Return the shared bytes of the lossless pool: its size, less the headroom pool where it includes that."""
        total_bytes = self.pool_bytes + self.headroom_pool_bytes
        return self.pool_bytes - (self.headroom_pool_bytes if total_bytes > self.buffer_bytes else 0)


def _parse_rows(rows: str, to_headroom: Callable[..., Headroom]) -> dict[tuple[int, int], Headroom]:
    """Parse a table as vendors write it: speed, cable, and the numbers that ``own_of`` takes."""
    table = {}
    for line in rows.strip().splitlines():
        speed, cable, *numbers = (int(word) for word in line.split())
        table[speed, cable] = to_headroom(*numbers)
    return table


def _broadcom(size: int, xon: int, xoff: int, exponent: int, xon_offset: int) -> Headroom:
    return Headroom(size, xoff, xon_offset, exponent, xon)


def _nvidia(size: int, xon: int, xoff: int) -> Headroom:
    reserved = size - xoff
    return Headroom(reserved, xoff, reserved - xon, 0, xon)


_ROWS = (
    Asic(
        name="spectrum",
        title="NVIDIA Spectrum",
        bandwidth_gbit_s=3_200,
        buffer_bytes=13_945_824,
        pool_bytes=4_580_864,
        lossy_pool_bytes=4_580_864,
        cell_bytes=96,
        lossless_classes=2,
        unicast_queues=CLASSES,
        formula=Formula.SPECTRUM,
        sizes_pools=True,
        # speed, cable, size, xon, xoff
        headroom=_parse_rows(
            """
            10      5   49152 19456   29696
            25      5   49152 19456   29696
            40      5   49152 19456   29696
            50      5   49152 19456   29696
            100     5   50176 19456   30720
            10     40   49152 19456   29696
            25     40   51200 19456   31744
            40     40   52224 19456   32768
            50     40   53248 19456   33792
            100    40   58368 19456   38912
            10    300   56320 19456   36864
            25    300   67584 19456   48128
            40    300   78848 19456   59392
            50    300   86016 19456   66560
            100   300  123904 19456  104448
            """,
            _nvidia,
        ),
        source="device/mellanox/x86_64-mlnx_msn2700-r0/ACS-MSN2700: pg_profile_lookup.ini (5356244e53), "
        "buffers_defaults_t0.j2 (ba853348d5); cell: platform/mellanox/asic_table.j2 (fb4dee11da)",
    ),
    Asic(
        name="spectrum2",
        title="NVIDIA Spectrum-2",
        bandwidth_gbit_s=6_400,
        buffer_bytes=34_287_552,
        pool_bytes=14_542_848,
        lossy_pool_bytes=14_542_848,
        cell_bytes=144,
        lossless_classes=2,
        unicast_queues=CLASSES,
        formula=Formula.SPECTRUM,
        sizes_pools=True,
        headroom=_parse_rows(
            """
            10      5   52224 19456   32768
            25      5   52224 19456   32768
            40      5   53248 19456   33792
            50      5   53248 19456   33792
            100     5   53248 19456   33792
            200     5   55296 19456   35840
            10     40   53248 19456   33792
            25     40   55296 19456   35840
            40     40   57344 19456   37888
            50     40   58368 19456   38912
            100    40   63488 19456   44032
            200    40   74752 19456   55296
            10    300   60416 19456   40960
            25    300   73728 19456   54272
            40    300   86016 19456   66560
            50    300   95232 19456   75776
            100   300  137216 19456  117760
            200   300  223232 19456  203776
            """,
            _nvidia,
        ),
        source="device/mellanox/x86_64-mlnx_msn3700-r0/ACS-MSN3700: pg_profile_lookup.ini (5356244e53), "
        "buffers_defaults_t0.j2 (ba853348d5), without the gearbox that an SN3800 has; "
        "cell: platform/mellanox/asic_table.j2 (fb4dee11da)",
    ),
    Asic(
        name="spectrum3",
        title="NVIDIA Spectrum-3",
        bandwidth_gbit_s=12_800,
        buffer_bytes=60_817_392,
        pool_bytes=26_451_968,
        lossy_pool_bytes=26_451_968,
        cell_bytes=144,
        lossless_classes=2,
        unicast_queues=CLASSES,
        formula=Formula.SPECTRUM,
        sizes_pools=True,
        headroom=_parse_rows(
            """
            10      5   52224 19456   32768
            25      5   52224 19456   32768
            40      5   53248 19456   33792
            50      5   53248 19456   33792
            100     5   53248 19456   33792
            200     5   55296 19456   35840
            400     5   86016 37888   38912
            10     40   53248 19456   33792
            25     40   55296 19456   35840
            40     40   57344 19456   37888
            50     40   58368 19456   38912
            100    40   63488 19456   44032
            200    40   74752 19456   55296
            400    40  124928 37888   77824
            10    300   60416 19456   40960
            25    300   73728 19456   54272
            40    300   86016 19456   66560
            50    300   95232 19456   75776
            100   300  137216 19456  117760
            200   300  223232 19456  203776
            400   300  420864 37888  373760
            """,
            _nvidia,
        ),
        source="device/mellanox/x86_64-mlnx_msn4700-r0/ACS-MSN4700: pg_profile_lookup.ini (5356244e53), "
        "buffers_defaults_t0.j2 (ba853348d5); cell: platform/mellanox/asic_table.j2 (fb4dee11da)",
    ),
    Asic(
        name="spectrum4",
        title="NVIDIA Spectrum-4",
        bandwidth_gbit_s=51_200,
        buffer_bytes=158_229_504,
        pool_bytes=67_737_959,
        lossy_pool_bytes=67_737_959,
        cell_bytes=192,
        lossless_classes=2,
        unicast_queues=CLASSES,
        formula=Formula.SPECTRUM4,
        sizes_pools=True,
        # Left out: 40 Gbit/s, because xoff and xon together exceed the size in its row for 5 m.
        headroom=_parse_rows(
            """
            10      5   64512 19456   45056
            25      5   67584 19456   48128
            50      5   82944 19456   63488
            100     5  133120 19456  113664
            200     5  150528 19456  131072
            400     5  250880 19456  231424
            800     5  304128 38912  257024
            10     40   65536 19456   46080
            25     40   71680 19456   52224
            50     40   89088 19456   69632
            100    40  146432 19456  126976
            200    40  177152 19456  157696
            400    40  303104 19456  283648
            800    40  410624 38912  362496
            10    300   75776 19456   56320
            25    300   96256 19456   76800
            50    300  138240 19456  118784
            100   300  244736 19456  225280
            200   300  374784 19456  355328
            400   300  697344 19456  677888
            800   300 1198080 38912 1150976
            """,
            _nvidia,
        ),
        source="device/mellanox/x86_64-nvidia_sn5600-r0/ACS-SN5600: pg_profile_lookup.ini (7d38b459e4), "
        "buffers_defaults_t0.j2 (c076c12431); an SN5610N has less; cell: platform/mellanox/asic_table.j2 (fb4dee11da)",
    ),
    Asic(
        name="spectrum5",
        title="NVIDIA Spectrum-5",
        buffer_bytes=136_209_408,
        pool_bytes=103_732_224,
        cell_bytes=192,
        lossless_classes=2,
        unicast_queues=CLASSES,
        formula=Formula.SPECTRUM4,
        sizes_pools=True,
        headroom=_parse_rows(
            """
            10      5   39936 19456   20480
            25      5   40960 19456   21504
            50      5   46080 19456   26624
            100     5   63488 19456   44032
            200     5   69632 19456   50176
            400     5  105472 19456   86016
            10    300   43008 19456   23552
            25    300   50176 19456   30720
            50    300   65536 19456   46080
            100   300  103424 19456   83968
            200   300  149504 19456  130048
            400   300  263168 19456  243712
            10   1000   53248 19456   33792
            25   1000   73728 19456   54272
            50   1000  112640 19456   93184
            100  1000  196608 19456  177152
            200  1000  336896 19456  317440
            400  1000  638976 19456  619520
            """,
            _nvidia,
        ),
        source="device/mellanox/x86_64-nvidia_sn5640-r0/Mellanox-SN5640-C512S2: pg_profile_lookup.ini (d6dba91389; its "
        "size is without xoff, because its ports share a headroom pool), buffers_defaults_t0.j2 (c237d88fbc), whose "
        "queues are all lossy, as those of all its SKUs; cell: platform/mellanox/asic_table.j2 (fb4dee11da)",
    ),
    Asic(
        name="spectrum6",
        title="NVIDIA Spectrum-6",
        buffer_bytes=226_492_416,
        pool_bytes=83_356_672,
        lossy_pool_bytes=83_356_672,
        cell_bytes=256,
        lossless_classes=2,
        unicast_queues=CLASSES,
        formula=Formula.SPECTRUM6,
        sizes_pools=True,
        headroom=_parse_rows(
            """
            10      5   63488 43008   20480
            25      5   64512 43008   21504
            100     5   87040 43008   44032
            200     5   91136 43008   48128
            400     5  124928 43008   81920
            800     5  190464 43008  147456
            100    40   91136 43008   48128
            200    40  101376 43008   58368
            400    40  144384 43008  101376
            800    40  229376 43008  186368
            100   300  128000 43008   84992
            200   300  173056 43008  130048
            400   300  287744 43008  244736
            800   300  516096 43008  473088
            """,
            _nvidia,
        ),
        source="device/mellanox/x86_64-nvidia_sn6600_ld-r0/ACS-SN6600_LD: pg_profile_lookup.ini (2cd78d4df2), "
        "buffers_defaults_t0.j2 (c237d88fbc); cell: platform/mellanox/asic_table.j2 (fb4dee11da)",
    ),
    Asic(
        name="tomahawk2",
        title="Broadcom Tomahawk 2",
        bandwidth_gbit_s=6_400,
        buffer_bytes=43_481_152,
        pool_bytes=33_329_088,
        headroom_pool_bytes=7_827_456,
        cell_bytes=208,
        lossless_classes=2,
        unicast_queues=CLASSES,
        # speed, cable, size, xon, xoff, threshold, xon_offset
        headroom=_parse_rows(
            """
            40    5 1248 1248  29536 0 2496
            50    5 1248 1248  54080 0 2496
            100   5 1248 1248  54080 0 2496
            40   40 1248 1248  31616 0 2496
            50   40 1248 1248  59696 0 2496
            100  40 1248 1248  59696 0 2496
            40  300 1248 1248  48256 0 2496
            50  300 1248 1248 101088 0 2496
            100 300 1248 1248 101088 0 2496
            """,
            _broadcom,
        ),
        source="device/common/profiles/th2/7260/BALANCED (Arista 7260CX3): pg_profile_lookup.ini (765741ac73), "
        "buffers_defaults_t0.j2 (dba7b21b30); pool: Arista-7260CX3-C64/buffers_pool_sizes_t0.j2 (453504f421); "
        "cell: divides all of the profile's numbers",
    ),
    Asic(
        name="tomahawk3",
        title="Broadcom Tomahawk 3",
        bandwidth_gbit_s=12_800,
        buffer_bytes=67_108_864,
        pool_bytes=66_394_076,
        headroom_pool_bytes=27_200_352,
        cell_bytes=254,
        lossless_classes=2,
        unicast_queues=CLASSES,
        headroom=_parse_rows(
            """
            100    5 2540 2540   68580 -2 2540
            400    5 2540 2540  178562 -2 2540
            100   40 2540 2540   74422 -2 2540
            400   40 2540 2540  201930 -2 2540
            100  300 2540 2540  117348 -2 2540
            400  300 2540 2540  373888 -2 2540
            100 1000 2540 2540  233172 -2 2540
            400 1000 2540 2540  836676 -2 2540
            100 2000 2540 2540  398526 -2 2540
            400 2000 2540 2540 1498092 -2 2540
            """,
            _broadcom,
        ),
        source="device/dell/x86_64-dellemc_z9332f_d1508-r0/DellEMC-Z9332f-O32: pg_profile_lookup.ini (a53f01df59), "
        "buffers_defaults_t0.j2 (6cbdf11e53; the ingress pool, since egress has one of half its size); "
        "cell: divides all of the profile's numbers",
    ),
    Asic(
        name="tomahawk4",
        title="Broadcom Tomahawk 4",
        bandwidth_gbit_s=25_600,
        buffer_bytes=113_620_296,
        pool_bytes=113_620_296,
        headroom_pool_bytes=50_653_696,
        cell_bytes=254,
        lossless_classes=2,
        unicast_queues=CLASSES,
        # Nokia's IXR7220-H4 has other rows (249dfa9f72); below 400 Gbit/s they use cells of another ASIC (208 bytes).
        headroom=_parse_rows(
            """
            10    5 9144 9144  75438 0 9144
            25    5 9144 9144  75438 0 9144
            40    5 9144 9144  91694 0 9144
            50    5 9144 9144  91694 0 9144
            100   5 9144 9144 129032 0 9144
            200   5 9144 9144 214122 0 9144
            400   5 9144 9144 371348 0 9144
            10   40 9144 9144  78740 0 9144
            25   40 9144 9144  78740 0 9144
            40   40 9144 9144  98298 0 9144
            50   40 9144 9144  98298 0 9144
            100  40 9144 9144 142240 0 9144
            200  40 9144 9144 240792 0 9144
            400  40 9144 9144 424434 0 9144
            10  300 9144 9144 103378 0 9144
            25  300 9144 9144 103378 0 9144
            40  300 9144 9144 147574 0 9144
            50  300 9144 9144 147574 0 9144
            100 300 9144 9144 240538 0 9144
            200 300 9144 9144 437134 0 9144
            400 300 9144 9144 817372 0 9144
            """,
            _broadcom,
        ),
        source="device/dell/x86_64-dell_z9664f-r0/DellEMC-Z9664f-O64: pg_profile_lookup.ini and buffers_defaults_t0.j2 "
        "(216a605a38); cell: divides all of the profile's numbers",
    ),
    Asic(
        name="tomahawk5",
        title="Broadcom Tomahawk 5",
        bandwidth_gbit_s=51_200,
        buffer_bytes=166_607_744,
        pool_bytes=164_619_432,
        headroom_pool_bytes=33_690_560,
        cell_bytes=254,
        lossless_classes=2,
        unicast_queues=CLASSES,
        # 100 and 200 Gbit/s: Dell's, because Arista's only row for 100 is the one of 400 Gbit/s.
        headroom=_parse_rows(
            """
            100   5 18796 0 147066 0 3556
            200   5 18796 0 229362 0 3556
            100  40 18796 0 160274 0 3556
            200  40 18796 0 255778 0 3556
            100 300 18796 0 258572 0 3556
            200 300 18796 0 452374 0 3556
            400   5 8636 0  425958 0 3556
            800   5 8636 0  724662 0 3556
            400  30 8636 0  425958 0 3556
            800  40 8636 0  833536 0 3556
            400 300 8636 0  839216 0 3556
            800 300 8636 0 1621536 0 3556
            400 500 8636 0 1136396 0 3556
            """,
            _broadcom,
        ),
        source="device/arista/x86_64-arista_7060x6_64pe_b/Arista-7060X6-64PE-B-P32O64: pg_profile_lookup.ini "
        "(c58ff91837), buffers_defaults_lt2.j2 (5aa06359a1); 100 and 200 Gbit/s: "
        "device/dell/x86_64-dell_z9864f-r0/Dell-Z9864f-O64; cell: divides all of the profile's numbers",
    ),
    Asic(
        name="tomahawk6",
        title="Broadcom Tomahawk 6",
        bandwidth_gbit_s=102_400,
        buffer_bytes=257_154_240,
        pool_bytes=257_154_240,
        headroom_pool_bytes=59_041_792,
        cell_bytes=420,
        lossless_classes=2,
        unicast_queues=CLASSES,
        # Left out: speeds below 100 Gbit/s, because 50 Gbit/s has more than 100 Gbit/s. 1600 Gbit/s has no row.
        headroom=_parse_rows(
            """
            100   5 8400 0  125580 0 4200
            200   5 8400 0  261660 0 4200
            400   5 8400 0  464520 0 4200
            800   5 8400 0  797580 0 4200
            100  30 8400 0  130200 0 4200
            200  30 8400 0  270900 0 4200
            400  30 8400 0  483420 0 4200
            800  30 8400 0  835380 0 4200
            100  40 8400 0  131880 0 4200
            200  40 8400 0  274260 0 4200
            400  40 8400 0  490980 0 4200
            800  40 8400 0  850080 0 4200
            100 300 8400 0  180180 0 4200
            200 300 8400 0  371700 0 4200
            400 300 8400 0  686280 0 4200
            800 300 8400 0 1239840 0 4200
            100 500 8400 0  217560 0 4200
            200 500 8400 0  446880 0 4200
            400 500 8400 0  836640 0 4200
            800 500 8400 0 1539720 0 4200
            """,
            _broadcom,
        ),
        source="device/nokia/x86_64-nokia_ixr7220_h6_128-r0/Nokia-IXR7220-H6-P128: pg_profile_lookup.ini (82fc7e99c3; "
        "it names the cell), buffers_defaults_t1.j2 (81efc9d3fe)",
    ),
    Asic(
        name="trident3",
        title="Broadcom Trident 3",
        bandwidth_gbit_s=3_200,
        buffer_bytes=33_004_032,
        pool_bytes=26_284_032,
        headroom_pool_bytes=6_291_456,
        cell_bytes=256,
        lossless_classes=2,
        unicast_queues=CLASSES,
        headroom=_parse_rows(
            """
            10    5 1024 2048  46080 -3 2048
            25    5 1024 2048  65024 -3 2048
            40    5 1024 2048  77056 -3 2048
            50    5 1024 2048  93440 -3 2048
            100   5 1024 2048 162048 -3 2048
            10   40 1024 2048  47360 -3 2048
            25   40 1024 2048  67840 -3 2048
            40   40 1024 2048  81664 -3 2048
            50   40 1024 2048  99072 -3 2048
            100  40 1024 2048 173568 -3 2048
            10  300 1024 2048  57088 -3 2048
            25  300 1024 2048  92672 -3 2048
            40  300 1024 2048 121344 -3 2048
            50  300 1024 2048 148736 -3 2048
            100 300 1024 2048 272640 -3 2048
            """,
            _broadcom,
        ),
        source="device/dell/x86_64-dellemc_s5232f_c3538-r0/DellEMC-S5232f-P-100G: pg_profile_lookup.ini (fa9f8eecf1), "
        "buffers_defaults_t0.j2 (6cbdf11e53); cell: divides all of the profile's numbers",
    ),
    Asic(
        name="trident4",
        title="Broadcom Trident 4",
        bandwidth_gbit_s=12_800,
        buffer_bytes=84_219_120,
        pool_bytes=84_219_120,
        headroom_pool_bytes=20_325_220,
        cell_bytes=318,
        lossless_classes=2,
        unicast_queues=CLASSES,
        headroom=_parse_rows(
            """
            10    5 1272 2544  30210 0 2544
            25    5 1272 2544  31482 0 2544
            40    5 1272 2544  46428 0 2544
            100   5 1272 2544  75366 0 2544
            400   5 1272 2544 154548 0 2544
            10   40 1272 2544  30846 0 2544
            25   40 1272 2544  32754 0 2544
            40   40 1272 2544  48336 0 2544
            100  40 1272 2544  81726 0 2544
            400  40 1272 2544 180624 0 2544
            10  100 1272 2544  31800 0 2544
            25  100 1272 2544  34980 0 2544
            40  100 1272 2544  51834 0 2544
            100 100 1272 2544  89040 0 2544
            400 100 1272 2544 209562 0 2544
            10  300 1272 2544  34662 0 2544
            25  300 1272 2544  41976 0 2544
            40  300 1272 2544  63282 0 2544
            100 300 1272 2544 117978 0 2544
            400 300 1272 2544 325632 0 2544
            """,
            _broadcom,
        ),
        source="device/nokia/x86_64-nokia_ixr7220_d4-r0/Nokia-IXR7220-D4-36D: pg_profile_lookup.ini (d418cf7383), "
        "buffers_defaults_t0.j2 (05bc5d2af7); cell: divides all of the profile's numbers",
    ),
    Asic(
        name="jericho2",
        title="Broadcom Jericho 2",
        buffer_bytes=6_441_610_000,
        pool_bytes=6_441_610_000,
        headroom_pool_bytes=1_056_256_819,
        cell_bytes=256,
        lossless_classes=2,
        unicast_queues=CLASSES,
        headroom=_parse_rows(
            """
            40     300 0 2560    69632 -6  181753
            100    300 0 2560   110592 -6  363506
            400    300 0 2560   315392 -5 1454025
            40    1000 0 2560   114688 -6  181753
            100   1000 0 2560   225280 -6  363506
            400   1000 0 2560   778240 -5 1454025
            40    2000 0 2560   184320 -6  181753
            100   2000 0 2560   393216 -6  363506
            400   2000 0 2560  1445888 -5 1454025
            40   80000 0 2560  5369856 -6  181753
            100  80000 0 2560 13357056 -6  363506
            400  80000 0 2560 53305344 -5 1454025
            40  120000 0 2560  8028160 -6  181753
            100 120000 0 2560 20004864 -6  363506
            400 120000 0 2560 79900672 -5 1454025
            """,
            _broadcom,
        ),
        source="device/arista/x86_64-arista_7800r3_48cqm2_lc/Arista-7800R3-48CQM2-C48: pg_profile_lookup.ini "
        "(9365cf89b6), buffers_defaults_t2.j2 (dbcfc28086; the one pool of both directions, in HBM); "
        "cell: divides the profile's xon and xoff",
    ),
)
ASICS: Mapping[str, Asic] = {row.name: row for row in _ROWS}
