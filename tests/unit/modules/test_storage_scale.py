# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The modules for Storage Scale, with stand-ins of its commands."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import scale_outputs as printed

from ansible_collections.sailloft.fleet.plugins.module_utils.storage_scale import readings
from ansible_collections.sailloft.fleet.plugins.modules import (
    storage_scale_info,
    storage_scale_plan,
    storage_scale_proof,
)

READINGS = {"readings": {"n1": printed.reading("n1")}}


def test_the_plan_is_written_once_and_not_in_check_mode(call, tmp_path):
    native = {"license": "data-access", "node_selector": {"scale": "client"}}
    options = {"path": str(tmp_path / "plans"), **printed.REQUEST, **READINGS, "container_native": native}
    predicted = call(storage_scale_plan, options, True)
    assert predicted["changed"]
    assert not (tmp_path / "plans").exists()
    first = call(storage_scale_plan, options)
    assert [Path(path).name for path in first["files"]] == ["scale.json", "scale-objects.json"]
    assert [part["after"] for part in first["diff"]] == [Path(path).read_text() for path in first["files"]]
    assert predicted["diff"] == first["diff"]
    assert not call(storage_scale_plan, options)["changed"]


def test_the_proof_holds_and_fails_with_a_node_that_was_not_read(call, tmp_path):
    options = {"path": str(tmp_path), **printed.REQUEST, **READINGS}
    assert call(storage_scale_proof, options)["holds"]
    silent = {**printed.reading("n2"), "outputs": {}, "mounts": {}}
    result = call(storage_scale_proof, {**options, "readings": {**READINGS["readings"], "n2": silent}})
    assert result["failed"]
    assert not result["holds"]
    claims = json.loads((tmp_path / "storage-scale.json").read_text())["claims"]
    assert {claim["holds"] for claim in claims if "n2" in claim["claim"]} == {False}


@pytest.mark.parametrize("status", [0, 1])
def test_the_commands_of_a_node_are_read_if_they_succeed(call, tmp_path, monkeypatch, status):
    monkeypatch.setattr(readings, "COMMANDS", str(tmp_path))
    program = tmp_path / "mmlsmount"
    program.write_text(f'#!/bin/sh\necho "mmlsmount $*"\nexit {status}\n')
    program.chmod(0o755)
    outputs = call(storage_scale_info, {"file_systems": ["fs1"], "cached": ["cache1"]})["outputs"]
    assert outputs["mmlsmount fs1 -L -Y"] == (None if status else "mmlsmount fs1 -L -Y\n")
    assert outputs["mmlsfileset cache1 --afm -Y"] is None


def test_ports_are_in_the_order_of_their_pci_addresses(tmp_path):
    for name, place, layer, node in (
        ("mlx5_0", "0000:b0:00.0", "Ethernet", "1"),
        ("mlx5_1", "0000:10:00.0", "InfiniBand", "-1"),
    ):
        device = tmp_path / "devices" / place
        (tmp_path / f"infiniband/{name}/ports/1").mkdir(parents=True)
        (tmp_path / f"infiniband/{name}/ports/1/link_layer").write_text(f"{layer}\n")
        device.mkdir(parents=True)
        (device / "numa_node").write_text(f"{node}\n")
        (tmp_path / f"infiniband/{name}/device").symlink_to(device)
    assert storage_scale_info.ports(str(tmp_path / "infiniband")) == [
        {"device": "mlx5_1", "port": 1, "link_layer": "InfiniBand", "numa_node": None},
        {"device": "mlx5_0", "port": 1, "link_layer": "Ethernet", "numa_node": 1},
    ]
    assert storage_scale_info.ports(str(tmp_path / "none")) == []


def test_only_mounted_scale_file_systems_are_read():
    text = "fs1 /gpfs/fs\\0401 gpfs rw 0 0\n/dev/fs2 /gpfs/fs2 gpfs rw 0 0\nproc /proc proc rw 0 0\nnoise\n"
    assert storage_scale_info.mounts(text) == {"fs1": "/gpfs/fs 1", "fs2": "/gpfs/fs2"}
