# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Kernel command lines as data: the requested arguments, and a line that contains them.

Source of the syntax: Linux Documentation/admin-guide/kernel-parameters.rst (arguments are separated by spaces,
double quotes protect spaces, "-" and "_" are the same in the names of arguments).
"""

from __future__ import annotations

import re
from collections.abc import Collection

from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.errors import RequestError

ARGUMENT = re.compile(r'(?:[^\s"]|"[^"]*")+')
# No quotes and no shell syntax, because a shell reads the file with the arguments.
SAFE = re.compile(r"[A-Za-z0-9_.-]+(?:=[A-Za-z0-9_.,:;/@+*%^~=-]*)?")
# Keys whose order and repetition are significant: hugepages= counts pages of the hugepagesz= before it
# (Linux Documentation/admin-guide/mm/hugetlbpage.rst), so they are replaced together.
PAGES = {"hugepagesz", "hugepages", "default_hugepagesz"}
FAMILIES = (PAGES,)
# Parts of arguments that may be given several times: another pci= is kept beside this one.
PARTS = ("pci=config_acs",)
# x86 uses the first 2,047 characters: COMMAND_LINE_SIZE is 2048 with the final NUL (arch/x86/include/asm/setup.h). GRUB
# leaves out the arguments that do not fit.
LENGTH_MAX = 2047
# The arguments by which a host finds its init and its root file system, by source; in names "-" is "_" (``key``).
FOR_BOOT = re.compile(
    # The kernel: admin-guide/kernel-parameters.txt, md.rst, device-mapper/dm-init.rst, nfs/nfsroot.rst.
    r"root|rootflags|rootfstype|rootwait|rootdelay|init|rdinit|initrd|noinitrd|dm_mod\.create|md|raid|nfsroot|nfsaddrs"
    # dracut.cmdline(7), with the older names of its iSCSI arguments.
    r"|rootfallback|netroot|cifsuser|cifspass|iscsi_\w+|rd\.driver\.(pre|post)|rd\.writable\.fsimg"
    r"|rd\.(auto|ccw|cio_accept|cms|dasd|dm|fcoe|fstab|iscsi|live|luks|lvm|md|multipath|nbd|neednet|net|nfs|nonvmf|nvme"
    r"|nvmf|overlay|zfcp|znet)(\..*)?"
    # kernel-command-line(7) of systemd 254: its generators for /etc/fstab, GPT, LUKS and dm-verity.
    r"|roothash|usrhash|mount\.usr\w*|fstab|(rd\.)?(luks|systemd\.verity|veritytab|systemd\.gpt_auto)([._].*)?"
    r"|(rd\.)?systemd\.(volatile|image_policy|mount_extra)"
    # initramfs-tools(7), live-boot(7), cryptsetup-initramfs, cloud-initramfs-tools, ZFS, OSTree; boot= is also where
    # FIPS mode looks for the kernel.
    r"|boot|BOOT|netboot|nfsopts|fetch|httpfs|ftpfs|findiso|fromiso|toram|live_media\w*|overlayroot\w*|cryptdevice"
    r"|cryptopts|bootfs|zfs|ostree"
)
# The arguments that give a host its addresses, the names of its interfaces and its console (the same sources; ds= and
# others tell cloud-init where the network's configuration is).
FOR_ACCESS = re.compile(
    r"ip|ifname|vlan|bond|team|bridge|nameserver|BOOTIF|bootdev|ethdevice|netdev|rd\.(route|bootif|peerdns|znet_ifname)"
    r"|net\.(ifnames|naming_scheme)|biosdevname|ds|network_config|cloud_config_url|console|8250\.nr_uarts"
)
# Arguments that end the boot before the host can be reached: another init or none, a shell or a mode without a network
# (systemd(1), dracut.cmdline(7), initramfs-tools(7)). The boot menu's recovery entries have them, so only requests are
# compared.
STOPS_BOOT = re.compile(
    r"(rd)?init=.*|(rd\.)?systemd\.unit=(rescue|emergency|poweroff|halt|reboot|shutdown|kexec|exit)\.target"
    r"|-b|s|S|1|single|(rd\.)?(emergency|rescue)|(rd\.)?break(=.*)?|systemd\.run=.*"
)
BLACKLISTS = ("module_blacklist", "modprobe.blacklist", "rd.driver.blacklist")
# (needed for, name, values, effect): arguments that turn off what the role needs (kernel-parameters.txt, and the names
# of the modules in drivers/vfio); "host" is needed always.
CONTRADICTIONS = (
    ("host", "acpi", ("off",), "turns ACPI off, and with it the IOMMU, NUMA and most of the interrupts"),
    ("host", "pci", ("off", "noacpi"), "hides PCI devices or their interrupts"),
    ("host", "noapic", ("",), "turns the I/O APICs off, without which interrupts cannot be remapped"),
    ("host", "nolapic", ("",), "turns the local APICs off, which KVM needs"),
    ("host", "nosmp", ("",), "leaves one CPU"),
    ("host", "cgroup_disable", ("cpuset",), "turns the cpusets off with which libvirt pins CPUs and memory"),
    *(("host", name, ("kvm", "kvm_intel", "kvm_amd"), "keeps KVM from loading") for name in BLACKLISTS),
    ("iommu", "iommu", ("off",), "turns the IOMMU off, which passed-through devices need"),
    ("iommu", "intel_iommu", ("off",), "turns the IOMMU off, which passed-through devices need"),
    ("iommu", "amd_iommu", ("off",), "turns the IOMMU off, which passed-through devices need"),
    ("iommu", "intremap", ("off",), "turns interrupt remapping off, without which QEMU gets no device"),
    ("iommu", "pci", ("nomsi",), "turns off the only interrupts that virtual functions have"),
    ("passthrough", "iommu.passthrough", ("0", "n", "off"), "contradicts iommu=pt"),
    ("translated", "iommu.passthrough", ("1", "y", "on"), "contradicts iommu=nopt"),
    (
        "ats",
        "pci",
        ("noats",),
        "turns ATS off, which NICs need that share a switch with a GPU or that offer it by ATS_ENABLED",
    ),
    ("nodes", "numa", ("off",), "leaves one NUMA node, but huge pages are requested on others"),
    *(
        ("vfio", name, ("vfio", "vfio_pci", "vfio_pci_core", "vfio_iommu_type1"), "keeps VFIO from loading")
        for name in BLACKLISTS
    ),
    ("vfio", "initcall_blacklist", ("vfio_init", "vfio_pci_init", "vfio_iommu_type1_init"), "keeps VFIO from starting"),
)
# How to shorten an argument that the role computes, by its name.
SHORTER = {
    "pci=config_acs": "gpu_host_acs_at_boot: false sets ACS at boot instead, or name fewer gpu_host_acs_devices",
    "module_blacklist": "gpu_host_keep_drivers_off: false leaves it out",
}


def key(argument: str) -> str:
    """Return an argument's name as the kernel compares it: "pci" for "pci=realloc". Quotes around it are ignored.

    A part of an argument (``PARTS``) has its own name.
    """
    for part in PARTS:
        if argument.lstrip('"').startswith(f"{part}="):
            return part
    return argument.lstrip('"').split("=", 1)[0].replace("-", "_")


def quoted(argument: str) -> str:
    """Return an argument quoted for GRUB's files: ";" ends a command in GRUB's scripts (GRUB manual, "Quoting")."""
    return f'"{argument}"' if ";" in argument else argument


def split(line: str) -> list[str]:
    """Return the arguments of a command line, in order."""
    return ARGUMENT.findall(line)


def checked(arguments: list[str], remove: list[str]) -> tuple[list[str], list[str]]:
    """Return the requested arguments and the keys to remove, checked. Raises RequestError."""
    for argument in arguments:
        if not SAFE.fullmatch(argument):
            raise RequestError(
                f"kernel_arguments: {argument!r} is not one kernel argument",
                "write name or name=value, without spaces and quotes",
            )
        if STOPS_BOOT.fullmatch(argument):
            raise RequestError(
                f"kernel_arguments: {argument} ends every boot before the host can be reached",
                "leave it out; for one boot, set it in the boot loader's menu",
            )
    for name in remove:
        if not re.fullmatch(r"[A-Za-z0-9_.-]+", name):
            raise RequestError(
                f"kernel_arguments: {name!r} is not the name of an argument to remove",
                "give the name without a value",
            )
    for purpose, names in (("to boot", FOR_BOOT), ("to be reached", FOR_ACCESS)):
        needed = [name for name in remove if names.fullmatch(key(name))]
        if needed:
            raise RequestError(
                f"kernel_arguments: {', '.join(needed)} cannot be removed: a host needs "
                f"{'it' if len(needed) == 1 else 'them'} {purpose}",
                "leave it out of gpu_host_kernel_arguments_removed; change it in the boot loader's own configuration",
            )
    contradictory = sorted({key(argument) for argument in arguments} & {key(name) for name in remove})
    if contradictory:
        raise RequestError(
            f"kernel_arguments: {', '.join(contradictory)} cannot be both set and removed", "name them once"
        )
    _check_pages(arguments)
    return arguments, remove


def _check_pages(arguments: list[str]) -> None:
    """Raise RequestError for huge pages without a size, and for a size or a default that is given twice."""
    size, seen = "", set()
    for argument in arguments:
        name, value = key(argument), argument.partition("=")[2]
        if name in ("hugepagesz", "default_hugepagesz"):
            size = value
        if name == "hugepages" and not size:
            raise RequestError(
                f"kernel_arguments: {argument} does not say the size of its pages",
                "put hugepagesz= before it",
            )
        subject = name if name == "default_hugepagesz" else f"the number of huge pages of {size}"
        if name == "hugepagesz" or name not in PAGES:
            continue
        if subject in seen:
            raise RequestError(
                f"kernel_arguments: {subject} is given twice, and the kernel uses one of them",
                "give it once, in gpu_host_hugepages or in gpu_host_kernel_arguments",
            )
        seen.add(subject)


def check_line(line: str, arguments: list[str], remove: list[str], uses: Collection[str], prefix: str = "") -> None:
    """Check what becomes of ``line``, the arguments of a boot entry; ``uses`` are names in ``CONTRADICTIONS``.

    ``prefix`` is what the boot loader puts before it. Raises RequestError if it would lose an argument that the host
    needs, contradict the requested settings, or be longer than the kernel reads.
    """
    result = split(merged(line, arguments, remove))
    names = {key(argument) for argument in result}
    for argument in split(line):
        name = key(argument)
        is_lost = FOR_BOOT.fullmatch(name) and argument not in result
        if is_lost or (FOR_ACCESS.fullmatch(name) and name not in names):
            raise RequestError(
                f"kernel_arguments: {argument} would be replaced, but the host needs it to boot or to be reached",
                f"leave {name} out of gpu_host_kernel_arguments; change it in the boot loader's own configuration",
            )
    for argument in result:
        values = {part.replace("-", "_").lower() for part in argument.strip('"').partition("=")[2].split(",")}
        for use, name, wrong, effect in CONTRADICTIONS:
            if use in {"host", *uses} and name == key(argument) and values & set(wrong):
                raise RequestError(
                    f"kernel_arguments: {argument} {effect}",
                    f"set {name}= without it in gpu_host_kernel_arguments, or name {name} in "
                    "gpu_host_kernel_arguments_removed",
                )
    result = [argument if " " in argument else argument.replace('"', "") for argument in result]
    length = len(" ".join([prefix, *result] if prefix else result))
    if length > LENGTH_MAX:
        longest = "; ".join(
            f"{key(argument)}= has {len(argument)}"
            + (f" ({SHORTER[key(argument)]})" if key(argument) in SHORTER else "")
            for argument in sorted(result, key=len, reverse=True)[:3]
        )
        raise RequestError(
            f"kernel_arguments: the command line would have {length} characters, and the kernel cuts it off after "
            f"{LENGTH_MAX}",
            f"shorten it by {length - LENGTH_MAX}: {longest}",
        )


def owned(arguments: list[str], remove: list[str]) -> set[str]:
    """Return the keys that this module owns: any other argument with one of them is replaced."""
    keys = {key(argument) for argument in [*arguments, *remove]}
    for family in FAMILIES:
        if keys & family:
            keys |= family
    # Removing an argument removes its parts, too.
    return keys | {part for part in PARTS for name in remove if part.startswith(f"{key(name)}=")}


def merged(line: str, arguments: list[str], remove: list[str]) -> str:
    """Return ``line`` without arguments of owned keys, then ``arguments``. A second call changes nothing."""
    keys = owned(arguments, remove)
    return " ".join([argument for argument in split(line) if key(argument) not in keys] + list(map(quoted, arguments)))


def in_effect(line: str, arguments: list[str], remove: list[str]) -> bool:
    """Return True if a kernel started with ``line`` has exactly ``arguments`` for the owned keys, in that order."""
    keys = owned(arguments, remove)
    return [argument.replace('"', "") for argument in split(line) if key(argument) in keys] == arguments


def differences(line: str, arguments: list[str], remove: list[str]) -> str:
    """Return how a kernel started with ``line`` differs: "was not started with a=1 and was started with b=2"."""
    keys = owned(arguments, remove)
    present = [argument.replace('"', "") for argument in split(line) if key(argument) in keys]
    lacking = [argument for argument in arguments if argument not in present]
    surplus = [argument for argument in present if argument not in arguments]
    texts = [f"was not started with {' '.join(lacking)}"] if lacking else []
    texts += [f"was started with {' '.join(surplus)}"] if surplus else []
    return " and ".join(texts) or f"was not started with {' '.join(arguments)} in this order, each once"
