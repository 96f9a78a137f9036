# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Virtual machines on the simulated vCenter: every state, twice; changes; refusals; faults; lost sessions."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from messages import Mentions, raises
from pyVmomi import vim
from simulated_vcenter import PASSWORD, VCenter, esxi, serving, site
from vsphere_requests import params, run, server, vm

from ansible_collections.sailloft.fleet.plugins.module_utils.vm.common.errors import DomainError
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.preflight.findings import RefusedError
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.vsphere import bars, config_spec, session
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.vsphere.converge import converge, info
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.vsphere.session import Login, Session
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.vsphere.site import VsphereCluster


@pytest.fixture
def vcenter(monkeypatch) -> Iterator[VCenter]:
    monkeypatch.setattr(session, "RETRY_S", (0.1, 0.1, 0.1))
    described = site(esxi(server(), "esx01"), esxi(server(), "esx02", active=False, version="7.0.3"))
    with serving(described) as served:
        yield served
        assert served.sessions() == 0


def seen(vcenter: VCenter, *domains) -> dict:
    found = info({**params(vcenter), "domains": list(domains) or None, "names": []})["domains"]
    return {row["name"]: row for row in found}


def test_a_machine_is_created_as_planned_and_the_second_run_changes_nothing(vcenter):
    first = run(vcenter, vm(), state="running")
    row = first["domains"][0]
    assert (first["changed"], row["actions"], row["state"]) == (True, ["create", "power_on"], "running")
    found = seen(vcenter)["train"]
    assert found["state"] == "running"
    have = found["configuration"]
    assert have == row["plan"]["configuration"]
    assert have["extra"] == {
        "pciPassthru.use64bitMMIO": "TRUE",
        "pciPassthru.64bitMMIOSizeGB": "512",
        "pciPassthru.allowP2P": "TRUE",
        "pciPassthru.RelaxACSforP2P": "TRUE",
        "sched.mem.lpage.enable1GPage": "TRUE",
        "numa.nodeAffinity": "0,1",
    }
    assert [(item["type"], item["numa_node"]) for item in have["devices"]] == [
        ("fixed", 0), ("fixed", 1), ("sriov", 0), ("sriov", 1),
    ]  # fmt: skip
    assert (have["memory_reservation_mib"], have["memory_locked"], have["latency_sensitivity"]) == (65536, True, "high")
    again = run(vcenter, vm(), state="running")
    assert (again["changed"], again["diff"], again["domains"][0]["differences"]) == (False, [], [])


def create_foreign(vcenter: VCenter, running: bool = False, **settings) -> None:
    """Create a machine without a plan on esx01, with 2 CPUs."""
    with Session(Login.of(params(vcenter))) as opened:
        files = vim.vm.FileInfo(vmPathName="[LocalDS_0]")
        spec = vim.vm.ConfigSpec(name="foreign", files=files, numCPUs=2, **settings)
        found = VsphereCluster(opened, "")
        host = found.hosts["esx01"]
        task = found.folder(host).CreateVM_Task(spec, found.pool(host), opened.bound(host.reference))
        opened.wait({"foreign": ("create", task)}, 10)
        if running:
            machine = opened.bound(VsphereCluster(opened, "").machines["foreign"].reference)
            opened.wait({"foreign": ("power on", machine.PowerOnVM_Task())}, 10)


def test_later_reservations_of_others_do_not_fail_a_run_without_changes(vcenter):
    mine = vm(memory_mib=786432)
    run(vcenter, mine, state="running")
    # It is bound to the nodes of the first, and not started.
    affinity = vim.option.OptionValue(key="numa.nodeAffinity", value="0,1")
    create_foreign(vcenter, memoryMB=524288, extraConfig=[affinity])
    again = run(vcenter, mine, state="running")
    assert not again["changed"]
    assert {item["severity"] for item in again["findings"]} == {"warn"}
    assert "are planned on NUMA node 0 of esx01" in again["findings"][0]["what"]
    with raises(RefusedError, "657408 MiB", "node 0 of esx01"):
        run(vcenter, {**mine, "memory_mib": 790528}, state="running", allow_restart=True)


