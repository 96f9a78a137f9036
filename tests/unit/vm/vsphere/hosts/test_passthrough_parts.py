# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The choice of devices, the changes of a host and its reboot, step by step and without a vCenter."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from pyVmomi import vim
from vsphere_requests import server

from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.model import Host, Passthrough, Sriov
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.common.errors import DomainError
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.vsphere.hosts import passthrough
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.vsphere.hosts.passthrough import Work
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.vsphere.site import Esxi

GPU, NIC, PF, VF = "0000:13:00.0", "0000:14:00.0", "0000:15:00.0", "0000:15:10.0"


def model() -> Host:
    host = server()
    for function in host.functions:
        if function.kind in ("gpu", "nic"):
            function.passthrough = Passthrough(True, False, False)
    host.function(NIC).sriov = Sriov(7, 0)
    return host


def entry(*devices: str, on: bool = True, count: int | None = None) -> dict[str, Any]:
    return {"devices": list(devices), "passthrough": on, "virtual_functions": count}


def chosen(*entries: dict[str, Any]) -> dict[str, tuple[bool, int | None]]:
    return passthrough._chosen(model(), list(entries), "esx01")


def test_a_later_entry_overrides_an_earlier_one():
    assert chosen(entry("gpu")) == {GPU: (True, None), "0000:83:00.0": (True, None)}
    assert chosen(entry("gpu"), entry(GPU, on=False)) == {GPU: (False, None), "0000:83:00.0": (True, None)}
    assert chosen(entry(NIC, count=0), entry(NIC, count=7)) == {NIC: (True, 7)}
    assert chosen() == {}


@pytest.mark.parametrize(
    ("wanted", "message"),
    [
        (entry(NIC, count=8), f"host esx01: nic {NIC} is not capable of SR-IOV; leave it out"),
        (entry(GPU, count=0), f"host esx01: gpu {GPU} is not capable of SR-IOV; leave it out"),
        (entry(VF), f"host esx01: nic {VF} is not capable of passthrough; leave it out"),
        (entry("0000:10:00.0"), "host esx01: bridge 0000:10:00.0 is not capable of passthrough; leave it out"),
    ],
)
def test_an_address_of_a_device_that_is_not_capable_is_refused(wanted, message):
    with pytest.raises(DomainError) as caught:
        chosen(wanted)
    assert str(caught.value) == message


def test_a_kind_selects_only_capable_devices():
    host = model()
    host.function(GPU).passthrough = Passthrough(False, False, False)
    assert list(passthrough._chosen(host, [entry("gpu")], "esx01")) == ["0000:83:00.0"]


def info(address: str, enabled: bool = False, active: bool = False, **more: Any) -> SimpleNamespace:
    return SimpleNamespace(id=address, passthruEnabled=enabled, passthruActive=active, **more)


def virtual(address: str, enabled: bool, requested: int, now: int | None, **more: Any) -> SimpleNamespace:
    counts = {"numVirtualFunctionRequested": requested, "numVirtualFunction": now}
    return info(address, sriovEnabled=enabled, **counts, **more)


@pytest.mark.parametrize(
    ("one", "waits", "count"),
    [
        (info(GPU), False, 0),
        (info(GPU, True, True), False, 0),
        (info(GPU, True, False), True, 0),
        (info(GPU, False, True), True, 0),
        (virtual(GPU, True, 4, 4), False, 4),
        (virtual(GPU, True, 4, 3), True, 4),
        (virtual(GPU, True, 4, None), True, 4),
        (virtual(GPU, False, 4, 0), False, 0),
        (virtual(GPU, False, 4, 4), True, 0),
        (virtual(GPU, True, 0, None), False, 0),
    ],
)
def test_a_device_waits_if_its_settings_are_not_in_effect(one, waits, count):
    assert passthrough._waits(one, {GPU: (True, None)}) is waits
    assert passthrough._waits(one, {}) is False
    assert passthrough._state(one) == {"passthrough": one.passthruEnabled, "virtual_functions": count}


def test_functions_concern_a_request_for_devices_of_a_vendor_that_has_some():
    host = model()
    host.function(PF).sriov = Sriov(7, 2, [VF])
    assert passthrough._concerns_functions([NIC], host) is True
    assert passthrough._concerns_functions([GPU], host) is False
    assert passthrough._concerns_functions([], host) is False
    for function in host.functions:
        if function.sriov:
            function.sriov.now = 0
    assert passthrough._concerns_functions([NIC], host) is False


class Site:
    """A site with the models of one host: without and with its virtual functions."""

    def __init__(self, host: Host, api: tuple[int, ...] = (8, 0)) -> None:
        self.host, self.asked, self.session = host, [], SimpleNamespace(api_version=api)

    def model(self, _host: Esxi, _accelerators: Any, functions: bool = True) -> Host:
        self.asked.append(functions)
        return self.host


def esxi(*infos: Any, rebinds: bool | None = True, **more: Any) -> Esxi:
    capability = None if rebinds is None else SimpleNamespace(deviceRebindWithoutRebootSupported=rebinds)
    values = {"capability": capability, passthrough.PASSTHROUGH: list(infos), **more}
    return Esxi("esx01", SimpleNamespace(_moId="host-1"), "gpu", values)


