# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Passthrough on hosts in states that the simulated vCenter does not have."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from clock import Clock
from messages import raises
from pyVmomi import vim
from vsphere_requests import server

from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.model import Host, Passthrough, Sriov
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.common.errors import DomainError
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.vsphere.hosts import passthrough
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.vsphere.site import Esxi

GPU, GPU2, NIC, PF, VF = "0000:13:00.0", "0000:83:00.0", "0000:14:00.0", "0000:15:00.0", "0000:15:10.0"
REFERENCE = SimpleNamespace(_moId="host-1")
ON, OFF = {"passthrough": True}, {"passthrough": False}


def info(address: str, enabled: bool = False, active: bool = False, **more: Any) -> SimpleNamespace:
    return SimpleNamespace(id=address, passthruEnabled=enabled, passthruActive=active, **more)


def virtual(address: str, enabled: bool, requested: int, now: int | None) -> SimpleNamespace:
    counts = {"numVirtualFunctionRequested": requested, "numVirtualFunction": now}
    return info(address, sriovEnabled=enabled, **counts)


def entry(*devices: str, on: bool = True, count: int | None = None) -> dict[str, Any]:
    return {"devices": list(devices), "passthrough": on, "virtual_functions": count}


class VCenter:
    """A session and a site with one host; ``infos`` are its devices, ``later`` the answers to reads, the last again."""

    def __init__(self, *infos: Any, rebinds: bool | None = True, api: tuple[int, ...] = (8, 0), **more: Any) -> None:
        capability = None if rebinds is None else SimpleNamespace(deviceRebindWithoutRebootSupported=rebinds)
        system = {"configManager.pciPassthruSystem": "system"}
        values = {"capability": capability, passthrough.PASSTHROUGH: list(infos), **system, **more}
        self.host, self.api_version, self.session = Esxi("esx01", REFERENCE, "gpu", values), api, self
        self.topology = server()
        for function in self.topology.functions:
            if function.kind in ("gpu", "nic"):
                function.passthrough = Passthrough(True, False, False)
        self.topology.function(NIC).sriov = Sriov(7, 0)
        self.asked: list[bool] = []
        self.calls: list[tuple[Any, ...]] = []
        self.told: list[str] = []
        self.later: list[Any] = [[(REFERENCE, {passthrough.PASSTHROUGH: []})]]

    def __enter__(self) -> VCenter:
        return self

    def __exit__(self, *_error: object) -> None:
        pass

    def chosen(self, _names: list[str]) -> list[Esxi]:
        return [self.host]

    def model(self, _host: Esxi, _accelerators: Any, functions: bool = True) -> Host:
        self.asked.append(functions)
        return self.topology

    def bound(self, _reference: Any) -> Any:
        names = ("UpdatePassthruConfig", "EnterMaintenanceMode_Task", "RebootHost_Task", "ExitMaintenanceMode_Task")
        return SimpleNamespace(**{name: lambda *arguments, name=name: (name, *arguments) for name in names})

    def call(self, what: str, request: Any) -> str:
        self.calls.append(request())
        return what

    def wait(self, tasks: dict[str, Any], limit_s: int) -> None:
        self.calls.append(("wait", *tasks, limit_s))

    def read(self, kinds: Any) -> dict[str, Any]:
        (kind,) = kinds
        return {kind: self.later.pop(0) if len(self.later) > 1 else self.later[0]}

    def tell(self, line: str) -> None:
        self.told.append(line)

    def run(self, *entries: dict[str, Any], check: bool = True, reboot: bool = False) -> dict[str, Any]:
        """Return the row of the host in the module's result."""
        login = {
            "hostname": "vc",
            "username": "u",
            "password": "p",
            "port": 443,
            "validate_certs": True,
            "ca_path": None,
        }
        params = {"cluster": "gpu", "hosts": [], "accelerators": {}, "allow_reboot": reboot, "reboot_timeout_s": 10}
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(passthrough, "Session", lambda _login, _progress: self)
            patched.setattr(passthrough, "VsphereCluster", lambda _session, _cluster: self)
            patched.setattr(passthrough, "time", Clock())
            (row,) = passthrough.converge({**login, **params, "settings": list(entries)}, check)["hosts"]
        return row


def changes(*of: tuple[str, dict[str, Any], dict[str, Any]]) -> list[dict[str, Any]]:
    return [{"address": address, "before": before, "after": after} for address, before, after in of]


