# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

import os
import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st
from messages import Mentions, raises

from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.errors import HostError, RequestError
from ansible_collections.sailloft.fleet.plugins.module_utils.host.kernel import boot_loader, kernel_arguments
from ansible_collections.sailloft.fleet.plugins.module_utils.host.kernel import kernel_command_line as command_line

WANT = {
    "iommu": "passthrough",
    "pages": [
        {"node": 0, "size_mib": 2, "count": 128},
        {"node": 1, "size_mib": 1024, "count": 1},
        {"node": 0, "size_mib": 1024, "count": 2},
    ],
    "arguments": ["pci=realloc"],
}
PAGES = "default_hugepagesz=1G hugepagesz=1G hugepages=0:2,1:1 hugepagesz=2M hugepages=0:128"
ARGUMENTS = f"intel_iommu=on iommu=pt {PAGES} pci=realloc"
DEFAULTS = """GRUB_DEFAULT=0
GRUB_CMDLINE_LINUX_DEFAULT="quiet iommu=off hugepages=7"
GRUB_CMDLINE_LINUX="console=ttyS0 pci=nocrs"
"""
ENTRY = "title Rocky Linux 9\nversion 5.14\nlinux /vmlinuz-5.14\noptions root=UUID=1 ro {}\nid rocky-5.14\n"


def debian(server):
    server.put(boot_loader.DEFAULTS, DEFAULTS)
    server.run(["update-grub"])


def red_hat(server, options="crashkernel=1G iommu=off"):
    server.put("/boot/grub2/grub.cfg", "")
    server.put(f"{boot_loader.ENTRIES}/1-5.14.conf", ENTRY.format(options))
    server.put(f"{boot_loader.ENTRIES}/2-rescue.conf", ENTRY.format("single"))
    server.put(
        boot_loader.DEFAULTS, 'GRUB_TIMEOUT=5\nGRUB_CMDLINE_LINUX="crashkernel=1G iommu=off"\nGRUB_ENABLE_BLSCFG=true\n'
    )
    server.put(boot_loader.FOR_NEW_KERNELS, "root=UUID=1 ro crashkernel=1G\n")


def line_of(server):
    return next(
        line
        for line in (server.read(boot_loader.GENERATED) or "").splitlines()
        if "single" not in line and "linux" in line.split()
    )


def test_arguments_are_set_on_debian(server):
    debian(server)
    outcome = kernel_arguments.ensure(server, WANT)
    assert outcome.facts["arguments"] == ARGUMENTS.split()
    # Others' arguments stay, except our keys, wherever they are; the real shell has read the file.
    assert line_of(server).split()[2:] == ["root=UUID=1", "ro", "console=ttyS0", "quiet", *ARGUMENTS.split()]
    assert outcome.facts["reboot_required"]
    assert outcome.pending
    again = kernel_arguments.ensure(server, WANT)
    assert not again.changed
    assert again.facts["reboot_required"]


def test_an_asterisk_in_foreign_arguments_is_not_expanded(server):
    debian(server)
    server.put(boot_loader.DEFAULTS, 'GRUB_CMDLINE_LINUX_DEFAULT="/* quiet"\n')
    server.put("/etc/default/grub.d/10-other.cfg", 'GRUB_CMDLINE_LINUX="x=1"\n')
    kernel_arguments.ensure(server, {"iommu": "passthrough"})
    assert line_of(server).split()[4:] == ["x=1", "/*", "quiet", "intel_iommu=on", "iommu=pt"]


def test_a_later_edit_of_the_defaults_is_respected(server):
    debian(server)
    kernel_arguments.ensure(server, WANT)
    server.put(boot_loader.DEFAULTS, DEFAULTS.replace("quiet", "splash hugepages=9"))
    server.run(["update-grub"])
    assert line_of(server).split()[5:] == ["splash", *ARGUMENTS.split()]
    assert not kernel_arguments.ensure(server, WANT).changed


def test_no_reboot_is_required_if_the_running_kernel_has_the_arguments(server):
    debian(server)
    server.put("/proc/cmdline", f"BOOT_IMAGE=/vmlinuz root=UUID=1 ro {ARGUMENTS} quiet\n")
    assert not kernel_arguments.ensure(server, WANT).facts["reboot_required"]
    server.put("/proc/cmdline", f"BOOT_IMAGE=/vmlinuz root=UUID=1 ro {ARGUMENTS} quiet hugepages=3\n")
    assert kernel_arguments.ensure(server, WANT).facts["reboot_required"]


