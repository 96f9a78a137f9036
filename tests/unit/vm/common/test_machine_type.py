# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

from typing import Any

import pytest
from machines import hypervisor, lab, observed, plan, request
from messages import raises

from ansible_collections.sailloft.fleet.plugins.module_utils.vm.common import machine_type
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.common.errors import DomainError
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.libvirt.actions import decide
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.libvirt.xml_diff import differences
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.observed.hypervisor import (
    Accelerator,
    Hypervisor,
    ObservedDomain,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.preflight import checks
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.preflight.findings import RefusedError
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.render.domain_xml import render
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.request.parse import parse_specs

# The version names of the distributions' QEMU packages.
VERSIONS = (
    "pc-q35-2.10",
    "pc-q35-4.0.1",
    "pc-q35-7.2",
    "pc-q35-10.0",
    "pc-q35-rhel7.6.0",
    "pc-q35-rhel8.6.0",
    "pc-q35-rhel9.4.0",
    "pc-q35-rhel10.0.0",
    "pc-q35-8.2",
    "pc-q35-noble",
    "pc-q35-jammy",
    "pc-q35-jammy-hpb",
    "pc-q35-6.2-hpb",
    "pc-q35-focal-hpb",
)
OTHERS = (
    "pc-q35-9.0+x",
    "q35",
    "pc",
    "pc-i440fx-7.2",
    "pc-i440fx-rhel7.6.0",
    "pc-i440fx-noble",
    "microvm",
    "pc-q35-",
    "pc-q35- 1",
    "",
)


@pytest.mark.parametrize("version", VERSIONS)
def test_names_of_q35_versions_are_accepted(version: str) -> None:
    assert machine_type.is_version(version)


@pytest.mark.parametrize("other", OTHERS)
def test_other_machine_names_are_not_q35_versions(other: str) -> None:
    assert not machine_type.is_version(other)


def on_host(*machines: str, domain: ObservedDomain | None = None) -> Hypervisor:
    """Return a host whose q35 is the last of ``machines``."""
    one = Accelerator(288, ["bios", "efi"], machines[-1], dict.fromkeys(machines, 288))
    return hypervisor(accelerators={"kvm": one}, domains={domain.name: domain} if domain else {})


def defined(machine: str, running: bool = False, **changes: Any) -> ObservedDomain:
    """Return the lab's virtual machine as it was defined by a host whose q35 was ``machine``."""
    return observed(plan(hypervisor=on_host(machine), **changes), running)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_second_run_takes_no_action_with_the_same_or_a_newer_qemu(version: str) -> None:
    """The host has the QEMU of that version, or a newer one."""
    for host in (on_host(version), on_host(version, "pc-q35-99.0")):
        have = defined(version, running=True)
        host.domains = {have.name: have}
        made = plan(hypervisor=host)
        assert made.machine == version
        decision = decide(made.name, "running", have, render(made), made.spec.uuid, True, allow_restart=True)
        assert (decision.actions, decision.differences, decision.live_differences) == ([], [], [])


def test_a_new_domain_gets_the_version_that_the_alias_q35_resolves_to() -> None:
    assert plan(hypervisor=on_host("pc-q35-noble", "pc-q35-8.2")).machine == "pc-q35-8.2"
    assert 'machine="pc-q35-8.2"' in render(plan(hypervisor=on_host("pc-q35-8.2")))
    # Without a connection to libvirt the alias stays, and libvirt resolves it.
    assert 'machine="q35"' in render(plan())


def test_a_change_of_another_setting_keeps_the_version() -> None:
    have = defined("pc-q35-8.2", running=True)
    made = plan(hypervisor=on_host("pc-q35-8.2", "pc-q35-10.0", domain=have), vcpus=2)
    assert 'machine="pc-q35-8.2"' in render(made)
    assert not [item for item in differences(render(made), have.inactive_xml) if "machine" in item.path]


def test_a_note_reports_a_newer_version_and_the_domain_keeps_its_version() -> None:
    told = (
        "the virtual machine keeps machine type pc-q35-8.2; a new one would get pc-q35-10.0 on this host; machine: "
        "pc-q35-10.0 changes it, and the guest's hardware with it, at the next start"
    )
    newer = on_host("pc-q35-8.2", "pc-q35-10.0", domain=defined("pc-q35-8.2"))
    assert [note for note in plan(hypervisor=newer).notes if "machine" in note] == [told]
    assert plan(hypervisor=newer).to_dict()["machine"] == "pc-q35-8.2"
    # There is no note for a new machine, for one with the newest version, and for one whose user pinned the version.
    same = on_host("pc-q35-8.2", domain=defined("pc-q35-8.2"))
    for made in (
        plan(hypervisor=on_host("pc-q35-8.2")),
        plan(hypervisor=same),
        plan(hypervisor=newer, machine="pc-q35-8.2"),
    ):
        assert [note for note in made.notes if "machine" in note] == []


def test_a_pinned_version_is_defined_and_needs_a_restart() -> None:
    have = defined("pc-q35-8.2", running=True)
    made = plan(hypervisor=on_host("pc-q35-8.2", "pc-q35-10.0", domain=have), machine="pc-q35-10.0")
    decision = decide(made.name, "running", have, render(made), made.spec.uuid, True, allow_restart=False)
    assert (decision.actions, decision.restart_required) == (["define"], True)
    assert [(item.path, item.wanted, item.have) for item in decision.differences] == [
        ("os/type/@machine", "pc-q35-10.0", "pc-q35-8.2")
    ]


@pytest.mark.parametrize(
    ("pinned", "domain", "what", "why"),
    [
        ("pc-q35-11.0", None, "pc-q35-11.0", "its setting machine requests it"),
        ("q35", "pc-q35-2.4", "pc-q35-2.4", "it was defined with that machine type, and QEMU cannot start it"),
    ],
)
def test_a_version_that_qemu_lacks_is_refused(pinned: str, domain: str | None, what: str, why: str) -> None:
    host = on_host("pc-q35-10.0", "pc-q35-9.2", "pc-q35-9.0", domain=defined(domain) if domain else None)
    made = plan(hypervisor=host, machine=pinned)
    with pytest.raises(RefusedError) as caught:
        checks.check([made], lab(), host, set(), set(), paths_may_come=True)
    assert [(item.what, item.why, item.remedy) for item in caught.value.findings if item.severity == "refuse"] == [
        (f"QEMU on this host has no machine {what}", why, "set machine to one of pc-q35-9.0, pc-q35-9.2, pc-q35-10.0")
    ]


def test_the_vcpu_limit_is_that_of_the_machine_version() -> None:
    old_and_new = Accelerator(4096, ["efi"], "pc-q35-10.0", {"pc-q35-7.2": 2, "pc-q35-8.2": 0, "pc-q35-10.0": 4096})
    host = hypervisor(accelerators={"kvm": old_and_new})
    assert plan(hypervisor=host).to_dict()["vcpus"] == 4
    assert plan(hypervisor=host, machine="pc-q35-8.2").to_dict()["vcpus"] == 4
    with raises(DomainError, "vcpus 4", "2"):
        plan(hypervisor=host, machine="pc-q35-7.2")


@pytest.mark.parametrize("machine", ["pc", "pc-i440fx-7.2", "pc-q35-8.2\n", "PC-Q35-8.2", ""])
def test_a_machine_setting_that_is_not_a_q35_version_is_refused(machine: str) -> None:
    with raises(DomainError, "gpu-vm", "machine", repr(machine) if machine else "empty"):
        parse_specs([request(machine=machine)])


def test_an_unknown_element_of_the_definition_changes_nothing() -> None:
    have = defined("pc-q35-8.2", running=True)
    have.inactive_xml = have.inactive_xml.replace("</devices>", "</devices><later>x</later>")
    made = plan(hypervisor=on_host("pc-q35-8.2", domain=have))
    decision = decide(made.name, "running", have, render(made), made.spec.uuid, True, allow_restart=True)
    assert decision.actions == []
    assert [(item.path, item.unknown) for item in decision.differences] == [("later", True)]
