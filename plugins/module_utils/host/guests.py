# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The guests that run on a host: libvirt's active domains, and virtual machines that libvirt does not know.

The processes are always read too, so that guests are found if libvirt is not installed, does not run or hangs. A
virtual machine is a process of QEMU's system emulator, or any process that has a KVM machine open (Cloud Hypervisor,
Firecracker): Linux virt/kvm/kvm_main.c names that descriptor "kvm-vm".
"""

from __future__ import annotations

import os
import re
from dataclasses import asdict, dataclass

from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.errors import HostError
from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.outcome import Outcome
from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.system import System
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.processes import arguments_of, name_of
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.read.files import Files

# The names of QEMU upstream and on Debian, on RHEL, and of the wrapper that some distributions have.
QEMU = re.compile(r"qemu-system-\w+|qemu-kvm|kvm")
KVM_MACHINE = "anon_inode:kvm-vm"
# "list" without "--all" lists every active domain, running or paused.
LIST_ACTIVE = ["virsh", "--readonly", "--connect", "qemu:///system", "list", "--name"]
PATIENCE_S = 30


@dataclass(frozen=True)
class Guest:
    """A running virtual machine.

    ``name``: None if its process does not say it; ``known_to_libvirt``: None if libvirt did not answer.
    """

    name: str | None
    process: int | None
    program: str
    known_to_libvirt: bool | None

    def __str__(self) -> str:
        name = self.name or f"a machine of {self.program}"
        process = f" (process {self.process})" if self.process else ""
        return name + process + (", which libvirt does not know" if self.known_to_libvirt is False else "")


def observe(system: System) -> Outcome:
    """Return the guests as facts, with one line of text each."""
    guests = read(system)
    return Outcome(facts={"guests": [asdict(guest) for guest in guests], "words": [str(guest) for guest in guests]})


def read(system: System) -> list[Guest]:
    """Return the guests that run, by name and process."""
    domains = _domains(system)
    guests = []
    for process in system.names("/proc"):
        arguments = arguments_of(Files(system.root), process) if process.isdecimal() else []
        if arguments and _is_machine(system, process, arguments):
            name = name_of(arguments)
            known_to_libvirt = None if domains is None else name in domains
            guests.append(Guest(name, int(process), os.path.basename(arguments[0]), known_to_libvirt))
    seen = {guest.name for guest in guests}
    guests += [Guest(name, None, "libvirt", True) for name in domains or [] if name not in seen]
    return sorted(guests, key=lambda guest: (guest.name or "", guest.process or 0))


def _domains(system: System) -> list[str] | None:
    try:
        listed = system.run(LIST_ACTIVE, timeout_s=PATIENCE_S)
    except HostError:
        return None  # not installed, not started, or no answer: only the processes count
    return [line.strip() for line in listed.splitlines() if line.strip()]


def _is_machine(system: System, process: str, arguments: list[str]) -> bool:
    if QEMU.fullmatch(os.path.basename(arguments[0])):
        # libvirt reads QEMU's capabilities from a process with "-machine none,...", which has no CPU and no guest.
        machines = [value for option, value in zip(arguments, arguments[1:]) if option in ("-machine", "-M")]
        return not any(value.split(",")[0] == "none" for value in machines)
    descriptors = system.names(f"/proc/{process}/fd")
    return any(system.link_name(f"/proc/{process}/fd/{descriptor}") == KVM_MACHINE for descriptor in descriptors)
