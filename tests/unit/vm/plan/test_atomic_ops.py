# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""AMD's GPUs, which need PCIe AtomicOps, below the switches of a host and in the guest."""

from __future__ import annotations

import gpudirect_servers as servers
import pytest
from machines import plan

from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.model import AtomicOps, Host
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.paths import pairs
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.read.nccl import read_nccl
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.plan import predicted_guest
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.plan.plan import DomainPlan
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.proof import guest_os
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.proof.evidence import Evidence
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.render.nccl_topology import render

MI300X = (0x1002, 0x74A1)
REQUEST = {"gpus": {"count": 8}, "nics": {"per_gpu": 1, "functions": "pf"}, "vcpus": 2, "huge_page_mib": 0}
SHARED_PAIRS = 8


def amd(**ops: object) -> Host:
    """Return eight MI300X, each below a switch with a NIC; all functions pass AtomicOps, but for ``ops``."""
    host = servers.hgx(nvswitches=0)
    for function in host.functions:
        if function.kind == "gpu":
            function.vendor_id, function.device_id = MI300X
            function.class_code = 0x120000
        function.atomic_ops = AtomicOps(
            **{"completes_bits": [32, 64], "routes": True, "requests": False, "blocks_egress": False, **ops}
        )
    return host


def models_above(made: DomainPlan) -> list[list[str]]:
    """Return the models of the ports above each GPU in the guest."""
    ports = {}
    for expander in made.root.expanders:
        for port in expander.walk():
            ports.update(dict.fromkeys(map(id, port.ports), port))
    found = []
    for passed in made.passed():
        if passed.function.kind == "gpu":
            above, here = [], passed.port
            while here.model != "pcie-expander-bus":
                above.insert(0, here.model)
                here = ports[id(here)]
            found.append(above)
            assert (passed.endpoint.function, len(passed.port.endpoints)) == (0, 1)
    return found


def test_a_gpu_that_needs_atomic_ops_is_alone_below_a_root_port_of_its_root_complex():
    made = plan(amd(), **REQUEST)
    assert models_above(made) == [["pcie-root-port"]] * 8
    assert {passed.cell for passed in made.passed() if passed.function.kind == "gpu"} == {0, 1}
    assert len(made.fidelity.differences) == SHARED_PAIRS
    (note,) = [note for note in made.notes if "AtomicOps" in note]
    assert "mirror_topology: true" in note
    assert "not known" not in note


def test_the_file_of_nccl_keeps_such_a_gpu_below_its_switch():
    host = amd()
    made = plan(host, **REQUEST)
    addresses = {function.address: function.address for function in made.chosen.all()}
    # NCCL has no NODE.
    on_host = {pair: path.replace("NODE", "PHB") for pair, path in pairs(host, addresses).items()}
    assert pairs(read_nccl(render(made, host)), made.guest_addresses()) == on_host


@pytest.mark.parametrize(
    ("mirror", "above"),
    [
        (True, ["pcie-root-port", "pcie-switch-upstream-port", "pcie-switch-downstream-port"]),
        ("auto", ["pcie-root-port"]),
    ],
)
def test_the_request_chooses_between_switches_and_atomic_ops(mirror, above):
    made = plan(amd(), **REQUEST, mirror_topology=mirror)
    assert models_above(made) == [above] * 8
    assert [note for note in made.notes if "AtomicOps" in note and "mirror_topology: true" in note]


@pytest.mark.parametrize("lacking", [{"routes": False}, {"completes_bits": [32]}, {"blocks_egress": True}])
def test_a_gpu_without_atomic_ops_on_the_host_stays_below_its_switch(lacking):
    made = plan(amd(**lacking), **REQUEST)
    assert made.fidelity.share == 1
    assert len([note for note in made.notes if "AtomicOps" in note]) == 1


