# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The order of hosts and requests, the GPUs that are free, and the reasons if no host has a place."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from messages import Mentions, raises
from pyVmomi import vim
from vsphere_requests import server, vm

from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.model import Passthrough
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.common.errors import DomainError
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.vsphere.hosts.choose import choose
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.vsphere.request import VsphereRequest, parse
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.vsphere.site import Esxi

GPUS = ("0000:13:00.0", "0000:83:00.0")


class Site:
    """A site of hosts with a number of active GPUs each."""

    def __init__(self, **active: int) -> None:
        self.machines: dict[str, Any] = {}
        self.hosts = {name: Esxi(name, None, "gpu", {"runtime.connectionState": "connected"}) for name in active}
        self.models = {name: server() for name in active}
        for name, number in active.items():
            for at, address in enumerate(GPUS):
                self.models[name].function(address).passthrough = Passthrough(True, True, at < number)

    def model(self, host: Esxi, _accelerators: Any) -> Any:
        return self.models[host.name]

    def host(self, name: str, domain: str) -> Esxi:
        return self.hosts[name] if name else next(iter(self.hosts.values()))


def asked(name: str, gpus: int = 1, host: str = "", memory_mib: int = 65536, **more: Any) -> VsphereRequest:
    return parse([vm(name, gpus={"count": gpus}, vsphere={"host": host}, memory_mib=memory_mib, **more)])[0]


def chosen(site: Site, *requests: VsphereRequest, plan: Any = None) -> dict[str, str]:
    tried: list[Any] = []
    found = choose(list(requests), site, plan or (lambda host, specs: tried.append(host)), {})
    return {name: host.name for name, host in found.items()}


def holding(address: str) -> Any:
    device = vim.vm.device.VirtualPCIPassthrough(
        backing=vim.vm.device.VirtualPCIPassthrough.DeviceBackingInfo(id=address)
    )
    hardware = SimpleNamespace(device=[device], memoryMB=1, numCPU=1)
    return SimpleNamespace(config=SimpleNamespace(hardware=hardware, extraConfig=[], latencySensitivity=None))


def test_free_gpus_are_active_and_held_by_nobody():
    site = Site(a=2, b=0)
    assert chosen(site, asked("x", 2)) == {"x": "a"}
    site.hosts["a"].machines = {"y": holding(GPUS[0])}
    assert chosen(site, asked("x", 1)) == {"x": "a"}
    with raises(DomainError, "free GPUs has 1"):
        chosen(site, asked("x", 2))
    site.models["a"].function(GPUS[1]).passthrough = None
    with raises(DomainError, "free GPUs has 0"):
        chosen(site, asked("x", 1))


def test_the_host_with_the_fewest_sufficient_gpus_is_chosen():
    site = Site(a=2, b=1, c=1)
    assert chosen(site, asked("x")) == {"x": "b"}
    assert chosen(site, asked("x", 2)) == {"x": "a"}
    # Each one takes its GPUs from its host.
    assert chosen(site, asked("x"), asked("y"), asked("z")) == {"x": "b", "y": "c", "z": "a"}
    assert chosen(site, asked("w"), asked("x"), asked("y"), asked("z")) == {"w": "b", "x": "c", "y": "a", "z": "a"}


def test_those_with_most_gpus_then_most_memory_then_by_name_come_first():
    site = Site(a=1, b=2, c=2)
    assert chosen(site, asked("one"), asked("two", 2)) == {"two": "b", "one": "a"}
    assert chosen(site, asked("two", 2), asked("one")) == {"two": "b", "one": "a"}
    # The first in the order gets the host with the fewest GPUs.
    assert chosen(site, asked("small"), asked("large", memory_mib=131072)) == {"large": "a", "small": "b"}
    assert chosen(site, asked("q"), asked("p")) == {"p": "a", "q": "b"}


def test_named_hosts_take_their_gpus_first_and_existing_machines_have_theirs_already():
    site = Site(a=1, b=2)
    assert chosen(site, asked("x"), asked("named", host="a")) == {"named": "a", "x": "b"}
    site.machines["there"] = SimpleNamespace(host="a")
    assert chosen(site, asked("x"), asked("there")) == {"there": "a", "x": "a"}
    # An existing machine stays, even if the request names another host.
    assert chosen(site, asked("there", host="b")) == {"there": "a"}


def test_a_request_is_planned_together_with_those_that_are_on_the_host():
    site = Site(a=2, b=2)
    tried: list[tuple[str, list[str]]] = []

    def plan(host: Esxi, specs: Any) -> None:
        tried.append((host.name, [spec.name for spec in specs]))
        if host.name == "a" and len(specs) == 3:
            raise DomainError("no CPU is left")

    requests = [asked("named", 0, host="a"), asked("x", 1), asked("y", 1)]
    assert chosen(site, *requests, plan=plan) == {"named": "a", "x": "a", "y": "b"}
    assert tried == [("a", ["named", "x"]), ("a", ["named", "x", "y"]), ("b", ["y"])]


def test_the_only_host_is_not_asked_for_a_plan():
    site = Site(a=0)
    # Its devices are not read, either.
    site.models.clear()
    assert chosen(site, asked("x", 2), plan=lambda _host, _specs: 1 / 0) == {"x": "a"}


def test_a_host_that_cannot_be_used_is_left_out():
    site = Site(a=1, b=2)
    site.hosts["a"].properties["runtime.inMaintenanceMode"] = True
    # A machine that names it is refused later, with the reason.
    assert chosen(site, asked("named", host="a"), asked("x")) == {"named": "a", "x": "b"}


REMEDY = "request less, enable passthrough on more hosts, or name a host (vsphere.host) to see all of its reasons"


def test_the_reasons_of_all_hosts_are_named_or_the_most_gpus():
    site = Site(a=1, b=2)

    def plan(host: Esxi, _specs: Any) -> None:
        raise DomainError(f"nothing on {host.name}")

    with pytest.raises(DomainError) as caught:
        chosen(site, asked("x"), plan=plan)
    assert str(caught.value) == Mentions("virtual machine x", "a: nothing on a", "b: nothing on b")
    with pytest.raises(DomainError) as caught:
        chosen(site, asked("x", 3), plan=plan)
    assert caught.value.cause == (
        "no host of the cluster has room for it (the host with the most free GPUs has 2, but it needs 3)"
    )
    for host in site.hosts.values():
        host.properties.clear()
    with raises(DomainError, "free GPUs", "0", "1"):
        chosen(site, asked("x"), plan=plan)


def test_named_gpus_count_like_chosen_ones():
    (request,) = parse([vm("x", gpus={"count": 1, "addresses": [GPUS[0]]}, vsphere={"host": ""})])
    assert chosen(Site(a=1, b=2), request) == {"x": "b"}
