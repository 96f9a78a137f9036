# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The calls to libvirt that this collection needs; no other file calls libvirt. Needs libvirt-python on the host."""

from __future__ import annotations

import os
import time
import xml.etree.ElementTree as ET
from typing import Any

from ansible_collections.sailloft.fleet.plugins.module_utils.topology.libvirt_devices import lent, pool_devices
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.common import machine_type
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.common.errors import DomainError
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.common.units import GIB, KIB, MIB
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.observed.hypervisor import (
    Accelerator,
    Hypervisor,
    ObservedDomain,
    holdings,
)

try:
    import libvirt
except ImportError:
    libvirt = None

PROC = "/proc"
# Y, N or never (Linux arch/x86/kvm/mmu/mmu.c, get_nx_huge_pages).
NX_HUGE_PAGES = "/sys/module/kvm/parameters/nx_huge_pages"
URI = "qemu:///system"
ARCHITECTURE = "x86_64"
# A start may take minutes: the kernel first clears up to terabytes of huge pages.
START_TIMEOUT_S = 600


# The interpreters for which distributions build packages such as python3-libvirt. Ansible may choose another one.
INTERPRETERS = ("/usr/libexec/platform-python", "/usr/bin/python3")


def run_with_binding(respawn: Any) -> None:
    """Run the module again with another interpreter if this one lacks libvirt's binding and the other has it.

    ``respawn`` is ansible.module_utils.common.respawn. Without such an interpreter ``Client`` reports what is missing.
    """
    if libvirt is None and not respawn.has_respawned():
        interpreter = respawn.probe_interpreters_for_module(list(INTERPRETERS), "libvirt")
        if interpreter:
            respawn.respawn_module(interpreter)