@pytest.mark.parametrize("running", [False, True])
def test_reservations_of_other_machines_count_while_they_run(vcenter, running):
    reserved = vim.ResourceAllocationInfo(reservation=524288)
    create_foreign(vcenter, running, memoryMB=524288, memoryAllocation=reserved)
    mine = vm(memory_mib=786432)
    if running:
        with raises(RefusedError, "1310720 MiB", "esx01", "1048576 MiB"):
            run(vcenter, mine, state="running")
    else:
        assert run(vcenter, mine, state="running")["changed"]


def test_info_of_a_missing_machine_has_its_plan_and_host_or_the_reason(vcenter):
    found = info({**params(vcenter), "domains": [vm()], "names": []})
    row = found["domains"][0]
    assert (row["exists"], row["state"], row["host"], row["unplanned"]) == (False, "absent", "esx01", None)
    assert row["plan"]["host"] == "esx01"
    assert [item["name"] for item in found["hosts"]] == ["esx01"]
    rows = info({**params(vcenter), "domains": [vm(gpus={"count": 9}), vm("two", gpus={}, nics={})], "names": []})[
        "domains"
    ]
    # The machines of a host are planned together.
    assert [(row["plan"], row["unplanned"]) for row in rows] == [(None, Mentions("9 GPUs"))] * 2


def test_check_mode_predicts_and_changes_nothing(vcenter):
    predicted = run(vcenter, vm(), state="running", check=True)
    assert seen(vcenter) == {}
    done = run(vcenter, vm(), state="running")
    # Slots are unknown before the first start.
    assert (predicted["domains"][0].pop("ways"), len(done["domains"][0].pop("ways"))) == ({}, 4)
    assert predicted == done


def test_a_change_needs_power_off_and_is_made_only_if_allowed(vcenter):
    run(vcenter, vm(), state="running")
    more = vm(memory_mib=131072, interfaces=[])
    told = run(vcenter, more, state="running")
    assert (told["changed"], told["restart_required"]) == (False, True)
    assert seen(vcenter)["train"]["configuration"]["memory_mib"] == 65536
    done = run(vcenter, more, state="running", allow_restart=True)
    assert done["domains"][0]["actions"] == ["power_off", "reconfigure", "power_on"]
    paths = {item["path"] for item in done["domains"][0]["differences"]}
    assert paths == {"memory_mib", "memory_reservation_mib", "networks"}
    assert "memory_mib: 65536\n" in done["diff"][0]["before"]
    assert not run(vcenter, more, state="running", allow_restart=True)["changed"]


def test_states_stopped_absent_and_planned_take_their_actions_once(vcenter):
    assert not run(vcenter, vm(), state="planned")["changed"]
    assert seen(vcenter) == {}
    run(vcenter, vm(), state="running")
    assert run(vcenter, vm(), state="stopped")["domains"][0]["actions"] == ["power_off"]
    assert not run(vcenter, vm(), state="stopped")["changed"]
    assert run(vcenter, vm(), state="absent")["domains"][0]["actions"] == ["destroy"]
    # A machine that is gone needs no host.
    assert not run(vcenter, vm(vsphere={"host": "esx09"}), state="absent")["changed"]
    assert seen(vcenter) == {}


def test_devices_and_managed_settings_are_removed(vcenter):
    run(vcenter, vm())
    run(vcenter, vm(gpus={"count": 0}, nics={"per_gpu": 0}, strict_memory=False))
    have = seen(vcenter)["train"]["configuration"]
    assert have["devices"] == []
    assert have["extra"] == {"sched.mem.lpage.enable1GPage": "TRUE"}


