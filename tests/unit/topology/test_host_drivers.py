# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

import gpu_vm
import pytest

from ansible_collections.sailloft.fleet.plugins.module_utils.topology import host_drivers

GPUS = ["0000:13:00.0", "0000:83:00.0"]
NVIDIA = ["nouveau", "nova_core", "nvidia", "nvidiafb"]


def test_a_vendors_modules_are_disabled_if_guests_have_all_its_gpus():
    assert host_drivers.keep_off(gpu_vm.host(), GPUS) == (NVIDIA, [])
    assert host_drivers.keep_off(gpu_vm.host(), []) == ([], [])


def test_a_vendors_modules_may_load_if_the_host_keeps_one_of_its_gpus():
    assert host_drivers.keep_off(gpu_vm.host(), GPUS[:1]) == (
        [],
        ["nouveau, nova_core, nvidia, nvidiafb may load: 0000:83:00.0 stays with the host"],
    )


@pytest.mark.parametrize(("class_code", "modules"), [(0x030000, []), (0x040300, NVIDIA)])
def test_a_display_of_the_vendor_needs_the_modules_but_an_audio_device_does_not(class_code, modules):
    host = gpu_vm.host()
    other = host.function("0000:14:00.0")
    other.vendor_id, other.class_code, other.kind = 0x10DE, class_code, "other"
    assert host_drivers.keep_off(host, GPUS)[0] == modules


def test_no_modules_are_disabled_for_a_vendor_without_known_modules():
    host = gpu_vm.host()
    for address in GPUS:
        host.function(address).vendor_id = 0x1AF4
    assert host_drivers.keep_off(host, GPUS) == ([], [])


def test_the_last_module_blacklist_applies_and_hyphens_equal_underscores():
    assert host_drivers.kept_off([]) == set()
    assert host_drivers.kept_off(["module_blacklist=a", "quiet", "module_blacklist=nova-core,b"]) == {"nova_core", "b"}
