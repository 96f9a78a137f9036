# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Kernel arguments on hosts that boot like RHEL 8 and 9: we write them, GRUB reads them, its kernel obeys them."""

from __future__ import annotations

from pathlib import Path

import loader_machine
import pytest

from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.system import System
from ansible_collections.sailloft.fleet.plugins.module_utils.host.kernel import boot_loader, kernel_arguments

pytestmark = pytest.mark.boot

WANT = {
    "iommu": "passthrough",
    "pages": [
        {"node": 0, "size_mib": 2, "count": 128},
        {"node": 1, "size_mib": 2, "count": 64},
        {"node": 1, "size_mib": 1024, "count": 1},
    ],
    "arguments": ["pci=realloc"],
}
OURS = (
    "intel_iommu=on iommu=pt default_hugepagesz=1G hugepagesz=1G hugepages=1:1 hugepagesz=2M hugepages=0:128,1:64 "
    "pci=realloc"
)
# The arguments of a host before the change: its own arguments, and other values of the keys that we set.
THEIRS = "root=UUID=1 ro console=ttyS0 no_timer_check"
BEFORE = f"{THEIRS} iommu=nopt hugepages=7"
KERNEL = "vmlinuz-5.14.0-1.el9.x86_64"
INITRAMFS = "initramfs-5.14.0-1.el9.x86_64.img"
ENTRY = """title Red Hat Enterprise Linux (5.14.0-1.el9.x86_64)
version 5.14.0-1.el9.x86_64
linux /{kernel}
initrd /{initramfs} $tuned_initrd
options {options}
grub_users $grub_users
grub_arg --unrestricted
grub_class rhel
"""
ENVIRONMENT_BYTES = 1024


def host(folder: Path, options: str, environment: str = "") -> System:
    system = System(str(folder))
    block = f"# GRUB Environment Block\n{environment}"
    files = {
        f"{boot_loader.ENTRIES}/0f-5.14.0-1.el9.x86_64.conf": ENTRY.format(
            kernel=KERNEL, initramfs=INITRAMFS, options=options
        ),
        boot_loader.ENVIRONMENT: block + "#" * (ENVIRONMENT_BYTES - len(block)),
        boot_loader.DEFAULTS: f'GRUB_CMDLINE_LINUX="{BEFORE}"\nGRUB_ENABLE_BLSCFG=true\n',
        "/proc/cmdline": f"BOOT_IMAGE=/{KERNEL} {BEFORE}\n",
        "/proc/cpuinfo": "vendor_id : GenuineIntel\n",
    }
    for path, text in files.items():
        place = Path(system.path(path))
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)
    return system


@pytest.mark.parametrize(
    ("options", "environment"),
    [(f"{BEFORE} $tuned_params", ""), ("$kernelopts $tuned_params", f"kernelopts={BEFORE} \nboot_success=0\n")],
    ids=["rhel 9", "rhel 8"],
)
def test_grub_passes_the_arguments_to_the_kernel(options: str, environment: str, tmp_path: Path) -> None:
    system = host(tmp_path / "host", options, environment)
    outcome = kernel_arguments.ensure(system, WANT)
    assert (outcome.facts["boot_loader"], outcome.facts["reboot_required"]) == ("bls", True)

    lines = loader_machine.boot(Path(system.path("/boot")), KERNEL, INITRAMFS)
    read = dict(line.split(":", 1) for line in lines if line.startswith(("/proc/", "/sys/")) and ":" in line)
    given = read.pop("/proc/cmdline")
    assert given.split() == f"BOOT_IMAGE=/{KERNEL} {THEIRS} {OURS}".split()
    pools = {
        (path.split("/")[-4], path.split("/")[-2]): int(count)
        for path, count in read.items()
        if path.endswith("/nr_hugepages")
    }
    assert pools == {
        ("node0", "hugepages-2048kB"): 128,
        ("node1", "hugepages-2048kB"): 64,
        ("node0", "hugepages-1048576kB"): 0,
        ("node1", "hugepages-1048576kB"): 1,
    }
    domains = {kind for path, kind in read.items() if path.endswith("/type")}
    assert domains == {"identity"}, lines

    Path(system.path("/proc/cmdline")).write_text(given + "\n")
    again = kernel_arguments.ensure(system, WANT)
    assert not again.changed
    assert not again.facts["reboot_required"]
