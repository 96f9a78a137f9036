# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The ConfigSpec that changes vCenter's configuration into the wanted one (wanted.py). It contains changes only."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.model import Host
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.common.errors import DomainError
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.vsphere import read_back
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.vsphere.wanted import OWNED

try:
    from pyVmomi import vim
except ImportError:
    vim = None  # type: ignore[assignment]

KIB_OF_MIB = 1024
# The units of a paravirtual SCSI controller, one of which it has itself (VMware Configuration Maximums).
SCSI_UNITS = 16


def signed(number: int) -> int:
    """Return a 16-bit id as the API's signed short: the API refuses 0x8086 as 32902, and accepts it as -32634."""
    return number - 0x10000 if number >= 0x8000 else number


class Builder:
    """The ConfigSpec of one virtual machine on ``host``.

    ``target`` returns the host's ConfigTarget, ``networks`` are those of Site.networks, ``sriov_network`` is the port
    group of virtual functions. ``config`` is what vCenter has, or None for a new virtual machine.
    """

    def __init__(self, name: str, host: Host, target: Any, networks: dict[str, Any], sriov_network: str, config: Any):
        self.name, self.host, self.target, self.networks = name, host, target, networks
        self.sriov_network, self.config = sriov_network, config
        self.functions = host.by_address()
        self.changes: list[Any] = []
        self.key = -100

    def build(self, wanted: dict[str, Any], have: dict[str, Any] | None, datastore: str) -> Any:
        """Return the spec that changes ``have`` (read_back.read; None: a new virtual machine) into ``wanted``."""
        spec = vim.vm.ConfigSpec()
        differs = {key for key in wanted if have is None or have[key] != wanted[key]}
        if have is None:
            spec.name = self.name
            spec.version = wanted["hardware_version"]
            spec.files = vim.vm.FileInfo(vmPathName=f"[{datastore}]")
        for key, name in (
            ("guest_id", "guestId"),
            ("firmware", "firmware"),
            ("memory_mib", "memoryMB"),
            ("vcpus", "numCPUs"),
            ("cores_per_socket", "numCoresPerSocket"),
            ("memory_locked", "memoryReservationLockedToMax"),
        ):
            if key in differs:
                setattr(spec, name, wanted[key])
        if "memory_reservation_mib" in differs:
            spec.memoryAllocation = vim.ResourceAllocationInfo(reservation=wanted["memory_reservation_mib"])
        if "cpu_reservation_mhz" in differs:
            spec.cpuAllocation = vim.ResourceAllocationInfo(reservation=wanted["cpu_reservation_mhz"])
        if "latency_sensitivity" in differs:
            spec.latencySensitivity = vim.LatencySensitivity(level=wanted["latency_sensitivity"])
        if "threads_per_core" in differs and (have is not None or wanted["threads_per_core"] > 1):
            spec.simultaneousThreads = wanted["threads_per_core"]
        if "cores_per_numa_node" in differs and (have is not None or wanted["cores_per_numa_node"]):
            spec.virtualNuma = vim.vm.VirtualNuma(coresPerNumaNode=wanted["cores_per_numa_node"])
        if "iommu" in differs and (have is not None or wanted["iommu"]):
            spec.flags = vim.vm.FlagInfo(vvtdEnabled=wanted["iommu"])
        spec.extraConfig = list(self._extra(wanted["extra"], have["extra"] if have else {}))
        if "devices" in differs or "device_group" in differs:
            self._passed(wanted, have["device_group"] if have else "", spec)
        if "networks" in differs:
            self._networks(wanted["networks"])
        self._disks(wanted["disks_mib"], datastore)
        spec.deviceChange = self.changes
        return spec

    def _extra(self, wanted: dict[str, str], have: dict[str, str]) -> Iterable[Any]:
        for key in OWNED:
            if wanted.get(key) != have.get(key):
                # An empty value removes the key (VirtualMachineConfigSpec.extraConfig).
                yield vim.option.OptionValue(key=key, value=wanted.get(key, ""))

    def _change(self, operation: str, device: Any, **attributes: Any) -> None:
        self.changes.append(vim.vm.device.VirtualDeviceSpec(operation=operation, device=device, **attributes))

    def _next(self) -> int:
        self.key -= 1
        return self.key

    def _present(self, test: Any) -> list[Any]:
        return [device for device in self.config.hardware.device if test(device)] if self.config else []

    def _passed(self, wanted: dict[str, Any], group: str, spec: Any) -> None:
        """Remove the devices that are not wanted, and add those that are missing; equal ones are not changed.

        ``group`` is the device group that the virtual machine has, "" for none.
        """
        missing = [dict(row) for row in wanted["devices"]]
        regroups = wanted["device_group"] != group
        for device in self._present(read_back.is_passed):
            row = read_back.device_row(device)
            if read_back.is_grouped(device):
                if regroups:
                    self._change("remove", device)
            elif row in missing:
                missing.remove(row)
            else:
                self._change("remove", device)
        if regroups:
            self._group(wanted["device_group"], spec)
        makers = {"fixed": self._fixed, "dynamic": self._dynamic, "sriov": self._sriov}
        for row in missing:
            device = makers[row["type"]](row["id"])
            device.key = self._next()
            if row["numa_node"] is not None:
                device.numaNode = row["numa_node"]
            self._change("add", device)

    def _backing(self, address: str) -> Any:
        function = self.functions[address]
        system = next((item.systemId for item in self.target().pciPassthrough if item.pciDevice.id == address), "")
        return vim.vm.device.VirtualPCIPassthrough.DeviceBackingInfo(
            id=address,
            deviceId=f"{function.device_id:x}",
            vendorId=signed(function.vendor_id),
            systemId=system,
            deviceName=f"{function.kind} {address}",
        )

    def _fixed(self, address: str) -> Any:
        return vim.vm.device.VirtualPCIPassthrough(backing=self._backing(address))

    def _dynamic(self, model: str) -> Any:
        vendor, device = (int(part, 16) for part in model.split(":"))
        backing = vim.vm.device.VirtualPCIPassthrough
        allowed = backing.AllowedDevice(vendorId=vendor, deviceId=device)
        return backing(backing=backing.DynamicBackingInfo(deviceName="", allowedDevice=[allowed]))

    def _sriov(self, address: str) -> Any:
        physical = self.functions[address].physical_function or ""
        return vim.vm.device.VirtualSriovEthernetCard(
            backing=self._network_backing(self.sriov_network),
            sriovBacking=vim.vm.device.VirtualSriovEthernetCard.SriovBackingInfo(
                physicalFunctionBacking=self._backing(physical), virtualFunctionBacking=self._backing(address)
            ),
            allowGuestOSMtuChange=True,
        )

    def _group(self, name: str, spec: Any) -> None:
        """Add all devices of a vendor's device group, as the host describes them, in one request; "" means no group."""
        groups = vim.vm.VirtualDeviceGroups
        if not name:
            spec.deviceGroups = groups(deviceGroup=[])
            return
        offered = {item.deviceGroupName: item for item in self.target().vendorDeviceGroupInfo or []}
        if name not in offered:
            raise DomainError(
                f"the host offers no device group {name!r}",
                f"it offers {', '.join(sorted(offered)) or 'none'}",
                domain=self.name,
            )
        spec.deviceGroups = groups(deviceGroup=[groups.VendorDeviceGroup(groupInstanceKey=1, deviceGroupName=name)])
        for sequence, component in enumerate(offered[name].componentDeviceInfo or []):
            device = component.device
            device.key = self._next()
            device.deviceGroupInfo = vim.vm.device.VirtualDevice.DeviceGroupInfo(
                groupInstanceKey=1, sequenceId=sequence
            )
            self._change("add", device)

    def _network_backing(self, name: str) -> Any:
        if name not in self.networks:
            existing = ", ".join(sorted(self.networks)) or "none"
            raise DomainError(f"there is no network {name!r}", f"choose one of {existing}", domain=self.name)
        reference, key, switch = self.networks[name]
        card = vim.vm.device.VirtualEthernetCard
        if key is None:
            return card.NetworkBackingInfo(deviceName=name, network=reference)
        port = vim.dvs.PortConnection(portgroupKey=key, switchUuid=switch)
        return card.DistributedVirtualPortBackingInfo(port=port)

    def _networks(self, wanted: list[str]) -> None:
        present = self._present(read_back.is_network)
        names = {key: name for name, (_reference, key, _uuid) in self.networks.items() if key}
        for number, name in enumerate(wanted):
            if number >= len(present):
                card = vim.vm.device.VirtualVmxnet3(key=self._next(), backing=self._network_backing(name))
                card.connectable = vim.vm.device.VirtualDevice.ConnectInfo(
                    startConnected=True, allowGuestControl=True, connected=True
                )
                self._change("add", card)
            elif read_back.network_of(present[number], names) != name:
                present[number].backing = self._network_backing(name)
                self._change("edit", present[number])
        for device in present[len(wanted) :]:
            self._change("remove", device)

    def _disks(self, wanted_mib: list[int], datastore: str) -> None:
        """Grow disks and add those that are missing; a disk is never removed."""
        present = self._present(read_back.is_disk)
        used = {device.unitNumber for device in present} | {7}  # 7 is the controller's own
        controllers = self._present(lambda device: hasattr(device, "scsiCtlrUnitNumber"))
        controller = controllers[0].key if controllers else None
        for number, size_mib in enumerate(wanted_mib):
            if number < len(present):
                if present[number].capacityInKB < size_mib * KIB_OF_MIB:
                    present[number].capacityInKB = size_mib * KIB_OF_MIB
                    present[number].capacityInBytes = None
                    self._change("edit", present[number])
                continue
            if controller is None:
                controller = self._next()
                adapter = vim.vm.device.ParaVirtualSCSIController(
                    key=controller, busNumber=0, sharedBus=vim.vm.device.VirtualSCSIController.Sharing.noSharing
                )
                self._change("add", adapter)
            unit = next((item for item in range(SCSI_UNITS) if item not in used), None)
            if unit is None:
                raise DomainError(
                    f"no unit of its SCSI controller is free for disks[{number}]",
                    "request fewer disks",
                    domain=self.name,
                )
            used.add(unit)
            backing = vim.vm.device.VirtualDisk.FlatVer2BackingInfo(
                fileName=f"[{datastore}]", diskMode="persistent", thinProvisioned=True
            )
            disk = vim.vm.device.VirtualDisk(
                key=self._next(),
                controllerKey=controller,
                unitNumber=unit,
                capacityInKB=size_mib * KIB_OF_MIB,
                backing=backing,
            )
            self._change("add", disk, fileOperation="create")
