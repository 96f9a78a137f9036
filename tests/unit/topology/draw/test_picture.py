# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

import copy
import re
from pathlib import Path
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.sailloft.fleet.plugins.module_utils.topology.draw.blocks import Blocks, link_text
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.draw.picture import (
    draw_stack,
    picture,
    side_by_side,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.model import (
    Ats,
    Function,
    Host,
    HugePages,
    Link,
    NumaNode,
    RootComplex,
)

SVG = "{http://www.w3.org/2000/svg}"
NAMES = sorted(path.stem for path in (Path(__file__).parents[3] / "recordings").glob("*.json"))


def texts(svg: str) -> list[str]:
    return [item.text or "" for item in ElementTree.fromstring(svg).iter(f"{SVG}text")]


def rectangles(svg: str, *styles: str) -> list[tuple[int, int, int, int]]:
    return [
        tuple(int(item.get(name, "0")) for name in ("x", "y", "width", "height"))
        for item in ElementTree.fromstring(svg).iter(f"{SVG}rect")
        if item.get("class") in styles
    ]  # fmt: skip


def inside(small, large) -> bool:
    return (
        large[0] <= small[0]
        and large[1] <= small[1]
        and small[0] + small[2] <= large[0] + large[2]
        and small[1] + small[3] <= large[1] + large[3]
    )


def apart(one, other) -> bool:
    return (
        one[0] + one[2] <= other[0]
        or other[0] + other[2] <= one[0]
        or one[1] + one[3] <= other[1]
        or other[1] + other[3] <= one[1]
    )


@pytest.mark.parametrize("name", NAMES)
def test_the_picture_of_a_host_is_deterministic(recording, name):
    first = picture(recording(name), name)
    assert picture(recording(name), name) == first
    ElementTree.fromstring(first)


@pytest.mark.parametrize("name", NAMES)
def test_every_gpu_and_nic_has_one_box(recording, name):
    host = recording(name)
    start = 5 if all(f.address.startswith("0000:") for f in host.functions) else 0
    wanted = [f.address[start:] for f in host.functions if f.kind in ("gpu", "nic") and f.physical_function is None]
    shown = texts(picture(host, name))
    for address in wanted:
        assert len([text for text in shown if text.endswith(f" {address}")]) == 1


@pytest.mark.parametrize("name", NAMES)
def test_boxes_are_inside_their_parents_and_do_not_overlap(recording, name):
    svg = picture(recording(name), name)
    nodes, complexes = rectangles(svg, "sl-node"), rectangles(svg, "sl-complex")
    devices, paper = rectangles(svg, "sl-device", "sl-passed"), rectangles(svg, "sl-paper")
    assert devices
    for inner, outer in ((nodes, paper), (complexes, nodes), (devices, complexes)):
        for box in inner:
            assert sum(inside(box, other) for other in outer) == 1
    for boxes in (nodes, complexes, devices):
        for index, box in enumerate(boxes):
            assert all(apart(box, other) for other in boxes[index + 1 :])


def test_passed_through_devices_are_highlighted_with_their_guest_address(recording):
    host = recording("emulated-gpu-server")
    svg = picture(host, "hv01", {"0000:13:00.0": "0000:21:00.0", "0000:15:10.0": "0000:22:00.0"})
    assert len(rectangles(svg, "sl-passed")) == 2 + 1  # and the sample in the legend
    shown = texts(svg)
    assert "guest 21:00.0" in shown
    assert "guest 22:00.0" in shown
    assert "VF 15:10.0" in shown
    assert "VF 15:10.2" not in shown


def test_host_and_guest_are_drawn_side_by_side(recording):
    host = recording("emulated-gpu-server")
    svg = side_by_side(host, host, {"0000:13:00.0": "0000:83:00.0"})
    shown = texts(svg)
    assert shown.index("Host") < shown.index("Guest")
    assert "guest 83:00.0" in shown
    assert "host 13:00.0" in shown
    root = ElementTree.fromstring(svg)
    alone = ElementTree.fromstring(picture(host, "Host"))
    assert int(root.get("width", "0")) > int(alone.get("width", "0"))
    assert svg == side_by_side(host, host, {"0000:13:00.0": "0000:83:00.0"})


def test_the_picture_shows_nodes_ports_acs_drivers_and_links_as_text(recording):
    shown = texts(picture(recording("emulated-gpu-server"), "hv01"))
    for text in (
        "NUMA node 0",
        "CPUs 0-3 · 2.8 GiB",
        "No NUMA node",
        "pci0000:10",
        "10:00.0 root port → 11:00.0 switch",
        "10:00.0 ACS 0x1d · 11:00.0 no ACS",
        "ACS 0x1d",
        "in use",
        "igb · group 18 · 2.5 GT/s x1 · 2 of 7 VFs",
        "7 other functions",
    ):
        assert text in shown


def test_ports_without_relevant_devices_are_counted_as_other_functions(recording):
    shown = texts(picture(recording("llnl-corona"), "corona"))
    assert "40:08.2" not in shown
    assert "2 other functions" in shown
    assert "1002:66a1" in shown  # hwloc has no drivers, so the ids are shown
    assert "no driver" not in shown


def test_special_and_control_characters_in_text_are_escaped(recording):
    host = recording("emulated-gpu-server")
    host.function("0000:14:00.0").driver = "<script>&\"'\x00"
    host.function("0000:14:00.0").interfaces = {"net": ["a<b>"]}
    host.root_complexes[1].name = "pci<&>"
    for function in host.functions:
        if function.root_complex == "pci0000:10":
            function.root_complex = "pci<&>"
    svg = picture(host, "a \"quoted\" <name> & 'more'\x01")
    assert "<script" not in svg
    shown = texts(svg)
    assert "pci<&>" in shown
    assert "a<b>" in shown
    assert any(text.startswith("<script>&\"'\ufffd") for text in shown)
    assert ElementTree.fromstring(svg).get("aria-label") == "a \"quoted\" <name> & 'more'\ufffd"


@pytest.mark.parametrize("name", NAMES)
def test_no_detail_of_a_real_host_is_truncated(recording, name):
    host = recording(name)
    for node in host.numa_nodes:
        node.huge_pages = [HugePages(2 << 20, 64, 64), HugePages(1 << 30, 1000, 1000)]
    for function in host.functions:
        if function.kind == "nic":
            function.driver, function.iommu_group = "mlx5_core", 1234
    shown = texts(picture(host, name))
    assert [text for text in shown if "…" in text] == []
    assert any("1000 huge pages of 1 GiB" in text for text in shown)


def test_an_overlong_word_is_truncated_and_complete_in_the_tooltip(recording):
    host = recording("emulated-gpu-server")
    host.function("0000:14:00.0").driver = "d" * 500
    svg = picture(host, "c" * 500)
    assert max(len(text) for text in texts(svg)) < 80
    assert any(text.endswith("d…") for text in texts(svg))
    titles = [item.text or "" for item in ElementTree.fromstring(svg).iter(f"{SVG}title")]
    assert "d" * 500 in titles


def test_the_legend_explains_only_the_colours_in_the_picture(recording):
    host = recording("emulated-gpu-server")
    svg = side_by_side(host, host, {"0000:13:00.0": "0000:83:00.0"})
    for text in ("GPU", "NIC", "passed through, with its address on the other side", "in use: by the host itself"):
        assert text in texts(svg)
    assert "NVMe" not in texts(svg)
    paper = rectangles(svg, "sl-paper")[0]
    ends = [(int(item.get("x", "0")), int(item.get("y", "0")), len(item.text or "")) for item in legend(svg)]
    assert all(x + 6 * length <= paper[2] and y < paper[3] for x, y, length in ends)
    assert "GPU" not in texts(picture(Host([NumaNode(0, [0], [[0]], 0)], [], []), "no device"))


def test_legend_entries_that_fit_are_in_one_row():
    kinds = ("gpu", "nic", "nvme")
    functions = [
        Function(f"0000:00:0{number}.0", "pci0000:00", None, 0, 0, 0, kind, "endpoint")
        for number, kind in enumerate(kinds)
    ]
    host = Host([NumaNode(0, [0], [[0]], 1)], [RootComplex("pci0000:00", 0, 0, 0)], functions)
    svg = picture(host, "h")
    samples = [box for box in rectangles(svg, *(f"sl-{kind}" for kind in kinds)) if box[3] == 12]
    assert len(samples) == len(kinds)
    assert len({y for _x, y, _width, _height in samples}) == 1


def legend(svg):
    every = list(ElementTree.fromstring(svg).iter(f"{SVG}text"))
    return every[[item.text for item in every].index("GPU") :]


def test_the_picture_loads_no_external_resources(recording):
    svg = picture(recording("emulated-gpu-server"), "hv01")
    assert re.findall(r"https?://[^\"]+", svg) == ["http://www.w3.org/2000/svg"]
    assert "@import" not in svg
    assert "url(" not in svg


def test_every_style_is_defined_for_light_and_dark_mode(recording):
    svg = picture(recording("emulated-gpu-server"), "hv01", {"0000:13:00.0": "0000:21:00.0"})
    light, dark = svg.split("@media (prefers-color-scheme:dark)")
    coloured = (
        "sl-paper",
        "sl-node",
        "sl-complex",
        "sl-bridge",
        "sl-device",
        "sl-passed",
        "sl-wire",
        "sl-ink",
        "sl-gpu",
    )
    for style in coloured:
        assert f".{style}{{" in light
        assert f".{style}{{" in dark


def test_a_host_without_cpus_memory_and_devices_is_drawn(recording):
    host = Host([NumaNode(0, [], [], 0)], [], [])
    assert texts(picture(host, "empty")) == ["empty", "NUMA node 0", "no CPUs · no memory"]


def test_addresses_include_the_domain_if_there_are_two_domains():
    functions = [
        Function(f"{domain}:00:00.0", f"pci{domain}:00", None, 0x030200, 0x10DE, 0, "gpu", "endpoint")
        for domain in ("0000", "0001")
    ]
    complexes = [RootComplex("pci0000:00", 0, 0, 0), RootComplex("pci0001:00", 1, 0, 0)]
    shown = texts(picture(Host([NumaNode(0, [0], [[0]], 1 << 40)], complexes, functions), "two domains"))
    assert "GPU 0000:00:00.0" in shown
    assert "GPU 0001:00:00.0" in shown
    assert "CPUs 0 · 1 TiB" in shown


def test_nodes_known_only_from_functions_are_drawn(recording):
    host = copy.deepcopy(recording("emulated-gpu-server"))
    del host.numa_nodes[1]
    assert [block.title for block in Blocks(host, {}, "guest").build()] == [
        "NUMA node 0",
        "NUMA node 1",
        "No NUMA node",
    ]


def test_a_node_shows_its_allocated_huge_pages():
    node = NumaNode(0, [0, 1, 2, 8], [], 3 << 29, huge_pages=[HugePages(2 << 20, 0, 0), HugePages(1 << 30, 4, 4)])
    assert "CPUs 0-2,8 · 1.5 GiB · 4 huge pages of 1 GiB" in texts(picture(Host([node], [], []), "h"))


@given(st.text(), st.text(), st.text())
def test_any_text_gives_well_formed_xml(caption, driver, other_side):
    function = Function("0000:00:01.0", "pci0000:00", None, 0x030200, 0, 0, "gpu", None, driver=driver)
    host = Host([NumaNode(0, [0], [[0]], 1)], [RootComplex("pci0000:00", 0, 0, 0)], [function])
    ElementTree.fromstring(picture(host, caption, {"0000:00:01.0": "0000:21:00.0"}, other_side))


@pytest.mark.parametrize("name", NAMES)
def test_the_text_of_a_device_is_inside_its_box(recording, name):
    host = recording(name)
    gpus = [item.address for item in host.functions if item.kind == "gpu"]
    seen = 0
    for group in ElementTree.fromstring(picture(host, name, {gpu: gpu for gpu in gpus})).iter(f"{SVG}g"):
        boxes = [
            tuple(int(item.get(key, "0")) for key in ("x", "y", "width", "height")) for item in group.iter(f"{SVG}rect")
        ]
        if not boxes:  # a port or a bridge
            continue
        seen += 1
        assert all(inside(part, boxes[0]) for part in boxes[1:])
        # The coloured box is as far from the top as from the bottom.
        assert boxes[1][1] - boxes[0][1] == boxes[0][1] + boxes[0][3] - boxes[1][1] - boxes[1][3] == 7
        for item in group.iter(f"{SVG}text"):
            assert boxes[0][1] < int(item.get("y", "0")) < boxes[0][1] + boxes[0][3]
            if "sl-on-label" in item.get("class", ""):
                assert len(item.text or "") * 6 <= boxes[2][2]
    assert seen >= len(gpus) > 0


def test_a_long_detail_is_wrapped_to_the_next_line(recording):
    host = recording("emulated-gpu-server")
    gpu = host.function("0000:13:00.0")
    gpu.driver, gpu.iommu_group = "d" * 40, 7
    (group,) = [
        group
        for group in ElementTree.fromstring(picture(host, "hv01")).iter(f"{SVG}g")
        if any(text.text == "GPU 13:00.0" for text in group.iter(f"{SVG}text"))
    ]
    top = int(next(group.iter(f"{SVG}rect")).get("y", "0"))
    texts = {text.text: int(text.get("y", "0")) - top for text in group.iter(f"{SVG}text")}
    first, *others = [(text, y) for text, y in texts.items() if y > 17]
    assert first == ("d" * 40, 33)
    assert [y for _text, y in others] == [47]
    assert others[0][0].startswith("group 7 · ")


def test_the_corner_radius_is_constant_per_style_and_larger_for_larger_boxes(recording):
    corners = {}
    for item in ElementTree.fromstring(picture(recording("emulated-gpu-server"), "hv01")).iter(f"{SVG}rect"):
        corners.setdefault(item.get("class"), set()).add(item.get("rx"))
    assert {style: corners[f"sl-{style}"] for style in ("node", "complex", "bridge", "device", "gpu")} == {
        "node": {"10"}, "complex": {"8"}, "bridge": {"8"}, "device": {"5"}, "gpu": {"2"},
    }  # fmt: skip


def test_an_empty_stack_has_no_height():
    assert draw_stack([], 0, 0, 100) == ([], 0)


def test_a_tooltip_lists_the_properties_that_were_read_of_a_device():
    function = Function(
        "0000:00:01.0", "pci0000:00", None, 0x020700, 0x15B3, 0x1021, "nic", "endpoint", driver="mlx5_core",
        numa_node=0, iommu_group=7, link=Link(16.0, 8, 32.0, 16), max_read_request_bytes=4096, ats=Ats(True, 0),
        used_by_host=["carries the default route"],
    )  # fmt: skip
    host = Host([NumaNode(0, [0], [[0]], 1)], [RootComplex("pci0000:00", 0, 0, 0)], [function])
    titles = [item.text for item in ElementTree.fromstring(picture(host, "h")).iter(f"{SVG}title")]
    assert titles == [
        "0000:00:01.0 class 020700, 15b3:1021\nNUMA node 0, IOMMU group 7, driver mlx5_core\n"
        "link 16 GT/s x8, at most 32 GT/s x16\nMaxReadReq 4096 bytes\nATS on\ncarries the default route"
    ]
    function.link, function.max_read_request_bytes, function.ats, function.used_by_host = None, None, Ats(False, 0), []
    (title,) = [item.text for item in ElementTree.fromstring(picture(host, "h")).iter(f"{SVG}title")]
    assert title.splitlines()[2:] == ["ATS off"]


@pytest.mark.parametrize("name", NAMES)
def test_a_tooltip_leaves_out_what_is_not_known(recording, name):
    assert "None" not in picture(recording(name), name)


def test_a_tooltip_of_a_link_leaves_out_what_is_not_known():
    assert [
        link_text(Link(*link))
        for link in [(16.0, 8, None, None), (None, None, 32.0, 16), (None, 4, 2.5, None), (None, None, None, None)]
    ] == ["link 16 GT/s x8", "at most 32 GT/s x16", "link x4, at most 2.5 GT/s", ""]