def test_two_virtual_machines_get_different_devices_and_keep_them(vcenter):
    one, two = (vm(name, gpus={"count": 1}, vcpus=2) for name in ("one", "two"))
    run(vcenter, one)
    first = seen(vcenter)["one"]["configuration"]["devices"]
    result = run(vcenter, one, two)
    assert [row["actions"] for row in result["domains"]] == [[], ["create"]]
    second = seen(vcenter)["two"]["configuration"]["devices"]
    assert not {item["id"] for item in first} & {item["id"] for item in second}
    with pytest.raises(RefusedError, match=r"virtual machine one has it|free 0"):
        run(vcenter, vm("three", gpus={"count": 1}, vcpus=2))


def test_a_virtual_machine_without_a_host_gets_one_and_keeps_it(vcenter):
    # esx02 has no device that is active for passthrough.
    free = vm(vsphere={"host": ""})
    assert [row["host"] for row in run(vcenter, free)["domains"]] == ["esx01"]
    again = run(vcenter, free)
    assert (again["changed"], again["domains"][0]["host"]) == (False, "esx01")


def test_a_request_for_another_host_of_an_existing_machine_is_refused(vcenter):
    run(vcenter, vm(gpus={}, nics={}))
    with raises(DomainError, "esx01", "vsphere.host", "esx02"):
        run(vcenter, vm(gpus={}, nics={}, vsphere={"host": "esx02"}))


def test_a_suspended_virtual_machine_is_resumed_or_powered_off(vcenter):
    for state, action in (("running", "power_on"), ("stopped", "power_off")):
        run(vcenter, vm(), state="running")
        with Session(Login.of(params(vcenter))) as opened:
            reference = VsphereCluster(opened).machines["train"].reference
            opened.wait({"": ("", opened.bound(reference).SuspendVM_Task())}, 10)
        row = run(vcenter, vm(), state=state)["domains"][0]
        assert (row["state_before"], row["actions"], row["state"]) == ("suspended", [action], state)
        assert seen(vcenter)["train"]["state"] == state


def test_virtual_hardware_is_upgraded_only_on_request(vcenter):
    run(vcenter, vm(vsphere={"hardware_version": "vmx-20"}), state="running")
    again = run(vcenter, vm(), state="running")
    assert (again["changed"], again["restart_required"]) == (False, False)
    newer = vm(vsphere={"hardware_version": "vmx-21"})
    assert run(vcenter, newer, state="running")["restart_required"]
    done = run(vcenter, newer, state="running", allow_restart=True)["domains"][0]
    assert done["actions"] == ["power_off", "upgrade", "power_on"]
    assert seen(vcenter)["train"]["configuration"]["hardware_version"] == "vmx-21"


def test_a_host_in_maintenance_mode_is_refused(vcenter):
    with Session(Login.of(params(vcenter))) as opened:
        [host] = VsphereCluster(opened).chosen(["esx01"])
        opened.wait({"": ("", opened.bound(host.reference).EnterMaintenanceMode_Task(0, False))}, 10)
    with raises(RefusedError, "esx01", "maintenance mode"):
        run(vcenter, vm())
    assert "CreateVM_Task" not in vcenter.requests()


def test_a_gpu_with_unknown_bars_needs_mmio_window_mib(vcenter, monkeypatch):
    monkeypatch.setattr(bars, "LARGE_BAR_GIB", {})
    with raises(RefusedError, "BARs", "0000:13:00.0", "0000:83:00.0", "mmio_window_mib"):
        run(vcenter, vm())
    run(vcenter, vm(mmio_window_mib=262144))
    assert seen(vcenter)["train"]["configuration"]["extra"]["pciPassthru.64bitMMIOSizeGB"] == "256"


def test_dynamic_devices_are_chosen_by_model(vcenter):
    run(vcenter, vm(vsphere={"passthrough": "dynamic"}), state="running")
    have = seen(vcenter)["train"]["configuration"]
    assert [item["id"] for item in have["devices"] if item["type"] == "dynamic"] == ["10de:2330", "10de:2330"]
    assert not run(vcenter, vm(vsphere={"passthrough": "dynamic"}), state="running")["changed"]


