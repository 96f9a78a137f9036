# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Reset methods that are known to fail: made-up methods of real device ids."""

from __future__ import annotations

import pytest
from messages import Mentions

from ansible_collections.sailloft.fleet.plugins.module_utils.host.devices import reset_methods

GPU = "0000:13:00.0"
BUS = Mentions("reset_method")
FLR = Mentions("rebooted")


@pytest.mark.parametrize(
    ("ids", "methods", "why"),
    [
        ("10DE:233F", "bus", None),
        ("10DE:2340", "bus", BUS),
        ("10DE:2340", "flr bus", BUS),
        ("10DE:2340", "flr", None),
        ("10DE:237F", "bus", BUS),
        ("10DE:2380", "bus", None),
        ("10DE:1EB7", "bus", None),
        ("10DE:1EB8", "bus", BUS),
        ("10DE:1EB9", "bus", None),
        ("1002:2340", "bus", None),
        ("10DE:2B85", "flr bus", FLR),
        ("10DE:2BB1", "flr", FLR),
        ("10DE:2BB4", "flr", FLR),
        ("10DE:2BB5", "flr", FLR),
        ("10DE:2B86", "flr", None),
        ("10DE:2BB6", "flr", None),
        ("10DE:2330", "", Mentions("reset")),
        ("10DE:2340", None, None),
    ],
)
def test_a_method_that_fails_on_a_device_is_named(server, ids, methods, why):
    server.put(f"{server.directory(GPU)}/uevent", f"PCI_CLASS=30200\nPCI_ID={ids}\nDRIVER=nvidia\n")
    if methods is not None:
        server.put(f"{server.directory(GPU)}/reset_method", f"{methods}\n")
    found = reset_methods.of_functions(server, [server.host().function(GPU)])
    assert found == ({} if why is None else {GPU: why})