class Client:
    """A connection to the libvirt of this host. Every error of libvirt is raised as DomainError."""

    def __init__(self, uri: str = URI) -> None:
        if libvirt is None:
            raise DomainError(
                "libvirt's Python binding is missing on this host", "install python3-libvirt (or libvirt-python)"
            )
        # Without this, libvirt also writes the errors that it raises to standard error.
        libvirt.registerErrorHandler(lambda _context, _error: None, None)
        try:
            self._connection = libvirt.open(uri)
        except libvirt.libvirtError as error:
            raise DomainError(
                f"libvirt at {uri} cannot be reached ({error})",
                "is it running? systemctl status libvirtd (or virtqemud)",
            ) from error

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def observe(self, paths: list[str]) -> Hypervisor:
        """Return libvirt's capabilities, networks and domains, and those of ``paths`` that do not exist."""
        try:
            machines = q35_machines(self._connection.getCapabilities())
            accelerators = {}
            for kind in ("kvm", "qemu"):
                offered = self._accelerator(kind, machines)
                if offered:
                    accelerators[kind] = offered
            networks = self._all("listAllNetworks")
            domains = {domain.name(): _observed(domain) for domain in self._connection.listAllDomains()}
            pools = {pool.name(): pool_devices(pool.XMLDesc(0)) for pool in self._all("listAllStoragePools")}
            return Hypervisor(
                accelerators=accelerators,
                libvirt_version=_version(self._connection.getLibVersion()),
                qemu_version=_version(self._connection.getVersion()),
                hugetlbfs_mib=hugetlbfs_sizes(_read(f"{PROC}/mounts"), default_huge_page_mib(_read(f"{PROC}/meminfo"))),
                networks={network.name(): bool(network.isActive()) for network in networks},
                lent={network.name(): lent(network.XMLDesc(0)) for network in networks},
                pools=pools,
                real_paths=_real_paths(domains, pools),
                nx_huge_pages=os.path.exists(NX_HUGE_PAGES) and _read(NX_HUGE_PAGES).strip() == "Y",
                missing_paths=[path for path in paths if not os.path.exists(path)],
                domains=domains,
            )
        except libvirt.libvirtError as error:
            raise DomainError(f"libvirt does not answer: {error}") from error

    def _all(self, method: str) -> list[Any]:
        """Return the networks or storage pools; a libvirt without their driver has none."""
        try:
            return list(getattr(self._connection, method)())
        except libvirt.libvirtError as error:
            if error.get_error_code() == libvirt.VIR_ERR_NO_SUPPORT:
                return []
            raise

    def _accelerator(self, kind: str, machines: dict[str, int]) -> Accelerator | None:
        try:
            text = self._connection.getDomainCapabilities(None, ARCHITECTURE, machine_type.ALIAS, kind)
        except libvirt.libvirtError as error:
            # libvirt reports with these errors that QEMU or the host does not support this kind.
            if error.get_error_code() in (libvirt.VIR_ERR_INVALID_ARG, libvirt.VIR_ERR_CONFIG_UNSUPPORTED):
                return None
            raise
        return accelerator(text, machines)

    def define(self, xml: str) -> None:
        """Write the definition; a running domain does not change."""
        self._do(
            lambda: self._connection.defineXMLFlags(xml, libvirt.VIR_DOMAIN_DEFINE_VALIDATE),
            "define",
            ET.fromstring(xml).findtext("name"),
        )

    def set_autostart(self, name: str, wanted: bool) -> None:
        """Set whether libvirt starts the domain when the host boots."""
        self._do(lambda: self._connection.lookupByName(name).setAutostart(int(wanted)), "set autostart of", name)

    def start(self, name: str) -> None:
        """Start a defined domain."""
        self._do(lambda: self._connection.lookupByName(name).create(), "start", name)

    def resume(self, name: str) -> None:
        """Resume a paused domain."""
        self._do(lambda: self._connection.lookupByName(name).resume(), "resume", name)

    def stop(self, name: str, timeout_s: int) -> None:
        """Ask the guest to shut down; force it off if it still runs after ``timeout_s``."""
        domain = self._do(lambda: self._connection.lookupByName(name), "find", name)
        self._do(domain.shutdown, "shut down", name)
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            if not self._do(domain.isActive, "watch", name):
                return
            time.sleep(1)
        try:
            domain.destroy()
        except libvirt.libvirtError as error:
            # The guest may have stopped by itself just before.
            if error.get_error_code() != libvirt.VIR_ERR_OPERATION_INVALID:
                raise DomainError(f"libvirt cannot force it off: {error}", domain=name) from error

    def undefine(self, name: str) -> None:
        """Undefine a stopped domain and delete its firmware variables; its disks stay."""
        flags = (
            libvirt.VIR_DOMAIN_UNDEFINE_NVRAM
            | libvirt.VIR_DOMAIN_UNDEFINE_MANAGED_SAVE
            | libvirt.VIR_DOMAIN_UNDEFINE_SNAPSHOTS_METADATA
        )
        self._do(lambda: self._connection.lookupByName(name).undefineFlags(flags), "undefine", name)

    def addresses(self, name: str) -> list[dict[str, Any]]:
        """Return the interfaces, with mac and addresses, that libvirt's DHCP server or else the guest agent knows."""
        domain = self._do(lambda: self._connection.lookupByName(name), "find", name)
        for source, label in (
            (libvirt.VIR_DOMAIN_INTERFACE_ADDRESSES_SRC_LEASE, "lease"),
            (libvirt.VIR_DOMAIN_INTERFACE_ADDRESSES_SRC_AGENT, "agent"),
        ):
            try:
                interfaces = domain.interfaceAddresses(source, 0)
            except libvirt.libvirtError as error:
                # The guest has no agent, or the network is not libvirt's: the addresses are not known.
                if error.get_error_code() in (
                    libvirt.VIR_ERR_AGENT_UNRESPONSIVE,
                    libvirt.VIR_ERR_ARGUMENT_UNSUPPORTED,
                    libvirt.VIR_ERR_OPERATION_INVALID,
                    libvirt.VIR_ERR_NO_SUPPORT,
                ):
                    continue
                raise DomainError(f"libvirt cannot report its addresses: {error}", domain=name) from error
            rows = [
                {"mac": part["hwaddr"], "addresses": [item["addr"] for item in part["addrs"] or []], "source": label}
                for _device, part in sorted(interfaces.items())
                if part["hwaddr"] != "00:00:00:00:00:00"
            ]
            if rows:
                return rows
        return []

    def _do(self, call: Any, verb: str, name: str | None) -> Any:
        try:
            return call()
        except libvirt.libvirtError as error:
            raise DomainError(f"libvirt cannot {verb} it: {error}", _hint(str(error)), domain=name or "") from error


# Errors of libvirt and their remedies.
HINTS = (
    ("hugetlbfs mount", "libvirt looks for hugetlbfs mounts when it starts: restart it after mounting one"),
    ("group", "another device of that IOMMU group is bound to a host driver"),
    ("Cannot allocate memory", "the node has not enough free memory or huge pages"),
)


def _hint(message: str) -> str:
    return next(
        (hint for pattern, hint in HINTS if pattern in message and (pattern != "group" or "not viable" in message)), ""
    )


