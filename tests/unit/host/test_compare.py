# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The comparison finds no difference exactly if the modules would neither change nor report anything."""

from __future__ import annotations

import pytest

from ansible_collections.sailloft.fleet.plugins.module_utils.host.at_boot import now_and_at_boot, persistence
from ansible_collections.sailloft.fleet.plugins.module_utils.host.devices import nic_firmware
from ansible_collections.sailloft.fleet.plugins.module_utils.host.kernel import boot_loader, kernel_arguments
from ansible_collections.sailloft.fleet.plugins.modules.gpu_host_compare import compared

DEFAULTS = 'GRUB_CMDLINE_LINUX_DEFAULT="quiet"\nGRUB_CMDLINE_LINUX=""\n'
GPU, NIC = "0000:13:00.0", "0000:14:00.0"
GIVEN = {
    "bios_info": {"required": ["extensions", "iommu"]},
    "kernel_arguments": {"iommu": "passthrough"},
    "nic_firmware": {"settings": []},
    "gpu_host_boot": {
        "hugepages": {"pages": [{"node": 0, "size_mib": 2, "count": 64}]},
        "sriov": {"functions": [{"devices": ["0000:15:00.0"], "count": 2}]},
        "vfio_binding": {"devices": ["gpu"]},
        "pci_tuning": {"settings": [{"devices": ["gpu", "nic"], "max_read_request_bytes": 4096}]},
        "kernel_settings": {"ksm": False},
    },
}


def differences(server, **given):
    outcome = compared(server, {**GIVEN, **given})
    assert not outcome.changed
    return [f"{name}: {line}" for name, lines in outcome.facts["differences"].items() for line in lines]


@pytest.fixture
def converged(server):
    """The server as the modules leave it, after its reboot."""
    server.put(boot_loader.DEFAULTS, DEFAULTS)
    server.put("/sys/kernel/mm/ksm/run", "0\n")
    server.run(["update-grub"])
    done = kernel_arguments.ensure(server, {"iommu": "passthrough"})
    server.put("/proc/cmdline", " ".join(["ro", *done.facts["arguments"]]) + "\n")
    now_and_at_boot.ensure(server, {"now": True, **GIVEN["gpu_host_boot"]})
    server.effects.clear()
    return server


def test_a_converged_host_has_no_difference_and_nothing_is_changed(converged):
    before = converged.state()
    assert differences(converged) == []
    assert converged.effects == []
    assert converged.state() == before


def test_a_fresh_host_is_compared_up_to_the_first_differing_part(server):
    server.put(boot_loader.DEFAULTS, DEFAULTS)
    server.run(["update-grub"])
    server.effects.clear()
    asked = {**GIVEN, "gpu_domain": {"domains": [], "uri": "qemu:///nowhere"}}
    found = compared(server, asked).facts
    assert list(found["differences"]) == ["bios_info", "kernel_arguments"]
    assert found["differences"]["kernel_arguments"]
    assert found["domains"] == []
    assert list(differences(server, kernel_arguments=None)) != []
    assert server.effects == []


def test_virtual_machines_are_compared_if_the_host_has_all_settings(converged):
    given = {"domains": [{"name": "train", "memory_mib": 64}], "uri": "qemu:///nowhere"}
    (line,) = compared(converged, {**GIVEN, "gpu_domain": given}).facts["differences"]["gpu_domain"]
    assert "libvirt" in line


def test_wrong_arguments_of_virtual_machines_are_a_difference(converged):
    found = compared(converged, {**GIVEN, "gpu_domain": {"domains": [], "state": "x"}}).facts
    message = "value of state must be one of: present, running, stopped, absent, got: x"
    assert (found["differences"]["gpu_domain"], found["domains"]) == ([message], [])


BREAKS = {
    "BIOS": ("bios_info", lambda server: server.put("/proc/cpuinfo", "vendor_id : GenuineIntel\nflags : fpu\n\n")),
    "the running kernel": ("kernel_arguments", lambda server: server.put("/proc/cmdline", "ro\n")),
    "the boot loader": ("kernel_arguments", lambda server: server.put(boot_loader.GENERATED, "linux /vmlinuz ro\n")),
    "no boot loader": ("kernel_arguments", lambda server: server.remove(boot_loader.DEFAULTS)),
    "pages": (
        "gpu_host_boot",
        lambda server: server.put(
            "/sys/devices/system/node/node0/hugepages/hugepages-2048kB/nr_hugepages",
            "63\n",
        ),
    ),
    "a saved setting": ("gpu_host_boot", lambda server: server.put(persistence.SETTINGS, "{}")),
    "the code at boot": ("gpu_host_boot", lambda server: server.put(persistence.CODE, b"another")),
    "the unit": ("gpu_host_boot", lambda server: server.remove(persistence.WANTS)),
    "a kernel setting": ("gpu_host_boot", lambda server: server.put("/sys/kernel/mm/ksm/run", "1\n")),
}


@pytest.mark.parametrize("name", BREAKS)
def test_each_differing_part_is_found(converged, name):
    module, break_it = BREAKS[name]
    break_it(converged)
    found = differences(converged)
    assert found
    assert {line.split(":")[0] for line in found} == {module}


def test_differing_firmware_is_found(converged):
    settings = [{"devices": [NIC], "values": {"ATS_ENABLED": True}}]
    assert any(
        line.startswith("nic_firmware: ") for line in differences(converged, nic_firmware={"settings": settings})
    )


def test_refused_input_is_a_difference_with_the_name_of_the_module(converged):
    assert differences(converged, kernel_arguments={"iommu": "some"}) == [
        "kernel_arguments: value of iommu must be one of: passthrough, translated, got: some"
    ]
    wrong = {"vfio_binding": {"devices": ["0000:77:00.0"]}}
    found = differences(converged, gpu_host_boot=wrong)
    assert [line for line in found if line.startswith("gpu_host_boot: ") and "0000:77:00.0" in line] == found != []


@pytest.mark.parametrize(
    ("module", "library", "facts"),
    [
        (
            "kernel_arguments",
            kernel_arguments,
            {"acs": {"not_taken": ["0000:10:00.0"]}, "drivers_off": {"reasons": []}},
        ),
        ("kernel_arguments", kernel_arguments, {"drivers_off": {"reasons": ["nouveau"]}}),
        ("kernel_arguments", kernel_arguments, {"reboot_required": True}),
        ("nic_firmware", nic_firmware, {"unknown": ["the firmware of 0000:14:00.0 does not know ATS_ENABLED"]}),
        ("gpu_host_boot", now_and_at_boot, {"outcomes": {"pci_tuning": {"acs_by_port": {"unmet": ["ATS"]}}}}),
        ("gpu_host_boot", now_and_at_boot, {"outcomes": {"kernel_settings": {"also_set_by": ["tuned"]}}}),
        ("gpu_host_boot", now_and_at_boot, {"outcomes": {"vfio_binding": {"reset_failures": {GPU: "bus"}}}}),
    ],
)
def test_facts_that_the_role_reports_are_differences(converged, monkeypatch, module, library, facts):
    assert differences(converged) == []
    ensure = library.ensure

    def shown(*arguments, **named):
        outcome = ensure(*arguments, **named)
        outcome.facts.update(facts)
        return outcome

    monkeypatch.setattr(library, "ensure", shown)
    assert [line.split(":")[0] for line in differences(converged)] == [module]
