# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The steps of a run on vSphere one by one: plans, reservations, requests in order, and what is read back."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from vsphere_requests import NETWORK, server, vm

from ansible_collections.sailloft.fleet.plugins.module_utils.vm.common.errors import DomainError
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.observed.hypervisor import Holdings
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.preflight.findings import REFUSE, WARN, Finding
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.vsphere import converge, read_back
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.vsphere.request import parse
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.vsphere.results import MachineRow
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.vsphere.site import Esxi, Machine

CONNECTED = {
    "runtime.connectionState": "connected",
    "config.product": SimpleNamespace(version="8.0.3"),
    "summary.hardware.cpuMhz": 2000,
}


def esxi(name: str = "esx01", **more: Any) -> Esxi:
    return Esxi(name, f"ref-{name}", "gpu", {**CONNECTED, **more})


class Site:
    """A site whose hosts are all like the emulated server."""

    network_names: dict[str, str] = {}  # noqa: RUF012
    networks = {NETWORK: (None, "key", "uuid")}  # noqa: RUF012

    def __init__(self, *hosts: Esxi, free_bytes: dict[str, int] | None = None) -> None:
        self.hosts = {host.name: host for host in hosts}
        self.free_bytes = {"store": 1 << 40} if free_bytes is None else free_bytes
        self.models = {host.name: server() for host in hosts}
        self.machines: dict[str, Any] = {}

    def model(self, host: Esxi, _accelerators: Any = None) -> Any:
        return self.models[host.name]

    def datastore(self, name: str, _domain: str) -> str:
        return name or "store"

    def folder(self, host: Esxi) -> Any:
        return Recorded(f"folder of {host.name}")

    def pool(self, host: Esxi) -> str:
        return f"pool of {host.name}"


