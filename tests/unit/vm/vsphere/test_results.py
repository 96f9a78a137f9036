# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The actions on virtual machines, and what the modules return about them, without a vCenter."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType, SimpleNamespace
from typing import Any

import pytest
from vsphere_requests import server, vm

from ansible_collections.sailloft.fleet.plugins.module_utils.vm.plan.placement import place
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.preflight.findings import Finding
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.vsphere import converge, results
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.vsphere.request import parse
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.vsphere.results import MachineRow
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.vsphere.site import Esxi, VirtualMachine

(REQUEST,) = parse([vm()])
WANTED: Mapping[str, Any] = MappingProxyType({"vcpus": 4, "hardware_version": "vmx-20", "extra": {}, "disks_mib": []})
SAME: Mapping[str, Any] = MappingProxyType({})
OTHER = {"vcpus": 2}
OLDER = {"hardware_version": "vmx-19"}


def row(
    state: str | None = None, have: Mapping[str, Any] | None = SAME, wanted: Mapping[str, Any] | None = WANTED
) -> MachineRow:
    """Return a virtual machine in a state (None: there is none) that differs from the wanted one by ``have``."""
    machine = None if state is None else VirtualMachine("train", "ref", None, state == "running", state, "esx01", False)
    return MachineRow(
        REQUEST,
        Esxi("esx02", None, "gpu", {}),
        machine=machine,
        wanted=None if wanted is None else dict(wanted),
        have=None if machine is None or have is None else {**WANTED, **have},
    )


@pytest.mark.parametrize("allow", [False, True])
@pytest.mark.parametrize(
    ("state", "one", "actions"),
    [
        ("present", row(), ["create"]),
        ("running", row(), ["create", "power_on"]),
        ("stopped", row(), ["create"]),
        ("absent", row(), []),
        ("absent", row("running"), ["power_off", "destroy"]),
        ("absent", row("suspended"), ["power_off", "destroy"]),
        ("absent", row("stopped"), ["destroy"]),
        ("absent", row("stopped", wanted=None), ["destroy"]),
        ("present", row("running"), []),
        ("present", row("stopped"), []),
        ("present", row("suspended"), []),
        ("running", row("running"), []),
        ("running", row("stopped"), ["power_on"]),
        ("running", row("suspended"), ["power_on"]),
        ("stopped", row("running"), ["power_off"]),
        ("stopped", row("suspended"), ["power_off"]),
        ("stopped", row("stopped"), []),
        ("present", row("stopped", OTHER), ["reconfigure"]),
        ("stopped", row("stopped", OTHER), ["reconfigure"]),
        ("running", row("stopped", OTHER), ["reconfigure", "power_on"]),
        ("present", row("stopped", OLDER), ["upgrade"]),
        ("running", row("stopped", {**OLDER, **OTHER}), ["upgrade", "reconfigure", "power_on"]),
        # It is powered off in any case, so no permission is needed.
        ("stopped", row("running", OTHER), ["power_off", "reconfigure"]),
        ("running", row("running", wanted=None), []),
        ("running", row(wanted=None), []),
        ("running", row("running", have=None), ["create", "power_on"]),
    ],
)
def test_the_actions_follow_from_the_state_and_the_differences(state, one, actions, allow):
    converge.decide(one, state, allow)
    assert (one.actions, one.restart_required) == (actions, False)


@pytest.mark.parametrize("current", ["running", "suspended"])
@pytest.mark.parametrize(
    ("state", "have", "allowed"),
    [
        ("running", OTHER, ["power_off", "reconfigure", "power_on"]),
        ("present", OTHER, ["power_off", "reconfigure", "power_on"]),
        ("running", OLDER, ["power_off", "upgrade", "power_on"]),
        ("present", {**OLDER, **OTHER}, ["power_off", "upgrade", "reconfigure", "power_on"]),
    ],
)
def test_a_change_of_a_running_machine_needs_permission_to_restart_it(current, state, have, allowed):
    one = row(current, have)
    converge.decide(one, state, False)
    assert (one.actions, one.restart_required) == ([], True)
    assert [item["path"] for item in one.differences] == [key for key in WANTED if key in have]
    one = row(current, have)
    converge.decide(one, state, True)
    assert (one.actions, one.restart_required) == (allowed, False)


@pytest.mark.parametrize(
    ("state", "actions", "before", "after"),
    [
        (None, [], "absent", "absent"),
        (None, ["create"], "absent", "stopped"),
        (None, ["create", "power_on"], "absent", "running"),
        ("running", [], "running", "running"),
        ("running", ["power_off"], "running", "stopped"),
        ("running", ["power_off", "destroy"], "running", "absent"),
        ("running", ["power_off", "upgrade", "reconfigure", "power_on"], "running", "running"),
        ("suspended", ["power_on"], "suspended", "running"),
        ("stopped", ["reconfigure"], "stopped", "stopped"),
    ],
)
def test_the_state_afterwards_follows_from_the_actions(state, actions, before, after):
    one = row(state)
    one.actions = list(actions)
    found = results.returned(one)
    assert (found["state_before"], found["state"]) == (before, after)
    assert (found["changed"], found["actions"]) == (bool(actions), actions)


