# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Passthrough and SR-IOV on hosts of the simulated vCenter."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from messages import raises
from simulated_vcenter import VCenter, esxi, serving, site
from vsphere_requests import run, server, vm

from ansible_collections.sailloft.fleet.plugins.module_utils.common.error import SailloftError
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.common.errors import DomainError
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.vsphere.hosts import passthrough
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.vsphere.hosts.passthrough import converge
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.vsphere.session import Login, Session
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.vsphere.site import VsphereCluster


@pytest.fixture
def vcenter() -> Iterator[VCenter]:
    hosts = [esxi(server(), "esx01", active=False), esxi(server(), "esx02", active=False, apply_now=False)]
    with serving(site(*hosts)) as served:
        yield served
        assert served.sessions() == 0


def entry(*devices: str, **more: Any) -> dict[str, Any]:
    return {"devices": list(devices or ["gpu"]), "passthrough": True, "virtual_functions": None, **more}


def enable(
    vcenter: VCenter, *entries: dict[str, Any], check: bool = False, tell: Any = None, **more: Any
) -> dict[str, Any]:
    options = {"validate_certs": True, "cluster": "gpu", "hosts": ["esx01"], "accelerators": {}, "allow_reboot": False}
    return converge(
        {**vcenter.login, **options, "reboot_timeout_s": 30, "settings": list(entries or [entry()]), **more},
        check,
        tell,
    )


def test_passthrough_is_applied_without_a_reboot_in_one_request(vcenter):
    predicted = enable(vcenter, check=True)
    done = enable(vcenter)
    assert predicted == done
    assert (done["changed"], done["reboot_required"]) == (True, False)
    assert [item["address"] for item in done["hosts"][0]["changes"]] == ["0000:13:00.0", "0000:83:00.0"]
    assert vcenter.requests()["UpdatePassthruConfig"] == 1
    [diff] = done["diff"]
    assert diff["before"].splitlines()[0] == "0000:13:00.0: {'passthrough': False}"
    assert diff["after"].splitlines()[0] == "0000:13:00.0: {'passthrough': True}"
    again = enable(vcenter)
    assert (again["changed"], again["diff"]) == (False, [])


def test_a_host_that_needs_a_reboot_is_rebooted_only_if_allowed(vcenter):
    first = enable(vcenter, hosts=["esx02"])
    assert (first["changed"], first["reboot_required"]) == (True, True)
    waiting = enable(vcenter, hosts=["esx02"])
    assert (waiting["changed"], waiting["reboot_required"]) == (False, True)
    assert "RebootHost_Task" not in vcenter.requests()
    run(vcenter, vm("elsewhere", gpus={}, nics={}), state="running")
    told: list[str] = []
    done = enable(vcenter, hosts=["esx02"], allow_reboot=True, tell=told.append)
    assert "host esx02: it reboots" in told
    assert (done["changed"], done["reboot_required"], done["hosts"][0]["rebooted"]) == (True, False, True)
    requests = vcenter.requests()
    assert requests["EnterMaintenanceMode_Task"] == requests["ExitMaintenanceMode_Task"] == 1
    assert not enable(vcenter, hosts=["esx02"], allow_reboot=True)["changed"]


def test_a_host_with_running_virtual_machines_is_not_rebooted(vcenter):
    run(vcenter, vm("other", gpus={}, nics={}, vsphere={"host": "esx02"}), state="running")
    with raises(DomainError, "esx02", "allow_reboot", "other"):
        enable(vcenter, hosts=["esx02"], allow_reboot=True)
    assert "UpdatePassthruConfig" not in vcenter.requests()


def test_a_host_is_not_rebooted_if_a_machine_started_on_it_during_the_run():
    described = [esxi(server(), name, active=False, apply_now=False) for name in ("esx01", "esx02")]

    def start(line: str) -> None:
        if line == "host esx01: it reboots":
            run(vcenter, vm("late", gpus={}, nics={}, vsphere={"host": "esx02"}), state="running")

    with serving(site(*described)) as vcenter:
        with raises(DomainError, "esx02", "allow_reboot", "late"):
            enable(vcenter, hosts=[], allow_reboot=True, tell=start)
        requests = vcenter.requests()
        assert requests["RebootHost_Task"] == requests["EnterMaintenanceMode_Task"] == 1