class Recorded:
    """A managed object whose methods return their name and arguments."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __getattr__(self, method: str) -> Any:
        return lambda *arguments: (self.name, method, *arguments)


class Session:
    """A session that records requests and waits in order; each task is its request."""

    def __init__(self, rows: Any = ()) -> None:
        self.calls: list[Any] = []
        self.rows = list(rows)

    def bound(self, reference: str) -> Any:
        return Recorded(reference)

    def call(self, what: str, request: Any, name: str) -> Any:
        made = request()
        self.calls.append((what, made[0] if made else None, *[str(each) for each in made[1:2]], name))
        return made

    def wait(self, tasks: Any, limit_s: int) -> dict[str, Any]:
        self.calls.append(("wait", sorted(tasks), limit_s))
        return {key: f"made {key}" for key in tasks}

    def read(self, kinds: Any) -> Any:
        return dict.fromkeys(kinds, self.rows)


def row(name: str = "train", host: Esxi | None = None, state: str | None = None, **more: Any) -> MachineRow:
    (request,) = parse([vm(name, **more)])
    machine = (
        None if state is None else Machine(name, f"ref-{name}", "config", state == "running", state, "esx01", False)
    )
    return MachineRow(request, host or esxi(), machine=machine)


def test_machines_of_an_unusable_host_are_not_planned():
    bad, good = esxi("bad", **{"runtime.inMaintenanceMode": True}), esxi("good")
    rows = [row("a", bad), row("b", bad), row("c", good)]
    found = converge._plan(rows, Site(bad, good), (8, 0, 3, 0), {}, {})
    told = [
        Finding(
            name, "host bad is in maintenance mode", "nothing can be changed on it", "wait or choose another", REFUSE
        )
        for name in ("a", "b")
    ]
    assert found == told
    assert [each.unplanned for each in rows] == [*told, None]
    assert [each.wanted is not None for each in rows] == [False, False, True]
    assert rows[2].model is not None


def test_machines_that_cannot_be_planned_together_share_the_reason():
    rows = [row("a"), row("b")]
    rows[1].host = rows[0].host
    (found,) = converge._plan(rows, Site(rows[0].host), (8, 0, 3, 0), {}, {})
    assert (found.what, found.severity) == ("it cannot be planned on this host", REFUSE)
    assert [each.unplanned for each in rows] == [found, found]


@pytest.mark.parametrize(
    ("have", "asked", "hardware"),
    [(None, "", "vmx-21"), ("vmx-20", "", "vmx-20"), ("vmx-20", "vmx-21", "vmx-21"), (None, "vmx-20", "vmx-20")],
)
def test_a_machine_keeps_its_hardware_unless_another_is_requested(have, asked, hardware):
    one = row(vsphere={"hardware_version": asked})
    one.have = None if have is None else {"hardware_version": have}
    converge._plan([one], Site(one.host), (8, 0, 3, 0), {}, {})
    assert one.wanted["hardware_version"] == hardware


@pytest.mark.parametrize(
    ("told", "limit"),
    [({}, 768), ({"capability": SimpleNamespace(maxSupportedVcpus=None)}, 768),
     ({"capability": SimpleNamespace(maxSupportedVcpus=100)}, 100)],
)  # fmt: skip
def test_the_most_vcpus_are_those_that_the_host_tells(told, limit):
    host = esxi(**told)
    site = Site(host)
    for node in site.models["esx01"].numa_nodes:
        node.cpus = list(range(node.id * 500, node.id * 500 + 500))
        node.siblings = [[cpu] for cpu in node.cpus]
    (request,) = parse([vm(vcpus=None, guest_iommu=True)])
    (placement,) = converge._place(host, [request.spec], site, {}, {})
    assert placement.processors.share.vcpu_limit == limit


def test_a_machine_that_is_gone_needs_no_host():
    site = Site(esxi("esx01"), esxi("esx02"))
    (one,) = converge._rows(parse([vm("gone", vsphere={"host": "esx09"})]), site, "absent", {}, {})
    assert (one.name, one.host.name, one.machine) == ("gone", "esx01", None)


def reserving(name: str, host: Esxi, memory_mib: int, **more: Any) -> MachineRow:
    one = row(name, host, **more)
    one.wanted = {
        "memory_reservation_mib": memory_mib,
        "cpu_reservation_mhz": 0,
        "extra": {"numa.nodeAffinity": "0"},
        "disks_mib": [20480, 10240],
    }
    return one


def test_reservations_refuse_changes_and_only_warn_otherwise(monkeypatch):
    host = esxi()
    monkeypatch.setattr(read_back, "holdings", lambda _configs, _model: {})
    one = reserving("a", host, (512 << 10) + 1)
    one.actions = ["reconfigure"]
    (found,) = converge._reservations([one], Site(host))
    assert (found.severity, found.what) == (
        REFUSE, "524289 MiB are planned on NUMA node 0 of esx01, which has 524288 MiB",
    )  # fmt: skip
    one.actions = []
    (found,) = converge._reservations([one], Site(host))
    assert found.severity == WARN
    # A change of another machine of the host refuses, one of another host does not.
    other = reserving("b", host, 0)
    other.actions = ["power_on"]
    assert [item.severity for item in converge._reservations([one, other], Site(host))] == [REFUSE]
    other.host = esxi("esx02")
    assert [item.severity for item in converge._reservations([one, other], Site(host, other.host))] == [WARN]
    one.wanted = None
    assert converge._reservations([one], Site(host)) == []


def test_memory_of_other_machines_counts_by_node_and_that_of_running_ones_in_all(monkeypatch):
    host = esxi()
    host.machines = {
        "a": SimpleNamespace(config="a", running=True),
        "on": SimpleNamespace(config="on", running=True),
        "off": SimpleNamespace(config="off", running=False),
    }
    held = {"on": Holdings(memory_mib={0: 100, 1: 5}), "off": Holdings(memory_mib={0: 200})}
    seen: list[Any] = []

    def holdings(configs: Any, _model: Any) -> Any:
        seen.append(sorted(configs))
        return held

    def read(config: str, _networks: Any) -> Any:
        seen.append(config)
        return {"memory_reservation_mib": 1 << 20, "cpu_reservation_mhz": 0}

    monkeypatch.setattr(read_back, "holdings", holdings)
    monkeypatch.setattr(read_back, "read", read)
    found = converge._reservations([reserving("a", host, (512 << 10) - 299)], Site(host))
    assert seen == [["off", "on"], "on"]
    assert [item.what for item in found] == [
        "1572565 MiB of memory are reserved on esx01, which has 1048576 MiB",
        "524289 MiB are planned on NUMA node 0 of esx01, which has 524288 MiB",
    ]


def test_only_new_machines_need_room_for_their_disks(monkeypatch):
    host = esxi()
    monkeypatch.setattr(read_back, "holdings", lambda _configs, _model: {})
    rows = [reserving("a", host, 0), reserving("b", host, 0)]
    site = Site(host, free_bytes={"store": 59 << 30})
    for first, second, told in (
        (["create"], ["create"], ["the new disks can grow to 60 GiB in datastore store, which has 59 GiB"]),
        (["create"], ["reconfigure"], []),
    ):
        rows[0].actions, rows[1].actions = first, second
        assert [item.what for item in converge._reservations(rows, site)] == told
    rows[1].actions, site.free_bytes["store"] = ["create"], 60 << 30
    assert converge._reservations(rows, site) == []


@pytest.fixture
def steps(monkeypatch):
    """Let the specs be texts, and nothing be read back."""
    monkeypatch.setattr(converge, "_spec", lambda one, _site: f"spec of {one.name}")
    monkeypatch.setattr(converge, "_verify", lambda rows, _site, session: session.calls.append("verify"))
    return {"task_timeout_s": 9, "shutdown_timeout_s": 0}


def test_requests_are_sent_phase_by_phase(steps):
    host = esxi()
    gone, new, old = row("gone", host, "stopped"), row("new", host), row("old", host, "running")
    gone.actions, new.actions = ["destroy"], ["create", "power_on"]
    old.actions, old.wanted = ["power_off", "upgrade", "reconfigure", "power_on"], {"hardware_version": "vmx-21"}
    session = Session()
    converge._apply([gone, new, old], Site(host), session, steps)
    assert session.calls == [
        ("old: power off", "ref-old", "PowerOffVM_Task", "old"),
        ("wait", ["old"], 9),
        ("gone: destroy", "ref-gone", "Destroy_Task", "gone"),
        ("wait", ["gone"], 9),
        ("new: create", "folder of esx01", "CreateVM_Task", "new"),
        ("wait", ["new"], 9),
        ("old: upgrade", "ref-old", "UpgradeVM_Task", "old"),
        ("wait", ["old"], 9),
        ("old: reconfigure", "ref-old", "ReconfigVM_Task", "old"),
        ("wait", ["old"], 9),
        ("new: power on", "made new", "PowerOnVM_Task", "new"),
        ("old: power on", "ref-old", "PowerOnVM_Task", "old"),
        ("wait", ["new", "old"], 9),
        "verify",
    ]
    assert new.machine == Machine("new", "made new", None, False, "stopped", "esx01", False)


def test_each_request_has_its_arguments(steps):
    one = row("train", state="stopped")
    one.wanted = {"hardware_version": "vmx-21"}
    site, session = Site(one.host), Session()

    def made(phase: str) -> tuple[Any, ...]:
        found = converge._request(phase, one, site, session, "spec")()
        return tuple(each.name if isinstance(each, Recorded) else each for each in found)

    assert [made(phase) for phase in ("destroy", "create", "upgrade", "reconfigure", "power_on")] == [
        ("ref-train", "Destroy_Task"),
        ("folder of esx01", "CreateVM_Task", "spec", "pool of esx01", "ref-esx01"),
        ("ref-train", "UpgradeVM_Task", "vmx-21"),
        ("ref-train", "ReconfigVM_Task", "spec"),
        ("ref-train", "PowerOnVM_Task", "ref-esx01"),
    ]


class Clock:
    """A clock that only ``sleep`` advances."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, pause: float) -> None:
        self.now += pause


