# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Whole pictures: the files in whole/, which a browser shows, are exactly what is drawn.

After an intended change: write the new text to the file, and look at it in a browser in light and dark mode.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from ansible_collections.sailloft.fleet.plugins.module_utils.topology.draw.blocks import Blocks, Box
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.draw.picture import (
    draw_block,
    fits_beside,
    picture,
    side_by_side,
    wrapped_lines,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.model import (
    Acs,
    Ats,
    Function,
    Host,
    HugePages,
    Link,
    NumaNode,
    RootComplex,
    Sriov,
)

WHOLE = Path(__file__).parent / "whole"
PAIRS = {"0000:03:00.0": "0000:21:00.0", "0000:05:00.1": "0000:22:00.0"}
GEN5, GEN4 = Link(32.0, 16, 32.0, 16), Link(16.0, 8, 32.0, 16)


def bridge(address, parent, role, first, last, **more):
    return Function(
        address, "pci0000:00", parent, 0x060400, 0x1000, 0xC030, "bridge", role,
        secondary_bus=first, subordinate_bus=last, numa_node=0, driver="pcieport", config_bytes=4096, **more,
    )  # fmt: skip


def device(address, root, parent, kind, **more):
    codes = {"gpu": 0x030200, "nic": 0x020000, "nvme": 0x010802, "other": 0x0C0330}
    return Function(address, root, parent, codes[kind], 0x10DE, 0x2330, kind, "endpoint", **more)


def server():
    """Return a host on which every kind of box, line and note of a picture occurs."""
    one, two, three, four = "pci0000:00", "pci0000:40", "pci0000:80", "pci0000:c0"
    functions = [
        # Root port and switch are one box; its ports are rows.
        bridge("0000:00:01.0", None, "root_port", 1, 4, acs=Acs(0x5F, 0x1D)),
        bridge("0000:01:00.0", "0000:00:01.0", "switch_upstream", 2, 4),
        bridge("0000:02:00.0", "0000:01:00.0", "switch_downstream", 3, 3, acs=Acs(0x5F, 0x5F)),
        bridge("0000:02:01.0", "0000:01:00.0", "switch_downstream", 4, 4, acs=Acs(0x5F, 0x0)),
        bridge("0000:02:02.0", "0000:01:00.0", "switch_downstream", 0, 0),
        device(
            "0000:03:00.0", one, "0000:02:00.0", "gpu", numa_node=0, iommu_group=7, driver="vfio-pci", link=GEN5,
            max_read_request_bytes=4096, ats=Ats(True, 0),
        ),
        device("0000:04:00.0", one, "0000:02:01.0", "gpu", iommu_group=8, driver="d" * 40, link=GEN4),
        device("0000:04:00.1", one, "0000:02:01.0", "nvme", driver="nvme", interfaces={"block": ["nvme0n1"]}),
        device("0000:04:00.2", one, "0000:02:01.0", "other"),
        # A root port with a NIC, two of its VFs (one is passed through), and a second root port with nothing below.
        bridge("0000:00:02.0", None, "root_port", 5, 5, acs=Acs(0x5F, 0x1D)),
        bridge("0000:00:03.0", None, "root_port", 6, 6),
        bridge("0000:00:04.0", None, "root_port", 7, 7),
        device(
            "0000:05:00.0", one, "0000:00:02.0", "nic", driver="mlx5_core", ats=Ats(False, 0),
            sriov=Sriov(8, 2, ["0000:05:00.1", "0000:05:00.2"]), interfaces={"net": ["ens1np0"], "rdma": ["mlx5_0"]},
        ),
        *(
            device(f"0000:05:00.{number}", one, "0000:00:02.0", "nic", physical_function="0000:05:00.0")
            for number in (1, 2)
        ),
        # Devices on root buses, without bridges.
        device("0000:40:00.0", two, None, "nic", driver="igb", used_by_host=["carries the default route"]),
        device("0000:40:01.0", two, None, "other"),
        device("0000:40:02.0", two, None, "other", used_by_host=["holds the mounted file system /"]),
        device("0000:40:03.0", two, None, "other"),
        device("0000:80:00.0", three, None, "gpu", link=Link(None, 16, 32.0, 16)),
        device("0000:80:01.0", three, None, "gpu", driver="nvidia", interfaces={"net": ["n" * 80]}),
        device("0000:c0:00.0", four, None, "nvme", sriov=Sriov(4, 0), link=Link(32.0, None, 32.0, 4)),
    ]  # fmt: skip
    pages = [HugePages(2 << 20, 0, 0), HugePages(2 << 20, 512, 0), HugePages(1 << 30, 1, 1)]
    nodes = [
        NumaNode(0, [0, 1, 2, 8], [], 3 << 29, huge_pages=pages),
        NumaNode(1, [], [], 0),
        NumaNode(2, list(range(0, 200, 2)), [], 1 << 40),
    ]
    complexes = [
        RootComplex(one, 0, 0x00, 0),
        RootComplex(two, 0, 0x40, 0),
        RootComplex(three, 0, 0x80, 0),
        RootComplex(four, 0, 0xC0, None),
    ]
    return Host(nodes, complexes, functions)


def guest():
    """Return a guest with two of the devices, read by hwloc, which knows no drivers."""
    functions = [
        device("0000:21:00.0", "pci0000:20", None, "gpu", link=GEN5),
        device("0000:22:00.0", "pci0000:20", None, "nic"),
    ]
    node = NumaNode(0, [0, 1], [[0, 1]], 1023)
    return Host([node], [RootComplex("pci0000:20", 0, 0x20, 0)], functions, source="hwloc")


def narrow():
    """Return a host with one column, into which the legend of its devices does not fit in one row."""
    kinds = ("gpu", "nic", "nvme")
    functions = [device(f"0000:00:0{number}.0", "pci0000:00", None, kind) for number, kind in enumerate(kinds)]
    return Host([NumaNode(0, [0], [[0]], 1)], [RootComplex("pci0000:00", 0, 0, 0)], functions)


@pytest.mark.parametrize(
    ("name", "draw"),
    [
        ("host.svg", lambda: picture(server(), "gpu-host-1", PAIRS)),
        ("bare.svg", lambda: picture(server(), "A caption that is much longer than its picture is wide " * 4)),
        ("guest.svg", lambda: picture(guest(), "vm1", {there: here for here, there in PAIRS.items()}, "host")),
        ("side_by_side.svg", lambda: side_by_side(server(), guest(), PAIRS)),
        ("narrow.svg", lambda: picture(narrow(), "narrow", {"0000:00:00.0": "0000:21:00.0"})),
        ("empty.svg", lambda: picture(Host([NumaNode(0, [], [], 0)], [], []), "empty")),
    ],
)
def test_the_whole_picture_is_as_in_its_file(name, draw):
    assert draw() == (WHOLE / name).read_text(encoding="utf-8")


def described(blocks, depth=0):
    """Return blocks as indented lines of text."""
    lines = []
    for block in blocks:
        parts = (block.style, block.title, block.detail, block.side, block.label, block.kind)
        lines.append("  " * depth + " | ".join(part for part in parts if part))
        lines += described(block.children, depth + 1)
    return lines


def test_all_blocks_of_a_host_are_described():
    assert described(Blocks(server(), PAIRS, "guest").build()) == [
        "node | NUMA node 0 | CPUs 0-2,8 · 1.5 GiB · 512 huge pages of 2 MiB · 1 huge page of 1 GiB",
        "  complex | pci0000:00 | root complex",
        "    bridge | 00:01.0 root port → 01:00.0 switch | 00:01.0 ACS 0x1d · 01:00.0 no ACS",
        "      port | 02:00.0 | port | ACS 0x5f",
        "        device | GPU 03:00.0 | vfio-pci · group 7 · 32 GT/s x16 | guest 21:00.0 | gpu",
        "      port | 02:01.0 | port | ACS 0x00",
        "        device | GPU 04:00.0 | dddddddddddddddddddddddddddddddddddddddd · group 8 · 16 GT/s x8 | gpu",
        "        device | NVMe 04:00.1 | nvme | nvme0n1 | nvme",
        "        note | 1 other function",
        "      note | 1 port with nothing below",
        "    port | 00:02.0 | root port | ACS 0x1d",
        "      device | NIC 05:00.0 | mlx5_core · 2 of 8 VFs | ens1np0 mlx5_0 | nic",
        "      device | VF 05:00.1 | no driver | guest 22:00.0 | nic",
        "    note | 2 ports with nothing below",
        "  complex | pci0000:40 | root complex",
        "    device | NIC 40:00.0 | igb | in use | nic",
        "    device | PCI 40:02.0 | no driver | in use | other",
        "    note | 2 other functions",
        "  complex | pci0000:80 | root complex",
        "    device | GPU 80:00.0 | no driver | gpu",
        "    device | GPU 80:01.0 | nvidia | " + "n" * 80 + " | gpu",
        "node | NUMA node 1 | no CPUs · no memory",
        f"node | NUMA node 2 | CPUs {','.join(map(str, range(0, 200, 2)))} · 1 TiB",
        "node | No NUMA node",
        "  complex | pci0000:c0 | root complex",
        "    device | NVMe c0:00.0 | no driver | nvme",
    ]


@pytest.mark.parametrize(
    ("memory_bytes", "text"),
    [
        (0, "no memory"),
        (1, "1 B"),
        (1023, "1023 B"),
        (1024, "1 KiB"),
        (1536, "1.5 KiB"),
        ((1 << 20) - 1024, "1023 KiB"),
        (1 << 20, "1 MiB"),
        (10 << 30, "10 GiB"),
        (1 << 40, "1 TiB"),
        (1 << 50, "1024 TiB"),
    ],
)
def test_memory_has_the_largest_unit_that_gives_at_least_1(memory_bytes, text):
    (block,) = Blocks(Host([NumaNode(0, [0], [[0]], memory_bytes)], [], []), {}, "guest").build()
    assert block.detail == f"CPUs 0 · {text}"


@pytest.mark.parametrize(("width", "beside"), [(93, True), (92, False)])
def test_a_detail_is_beside_its_title_if_it_fits_exactly(width, beside):
    """Ten characters of 6.1 pixels need 61, besides a margin of 10 on each side and 12 before the detail."""
    assert fits_beside(Box("node", "", "d" * 10), width) is beside
    assert fits_beside(Box("bridge", "", "d" * 10), width) is False
    assert fits_beside(Box("bridge", "", ""), width) is True


@pytest.mark.parametrize(("room", "lines"), [(61, ["aaaa · bbb"]), (60, ["aaaa", "bbb"])])
def test_details_that_fit_exactly_are_on_one_line(room, lines):
    assert wrapped_lines("aaaa · bbb", room) == lines
    assert wrapped_lines("", room) == [""]


@pytest.mark.parametrize(
    ("block", "kept"),
    [
        # The number of characters in the room for the text, less the one of the ellipsis.
        (Box("device", "x" * 100), int(276 / 7.3) - 1),
        (Box("device", "x" * 100, label="guest 21:00.0"), int((276 - 91 - 6) / 7.3) - 1),
        (Box("device", "x" * 100, side="in use"), int(276 / 7.3) - 1),
        (Box("note", "x" * 100), int(298 / 6.1) - 1),
        (Box("complex", "x" * 100), int(280 / 7.3) - 1),
        (Box("node", "x" * 100), int(280 / 7.3) - 1),
        (Box("bridge", "x" * 100), int(280 / 7.3) - 1),
        (Box("port", "", "x" * 100, children=[Box("note", "")]), int(76 / 6.1) - 1),
        (Box("port", "", side="x" * 100, children=[Box("note", "")]), int(76 / 6.1) - 1),
        (Box("device", "", "x" * 100), int(276 / 6.1) - 1),
        (Box("complex", "a", "x" * 100), int(280 / 6.1) - 1),
    ],
)
def test_a_text_is_cut_to_the_room_of_its_box(block, kept):
    lines, _height = draw_block(block, 0, 0, 300)
    assert [len(text) for line in lines for text in re.findall(r">(x+)…<title>", line)] == [kept]


@pytest.mark.parametrize(("length", "cut"), [(10, False), (11, True)])
def test_a_text_that_fits_exactly_is_not_cut(length, cut):
    lines, _height = draw_block(Box("note", "x" * length), 0, 0, 63)
    assert ("…" in lines[0]) is cut
