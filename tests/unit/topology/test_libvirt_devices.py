# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

import pytest

from ansible_collections.sailloft.fleet.plugins.module_utils.topology.libvirt_devices import Lent, lent

ADDRESS = "<address type='pci' domain='0x0000' bus='0x04' slot='0x00' function='0x1'/>"


@pytest.mark.parametrize(
    ("forward", "expected"),
    [
        ("", Lent()),
        ("<forward mode='nat' dev='eno1'/>", Lent()),
        ("<forward mode='hostdev'><pf dev='eno1'/></forward>", Lent(owners=["eno1"])),
        (f"<forward mode='hostdev'>{ADDRESS}</forward>", Lent(devices=["0000:04:00.1"])),
        ("<forward mode='passthrough' dev='eno1'><interface dev='eno1'/></forward>", Lent(interfaces=["eno1"])),
    ],
)
def test_what_a_network_lends_is_in_its_forward_element(forward, expected):
    assert lent(f"<network><name>n</name>{forward}</network>") == expected