def test_a_host_in_maintenance_mode_stays_in_it(vcenter):
    with Session(Login.of({**vcenter.login, "validate_certs": True})) as session:
        [host] = VsphereCluster(session).chosen(["esx02"])
        session.wait({"": ("", session.bound(host.reference).EnterMaintenanceMode_Task(0, False))}, 10)
    assert enable(vcenter, hosts=["esx02"], allow_reboot=True)["hosts"][0]["rebooted"]
    requests = vcenter.requests()
    assert requests["EnterMaintenanceMode_Task"] == 1
    assert "ExitMaintenanceMode_Task" not in requests


def test_a_host_that_is_not_back_after_its_reboot_is_an_error(vcenter, monkeypatch):
    monkeypatch.setattr(passthrough, "POLL_S", 0)
    read = Session.read

    def without_answer(session: Session, kinds: Any, root: Any = None) -> Any:
        rows = read(session, kinds, root)
        if "runtime.bootTime" in kinds.get("HostSystem", []):
            for _reference, properties in rows["HostSystem"]:
                properties["runtime.connectionState"] = "notResponding"
        return rows

    monkeypatch.setattr(Session, "read", without_answer)
    told: list[str] = []
    with raises(DomainError, "esx02", "0 s"):
        enable(vcenter, hosts=["esx02"], allow_reboot=True, reboot_timeout_s=0, tell=told.append)
    assert "host esx02: it is not back yet, its state is notResponding" in told


def test_virtual_functions_are_enabled_once(vcenter):
    nic = entry("0000:14:00.0", passthrough=False, virtual_functions=2)
    done = enable(vcenter, nic)
    assert done["hosts"][0]["changes"][0]["after"] == {"passthrough": False, "virtual_functions": 2}
    assert not enable(vcenter, nic)["changed"]


def test_a_run_reads_the_inventory_once_and_once_more_after_changes(vcenter):
    """The inventory is read once, its changes once more, and virtual functions only if the request concerns them."""
    enable(vcenter)
    assert vcenter.requests()["RetrievePropertiesEx"] == 2
    vcenter.forget()
    enable(vcenter)
    requests = vcenter.requests()
    assert requests["RetrievePropertiesEx"] == 1
    assert "QueryConfigTarget" not in requests
    enable(vcenter, entry("0000:14:00.0", passthrough=False))
    assert vcenter.requests()["QueryConfigTarget"] == 1


def test_the_device_class_nic_does_not_include_virtual_functions(vcenter):
    """The functions of both NICs have passthrough, but the NICs do not."""
    assert not enable(vcenter, entry("nic", passthrough=False))["changed"]


def test_a_nic_with_a_function_in_a_running_virtual_machine_is_not_changed(vcenter):
    enable(vcenter)
    run(vcenter, vm(), state="running")
    with raises(DomainError, "esx01", "train", "0000:15:10.0"):
        enable(vcenter, entry("nic", passthrough=False, virtual_functions=0))


def test_a_vendor_pattern_matches_only_capable_devices(vcenter):
    done = enable(vcenter, entry("10de:*", "8086:*", virtual_functions=3, passthrough=False))
    changed = [item["address"] for item in done["hosts"][0]["changes"]]
    assert changed == ["0000:14:00.0", "0000:15:00.0", "0000:84:00.0", "0000:85:00.0"]


def test_a_device_of_a_running_virtual_machine_is_not_changed(vcenter):
    enable(vcenter)
    run(vcenter, vm(nics={}), state="running")
    with raises(DomainError, "train", "0000:13:00.0"):
        enable(vcenter, entry(passthrough=False))


@pytest.mark.parametrize(
    ("wanted", "facts"),
    [
        (entry("0000:99:00.0"), ("settings[0].devices", "0000:99:00.0")),
        (entry("0000:10:00.0"), ("0000:10:00.0", "passthrough")),
        (entry("0000:14:00.0", virtual_functions=1000), ("0000:14:00.0", "SR-IOV")),
    ],
)
def test_settings_that_a_host_does_not_support_are_refused(vcenter, wanted, facts):
    with raises(SailloftError, "esx01", *facts):
        enable(vcenter, wanted)
    assert "UpdatePassthruConfig" not in vcenter.requests()


def test_the_error_has_the_message_of_vcenter(vcenter):
    vcenter.rule("UpdatePassthruConfig", "fault", fault="HostConfigFault", message="Device is owned by the vmkernel.")
    with raises(DomainError, "esx01", "passthrough", "Device is owned by the vmkernel"):
        enable(vcenter)
