# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""One call converges a host, and in check mode finds every difference by the same code."""

from __future__ import annotations

import json

import pytest

from ansible_collections.sailloft.fleet.plugins.module_utils.host import converge, wanted
from ansible_collections.sailloft.fleet.plugins.module_utils.host.at_boot import now_and_at_boot, persistence
from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.errors import HostError, RequestError
from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.outcome import Outcome
from ansible_collections.sailloft.fleet.plugins.module_utils.host.devices import nic_firmware
from ansible_collections.sailloft.fleet.plugins.module_utils.host.kernel import boot_loader, kernel_arguments
from ansible_collections.sailloft.fleet.plugins.module_utils.host.undo import record
from ansible_collections.sailloft.fleet.plugins.modules.gpu_host import ensure

DEFAULTS = 'GRUB_CMDLINE_LINUX_DEFAULT="quiet"\nGRUB_CMDLINE_LINUX=""\n'
PAGES = "/sys/devices/system/node/node0/hugepages/hugepages-2048kB/nr_hugepages"
GPU, NIC = "0000:13:00.0", "0000:14:00.0"
WANTED = {
    **wanted.defaults(),
    "hugepages": [{"node": 0, "size_mib": 2, "count": 64}],
    "sriov": [{"devices": ["0000:15:00.0"], "count": 2}],
    "vfio": ["gpu"],
    "keep_drivers_off": False,
    "pci": [{"devices": ["gpu", "nic"], "max_read_request_bytes": 4096}],
    "kernel_settings": {"ksm": False},
    "acs": "unchanged",
    "nic_firmware_by_family": False,
    "gpu_domain": None,
}


@pytest.fixture
def fresh(server):
    server.put(boot_loader.DEFAULTS, DEFAULTS)
    server.put("/sys/kernel/mm/ksm/run", "1\n")
    server.run(["update-grub"])
    server.effects.clear()
    return server


def reboot(server, arguments="ro intel_iommu=on iommu=pt default_hugepagesz=2M hugepagesz=2M hugepages=0:64"):
    server.put("/proc/cmdline", f"{arguments}\n")


@pytest.fixture
def converged(fresh):
    """The server as the call leaves it after its reboot."""
    converge.ensure(fresh, WANTED)
    reboot(fresh)
    converge.ensure(fresh, WANTED)
    fresh.effects.clear()
    return fresh


def compared(server, **given):
    server.effects.clear()
    before = server.state()
    done = ensure(server, {**WANTED, **given}, check=True)
    assert server.effects == []
    assert server.state() == before
    return done


def test_a_converged_host_has_no_difference_and_nothing_is_changed(converged):
    assert converge.is_held(compared(converged))
    again = converge.ensure(converged, WANTED)
    assert converge.is_held(again)
    assert converged.effects == []


def test_without_a_reboot_that_is_allowed_everything_is_set_and_the_reboot_is_pending(fresh):
    predicted = compared(fresh)
    done = converge.ensure(fresh, WANTED)
    assert predicted.after.keys() == done.after.keys()
    assert (done.facts["reboot_required"], done.facts["reboot_due"]) == (True, False)
    assert fresh.read(PAGES) == "64"
    assert json.loads(fresh.read(persistence.SETTINGS))["hugepages"]["pages"] == WANTED["hugepages"]
    # The former state is recorded, for state: absent.
    assert fresh.exists(record.RECORD)
    pending = converge.ensure(fresh, WANTED)
    assert (pending.changed, pending.facts["reboot_required"], converge.is_held(pending)) == (False, True, False)


def test_the_settings_that_an_allowed_reboot_loses_are_left_to_the_call_after_it(fresh):
    allowed = {**WANTED, "reboot_ok": True}
    done = converge.ensure(fresh, allowed)
    assert done.facts["reboot_due"]
    assert done.pending
    assert not fresh.exists(persistence.SETTINGS)
    reboot(fresh)
    done = converge.ensure(fresh, allowed)
    assert (done.facts["reboot_due"], done.facts["reboot_required"], done.pending) == (False, False, [])
    assert fresh.exists(persistence.SETTINGS)
    assert converge.is_held(converge.ensure(fresh, allowed))


def test_nothing_is_changed_while_packages_are_missing(fresh):
    fresh.put("/etc/os-release", "ID=slackware\n")
    before = fresh.state()
    # What cannot be compared counts as missing.
    done = converge.ensure(fresh, {**WANTED, "packages": {"RedHat": ["edk2-ovmf"]}, "sockets": {"RedHat": []}})
    assert done.facts["missing"]
    assert not done.changed
    assert fresh.state() == before


@pytest.mark.parametrize(
    "wrong",
    [
        {"sriov": [{"devices": ["nic"], "count": -1}]},
        {"nic_firmware": [{"devices": [NIC], "values": {"ATS_ENABLED": True}}]},
        {"acs": "Auto"},
    ],
)
def test_a_mistake_is_refused_before_anything_is_changed(fresh, wrong):
    before = fresh.state()
    with pytest.raises(RequestError):
        converge.ensure(fresh, {**WANTED, **wrong})
    assert fresh.state() == before