def test_a_device_group_is_added_kept_and_removed(vcenter):
    grouped = vm(vsphere={"device_group": "Nvidia:2@nvlink"})
    assert run(vcenter, grouped, state="running")["domains"][0]["actions"] == ["create", "power_on"]
    have = seen(vcenter)["train"]["configuration"]
    # The virtual functions beside the group do not belong to it.
    assert (have["device_group"], [item["type"] for item in have["devices"]]) == ("Nvidia:2@nvlink", ["sriov", "sriov"])
    again = run(vcenter, grouped, state="running")
    assert (again["changed"], again["domains"][0]["differences"]) == (False, [])
    assert run(vcenter, {**grouped, "nics": {}}, allow_restart=True)["changed"]
    assert seen(vcenter)["train"]["configuration"]["device_group"] == "Nvidia:2@nvlink"
    assert run(vcenter, vm(), allow_restart=True)["changed"]
    have = seen(vcenter)["train"]["configuration"]
    assert (have["device_group"], len(have["devices"])) == ("", 4)
    assert not run(vcenter, vm())["changed"]


def test_a_run_reads_all_properties_in_one_request(vcenter):
    run(vcenter, vm())
    vcenter.forget()
    run(vcenter, vm())
    requests = vcenter.requests()
    assert requests["RetrievePropertiesEx"] == 1
    assert requests["Login"] == requests["Logout"] == 1
    assert sum(requests.values()) <= 9


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"memory_mib": 4 << 20}, "more than the NUMA nodes"),
        ({"vsphere": {"host": "esx02"}}, "not active for passthrough"),
        ({"vsphere": {"host": "esx09"}}, "there is no host 'esx09'; choose one of esx01, esx02"),
        ({"vsphere": {"sriov_network": ""}}, "virtual functions without vsphere.sriov_network"),
        ({"vsphere": {"hardware_version": "vmx-17"}}, None),
        ({"vsphere": {"hardware_version": "vmx-30"}}, "newer than ESXi 8.0.3 supports"),
        ({"vsphere": {"hardware_version": "vmx-15", "passthrough": "dynamic"}}, "dynamic DirectPath I/O needs vmx-17"),
        ({"firmware": "bios"}, "firmware bios with GPUs"),
        ({"lock_memory": False, "gpus": {"count": 0}, "nics": {}}, "latency sensitivity high without all memory"),
        ({"disks": [{"path": "/x", "size_mib": 8 << 20}]}, "the new disks can grow to"),
        ({"disks": [{"path": "/x"}]}, "no size_mib"),
        ({"interfaces": [{"type": "user"}]}, "no source"),
        ({"vsphere": {"wrong": "x"}}, "unknown setting 'wrong'"),
    ],
)
def test_requests_that_would_fail_are_refused_before_a_change(vcenter, change, words):
    if words is None:
        assert run(vcenter, vm(**change))["domains"][0]["plan"]["configuration"]["threads_per_core"] == 1
        return
    with pytest.raises(DomainError, match=words):
        run(vcenter, vm(**change), state="running")
    assert "CreateVM_Task" not in vcenter.requests()


def test_the_error_of_a_wrong_password_does_not_contain_it(vcenter):
    with raises(DomainError, "vCenter", "user") as caught:
        run(vcenter, vm(), password="another secret")
    assert "another secret" not in str(caught.value)
    assert PASSWORD not in str(caught.value)


def test_an_untrusted_certificate_is_refused_unless_validation_is_off(vcenter):
    with raises(DomainError, "certificate", "trusted", "ca_path"):
        run(vcenter, vm(), ca_path=None)
    assert run(vcenter, vm(), ca_path=None, validate_certs=False)["changed"]


def test_an_expired_session_is_renewed(vcenter):
    vcenter.rule("RetrievePropertiesEx", "expire")
    vcenter.rule("CreateVM_Task", "expire")
    assert run(vcenter, vm())["changed"]
    assert vcenter.requests()["Login"] == 3
    assert list(seen(vcenter)) == ["train"]


