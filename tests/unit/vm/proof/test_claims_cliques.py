# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Whole claims about the cliques of GPUs in the arguments of QEMU."""

from __future__ import annotations

from typing import Any

import gpudirect_servers
import pytest

from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.model import Bar
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.plan.plan import DomainPlan
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.plan.planner import plan_domains
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.proof import guest_xml
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.proof.evidence import Evidence, Running
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.request.parse import parse_specs


@pytest.fixture
def plan() -> DomainPlan:
    host = gpudirect_servers.pcie_cards()
    for function in host.functions:
        if function.kind == "gpu":
            function.bars = [Bar(0, 1 << 36, "memory", 64, True)]
    spec = {"name": "vm", "memory_mib": 4096, "vcpus": 2, "gpus": {"count": 4}, "host_cores_per_socket": 0}
    return plan_domains(host, parse_specs([spec]))[0]


def claims(plan: DomainPlan, *arguments: str) -> list[tuple[str, Any, Any]]:
    evidence = Evidence("hv01", plan, Running(qemu_arguments=list(arguments)))
    found = list(guest_xml.cliques(evidence))
    assert {claim.source for claim in found} == {"hv01 /proc/PID/cmdline of QEMU, -device vfio-pci"}
    return [(claim.wanted, claim.seen, claim.holds) for claim in found]


def of(gpu: str, number: int, driver: str = "vfio-pci", option: str = "-device") -> tuple[str, str]:
    return option, f"{driver},host={gpu},x-nv-gpudirect-clique={number}"


def test_each_gpu_of_a_clique_has_a_claim_that_names_the_others(plan):
    (first, second), (third, fourth) = (clique.gpus for clique in plan.cliques.cliques)
    evidence = Evidence("hv01", plan, Running(qemu_arguments=[]))
    assert [claim.claim for claim in guest_xml.cliques(evidence)] == [
        f"GPU {gpu} may reach {other} by PCIe (x-nv-gpudirect-clique)"
        for gpu, other in ((first, second), (second, first), (third, fourth), (fourth, third))
    ]


def test_only_the_argument_of_the_gpu_itself_counts(plan):
    (first, second), (third, fourth) = (clique.gpus for clique in plan.cliques.cliques)
    arguments = [*of(first, 0), *of(second, 1), *of(third, 1, driver="vfio-user"), *of(fourth, 1, option="-object")]
    assert claims(plan, *arguments) == [
        ("0", "0", True),
        ("0", "1", False),
        ("1", None, False),
        ("1", None, False),
    ]


@pytest.mark.parametrize("last", [True, False])
def test_no_clique_counts_if_kvm_is_hidden(plan, last):
    every = [word for clique in plan.cliques.cliques for gpu in clique.gpus for word in of(gpu, clique.number)]
    hidden = ["-cpu", "host,kvm=off"]
    arguments = [*every, *hidden] if last else [*hidden, *every]
    told = "ignored: KVM is hidden from the guest (kvm=off)"
    assert [(seen, holds) for _wanted, seen, holds in claims(plan, *arguments)] == [(told, False)] * 4
    assert [holds for _wanted, _seen, holds in claims(plan, *every, "-cpu", "host,kvm=on")] == [True] * 4
    assert [holds for _wanted, _seen, holds in claims(plan, *every, "-machine", "q35,kvm=off")] == [True] * 4
