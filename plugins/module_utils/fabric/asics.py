# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Switch ASICs: what buffer they have, and what their vendors' profiles give to a lossless priority. Constants only.

Vendors publish little of this. What is here stands in the files that they ship with SONiC: paths below are of
sonic-buildimage (github.com/sonic-net/sonic-buildimage), each found in 2026 in a public copy of it at the commit named.

- ``buffer_bytes``: the size of the profile's pool for lossless egress (``egress_lossless_pool``), which is all that
  packets can have; where pools are per half of the chip, the sum that the ingress pool gives.
- ``headroom``: ``pg_profile_lookup.ini``. Broadcom's columns are taken as they are: ``size`` is the priority's own, and
  ``xoff`` comes on top of it. NVIDIA's ``size`` holds ``xoff`` too, so what is the priority's own is size - xoff. It is
  the profile's ``xon``, but on ports of 8 lanes: their size has a packet of the port's MTU more (``speed_overhead`` in
  sonic-swss, cfgmgr/buffer_headroom_mellanox.lua), and so a pause ends that much, 9,216 or 8,192 bytes, below where it
  began. ``threshold`` is the exponent of alpha; NVIDIA's is 0 throughout.
- ``lossless_classes``: SONiC makes these profiles for two priorities, 3 and 4 (files/build_templates/qos_config.j2).
- ``unicast_queues``: the same file gives each port queues 0 to 7.

