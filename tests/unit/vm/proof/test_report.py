# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

import gpu_vm
from messages import raises

from ansible_collections.sailloft.fleet.plugins.module_utils.proof.claims import ProofError, compare
from ansible_collections.sailloft.fleet.plugins.module_utils.proof.page import page
from ansible_collections.sailloft.fleet.plugins.module_utils.proof.proof import Proof
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.draw.picture import picture, side_by_side
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.proof.report import report

DEVICES = {"0000:13:00.0": "0000:23:00.0"}
CLAIMS = [compare("bios", "the IOMMU is on", "on", "on", "/sys"), compare("guest_os", "it runs", 1, 0, "/proc")]


def test_the_proof_has_the_names_and_the_claims():
    proof, _page = report("vm1", "gpu01", CLAIMS, gpu_vm.host(), gpu_vm.guest(), DEVICES)
    assert proof == Proof("vm1", "GPU virtual machine vm1 on gpu01", "gpu01", CLAIMS)


def test_the_page_draws_host_and_guest_side_by_side():
    host, guest = gpu_vm.host(), gpu_vm.guest()
    proof, written = report("vm1", "gpu01", CLAIMS, host, guest, DEVICES)
    assert written == page(proof, side_by_side(host, guest, DEVICES))
    assert written.count("<svg") == 1
    # Both labels of the only pair.
    assert [written.count(f">{label}</text>") for label in ("guest 23:00.0", "host 13:00.0")] == [1, 1]


def test_the_page_draws_only_the_host_if_the_guest_was_not_read():
    host = gpu_vm.host()
    proof, written = report("vm1", "gpu01", CLAIMS, host, None, DEVICES)
    assert written == page(proof, picture(host, "Host gpu01", DEVICES))
    assert ">Host gpu01</text>" in written
    assert [written.count(f">{label}</text>") for label in ("guest 23:00.0", "host 13:00.0")] == [1, 0]


def test_a_page_without_pairs_has_no_labels():
    _proof, written = report("vm1", "gpu01", CLAIMS, gpu_vm.host(), None, {})
    assert "passed through, with its address on the other side" not in written


def test_a_report_without_claims_proves_nothing():
    proof, written = report("vm1", "gpu01", [], gpu_vm.host(), None, {})
    assert (proof.holds, proof.claims) == (False, [])
    assert "Nothing was proved" in written


def test_a_name_that_is_no_file_name_is_refused():
    with raises(ProofError, "'../vm1'", "file name"):
        report("../vm1", "gpu01", CLAIMS, gpu_vm.host(), None, {})
