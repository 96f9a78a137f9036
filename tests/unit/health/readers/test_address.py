# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""PCI addresses have one form, whichever tool wrote them."""

from __future__ import annotations

import pytest

from ansible_collections.sailloft.fleet.plugins.module_utils.health.readers.address import pci_address


@pytest.mark.parametrize("text", ["00000000:4B:00.0", "0000:4b:00", "0000:4B:00.0", " 0000:4b:00.0\n"])
def test_all_forms_of_an_address_are_one(text):
    assert pci_address(text) == "0000:4b:00.0"


def test_a_domain_is_kept():
    assert pci_address("00010018:01:00") == "10018:01:00.0"
    assert pci_address("0018:01:00.1") == "0018:01:00.1"


@pytest.mark.parametrize("text", ["", "4b:00.0", "0000:4b:00.9", "GPU 3", "0000:4b:00.0 x"])
def test_what_is_no_address_is_none(text):
    assert pci_address(text) is None
