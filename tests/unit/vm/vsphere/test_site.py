# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A cluster read from rows of a vCenter that are made here; all clusters of the simulator are in one datacenter."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from messages import Mentions, raises

from ansible_collections.sailloft.fleet.plugins.module_utils.vm.common.errors import DomainError
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.vsphere import site as sites
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.vsphere.site import Esxi, VirtualMachine, VsphereCluster


def ref(name: str) -> SimpleNamespace:
    return SimpleNamespace(_moId=name)


class Session:
    """A session that returns rows, and counts its calls."""

    def __init__(self, **rows: Any) -> None:
        self.rows, self.calls = rows, []
        self.login = SimpleNamespace(name="vCenter vc")

    def read(self, kinds: Any) -> Any:
        self.calls.append("read")
        return {kind: self.rows.get(kind, []) for kind in kinds}

    def bound(self, reference: Any) -> Any:
        return reference

    def call(self, what: str, request: Any) -> Any:
        self.calls.append(what)
        return request()


def cluster(name: str, **more: Any) -> tuple[Any, dict[str, Any]]:
    return ref(f"domain-{name}"), {"name": name, **more}


def esx(name: str, parent: str) -> tuple[Any, dict[str, Any]]:
    return ref(f"host-{name}"), {"name": name, "parent": ref(parent)}


def machine(name: str, host: str | None, **more: Any) -> tuple[Any, dict[str, Any]]:
    values = {"name": name, "config": f"config of {name}", "runtime.powerState": "poweredOff", **more}
    if host:
        values["runtime.host"] = ref(f"host-{host}")
    return ref(f"vm-{name}"), values


CLUSTERS = [cluster("gpu"), cluster("old")]
HOSTS = [esx("b", "domain-gpu"), esx("a", "domain-gpu"), esx("c", "domain-old"), esx("single", "computer-1")]


def site(chosen: str = "", **rows: Any) -> VsphereCluster:
    return VsphereCluster(Session(**{"ClusterComputeResource": CLUSTERS, "HostSystem": HOSTS, **rows}), chosen)


@pytest.mark.parametrize(
    ("chosen", "hosts"),
    [
        ("gpu", {"b": "gpu", "a": "gpu"}),
        ("old", {"c": "old"}),
        # Without a cluster, all hosts, also those in none.
        ("", {"b": "gpu", "a": "gpu", "c": "old", "single": ""}),
    ],
)
def test_the_hosts_are_those_of_the_cluster_or_all(chosen, hosts):
    assert {name: host.cluster for name, host in site(chosen).hosts.items()} == hosts


def test_a_cluster_that_is_not_there_is_refused():
    with raises(DomainError, "vc", "'lab'", "gpu", "old"):
        site("lab")
    with raises(DomainError, "clusters", "none"):
        site("lab", ClusterComputeResource=[])


def test_virtual_machines_are_those_of_the_hosts_with_a_configuration():
    rows = [
        machine("off", "a"),
        machine("on", "a", **{"runtime.powerState": "poweredOn", "guest.toolsRunningStatus": "guestToolsRunning"}),
        machine(
            "paused", "b", **{"runtime.powerState": "suspended", "guest.toolsRunningStatus": "guestToolsNotRunning"}
        ),
        machine("elsewhere", "c"),
        machine("nowhere", None),
        machine("orphan", "a", config=None),
    ]
    found = site("gpu", VirtualMachine=rows)
    assert list(found.machines.values()) == [
        VirtualMachine("off", rows[0][0], "config of off", False, "stopped", "a", False),
        VirtualMachine("on", rows[1][0], "config of on", True, "running", "a", True),
        VirtualMachine("paused", rows[2][0], "config of paused", False, "suspended", "b", False),
    ]
    assert list(found.hosts["a"].machines) == ["off", "on"]
    assert list(found.hosts["b"].machines) == ["paused"]


def test_networks_have_the_key_and_switch_of_distributed_ones():
    flat, rails, loose, lost = (ref(name) for name in ("n1", "p1", "p2", "p3"))
    found = site(
        Network=[(flat, {"name": "flat"})],
        DistributedVirtualSwitch=[(ref("dvs-1"), {"uuid": "uuid-1"})],
        DistributedVirtualPortgroup=[
            (rails, {"name": "rails", "key": "k1", "config.distributedVirtualSwitch": ref("dvs-1")}),
            (loose, {"name": "loose", "key": "k2", "config.distributedVirtualSwitch": None}),
            (lost, {"name": "lost", "key": "k3", "config.distributedVirtualSwitch": ref("dvs-9")}),
        ],
    )
    assert found.networks == {
        "flat": (flat, None, None), "rails": (rails, "k1", "uuid-1"), "loose": (loose, "k2", None),
        "lost": (lost, "k3", None),
    }  # fmt: skip
    assert found.network_names == {"k1": "rails", "k2": "loose", "k3": "lost"}


def refused(call: Any) -> str:
    with pytest.raises(DomainError) as caught:
        call()
    return str(caught.value)


def test_a_host_is_found_by_name_and_an_only_one_without():
    one, many = site("old"), site("gpu")
    assert (one.host("").name, one.host("c").name, many.host("a").name) == ("c", "c", "a")
    assert refused(lambda: many.host("x", "vm")) == Mentions("virtual machine vm", "'x'", "a, b")
    assert refused(lambda: many.host("")) == Mentions("vsphere.host", "a, b")
    assert refused(lambda: one.host("x")) == Mentions("'x'", "c")
    assert refused(lambda: site(HostSystem=[]).host("x")) == Mentions("'x'", "none")


