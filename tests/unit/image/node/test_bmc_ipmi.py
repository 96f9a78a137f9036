# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The next boot of a BMC with IPMI is read from its boot flags (IPMI 2.0, table 28-14)."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from ansible_collections.sailloft.fleet.plugins.module_utils.image.node.bmc import BmcError
from ansible_collections.sailloft.fleet.plugins.module_utils.image.node.bmc_ipmi import accepted, next_boot


def session(answer):
    """Return a session of pyghmi whose BMC gives this answer to each raw command."""
    return SimpleNamespace(raw_command=lambda netfn, command, data: answer)


@pytest.mark.parametrize(
    ("data", "shown"),
    [
        (b"\x01\x05\xa0\x04\x00\x00\x00", "network"),  # valid, UEFI, PXE
        (b"\x01\x05\x00\x04\x00\x00\x00", "network"),  # as OpenIPMI's simulator shows it
        (b"\x01\x05\x00\x00\x00\x00\x00", "no override"),
        (b"\x01\x05\x80\x08\x00\x00\x00", "the boot device 2"),
        (b"\x01", "network"),  # it cannot show them
    ],
)
def test_the_boot_device_is_read(data, shown):
    assert next_boot(session({"data": data})) == shown


def test_a_bmc_without_boot_flags_is_judged_by_the_boot():
    assert next_boot(session({"error": "Invalid command", "data": b""})) == "network"


def test_an_error_that_pyghmi_returns_is_raised():
    accepted({"bootdev": "network"})
    with pytest.raises(BmcError, match="Insufficient privilege"):
        accepted({"error": "Insufficient privilege level"})