def test_arguments_that_are_no_longer_wanted_are_removed(server):
    debian(server)
    kernel_arguments.ensure(server, WANT)
    kernel_arguments.ensure(server, {"iommu": "passthrough", "remove": ["quiet"]})
    assert line_of(server).split()[4:] == ["console=ttyS0", "pci=nocrs", "hugepages=7", "intel_iommu=on", "iommu=pt"]


def test_foreign_arguments_are_kept_if_no_arguments_are_wanted(server):
    debian(server)
    kernel_arguments.ensure(server, WANT)
    kernel_arguments.ensure(server, {})
    assert line_of(server).split()[4:] == ["console=ttyS0", "pci=nocrs", "quiet", "iommu=off", "hugepages=7"]


def test_a_killed_update_of_grub_is_repeated(server):
    debian(server)
    server.kill_at = len(server.effects) + 1
    with pytest.raises(BaseException, match=r"update-grub"):
        kernel_arguments.ensure(server, WANT)
    server.kill_at = None
    assert "iommu=pt" in (server.read(boot_loader.DROP_IN) or "")
    assert "iommu=pt" not in (server.read(boot_loader.GENERATED) or "")
    predicted = kernel_arguments.ensure(server, WANT, check=True)
    assert predicted.before == {"generated configuration": "without the arguments"}
    kernel_arguments.ensure(server, WANT)
    assert "iommu=pt" in line_of(server)


def test_a_later_foreign_file_that_overrides_the_arguments_is_an_error(server):
    debian(server)
    server.put("/etc/default/grub.d/99-other.cfg", 'GRUB_CMDLINE_LINUX_DEFAULT="iommu=off"\n')
    with pytest.raises(HostError, match="update-grub"):
        kernel_arguments.ensure(server, WANT)


def test_arguments_are_set_on_red_hat(server):
    red_hat(server)
    outcome = kernel_arguments.ensure(server, WANT)
    assert outcome.facts["boot_loader"] == "bls"
    assert server.read(f"{boot_loader.ENTRIES}/1-5.14.conf") == ENTRY.format(f"crashkernel=1G {ARGUMENTS}").strip()
    assert server.read(boot_loader.FOR_NEW_KERNELS) == f"root=UUID=1 ro crashkernel=1G {ARGUMENTS}"
    assert f'GRUB_CMDLINE_LINUX="crashkernel=1G {ARGUMENTS}"' in (server.read(boot_loader.DEFAULTS) or "")
    assert not kernel_arguments.ensure(server, WANT).changed
    assert server.commands == []


def test_arguments_are_set_in_the_environment_block_on_red_hat_8(server):
    red_hat(server)
    server.put(f"{boot_loader.ENTRIES}/1-5.14.conf", "title RHEL 8\noptions $kernelopts $tuned_params\n")
    block = "# GRUB Environment Block\nsaved_entry=1\nkernelopts=root=UUID=1 ro iommu=off \nboot_success=1\n"
    server.put(boot_loader.ENVIRONMENT, block + "#" * (1024 - len(block)))
    kernel_arguments.ensure(server, WANT)
    written = server.read_bytes(boot_loader.ENVIRONMENT).decode()
    assert len(written) == 1024
    assert f"\nkernelopts=root=UUID=1 ro {ARGUMENTS}\nboot_success=1\n" in written
    assert server.read(f"{boot_loader.ENTRIES}/1-5.14.conf") == "title RHEL 8\noptions $kernelopts $tuned_params"
    assert not kernel_arguments.ensure(server, WANT).changed


def test_links_to_boot_files_are_kept_and_their_targets_are_written(server):
    """Links to boot files are kept, and their targets are written.

    On RHEL 8 with UEFI, grubenv is a link to a file on the EFI system partition; GRUB would never see a file that
    replaces the link.
    """
    red_hat(server)
    block = "# GRUB Environment Block\nsaved_entry=1\nkernelopts=root=UUID=1 ro iommu=off\n"
    real = {
        boot_loader.ENVIRONMENT: ("/boot/efi/EFI/redhat/grubenv", block + "#" * (1024 - len(block))),
        boot_loader.DEFAULTS: ("/etc/sysconfig/grub", server.read(boot_loader.DEFAULTS)),
        boot_loader.FOR_NEW_KERNELS: ("/srv/cmdline", server.read(boot_loader.FOR_NEW_KERNELS)),
        f"{boot_loader.ENTRIES}/1-5.14.conf": ("/srv/1.conf", ENTRY.format("ro iommu=off")),
    }
    for link, (target, text) in real.items():
        server.put(target, text)
        server.remove(link)
        server.link(link, target)
    kernel_arguments.ensure(server, WANT)
    for link, (target, _text) in real.items():
        assert os.path.islink(server.path(link)), link
        assert not os.path.islink(server.path(target)), target
        assert ARGUMENTS in (server.read(target) or ""), target
    assert not kernel_arguments.ensure(server, WANT).changed


