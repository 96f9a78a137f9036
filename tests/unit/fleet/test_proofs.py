# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Files of proofs become data of hosts and fabrics; a file that is none, or is damaged, is never good."""

from __future__ import annotations

import json

import pytest

from ansible_collections.sailloft.fleet.plugins.module_utils.fleet.datum import (
    ACCEPTANCE,
    DIFFERS,
    FABRIC,
    FAULT,
    OK,
    PROOF,
    UNKNOWN,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.fleet.proofs import read_proofs
from ansible_collections.sailloft.fleet.plugins.module_utils.proof.claims import Claim, compare
from ansible_collections.sailloft.fleet.plugins.module_utils.proof.proof import Proof

HOSTS = ("gpu-1", "gpu-2", "leaf1")
AT_S = 1.8e9


def texts(name, *claims):
    return {name: (Proof(name, name, name, list(claims)).to_json(), AT_S)}


def claim(text, seen="a", layer="switch"):
    return compare(layer, text, "a", seen, "source")


@pytest.mark.parametrize(
    ("name", "seen", "kind", "state"),
    [
        ("gpu-1", "a", PROOF, OK),
        ("gpu-1", "b", PROOF, DIFFERS),
        ("gpu-1", None, PROOF, UNKNOWN),
        ("acceptance-gpu-1", "a", ACCEPTANCE, OK),
        ("acceptance-gpu-1", "b", ACCEPTANCE, FAULT),
    ],
)
def test_the_proof_of_a_host_is_its_own(name, seen, kind, state):
    proved = read_proofs(texts(name, claim("GPU 0", seen)), HOSTS)
    [[each]] = list(proved.hosts.values())
    assert (list(proved.hosts), proved.fabrics) == (["gpu-1"], {})
    assert (each.kind, each.state, each.at_s, each.page) == (kind, state, AT_S, f"{name}.html")


def test_a_proof_without_claims_is_not_known():
    [[each]] = list(read_proofs(texts("gpu-1"), HOSTS).hosts.values())
    assert each.state == UNKNOWN


def test_the_claims_of_a_fabric_belong_to_the_devices_that_they_begin_with():
    unread = Claim("unread", "gpu-2: it was read", "its settings", None, False, "the device", "gpu-2: no route")
    proved = read_proofs(
        texts("fabric_drift", claim("leaf1 swp1 - gpu-1 mlx5_0: speed", "b"), claim("gpu-1: it is"), unread), HOSTS
    )
    assert proved.fabrics["fabric_drift"].state == DIFFERS
    states = {host: [(each.kind, each.state) for each in data] for host, data in proved.hosts.items()}
    assert states == {"leaf1": [(FABRIC, DIFFERS)], "gpu-1": [(FABRIC, DIFFERS)], "gpu-2": [(FABRIC, UNKNOWN)]}
    assert "no route" in proved.hosts["gpu-2"][0].text
    [(ends, text)] = list(proved.links.items())
    assert (ends, "swp1" in text) == (("gpu-1", "leaf1"), True)


@pytest.mark.parametrize("text", ["", "{", "[" * 100000, "[]", '{"format": "sailloft-proof/1"}', '{"format": 7}'])
def test_a_damaged_file_is_not_known_and_another_one_is_passed_over(text):
    proved = read_proofs({"gpu-1": (text, AT_S), "elsewhere": (text, AT_S)}, HOSTS)
    assert {each.state for data in proved.hosts.values() for each in data} <= {UNKNOWN}
    assert proved.fabrics == {}


def test_a_reading_that_is_no_proof_is_passed_over():
    assert read_proofs({"gpu-1": (json.dumps({"format": "sailloft-counters/1"}), AT_S)}, HOSTS).hosts == {}