Rows that contradict others of their own table are left out, as said where they are. Nothing is filled in: for an ASIC
or a speed that is not here, a user gives their own, with its source (``roce_asics``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.error import FabricError
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.record import Record
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.state import CLASSES, Headroom

ASICS_VARIABLE = "roce_asics"
# IEEE 802.3; RoCE is not run over less than 1 Gbit/s.
SPEEDS_GBIT_S = (1, 2, 5, 10, 25, 40, 50, 100, 200, 400, 800, 1600)
MOST_CABLE_M = 120_000  # the longest that SONiC's profiles know
MOST_BYTES = 1 << 40


@dataclass(frozen=True)
class Asic:
    """One ASIC. ``headroom``: of one priority of one port, by (speed in Gbit/s, longest cable in metres)."""

    name: str
    title: str
    buffer_bytes: int
    cell_bytes: int  # the unit in which the buffer is given out
    lossless_classes: int
    unicast_queues: int
    headroom: Mapping[tuple[int, int], Headroom]
    source: str


def _split(rows: str, own_of: Any) -> dict[tuple[int, int], Headroom]:
    """A table as vendors write it: speed, cable, and the numbers that ``own_of`` takes."""
    table = {}
    for line in rows.strip().splitlines():
        speed, cable, *numbers = (int(word) for word in line.split())
        table[speed, cable] = own_of(*numbers)
    return table


def _broadcom(size: int, xon: int, xoff: int, xon_offset: int, exponent: int) -> Headroom:
    return Headroom(size, xoff, xon_offset, exponent, xon)


def _nvidia(size: int, xon: int, xoff: int) -> Headroom:
    reserved = size - xoff
    return Headroom(reserved, xoff, reserved - xon, 0, xon)


_ROWS = (
    Asic(
        name="spectrum",
        title="NVIDIA Spectrum",
        buffer_bytes=14_024_599,
        cell_bytes=96,
        lossless_classes=2,
        unicast_queues=CLASSES,
        # speed, cable, size, xon, xoff
        headroom=_split(
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
        source="device/mellanox/x86_64-mlnx_msn2700-r0/ACS-MSN2700: pg_profile_lookup.ini (0db7e883), "
        "buffers_defaults_t0.j2 (1f2a5045); cell: platform/mellanox/asic_table.j2 (4a9bf641)",
    ),
    Asic(
        name="spectrum2",
        title="NVIDIA Spectrum-2",
        buffer_bytes=34_287_552,
        cell_bytes=144,
        lossless_classes=2,
        unicast_queues=CLASSES,
        headroom=_split(
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
        source="device/mellanox/x86_64-mlnx_msn3700-r0/ACS-MSN3700: pg_profile_lookup.ini and buffers_defaults_t0.j2 "
        "(0db7e883), without the gearbox that an SN3800 has; cell: platform/mellanox/asic_table.j2 (4a9bf641)",
    ),
    Asic(
        name="spectrum3",
        title="NVIDIA Spectrum-3",
        buffer_bytes=60_817_392,
        cell_bytes=144,
        lossless_classes=2,
        unicast_queues=CLASSES,
        headroom=_split(
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
        source="device/mellanox/x86_64-mlnx_msn4700-r0/ACS-MSN4700: pg_profile_lookup.ini (0db7e883), "
        "buffers_defaults_t0.j2 (5356244e); cell: platform/mellanox/asic_table.j2 (4a9bf641)",
    ),
    Asic(
        name="spectrum4",
        title="NVIDIA Spectrum-4",
        buffer_bytes=158_229_504,
        cell_bytes=192,
        lossless_classes=2,
        unicast_queues=CLASSES,
        # Left out: 40 Gbit/s, whose row for 5 m has more xoff than its size holds beside xon.
        headroom=_split(
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
        source="device/mellanox/x86_64-nvidia_sn5600-r0/ACS-SN5600: pg_profile_lookup.ini and buffers_defaults_t0.j2 "
        "(dd880065); an SN5610N has less (223508b0); cell: platform/mellanox/asic_table.j2 (4a9bf641)",
    ),
    Asic(
        name="tomahawk2",
        title="Broadcom Tomahawk 2",
        buffer_bytes=42_349_632,
        cell_bytes=208,
        lossless_classes=2,
        unicast_queues=CLASSES,
        # speed, cable, size, xon, xoff, xon_offset, threshold
        headroom=_split(
            """
            40    5 1248 1248  29536 2496 0
            50    5 1248 1248  54080 2496 0
            100   5 1248 1248  54080 2496 0
            40   40 1248 1248  31616 2496 0
            50   40 1248 1248  59696 2496 0
            100  40 1248 1248  59696 2496 0
            40  300 1248 1248  48256 2496 0
            50  300 1248 1248 101088 2496 0
            100 300 1248 1248 101088 2496 0
            """,
            _broadcom,
        ),
        source="device/common/profiles/th2/7260/BALANCED (Arista 7260CX3): pg_profile_lookup.ini (a9b80368), "
        "buffers_defaults_t0.j2 (b625085b); cell: divides all of the profile's numbers",
    ),
    Asic(
        name="tomahawk3",
        title="Broadcom Tomahawk 3",
        buffer_bytes=66_435_732,
        cell_bytes=254,
        lossless_classes=2,
        unicast_queues=CLASSES,
        headroom=_split(
            """
            100    5 2540 2540   68580 2540 -2
            100   40 2540 2540   74422 2540 -2
            100  300 2540 2540  117348 2540 -2
            100 1000 2540 2540  233172 2540 -2
            100 2000 2540 2540  398526 2540 -2
            400    5 2540 2540  178562 2540 -2
            400   40 2540 2540  201930 2540 -2
            400  300 2540 2540  373888 2540 -2
            400 1000 2540 2540  836676 2540 -2
            400 2000 2540 2540 1498092 2540 -2
            """,
            _broadcom,
        ),
        source="device/dell/x86_64-dellemc_z9332f_d1508-r0/DellEMC-Z9332f-O32: pg_profile_lookup.ini (a53f01df), "
        "buffers_defaults_t0.j2 (2483860f); cell: divides all of the profile's numbers",
    ),
    Asic(
        name="tomahawk4",
        title="Broadcom Tomahawk 4",
        buffer_bytes=113_143_792,
        cell_bytes=254,
        lossless_classes=2,
        unicast_queues=CLASSES,
        # Left out: below 100 Gbit/s, whose rows count in cells of another ASIC (208 bytes).
        headroom=_split(
            """
            100   5 18796 3556 150368 3556 -2
            200   5 18796 3556 150368 3556 -2
            400   5 18796 3556 150368 3556 -2
            100  40 18796 3556 150368 3556 -2
            200  40 18796 3556 150368 3556 -2
            400  40 18796 3556 150368 3556 -2
            100 300 18796 3556 150368 3556 -2
            200 300 18796 3556 150368 3556 -2
            400 300 18796 3556 150368 3556 -2
            """,
            _broadcom,
        ),
        source="device/nokia/x86_64-nokia_ixr7220_h4-r0/Nokia-IXR7220-H4-64D: pg_profile_lookup.ini (b65ca453), "
        "buffers_defaults_t1.j2 (04f0e2f4; the ingress pool, since egress has two of half its size); "
        "cell: divides all of the profile's numbers",
    ),
    Asic(
        name="tomahawk5",
        title="Broadcom Tomahawk 5",
        buffer_bytes=164_619_432,
        cell_bytes=254,
        lossless_classes=2,
        unicast_queues=CLASSES,
        # Left out: 100 Gbit/s, whose one row is that of 400 Gbit/s.
        headroom=_split(
            """
            400   5 8636    0  425958 3556 0
            400  30 8636    0  425958 3556 0
            400 300 8636    0  839216 3556 0
            400 500 8636    0 1136396 3556 0
            800   5 8636    0  724662 3556 0
            800  40 8636    0 1621536 3556 0
            800 300 8636    0 1621536 3556 0
            """,
            _broadcom,
        ),
        source="device/arista/x86_64-arista_7060x6_64pe_b/Arista-7060X6-64PE-B-P32O64: pg_profile_lookup.ini "
        "(1baa07ef), buffers_defaults_lt2.j2 (11e73b4c); cell: divides all of the profile's numbers",
    ),
    Asic(
        name="tomahawk6",
        title="Broadcom Tomahawk 6",
        buffer_bytes=161_176_208,
        cell_bytes=420,
        lossless_classes=2,
        unicast_queues=CLASSES,
        # Left out: below 100 Gbit/s, where 50 Gbit/s has more than 100 Gbit/s.
        headroom=_split(
            """
            100    5 8400    0  125580 4200 0
            200    5 8400    0  261660 4200 0
            400    5 8400    0  464520 4200 0
            800    5 8400    0  797580 4200 0
            1600   5 8400    0 1463700 4200 0
            100   40 8400    0  131880 4200 0
            200   40 8400    0  274260 4200 0
            400   40 8400    0  490980 4200 0
            800   40 8400    0  850080 4200 0
            1600  40 8400    0 1568280 4200 0
            100  300 8400    0  180180 4200 0
            200  300 8400    0  371700 4200 0
            400  300 8400    0  686280 4200 0
            800  300 8400    0 1239840 4200 0
            1600 300 8400    0 2346960 4200 0
            """,
            _broadcom,
        ),
        source="device/nokia/x86_64-nokia_ixr7220_h6_64-r0/Nokia-IXR7220-H6-64: pg_profile_lookup.ini (6dd4332a; it "
        "names the cell), buffers_defaults_t1.j2 (01a5648a)",
    ),
    Asic(
        name="trident3",
        title="Broadcom Trident 3",
        buffer_bytes=32_575_488,
        cell_bytes=256,
        lossless_classes=2,
        unicast_queues=CLASSES,
        headroom=_split(
            """
            10    5 1024 2048  46080 2048 -3
            25    5 1024 2048  65024 2048 -3
            40    5 1024 2048  77056 2048 -3
            50    5 1024 2048  93440 2048 -3
            100   5 1024 2048 162048 2048 -3
            10   40 1024 2048  47360 2048 -3
            25   40 1024 2048  67840 2048 -3
            40   40 1024 2048  81664 2048 -3
            50   40 1024 2048  99072 2048 -3
            100  40 1024 2048 173568 2048 -3
            10  300 1024 2048  57088 2048 -3
            25  300 1024 2048  92672 2048 -3
            40  300 1024 2048 121344 2048 -3
            50  300 1024 2048 148736 2048 -3
            100 300 1024 2048 272640 2048 -3
            """,
            _broadcom,
        ),
        source="device/dell/x86_64-dellemc_s5232f_c3538-r0: DellEMC-S5232f-P-10G/pg_profile_lookup.ini (fa9f8eec), "
        "DellEMC-S5232f-P-100G/buffers_defaults_t0.j2 (f18bcbf1); cell: divides all of the profile's numbers",
    ),
    Asic(
        name="trident4",
        title="Broadcom Trident 4",
        buffer_bytes=73_964_892,
        cell_bytes=318,
        lossless_classes=2,
        unicast_queues=CLASSES,
        # Left out: below 100 Gbit/s, where all cables have the same 10,176 bytes, less than a quarter of any formula's.
        headroom=_split(
            """
            100   5 1272 2544  75366 2544 0
            400   5 1272 2544 154548 2544 0
            100  40 1272 2544  81726 2544 0
            400  40 1272 2544 180624 2544 0
            100 100 1272 2544  89040 2544 0
            400 100 1272 2544 209562 2544 0
            100 300 1272 2544 117978 2544 0
            400 300 1272 2544 325632 2544 0
            """,
            _broadcom,
        ),
        source="device/nokia/x86_64-nokia_ixr7220_d4-r0/Nokia-IXR7220-D4-36D: pg_profile_lookup.ini (7166ed97), "
        "buffers_defaults_t0.j2 (12e7a2be); cell: divides all of the profile's numbers",
    ),
    Asic(
        name="jericho2",
        title="Broadcom Jericho 2",
        buffer_bytes=6_441_610_000,
        cell_bytes=256,
        lossless_classes=2,
        unicast_queues=CLASSES,
        # Left out: 10 Gbit/s, whose numbers are no whole cells.
        headroom=_split(
            """
            25    5 1280 2560  49152 1280 0
            40    5 1280 2560  49152 1280 0
            50    5 1280 2560  53248 1280 0
            100   5 1280 2560  65536 1280 0
            200   5 1280 2560  90112 1280 0
            400   5 1280 2560 135168 1280 0
            25   40 1280 2560  49152 1280 0
            40   40 1280 2560  53248 1280 0
            50   40 1280 2560  57344 1280 0
            100  40 1280 2560  69632 1280 0
            200  40 1280 2560 102400 1280 0
            400  40 1280 2560 159744 1280 0
            25  300 1280 2560  61440 1280 0
            40  300 1280 2560  69632 1280 0
            50  300 1280 2560  77824 1280 0
            100 300 1280 2560 114688 1280 0
            200 300 1280 2560 188416 1280 0
            400 300 1280 2560 331776 1280 0
            """,
            _broadcom,
        ),
        source="device/arista/x86_64-arista_7800r3_48cqm2_lc/Arista-7800R3-48CQM2-C48: pg_profile_lookup.ini "
        "(b23ad674), buffers_defaults_t2.j2 (723c508a; the one pool of both directions, in HBM); "
        "cell: divides all of the profile's numbers",
    ),
)
ASICS: Mapping[str, Asic] = {row.name: row for row in _ROWS}


def read_asics(given: Any) -> dict[str, Asic]:
    """All ASICs by name: those here, and the user's own (``roce_asics``), which come before them.

    Raises FabricError for the first thing amiss.
    """
    record = Record(ASICS_VARIABLE, {} if given is None else given)
    return {**ASICS, **{str(name): _read_asic(str(name), data) for name, data in record.data.items()}}


def _read_asic(name: str, given: Any) -> Asic:
    record = Record(f"{ASICS_VARIABLE}: {name}", given)
    record.only("title", "buffer_bytes", "cell_bytes", "lossless_classes", "unicast_queues", "headroom", "source")
    source = record.text("source", "")
    if not source:
        raise record.refuse("source is missing", "say which document or device these numbers are from")
    rows = record.data.get("headroom", [])
    if not isinstance(rows, list):
        raise record.refuse("headroom is not a list", "write a row a line: {speed_gbit_s: 400, cable_m: 5, ...}")
    table: dict[tuple[int, int], Headroom] = {}
    for at, data in enumerate(rows, 1):
        row = Record(f"{record.subject}: headroom, row {at}", data)
        row.only(
            *("speed_gbit_s", "cable_m", "reserved_bytes", "xoff_bytes"),
            *("xon_offset_bytes", "xon_bytes", "alpha_exponent"),
        )
        row.need("speed_gbit_s", "cable_m", "reserved_bytes", "xoff_bytes", "alpha_exponent")
        key = read_speed(row), row.number("cable_m", 0, 1, MOST_CABLE_M)
        if key in table:
            raise row.refuse(f"{key[0]} Gbit/s and {key[1]} m are there twice", "keep one of the rows")
        reserved = row.number("reserved_bytes", 0, 0, MOST_BYTES)
        offset = row.number("xon_offset_bytes", 0, 0, MOST_BYTES)
        table[key] = Headroom(
            reserved,
            row.number("xoff_bytes", 0, 1, MOST_BYTES),
            offset,
            row.number("alpha_exponent", 0, -8, 8),
            row.number("xon_bytes", max(0, reserved - offset), 0, MOST_BYTES),
        )
    record.need("buffer_bytes", "cell_bytes", "lossless_classes")
    return Asic(
        name,
        record.text("title", name),
        record.number("buffer_bytes", 0, 1, MOST_BYTES),
        record.number("cell_bytes", 0, 1, 1 << 16),
        record.number("lossless_classes", 0, 0, CLASSES),
        record.number("unicast_queues", CLASSES, 1, 64),
        table,
        source,
    )


def read_speed(record: Record) -> int:
    """The setting speed_gbit_s. Raises FabricError for a speed that Ethernet does not have."""
    speed = record.number("speed_gbit_s", 0, 0, SPEEDS_GBIT_S[-1])
    if speed not in SPEEDS_GBIT_S:
        raise record.refuse(
            f"speed_gbit_s {speed} is no speed of Ethernet", f"there are {', '.join(map(str, SPEEDS_GBIT_S))}"
        )
    return speed


def find_asic(asics: Mapping[str, Asic], name: Any, subject: str) -> Asic:
    """The ASIC of that name. Raises FabricError, in the name of ``subject``, with those that there are."""
    if not isinstance(name, str) or name not in asics:
        raise FabricError(
            subject,
            f"ASIC {name!r} is unknown" if name is not None else "roce_switch_asic is missing",
            f"there are {', '.join(sorted(asics))}; or give its numbers and their source in {ASICS_VARIABLE}",
        )
    return asics[name]
