# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Whole XML files: a change of the rendering shows as a diff of files. SAILLOFT_WRITE_XML=1 writes them again."""

from __future__ import annotations

import os
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
from machines import lab, plan
from plans import PLANS, whole_server

from ansible_collections.sailloft.fleet.plugins.module_utils.vm.render.domain_xml import render

FILES = Path(__file__).parent / "xml"


def by_tag(xml: str) -> str:
    """Return the XML with the elements of domain and devices by tag: libvirt ignores the order of different ones."""
    root = ET.fromstring(xml)
    for parent in (root, *root.iterfind("devices")):
        parent[:] = sorted(parent, key=lambda child: child.tag)
    ET.indent(root)
    return ET.tostring(root, encoding="unicode")


@pytest.mark.parametrize("name", PLANS)
def test_the_xml_has_the_elements_of_the_stored_file(name: str) -> None:
    xml = render(PLANS[name]())
    file = FILES / f"{name}.xml"
    if os.environ.get("SAILLOFT_WRITE_XML"):
        file.write_text(xml, encoding="utf-8")
    assert by_tag(xml) == by_tag(file.read_text(encoding="utf-8"))
    assert render(PLANS[name]()) == xml


def test_every_pci_address_and_controller_index_is_unique() -> None:
    for make in PLANS.values():
        root = ET.fromstring(render(make()))
        places = [
            tuple(item.get(key) for key in ("bus", "slot", "function"))
            for item in root.iterfind("devices/*/address[@type='pci']")
        ]
        assert len(set(places)) == len(places)
        indexes = [item.get("index") for item in root.iterfind("devices/controller[@type='pci']")]
        assert len(set(indexes)) == len(indexes)


def test_the_ovmf_window_is_set_only_if_the_default_may_be_too_small() -> None:
    assert "X-PciMmio64Mb,string=1048576" in render(whole_server())
    assert "X-PciMmio64Mb" not in render(plan())
    assert "X-PciMmio64Mb" not in render(plan(firmware="bios", mmio_window_mib=65536))


def test_more_than_255_vcpus_enable_extended_interrupt_mode() -> None:
    host = lab()
    for at, node in enumerate(host.numa_nodes):
        node.siblings = [[cpu] for cpu in range(at * 256, at * 256 + 256)]
    assert 'eim="on"' in render(plan(host, vcpus=288, guest_iommu=True))
    assert 'eim="on"' not in render(plan(host, vcpus=254, guest_iommu=True))


def test_disks_after_vdz_have_names_with_two_letters() -> None:
    xml = render(plan(disks=[{"path": f"/disk-{number}"} for number in range(28)]))
    assert [f'dev="vd{letters}"' in xml for letters in ("a", "z", "aa", "ab", "ac")] == [True, True, True, True, False]
