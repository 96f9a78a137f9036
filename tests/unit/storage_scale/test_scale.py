# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Storage Scale's variables, objects and proof, with made-up outputs: no cluster was at hand."""

from __future__ import annotations

import json
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import scale_outputs as printed
from messages import Mentions

from ansible_collections.sailloft.fleet.plugins.module_utils.storage_scale import (
    claims,
    objects,
    plan,
    readings,
    request,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.storage_scale.request import ScaleError

EXPECTED = Path(__file__).parent / "expected"
NATIVE = objects.ContainerNative(
    "data-management", {"scale": "client"}, {"storage.example": "gui.storage.example"}, "gui", "csi"
)


def wanted(**changes: Any) -> request.ScaleRequest:
    return request.read({**printed.REQUEST, **changes})


def nodes(*names: str, **changes: Any) -> dict[str, readings.NodeReading]:
    return readings.read({name: printed.reading(name, **changes) for name in names or ("n1",)})


def judged(reading: dict[str, Any], **changes: Any) -> dict[str, bool | None]:
    made = claims.claims(wanted(**changes), readings.read({"n1": reading}))
    assert len({claim.claim for claim in made}) == len(made)
    return {claim.claim: claim.holds for claim in made}


def test_the_files_are_those_expected():
    fleet = {**nodes("n1", "n3"), **nodes("n2", devices=3)}
    assert plan.inventory(wanted(), fleet) == (EXPECTED / "scale.json").read_text()
    assert objects.objects(wanted(), NATIVE) == (EXPECTED / "scale-objects.json").read_text()


def test_nodes_with_equal_ports_are_one_class_and_rails_choose_the_ports():
    fleet = {**nodes("n1", "n3"), **nodes("n2", devices=3)}
    hosts = json.loads(plan.inventory(wanted(), fleet))["all"]["hosts"]
    assert hosts["n1"] == hosts["n3"] != hosts["n2"]
    hosts = json.loads(plan.inventory(wanted(rails=[1]), fleet))["all"]["hosts"]
    assert hosts["n1"] == hosts["n3"] == hosts["n2"]


@pytest.mark.parametrize(
    ("changes", "link_layer", "settings"),
    [
        (
            {},
            "InfiniBand",
            {"verbsRdma": "enable", "verbsPorts": "mlx5_0/1/0 mlx5_1/1/0", "verbsGPUDirectStorage": "enable"},
        ),
        (
            {"gpudirect": False, "fabric_per_rail": True},
            "Ethernet",
            {"verbsRdma": "enable", "verbsPorts": "mlx5_0/1/0 mlx5_1/1/1", "verbsRdmaCm": "enable"},
        ),
        (
            {"rails": [1]},
            "InfiniBand",
            {"verbsRdma": "enable", "verbsPorts": "mlx5_1/1/0", "verbsGPUDirectStorage": "enable"},
        ),
    ],
)
def test_a_node_has_the_ports_of_its_rails(changes, link_layer, settings):
    chosen = plan.ports(wanted(**changes), "n1", nodes(link_layer=link_layer)["n1"])
    assert plan.settings(wanted(**changes), chosen) == settings


def test_a_node_without_a_wanted_rail_is_refused():
    with pytest.raises(ScaleError) as error:
        plan.inventory(wanted(rails=[0, 5]), nodes())
    assert str(error.value) == Mentions("n1", "5")
    with pytest.raises(ScaleError):
        plan.inventory(wanted(), nodes(devices=0))


def test_no_secret_is_in_the_files():
    assert "assword" not in plan.inventory(wanted(), nodes()) + objects.objects(wanted(), NATIVE)


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"cluster": "a b"}, Mentions("cluster")),
        ({"cluster": "$(id)"}, Mentions("cluster")),
        ({"file_systems": [{**printed.REQUEST["file_systems"][0], "mount": "/a;b"}]}, Mentions("mount")),
        ({"file_systems": printed.REQUEST["file_systems"] * 2}, Mentions("fs1")),
        ({"caches": [{**printed.REQUEST["caches"][0], "endpoint": "s3"}]}, Mentions("endpoint")),
        ({"caches": [{**printed.REQUEST["caches"][0], "bucket": "a'b"}]}, Mentions("bucket")),
        ({"caches": [{**printed.REQUEST["caches"][0], "mode": "rw"}]}, Mentions("mode")),
        ({"caches": printed.REQUEST["caches"] * 2}, Mentions("granite")),
        ({"rails": [-1]}, Mentions("rails")),
    ],
)
def test_a_request_that_ibm_s_roles_would_put_into_a_shell_or_twice_is_refused(changes, why):
    with pytest.raises(ScaleError) as error:
        wanted(**changes)
    assert str(error.value) == why


@pytest.mark.parametrize("data", [{"n1": {}}, {"n1": None}, {"n1": {"ports": [{"x": 1}], "outputs": {}, "mounts": {}}}])
def test_readings_of_another_form_are_refused(data):
    with pytest.raises(ScaleError):
        readings.read(data)


def test_fields_are_decoded_and_lines_belong_to_their_header():
    text = (
        printed.lines("mmlsfs", "", "deviceName:data:", "fs1:%2Fgpfs%3Afs1:")
        + "mmlsfs::0:1\nnoise\nmmlsfs:other:0:1:::x:y:\n"
    )
    assert {tag: [record.fields for record in records] for tag, records in readings.parse(text).items()} == {
        "": [{"deviceName": "fs1", "data": "/gpfs:fs1"}]
    }


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
