# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

import gpu_vm
import pytest
from messages import raises

from ansible_collections.sailloft.fleet.plugins.module_utils.topology import selectors


def chosen(*names):
    return [function.address for function in selectors.select(gpu_vm.host(), list(names), "here")]


def test_devices_are_selected_by_kind_vendor_and_address():
    gpus = ["0000:13:00.0", "0000:83:00.0"]
    assert chosen("gpu") == gpus
    assert chosen("10de:2330") == gpus
    assert chosen("10de:*", "14:00.0", "GPU") == [gpus[0], "0000:14:00.0", gpus[1]]
    assert chosen("0000:83:00.0") == gpus[1:]


def test_kinds_and_vendors_may_match_nothing():
    assert chosen("nvswitch", "1af4:*") == []


@pytest.mark.parametrize("name", ["15b3:101b", "0000:16:00.0"])
def test_a_model_or_address_that_matches_no_device_is_refused(name):
    with raises(selectors.SelectorError, "here", name):
        chosen(name)


@pytest.mark.parametrize("name", ["gpus", "", "15b3", "3b:00", "0000:3b:00.9", "*:*"])
def test_an_invalid_selector_is_refused(name):
    with raises(selectors.SelectorError, "here", *selectors.KINDS):
        chosen(name)


@pytest.mark.parametrize(
    ("text", "address", "is_address", "is_vendor"),
    [
        ("3b:00.0", "0000:3b:00.0", True, False),
        ("0000:3b:00.7", "0000:3b:00.7", True, False),
        (" 0000:3B:00.0 ", " 0000:3B:00.0 ", True, False),
        ("10000:3b:00.0", "10000:3b:00.0", True, False),
        ("15B3:*", "0000:15B3:*", False, True),
        ("15b3:101d", "0000:15b3:101d", False, True),
        ("gpu", "0000:gpu", False, False),
    ],
)
def test_the_form_of_a_selector_tells_addresses_and_vendors_apart(text, address, is_address, is_vendor):
    assert selectors.full_address(text) == address
    assert (selectors.is_address(text), selectors.is_vendor(text)) == (is_address, is_vendor)


def test_without_a_host_only_the_form_is_checked():
    assert selectors.select(None, ["gpu", "15b3:101b", "0000:ff:00.0"], "here") == []
    with raises(selectors.SelectorError, "here", "'gpus'", *selectors.KINDS):
        selectors.select(None, ["gpu", "GPUs"], "here")


def test_every_kind_of_a_host_can_be_selected():
    assert selectors.KINDS == ("gpu", "nic", "nvme", "nvswitch", "nvswitch_management", "bridge")
    assert len(chosen("bridge")) == 8
    assert chosen("15b3:101d") == ["0000:14:00.0", "0000:84:00.0"]
    assert chosen("15b3:*", "nic") == ["0000:14:00.1", "0000:14:00.0", "0000:84:00.1", "0000:84:00.0"]


def test_a_device_that_is_not_there_is_named_as_it_was_written():
    with raises(selectors.SelectorError, "here", "FF:00.0"):
        chosen("FF:00.0")