def test_a_bios_without_the_required_features_is_refused_before_anything_is_changed(fresh):
    fresh.put("/proc/cpuinfo", "vendor_id : GenuineIntel\nflags : fpu\n\n")
    before = fresh.state()
    with pytest.raises(HostError, match="extensions"):
        converge.ensure(fresh, WANTED)
    assert fresh.state() == before
    assert converge.ensure(fresh, {**WANTED, "bios_required": []}).changed


def test_parts_that_are_not_asked_for_are_left_alone(fresh):
    done = converge.ensure(fresh, {**WANTED, "parts": ["settings"], "outcomes": True})
    assert list(done.facts["outcomes"]) == ["settings"]
    assert not done.facts["reboot_required"]
    assert not fresh.exists(boot_loader.DROP_IN)
    read = compared(fresh, parts=["nic_firmware", "settings"], outcomes=True)
    assert list(read.facts["outcomes"]) == ["nic_firmware", "settings"]
    assert read.facts["outcomes"]["settings"]["outcomes"]["hugepages"]


def test_absent_restores_the_former_state_but_not_in_an_image(fresh):
    before = fresh.read("/sys/kernel/mm/ksm/run")
    converge.ensure(fresh, WANTED)
    done = converge.ensure(fresh, {**WANTED, "state": "absent"})
    assert done.facts["reboot_required"]
    assert (fresh.read("/sys/kernel/mm/ksm/run"), fresh.exists(persistence.SETTINGS)) == (before, False)
    with pytest.raises(RequestError, match="image"):
        converge.ensure(fresh, {**WANTED, "state": "absent", "now": False})


BREAKS = {
    "the running kernel": lambda server: server.put("/proc/cmdline", "ro\n"),
    "the boot loader": lambda server: server.put(boot_loader.GENERATED, "linux /vmlinuz ro\n"),
    "pages": lambda server: server.put(PAGES, "63\n"),
    "a saved setting": lambda server: server.put(persistence.SETTINGS, "{}"),
    "the code at boot": lambda server: server.put(persistence.CODE, b"another"),
    "the unit": lambda server: server.remove(persistence.WANTS),
    "a kernel setting": lambda server: server.put("/sys/kernel/mm/ksm/run", "1\n"),
}


@pytest.mark.parametrize("name", BREAKS)
def test_each_differing_setting_is_found(converged, name):
    BREAKS[name](converged)
    done = compared(converged)
    assert not converge.is_held(done)
    assert done.after or done.pending


def test_firmware_that_cannot_be_set_is_a_failure_after_all_other_settings(fresh, monkeypatch):
    lacking = Outcome(facts={"failures": ["no answer"], "reboot_required": False, "unknown": []}, failed="no answer")
    monkeypatch.setattr(nic_firmware, "ensure", lambda *_given: lacking)
    done = converge.ensure(fresh, WANTED)
    assert (done.facts["failures"], done.failed) == (["no answer"], "no answer")
    assert fresh.read(PAGES) == "64"


@pytest.mark.parametrize(
    ("library", "facts"),
    [
        (kernel_arguments, {"acs": {"not_taken": ["0000:10:00.0"]}, "drivers_off": {"reasons": []}}),
        (kernel_arguments, {"drivers_off": {"reasons": ["nouveau"]}}),
        (kernel_arguments, {"reboot_required": True}),
        (nic_firmware, {"unknown": ["the firmware of 0000:14:00.0 does not know ATS_ENABLED"]}),
        (now_and_at_boot, {"outcomes": {"pci_tuning": {"acs_by_port": {"unmet": ["ATS"]}}}}),
        (now_and_at_boot, {"outcomes": {"kernel_settings": {"also_set_by": ["tuned"]}}}),
        (now_and_at_boot, {"outcomes": {"vfio_binding": {"reset_failures": {GPU: "bus"}}}}),
    ],
)
def test_a_host_with_something_to_report_is_not_left_out(converged, monkeypatch, library, facts):
    original = library.ensure

    def with_facts(*arguments, **named):
        outcome = original(*arguments, **named)
        outcome.facts.update(facts)
        return outcome

    monkeypatch.setattr(library, "ensure", with_facts)
    assert not converge.is_held(compared(converged))


def test_virtual_machines_are_compared_if_the_host_has_all_settings(converged):
    given = {"domains": [{"name": "train", "memory_mib": 64}], "uri": "qemu:///nowhere"}
    machines = compared(converged, gpu_domain=given).facts["virtual_machines"]
    assert machines["domains"] == []
    assert "libvirt" in machines["differences"][0]
    wrong = compared(converged, gpu_domain={"domains": [], "state": "x"}).facts["virtual_machines"]
    assert "state" in wrong["differences"][0]
    converged.put(PAGES, "63\n")
    assert "virtual_machines" not in compared(converged, gpu_domain=given).facts
