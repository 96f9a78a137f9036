# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""One cluster as vCenter has it: hosts, virtual machines, datastores, networks. One request reads all of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.accelerators import recognise
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.model import Host
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.read.vsphere import read_esxi
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.common.errors import DomainError
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.vsphere.session import Session

# The properties that are read, by type of object.
HOST = [
    "name",
    "parent",
    "hardware",
    "capability",
    "config.pciPassthruInfo",
    "config.network.pnic",
    "config.product",
    "runtime.connectionState",
    "runtime.inMaintenanceMode",
    "summary.hardware.cpuMhz",
    "configManager.pciPassthruSystem",
    "vm",
]
MACHINE = ["name", "config", "runtime.powerState", "runtime.host", "guest.toolsRunningStatus"]
PROPERTIES = {
    "HostSystem": HOST,
    "VirtualMachine": MACHINE,
    "Datastore": ["name", "summary.freeSpace", "summary.accessible"],
    "Network": ["name"],
    "DistributedVirtualPortgroup": ["name", "key", "config.distributedVirtualSwitch"],
    "DistributedVirtualSwitch": ["uuid"],
    "ClusterComputeResource": ["name", "parent", "host", "resourcePool", "environmentBrowser", "datastore", "network"],
    "Datacenter": ["name", "vmFolder", "hostFolder"],
    "Folder": ["parent"],
}


@dataclass
class VirtualMachine:
    """A virtual machine as it is; ``config`` is the API's VirtualMachineConfigInfo."""

    name: str
    reference: Any
    config: Any
    running: bool
    state: str  # running, stopped or suspended
    host: str
    tools: bool


@dataclass
class Esxi:
    """An ESXi host: its ``properties`` and its virtual machines, by name."""

    name: str
    reference: Any
    cluster: str
    properties: dict[str, Any]
    machines: dict[str, VirtualMachine] = field(default_factory=dict)

    @property
    def release(self) -> str:
        """Return its version, like 8.0.3."""
        product = self.properties.get("config.product")
        return product.version if product else ""

    @property
    def cpu_mhz(self) -> int:
        """Return the speed of a core in MHz, from which CPU reservations are computed."""
        return self.properties.get("summary.hardware.cpuMhz") or 0

    @property
    def unusable(self) -> str | None:
        """Return why no virtual machine can be changed on the host now, or None."""
        state = self.properties.get("runtime.connectionState")
        if state != "connected":
            return f"is {state or 'in a state that vCenter does not report'}"
        return "is in maintenance mode" if self.properties.get("runtime.inMaintenanceMode") else None


