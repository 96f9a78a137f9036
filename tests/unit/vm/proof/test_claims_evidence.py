# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Evidence that belongs to something else, is incomplete, or is in another form."""

from __future__ import annotations

import copy
from dataclasses import replace

import gpu_vm
import pytest
from claims_found import failed
from gpu_vm import evidence

from ansible_collections.sailloft.fleet.plugins.module_utils.proof.claims import ProofError
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.model import TopologyError
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.plan.plan import DomainPlan
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.proof.claims import prove
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.proof.evidence import (
    BootCheck,
    Running,
    differences_of_domain,
    firmware_of_result,
)


def test_a_plan_for_another_host_is_refused():
    other = gpu_vm.host()
    other.functions = [item for item in other.functions if item.address != "0000:13:00.0"]
    with pytest.raises(TopologyError, match=r"no PCI function 0000:13:00\.0"):
        DomainPlan.from_dict(gpu_vm.plan(), other)


def test_a_firmware_setting_that_needs_a_reboot_fails_its_claim():
    result = gpu_vm.firmware()
    result["devices"]["0000:84:00.0"] = {
        **result["devices"]["0000:84:00.0"],
        "ATS_ENABLED": {"current": "False(0)", "next_boot": "True(1)"},
    }
    claims = prove(replace(evidence(), nic_firmware=firmware_of_result(result)))
    (claim,) = [claim for claim in claims if claim.holds is False]
    assert (claim.claim, claim.wanted, claim.seen) == (
        "NIC 0000:84:00.0: ATS is as the topology needs it (ATS_ENABLED)",
        "True(1)",
        "False(0)",
    )


def test_a_firmware_setting_that_the_module_would_change_fails_its_claim():
    result = gpu_vm.firmware()
    result["diff"]["after"] = {"0000:84:00.0 MAX_ACC_OUT_READ": "64"}
    claims = prove(replace(evidence(), nic_firmware=firmware_of_result(result)))
    assert failed(claims) == ["NIC 0000:84:00.0: more outstanding read bytes (MAX_ACC_OUT_READ)"]


@pytest.mark.parametrize("read", [BootCheck.of_result, firmware_of_result])
@pytest.mark.parametrize(
    "result", [{}, {"outcomes": 1}, {"diff": {"after": {}}}, {"devices": [], "diff": {"after": {}}}]
)
def test_a_result_of_another_module_is_refused(read, result):
    with pytest.raises(ProofError, match="not a result of"):
        read(result)


@pytest.mark.parametrize("missing", ["arguments", "accelerated", "memory", "pinning", "emulator_cpus"])
def test_incomplete_facts_of_a_process_are_refused(missing):
    process = gpu_vm.process()
    del process[missing]
    with pytest.raises(ProofError, match=missing):
        Running.of_process(process)


def test_a_missing_stopped_or_different_domain_is_not_as_planned():
    assert differences_of_domain(gpu_vm.domain()) == []
    assert differences_of_domain({**gpu_vm.domain(), "exists": False}) is None
    stopped = {**gpu_vm.domain(), "process": None, "state": "shutoff", "live_differences": None}
    assert differences_of_domain(stopped) == ["it is not running: shutoff"]
    other = [{"path": "cpu/maxphysaddr/@mode", "wanted": "passthrough", "have": "emulate"}]
    assert differences_of_domain({**gpu_vm.domain(), "live_differences": other}) == [
        "running: cpu/maxphysaddr/@mode: wanted passthrough, have emulate"
    ]
    without = gpu_vm.domain()
    del without["differences"]
    with pytest.raises(ProofError, match="not a compared domain"):
        differences_of_domain(without)


def test_prove_does_not_change_the_evidence():
    one = evidence()
    before = copy.deepcopy(one)
    prove(one)
    assert one == before


def test_results_that_are_not_there_give_no_facts():
    assert Running.of_process(None) == Running()
    assert BootCheck.of_result(None) is None
    assert firmware_of_result(None) == {}


def test_tuning_that_did_not_choose_devices_has_none():
    empty = {"outcomes": {}, "diff": {"after": {"b": 1, "a": 2}}, "failures": ["x: failed"]}
    found = BootCheck.of_result(empty)
    assert found == BootCheck(["a", "b", "x: failed"])
    assert (found.acs_ports, found.max_read_request_bytes, found.kernel_settings) == ([], {}, {})
    failed_early = {**empty, "outcomes": {"pci_tuning": {}, "sriov": {}, "kernel_settings": {}}}
    found = BootCheck.of_result(failed_early)
    assert (found.acs_ports, found.max_read_request_bytes, found.virtual_functions) == (None, None, None)
    assert (found.kernel_settings, found.read_only) == (None, [])


def test_requested_and_refused_settings_of_a_device_are_joined():
    devices = {
        "b": {"acs": ["x"], "max_read_request_bytes": 4096},
        "a": {"refused": {"acs": ["x"]}},
        "c": {"max_read_request_bytes": 512, "refused": {"max_read_request_bytes": 2048}},
        "d": {"max_read_request_bytes": 128, "not_writable": ["max_read_request_bytes"]},
    }
    binding = {"drivers_off": {"modules": ["nvidia"], "reasons": ["r"]}, "reset_failures": {"a": "flr"}}
    outcomes = {"pci_tuning": {"devices": devices}, "vfio_binding": binding}
    found = BootCheck.of_result({"outcomes": outcomes, "diff": {"after": {}}})
    assert found.acs_ports == ["a", "b"]
    assert found.max_read_request_bytes == {"b": 4096, "c": 2048}
    assert (found.read_only, found.modules_off, found.modules_that_may_load) == (["d"], ["nvidia"], ["r"])
    assert found.reset_failures == {"a": "flr"}


def drifting(*where: str, paths: tuple[str, ...] = ("x",)) -> dict:
    return {"what": "said", "consequence": "so", "where": list(where), "paths": list(paths)}


@pytest.mark.parametrize(
    ("drift", "lines"),
    [
        ([], ["defined: x: wanted 1, have 2", "running: x: wanted 1, have 2"]),
        ([drifting("defined")], ["defined: said; so", "running: x: wanted 1, have 2"]),
        ([drifting("running")], ["defined: x: wanted 1, have 2", "running: said; so"]),
        ([drifting("defined", "running")], ["defined and running: said; so"]),
        ([drifting("host")], ["host: said; so"]),
        ([drifting("host", "defined")], ["host and defined: said; so", "running: x: wanted 1, have 2"]),
        ([drifting("defined", paths=("y",))], ["defined: x: wanted 1, have 2", "running: x: wanted 1, have 2"]),
    ],
)
def test_a_difference_is_one_line_of_its_drift_or_of_its_path(drift, lines):
    difference = [{"path": "x", "wanted": "1", "have": "2"}]
    domain = {**gpu_vm.domain(), "drift": drift, "differences": difference, "live_differences": difference}
    assert differences_of_domain(domain) == lines


def test_a_stopped_domain_needs_no_comparison_of_its_process():
    domain = {**gpu_vm.domain(), "process": None, "state": "shutoff", "live_differences": None, "differences": None}
    assert differences_of_domain(domain) == ["defined: it was not compared with its plan", "it is not running: shutoff"]