def test_reading_is_repeated_after_a_connection_is_lost_during_a_task(vcenter):
    vcenter.rule("CreateVM_Task", "delay", milliseconds=4000)
    vcenter.rule("RetrievePropertiesEx", "drop", contains="Task", times=2)
    messages: list[str] = []
    assert converge(params(vcenter, vm()), False, messages.append)["changed"]
    assert any("reading again" in line for line in messages)
    assert any(line.startswith("train: create: ") for line in messages)


def test_a_lost_answer_does_not_create_a_second_virtual_machine(vcenter):
    vcenter.rule("CreateVM_Task", "drop", after=True)
    with raises(DomainError, "train: create", "lost", "not known"):
        run(vcenter, vm())
    assert not run(vcenter, vm())["changed"]
    assert list(seen(vcenter)) == ["train"]


def test_the_error_of_a_task_has_vcenters_message_and_an_explanation(vcenter):
    vcenter.rule("PowerOnVM_Task", "task_fault", fault="InsufficientMemoryResourcesFault", message="Not enough memory.")
    with raises(DomainError, "train: power on", "Not enough memory", "reservation"):
        run(vcenter, vm(), state="running")
    # The next run completes the rest.
    assert run(vcenter, vm(), state="running")["domains"][0]["actions"] == ["power_on"]


def test_a_setting_that_vcenter_accepts_but_does_not_keep_is_an_error(vcenter, monkeypatch):
    monkeypatch.setattr(config_spec, "OWNED", ())
    with raises(DomainError, "train", "extra.pciPassthru.use64bitMMIO", "None", "'TRUE'"):
        run(vcenter, vm())


def test_two_concurrent_plays_create_one_virtual_machine(vcenter):
    vcenter.rule("CreateVM_Task", "delay", milliseconds=500)
    with ThreadPoolExecutor(2) as pool:
        plays = [pool.submit(run, vcenter, vm()) for _number in range(2)]
    failed = [str(play.exception()) for play in plays if play.exception()]
    assert len(failed) <= 1
    assert [error for error in failed if "another play is creating it" not in error] == []
    assert list(seen(vcenter)) == ["train"]


def test_disks_that_fit_one_by_one_and_not_together_are_refused():
    one, two = (vm(name, gpus={}, nics={}, vcpus=2) for name in ("one", "two"))
    with serving(site(esxi(server(), "esx01"), free_bytes=30 << 30)) as small:
        assert run(small, one, check=True)["changed"]
        with raises(RefusedError, "40 GiB", "30 GiB"):
            run(small, one, two)
        run(small, one)
        # Only new disks need room.
        assert not run(small, one)["changed"]


def test_a_setting_that_an_old_api_lacks_is_omitted_or_refused():
    with serving(site(esxi(server(), "esx01", version="8.0.3"), api_version="7.0.0.0")) as old:
        # By default, settings that this API does not have are omitted, and a warning says so.
        planned = run(old, vm(), state="planned")
        assert planned["domains"][0]["plan"]["configuration"]["cores_per_numa_node"] == 0
        [warning] = [item for item in planned["findings"] if "are left out" in item["what"]]
        assert warning["severity"] == "warn"
        assert "they need API 8.0.0.1 and vmx-20, it has API 7.0" in warning["why"]
        with raises(RefusedError, "8.0.0.1", "7.0"):
            run(old, vm(vsphere={"device_group": "Nvidia:2@nvlink"}))
        assert "CreateVM_Task" not in old.requests()
    described = site(esxi(server(), "esx01", version="6.7.0"), api_version="6.7.0.0")
    refused = pytest.raises(RefusedError, match=r"dynamic DirectPath I/O needs API 7\.0")
    with refused, serving(described) as older:
        run(older, vm(vsphere={"passthrough": "dynamic"}))
