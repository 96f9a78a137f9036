# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

import pytest

from ansible_collections.sailloft.fleet.plugins.module_utils.storage_scale import readings
from ansible_collections.sailloft.fleet.plugins.modules import storage_scale_info


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