def work(host: Esxi, *entries: dict[str, Any], of: Host | None = None, api: tuple[int, ...] = (8, 0)) -> Work:
    return passthrough._work(host, Site(of or model(), api), {"accelerators": {}, "settings": list(entries)})


def change(address: str, before: dict[str, Any], after: dict[str, Any]) -> dict[str, Any]:
    return {"address": address, "before": before, "after": after}


ON, OFF = {"passthrough": True}, {"passthrough": False}


def test_only_devices_that_differ_are_changed():
    host = esxi(info(GPU), info("0000:83:00.0", True, True), info(NIC))
    found = work(host, entry("gpu"))
    assert (found.changes, found.reboot) == ([change(GPU, OFF, ON)], False)
    # A count of None leaves virtual functions as they are.
    host = esxi(virtual(NIC, True, 4, 4))
    assert work(host, entry(NIC)).changes == [change(NIC, OFF, ON)]
    found = work(host, entry(NIC, on=False, count=7))
    assert found.changes == [change(NIC, {**OFF, "virtual_functions": 4}, {**OFF, "virtual_functions": 7})]
    assert work(host, entry(NIC, on=False, count=4)).changes == []


@pytest.mark.parametrize(
    ("rebinds", "api", "reboot"),
    [(True, (7, 0), False), (True, (6, 9), True), (False, (8, 0), True), (None, (8, 0), True)],
)
def test_a_host_that_cannot_rebind_needs_a_reboot(rebinds, api, reboot):
    assert work(esxi(info(GPU), rebinds=rebinds), entry(GPU), api=api).reboot is reboot
    # Without a change, only a device that waits needs it.
    for active in (True, False):
        one = work(esxi(info(GPU, True, active), rebinds=rebinds), entry(GPU), api=api)
        assert (one.changes, one.reboot) == ([], not active)


def test_an_earlier_device_that_waits_keeps_the_reboot():
    host = esxi(info(GPU, True, False), info("0000:83:00.0", True, True))
    assert work(host, entry("gpu")).reboot is True
    host = esxi(info(GPU, True, False), info("0000:83:00.0"))
    assert work(host, entry("gpu")).reboot is True


def test_virtual_functions_are_read_only_if_they_are_concerned():
    host = model()
    host.function(PF).sriov = Sriov(7, 1, [VF])
    for selector, asked in ((GPU, [False]), (NIC, [False, True])):
        one = Site(host)
        passthrough._work(esxi(), one, {"accelerators": {}, "settings": [entry(selector)]})
        assert one.asked == asked


def holding(address: str, running: bool) -> Any:
    device = vim.vm.device.VirtualPCIPassthrough(
        backing=vim.vm.device.VirtualPCIPassthrough.DeviceBackingInfo(id=address)
    )
    config = SimpleNamespace(
        hardware=SimpleNamespace(device=[device], memoryMB=1, numCPU=1), extraConfig=[], latencySensitivity=None
    )
    return SimpleNamespace(name="train", running=running, config=config)


@pytest.mark.parametrize("held", [PF, VF])
def test_a_device_of_a_running_machine_or_with_its_function_is_not_changed(held):
    of = model()
    of.function(PF).sriov = Sriov(7, 1, [VF])
    host = esxi(virtual(PF, True, 1, 1))
    host.machines = {"train": holding(held, True)}
    with pytest.raises(DomainError) as caught:
        work(host, entry(PF, on=False, count=2), of=of)
    assert str(caught.value) == f"host esx01: running virtual machine train has {held}; stop it first"
    host.machines = {"train": holding(held, False)}
    assert len(work(host, entry(PF, on=False, count=2), of=of).changes) == 1


@pytest.mark.parametrize(
    ("changes", "reboot", "rebooted", "row"),
    [
        ([], False, False, (False, False, False)),
        ([{"address": GPU}], False, False, (True, False, False)),
        ([], True, False, (False, True, False)),
        ([], True, True, (True, False, True)),
    ],
)
def test_a_reboot_is_a_change_and_is_no_longer_required(changes, reboot, rebooted, row):
    found = Work(esxi(), model(), {}, changes, reboot).to_dict(rebooted)
    assert found == {
        "name": "esx01", "changed": row[0], "changes": changes, "reboot_required": row[1], "rebooted": row[2],
    }  # fmt: skip


class Session:
    """A session that records its requests; ``rows`` are the answers to reads, the last one again and again."""

    def __init__(self, *rows: Any) -> None:
        self.rows, self.calls, self.told = list(rows), [], []

    def bound(self, reference: Any) -> Any:
        def method(name: str) -> Any:
            return lambda *arguments: (name, *arguments)

        class Own:
            def __getattr__(self, name: str) -> Any:
                return method(name)

        return Own()

    def call(self, what: str, request: Any) -> Any:
        self.calls.append((what, *request()))
        return what

    def wait(self, tasks: dict[str, tuple[str, Any]], limit_s: int) -> None:
        self.calls.append(("wait", *((key, what, limit_s) for key, (what, _task) in tasks.items())))

    def read(self, kinds: Any) -> dict[str, Any]:
        (kind,) = kinds
        return {kind: self.rows.pop(0) if len(self.rows) > 1 else self.rows[0]}

    def tell(self, line: str) -> None:
        self.told.append(line)


