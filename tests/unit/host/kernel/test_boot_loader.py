# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The files of boot loaders: how they are recognized, and their exact texts."""

from __future__ import annotations

import pytest
from messages import raises

from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.errors import HostError
from ansible_collections.sailloft.fleet.plugins.module_utils.host.kernel import boot_loader


@pytest.mark.parametrize(
    ("paths", "found"),
    [
        (["/boot/loader/entries/1.conf", "/boot/grub2/grub.cfg"], "bls"),
        (["/boot/loader/entries/1.conf", "/boot/grub2/grub.cfg", "/etc/default/grub"], "bls"),
        (["/boot/loader/entries/1.conf", "/etc/default/grub"], "grub"),
        (["/boot/loader/entries/README", "/boot/grub2/grub.cfg", "/etc/default/grub"], "grub"),
        (["/usr/sbin/update-grub"], "grub"),
        (["/boot/loader/entries/1.conf"], None),
    ],
)
def test_a_boot_loader_is_recognized_by_its_files(server, paths, found):
    for path in paths:
        server.put(path, "")
    loader = boot_loader.find(server, needed=False)
    assert (loader and loader.name) == found
    if found is None:
        with raises(
            HostError, "kernel_arguments", "/etc/default/grub", "update-grub", "/boot/loader/entries/*.conf", "GRUB"
        ):
            boot_loader.find(server)


SECTION = "### BEGIN /etc/grub.d/10_linux ###\n{}\n### END /etc/grub.d/10_linux ###\n"


@pytest.mark.parametrize(
    ("lines", "stale"),
    [
        ("", True),
        ("linux /vmlinuz", True),  # without any argument it is not read as an entry
        ("linux /vmlinuz ro a=1", False),
        ("\tlinux\t/vmlinuz a=1", False),
        ("linux16 /vmlinuz a=1", False),
        ("linuxefi /vmlinuz a=1", False),
        ("linux /vmlinuz ro", True),
        ("linux /vmlinuz ro a=1\nlinux /vmlinuz ro", True),
        ("linux /vmlinuz ro a=1\nlinux /vmlinuz ro single", False),
        ("linux /vmlinuz ro a=1\nlinux /vmlinuz ro recovery nomodeset", False),
        ("linux /vmlinuz ro a=1\ninitrd /initrd ro", False),
    ],
)
def test_a_generated_configuration_is_stale_if_an_entry_lacks_the_arguments(server, lines, stale):
    server.put(boot_loader.GENERATED, SECTION.format(lines) + "linux /other ro\n")
    assert boot_loader.Debian.stale(server, ["a=1"], []) is stale
    assert boot_loader.BootLoaderSpecification.stale(server, ["a=1"], []) is False


def test_an_environment_block_can_be_filled_to_the_last_byte(server):
    server.put("/boot/loader/entries/1.conf", "options ro\n")
    server.put("/boot/loader/entries/notes", "options ro\n")
    body = "# GRUB Environment Block\nkernelopts=ro\n"
    server.put(boot_loader.ENVIRONMENT, body + "#" * (1024 - len(body)))
    argument = "x=" + "y" * (1024 - len(body) - len(" x="))
    files = boot_loader.BootLoaderSpecification.files(server, [argument], [])
    assert files == {
        boot_loader.ENVIRONMENT: f"# GRUB Environment Block\nkernelopts=ro {argument}\n",
        "/boot/loader/entries/1.conf": f"options ro {argument}\n",
    }
    with raises(HostError, "/boot/grub2/grubenv", "1024", "1025"):
        boot_loader.BootLoaderSpecification.files(server, [argument + "y"], [])


def test_an_environment_block_without_kernel_options_is_left_alone(server):
    server.put(boot_loader.ENVIRONMENT, "# GRUB Environment Block\nsaved_entry=1\n")
    assert boot_loader.BootLoaderSpecification.files(server, ["x"], []) == {}


def test_the_drop_in_removes_owned_arguments_in_every_form():
    (text,) = boot_loader.Debian.files(None, ["a-b=1"], ["quiet"]).values()
    assert r"                a[_-]b|a[_-]b=*|\"a[_-]b=*|quiet|quiet=*|\"quiet=*) ;;" in text.splitlines()
    assert text.splitlines()[-1] == (
        'GRUB_CMDLINE_LINUX_DEFAULT="$GRUB_CMDLINE_LINUX_DEFAULT${GRUB_CMDLINE_LINUX_DEFAULT:+ }"a-b=1'
    )
    assert "                '') ;;" in boot_loader.Debian.files(None, [], [])[boot_loader.DROP_IN].splitlines()
