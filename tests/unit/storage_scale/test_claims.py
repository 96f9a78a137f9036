# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest
import scale_outputs as printed
from scale_outputs import wanted

from ansible_collections.sailloft.fleet.plugins.module_utils.storage_scale import claims, readings


def judged(reading: dict[str, Any], **changes: Any) -> dict[str, bool | None]:
    made = claims.claims(wanted(**changes), readings.read({"n1": reading}))
    assert len({claim.claim for claim in made}) == len(made)
    return {claim.claim: claim.holds for claim in made}


def test_healthy_clients_hold():
    holds = judged(printed.reading("n1"))
    assert len(holds) == 16
    assert set(holds.values()) == {True}


@pytest.mark.parametrize(
    ("command", "old", "new", "failed"),
    [
        ("mmlscluster -Y", ":vela.example:123", ":other.example:123", ["n1 is in its cluster"]),
        ("mmlscluster -Y", ":1:n1.", ":1:n2.", ["n1 is a member"]),
        ("mmgetstate -Y", ":active:", ":arbitrating:", ["the daemon of n1 is active"]),
        ("mmdiag --config -Y", "mlx5_1/1/0", "mlx5_1/1/1", ["verbsPorts of n1"]),
        ("mmdiag --config -Y", "verbsRdma:enable", "verbsRdma:disable", ["verbsRdma of n1"]),
        ("mmdiag --config -Y", "verbsGPUDirectStorage", "x", ["verbsGPUDirectStorage of n1"]),
        ("mmhealth node show -Y", "GPFS:n1:NODE:HEALTHY", "GPFS:n1:NODE:DEGRADED", ["GPFS of n1 is healthy"]),
        (
            "mmhealth node show -Y",
            "mlx5_1/1:IB_RDMA:HEALTHY",
            "mlx5_1/1:IB_RDMA:FAILED",
            ["RDMA port mlx5_1/1 of n1 is healthy"],
        ),
        ("mmhealth node show -Y", "mlx5_1/1:IB_RDMA", "mlx5_9/1:IB_RDMA", ["RDMA port mlx5_1/1 of n1 is healthy"]),
        ("mmlsmount fs1 -L -Y", "storage.example", "other.example", ["fs1 on n1 is the remote file system"]),
        ("mmlsfileset cache1 --afm -Y", ":9:Linked", ":9:Unlinked", ["fileset cache1:granite is linked"]),
        ("mmlsfileset cache1 --afm -Y", ":enabled:", ":disabled:", ["fileset cache1:granite has AFM"]),
        ("mmlsfileset cache1 --afm -Y", ":read-only:", ":independent-writer:", ["fileset cache1:granite has its mode"]),
        ("mmlsfileset cache1 --afm -Y", "/granite-data:", "/granite-data2:", ["fileset cache1:granite has its bucket"]),
    ],
)
def test_each_difference_fails_its_own_claim(command, old, new, failed):
    reading = printed.reading("n1")
    assert old in reading["outputs"][command]
    reading["outputs"][command] = reading["outputs"][command].replace(old, new)
    assert [claim for claim, holds in judged(reading).items() if not holds] == failed


@pytest.mark.parametrize("text", [None, "", "mmfs: command not found\n"])
@pytest.mark.parametrize("command", list(printed.outputs("n1", "")))
def test_an_output_that_could_not_be_read_never_holds(command, text):
    reading = printed.reading("n1")
    reading["outputs"][command] = text
    lost = {claim for claim, holds in judged(printed.reading("n1")).items() if holds} - {
        claim for claim, holds in judged(reading).items() if holds
    }
    assert lost
    assert None not in judged(reading).values()


@pytest.mark.parametrize("mounts", [{}, {"fs1": "/mnt/fs1"}])
def test_the_kernel_says_where_a_file_system_is_mounted(mounts):
    reading = {**printed.reading("n1"), "mounts": mounts}
    assert judged(reading)["fs1 is mounted on n1"] is False


@pytest.mark.parametrize("text", ["mlx5_1/1 mlx5_0/1", "mlx5_0 mlx5_1/1/0", "mlx5_0/1/0 mlx5_1"])
def test_ports_are_compared_with_what_scale_leaves_out(text):
    reading = deepcopy(printed.reading("n1"))
    config = "mmdiag --config -Y"
    reading["outputs"][config] = reading["outputs"][config].replace("mlx5_0/1/0 mlx5_1/1/0", text)
    assert judged(reading)["verbsPorts of n1"] is True