def test_only_devices_that_differ_are_changed_and_later_entries_override():
    gpus = info(GPU), info(GPU2, True, True), info(NIC)
    row = VCenter(*gpus).run(entry("gpu"))
    assert (row["changes"], row["reboot_required"]) == (changes((GPU, OFF, ON)), False)
    assert VCenter(*gpus).run(entry("gpu"), entry(GPU, on=False), entry(GPU2, on=False))["changes"] == changes(
        (GPU2, ON, OFF)
    )
    # A count of None leaves virtual functions as they are.
    assert VCenter(virtual(NIC, True, 4, 4)).run(entry(NIC))["changes"] == changes((NIC, OFF, ON))
    row = VCenter(virtual(NIC, True, 4, 4)).run(entry(NIC, on=False, count=7))
    assert row["changes"] == changes((NIC, {**OFF, "virtual_functions": 4}, {**OFF, "virtual_functions": 7}))
    assert VCenter(virtual(NIC, True, 4, 4)).run(entry(NIC, on=False, count=4))["changes"] == []
    disabled = VCenter(virtual(NIC, False, 4, 4)).run(entry(NIC, on=False, count=4))
    assert disabled["changes"][0]["before"]["virtual_functions"] == 0


@pytest.mark.parametrize(
    ("wanted", "facts"),
    [
        (entry(NIC, count=8), (NIC, "SR-IOV")),
        (entry(GPU, count=0), (GPU, "SR-IOV")),
        (entry(VF), (VF, "passthrough")),
        (entry("0000:10:00.0"), ("0000:10:00.0", "passthrough")),
    ],
)
def test_an_address_of_a_device_that_is_not_capable_is_refused(wanted, facts):
    with raises(DomainError, "esx01", *facts):
        VCenter(info(NIC), info(GPU)).run(wanted)


def test_a_kind_selects_only_capable_devices():
    vcenter = VCenter(info(GPU), info(GPU2))
    vcenter.topology.function(GPU).passthrough = Passthrough(False, False, False)
    assert vcenter.run(entry("gpu"))["changes"] == changes((GPU2, OFF, ON))


@pytest.mark.parametrize(
    ("device", "waits"),
    [
        (info(NIC), False),
        (info(NIC, True, True), False),
        (info(NIC, True, False), True),
        (info(NIC, False, True), True),
        (virtual(NIC, True, 4, 4), False),
        (virtual(NIC, True, 4, 3), True),
        (virtual(NIC, True, 4, None), True),
        (virtual(NIC, False, 4, 0), False),
        (virtual(NIC, False, 4, 4), True),
        (virtual(NIC, True, 0, None), False),
    ],
)
def test_a_host_waits_for_a_reboot_if_a_setting_is_not_in_effect(device, waits):
    row = VCenter(device).run(entry(NIC, on=device.passthruEnabled))
    assert (row["changes"], row["reboot_required"]) == ([], waits)
    assert VCenter(device).run(entry("gpu"))["reboot_required"] is False
    # A change of another device keeps the reboot.
    assert VCenter(device, info(GPU)).run(entry(NIC, on=device.passthruEnabled), entry(GPU))["reboot_required"] is waits


@pytest.mark.parametrize(
    ("rebinds", "api", "reboot"),
    [(True, (7, 0), False), (True, (6, 9), True), (False, (8, 0), True), (None, (8, 0), True)],
)
def test_a_host_that_cannot_rebind_needs_a_reboot_for_a_change(rebinds, api, reboot):
    assert VCenter(info(GPU), rebinds=rebinds, api=api).run(entry(GPU))["reboot_required"] is reboot


def test_virtual_functions_are_read_only_if_they_are_concerned():
    for selector, count, asked in ((GPU, 1, [False]), (NIC, 1, [False, True]), (NIC, 0, [False])):
        vcenter = VCenter()
        for function in vcenter.topology.functions:
            if function.sriov:
                function.sriov.now = 0
        vcenter.topology.function(PF).sriov = Sriov(7, count, [VF])
        vcenter.run(entry(selector))
        assert vcenter.asked == asked


@pytest.mark.parametrize("held", [PF, VF])
def test_a_device_of_a_running_machine_or_with_its_function_is_not_changed(held):
    backing = vim.vm.device.VirtualPCIPassthrough.DeviceBackingInfo(id=held)
    hardware = SimpleNamespace(device=[vim.vm.device.VirtualPCIPassthrough(backing=backing)], memoryMB=1, numCPU=1)
    config = SimpleNamespace(hardware=hardware, extraConfig=[], latencySensitivity=None)
    vcenter = VCenter(virtual(PF, True, 1, 1))
    vcenter.topology.function(PF).sriov = Sriov(7, 1, [VF])
    vcenter.host.machines = {"train": SimpleNamespace(name="train", running=True, config=config)}
    with raises(DomainError, "esx01", "train", held):
        vcenter.run(entry(PF, on=False, count=2))
    vcenter.host.machines["train"].running = False
    assert len(vcenter.run(entry(PF, on=False, count=2))["changes"]) == 1


