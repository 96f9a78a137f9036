# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""PCI addresses have one form, whichever tool wrote them."""

from __future__ import annotations

import pytest

from ansible_collections.sailloft.fleet.plugins.module_utils.health.model import HYPERVISOR, Expected, ExpectedDevice
from ansible_collections.sailloft.fleet.plugins.module_utils.health.readers.address import gpus, pci_address


@pytest.mark.parametrize("text", ["00000000:4B:00.0", "0000:4b:00", "0000:4B:00.0", " 0000:4b:00.0\n"])
def test_all_forms_of_an_address_are_one(text):
    assert pci_address(text) == "0000:4b:00.0"


def test_a_domain_is_kept():
    assert pci_address("00010018:01:00") == "10018:01:00.0"
    assert pci_address("0018:01:00.1") == "0018:01:00.1"


@pytest.mark.parametrize("text", ["", "4b:00.0", "0000:4b:00.9", "GPU 3", "0000:4b:00.0 x"])
def test_what_is_no_address_is_none(text):
    assert pci_address(text) is None


DEVICES = tuple(
    ExpectedDevice(f"0000:{bus}:00.0", "gpu", f"GPU {bus}", device_id)
    for bus, device_id in (("1b", "10de:2330"), ("1c", "1002:74a1"), ("1d", "8086:0bda"), ("1e", ""))
)


def test_a_reader_asks_for_the_gpus_of_its_vendor_and_none_on_a_hypervisor():
    assert [each.address[5:7] for each in gpus(Expected("n1", DEVICES))] == ["1b", "1e"]
    assert [each.address[5:7] for each in gpus(Expected("n1", DEVICES), is_amd=True)] == ["1c"]
    assert gpus(Expected("n1", DEVICES, machine=HYPERVISOR)) == []