def test_ports_that_were_not_read_are_named_and_lose_no_atomic_ops():
    host = amd()
    for function in host.functions:
        function.atomic_ops = None
    made = plan(host, **REQUEST)
    assert models_above(made) == [["pcie-root-port"]] * 8
    assert ["not known" in note for note in made.notes if "AtomicOps" in note] == [False, True]
    # The GPUs that both notes concern are counted, not all listed.
    assert max(map(len, made.notes)) < 300


def test_other_vendors_and_virtual_functions_stay_below_their_switch():
    host = amd()
    for function in host.functions:
        if function.kind == "gpu":
            function.vendor_id, function.device_id = servers.H100
    made = plan(host, **REQUEST)
    assert (made.fidelity.share, [note for note in made.notes if "AtomicOps" in note]) == (1, [])
    # A virtual function of an AMD GPU asks its host's driver.
    host = amd()
    for function in host.functions:
        if function.kind == "gpu":
            function.physical_function = function.address[:-1] + "7"
    made = plan(
        host, **{**REQUEST, "gpus": {"addresses": [item.address for item in host.functions if item.kind == "gpu"]}}
    )
    assert made.fidelity.share == 1


def test_a_gpu_beside_another_function_on_a_root_port_gets_its_own():
    build = servers.Build()
    port = build.root(0)
    for number, (ids, kind) in enumerate(((MI300X, "gpu"), (servers.CX7, "nic"))):
        build.device(port, ids, kind, function=number)
    made = plan(build.done(), gpus={"count": 1}, nics={"per_gpu": 1, "functions": "pf"}, vcpus=1, huge_page_mib=0)
    assert models_above(made) == [["pcie-root-port"]]


def proved(made: DomainPlan, requests: bool, completes_bits: list[int]) -> dict[str, bool | None]:
    """Return the claims of a guest whose root ports and driver are so, by the kind of the claim."""
    guest = predicted_guest.predict(made)
    for function in guest.functions:
        at_root = function.port_type == "root_port"
        function.atomic_ops = AtomicOps(completes_bits if at_root else [32, 64], False, requests, False)
    evidence = Evidence("gpu01", made, guest=guest)
    claims = [*guest_os.atomic_operations(evidence), *guest_os.distances(evidence)]
    kinds = ("has PCIe", "fidelity", "farther apart")
    return {kind: claim.holds for kind in kinds for claim in claims if kind in claim.claim}


def test_the_proof_claims_atomic_ops_and_lists_the_pairs_that_are_farther_apart():
    made = plan(amd(), **REQUEST)
    assert proved(made, True, [32, 64, 128]) == {"has PCIe": True, "fidelity": True, "farther apart": None}
    assert proved(made, False, [32, 64])["has PCIe"] is False
    assert proved(made, True, [])["has PCIe"] is False
    evidence = Evidence("gpu01", made)
    assert [claim.holds for claim in guest_os.atomic_operations(evidence)] == [False] * 8
    evidence = Evidence("gpu01", made, guest=predicted_guest.predict(made))
    (claim,) = [claim for claim in guest_os.distances(evidence) if claim.holds is None]
    assert len(claim.seen) == SHARED_PAIRS


def test_a_pair_that_is_not_farther_apart_for_atomic_ops_still_fails():
    made = plan(amd(), **REQUEST)
    guest = predicted_guest.predict(made)
    nic = next(function for function in guest.functions if function.kind == "nic" and function.numa_node == 0)
    nic.root_complex = guest.root_complexes[-1].name
    nic.parent = next(item.address for item in guest.functions if item.root_complex == nic.root_complex and item != nic)
    (claim,) = [
        claim for claim in guest_os.distances(Evidence("gpu01", made, guest=guest)) if "fidelity" in claim.claim
    ]
    assert claim.holds is False


def test_atomic_ops_are_not_claimed_where_request_or_host_exclude_them():
    assert proved(plan(amd(), **REQUEST, mirror_topology=True), True, [])["has PCIe"] is None
    assert proved(plan(amd(routes=False), **REQUEST), True, [])["has PCIe"] is None