def test_an_environment_block_that_is_too_small_is_refused(server):
    red_hat(server)
    block = "# GRUB Environment Block\nkernelopts=root=UUID=1\n"
    server.put(boot_loader.ENVIRONMENT, block + "#" * (1024 - len(block)))
    with raises(HostError, "grubenv", "1024"):
        kernel_arguments.ensure(server, {"arguments": [f"a{number}={'x' * 90}" for number in range(12)]})


def test_check_mode_does_nothing(server):
    debian(server)
    del server.effects[:]
    predicted = kernel_arguments.ensure(server, WANT, check=True)
    assert server.effects == []
    done = kernel_arguments.ensure(server, WANT)
    assert (predicted.before, predicted.after, predicted.facts) == (done.before, done.after, done.facts)


def test_an_amd_host_needs_no_argument_to_turn_on_the_iommu(server):
    debian(server)
    server.put("/proc/cpuinfo", "vendor_id : AuthenticAMD\n\n")
    assert kernel_arguments.ensure(server, {"iommu": "passthrough"}).facts["arguments"] == [
        "intel_iommu=on",
        "iommu=pt",
    ]
    server.link("/sys/firmware/acpi/tables/IVRS", "/proc/cpuinfo")
    os.unlink(server.path("/sys/firmware/acpi/tables/DMAR"))
    assert kernel_arguments.ensure(server, {"iommu": "passthrough"}).facts["arguments"] == ["iommu=pt"]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"arguments": ["iommu=pt quiet"]}, Mentions("iommu=pt")),
        (
            {"arguments": ["iommu=pt\n"]},
            Mentions("kernel_arguments", "arguments", "0", "iommu=pt\\n"),
        ),
        ({"arguments": ["x=\x1b"]}, Mentions("printable")),
        ({"arguments": [""]}, Mentions("kernel_arguments", "arguments", "0")),
        ({"arguments": ["x='a'"]}, Mentions("argument")),
        ({"remove": ["quiet\n"]}, Mentions("kernel_arguments", "remove", "0", "quiet\\n")),
        ({"arguments": ["x=$(reboot)"]}, Mentions("argument")),
        ({"arguments": ["hugepages=4"]}, Mentions("hugepages=4", "hugepagesz=")),
        ({"arguments": ["iommu=pt"], "remove": ["iommu"]}, Mentions("removed")),
        ({"iommu": "off"}, Mentions("iommu", "off")),
        ({"iommu": "passthrough", "arguments": ["iommu=nopt"]}, Mentions("iommu=pt", "iommu=nopt")),
        ({"remove": ["a b"]}, Mentions("argument")),
    ],
)
def test_bad_input_is_refused_before_anything_is_written(server, data, message):
    debian(server)
    del server.effects[:]
    with pytest.raises(HostError) as error:
        kernel_arguments.ensure(server, data)
    assert str(error.value) == message
    assert server.effects == []


def test_a_host_without_grub_is_refused(server):
    with pytest.raises(HostError, match=r"/etc/default/grub.*GRUB"):
        kernel_arguments.ensure(server, WANT)


def test_a_host_without_grub_is_accepted_if_no_arguments_are_wanted(server):
    outcome = kernel_arguments.ensure(server, {})
    assert not outcome.changed
    assert outcome.facts["boot_loader"] is None
    assert not outcome.facts["reboot_required"]
    with pytest.raises(HostError, match=r"found neither /etc/default/grub"):
        kernel_arguments.ensure(server, {"remove": ["quiet"]})


@pytest.mark.parametrize("arrange", [debian, red_hat])
def test_a_run_killed_at_any_point_is_completed_by_the_next_run(killed_anywhere, arrange):
    places = killed_anywhere(arrange, lambda server: kernel_arguments.ensure(server, WANT))
    assert places == {debian: 2, red_hat: 4}[arrange]


WORD = st.from_regex(r"[a-z_]{1,6}(=[a-z0-9:,]{0,5})?", fullmatch=True)


