# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A plan that is converted to JSON and back is the same plan."""

from __future__ import annotations

import json
from collections.abc import Callable

import gpu_vm
import pytest
from hypothesis import HealthCheck, assume, given, settings
from made_up_hosts import hosts, whole
from messages import raises
from plans import PLANS

from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.model import Host
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.common.errors import DomainError
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.plan.plan import DomainPlan
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.plan.planner import plan_domains
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.request.parse import parse_specs


def there_and_back(of: DomainPlan) -> DomainPlan:
    """Return the plan after it was sent as JSON."""
    return DomainPlan.from_dict(json.loads(json.dumps(of.to_dict())), of.host)


@pytest.mark.parametrize("made", [*PLANS.values(), lambda: gpu_vm.planned(gpu_vm.host())], ids=[*PLANS, "by hand"])
def test_a_plan_is_equal_after_conversion_to_json_and_back(made: Callable[[], DomainPlan]) -> None:
    plan = made()
    assert there_and_back(plan) == plan


@settings(suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow])
@given(host=hosts())
def test_a_plan_of_any_host_is_equal_after_conversion_to_json_and_back(host: Host) -> None:
    try:
        (plan,) = plan_domains(host, parse_specs(whole(host)))
    except DomainError:
        assume(False)
    assert there_and_back(plan) == plan


@pytest.mark.parametrize(
    "missing", ["request", "cells", "devices", "physical_address_bits", "pci_tree", "share", "mmio", "notes"]
)
def test_an_incomplete_plan_is_refused(missing: str) -> None:
    data = gpu_vm.plan()
    del data[missing]
    with raises(DomainError, "complete plan", repr(missing)):
        DomainPlan.from_dict(data, gpu_vm.host())


def test_devices_that_differ_from_those_of_the_tree_are_refused() -> None:
    data = gpu_vm.plan()
    data["devices"].pop()
    with raises(DomainError, "complete plan", "devices", "pci_tree"):
        DomainPlan.from_dict(data, gpu_vm.host())


def test_an_invalid_request_in_a_plan_is_refused_like_a_users_request() -> None:
    data = gpu_vm.plan()
    data["request"]["huge_page_mib"] = 3
    with raises(DomainError, "huge_page_mib", "3"):
        DomainPlan.from_dict(data, gpu_vm.host())
