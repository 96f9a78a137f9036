# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The input of a proof of a GPU virtual machine: the plan, the requested settings, and what was read."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ansible_collections.sailloft.fleet.plugins.module_utils.proof.claims import ProofError
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.model import Host
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.numa.cells import Cell
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.observed.fabric_manager import FabricManager
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.plan.plan import DomainPlan, Passed

# The paper's maximum read request.
MAX_READ_REQUEST_BYTES = 4096


@dataclass
class Running:
    """The facts that were read about the running domain; None means not read."""

    accelerated: bool | None = None  # KVM, not TCG
    qemu_arguments: list[str] | None = None
    # One row for each huge-page mapping of the QEMU process: {"page_bytes", "policy", "pages_by_node": {"0": 256}}
    memory: list[dict[str, Any]] | None = None
    pinning: dict[int, list[int]] | None = None
    emulator_cpus: list[int] | None = None

    @classmethod
    def of_process(cls, process: dict[str, Any] | None) -> Running:
        """Convert the result of ``qemu_process.read``; None (the domain does not run, or was not read) gives no facts.

        Raises ProofError if something is missing in it.
        """
        if process is None:
            return cls()
        try:
            return cls(
                accelerated=process["accelerated"],
                qemu_arguments=process["arguments"],
                memory=process["memory"],
                pinning={int(vcpu): cpus for vcpu, cpus in process["pinning"].items()},
                emulator_cpus=process["emulator_cpus"],
            )
        except (KeyError, TypeError, AttributeError) as error:
            raise ProofError(
                f"not a complete process: {error!r}; pass what gpu_domain_info returned as process"
            ) from error


def differences_of_domain(domain: dict[str, Any]) -> list[str] | None:
    """Return the differences of a domain from its plan, a line each, or None if the domain does not exist.

    ``domain`` is what gpu_domain_info returned for it. An item of its drift is one line for all of its paths; other
    differences are reported by their path.

    Raises ProofError if it was read without its plan.
    """
    if not domain.get("exists"):
        return None
    try:
        lines = []
        for kind, key in (("defined", "differences"), ("running", "live_differences")):
            drift_items = [
                item for item in domain.get("drift", []) if kind in item["where"] or item["where"] == ["host"]
            ]
            if domain[key] is None and (kind == "defined" or domain.get("process")):
                lines.append(f"{kind}: it was not compared with its plan")
            for item in domain[key] or []:
                drift = next((drift_item for drift_item in drift_items if item["path"] in drift_item["paths"]), None)
                line = f"{kind}: {item['path']}: wanted {item['wanted']}, have {item['have']}"
                if drift is not None:
                    line = f"{' and '.join(drift['where'])}: {drift['what']}; {drift['consequence']}"
                if line not in lines:
                    lines.append(line)
    except (KeyError, TypeError) as error:
        raise ProofError(f"not a compared domain: {error!r}; pass the requested domains to gpu_domain_info") from error
    return lines if domain.get("process") else [*lines, f"it is not running: {domain.get('state')}"]


@dataclass
class BootCheck:
    """The result of a call of gpu_host_boot in check mode: on the hypervisor, or in the guest."""

    # The names of the settings that it would have changed, and the failures; empty: everything is as requested, and
    # saved for the next boot.
    differences: list[str]
    # The facts of sriov.ensure by physical function; None if it failed before it read them.
    virtual_functions: dict[str, dict[str, Any]] | None = field(default_factory=dict)
    huge_pages: list[dict[str, int]] = field(default_factory=list)  # {"node", "size_mib", "wanted"}
    # The ports whose ACS is requested, and the requested MaxReadReq by function; None if tuning failed before it chose
    # devices.
    acs_ports: list[str] | None = field(default_factory=list)
    max_read_request_bytes: dict[str, int] | None = field(default_factory=dict)
    read_only: list[str] = field(default_factory=list)  # functions whose MaxReadReq was written and did not change
    # The kernel modules that must not load, and why others may; None: not requested.
    modules_off: list[str] | None = None
    modules_that_may_load: list[str] = field(default_factory=list)
    reset_failures: dict[str, str] = field(default_factory=dict)  # by function: resets that are known to fail
    # By setting of the host's kernel: {"wanted", "seen"} or {"wanted", "not_applicable"}; None: not read.
    kernel_settings: dict[str, dict[str, Any]] | None = field(default_factory=dict)

    @classmethod
    def of_result(cls, result: dict[str, Any] | None) -> BootCheck | None:
        """Read the module's result; None stays None. Raises ProofError if the result is another module's."""
        if result is None:
            return None
        try:
            outcomes = result["outcomes"]
            tuning = outcomes.get("pci_tuning", {"devices": {}})
            tuned = tuning.get("devices", {})
            binding = outcomes.get("vfio_binding", {})
            requested = {address: {**device, **device.get("refused", {})} for address, device in tuned.items()}
            return cls(
                differences=[*sorted(result["diff"]["after"]), *result.get("failures", [])],
                virtual_functions=outcomes.get("sriov", {"functions": {}}).get("functions"),
                huge_pages=outcomes.get("hugepages", {}).get("hugepages", []),
                acs_ports=sorted(address for address, device in requested.items() if "acs" in device)
                if "devices" in tuning
                else None,
                max_read_request_bytes={
                    address: device["max_read_request_bytes"]
                    for address, device in requested.items()
                    if "max_read_request_bytes" in set(device) - set(device.get("not_writable", []))
                }
                if "devices" in tuning
                else None,
                read_only=sorted(
                    address
                    for address, device in tuned.items()
                    if "max_read_request_bytes" in device.get("not_writable", [])
                ),
                modules_off=binding.get("drivers_off", {}).get("modules"),
                modules_that_may_load=binding.get("drivers_off", {}).get("reasons", []),
                reset_failures=binding.get("reset_failures", {}),
                kernel_settings=outcomes["kernel_settings"].get("settings") if "kernel_settings" in outcomes else {},
            )
        except (KeyError, TypeError, AttributeError) as error:
            raise ProofError(f"not a result of gpu_host_boot in check mode: {error!r}") from error