@given(st.lists(WORD, max_size=8), st.lists(WORD, max_size=4))
def test_merging_arguments_is_idempotent(line, arguments):
    once = command_line.merged(" ".join(line), arguments, [])
    assert command_line.merged(once, arguments, []) == once
    assert command_line.in_effect(once, arguments, [])


ACS = "pci=config_acs=1x11101@0000:12:00.0;xx111x1@0000:12:01.0"


def test_a_semicolon_is_quoted_for_debians_grub(server):
    debian(server)
    outcome = kernel_arguments.ensure(server, {"arguments": [ACS]})
    words = line_of(server).split()[4:]
    assert words == ["console=ttyS0", "pci=nocrs", "quiet", "iommu=off", "hugepages=7", f'"{ACS}"']
    assert outcome.facts["arguments"] == [ACS]
    assert not kernel_arguments.ensure(server, {"arguments": [ACS]}).changed
    # GRUB removes the quotes.
    server.put("/proc/cmdline", f"root=UUID=1 ro {ACS}\n")
    assert not kernel_arguments.ensure(server, {"arguments": [ACS]}).facts["reboot_required"]


def test_an_earlier_quoted_argument_is_replaced(server):
    debian(server)
    server.put(boot_loader.DEFAULTS, f"GRUB_CMDLINE_LINUX_DEFAULT='quiet \"{ACS}\"'\nGRUB_CMDLINE_LINUX=''\n")
    kernel_arguments.ensure(server, {"arguments": ["pci=realloc"]})
    assert line_of(server).split()[4:] == ["quiet", "pci=realloc"]


def test_a_semicolon_is_quoted_for_red_hats_grub(server):
    red_hat(server)
    kernel_arguments.ensure(server, {"arguments": [ACS]})
    assert f'crashkernel=1G iommu=off "{ACS}"' in (server.read(f"{boot_loader.ENTRIES}/1-5.14.conf") or "")
    read = subprocess.run(
        ["sh", "-euc", '. "$1"; printf %s "$GRUB_CMDLINE_LINUX"', "sh", server.path(boot_loader.DEFAULTS)],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert read.stdout == f'crashkernel=1G iommu=off "{ACS}"'
    assert not kernel_arguments.ensure(server, {"arguments": [ACS]}).changed
    kernel_arguments.ensure(server, {"remove": ["pci"]})
    assert "pci=" not in (server.read(boot_loader.DEFAULTS) or "")


def test_quoted_foreign_arguments_are_not_split():
    assert command_line.merged('dyndbg="file a.c +p" quiet', ["iommu=pt"], ["quiet"]) == 'dyndbg="file a.c +p" iommu=pt'


def test_dashes_and_underscores_in_names_are_equivalent():
    assert command_line.merged("intel-iommu=off x", ["intel_iommu=on"], []) == "x intel_iommu=on"


RHEL = "crashkernel=1G rd.lvm.lv=rhel/root amd_iommu=off"


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"remove": ["root", "rd.lvm.lv"]}, Mentions("rd.lvm.lv")),
        ({"arguments": ["rd.lvm.lv=rhel/swap"]}, Mentions("rd.lvm.lv=rhel/root")),
        ({"iommu": "passthrough"}, Mentions("amd_iommu=off", "IOMMU")),
        ({"arguments": ["a" * 2047]}, Mentions("2047")),
    ],
)
@pytest.mark.parametrize("arrange", [debian, red_hat])
def test_a_line_with_which_a_host_would_not_boot_as_requested_is_refused_before_anything_is_written(
    server, arrange, data, message
):
    if arrange is red_hat:
        red_hat(server, RHEL)
    else:
        server.put(boot_loader.DEFAULTS, f'GRUB_CMDLINE_LINUX="{RHEL}"\nGRUB_CMDLINE_LINUX_DEFAULT=quiet\n')
        server.run(["update-grub"])
    server.put("/proc/cmdline", "BOOT_IMAGE=/vmlinuz root=UUID=1 ro\n")
    before = server.state()
    with pytest.raises(RequestError) as error:
        kernel_arguments.ensure(server, data)
    assert str(error.value) == message
    assert server.state() == before
    assert kernel_arguments.ensure(server, {"iommu": "passthrough", "remove": ["amd-iommu"]}).changed


def test_a_pending_removal_is_named(server):
    debian(server)
    server.put("/proc/cmdline", "ro quiet\n")
    outcome = kernel_arguments.ensure(server, {"remove": ["quiet"]})
    assert outcome.pending == [Mentions("quiet")]
