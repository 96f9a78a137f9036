# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The record of passed-through devices: its content, and that it can be read back from a domain's XML."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from dataclasses import replace

from machines import bridge, endpoint, lab

from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.model import Link
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.render import host_record

NAME = "pci0000:10"
ROOT, PORT, GPU, OTHER, VF = "0000:10:01.0", "0000:11:00.0", "0000:12:00.0", "0000:12:00.1", "0000:12:00.2"
FAST = Link(None, None, 32.0, 16)


def functions(**of_gpu):
    root = bridge(ROOT, None, NAME, "root_port")
    port = bridge(PORT, ROOT, NAME, "switch_upstream")
    gpu = replace(endpoint(GPU, PORT, NAME), iommu_group=3, link=FAST, **of_gpu)
    other = replace(endpoint(OTHER, PORT, NAME, "nic"), iommu_group=3)
    vf = replace(endpoint(VF, PORT, NAME, "nic"), physical_function=GPU)
    return {item.address: item for item in (replace(root, iommu_group=3), port, gpu, other, vf)}


def test_a_record_has_the_path_and_the_other_members_of_the_group():
    known = functions()
    found = host_record.record(known, GPU, 1)
    assert (found.path, found.group, found.node, found.kind) == (f"{NAME} {ROOT} {PORT}", OTHER, "1", "gpu")
    assert found.link == "32 GT/s x16"
    assert found.model == f"{known[GPU].vendor_id:04x}:{known[GPU].device_id:04x}"
    assert host_record.record(functions(), OTHER).group == GPU
    assert host_record.record(functions(), GPU).node == ""


def test_the_record_of_a_function_without_a_group_has_no_members():
    found = host_record.record(functions(), VF)
    assert (found.group, found.kind) == ("", "VF")


def test_a_loop_or_a_gap_ends_the_path():
    known = functions()
    known[ROOT].parent = PORT
    assert host_record.record(known, GPU).path == f"{NAME} {ROOT} {PORT}"
    known[PORT].parent = "0000:99:00.0"
    assert host_record.record(known, GPU).path == f"{NAME} {PORT}"


def test_the_limit_of_a_link_is_what_both_ends_support():
    known = functions()
    slow = Link(None, None, 16.0, 8)
    known[PORT].link = slow
    for port_type, limit in (
        ("switch_downstream", (16.0, 8)),
        ("root_port", (16.0, 8)),
        (None, (16.0, 8)),
        ("switch_upstream", (32.0, 16)),
    ):
        known[PORT].port_type = port_type
        assert host_record.link_limit(known, known[GPU]) == limit
        assert host_record.link_limit(known, known[VF]) == limit  # the link of its physical function
    known[GPU].link = Link(None, None, 8.0, None)
    known[PORT].link = None
    assert host_record.link_limit(known, known[GPU]) == (8.0, None)
    known[GPU].link = None
    assert host_record.link_limit(known, known[GPU]) == (None, None)


def test_the_text_of_an_unknown_link_is_empty():
    assert host_record.link_words(2.5, 1) == "2.5 GT/s x1"
    assert host_record.link_words(None, 16) == host_record.link_words(16.0, None) == ""


def test_records_are_read_back_from_the_xml():
    host, domain = lab(), ET.Element("domain")
    host_record.write(domain, host, [])
    assert len(domain) == 0
    assert host_record.read(domain) == {}
    addresses = ["0000:83:00.0", "0000:13:00.0"]
    host_record.write(domain, host, addresses)
    found = host_record.read(ET.fromstring(ET.tostring(domain)))
    known = host.by_address()
    assert list(found) == sorted(addresses)
    for address, row in found.items():
        assert row == host_record.record(known, address, host.node_of(known[address]))
    assert (found["0000:13:00.0"].node, found["0000:83:00.0"].node) == ("0", "1")