def firmware_of_result(result: dict[str, Any] | None) -> dict[str, dict[str, dict[str, Any]]]:
    """Read {"wanted", "seen"} by NIC and setting from the result of nic_firmware in check mode. Raises ProofError.

    "Wanted" is the value that the module would write, or the value at the next boot if the module would not change it.
    "Seen" is the value that the NIC uses now, which may differ from both until the host has rebooted.
    """
    if result is None:
        return {}
    try:
        written = result["diff"]["after"]
        return {
            nic: {
                name: {"wanted": written.get(f"{nic} {name}", setting["next_boot"]), "seen": setting["current"]}
                for name, setting in settings.items()
            }
            for nic, settings in result["devices"].items()
        }
    except (KeyError, TypeError, AttributeError) as error:
        raise ProofError(f"not a result of nic_firmware in check mode: {error!r}") from error


def fabric_manager_of(domain: dict[str, Any]) -> FabricManager | None:
    """Read the host's Fabric Manager from what gpu_domain_info returned for a domain. Raises ProofError."""
    data = domain.get("fabric_manager")
    try:
        return FabricManager.of_dict(data) if data else None
    except (KeyError, TypeError, ValueError) as error:
        raise ProofError(f"not a result of gpu_domain_info: fabric_manager: {error!r}") from error


@dataclass
class Evidence:
    """Everything read for one proof, and the inventory's settings outside the plan. Names are the inventory's."""

    host_name: str
    planned: DomainPlan  # for the hypervisor as it was read now
    running: Running = field(default_factory=Running)
    # The differences of libvirt's domain from the plan, a line each; None: there is no such domain.
    domain_differences: list[str] | None = None
    guest: Host | None = None  # the guest's own topology, read in the guest
    host_settings: BootCheck | None = None
    guest_settings: BootCheck | None = None
    host_cpus: dict[str, Any] | None = None  # the facts of host/kernel/pinned_cpus.py; None: not read
    nic_firmware: dict[str, dict[str, dict[str, Any]]] = field(default_factory=dict)  # see firmware_of_result
    fabric_manager: FabricManager | None = None  # of the host; None: its answer was not read
    nccl_settings: str | None = None  # the guest's /etc/nccl.conf
    nccl: dict[str, str] = field(default_factory=dict)  # empty: the file stays as it is
    nccl_topology: str = ""  # the topology file of the plan; empty: none is requested
    nccl_topology_file: str | None = None  # the guest's /etc/nccl-topology.xml
    # The guest's files node_guid and ports/1/gids/0 in /sys/class/infiniband, by path.
    guest_files: dict[str, str] = field(default_factory=dict)

    @property
    def host(self) -> Host:
        """Return the hypervisor's topology, read while the guest ran."""
        return self.planned.host

    def devices(self) -> list[Passed]:
        """Return the passed-through devices of the plan."""
        return self.planned.passed()

    def settings_of_vf(self, device: Passed) -> list[dict[str, Any]]:
        """Return the requested settings of a VF: its index ``vf``, ``name``, ``wanted``, ``seen`` on the host."""
        facts_by_nic = (self.host_settings.virtual_functions if self.host_settings else None) or {}
        physical = self.host.by_address().get(device.function.physical_function or "")
        if physical is None or physical.address not in facts_by_nic:
            return []
        of_nic = physical.sriov.vfs if physical.sriov else []
        index = of_nic.index(device.address) if device.address in of_nic else None
        return [row for row in facts_by_nic[physical.address].get("settings", []) if row["vf"] == index]

    def cells(self) -> list[Cell]:
        """Return the guest's NUMA nodes in the plan."""
        return self.planned.processors.cells