@pytest.mark.parametrize(("rebinds", "now"), [(True, True), (False, None)])
def test_all_changes_of_a_host_are_one_request(rebinds, now):
    after = (
        {"passthrough": True},
        {"passthrough": False, "virtual_functions": 1},
        {"passthrough": False, "virtual_functions": 0},
    )
    one = Work(esxi(rebinds=rebinds, **{"configManager.pciPassthruSystem": "system"}), model(), {})
    one.changes = [{"address": address, "after": state} for address, state in zip((GPU, NIC, PF), after)]
    session = Session()
    passthrough._apply(one, Site(model()), session)
    ((what, method, configs),) = session.calls
    assert (what, method) == ("host esx01: passthrough", "UpdatePassthruConfig")
    assert [(item.id, item.passthruEnabled, item.applyNow) for item in configs] == [
        (GPU, True, now), (NIC, False, now), (PF, False, now),
    ]  # fmt: skip
    assert not hasattr(configs[0], "sriovEnabled")
    assert [(item.sriovEnabled, item.numVirtualFunction) for item in configs[1:]] == [(True, 1), (False, 0)]


def test_hosts_that_were_changed_are_read_again():
    one = Work(esxi(), model(), {GPU: (True, None)}, reboot=True)
    rows = [(SimpleNamespace(_moId="host-1"), {passthrough.PASSTHROUGH: [info(GPU, True, True)]})]
    passthrough._read_again([one], Session(rows))
    assert one.reboot is False
    rows[0][1][passthrough.PASSTHROUGH] = [info(NIC, True, False), info(GPU, True, False)]
    passthrough._read_again([one], Session(rows))
    assert one.reboot is True
    passthrough._read_again([], Session())


def test_running_and_suspended_machines_of_the_host_are_listed():
    def row(name: str, host: str | None, power: str) -> Any:
        values = {"name": name, "runtime.powerState": power}
        return None, {**values, **({"runtime.host": SimpleNamespace(_moId=host)} if host else {})}

    rows = [
        row("on", "host-1", "poweredOn"), row("off", "host-1", "poweredOff"), row("paused", "host-1", "suspended"),
        row("elsewhere", "host-2", "poweredOn"), row("nowhere", None, "poweredOn"),
    ]  # fmt: skip
    one = Work(esxi(), model(), {})
    assert passthrough._running(one, Session(rows)) == ["on", "paused"]
    passthrough._check_reboot(one, [])
    with pytest.raises(DomainError) as caught:
        passthrough._check_reboot(one, ["b", "a"])
    assert str(caught.value) == (
        "host esx01 needs a reboot, but a, b run on it; stop or move them, or run without allow_reboot"
    )


class Clock:
    """A clock that only ``sleep`` advances."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, pause: float) -> None:
        self.now += pause


def boot(time: Any, state: str = "connected") -> list[Any]:
    properties = {"name": "esx01", "runtime.connectionState": state, "runtime.bootTime": time}
    return [(None, {"name": "other", "runtime.connectionState": "connected"}), (None, properties)]


ENTER = ("host esx01: enter maintenance mode", "EnterMaintenanceMode_Task", 60, False)
REBOOT = ("host esx01: reboot", "RebootHost_Task", False)
EXIT = ("host esx01: exit maintenance mode", "ExitMaintenanceMode_Task", 60)


@pytest.mark.parametrize(("maintenance", "steps"), [(False, [ENTER, REBOOT, EXIT]), (True, [REBOOT])])
def test_a_reboot_waits_for_a_later_boot_in_maintenance_mode(monkeypatch, maintenance, steps):
    monkeypatch.setattr(passthrough, "time", Clock())
    session = Session(boot(1), boot(1), boot(1, "notResponding"), boot(2, "notResponding"), boot(2))
    one = Work(esxi(**{"runtime.inMaintenanceMode": maintenance}), model(), {})
    passthrough._reboot(one, session, 60)
    assert [call for call in session.calls if call[0] != "wait"] == steps
    assert [call for call in session.calls if call[0] == "wait"] == [("wait", ("esx01", step[0], 60)) for step in steps]
    assert session.told == [
        "host esx01: it reboots",
        "host esx01: it is not back yet, its state is connected",
        "host esx01: it is not back yet, its state is notResponding",
        "host esx01: it is not back yet, its state is notResponding",
    ]
    assert passthrough.time.now == 15


def test_a_host_that_is_not_back_after_the_limit_is_an_error(monkeypatch):
    monkeypatch.setattr(passthrough, "time", Clock())
    with pytest.raises(DomainError) as caught:
        passthrough._reboot(Work(esxi(), model(), {}), Session(boot(1)), 10)
    assert str(caught.value) == "host esx01 is not back 10 s after its reboot; look at its console"
    # It is looked at once more at the limit itself.
    assert passthrough.time.now == 15
