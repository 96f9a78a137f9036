# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Passthrough and SR-IOV of the devices of ESXi hosts: the work of the module vsphere_host_passthrough."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from ansible_collections.sailloft.fleet.plugins.module_utils.topology import selectors
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.model import Function, Host
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.common.errors import DomainError
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.vsphere import read_back
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.vsphere.session import Login, Session
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.vsphere.site import Esxi, VsphereCluster
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.vsphere.versions import API_7

try:
    from pyVmomi import vim
except ImportError:
    vim = None  # type: ignore[assignment]

POLL_S = 5.0
PASSTHROUGH = "config.pciPassthruInfo"


@dataclass
class Work:
    """One host: the wanted settings by address, the changes, and whether it waits for a reboot."""

    host: Esxi
    model: Host
    wanted: dict[str, tuple[bool, int | None]]
    changes: list[dict[str, Any]] = field(default_factory=list)
    reboot: bool = False

    def to_dict(self, rebooted: bool) -> dict[str, Any]:
        """Return the JSON-ready row of the module's result."""
        return {
            "name": self.host.name,
            "changed": bool(self.changes) or rebooted,
            "changes": self.changes,
            "reboot_required": self.reboot and not rebooted,
            "rebooted": rebooted,
        }


def converge(params: dict[str, Any], check_mode: bool, progress: Callable[[str], None] | None = None) -> dict[str, Any]:
    """Bring the devices of the module's ``params`` into their state. Raises DomainError, TopologyError.

    All hosts are checked before the first is changed, and each gets all of its changes in one request.
    """
    with Session(Login.of(params), progress) as session:
        site = VsphereCluster(session, params["cluster"])
        works = [_work(host, site, params) for host in site.chosen(params["hosts"])]
        rebooting = [work for work in works if work.reboot and params["allow_reboot"]]
        for work in rebooting:
            _check_reboot(work, [item.name for item in work.host.machines.values() if item.state != "stopped"])
        rebooted: set[str] = set()
        if not check_mode:
            for work in works:
                if work.changes:
                    _apply(work, site, session)
            _read_again([work for work in works if work.changes], session)
            for work in works:
                if work.reboot and params["allow_reboot"]:
                    # A virtual machine may have been started while another host was rebooted.
                    _check_reboot(work, _running(work, session))
                    _reboot(work, session, params["reboot_timeout_s"])
                    rebooted.add(work.host.name)
        else:
            rebooted = {work.host.name for work in rebooting}
    rows = [work.to_dict(work.host.name in rebooted) for work in works]
    return {
        "changed": any(row["changed"] for row in rows),
        "reboot_required": any(row["reboot_required"] for row in rows),
        "hosts": rows,
        "diff": [
            {
                "before_header": row["name"],
                "after_header": row["name"],
                "before": "".join(f"{item['address']}: {item['before']}\n" for item in row["changes"]),
                "after": "".join(f"{item['address']}: {item['after']}\n" for item in row["changes"]),
            }
            for row in rows
            if row["changes"]
        ],
    }


def _infos(properties: dict[str, Any]) -> list[Any]:
    return list(properties.get(PASSTHROUGH) or [])


def _waits(info: Any, wanted: dict[str, tuple[bool, int | None]]) -> bool:
    """Return True for a device of the request whose settings are not in effect yet."""
    if info.id not in wanted:
        return False
    count = getattr(info, "numVirtualFunctionRequested", 0) if getattr(info, "sriovEnabled", False) else 0
    return info.passthruEnabled != info.passthruActive or count != (getattr(info, "numVirtualFunction", 0) or 0)


def _chosen(model: Host, entries: list[dict[str, Any]], name: str) -> dict[str, tuple[bool, int | None]]:
    """Return (passthrough, number of virtual functions or None) by address; a later entry overrides an earlier one.

    A kind or vendor selects the devices that are capable of the request; the address of another device is an error.
    """
    setting_of: dict[str, tuple[bool, int | None]] = {}
    for number, entry in enumerate(entries):
        for selector in entry["devices"]:
            for function in selectors.select(model, [selector], f"host {name}: settings[{number}].devices"):
                if _capable(function, entry):
                    setting_of[function.address] = (bool(entry["passthrough"]), entry["virtual_functions"])
                elif selectors.is_address(selector):
                    capability = "SR-IOV" if entry["virtual_functions"] is not None else "passthrough"
                    raise DomainError(
                        f"host {name}: {function.kind} {function.address} is not capable of {capability}",
                        "leave it out",
                    )
    return setting_of


def _capable(function: Function, entry: dict[str, Any]) -> bool:
    if entry["virtual_functions"] is not None:
        return function.sriov is not None and entry["virtual_functions"] <= function.sriov.total
    return function.physical_function is None and function.passthrough is not None and function.passthrough.capable


