# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Whole findings on machine types, firmware, networks, files and running domains, and the findings themselves."""

from __future__ import annotations

from typing import Any

import pytest
from machines import hypervisor, lab, observed, plan

from ansible_collections.sailloft.fleet.plugins.module_utils.vm.observed.hypervisor import Accelerator
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.preflight import findings, programs
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.preflight.checks import check, of_requests
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.preflight.findings import (
    REFUSE,
    WARN,
    Finding,
    RefusedError,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.request.parse import parse_specs


def of_qemu(*machines: str, firmwares: tuple[str, ...] = ("bios", "efi")) -> Any:
    one = Accelerator(288, list(firmwares), machines[0] if machines else "", dict.fromkeys(machines, 288))
    return hypervisor(accelerators={"kvm": one})


def refusal(what: str, why: str, remedy: str, name: str = "gpu-vm") -> Finding:
    return Finding(name, what, why, remedy, REFUSE)


def test_a_machine_that_qemu_has_or_the_alias_is_no_finding():
    there = of_qemu("pc-q35-7.2", "pc-q35-8.2")
    assert list(programs.machine(plan(machine="pc-q35-8.2"), there)) == []
    assert list(programs.machine(plan(), there)) == []


def test_a_machine_that_qemu_lacks_is_refused_with_those_that_it_has():
    what = "QEMU on this host has no machine pc-q35-6.0"
    remedy = "set machine to one of pc-q35-9.2, pc-q35-10.0"
    there = of_qemu("pc-q35-10.0", "pc-q35-9.2")
    made = plan(machine="pc-q35-6.0")
    assert list(programs.machine(made, there)) == [refusal(what, "its setting machine requests it", remedy)]
    made.spec.machine = "q35"
    defined = "it was defined with that machine type, and QEMU cannot start it"
    assert list(programs.machine(made, there)) == [refusal(what, defined, remedy)]
    assert list(programs.machine(made, of_qemu())) == [
        refusal(what, defined, "set machine to one of those of another QEMU")
    ]


@pytest.mark.parametrize(("firmwares", "missing"), [(("bios", "efi"), False), (("bios",), True), ((), True)])
def test_firmware_that_is_not_installed_is_refused(firmwares, missing):
    assert list(programs.firmware(plan(), of_qemu("pc-q35-7.2", firmwares=firmwares))) == (
        [
            refusal(
                "firmware efi is not available on this host",
                f"libvirt finds no descriptor of it, only {', '.join(firmwares)}",
                "install OVMF (package ovmf or edk2-ovmf)",
            )
        ]
        if missing
        else []
    )


def test_an_old_version_is_refused_for_each_element_and_program():
    made = plan(firmware="bios", physical_address_bits="off", mirror_topology=False)
    old = hypervisor(libvirt_version=(6, 4, 99), qemu_version=(4, 0, 99))
    told = "an older version refuses it or, worse, omits it"
    assert list(programs.versions(made, old)) == [
        refusal(
            "accelerator kvm (cpu mode host-passthrough, migratable) needs libvirt 6.5.0, this host has 6.4.99",
            told,
            "install a newer libvirt, or leave the setting out",
        ),
        refusal(
            "a PCI Express guest (cpu topology with dies) needs QEMU 4.1.0, this host has 4.0.99",
            told,
            "install a newer QEMU, or leave the setting out",
        ),
    ]
    assert list(programs.versions(made, hypervisor(libvirt_version=(6, 5, 0), qemu_version=(4, 1, 0)))) == []


@pytest.mark.parametrize(("qemu", "warned"), [((8, 0, 5), True), ((8, 1, 0), False)])
def test_a_qemu_without_atomic_ops_gives_one_warning_for_all_amd_gpus(qemu, warned):
    host = lab()
    for function in host.functions:
        function.vendor_id = 0x1002 if function.kind == "gpu" else function.vendor_id
    found = list(programs.atomic_operations(plan(host), hypervisor(qemu_version=qemu)))
    assert [(finding.severity, finding.domain) for finding in found] == [("warn", "gpu-vm")] * warned
    assert list(programs.atomic_operations(plan(), hypervisor())) == []


def spec(**more: Any) -> Any:
    (made,) = parse_specs([{"name": "a", **more}])
    return made


def test_networks_must_exist_and_be_active():
    interfaces = [
        {"source": "lan"},
        {"source": "off"},
        {"source": "gone"},
        {"type": "bridge", "source": "br0"},
        {"type": "user"},
    ]
    asked = spec(interfaces=interfaces)
    gone = "define it with virsh net-define, or choose another"
    assert list(programs.networks(asked, hypervisor(networks={"off": False, "lan": True}))) == [
        refusal(
            "libvirt's network off is not active",
            "a virtual machine does not start without its network",
            "start it with virsh net-start off",
            "a",
        ),
        refusal("libvirt has no network gone", "existing networks: lan, off", gone, "a"),
    ]
    assert list(programs.networks(spec(interfaces=[{"source": "x"}]), hypervisor(networks={}))) == [
        refusal("libvirt has no network x", "existing networks: none", gone, "a")
    ]


def test_files_that_nothing_makes_must_exist():
    boot = {"kernel": "/k", "initrd": "/i"}
    asked = spec(disks=[{"path": "/own"}, {"path": "/over", "base": "/base"}], boot=boot)
    every = ["/own", "/over", "/base", "/k", "/i"]
    assert programs.wanted_paths([asked, spec(disks=[{"path": "/z"}]), spec(boot={"kernel": "/k2"})]) == [
        "/own", "/over", "/base", "/z", "/k", "/i", "/k2",
    ]  # fmt: skip
    found = list(programs.paths(asked, hypervisor(missing_paths=every)))
    assert [item.what.split()[0] for item in found] == ["/own", "/base", "/k", "/i"]
    assert found[0] == refusal(
        "/own does not exist on this host",
        "QEMU opens it when it starts",
        "put the file there, or correct the path",
        "a",
    )
    assert list(programs.paths(asked, hypervisor())) == []


@pytest.mark.parametrize("dedicated", [False, True])
def test_a_running_guest_on_pinned_cpus_is_a_warning(dedicated):
    made = plan(kvm_dedicated=dedicated)
    xml = "<domain><vcpu>64</vcpu></domain>"
    db = observed(made, name="db", inactive_xml=xml, live_xml=xml)
    (item,) = programs.shared_cpus(made, hypervisor(domains={"db": db}), set())
    assert (item.severity, "db" in item.what, "kvm_dedicated" in item.why) == (WARN, True, dedicated)
    assert list(programs.shared_cpus(made, hypervisor(domains={"db": db}), {"db"})) == []
    assert list(programs.shared_cpus(plan(pin_cpus=False), hypervisor(domains={"db": db}), set())) == []
    assert item in check([made], lab(), hypervisor(domains={"db": db}), set(), set(), True)


def test_a_device_of_another_running_domain_is_refused():
    first, other = plan(), plan(name="other", gpus={"addresses": ["13:00.0"]}, nics={}, vcpus=1, memory_mib=1024)
    there = hypervisor(domains={"other": observed(other, running=True), "gpu-vm": observed(first, running=True)})
    assert list(programs.still_running([first], there, set())) == [
        refusal(
            "PCI device 0000:13:00.0 is still in the running virtual machine other",
            "its QEMU has the device until it stops, whatever its definition says",
            "restart or stop that virtual machine first",
        )
    ]
    assert list(programs.still_running([first], there, {"other"})) == []
    stopped = hypervisor(domains={"other": observed(other)})
    assert list(programs.still_running([first], stopped, set())) == []


ONE = Finding("a", "what", "why", "remedy")
SLOW = Finding("", "slow", "why", "remedy", WARN)


def test_a_finding_is_a_sentence_about_its_machine_if_it_has_one():
    assert (str(ONE), str(SLOW)) == ("virtual machine a: what: why; remedy", "slow: why; remedy")
    assert ONE.severity == REFUSE


def test_warnings_are_told_once_for_each_host():
    told = findings.warnings([item.to_dict() for item in (ONE, SLOW, SLOW)], "gpu01")
    assert told == ["gpu01: slow: why; remedy"]


def test_a_refusal_numbers_what_refuses_and_keeps_all_findings():
    two = RefusedError([SLOW, ONE, Finding("b", "what", "why", "remedy")])
    assert str(two) == (
        "nothing was touched: 2 problems\n1. virtual machine a: what: why; remedy\n"
        "2. virtual machine b: what: why; remedy"
    )
    assert str(RefusedError([ONE])) == "nothing was touched: 1 problem\n1. virtual machine a: what: why; remedy"
    assert [item["what"] for item in two.result()["findings"]] == ["slow", "what", "what"]


@pytest.mark.parametrize(
    ("source", "refused"),
    [
        ({}, True),
        ({"gpus": {"count": 1}, "nvme": {"count": 0}}, True),
        ({"disks": [{"path": "/a.qcow2"}]}, False),
        ({"disks": [{"path": "/a.iso", "read_only": True}]}, False),
        ({"boot": {"kernel": "/vmlinuz"}}, False),
        ({"interfaces": [{"source": "default"}]}, False),
        ({"nvme": {"count": 1}}, False),
        ({"nics": {"addresses": ["0000:3b:00.0"]}}, False),
    ],
)
def test_a_machine_with_nothing_to_boot_from_is_refused(source, refused):
    (spec,) = parse_specs([{"name": "blank", "memory_mib": 1024, **source}])
    assert [(item.domain, item.severity) for item in programs.boot_source(spec)] == [("blank", "refuse")] * refused
    found = of_requests([spec], hypervisor(networks={"default": True}), paths_may_come=True)
    assert len(found) == refused
