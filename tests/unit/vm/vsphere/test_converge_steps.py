# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Steps of a run on vSphere with guests and answers that the simulated vCenter does not have."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from clock import Clock
from messages import raises
from vsphere_requests import server, vm

from ansible_collections.sailloft.fleet.plugins.module_utils.vm.common.errors import DomainError
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.vsphere import converge
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.vsphere.request import parse
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.vsphere.results import MachineRow
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.vsphere.site import Esxi, VirtualMachine


class Session:
    """A session that records requests and waits in order; ``answers`` are those to reads, the last again and again."""

    def __init__(self, *answers: list[dict[str, Any]]) -> None:
        self.calls: list[Any] = []
        self.answers = list(answers)

    def bound(self, reference: str) -> Any:
        names = ("ShutdownGuest", "PowerOffVM_Task")
        return SimpleNamespace(**{name: lambda name=name: (reference, name) for name in names})

    def call(self, _what: str, request: Any, _name: str) -> None:
        self.calls.append(request())

    def wait(self, tasks: Any, limit_s: int) -> None:
        self.calls.append(("wait", *sorted(tasks), limit_s))

    def read(self, kinds: Any) -> Any:
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        return {kind: [(None, properties) for properties in answer] for kind in kinds}


def row(name: str, tools: bool = False) -> MachineRow:
    (request,) = parse([vm(name)])
    machine = VirtualMachine(name, name, None, True, "running", "", tools)
    return MachineRow(request, Esxi("esx01", None, "gpu", {}), machine=machine)


@pytest.mark.parametrize(
    ("capability", "limit"),
    [(None, 768), (SimpleNamespace(maxSupportedVcpus=None), 768), (SimpleNamespace(maxSupportedVcpus=100), 100)],
)
def test_the_host_limits_the_number_of_vcpus(capability, limit):
    topology = server()
    for node in topology.numa_nodes:
        node.cpus = list(range(node.id * 500, node.id * 500 + 500))
        node.siblings = [[cpu] for cpu in node.cpus]
    (request,) = parse([vm(vcpus=None, guest_iommu=True)])
    host, site = Esxi("esx01", None, "gpu", {"capability": capability}), SimpleNamespace(model=lambda *_: topology)
    (placement,) = converge.place_on(host, [request.spec], site, {}, {})
    assert placement.processors.share.vcpu_limit == limit


def test_guests_that_cannot_or_do_not_shut_down_are_powered_off(monkeypatch):
    names = ("train", "bare", "unrequested")
    for timeout_s, states, off, waited_s in (
        (0, ["poweredOn"], True, 0),
        (10, ["poweredOff"], False, 2),
        (10, ["poweredOn", "poweredOn", "poweredOff"], False, 6),
        (4, ["poweredOn"], True, 4),
        (5, ["poweredOn"], True, 6),
    ):
        clock = Clock()
        monkeypatch.setattr(converge, "time", clock)
        session = Session(*([{"name": name, "runtime.powerState": state} for name in names] for state in states))
        converge.shut_down([row("train", tools=True), row("bare")], session, timeout_s, 9)
        forced = ["train", "bare"] if off else ["bare"]
        assert session.calls == [
            *([("train", "ShutdownGuest")] if timeout_s else []),
            *((name, "PowerOffVM_Task") for name in forced),
            ("wait", *sorted(forced), 9),
        ]
        assert clock.now == waited_s


@pytest.mark.parametrize("answer", [[], [{"name": "train"}]])
def test_a_machine_that_is_gone_after_its_change_is_an_error(answer):
    gone = row("train")
    gone.actions = ["upgrade"]
    with raises(DomainError, "train", "None", "'the virtual machine'"):
        converge.verify([gone], SimpleNamespace(network_names={}), Session(answer))
