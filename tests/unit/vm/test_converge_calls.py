# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Whole results of the modules, and their changes in order, with a libvirt that only records."""

from __future__ import annotations

from typing import Any

import pytest
from baseboards import hgx, vm
from machines import hypervisor, lab, observed, plan, request
from messages import Mentions, raises

from ansible_collections.sailloft.fleet.plugins.module_utils.topology.processes import OpenFile
from ansible_collections.sailloft.fleet.plugins.module_utils.vm import converge
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.common.errors import DomainError
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.observed import fabric_manager, qemu_process
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.observed.fabric_manager import (
    FabricManager,
    PartitionState,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.observed.hypervisor import Hypervisor, ObservedDomain
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.preflight.findings import WARN, RefusedError
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.request.parse import parse_specs

USER_NETWORK = {"type": "user"}  # something to boot from
ONE = {"gpus": {"addresses": ["0000:13:00.0"]}, "nics": {}, "vcpus": 1, "memory_mib": 1024, "ats": False}
TWO = {**ONE, "gpus": {"addresses": ["0000:83:00.0"]}}


class Libvirt:
    """A client that returns what it is made with, and records its calls."""

    def __init__(self, there: Hypervisor) -> None:
        self.there, self.calls = there, []

    def __getattr__(self, name: str) -> Any:
        def call(*arguments: Any) -> Any:
            self.calls.append((name, *arguments))
            if name == "observe":
                return self.there
            return [{"mac": "m", "addresses": [arguments[0]]}] if name == "addresses" else None

        return call

    @property
    def changes(self) -> list[tuple[Any, ...]]:
        """Return the calls that change something; a definition without its XML."""
        calls = [call for call in self.calls if call[0] not in ("observe", "close", "addresses")]
        return [("define", call[1].split("<name>")[1].split("<")[0]) if call[0] == "define" else call for call in calls]


@pytest.fixture
def libvirt(monkeypatch):
    """Let the modules connect to a libvirt with these domains."""

    def make(*domains: ObservedDomain, **changes: Any) -> Libvirt:
        made = Libvirt(hypervisor(domains={domain.name: domain for domain in domains}, **changes))
        monkeypatch.setattr(converge, "Client", lambda _uri: made)
        return made

    return make


def asked(name: str, **changes: Any) -> dict[str, Any]:
    return request(**{"name": name, "disks": [], "interfaces": [USER_NETWORK], **changes})


def params(*domains: dict[str, Any], **changes: Any) -> dict[str, Any]:
    values: dict[str, Any] = {
        "state": "running",
        "domains": list(domains),
        "topology": lab().to_dict(),
        "gpu_module_ids": {},
        "gpu_partitions": {},
        "accelerators": {"1af4:1043": True},
        "uri": "test:///",
        "allow_restart": False,
        "remove_disks": False,
        "shutdown_timeout_s": 7,
    }
    return {**values, **changes}


def has(running: bool = False, state: str | None = None, autostart: bool = True, **spec: Any) -> ObservedDomain:
    """Return a domain as it was requested."""
    made = plan(None, hypervisor(), **{"disks": [], "interfaces": [USER_NETWORK], **spec})
    found = observed(made, running, autostart=autostart)
    if state:
        found.state = state
    return found


def test_machines_are_defined_and_started_phase_by_phase(libvirt):
    client = libvirt(has(running=True, name="b", **TWO, hpet=False))
    given = params(asked("a", **ONE), asked("b", **TWO), allow_restart=True)
    result = converge.converge(given, check_mode=False)
    assert client.changes == [
        ("stop", "b", 7),
        ("define", "a"),
        ("define", "b"),
        ("set_autostart", "a", True),
        ("start", "a"),
        ("start", "b"),
    ]
    assert client.calls[0][0] == "observe"
    assert client.calls[-1] == ("close",)
    first, second = result["domains"]
    assert {key: first[key] for key in ("name", "state_before", "state", "changed", "actions")} == {
        "name": "a", "state_before": "absent", "state": "running", "changed": True,
        "actions": ["define", "autostart", "start"],
    }  # fmt: skip
    assert (second["state_before"], second["state"], second["actions"]) == (
        "running", "running", ["stop", "define", "start"],
    )  # fmt: skip
    assert (result["changed"], result["restart_required"], result["findings"]) == (True, False, [])
    assert (first["restart_required"], second["restart_required"]) == (False, False)
    assert [item["path"] for item in second["live_differences"]] == ["clock/timer[hpet]"]
    assert [item["path"] for item in second["differences"]] == ["clock/timer[hpet]"]
    assert [item["after_header"] for item in result["diff"]] == [
        "domain a (autostart, start)", "domain b (stop, start)",
    ]  # fmt: skip


def test_check_mode_predicts_and_changes_nothing(libvirt):
    client = libvirt(has(running=True, name="b", **TWO, hpet=False))
    given = params(asked("a", **ONE), asked("b", **TWO), allow_restart=True)
    predicted = converge.converge(given, check_mode=True)
    assert client.changes == []
    assert predicted == converge.converge(given, check_mode=False)


def test_a_running_machine_is_only_defined_without_permission_to_restart(libvirt):
    client = libvirt(has(running=True, name="b", **TWO, hpet=False))
    result = converge.converge(params(asked("b", **TWO)), check_mode=False)
    assert client.changes == [("define", "b")]
    assert (result["changed"], result["restart_required"]) == (True, True)
    assert result["domains"][0]["restart_required"] is True


def test_a_machine_that_is_as_requested_is_left_alone(libvirt):
    client = libvirt(has(running=True, name="a", **ONE))
    result = converge.converge(params(asked("a", **ONE)), check_mode=False)
    assert client.changes == []
    assert (result["changed"], result["restart_required"], result["diff"]) == (False, False, [])
    assert result["domains"][0]["xml"] == client.there.domains["a"].inactive_xml


@pytest.mark.parametrize(
    ("state", "domain", "changes", "after"),
    [
        ("stopped", has(running=True, name="a", **ONE), [("stop", "a", 7)], "shutoff"),
        ("stopped", has(name="a", **ONE), [], "shutoff"),
        ("present", has(name="a", **ONE), [], "shutoff"),
        ("present", has(autostart=False, name="a", **ONE), [("set_autostart", "a", True)], "shutoff"),
        ("running", has(running=True, state="paused", name="a", **ONE), [("resume", "a")], "running"),
        ("running", has(name="a", **ONE), [("start", "a")], "running"),
        ("absent", has(running=True, name="a", **ONE), [("stop", "a", 7), ("undefine", "a")], "absent"),
        ("absent", has(name="a", **ONE), [("undefine", "a")], "absent"),
    ],
)
def test_each_state_has_its_calls(libvirt, state, domain, changes, after):
    client = libvirt(domain)
    result = converge.converge(params(asked("a", **ONE), state=state), check_mode=False)
    assert client.changes == changes
    assert (result["domains"][0]["state"], result["domains"][0]["state_before"]) == (after, domain.state)


def test_autostart_is_turned_off_on_request(libvirt):
    client = libvirt(has(name="a", **ONE))
    converge.converge(params(asked("a", autostart=False, **ONE), state="present"), check_mode=False)
    assert client.changes == [("set_autostart", "a", False)]


def test_machines_that_go_need_no_plan(libvirt):
    client = libvirt()
    # No topology could be planned with this.
    result = converge.converge(params(asked("a", gpus={"count": 99}), state="absent", topology={}), check_mode=False)
    assert client.changes == []
    (row,) = result["domains"]
    assert (row["actions"], "plan" in row, row["state"]) == ([], False, "absent")


def test_disks_are_made_from_their_base_before_the_machine_is_defined(libvirt, monkeypatch):
    disks = [{"path": "/over", "base": "/base"}]
    client = libvirt(missing_paths=["/over"])
    monkeypatch.setattr(converge.overlay_disks, "make", lambda spec: client.calls.append(("make", spec.name)))
    result = converge.converge(params(asked("a", **{**ONE, "disks": disks}), state="present"), check_mode=False)
    assert client.changes == [("make", "a"), ("define", "a"), ("set_autostart", "a", True)]
    assert result["domains"][0]["actions"] == ["make_disks", "define", "autostart"]


def test_a_path_that_is_missing_is_refused_except_in_check_mode(libvirt):
    client = libvirt(missing_paths=["/disk"])
    given = params(asked("a", **{**ONE, "disks": [{"path": "/disk"}]}))
    assert converge.converge(given, check_mode=True)["changed"] is True
    with raises(RefusedError, "/disk", "exist"):
        converge.converge(given, check_mode=False)
    with raises(RefusedError, "/disk", "exist"):
        converge.compare(given)
    assert client.changes == []
    assert client.calls[-1] == ("close",)


@pytest.mark.parametrize("timeout_s", [0, 86400])
def test_a_timeout_of_up_to_a_day_is_accepted(libvirt, timeout_s):
    client = libvirt(has(running=True, name="a", **ONE))
    converge.converge(params(asked("a", **ONE), state="stopped", shutdown_timeout_s=timeout_s), check_mode=False)
    assert client.changes == [("stop", "a", timeout_s)]


@pytest.mark.parametrize("timeout_s", [-1, 86401, None])
def test_another_timeout_is_refused(libvirt, timeout_s):
    libvirt()
    with raises(DomainError, "shutdown_timeout_s", timeout_s, "0", "86400"):
        converge.converge(params(shutdown_timeout_s=timeout_s), check_mode=True)


def test_a_comparison_has_a_line_for_each_reason_to_run(libvirt):
    libvirt(has(running=True, name="b", **TWO, hpet=False))
    told, lines, pinned = converge.compare(params(asked("a", **ONE), asked("b", **TWO)))
    assert len(pinned) == 2 * asked("a", **ONE)["vcpus"]
    assert lines == ["a: define, autostart, start", "b: define", "b: a restart is required"]
    assert [row["name"] for row in told] == ["a", "b"]
    assert told[0]["nccl_topology"].startswith("<!-- ")
    libvirt(has(running=True, name="a", **ONE))
    assert converge.compare(params(asked("a", **ONE)))[1] == []
    ats = converge.compare(params(asked("c", **{**ONE, "nics": {}, "ats": False}), state="absent"))
    # The domain that is not listed keeps its CPUs.
    assert ats[:2] == ([{"name": "c", "nccl_topology": None}], [])
    assert len(ats[2]) == asked("a", **ONE)["vcpus"]
    assert converge.compare(params(asked("a", **ONE), state="absent"))[2] == []


def test_additions_that_nobody_knows_are_a_warning(libvirt):
    machine = has(running=True, name="a", **ONE)
    machine.inactive_xml = machine.inactive_xml.replace("</devices>", "</devices><later>x</later>")
    machine.live_xml = machine.live_xml.replace("</devices>", "</devices><later>x</later><other>x</other>")
    libvirt(machine)
    result = converge.converge(params(asked("a", **ONE)), check_mode=False)
    (finding,) = result["findings"]
    assert (result["changed"], finding["domain"], finding["severity"]) == (False, "a", WARN)
    assert finding["what"] == Mentions("later", "other")


def test_the_diff_is_the_whole_xml_of_a_new_or_removed_domain(libvirt):
    libvirt()
    result = converge.converge(params(asked("a", **ONE)), check_mode=True)
    (diff,) = result["diff"]
    assert (diff["before_header"], diff["after_header"]) == ("domain a (absent)", "domain a (autostart, start)")
    assert (diff["before"], diff["after"]) == ("", result["domains"][0]["xml"])
    machine = has(name="a", **ONE, hpet=False)
    libvirt(machine)
    for state, after_header, before in (
        ("absent", "domain a (undefine)", machine.inactive_xml),
        ("present", "domain a", Mentions("clock/timer[hpet]")),
    ):
        (diff,) = converge.converge(params(asked("a", **ONE), state=state), check_mode=True)["diff"]
        assert (diff["before_header"], diff["after_header"]) == ("domain a (shutoff)", after_header)
        assert (diff["before"], diff["after"]) == (before, "")


def info(*domains: dict[str, Any], names: list[str] | None = None, **changes: Any) -> list[dict[str, Any]]:
    return converge.info({**params(*domains, **changes), "names": names or []})["domains"]


def test_domains_are_reported_as_they_are_with_their_plan(libvirt, monkeypatch):
    monkeypatch.setattr(qemu_process, "read", lambda name: {"process": name})
    there = has(running=True, name="a", **ONE, hpet=False), has(name="b", **TWO)
    client = libvirt(*there)
    (row,) = info(asked("a", **ONE))
    assert {key: row[key] for key in ("name", "exists", "state", "autostart", "uuid", "process", "addresses")} == {
        "name": "a", "exists": True, "state": "running", "autostart": True, "uuid": there[0].uuid,
        "process": {"process": "a"}, "addresses": [{"mac": "m", "addresses": ["a"]}],
    }  # fmt: skip
    assert (row["inactive_xml"], row["live_xml"]) == (there[0].inactive_xml, there[0].live_xml)
    assert [item["path"] for item in row["differences"]] == ["clock/timer[hpet]"]
    assert [item["path"] for item in row["live_differences"]] == ["clock/timer[hpet]"]
    assert row["plan"]["name"] == "a"
    assert client.calls[-1] == ("close",)


@pytest.mark.parametrize("active", [True, False])
def test_fabric_manager_is_asked_where_nvswitches_are_shared(libvirt, monkeypatch, active):
    host = hgx()
    host.cpu = lab().cpu
    for function in host.functions:
        function.driver = "nvidia" if function.kind == "nvswitch" else function.driver
    answer = FabricManager("595.91.07", {1: PartitionState(active, (1, 2, 3, 4))})
    monkeypatch.setattr(fabric_manager, "read", lambda: answer)
    client = libvirt()
    given = params(vm("a", 4, huge_page_mib=0, interfaces=[USER_NETWORK]), topology=host.to_dict(), accelerators={})
    if active:
        assert converge.converge(given, check_mode=False)["changed"]
        (row,) = converge.info({**given, "names": []})["domains"]
        assert FabricManager.of_dict(row["fabric_manager"]) == answer
    else:
        with raises(RefusedError, "partition 1", "Fabric Manager"):
            converge.converge(given, check_mode=False)
        assert client.changes == []


def test_a_stopped_or_missing_domain_has_no_process_and_no_addresses(libvirt):
    libvirt(has(name="b", **TWO))
    (missing,) = info(asked("a", **ONE))
    assert {key: value for key, value in missing.items() if key not in ("plan", "xml", "nccl_topology")} == {
        "name": "a", "exists": False, "state": "absent", "autostart": False, "uuid": None, "inactive_xml": None,
        "live_xml": None, "process": None, "addresses": [], "drift": [], "differences": [], "live_differences": [],
        "fabric_manager": None,
    }  # fmt: skip
    (stopped,) = info(names=["b"])
    assert (stopped["exists"], stopped["process"], stopped["addresses"]) == (True, None, [])
    assert "plan" not in stopped
    assert "differences" not in stopped


def test_domains_are_those_of_the_requests_then_of_the_names_or_all(libvirt):
    libvirt(has(name="b", **TWO), has(name="a", **ONE))
    assert [row["name"] for row in info()] == ["a", "b"]
    assert [row["name"] for row in info(names=["b"])] == ["b"]
    assert [row["name"] for row in info(asked("a", **ONE))] == ["a"]
    assert [row["name"] for row in info(asked("b", **TWO), names=["x", "b", "a"])] == ["b", "x", "a"]


def test_a_request_that_cannot_be_planned_is_an_item_of_an_existing_domain(libvirt):
    client = libvirt(has(name="a", **ONE))
    rows = info(asked("a", **{**ONE, "gpus": {"count": 9}}), names=["b"])
    assert rows[0]["drift"][0]["what"].startswith("the request cannot be planned on this host as it is now: virtual")
    assert "plan" not in rows[0]
    assert rows[1]["drift"] == []
    # Without any of the requested domains, there is nothing to report.
    with raises(DomainError, "9 GPUs"):
        info(asked("c", **{**ONE, "gpus": {"count": 9}}))
    assert client.calls[-1] == ("close",)


def test_a_device_that_a_process_has_open_is_refused_and_unread_processes_are_reported(libvirt, monkeypatch):
    libvirt()
    kata = OpenFile("/dev/vfio/devices/vfio0", ("0000:13:00.0",), 4711, "qemu", "kata")
    monkeypatch.setattr(converge, "open_files", lambda _files, _functions: ([kata], 3))
    with raises(RefusedError, "guest kata", "process 4711", "/dev/vfio/devices/vfio0"):
        converge.converge(params(asked("a", **ONE)), check_mode=True)
    done = converge.converge(params(asked("a", **TWO), state="present"), check_mode=True)
    assert [(item["severity"], "3 processes" in item["what"]) for item in done["findings"]] == [("warn", True)]


def test_a_device_with_a_mapped_bar_is_refused_when_its_machine_starts(libvirt, monkeypatch):
    libvirt()

    def mapped_by_mstflint(_files, functions):
        return [OpenFile("resource0", (functions[0].address,), 20, "mstflint", None)]

    monkeypatch.setattr(converge, "mapped_bars", mapped_by_mstflint)
    host = lab()
    host.function("0000:13:00.0").driver = "nvidia"
    converge.converge(params(asked("a", **ONE), topology=host.to_dict(), state="present"), check_mode=True)
    with pytest.raises(RefusedError, match=r"process 20 \(mstflint\)"):
        converge.converge(params(asked("a", **ONE), topology=host.to_dict()), check_mode=True)


WHOLE = {"name": "a", "disks": [], "interfaces": [USER_NETWORK], "vcpus": 2, "memory_mib": 2048, "huge_page_mib": 0}


def test_a_machine_with_the_whole_host_has_its_gpus_and_is_defined_once(libvirt):
    host = lab()
    for address in ("0000:14:00.0", "0000:84:00.0"):
        host.function(address).sriov = None
    given = params(whole_host=WHOLE, topology=host.to_dict())
    client = libvirt()
    (row,) = converge.converge(given, check_mode=False)["domains"]
    assert client.changes == [("define", "a"), ("set_autostart", "a", True), ("start", "a")]
    kinds = [device["kind"] for device in row["plan"]["devices"]]
    assert (kinds.count("gpu"), kinds.count("nic")) == (2, 4)
    again = libvirt(ObservedDomain("a", parse_specs([{"name": "a"}])[0].uuid, row["xml"], autostart=True))
    assert converge.info({**given, "names": None})["domains"][0]["differences"] == []
    assert again.changes == []


def test_a_machine_with_the_whole_host_is_removed_without_reading_the_host(libvirt):
    client = libvirt(has(name="a", **ONE))
    converge.converge(params(whole_host=WHOLE, topology=None, state="absent"), check_mode=False)
    assert client.changes == [("undefine", "a")]


def test_a_host_before_its_tuning_is_planned_but_not_changed(libvirt):
    client = libvirt()
    with raises(DomainError, "0000:14:00.0", "0000:84:00.0", "virtual function"):
        converge.converge(params(whole_host=WHOLE), check_mode=False)
    assert client.changes == []
    # Check mode says what the run after gpu_hosts.yml does.
    assert converge.converge(params(whole_host=WHOLE), check_mode=True)["domains"][0]["actions"][0] == "define"


def test_a_refusal_of_the_planner_is_reported_with_the_other_problems(libvirt):
    libvirt(networks={})
    with pytest.raises(RefusedError) as caught:
        converge.converge(params(request(gpus={"count": 3})), check_mode=False)
    assert [item.what for item in caught.value.findings][1:] == ["libvirt has no network default"]
