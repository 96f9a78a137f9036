# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

import json

import scale_outputs as printed

from ansible_collections.sailloft.fleet.plugins.modules import storage_scale_proof

READINGS = {"readings": {"n1": printed.reading("n1")}}


def test_the_proof_holds_and_fails_with_a_node_that_was_not_read(call, tmp_path):
    options = {"path": str(tmp_path), **printed.REQUEST, **READINGS}
    assert call(storage_scale_proof, options)["holds"]
    silent = {**printed.reading("n2"), "outputs": {}, "mounts": {}}
    result = call(storage_scale_proof, {**options, "readings": {**READINGS["readings"], "n2": silent}})
    assert result["failed"]
    assert not result["holds"]
    claims = json.loads((tmp_path / "storage-scale.json").read_text())["claims"]
    assert {claim["holds"] for claim in claims if "n2" in claim["claim"]} == {False}
