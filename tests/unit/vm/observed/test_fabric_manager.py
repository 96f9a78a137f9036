# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

import json

import pytest

from ansible_collections.sailloft.fleet.plugins.module_utils.vm.observed import fabric_manager
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.observed.fabric_manager import (
    FabricManager,
    PartitionState,
)


def gpu(physical_id):
    """Return a GPU as fmpm prints it where the driver does not have it."""
    return {
        "physicalId": physical_id, "uuid": "", "pciBusId": "", "numNvLinksAvailable": 18, "maxNumNvLinks": 18,
        "nvlinkLineRateMBps": 50000,
    }  # fmt: skip


LISTED = {
    "version": 16909068,
    "numPartitions": 2,
    "maxNumPartitions": 15,
    "partitionInfo": [
        {"partitionId": 4, "isActive": 1, "numGpus": 2, "gpuInfo": [gpu(2), gpu(1)]},
        {"partitionId": 8, "isActive": 0, "numGpus": 1, "gpuInfo": [gpu(1)]},
    ],
}
VERSION = "Fabric Manager version is : 580.95.05\n"


def answering(listed=None, version=VERSION):
    def run(argv):
        answer = version if argv[0] == "nv-fabricmanager" else json.dumps(LISTED) if listed is None else listed
        if isinstance(answer, Exception):
            raise answer
        return answer

    return run


def test_version_and_partitions_are_read():
    found = fabric_manager.read(answering())
    assert found == FabricManager("580.95.05", {4: PartitionState(True, (1, 2)), 8: PartitionState(False, (1,))})
    assert FabricManager.of_dict(json.loads(json.dumps(found.to_dict()))) == found


@pytest.mark.parametrize(
    "listed", [FileNotFoundError("fmpm"), ValueError("no answer within 30 s"), "", "[]", '{"partitionInfo": [{}]}']
)
def test_what_cannot_be_read_is_not_known_and_has_its_cause(listed):
    found = fabric_manager.read(answering(listed))
    assert (found.version, found.partitions) == ("580.95.05", None)
    assert found.cause.startswith("fmpm -l: ")
    assert FabricManager.of_dict(found.to_dict()) == found
    assert fabric_manager.read(answering(version=OSError("x"))).version is None


def test_the_commands_that_this_machine_lacks_are_named():
    found = fabric_manager.read()
    assert (found.version, found.partitions) == (None, None)
    assert "fmpm" in found.cause


def test_a_command_that_fails_or_hangs_is_not_an_answer(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setattr(fabric_manager, "TIMEOUT_S", 1)
    for name, text in (("nv-fabricmanager", f"echo '{VERSION.strip()}'"), ("fmpm", "echo not running >&2; exit 3")):
        (tmp_path / name).write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / name).chmod(0o755)
    assert fabric_manager.read() == FabricManager("580.95.05", None, "fmpm -l: not running")
    (tmp_path / "fmpm").write_text("#!/bin/sh\nexec sleep 20\n")
    assert "no answer within 1 s" in fabric_manager.read().cause
