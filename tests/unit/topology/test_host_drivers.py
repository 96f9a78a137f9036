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


@pytest.mark.parametrize(
    ("vendor", "modules"),
    [
        (0x10DE, NVIDIA),
        (0x1002, ["amdgpu", "radeon"]),
        (0x8086, ["i915", "xe"]),
        (0x1DA3, ["habanalabs"]),
    ],
)
def test_each_vendor_has_its_modules(vendor, modules):
    host = gpu_vm.host()
    for address in GPUS:
        host.function(address).vendor_id = vendor
    assert host_drivers.keep_off(host, GPUS) == (modules, [])
    assert host_drivers.of_any_host([vendor, 0x1234]) == modules


def test_modules_of_all_vendors_are_listed_for_hosts_that_are_not_read():
    every = ["amdgpu", "habanalabs", "i915", "nouveau", "nova_core", "nvidia", "nvidiafb", "radeon", "xe"]
    assert host_drivers.of_any_host(None) == every
    assert host_drivers.of_any_host([]) == []


def test_the_vendors_are_judged_one_by_one():
    host = gpu_vm.host()
    host.function(GPUS[1]).vendor_id = 0x1002
    assert host_drivers.keep_off(host, GPUS) == (sorted([*NVIDIA, "amdgpu", "radeon"]), [])
    assert host_drivers.keep_off(host, GPUS[1:]) == (["amdgpu", "radeon"], [])


@pytest.mark.parametrize(
    ("values", "stays"),
    [
        ({"kind": "nvswitch"}, True),
        ({"kind": "gpu"}, True),
        ({"kind": "other", "class_code": 0x030000}, True),
        ({"kind": "other", "class_code": 0x120000}, True),
        ({"kind": "other", "class_code": 0x0B4000}, True),
        ({"kind": "other", "class_code": 0x040300}, False),
        ({"kind": "gpu", "physical_function": GPUS[0]}, False),
    ],
)
def test_a_function_that_the_driver_would_take_keeps_its_modules_allowed(values, stays):
    host = gpu_vm.host()
    other = host.function("0000:14:00.0")
    other.vendor_id = 0x10DE
    for name, value in values.items():
        setattr(other, name, value)
    reason = f"{', '.join(NVIDIA)} may load: {other.address} stays with the host"
    assert host_drivers.keep_off(host, GPUS) == (([], [reason]) if stays else (NVIDIA, []))


def test_a_virtual_function_of_a_guest_keeps_no_modules_off():
    host = gpu_vm.host()
    for address in GPUS:
        host.function(address).physical_function = "0000:14:00.0"
    assert host_drivers.keep_off(host, GPUS) == ([], [])


def test_nvswitches_follow_the_gpus_if_guests_have_all_of_them():
    host = gpu_vm.host()
    switch = host.function("0000:14:00.0")
    switch.kind = "nvswitch"
    assert host_drivers.following_switches(host, GPUS) == [switch]
    assert host_drivers.following_switches(host, [*GPUS, "0000:99:00.0"]) == [switch]
    assert host_drivers.following_switches(host, GPUS[:1]) == []
    host.function(GPUS[1]).vendor_id = 0x1002
    assert host_drivers.following_switches(host, GPUS[:1]) == [switch]
    host.function(GPUS[0]).vendor_id = 0x1002
    assert host_drivers.following_switches(host, GPUS) == []


def test_only_the_argument_itself_names_modules():
    assert host_drivers.kept_off(["xmodule_blacklist=a", "module_blacklist", "modprobe.blacklist=b"]) == set()
    assert host_drivers.kept_off(["module_blacklist=a,b-c"]) == {"a", "b_c"}