def test_hosts_are_chosen_in_the_given_order_or_by_name():
    many = site("gpu")
    assert [host.name for host in many.chosen([])] == ["a", "b"]
    assert [host.name for host in many.chosen(["b", "a"])] == ["b", "a"]
    assert refused(lambda: site(HostSystem=[]).chosen([])) == Mentions("vc", "ESXi")


def stores(**accessible: bool) -> VsphereCluster:
    return site(
        Datastore=[
            (ref(name), {"name": name, "summary.freeSpace": number, "summary.accessible": there})
            for number, (name, there) in enumerate(accessible.items())
        ]
    )


def test_a_datastore_is_found_by_name_and_an_only_one_without():
    one, many = stores(fast=True, broken=False), stores(b=True, a=True)
    assert (one.free_bytes, many.free_bytes) == ({"fast": 0}, {"b": 0, "a": 1})
    assert (one.datastore("", "vm"), one.datastore("fast", "vm"), many.datastore("b", "vm")) == ("fast", "fast", "b")
    missing = "virtual machine vm: vsphere.datastore is missing, and there are several; choose one of a, b"
    assert refused(lambda: many.datastore("", "vm")) == missing
    assert refused(lambda: one.datastore("broken", "vm")) == Mentions("virtual machine vm", "'broken'", "fast")
    assert refused(lambda: stores().datastore("x", "vm")).endswith("choose one of none")


def test_release_and_frequency_are_empty_if_they_are_not_told():
    told = {"config.product": SimpleNamespace(version="8.0.3"), "summary.hardware.cpuMhz": 2500}
    one, other = Esxi("a", None, "gpu", told), Esxi("a", None, "gpu", {})
    assert [(host.release, host.cpu_mhz) for host in (one, other)] == [("8.0.3", 2500), ("", 0)]


def test_the_devices_that_a_host_offers_are_requested_once():
    asked: list[Any] = []

    def query(host: Any) -> str:
        asked.append(host)
        return "target"

    browser = SimpleNamespace(QueryConfigTarget=query)
    found = site("gpu", ClusterComputeResource=[cluster("gpu", environmentBrowser=browser, resourcePool="pool")])
    host = found.hosts["a"]
    assert (found.target(host), found.target(host), found.pool(host)) == ("target", "target", "pool")
    assert asked == [host.reference]
    assert found.session.calls == ["read", "a: the devices that it offers"]


def test_a_virtual_machine_is_created_in_the_datacenter_of_its_cluster():
    found = site(
        Datacenter=[
            (ref("datacenter-1"), {"hostFolder": ref("group-h1"), "vmFolder": "first"}),
            (ref("datacenter-2"), {"hostFolder": ref("group-h2"), "vmFolder": "second"}),
        ],
        # The cluster is in a folder of the second datacenter's hosts.
        Folder=[
            (ref("group-d0"), {}),
            (ref("group-h1"), {"parent": ref("datacenter-1")}),
            (ref("group-h2"), {"parent": ref("datacenter-2")}),
            (ref("group-h3"), {"parent": ref("group-h2")}),
        ],
        ClusterComputeResource=[cluster("gpu", parent=ref("group-h3"))],
    )
    assert found.folder(found.hosts["a"]) == "second"


@pytest.mark.parametrize(
    ("state", "maintenance", "why"),
    [
        ("connected", False, None),
        ("connected", True, "is in maintenance mode"),
        ("disconnected", False, "is disconnected"),
        ("notResponding", True, "is notResponding"),
        (None, False, "is in a state that vCenter does not report"),
    ],
)
def test_hosts_that_cannot_be_changed_have_a_reason(state, maintenance, why):
    """A host whose state was not read counts as missing."""
    given = {"runtime.connectionState": state, "runtime.inMaintenanceMode": maintenance}
    assert Esxi("esx01", None, "gpus", given).unusable == why


@pytest.mark.parametrize(
    ("active", "parent", "asks"),
    [
        (True, "domain-gpu", True),
        (False, "domain-gpu", False),
        (None, "domain-gpu", False),
        (True, "computer-1", False),
    ],
)
def test_virtual_functions_are_requested_once_and_only_where_there_are_some(monkeypatch, active, parent, asks):
    read: list[Any] = []

    def read_esxi(properties: Any, functions: Any) -> Any:
        read.append(functions)
        return SimpleNamespace(functions=functions)

    monkeypatch.setattr(sites, "read_esxi", read_esxi)
    monkeypatch.setattr(sites, "recognise", lambda model, kinds: setattr(model, "kinds", kinds))
    infos = [SimpleNamespace(sriovActive=False), SimpleNamespace(**({} if active is None else {"sriovActive": active}))]
    browser = SimpleNamespace(QueryConfigTarget=lambda _host: SimpleNamespace(sriov=["function"]))
    reference, properties = esx("a", parent)
    found = site(
        ClusterComputeResource=[cluster("gpu", environmentBrowser=browser)],
        HostSystem=[(reference, {**properties, "config.pciPassthruInfo": infos})],
    )
    host = found.hosts["a"]
    first = found.model(host, {"10de:*": True}, functions=False)
    assert (first.functions, first.kinds) == ([], {"10de:*": True})
    second = found.model(host)
    # Without virtual functions, the first model is whole.
    assert (second is first) is not asks
    assert second.functions == (["function"] if asks else [])
    assert found.model(host) is found.model(host, {}, functions=False) is second
    assert read == ([[], ["function"]] if asks else [[]])


def test_a_host_without_devices_has_a_model(monkeypatch):
    monkeypatch.setattr(sites, "read_esxi", lambda _properties, functions: SimpleNamespace(functions=functions))
    monkeypatch.setattr(sites, "recognise", lambda _model, _kinds: None)
    found = site("gpu")
    assert found.model(found.hosts["a"]).functions == []