def test_the_result_of_a_machine_without_a_plan():
    one = row("running")
    one.differences, one.restart_required = [{"path": "vcpus"}], True
    one.ways = {"0000:13:00.0": ["15.0"]}
    one.actions = ["power_on", "reconfigure", "power_off"]
    assert results.returned(one) == {
        "name": "train",
        "host": "esx02",
        "state_before": "running",
        "state": "stopped",
        "changed": True,
        # In the order in which they are done.
        "actions": ["power_off", "reconfigure", "power_on"],
        "differences": [{"path": "vcpus"}],
        "restart_required": True,
        "ways": {"0000:13:00.0": ["15.0"]},
        "plan": None,
    }
    # What it was created as is not its state before.
    assert results.returned(row("running", have=None))["state_before"] == "absent"


def planned(**more: Any) -> MachineRow:
    one = row(**more)
    host = server()
    (one.placement,) = place(host, [REQUEST.spec], {}, lambda _spec: 768)
    one.model = host
    return one


def test_the_plan_has_cells_devices_configuration_and_notes():
    one = planned()
    one.placement.chosen.notes = ["of the choice"]
    one.model.notes = ["of the host"]
    assert results.plan_of(one) == {
        "name": "train",
        "host": "esx02",
        "cells": [
            {"id": 0, "host_node": 0, "memory_mib": 32768, "vcpus": [0, 1]},
            {"id": 1, "host_node": 1, "memory_mib": 32768, "vcpus": [2, 3]},
        ],
        "devices": [
            {
                "host_address": "0000:13:00.0",
                "kind": "gpu",
                "host_node": 0,
                "physical_function": None,
                "host_path": ["0000:10:00.0", "0000:11:00.0", "0000:12:00.0", "0000:13:00.0"],
            },
            {
                "host_address": "0000:15:10.0",
                "kind": "nic",
                "host_node": 0,
                "physical_function": "0000:15:00.0",
                "host_path": ["0000:10:01.0", "0000:15:10.0"],
            },
            {
                "host_address": "0000:83:00.0",
                "kind": "gpu",
                "host_node": 1,
                "physical_function": None,
                "host_path": ["0000:80:00.0", "0000:81:00.0", "0000:82:00.0", "0000:83:00.0"],
            },
            {
                "host_address": "0000:85:10.0",
                "kind": "nic",
                "host_node": 1,
                "physical_function": "0000:85:00.0",
                "host_path": ["0000:80:01.0", "0000:85:10.0"],
            },
        ],
        "configuration": WANTED,
        "notes": ["of the choice", "of the host"],
    }


@pytest.mark.parametrize("missing", ["placement", "wanted", "model"])
def test_there_is_no_plan_if_a_part_of_it_is_missing(missing):
    one = planned()
    setattr(one, missing, None)
    assert results.plan_of(one) is None


def test_hosts_of_planned_machines_are_returned_once_and_by_name():
    first, second, third, unplanned = planned(), planned(), planned(), row()
    third.host = Esxi("esx01", None, "gpu", {})
    unplanned.host = Esxi("esx03", None, "gpu", {})
    assert results.topologies([first, unplanned, second, third]) == [
        {"name": "esx01", "topology": server().to_dict()},
        {"name": "esx02", "topology": server().to_dict()},
    ]


def test_the_diff_of_a_change_has_the_settings_that_differ():
    one = row("running")
    one.differences = [
        {"path": "vcpus", "wanted": 4, "have": 2}, {"path": "extra.x", "wanted": None, "have": "1"},
    ]  # fmt: skip
    told = {
        "before_header": "virtual machine train",
        "after_header": "virtual machine train (needs power-off)",
        "before": "vcpus: 2\nextra.x: 1\n",
        "after": "vcpus: 4\nextra.x: None\n",
    }
    assert results.diff(one) == told
    one.actions = ["power_off", "reconfigure"]
    assert results.diff(one) == {**told, "after_header": "virtual machine train (power_off, reconfigure)"}


def test_the_diff_of_a_new_or_destroyed_machine_is_the_whole_configuration():
    text = "vcpus: 4\nhardware_version: vmx-20\nextra: {}\ndisks_mib: []\n"
    header = {"before_header": "virtual machine train", "after_header": "virtual machine train"}
    new = row()
    new.actions = ["create", "power_on"]
    assert results.diff(new) == {**header, "before": "", "after": text}
    gone = row("running", wanted=None)
    gone.actions = ["power_off", "destroy"]
    assert results.diff(gone) == {**header, "before": text, "after": ""}
    # A request that is also planned does not change that.
    gone.wanted = WANTED
    assert results.diff(gone) == {**header, "before": text, "after": ""}


def test_a_machine_that_is_missing_or_not_requested_is_described():
    site = SimpleNamespace(network_names={})
    one = row()
    one.unplanned = Finding("train", "host esx02 is disconnected", "nothing can be changed on it", "wait")
    assert results.described(None, one, site) == {
        "name": "train",
        "exists": False,
        "state": "absent",
        "host": "esx02",
        "configuration": None,
        "ways": {},
        "plan": None,
        "differences": [],
        "unplanned": "virtual machine train: host esx02 is disconnected: nothing can be changed on it; wait",
    }
    one.unplanned = None
    assert results.described(None, one, site)["unplanned"] is None
    empty = {"name": "", "exists": False, "state": "absent", "host": None, "configuration": None, "ways": {}}
    assert results.described(None, None, site) == empty
