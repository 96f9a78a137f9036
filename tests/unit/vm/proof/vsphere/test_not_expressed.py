# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

import gpu_vm

from ansible_collections.sailloft.fleet.plugins.module_utils.proof.claims import Claim
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.proof.vsphere.evidence import VsphereEvidence
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.proof.vsphere.not_expressed import not_expressed
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.vsphere.plan import VspherePlan


def test_a_claim_that_vsphere_cannot_express_is_not_applicable_with_reason_and_cost():
    row = not_expressed("hypervisor", "ATS is enabled", "on", "the API does not set it", "half the speed")
    expected = Claim(
        layer="hypervisor",
        claim="ATS is enabled",
        wanted="on",
        seen=None,
        holds=None,
        source="vSphere Web Services API",
        reason="the API does not set it; cost: half the speed",
    )
    assert row(VsphereEvidence("esx01", gpu_vm.host(), VspherePlan("vm1", "esx01", [], [], {}, []), None, None)) == [
        expected
    ]