def _state(domain: Any) -> str:
    """Return libvirt's name of the state. A domain that another program is starting is shown as paused: wait for it."""
    names = {
        libvirt.VIR_DOMAIN_RUNNING: "running",
        libvirt.VIR_DOMAIN_BLOCKED: "blocked",
        libvirt.VIR_DOMAIN_PAUSED: "paused",
        libvirt.VIR_DOMAIN_SHUTDOWN: "shutdown",
        libvirt.VIR_DOMAIN_SHUTOFF: "shutoff",
        libvirt.VIR_DOMAIN_CRASHED: "crashed",
        libvirt.VIR_DOMAIN_PMSUSPENDED: "pmsuspended",
    }
    deadline = time.monotonic() + START_TIMEOUT_S
    while (state := domain.state()) == [libvirt.VIR_DOMAIN_PAUSED, libvirt.VIR_DOMAIN_PAUSED_STARTING_UP]:
        if time.monotonic() > deadline:
            raise DomainError(
                f"another process began to start it, and libvirt has not finished within {START_TIMEOUT_S} s",
                f"see virsh domstate --reason {domain.name()} and /var/log/libvirt/qemu",
                domain=domain.name(),
            )
        time.sleep(0.5)
    return names.get(state[0], "unknown")


def _observed(domain: Any) -> ObservedDomain:
    state = _state(domain)
    active = domain.isActive()
    return ObservedDomain(
        name=domain.name(),
        uuid=domain.UUIDString(),
        inactive_xml=domain.XMLDesc(libvirt.VIR_DOMAIN_XML_INACTIVE | libvirt.VIR_DOMAIN_XML_SECURE),
        live_xml=domain.XMLDesc(0) if active else None,
        # A transient domain, made by "virsh create", has no autostart.
        autostart=bool(domain.isPersistent() and domain.autostart()),
        state=state,
    )


def _real_paths(domains: dict[str, ObservedDomain], pools: dict[str, list[str]]) -> dict[str, str]:
    """Return where the links among the paths of disks and storage pools lead, such as those in /dev/disk/by-id."""
    texts = (xml for observed in domains.values() for xml in (observed.inactive_xml, observed.live_xml) if xml)
    paths = {path for xml in texts for path in holdings(xml).disks}.union(*pools.values())
    return {path: real_path for path in sorted(paths) if (real_path := os.path.realpath(path)) != path}


def q35_machines(capabilities: str) -> dict[str, int]:
    """Read the q35 versions of the host's QEMU, with the vCPUs of each (0: unknown), from libvirt's capabilities."""
    vcpus_of_machine: dict[str, int] = {}
    for architecture in ET.fromstring(capabilities).iterfind(f"guest/arch[@name='{ARCHITECTURE}']"):
        for machine in architecture.iter("machine"):
            name = machine.text or ""
            if machine_type.is_version(name):
                vcpus_of_machine[name] = int(machine.get("maxCpus", "0"))
    return vcpus_of_machine


def accelerator(capabilities: str, machines: dict[str, int]) -> Accelerator:
    """Read the domcapabilities of one accelerator; ``machines`` is from the same host's capabilities."""
    root = ET.fromstring(capabilities)
    firmware = root.find("os/enum[@name='firmware']")
    vcpu = root.find("vcpu")
    return Accelerator(
        max_vcpus=int(vcpu.get("max", "1")) if vcpu is not None else 1,
        firmwares=["bios", *(value.text or "" for value in (firmware if firmware is not None else []))],
        machine=root.findtext("machine", ""),
        machines=machines,
    )


def hugetlbfs_sizes(mounts: str, default_mib: int) -> list[int]:
    """Return the page sizes, in MiB, of the hugetlbfs mounts in /proc/mounts; ``default_mib`` without pagesize."""
    sizes = set()
    for line in mounts.splitlines():
        fields = line.split()
        if len(fields) < 4 or fields[2] != "hugetlbfs":
            continue
        options = dict(option.partition("=")[::2] for option in fields[3].split(","))
        text = options.get("pagesize")
        if text is None:
            sizes.add(default_mib)
        else:
            sizes.add(int(text[:-1]) * {"K": KIB, "M": MIB, "G": GIB}[text[-1].upper()] // MIB)
    return sorted(sizes)


def default_huge_page_mib(meminfo: str) -> int:
    """Return the kernel's default size of huge pages, in MiB, or 0 if it has none."""
    for line in meminfo.splitlines():
        if line.startswith("Hugepagesize:"):
            return int(line.split()[1]) // 1024
    return 0


def _version(number: int) -> tuple[int, int, int]:
    """Return a version of libvirt as three numbers: 9000000 is 9.0.0."""
    return number // 1000000, number // 1000 % 1000, number % 1000


def _read(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError as error:
        raise DomainError(f"{path} cannot be read: {error.strerror}") from error
