# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The end of `make lab` and of `make lab-site`: it fits a screen."""

from __future__ import annotations

import subprocess
from pathlib import Path

from ansible_collections.sailloft.fleet.plugins.module_utils.proof.claims import LAYERS, compare, not_applicable
from ansible_collections.sailloft.fleet.plugins.module_utils.proof.proof import Proof
from ansible_collections.sailloft.fleet.plugins.module_utils.proof.written import written

PROGRAM = Path(__file__).parents[3] / "roles/lab/files/what-next"
APART = [not_applicable("bios", f"b{number}", 1, "s", f"reason {number} " * 99) for number in range(32)]


def prove(folder, name, title, failures=0):
    claims = [compare(layer, "a setting", 1, 1, "s") for layer in LAYERS]
    claims += [compare("guest_xml", f"setting {number} {'x' * 90}", 1, 2, "s") for number in range(failures)]
    written(Proof(name, title, "hv01", claims + APART), "<html>", str(folder / "proofs"), False)


def end_of(folder, target):
    done = subprocess.run([PROGRAM, target], cwd=folder, capture_output=True, text=True, check=True)
    lines = done.stdout.splitlines()
    assert len(lines) <= 20
    assert max(len(line) for line in lines) <= 80
    return lines


def test_make_lab_ends_with_table_page_and_next_steps(tmp_path):
    prove(tmp_path, "gpu01", "GPU virtual machine gpu01 on hv01")
    lines = end_of(tmp_path, "lab")
    assert lines[:11] == [
        *(tmp_path / "proofs/gpu01.txt").read_text().splitlines(),
        "The page, with the picture of host and guest: proofs/gpu01.html",
    ]
    assert sum(line.startswith("n/a ") for line in lines) == 1
    assert any("make lab-site" in line for line in lines)


def test_make_lab_site_ends_with_each_proof_and_its_first_failure(tmp_path):
    names = {
        "bm01": "Node bm01",
        "bm02": "Node bm02",
        "fabric": "One RoCE policy",
        "gpu01": "GPU virtual machine gpu01",
    }
    for name, title in names.items():
        prove(tmp_path, name, title, failures=9 if name == "bm02" else 0)
    lines = end_of(tmp_path, "site")
    for name, title in names.items():
        at = lines.index(title)
        assert lines[at + 1].split()[-1] == f"proofs/{name}.html"
        assert ("9 fail" in lines[at + 1]) is (name == "bm02")
    assert sum(line.startswith("FAILS") for line in lines) == 1
