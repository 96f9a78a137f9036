# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Kernel arguments that keep the host's drivers and consoles off the guests' GPUs."""

from __future__ import annotations

import pytest
from messages import raises

from ansible_collections.sailloft.fleet.plugins.module_utils.common.error import SailloftError
from ansible_collections.sailloft.fleet.plugins.module_utils.host.kernel import kernel_arguments

GPU, VF = "0000:13:00.0", "0000:14:10.0"
OFF = "module_blacklist=nouveau,nova_core,nvidia,nvidiafb"


def facts(server, arguments=(), **binding):
    binding = {"devices": ["gpu"], "keep_drivers_off": True, **binding}
    server.put("/etc/default/grub", "")
    return kernel_arguments.ensure(
        server, {"arguments": list(arguments), "vfio_binding": binding, "remove": []}, check=True
    ).facts


def test_drivers_of_guest_gpus_are_blacklisted(server):
    assert facts(server)["arguments"] == [OFF]
    assert facts(server)["drivers_off"] == {"modules": OFF.partition("=")[2].split(","), "reasons": []}
    assert facts(server, keep_drivers_off=False)["arguments"] == []
    assert facts(server, devices=[])["arguments"] == []


def test_a_manual_module_blacklist_is_merged_into_one_argument(server):
    given = ["module_blacklist=pcspkr,nouveau", "quiet"]
    assert facts(server, given)["arguments"] == ["quiet", "module_blacklist=pcspkr,nouveau,nova_core,nvidia,nvidiafb"]


def test_a_vf_that_does_not_exist_yet_is_accepted(server):
    assert facts(server, devices=["gpu", VF])["arguments"] == [OFF]
    with raises(SailloftError, "vfio_binding.devices", "no device 10de:9999"):
        facts(server, devices=["10de:9999"])


@pytest.mark.parametrize(
    ("release", "boot_vga", "arguments"),
    [
        ("5.15.0-91-generic", "1", [OFF, "initcall_blacklist=sysfb_init"]),
        ("5.15.0-91-generic", "0", [OFF]),
        ("6.0.0", "1", [OFF]),  # vfio-pci removes the console itself
    ],
)
def test_the_firmware_console_is_disabled_on_a_guest_gpu_if_needed(server, release, boot_vga, arguments):
    server.put("/proc/sys/kernel/osrelease", f"{release}\n")
    server.put(f"{server.directory(GPU)}/boot_vga", f"{boot_vga}\n")
    assert facts(server)["arguments"] == arguments
