# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Plans that are written as files: what is written and when, names that are no directories, and trials."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from machines import lab, plan, request
from messages import raises

from ansible_collections.sailloft.fleet.plugins.module_utils.topology.read.recordings import write_recording
from ansible_collections.sailloft.fleet.plugins.module_utils.vm import dry_run
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.common.errors import DomainError
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.preflight.findings import RefusedError
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.render.outputs import returned_of
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.trial import boot


def planned(*domains: dict[str, Any], check: bool = False, **more: Any) -> dict[str, Any]:
    values: dict[str, Any] = {
        "topology": lab().to_dict(),
        "recording": None,
        "domains": list(domains) or None,
        "gpu_module_ids": {},
        "gpu_partitions": {},
        "accelerators": {"1af4:1043": True},
        "host_name": "gpu17",
        "path": None,
        "boot_trial": False,
    }
    return dry_run.planned({**values, **more}, check)


def test_a_plan_without_a_path_writes_nothing():
    result = planned(request(ats=False))
    made = plan(ats=False)
    assert result["domains"] == [{"name": "gpu-vm", **returned_of(made, lab())}]
    assert (result["changed"], result["files"], result["diff"], result["notes"]) == (False, [], [], lab().notes)
    assert result["tree"][0] == "gpu17: 2 NUMA nodes, 3 root complexes, 2 GPUs, 9 NICs"
    assert result["findings"] == []


def test_files_are_written_once_and_only_the_xml_is_in_the_diff(tmp_path: Path):
    paths = [str(tmp_path / f"gpu-vm.{end}") for end in ("nccl.xml", "svg", "xml")]
    predicted = planned(request(), path=str(tmp_path), check=True)
    assert sorted(tmp_path.iterdir()) == []
    first = planned(request(), path=str(tmp_path))
    assert first == predicted
    assert (first["changed"], first["files"]) == (True, paths)
    xml = first["domains"][0]["xml"]
    assert first["diff"] == [
        {"before_header": path, "after_header": path, "before": "", "after": text}
        for path, text in ((paths[0], first["domains"][0]["nccl_topology"]), (paths[2], xml))
    ]
    assert Path(paths[2]).read_text() == xml
    again = planned(request(), path=str(tmp_path))
    assert (again["changed"], again["files"], again["diff"]) == (False, paths, [])
    Path(paths[2]).write_text("old")
    (change,) = planned(request(), path=str(tmp_path))["diff"]
    assert (change["before"], change["after"]) == ("old", xml)


def test_a_machine_without_a_gpu_has_no_file_for_nccl(tmp_path: Path):
    asked = request(gpus={}, nics={}, vcpus=1, memory_mib=1024)
    assert planned(asked, path=str(tmp_path))["files"] == [str(tmp_path / f"gpu-vm.{end}") for end in ("svg", "xml")]


def test_without_a_request_the_whole_host_is_planned():
    assert [row["name"] for row in planned()["domains"]] == ["whole-host"]


def test_a_recording_is_read_if_there_is_no_topology(tmp_path: Path):
    file = tmp_path / "recording.json"
    file.write_text(write_recording(lab()), encoding="utf-8")
    result = planned(request(), topology=None, recording=str(file))
    assert [row["name"] for row in result["domains"]] == ["gpu-vm"]


@pytest.mark.parametrize("name", ["a", "x" * 255, "..a", "a.b"])
def test_a_name_of_a_directory_is_accepted(name):
    assert planned(request(), host_name=name)["tree"][0].startswith(f"{name}: ")


@pytest.mark.parametrize("name", [".", "..", "a/b", "/"])
def test_a_name_of_no_directory_is_refused(name):
    with raises(DomainError, "host_name", repr(name)):
        planned(request(), host_name=name)


@pytest.mark.parametrize(
    "more", [{"host_name": ""}, {"host_name": "x" * 256}, {"path": "/a\0"}, {"path": "/" + "x" * 4096}]
)
def test_an_invalid_text_is_refused(more):
    with raises(DomainError, "host_name", "path"):
        planned(request(), **more)


def test_files_that_two_machines_write_are_refused():
    disks = [{"path": "/x"}]
    one = request(name="a", gpus={}, nics={}, vcpus=1, memory_mib=1024, disks=disks)
    with raises(RefusedError, "/x", "virtual machine a"):
        planned(one, {**one, "name": "b"})


def test_a_trial_is_told_for_each_machine_before_files_are_written(tmp_path: Path, monkeypatch):
    written: list[bool] = []

    def prove(of: Any) -> dict[str, Any]:
        written.append(any(tmp_path.iterdir()))
        return {"firmware": of.spec.firmware}

    monkeypatch.setattr(boot, "prove", prove)
    result = planned(request(), path=str(tmp_path), boot_trial=True)
    assert result["domains"][0]["boot_trial"] == {"firmware": "efi"}
    assert result["tree"][-1] == "booted gpu-vm with efi: enumerated as planned"
    assert written == [False]

    def fail(_of: Any) -> None:
        raise DomainError("not as planned")

    monkeypatch.setattr(boot, "prove", fail)
    with pytest.raises(DomainError):
        planned(request(), path=str(tmp_path / "other"), boot_trial=True)
    assert not (tmp_path / "other").exists()


def test_a_plan_for_another_architecture_is_refused():
    host = lab()
    host.cpu.architecture = "ppc64le"
    with raises(DomainError, "ppc64le", "x86_64"):
        planned(request(ats=False), topology=host.to_dict())
