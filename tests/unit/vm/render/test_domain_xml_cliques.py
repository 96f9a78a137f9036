# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""GPUDirect P2P cliques in the definition, and definitions in which one is changed, missing or left over."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET

import gpudirect_servers as servers
import pytest
from domain_schema import assert_valid, needs_schema

from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.model import Bar
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.drift.plan import ROWS
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.libvirt.xml_diff import differences
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.plan.plan import DomainPlan
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.plan.planner import plan_domains
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.proof import guest_xml
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.proof.evidence import Evidence, Running
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.render.domain_xml import render
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.request.parse import parse_specs

QEMU = "{http://libvirt.org/schemas/domain/qemu/1.0}"


def planned(host, count=4, **more):
    for function in host.functions:
        if function.kind == "gpu":
            function.bars = [Bar(0, 1 << 36, "memory", 64, True)]
    spec = {
        "name": "vm",
        "memory_mib": 4096,
        "huge_page_mib": 1024,
        "vcpus": 2,
        "gpus": {"count": count},
        "host_cores_per_socket": 0,
        **more,
    }
    return plan_domains(host, parse_specs([spec]))[0]


def claimed(plan, arguments):
    evidence = Evidence("hv01", plan, Running(qemu_arguments=arguments))
    return [(claim.wanted, claim.seen, claim.holds) for claim in guest_xml.cliques(evidence)]


def properties(xml):
    """Return {alias: the clique}."""
    root = ET.fromstring(xml)
    return {
        device.get("alias"): device.find(f"{QEMU}frontend/{QEMU}property").attrib
        for device in root.iterfind(f"{QEMU}override/{QEMU}device")
    }


@needs_schema
def test_the_clique_of_each_gpu_is_set_by_its_alias():
    plan = planned(servers.pcie_cards())
    xml = render(plan)
    aliases = {item.get("name") for item in ET.fromstring(xml).iterfind("devices/hostdev/alias")}
    found = properties(xml)
    assert set(found) == aliases
    assert sorted(item["value"] for item in found.values()) == ["0", "0", "1", "1"]
    assert {(item["name"], item["type"]) for item in found.values()} == {("x-nv-gpudirect-clique", "unsigned")}
    assert len(plan.to_dict()["gpudirect_cliques"]) == 2
    assert DomainPlan.from_dict(plan.to_dict(), plan.host).to_dict() == plan.to_dict()
    assert_valid(xml)


def test_a_plan_without_cliques_has_no_alias_and_no_override():
    for plan in (planned(servers.pcie_cards(), gpudirect_cliques=False), planned(servers.pcie_cards(), count=1)):
        xml = render(plan)
        assert (properties(xml), ET.fromstring(xml).find("devices/hostdev/alias")) == ({}, None)


def test_a_note_gives_the_reason_why_gpus_are_in_no_clique():
    assert [note for note in planned(servers.pcie_cards()).notes if "they are on different NUMA nodes" in note]


@pytest.mark.parametrize(
    ("old", "new", "path"),
    [
        ('type="unsigned" value="0"', 'type="unsigned" value="7"', "/@value"),
        ('alias name="ua-hostdev', 'alias name="ua-other', "devices/hostdev["),
        ("<qemu:override>", '<qemu:override><qemu:device alias="ua-x"/>', "qemu:override/qemu:device[ua-x]"),
    ],
)
def test_a_changed_clique_or_alias_is_a_difference(old, new, path):
    xml = render(planned(servers.pcie_cards()))
    assert old in xml
    assert [item for item in differences(xml, xml.replace(old, new, 1)) if path in item.path and not item.unknown]
    assert differences(xml, xml) == []


def test_missing_or_additional_cliques_are_differences():
    with_it, without = (render(planned(servers.pcie_cards(), gpudirect_cliques=on)) for on in (True, False))
    assert "qemu:override" in [item.path for item in differences(with_it, without)]
    (left_over,) = [item for item in differences(without, with_it) if not item.unknown and "qemu" in item.path]
    assert (left_over.path, left_over.wanted) == ("qemu:override", None)


def test_the_proof_reads_the_cliques_of_the_running_guest():
    plan = planned(servers.pcie_cards())
    clique_of = {gpu: clique.number for clique in plan.cliques.cliques for gpu in clique.gpus}
    devices = [
        word
        for gpu, number in clique_of.items()
        for word in ("-device", f'{{"driver":"vfio-pci","host":"{gpu}","x-nv-gpudirect-clique":{number}}}')
    ]
    assert [holds for _wanted, _seen, holds in claimed(plan, ["-cpu", "host,migratable=off", *devices])] == [True] * 4
    assert {holds for _wanted, _seen, holds in claimed(plan, devices[:-2])} == {True, False}
    without = [word.replace("x-nv-gpudirect-clique", "x-other") for word in devices]
    assert {seen for _wanted, seen, _holds in claimed(plan, without)} == {"none"}
    assert {seen for _wanted, seen, _holds in claimed(plan, None)} == {None}


def test_clique_claims_fail_if_kvm_is_hidden_from_the_guest():
    plan = planned(servers.pcie_cards())
    found = claimed(plan, ["-cpu", "host,kvm=off"])
    assert {(seen, holds) for _wanted, seen, holds in found} == {
        ("ignored: KVM is hidden from the guest (kvm=off)", False)
    }


def test_drift_of_a_clique_has_its_consequence():
    row = next(row for row in ROWS if re.fullmatch(row.pattern, "qemu:override/qemu:device[ua-x]"))
    assert re.fullmatch(row.pattern, "devices/hostdev[0000:03:00.0]/alias/@name")
    assert row.consequence == "GPUs without NVLink reach each other through memory"
