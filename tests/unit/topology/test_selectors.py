# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

import gpu_vm
import pytest

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
    with pytest.raises(selectors.SelectorError, match=f"here: no device {name} on this host; see the functions"):
        chosen(name)


@pytest.mark.parametrize("name", ["gpus", "", "15b3", "3b:00", "0000:3b:00.9", "*:*"])
def test_an_invalid_selector_is_refused(name):
    with pytest.raises(selectors.SelectorError, match=rf"is not a kind, .*; use one of {', '.join(selectors.KINDS)},"):
        chosen(name)