class VsphereCluster:
    """One cluster of a vCenter as it was read, with ``hosts`` and ``machines`` by name."""

    def __init__(self, session: Session, cluster: str = "") -> None:
        self.session = session
        rows = session.read(PROPERTIES)
        self._rows = rows
        self.clusters = {
            properties["name"]: (reference, properties) for reference, properties in rows["ClusterComputeResource"]
        }
        if cluster and cluster not in self.clusters:
            raise DomainError(
                f"{session.login.name} has no cluster {cluster!r}",
                f"existing clusters: {', '.join(sorted(self.clusters)) or 'none'}",
            )
        chosen = {item._moId for name, (item, _found) in self.clusters.items() if cluster in ("", name)}
        names = {item._moId: name for name, (item, _found) in self.clusters.items()}
        self.hosts: dict[str, Esxi] = {}
        by_reference: dict[str, Esxi] = {}
        for reference, properties in rows["HostSystem"]:
            parent = properties["parent"]._moId
            if parent in chosen or (not cluster and parent not in names):
                host = Esxi(properties["name"], reference, names.get(parent, ""), properties)
                self.hosts[host.name] = by_reference[reference._moId] = host
        self.machines: dict[str, VirtualMachine] = {}
        for reference, properties in rows["VirtualMachine"]:
            on = by_reference.get(properties["runtime.host"]._moId) if properties.get("runtime.host") else None
            if on is None or properties.get("config") is None:
                continue
            power = str(properties["runtime.powerState"])
            state = {"poweredOn": "running", "poweredOff": "stopped"}.get(power, "suspended")
            tools = properties.get("guest.toolsRunningStatus") == "guestToolsRunning"
            machine = VirtualMachine(
                properties["name"], reference, properties["config"], state == "running", state, on.name, tools
            )
            self.machines[machine.name] = on.machines[machine.name] = machine
        self.free_bytes = {
            properties["name"]: properties["summary.freeSpace"]
            for _item, properties in rows["Datastore"]
            if properties["summary.accessible"]
        }
        switches = {item._moId: properties["uuid"] for item, properties in rows["DistributedVirtualSwitch"]}
        # Name -> (reference, key, uuid of the switch); key None for the network of a standard switch.
        self.networks: dict[str, tuple[Any, str | None, str | None]] = {}
        for reference, properties in rows["Network"]:
            self.networks[properties["name"]] = (reference, None, None)
        for reference, properties in rows["DistributedVirtualPortgroup"]:
            switch = properties["config.distributedVirtualSwitch"]
            uuid = switches.get(switch._moId) if switch else None
            self.networks[properties["name"]] = (reference, properties["key"], uuid)
        self._targets: dict[str, Any] = {}
        self._models: dict[str, Host] = {}

    @property
    def network_names(self) -> dict[str, str]:
        """Return the names of distributed port groups by key."""
        return {key: name for name, (_reference, key, _uuid) in self.networks.items() if key}

    def host(self, name: str, domain: str = "") -> Esxi:
        """Return the host of this name, or the only one for "". Raises DomainError with the existing names."""
        if not name and len(self.hosts) == 1:
            return next(iter(self.hosts.values()))
        if name not in self.hosts:
            existing = ", ".join(sorted(self.hosts)) or "none"
            cause = f"there is no host {name!r}" if name else "vsphere.host is missing, and there are several hosts"
            raise DomainError(cause, f"choose one of {existing}", domain=domain)
        return self.hosts[name]

    def chosen(self, names: list[str]) -> list[Esxi]:
        """Return the hosts of these names, or all hosts without names. Raises DomainError if there are no hosts."""
        if not self.hosts:
            raise DomainError(
                f"{self.session.login.name} shows no ESXi host", "check the cluster and the account's privileges"
            )
        return [self.host(name) for name in names or sorted(self.hosts)]

    def datastore(self, name: str, domain: str) -> str:
        """Return the datastore of this name, or the only one for ""."""
        if not name and len(self.free_bytes) == 1:
            return next(iter(self.free_bytes))
        if name not in self.free_bytes:
            existing = ", ".join(sorted(self.free_bytes)) or "none"
            cause = f"there is no datastore {name!r}" if name else "vsphere.datastore is missing, and there are several"
            raise DomainError(cause, f"choose one of {existing}", domain=domain)
        return name

    def target(self, host: Esxi) -> Any:
        """Return the host's ConfigTarget, which is requested once, and only from hosts for which it is needed."""
        if host.name not in self._targets:
            reference = self.session.bound(self.clusters[host.cluster][1]["environmentBrowser"])
            host_reference = self.session.bound(host.reference)
            self._targets[host.name] = self.session.call(
                f"{host.name}: the devices that it offers", lambda: reference.QueryConfigTarget(host_reference)
            )
        return self._targets[host.name]

    def model(self, host: Esxi, accelerators: dict[str, bool] | None = None, functions: bool = True) -> Host:
        """Return the host as the project's model.

        With ``functions`` False, the model does not say which functions are virtual, and of which NIC: this needs a
        request for the ConfigTarget if the host has virtual functions.
        """
        if host.name not in self._models:
            infos = host.properties.get("config.pciPassthruInfo") or []
            has = bool(host.cluster) and any(getattr(info, "sriovActive", False) for info in infos)
            model = read_esxi(host.properties, self.target(host).sriov if has and functions else [])
            recognise(model, accelerators or {})
            if has and not functions:
                return model
            self._models[host.name] = model
        return self._models[host.name]

    def pool(self, host: Esxi) -> Any:
        """Return the resource pool of the host's cluster."""
        return self.session.bound(self.clusters[host.cluster][1]["resourcePool"])

    def folder(self, host: Esxi) -> Any:
        """Return the folder for new virtual machines: that of the datacenter of the host's cluster."""
        parents = {
            item._moId: properties["parent"]._moId
            for item, properties in self._rows["Folder"]
            if properties.get("parent")
        }
        folders = {
            properties["hostFolder"]._moId: properties["vmFolder"] for _item, properties in self._rows["Datacenter"]
        }
        parent = self.clusters[host.cluster][1]["parent"]._moId
        while parent not in folders:
            parent = parents[parent]
        return self.session.bound(folders[parent])
