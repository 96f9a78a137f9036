# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Hosts for virtual machines whose spec names none: the choice is deterministic, compact, and permanent."""

from __future__ import annotations

from types import SimpleNamespace

from messages import raises
from vsphere_requests import server, vm

from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.model import Passthrough
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.common.errors import DomainError
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.vsphere.hosts.choose import choose
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.vsphere.request import parse
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.vsphere.site import Esxi, Site


def cluster(gpus: dict[str, int], **properties: dict) -> Site:
    """Return a site of hosts with ``gpus`` active ones of two GPUs each; there is no vCenter."""
    site = object.__new__(Site)
    site.session, site.machines, site._models, site.hosts = None, {}, {}, {}
    for name, number in gpus.items():
        site.hosts[name] = Esxi(name, None, "gpu", {"runtime.connectionState": "connected", **properties.get(name, {})})
        model = site._models[name] = server()
        active = [item for item in model.functions if item.kind == "gpu"][:number]
        for item in active:
            item.passthrough = Passthrough(True, True, True)
    return site


def requests(*gpus: int):
    return parse([vm(f"vm{at}", gpus={"count": count}, vsphere={"host": ""}) for at, count in enumerate(gpus)])


def chosen(site: Site, asked, full: tuple[str, ...] = ()) -> dict[str, str]:
    def plan(host, _specs):
        if host.name in full:
            raise DomainError("no memory is left")

    return {name: host.name for name, host in choose(asked, site, plan, {}).items()}


def test_the_largest_machine_is_placed_first_on_the_smallest_sufficient_host():
    site = cluster({"a": 2, "b": 1, "c": 2})
    # vm1 needs both GPUs of a host and is placed first; vm0 gets the only GPU of b, and vm2 gets c.
    assert chosen(site, requests(1, 2, 1)) == {"vm1": "a", "vm0": "b", "vm2": "c"}
    assert chosen(site, list(reversed(requests(1, 2, 1)))) == {"vm1": "a", "vm0": "b", "vm2": "c"}


def test_a_host_without_a_possible_plan_is_skipped():
    site = cluster({"a": 1, "b": 2}, c={})
    assert chosen(site, requests(1), full=("a",)) == {"vm0": "b"}
    with raises(DomainError, "vm0", "a", "no memory is left"):
        chosen(site, requests(1), full=("a", "b"))
    with raises(DomainError, "vm0", "free GPUs", "2", "3"):
        chosen(site, requests(3))


def test_a_host_in_maintenance_mode_is_not_chosen():
    site = cluster({"a": 1, "b": 2}, a={"runtime.inMaintenanceMode": True})
    assert chosen(site, requests(1)) == {"vm0": "b"}


def test_named_hosts_and_hosts_of_existing_machines_are_kept():
    site = cluster({"a": 2, "b": 1})
    site.machines["vm0"] = SimpleNamespace(host="a")
    named = parse([vm("vm2", gpus={"count": 1}, vsphere={"host": "b"})])
    assert chosen(site, [*requests(1), *named]) == {"vm0": "a", "vm2": "b"}
    # vm2 has the only GPU of b.
    assert chosen(site, [*requests(1, 1), *named])["vm1"] == "a"
