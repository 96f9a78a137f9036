# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Virtual machines that share NVSwitches: refused before anything is touched, or proved."""

from __future__ import annotations

from dataclasses import replace

import pytest
from baseboards import hgx, hgx_nvlink5, vm
from machines import hypervisor, observed

from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.model import Host, NvidiaSoftware
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.devices.eligibility import HostDevices
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.observed.fabric_manager import (
    FabricManager,
    PartitionState,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.plan.plan import DomainPlan
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.plan.planner import plan_domains
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.preflight import checks, shared_nvswitches
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.preflight.findings import (
    REFUSE,
    WARN,
    Finding,
    RefusedError,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.proof import guest_os
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.proof import hypervisor as layer
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.proof.evidence import Evidence
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.request.parse import parse_specs

ACTIVE = FabricManager("580.95.05", {1: PartitionState(True, (1, 2, 3, 4)), 2: PartitionState(True, (1, 2, 3, 4))})


def served(host: Host) -> Host:
    """Give the NVSwitches, or the functions that manage them, their driver on the host."""
    for function in host.functions:
        if function.kind == "nvswitch":
            function.driver = "nvidia"
        elif function.kind == "nvswitch_management":
            function.driver = "mlx5_core"
    return host


BOARDS = (hgx, hgx_nvlink5)


def planned(host: Host, count: int = 4) -> DomainPlan:
    return plan_domains(host, parse_specs([vm("a", count)]))[0]


def found(
    host: Host, manager: FabricManager | None, count: int = 4, starting: bool = True, **holder: str
) -> list[Finding]:
    host_devices = HostDevices(host, dict(pair.split("=") for pair in holder.values()))
    return list(shared_nvswitches.findings(planned(host, count), host_devices, manager, starting))


@pytest.mark.parametrize("board", BOARDS)
def test_an_active_partition_of_its_gpus_has_no_finding(board) -> None:
    assert found(served(board()), ACTIVE) == []
    assert found(served(board()), None, 8) == []  # it has the NVSwitches itself


@pytest.mark.parametrize("driver", ["vfio-pci", None])
@pytest.mark.parametrize("board", BOARDS)
def test_switches_without_their_driver_on_the_host_are_refused_even_before_it_starts(board, driver) -> None:
    host = served(board())
    switch = next(item for item in host.functions if "nvswitch" in item.kind)
    switch.driver = driver
    for starting in (True, False):
        (finding,) = found(host, ACTIVE, starting=starting)
        assert (finding.severity, switch.address in finding.what) == (REFUSE, True)
        assert "gpu_host_vfio_released" in finding.remedy


@pytest.mark.parametrize(
    ("manager", "words"),
    [
        (None, "not asked"),
        (FabricManager(None, None, "fmpm -l: No such file"), "No such file"),
        (FabricManager("1", {9: PartitionState(True, (1, 2, 3, 4))}), "with no GPU"),
        (
            FabricManager("1", {1: PartitionState(True, (1, 2, 3, 5))}),
            "with 1, 2, 3, 5, not with physical id 1, 2, 3, 4",
        ),
        (FabricManager("1", {1: PartitionState(False, (1, 2, 3, 4))}), "not active"),
    ],
)
def test_a_partition_that_is_not_active_is_refused_at_the_start(manager, words) -> None:
    host = served(hgx())
    (finding,) = found(host, manager)
    assert (finding.severity, words in finding.what) == (REFUSE, True)
    assert found(host, manager, starting=False) == []
    (finding,) = found(host, manager, 1)
    assert finding.severity == WARN
    assert "NVreg_NvLinkDisable=1" in finding.remedy


def test_a_service_machine_is_a_warning_because_it_cannot_be_asked() -> None:
    host = hgx()
    (finding,) = found(host, None, one="0000:04:00.0=service")
    assert (finding.severity, "service" in finding.what) == (WARN, True)


def test_a_board_without_management_functions_is_refused() -> None:
    host = hgx_nvlink5()
    host.functions = [item for item in host.functions if item.kind != "nvswitch_management"]
    (finding,) = found(host, ACTIVE)
    assert finding.severity == REFUSE


def test_preflight_refuses_before_anything_is_touched() -> None:
    host = hgx()
    for function in host.functions:
        if function.kind in ("gpu", "nvswitch"):
            function.driver = "vfio-pci"
    plans = plan_domains(host, parse_specs([vm("a", 4, huge_page_mib=0), vm("b", 4, huge_page_mib=0)]))
    with pytest.raises(RefusedError) as error:
        checks.check(plans, host, hypervisor(), {"a", "b"}, set(), False, ACTIVE)
    refused = [item for item in error.value.findings if "Fabric Manager" in item.what]
    assert [(item.domain, item.severity) for item in refused] == [("a", REFUSE), ("b", REFUSE)]


def test_the_partition_is_part_of_the_plan() -> None:
    host = served(hgx_nvlink5())
    plan = planned(host)
    assert plan.to_dict()["nvswitch_partition"] == {
        "partition": 2,
        "physical_ids": [1, 2, 3, 4],
        "switches": [f"0000:04:00.{number}" for number in range(4)],
        "driver": "mlx5_core",
    }
    again = DomainPlan.from_dict(plan.to_dict(), host)
    assert again.chosen.shared == plan.chosen.shared
    assert planned(host, 8).to_dict()["nvswitch_partition"] is None
    assert observed(plan).name == "a"


def states(evidence: Evidence) -> list[bool]:
    return [claim.holds for claim in layer.shared_nvswitches(evidence)]


def test_partition_and_driver_version_are_claims() -> None:
    host = served(hgx())
    guest = Host([], [], [], nvidia=NvidiaSoftware("580.95.05"))
    evidence = Evidence("hv", planned(host), guest=guest, fabric_manager=ACTIVE)
    assert states(evidence) == [True, True]
    other = FabricManager("580.95.05", {1: PartitionState(False, (1, 2, 3, 4))})
    assert states(replace(evidence, fabric_manager=other)) == [False, True]
    other = FabricManager("580.95.05", {1: PartitionState(True, (1, 2, 3, 5))})
    assert states(replace(evidence, fabric_manager=other)) == [False, True]
    newer = Host([], [], [], nvidia=NvidiaSoftware("595.91.07"))
    assert states(replace(evidence, guest=newer)) == [True, False]
    for unknown in (None, FabricManager()):
        assert states(replace(evidence, fabric_manager=unknown, guest=None)) == [False, False]
    assert states(Evidence("hv", planned(host, 8))) == []


@pytest.mark.parametrize(
    ("board", "wanted"), [(hgx, ["nv-fabricmanager"]), (hgx_nvlink5, ["nv-fabricmanager", "nvlsm"])]
)
def test_the_programs_of_a_whole_board_are_a_claim(board, wanted) -> None:
    evidence = Evidence("hv", planned(board(), 8))
    for programs, holds in ((wanted, True), (wanted[:-1], False), (None, False)):
        guest = Host([], [], [], nvidia=NvidiaSoftware("1", programs))
        assert [claim.holds for claim in guest_os.fabric_programs(replace(evidence, guest=guest))] == [holds]
    assert [claim.holds for claim in guest_os.fabric_programs(evidence)] == [False]
    assert list(guest_os.fabric_programs(Evidence("hv", planned(board())))) == []
