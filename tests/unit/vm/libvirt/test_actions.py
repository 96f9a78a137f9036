# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

from typing import Any

import pytest
from machines import observed, plan
from messages import raises

from ansible_collections.sailloft.fleet.plugins.module_utils.vm.common.errors import DomainError
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.libvirt.actions import (
    DomainDecision,
    decide,
    disk_actions,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.observed.hypervisor import ObservedDomain
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.render.domain_xml import render
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.request.parse import parse_specs

PLAN = plan()
OTHER = plan(vcpus=2)


def chosen(
    state: str, have: ObservedDomain | None, autostart: bool = True, allow_restart: bool = False
) -> DomainDecision:
    wanted = None if state == "absent" else render(PLAN)
    return decide(PLAN.name, state, have, wanted, PLAN.spec.uuid, autostart, allow_restart)


def domain(of: Any = PLAN, running: bool = False, **changes: Any) -> ObservedDomain:
    return observed(of, running, **changes)


@pytest.mark.parametrize(
    ("state", "have", "actions"),
    [
        ("present", None, ["define", "autostart"]),
        ("running", None, ["define", "autostart", "start"]),
        ("stopped", None, ["define", "autostart"]),
        ("absent", None, []),
        ("present", domain(), []),
        ("running", domain(), ["start"]),
        ("stopped", domain(), []),
        ("absent", domain(), ["undefine"]),
        ("present", domain(running=True), []),
        ("running", domain(running=True), []),
        ("stopped", domain(running=True), ["stop"]),
        ("absent", domain(running=True), ["stop", "undefine"]),
        ("running", domain(running=True, state="paused"), ["resume"]),
        ("present", domain(running=True, state="paused"), []),
        ("running", domain(OTHER), ["define", "start"]),
        ("running", domain(autostart=False), ["autostart", "start"]),
        # A run was killed between define and start: the next run continues from there.
        ("running", domain(autostart=False, running=False), ["autostart", "start"]),
    ],
)
def test_actions_follow_from_the_state_and_the_domain(
    state: str, have: ObservedDomain | None, actions: list[str]
) -> None:
    decision = chosen(state, have)
    assert decision.actions == actions
    assert decision.changed == bool(actions)
    assert decision.restart_required is False


@pytest.mark.parametrize("state", ["present", "running"])
def test_a_running_domain_changes_only_by_an_allowed_restart(state: str) -> None:
    have = domain(OTHER, running=True)
    told = chosen(state, have)
    assert (told.actions, told.restart_required) == (["define"], True)
    assert {item.path for item in told.live_differences} >= {"vcpu", "cputune/vcpupin[1]/@cpuset"}
    done = chosen(state, have, allow_restart=True)
    assert (done.actions, done.restart_required) == (["define", "stop", "start"], False)
    # In the second run it is defined, and still runs as before.
    have.inactive_xml = render(PLAN)
    again = chosen(state, have)
    assert (again.actions, again.changed, again.restart_required) == ([], False, True)
    assert chosen(state, have, allow_restart=True).actions == ["stop", "start"]


def test_autostart_can_be_disabled() -> None:
    assert chosen("present", domain(), autostart=False).actions == ["no_autostart"]
    assert chosen("present", domain(autostart=False), autostart=False).actions == []


@pytest.mark.parametrize("state", ["present", "running", "stopped", "absent"])
def test_a_domain_with_another_uuid_is_refused(state: str) -> None:
    have = domain(uuid="00000000-0000-0000-0000-000000000000")
    with raises(DomainError, "gpu-vm", "uuid"):
        chosen(state, have)


@pytest.mark.parametrize("state", ["present", "running", "stopped"])
def test_a_missing_wanted_xml_is_an_error(state: str) -> None:
    with raises(ValueError, "gpu-vm", state):
        decide(PLAN.name, state, None, None, PLAN.spec.uuid, True, False)


def test_disks_are_created_from_their_base_and_removed_only_on_request() -> None:
    disks = [{"path": "/a", "base": "/base"}, {"path": "/mine"}]
    spec = parse_specs([{"name": "a", "disks": disks}])[0]
    assert disk_actions(spec, "running", {"/a"}, []) == ["make_disks"]
    assert disk_actions(spec, "running", {"/mine"}, []) == []
    assert disk_actions(spec, "absent", set(), []) == []
    assert disk_actions(spec, "absent", set(), ["/a"]) == ["remove_disks"]
