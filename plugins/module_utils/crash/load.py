# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Load the crash kernel of a node that was booted from an image; runs at each boot.

The kernel starts it when it crashes, in memory that ``crashkernel=`` reserved. Its initramfs has the first stage's
init, which sends the dump (roles/node_image/files/first-stage/init).
"""

from __future__ import annotations

import ctypes
import errno
import glob
import os
import re
import sys

from ansible_collections.sailloft.fleet.plugins.module_utils.common.error import SailloftError
from ansible_collections.sailloft.fleet.plugins.module_utils.crash.errors import CrashError
from ansible_collections.sailloft.fleet.plugins.module_utils.image.node import boot_report
from ansible_collections.sailloft.fleet.plugins.module_utils.image.node.boot_report import BootReport

FOLDER = "/usr/lib/sailloft/crash"
KERNEL, INITRAMFS = f"{FOLDER}/vmlinuz", f"{FOLDER}/initramfs"
SIZE, LOADED = "/sys/kernel/kexec_crash_size", "/sys/kernel/kexec_crash_loaded"
# arch/x86/entry/syscalls/syscall_64.tbl and include/uapi/asm-generic/unistd.h; linux/kexec.h.
KEXEC_FILE_LOAD = {"x86_64": 320, "aarch64": 294}
ON_CRASH = 2
# COMMAND_LINE_SIZE of both architectures; the kernel itself adds elfcorehdr= (arch/x86/kernel/kexec-bzimage64.c).
MOST_ARGUMENT_BYTES = 2048 - 64
# Arguments of the node that a kernel in little memory, on one processor, must not have (Red Hat's
# KDUMP_COMMANDLINE_REMOVE, and those of isolated processors), and what its kdump adds (KDUMP_COMMANDLINE_APPEND).
REMOVED: tuple[str, ...] = (
    "crashkernel=",
    "hugepages",
    "default_hugepagesz=",
    "slub_debug",
    "log_buf_len=",
    "swiotlb=",
    "cma=",
)
REMOVED += ("isolcpus=", "nohz_full=", "rcu_nocbs=", "irqaffinity=", "BOOT_IMAGE=", "initrd=", "BOOTIF=", "sailloft.")
ADDED = {
    "x86_64": "irqpoll nr_cpus=1 reset_devices cgroup_disable=memory mce=off numa=off panic=10 acpi_no_memhotplug "
    "transparent_hugepage=never novmcoredd cma=0",
    "aarch64": "irqpoll nr_cpus=1 reset_devices cgroup_disable=memory panic=10 swiotlb=noforce novmcoredd cma=0",
}
PCI = re.compile(r"(/devices/.*/[0-9a-f]{4,}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7])(?:/.*)?")
REASONS = {
    errno.EADDRNOTAVAIL: "the reserved memory is too small for kernel and initramfs; give crashkernel= more",
    errno.EKEYREJECTED: "the kernel's signature does not hold; use the distribution's signed kernel in the image",
    errno.ENOKEY: "this kernel does not know who signed it; use the distribution's signed kernel in the image",
    errno.EPERM: "it is locked down, or kernel.kexec_load_disabled is 1; do not set it before this service",
}


def main(arguments: list[str]) -> int:
    """Load the crash kernel; the argument is age's public key. Return the exit status."""
    try:
        load(arguments[0])
    except SailloftError as error:
        sys.stderr.write(f"sailloft: {error}\n")
        return 1
    return 0


def load(key: str, root: str = "/") -> None:
    """Load the crash kernel, and read back that it is loaded. Raises SailloftError."""
    try:
        report = boot_report.load(_text(root, boot_report.PATH), "this node")
        if int(_text(root, SIZE)) == 0:
            raise CrashError(
                "this node has no memory for a crash kernel, so a crash leaves no dump",
                "add crashkernel=512M to the image's kernel_arguments; if it is there, look for crashkernel in dmesg",
            )
        machine = os.uname().machine
        line = command_line(report, device(report.mac, root), watchdogs(root), key, machine)
    except OSError as error:
        remedy = "boot the node from its image, with a kernel that has kdump (CONFIG_CRASH_DUMP)"
        raise CrashError(f"{error.filename}: {error.strerror}", remedy) from error
    _kexec_file_load(machine, line)
    if _text(root, LOADED).strip() != "1":
        raise CrashError(f"the kernel took the crash kernel, but {LOADED} is not 1", "look into dmesg")


