# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The kernel argument that keeps the firmware's console off a GPU."""

from __future__ import annotations

import pytest

from ansible_collections.sailloft.fleet.plugins.module_utils.host.kernel import vfio_consoles

GPU, NIC = "0000:13:00.0", "0000:14:00.0"


@pytest.mark.parametrize(
    ("release", "boot_vga", "found"),
    [
        ("5.19", "1", ["initcall_blacklist=sysfb_init"]),
        ("4.18.0", "1", ["initcall_blacklist=sysfb_init"]),
        ("unknown", "1", ["initcall_blacklist=sysfb_init"]),
        ("5.19", "0", []),
        ("5.19", None, []),
        ("6.0", "1", []),
        ("6.1", "1", []),
        ("7.0", "1", []),
    ],
)
def test_consoles_are_kept_off_only_by_old_kernels(server, release, boot_vga, found):
    server.put("/proc/sys/kernel/osrelease", f"{release}\n")
    if boot_vga:
        server.put(f"{server.directory(GPU)}/boot_vga", f"{boot_vga}\n")
    server.put(f"{server.directory(NIC)}/boot_vga", "1\n")  # not a device of the guest
    assert vfio_consoles.arguments(server, server.host(), {"devices": [GPU]}) == found
