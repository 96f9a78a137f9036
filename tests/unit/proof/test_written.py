# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The files of a proof, and the result of the module that writes them."""

from __future__ import annotations

import os
import stat

from messages import Mentions

from ansible_collections.sailloft.fleet.plugins.module_utils.proof.claims import compare
from ansible_collections.sailloft.fleet.plugins.module_utils.proof.files import write
from ansible_collections.sailloft.fleet.plugins.module_utils.proof.page import page
from ansible_collections.sailloft.fleet.plugins.module_utils.proof.proof import Proof
from ansible_collections.sailloft.fleet.plugins.module_utils.proof.table import table
from ansible_collections.sailloft.fleet.plugins.module_utils.proof.written import written

HELD = compare("guest_xml", "the GPU is on guest NUMA node 1", 1, 1, "guest numa_node")
FAILED = compare("hypervisor", "8 VFs", 8, 7, "hv01 sriov_numvfs")


def test_a_proof_that_holds_is_not_a_failure(tmp_path):
    proof = Proof("gpu01", "GPU VM gpu01", "hv01", [HELD])
    result = written(proof, page(proof), str(tmp_path), False)
    assert (result["holds"], result["changed"]) == (True, True)
    assert "failed" not in result
    assert "msg" not in result
    assert not written(proof, page(proof), str(tmp_path), False)["changed"]


def test_the_time_of_a_proof_is_that_of_the_last_one_with_the_same_claims(tmp_path):
    proof = Proof("gpu01", "GPU VM gpu01", "hv01", [HELD])
    written(proof, page(proof), str(tmp_path), False)
    file = tmp_path / "gpu01.json"
    os.utime(file, (1, 1))
    assert not written(proof, page(proof), str(tmp_path), True)["changed"]
    assert file.stat().st_mtime == 1
    assert not written(proof, page(proof), str(tmp_path), False)["changed"]
    assert file.stat().st_mtime > 1


def test_a_proof_that_does_not_hold_fails_with_its_first_failure_and_its_page(tmp_path):
    proof = Proof("gpu01", "GPU VM gpu01", "hv01", [HELD, FAILED])
    result = written(proof, page(proof), str(tmp_path), True)
    assert result["failed"] is True
    assert result["msg"] == Mentions("1 of 2", "Hypervisor: 8 VFs", "8", "7")
    assert result["msg"].endswith(result["files"][1])
    assert len(result["msg"].splitlines()) == 1
    assert os.listdir(tmp_path) == []


def test_the_page_has_a_section_for_each_layer():
    text = page(Proof("gpu01", "GPU VM gpu01", "hv01", [HELD, FAILED]))
    assert "the GPU is on guest NUMA node 1" in text
    assert text.index("Hypervisor") < text.index("Guest XML")


def test_only_private_files_are_restricted_to_their_owner(tmp_path):
    before = os.umask(0o022)
    try:
        write(str(tmp_path / "open/a"), "x")
        write(str(tmp_path / "own/a"), "x", private=True)
    finally:
        os.umask(before)
    modes = {name: stat.S_IMODE(os.stat(tmp_path / name).st_mode) for name in ("open", "open/a", "own", "own/a")}
    assert modes == {"open": 0o755, "open/a": 0o644, "own": 0o700, "own/a": 0o600}


def test_a_file_is_on_the_disk_before_its_name_is(tmp_path, disk_calls):
    write(str(tmp_path / "gpu01.txt"), "held")
    temporary = str(tmp_path / ".gpu01.txt.new")
    assert disk_calls == [
        ("fsync", temporary, b"held"),
        ("replace", temporary, str(tmp_path / "gpu01.txt")),
        ("fsync", str(tmp_path), None),
    ]


def test_the_result_has_the_difference_of_the_json_file(tmp_path):
    proof = Proof("gpu01", "GPU VM gpu01", "hv01", [HELD])
    path = str(tmp_path / "gpu01.json")
    result = written(proof, "<html>", str(tmp_path), False)
    assert result == {
        "changed": True,
        "diff": [{"before_header": path, "after_header": path, "before": "", "after": proof.to_json()}],
        "holds": True,
        "counts": {"held": 1, "failed": 0, "not_applicable": 0},
        "table": table(proof),
        "files": [str(tmp_path / f"gpu01.{kind}") for kind in ("json", "html", "txt")],
    }
    assert [(tmp_path / f"gpu01.{kind}").read_text() for kind in ("json", "html", "txt")] == [
        proof.to_json(),
        "<html>",
        "\n".join(table(proof)) + "\n",
    ]
    other = Proof("gpu01", "GPU VM gpu01", "hv01", [HELD, HELD])
    assert written(other, "<html>", str(tmp_path), True)["diff"] == [
        {"before_header": path, "after_header": path, "before": proof.to_json(), "after": other.to_json()}
    ]
    assert (tmp_path / "gpu01.json").read_text() == proof.to_json()
    again = written(proof, "<html> of another release", str(tmp_path), False)
    assert (again["changed"], again["diff"]) == (True, [])