@pytest.mark.parametrize(("rebinds", "now"), [(True, True), (False, None)])
def test_all_changes_of_a_host_are_one_request(rebinds, now):
    vcenter = VCenter(info(GPU), virtual(NIC, False, 0, 0), virtual(PF, True, 2, 2), rebinds=rebinds)
    vcenter.topology.function(PF).sriov = Sriov(7, 2)
    vcenter.run(entry(GPU), entry(NIC, on=False, count=1), entry(PF, on=False, count=0), check=False)
    ((method, configs),) = vcenter.calls
    assert method == "UpdatePassthruConfig"
    assert [(item.id, item.passthruEnabled, item.applyNow) for item in configs] == [
        (GPU, True, now), (NIC, False, now), (PF, False, now),
    ]  # fmt: skip
    assert not hasattr(configs[0], "sriovEnabled")
    assert [(item.sriovEnabled, item.numVirtualFunction) for item in configs[1:]] == [(True, 1), (False, 0)]


@pytest.mark.parametrize("active", [True, False])
def test_hosts_that_were_changed_are_read_again(active):
    vcenter = VCenter(info(GPU), rebinds=not active)
    vcenter.later = [[(REFERENCE, {passthrough.PASSTHROUGH: [info(NIC, True, False), info(GPU, True, active)]})]]
    assert vcenter.run(entry(GPU), check=False)["reboot_required"] is not active


def machine(name: str, host: str | None, power: str) -> Any:
    reference = {"runtime.host": SimpleNamespace(_moId=host)} if host else {}
    return None, {"name": name, "runtime.powerState": power, **reference}


ELSEWHERE = [
    machine("off", "host-1", "poweredOff"), machine("elsewhere", "host-2", "poweredOn"),
    machine("nowhere", None, "poweredOn"),
]  # fmt: skip


@pytest.mark.parametrize("power", ["poweredOn", "suspended"])
def test_a_host_with_a_running_or_suspended_machine_is_not_rebooted(power):
    vcenter = VCenter(info(GPU, True, False))
    vcenter.later = [[*ELSEWHERE, machine("late", "host-1", power)]]
    with raises(DomainError, "esx01", "late", "allow_reboot") as refused:
        vcenter.run(entry(GPU), check=False, reboot=True)
    assert "where" not in str(refused.value)
    assert vcenter.calls == []
    assert not VCenter(info(GPU, True, True)).run(entry(GPU), reboot=True)["rebooted"]


def boot(time: Any, state: str = "connected") -> list[Any]:
    properties = {"name": "esx01", "runtime.connectionState": state, "runtime.bootTime": time}
    return [(None, {"name": "other", "runtime.connectionState": "connected"}), (None, properties)]


ENTER, REBOOT = ("EnterMaintenanceMode_Task", 10, False), ("RebootHost_Task", False)
EXIT = ("ExitMaintenanceMode_Task", 10)


@pytest.mark.parametrize(("maintenance", "steps"), [(False, [ENTER, REBOOT, EXIT]), (True, [REBOOT])])
def test_a_reboot_waits_for_a_later_boot_in_maintenance_mode(maintenance, steps):
    vcenter = VCenter(info(GPU, True, False), **{"runtime.inMaintenanceMode": maintenance})
    vcenter.later = [ELSEWHERE, boot(1), boot(1), boot(2, "notResponding"), boot(2)]
    assert vcenter.run(entry(GPU), check=False, reboot=True)["rebooted"]
    assert vcenter.calls == [call for step in steps for call in (step, ("wait", "esx01", 10))]
    assert [line.split()[-1] for line in vcenter.told] == ["reboots", "connected", "notResponding"]


def test_a_host_that_is_not_back_after_the_limit_is_an_error():
    vcenter = VCenter(info(GPU, True, False))
    vcenter.later = [ELSEWHERE, boot(1)]
    with raises(DomainError, "esx01", "10 s"):
        vcenter.run(entry(GPU), check=False, reboot=True)
    # It is looked at once more at the limit itself.
    assert len(vcenter.told) == 5