@pytest.mark.parametrize(
    ("timeout_s", "states", "off", "waited"),
    [
        (0, ["poweredOn"], True, 0),
        (10, ["poweredOff"], False, 2),
        (10, ["poweredOn", "poweredOn", "poweredOff"], False, 6),
        (4, ["poweredOn"], True, 4),
        (5, ["poweredOn"], True, 6),
    ],
)
def test_a_guest_with_tools_is_asked_and_awaited(monkeypatch, timeout_s, states, off, waited):
    clock, left = Clock(), list(states)
    monkeypatch.setattr(converge, "time", clock)
    one = row("train", state="running")
    one.machine.tools = True
    session = Session()

    def read(_kinds: Any) -> Any:
        state = left.pop(0) if len(left) > 1 else left[0]
        return {"VirtualMachine": [(None, {"name": name, "runtime.powerState": state}) for name in ("train", "other")]}

    session.read = read
    converge._shut_down([one], session, timeout_s, 9)
    asked = [("train: shut down", "ref-train", "ShutdownGuest", "train")] if timeout_s else []
    forced = [("train: power off", "ref-train", "PowerOffVM_Task", "train"), ("wait", ["train"], 9)]
    assert session.calls == [*asked, *(forced if off else [("wait", [], 9)])]
    assert clock.now == waited


def test_settings_that_were_lost_are_an_error(monkeypatch):
    changed, started, left = row("a", state="stopped"), row("b", state="stopped"), row("c", state="stopped")
    changed.actions, started.actions, changed.wanted = ["upgrade"], ["power_on"], {"vcpus": 4, "memory_mib": 1}
    have = {"vcpus": 4, "memory_mib": 1}
    monkeypatch.setattr(read_back, "read", lambda _config, _networks: have)
    monkeypatch.setattr(read_back, "ways", lambda config: {"way": [config]})
    rows = [(None, {"name": name, "config": f"config {name}"}) for name in "abc"]
    site = Site()
    converge._verify([changed, started, left], site, Session(rows))
    assert (started.ways, changed.ways, left.ways) == ({"way": ["config b"]}, {}, {})
    have["memory_mib"] = 2
    with pytest.raises(DomainError) as caught:
        converge._verify([changed], site, Session(rows))
    assert str(caught.value) == (
        "vCenter accepted the change but has other values:\na: memory_mib is 2, wanted 1; check the limits of the host "
        "and of the virtual hardware; report it with the versions of ESXi and vCenter"
    )
    for found in ([], [(None, {"name": "a"})]):
        with pytest.raises(DomainError, match="a:  is None, wanted 'the virtual machine'"):
            converge._verify([changed], site, Session(found))
    # Nothing is read if nothing was changed.
    session = Session()
    session.read = lambda _kinds: 1 / 0
    converge._verify([left], site, session)
