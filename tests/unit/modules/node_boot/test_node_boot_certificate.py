# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""node_boot_certificate says what it changed, and what a BMC does not show yet is a change that is named."""

from __future__ import annotations

import pytest

from ansible_collections.sailloft.fleet.plugins.module_utils.image.node import bmc_certificates
from ansible_collections.sailloft.fleet.plugins.module_utils.image.node.bmc_certificates import Enrolment, FirmwareKeys
from ansible_collections.sailloft.fleet.plugins.modules import node_boot_certificate

PARAMS = {
    "node": "bm01",
    "bmc": {"address": "10.9.9.1", "username": "root", "password": "x"},
    "certificate": "-----BEGIN CERTIFICATE-----",
}


@pytest.mark.parametrize(
    ("held_before", "held_after", "pending", "changed"),
    [(False, True, (), True), (True, True, (), False), (False, False, ("db",), True)],
)
def test_the_result_of_an_enrolment(call, monkeypatch, held_before, held_after, pending, changed):
    before, after = (FirmwareKeys({"db": held}, False) for held in (held_before, held_after))
    monkeypatch.setattr(bmc_certificates, "enrol", lambda *_arguments: Enrolment(before, after, pending))
    result = call(node_boot_certificate, PARAMS)
    assert (result["changed"], result["databases"], result["pending"]) == (changed, {"db": held_after}, list(pending))


def test_a_bmc_without_redfish_is_named(call):
    result = call(node_boot_certificate, {**PARAMS, "bmc": {**PARAMS["bmc"], "type": "ipmi"}})
    assert result["failed"]
    assert "bm01" in result["msg"]
    assert "x" not in result["msg"].split()
