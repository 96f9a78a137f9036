# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Purchases and moves from one blueprint to the next."""

from __future__ import annotations

from pathlib import Path

import sites

from ansible_collections.sailloft.fleet.plugins.module_utils.site.output.difference import difference

# SAILLOFT_WRITE_SITES=1 writes the files again.
FILES = Path(__file__).parent / "harbour"


def test_equal_sites_have_no_differences():
    assert difference(sites.site(), sites.site()) == []


def test_an_added_scalable_unit_gives_only_additions():
    text = (sites.PROJECT / "inventories/blue_vela/blueprint.yml").read_text()
    text = text.replace("pod: {count: 4,", "pod: {count: 1,")
    after = text.replace("su: {inside: pod, count: 4}", "su: {inside: pod, count: 5}").replace("ib[1:32]", "ib[1:40]")
    after = after.replace("ib[33:64]", "ib[41:72]")
    before = sites.from_text(text.replace("ib[1:32]", "ib[1:40]").replace("ib[33:64]", "ib[41:72]"))
    lines = difference(before, sites.from_text(after))
    assert lines[:6] == [
        "add 32 nodes: node-[0129-0160]",
        "add 8 leaf: leaf-05-[1-8]",
        "add 2 storage_leaf: storage-leaf-05-[1-2]",
        "add 2 inband_leaf: inband-leaf-05-[1-2]",
        "add 1 oob: oob-05",
        "lay 256 cables of rails",
    ]
    assert "buy 32 device XE9680" in lines
    assert "buy 8 rack rack, 48 units" in lines
    assert lines[-1].startswith("power +344.35 kW")
    assert not [line for line in lines if line.startswith(("remove", "move", "change", "replace"))]


def test_moved_devices_and_changed_addresses_are_listed():
    lines = difference(sites.site(), sites.site(devices__leaf__unit=30, networks__management__network="10.5.0.0/24"))
    assert lines[:4] == [
        "change the addresses of 4 node: gpu[01-04]",
        "move to another place 4 leaf: leaf[1-2]-[1-2]",
        "change the addresses of 4 leaf: leaf[1-2]-[1-2]",
        "change the addresses of 2 spine: spine[1-2]",
    ]
    assert "replace 16 cables of fabric" in lines
    assert "spare 8 cable dac 100G 3 m" in lines


def test_removed_devices_and_cables_are_listed():
    lines = difference(sites.site(), sites.site(devices__node__total=3))
    assert lines[:3] == ["remove 1 node: gpu04", "remove 4 cables of fabric", "spare 4 cable dac 100G 2.5 m"]


def test_every_kind_of_difference_is_listed():
    before = sites.harbour(
        ("total: 7", "total: 6"),
        ("watts: 50.5", "watts: 40"),
        ("unit: 12, count: 2", "unit: 13, count: 2"),
        ("backbone: 5", "backbone: 7"),
        (
            "ports: lan, to: lan_switch, to_ports: lan, medium: aoc",
            "ports: lan, to: lan_switch, to_ports: lan, medium: dac",
        ),
        ("  partners: {from", "  mates: {from"),
    )
    text = "".join(f"{line}\n" for line in difference(before, sites.harbour()))
    text += "and back:\n" + "".join(f"{line}\n" for line in difference(sites.harbour(), before))
    assert text == sites.stored(FILES / "difference.txt", text)