def command_line(report: BootReport, device_path: str, watchdog_modules: list[str], key: str, machine: str) -> str:
    """Return the crash kernel's command line: that of the node, but for what would harm it. Raises CrashError."""
    node_arguments = [word for word in report.arguments.split() if not word.startswith(REMOVED)]
    settings = {
        "sailloft.crash": key,
        "sailloft.device": device_path,
        "sailloft.watchdogs": ",".join(watchdog_modules),
        "sailloft.node": report.node,
        "sailloft.image": report.image,
        "sailloft.servers": ",".join(report.servers),
        "sailloft.report": report.report_url,
        "BOOTIF": f"01-{report.mac.replace(':', '-')}",
    }
    crash_arguments = [f"{name}={value}" for name, value in settings.items() if value]
    line = " ".join([*node_arguments, *ADDED[machine].split(), *crash_arguments])
    if len(line) > MOST_ARGUMENT_BYTES:
        raise CrashError(
            f"the crash kernel's command line would have {len(line)} bytes, more than {MOST_ARGUMENT_BYTES}",
            "give the image or the node fewer kernel_arguments",
        )
    return line


def device(mac: str, root: str = "/") -> str:
    """Return the path below /sys of the NIC that booted, "" if it is not on PCI: then all drivers are loaded."""
    folder = os.path.join(root, "sys/class/net")
    for name in sorted(os.listdir(folder)):
        place = os.path.realpath(os.path.join(folder, name, "device"))
        try:
            address = _text(root, f"/sys/class/net/{name}/address").strip()
        except OSError:
            continue
        address_match = PCI.fullmatch(place[len(os.path.realpath(os.path.join(root, "sys"))) :])
        if address == mac and address_match:
            return address_match[1]
    return ""


def watchdogs(root: str = "/") -> list[str]:
    """Return the modules of the node's watchdogs, those of a device before those of the devices below it.

    A watchdog that runs resets the machine in the middle of the dump, unless the crash kernel has its driver: that
    feeds one that it finds running (Documentation/watchdog/watchdog-kernel-api.rst, WDOG_HW_RUNNING).
    """
    top = os.path.realpath(os.path.join(root, "sys/devices"))
    modules: list[str] = []
    for place in sorted(glob.glob(os.path.join(root, "sys/class/watchdog/*/device"))):
        path, drivers = os.path.realpath(place), []
        while path.startswith(f"{top}/"):
            module = os.path.join(path, "driver/module")
            # One that is built in is there without being loaded.
            if os.path.exists(os.path.join(module, "initstate")):
                drivers.append(os.path.basename(os.path.realpath(module)))
            path = os.path.dirname(path)
        modules += [name for name in reversed(drivers) if name not in modules]
    return modules


def _kexec_file_load(machine: str, line: str) -> None:
    """Let the kernel take the crash kernel; with Secure Boot it verifies the signature. Raises CrashError."""
    library = ctypes.CDLL(None, use_errno=True)
    command = line.encode() + b"\0"
    try:
        with open(KERNEL, "rb") as kernel, open(INITRAMFS, "rb") as initramfs:
            handles = (ctypes.c_int(kernel.fileno()), ctypes.c_int(initramfs.fileno()))
            arguments = (*handles, ctypes.c_ulong(len(command)), command, ctypes.c_ulong(ON_CRASH))
            status = library.syscall(ctypes.c_long(KEXEC_FILE_LOAD[machine]), *arguments)
            number = ctypes.get_errno()
    except OSError as error:
        raise CrashError(f"{error.filename}: {error.strerror}", "build the image again") from error
    if status:
        reason = REASONS.get(number, "look into dmesg")
        raise CrashError(f"the kernel does not take the crash kernel ({os.strerror(number)})", reason)


def _text(root: str, path: str) -> str:
    with open(os.path.join(root, path.lstrip("/")), encoding="utf-8") as stream:
        return stream.read()
