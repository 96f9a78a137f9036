# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The module gpu_vm_proof, called as Ansible calls it."""

from __future__ import annotations

import json

import gpu_vm
import pytest
from ansible.module_utils.testing import patch_module_args
from messages import Mentions

from ansible_collections.sailloft.fleet.plugins.modules import gpu_vm_proof


def arguments(folder, **changes):
    whole = {
        "path": str(folder),
        "name": "vm1",
        "host_name": "gpu01",
        "host_topology": gpu_vm.host().to_dict(),
        "host_settings": gpu_vm.on_host(),
        "host_cpus": gpu_vm.host_cpus(),
        "nic_firmware": gpu_vm.firmware(),
        "domain": gpu_vm.domain(),
        "guest_topology": gpu_vm.guest().to_dict(),
        "guest_settings": gpu_vm.in_guest(),
        "nccl": {"NCCL_IB_PCI_RELAXED_ORDERING": 2},
        "nccl_conf": "NCCL_IB_PCI_RELAXED_ORDERING=2\n",
        "nccl_topology": gpu_vm.NCCL_TOPOLOGY,
        "nccl_topology_file": gpu_vm.NCCL_TOPOLOGY,
    }
    return {**whole, **changes}


@pytest.fixture
def run(capsys):
    """Return a function that calls the module and returns its result."""

    def call(given):
        # Ansible sends arguments as JSON.
        with patch_module_args(json.loads(json.dumps(given))), pytest.raises(SystemExit):
            gpu_vm_proof.main()
        return json.loads(capsys.readouterr().out)

    return call


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_a_proof_is_written_once_and_the_second_run_changes_nothing(run, tmp_path):
    folder = tmp_path / "proofs"
    first = run(arguments(folder))
    assert first["changed"] is True
    assert first["holds"] is True
    assert first["counts"]["failed"] == 0
    assert first["counts"]["held"] > 80
    written = contents(folder)
    assert sorted(written) == ["vm1.html", "vm1.json", "vm1.txt"]
    assert written["vm1.txt"].decode().splitlines() == first["table"]
    assert json.loads(written["vm1.json"])["counts"] == first["counts"]
    second = run(arguments(folder))
    assert second["changed"] is False
    assert second["diff"] == []
    assert contents(folder) == written


def test_check_mode_writes_nothing_and_predicts_the_change(run, tmp_path):
    folder = tmp_path / "proofs"
    assert run({**arguments(folder), "_ansible_check_mode": True})["changed"] is True
    assert not folder.exists()
    run(arguments(folder))
    assert run({**arguments(folder), "_ansible_check_mode": True})["changed"] is False


def test_a_failed_claim_fails_the_module_after_the_proof_is_written(run, tmp_path):
    guest = gpu_vm.guest()
    guest.function("0000:23:00.0").numa_node = None
    result = run(arguments(tmp_path, guest_topology=guest.to_dict()))
    assert result["failed"] is True
    assert "Guest XML: GPU 0000:13:00.0 is on guest NUMA node 0" in result["msg"]
    proof = json.loads((tmp_path / "vm1.json").read_text())
    assert proof["holds"] is False
    assert "Does not hold" in (tmp_path / "vm1.html").read_text()


@pytest.mark.parametrize(
    "missing",
    ["host_settings", "nic_firmware", "guest_topology", "guest_settings", "nccl_conf"],
)
def test_a_missing_reading_adds_no_claim_that_holds(run, tmp_path, missing):
    whole = run(arguments(tmp_path))
    without = run({key: value for key, value in arguments(tmp_path).items() if key != missing})
    assert without["counts"]["held"] <= whole["counts"]["held"]
    # The guest's settings show whether a register is read-only; without them, the claims must simply hold.
    assert without.get("failed", False) is (missing != "guest_settings")


def test_a_domain_that_does_not_run_fails(run, tmp_path):
    stopped = {**gpu_vm.domain(), "process": None, "state": "shutoff"}
    result = run(arguments(tmp_path, domain=stopped))
    assert "wanted no difference, seen it is not running: shutoff" in result["msg"]


def test_the_diff_shows_the_previous_and_the_new_proof(run, tmp_path):
    run(arguments(tmp_path))
    result = run(arguments(tmp_path, nccl_conf="NCCL_IB_PCI_RELAXED_ORDERING=0\n"))
    (diff,) = result["diff"]
    assert diff["before_header"].endswith("vm1.json")
    assert json.loads(diff["before"])["holds"] is True
    assert json.loads(diff["after"])["holds"] is False


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"name": "../vm1"}, Mentions("file")),
        ({"host_topology": {"format": "other"}}, Mentions("topology")),
        ({"guest_topology": {"format": "sailloft-topology/1"}}, Mentions("complete")),
        ({"domain": {"name": "vm1", "exists": True}}, Mentions("complete")),
        ({"host_settings": {"failed": True}}, Mentions("gpu_host_boot")),
        ({"nic_firmware": {"failed": True}}, Mentions("nic_firmware")),
    ],
)
def test_invalid_input_gives_one_error_and_writes_nothing(run, tmp_path, changes, message):
    folder = tmp_path / "proofs"
    result = run(arguments(folder, **changes))
    assert result["failed"] is True
    assert result["msg"] == message
    assert not folder.exists()


def test_the_error_of_a_plan_of_another_host_names_the_missing_device(run, tmp_path):
    host = gpu_vm.host()
    host.functions = [item for item in host.functions if item.address != "0000:13:00.0"]
    result = run(arguments(tmp_path / "proofs", host_topology=host.to_dict()))
    assert result["msg"] == Mentions("vm1", "PCI", "0000:13:00.0")


def test_an_unwritable_folder_gives_one_error(run, tmp_path):
    (tmp_path / "proofs").write_text("a file")
    result = run(arguments(tmp_path / "proofs"))
    assert result["failed"] is True
    assert "give a directory that you own" in result["msg"]


def test_the_error_of_a_missing_plan_contains_the_drift(run, tmp_path):
    domain = gpu_vm.domain()
    del domain["plan"]
    domain["drift"] = [{"what": "NIC 0000:14:00.0 is gone from the host", "where": ["host"], "paths": []}]
    failed = run(arguments(tmp_path, domain=domain))
    assert failed["msg"] == Mentions("vm1", "NIC", "0000:14:00.0")