def _work(host: Esxi, site: VsphereCluster, params: dict[str, Any]) -> Work:
    model = site.model(host, params["accelerators"], functions=False)
    wanted = _chosen(model, params["settings"], host.name)
    if _concerns_functions(wanted, model):
        model = site.model(host, params["accelerators"])
        wanted = _chosen(model, params["settings"], host.name)
    work = Work(host, model, wanted)
    holders = {
        address: machine.name
        for machine in host.machines.values()
        if machine.running
        for address in read_back.holdings({machine.name: machine.config}, model)[machine.name].devices
    }
    functions = model.by_address()
    for info in _infos(host.properties):
        if info.id not in work.wanted:
            continue
        passthrough, count = work.wanted[info.id]
        old_state = _state(info)
        new_state: dict[str, Any] = {"passthrough": passthrough}
        if count is not None:
            new_state = {"passthrough": passthrough, "virtual_functions": count}
        if {key: old_state[key] for key in new_state} == new_state:
            work.reboot = work.reboot or _waits(info, work.wanted)
            continue
        sriov = functions[info.id].sriov
        for address in [info.id, *(sriov.vfs if sriov else [])]:
            if address in holders:
                raise DomainError(
                    f"host {host.name}: running virtual machine {holders[address]} has {address}", "stop it first"
                )
        work.changes.append(
            {"address": info.id, "before": {key: old_state[key] for key in new_state}, "after": new_state}
        )
        work.reboot = work.reboot or not _rebinds(host, site)
    return work


def _concerns_functions(addresses: Iterable[str], model: Host) -> bool:
    """Return True if one of ``addresses`` may be a virtual function of this host, or may have some now.

    vCenter reports which functions are virtual only in another request for each host. A virtual function has the vendor
    of its physical function (Linux, pci_iov_add_virtfn), so GPUs of one vendor and NICs of another do not need it.
    """
    functions = model.by_address()
    vendors = {function.vendor_id for function in model.functions if function.sriov and function.sriov.now}
    return any(functions[address].vendor_id in vendors for address in addresses)


def _state(info: Any) -> dict[str, Any]:
    count = getattr(info, "numVirtualFunctionRequested", 0) if getattr(info, "sriovEnabled", False) else 0
    return {"passthrough": info.passthruEnabled, "virtual_functions": count}


def _rebinds(host: Esxi, site: VsphereCluster) -> bool:
    capability = host.properties.get("capability")
    return bool(capability and capability.deviceRebindWithoutRebootSupported) and site.session.api_version >= API_7


def _apply(work: Work, site: VsphereCluster, session: Session) -> None:
    now = True if _rebinds(work.host, site) else None
    configs: list[Any] = []
    for change in work.changes:
        new_state = change["after"]
        common = {"id": change["address"], "passthruEnabled": new_state["passthrough"], "applyNow": now}
        if "virtual_functions" in new_state:
            count = new_state["virtual_functions"]
            configs.append(vim.host.SriovConfig(sriovEnabled=count > 0, numVirtualFunction=count, **common))
        else:
            configs.append(vim.host.PciPassthruConfig(**common))
    system = work.host.properties["configManager.pciPassthruSystem"]
    session.call(f"host {work.host.name}: passthrough", lambda: session.bound(system).UpdatePassthruConfig(configs))


def _read_again(changed: list[Work], session: Session) -> None:
    """Note which hosts wait for a reboot, from their state after the change: applyNow is only a request."""
    if not changed:
        return
    rows = session.read({"HostSystem": [PASSTHROUGH]})["HostSystem"]
    infos_of_host = {reference._moId: _infos(properties) for reference, properties in rows}
    for work in changed:
        work.reboot = any(_waits(info, work.wanted) for info in infos_of_host[work.host.reference._moId])


def _running(work: Work, session: Session) -> list[str]:
    """Return the names of the virtual machines that run, or are suspended, on a host now."""
    rows = session.read({"VirtualMachine": ["name", "runtime.host", "runtime.powerState"]})["VirtualMachine"]
    return [
        properties["name"]
        for _reference, properties in rows
        if "runtime.host" in properties
        and properties["runtime.host"]._moId == work.host.reference._moId
        and str(properties["runtime.powerState"]) != "poweredOff"
    ]


def _check_reboot(work: Work, running: list[str]) -> None:
    if running:
        raise DomainError(
            f"host {work.host.name} needs a reboot, but {', '.join(sorted(running))} run on it",
            "stop or move them, or run without allow_reboot",
        )


def _reboot(work: Work, session: Session, limit_s: int) -> None:
    """Reboot a host in maintenance mode, and wait until it is connected again with a later boot time."""
    name = work.host.name

    def current_host() -> Any:
        return session.bound(work.host.reference)

    def task(label: str, request: Callable[[], Any]) -> None:
        session.wait({name: (label, session.call(label, request))}, limit_s)

    boot_time = _boot(name, session)[0]
    entered = not work.host.properties.get("runtime.inMaintenanceMode")
    if entered:
        task(f"host {name}: enter maintenance mode", lambda: current_host().EnterMaintenanceMode_Task(limit_s, False))
    task(f"host {name}: reboot", lambda: current_host().RebootHost_Task(False))
    end = time.monotonic() + limit_s
    session.tell(f"host {name}: it reboots")
    while True:
        booted, state = _boot(name, session)
        if booted != boot_time and state == "connected":
            break
        session.tell(f"host {name}: it is not back yet, its state is {state}")
        if time.monotonic() > end:
            raise DomainError(f"host {name} is not back {limit_s} s after its reboot", "look at its console")
        time.sleep(POLL_S)
    if entered:
        task(f"host {name}: exit maintenance mode", lambda: current_host().ExitMaintenanceMode_Task(limit_s))


def _boot(name: str, session: Session) -> tuple[Any, str]:
    rows = session.read({"HostSystem": ["name", "runtime.bootTime", "runtime.connectionState"]})["HostSystem"]
    properties = next(item for _reference, item in rows if item["name"] == name)
    return properties.get("runtime.bootTime"), str(properties["runtime.connectionState"])
