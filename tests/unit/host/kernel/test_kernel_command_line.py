# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Kernel command lines: names of arguments, what is owned, and what is refused."""

from __future__ import annotations

import pytest

from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.errors import HostError
from ansible_collections.sailloft.fleet.plugins.module_utils.host.kernel import kernel_command_line as command_line

ACS = "pci=config_acs=1x11101@0000:12:00.0"


@pytest.mark.parametrize(
    ("argument", "key"),
    [
        ("quiet", "quiet"),
        ("pci=realloc", "pci"),
        ("a-b=c-d=e", "a_b"),
        ('"pci=realloc', "pci"),
        (ACS, "pci=config_acs"),
        (f'"{ACS};x"', "pci=config_acs"),
        ("pci=config_acs", "pci"),
        ("pci=config_acsx=1", "pci"),
    ],
)
def test_the_key_of_an_argument_is_its_name(argument, key):
    assert command_line.key(argument) == key


PAGES = {"hugepagesz", "hugepages", "default_hugepagesz"}


@pytest.mark.parametrize(
    ("arguments", "remove", "keys"),
    [
        ([], [], set()),
        (["iommu=pt"], ["quiet"], {"iommu", "quiet"}),
        (["hugepagesz=2M"], [], PAGES),
        ([], ["hugepages", "a"], {*PAGES, "a"}),
        (["pci=realloc"], [], {"pci"}),
        ([ACS], [], {"pci=config_acs"}),
        ([], ["pci"], {"pci", "pci=config_acs"}),
        ([], ["pc"], {"pc"}),
    ],
)
def test_keys_are_owned_with_their_families_and_parts(arguments, remove, keys):
    assert command_line.owned(arguments, remove) == keys


@pytest.mark.parametrize(
    ("line", "arguments", "in_effect"),
    [
        ("ro iommu=pt", ["iommu=pt"], True),
        ("ro iommu=pt iommu=pt", ["iommu=pt"], False),
        ("ro", ["iommu=pt"], False),
        ("a=1 b=2", ["b=2", "a=1"], False),
        ("a=1 x b=2", ["a=1", "b=2"], True),
    ],
)
def test_arguments_are_in_effect_only_exactly_and_in_order(line, arguments, in_effect):
    assert command_line.in_effect(line, arguments, []) is in_effect


@pytest.mark.parametrize(
    ("arguments", "remove", "message"),
    [
        (["a b"], [], "'a b' is not one kernel argument; write name or name=value, without spaces and quotes"),
        (["a="], ["a b"], "'a b' is not the name of an argument to remove; give the name without a value"),
        ([], ["a=b"], "'a=b' is not the name of an argument to remove; give the name without a value"),
        (["a-b=1", "c"], ["c", "a_b"], "a_b, c cannot be both set and removed; name them once"),
        (["hugepages=1"], [], "hugepages=1 does not say the size of its pages; put hugepagesz= before it"),
        (
            ["hugepages=1", "hugepagesz=2M"],
            [],
            "hugepages=1 does not say the size of its pages; put hugepagesz= before it",
        ),
    ],
)
def test_a_wrong_argument_is_refused(arguments, remove, message):
    with pytest.raises(HostError) as error:
        command_line.checked(arguments, remove)
    assert str(error.value) == f"kernel_arguments: {message}"


@pytest.mark.parametrize(
    "arguments",
    [["hugepagesz=2M", "x", "hugepages=1", "hugepages=2"], ["default_hugepagesz=1G", "hugepages=1"], ["a=", "b=c,d:e"]],
)
def test_right_arguments_are_returned_unchanged(arguments):
    assert command_line.checked(arguments, ["c"]) == (arguments, ["c"])
