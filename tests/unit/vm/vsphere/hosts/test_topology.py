# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""ESXi hosts of the simulated vCenter, with virtual machines on one of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from messages import Mentions, raises
from simulated_vcenter import VCenter, esxi, serving, site
from vsphere_requests import run, server, vm

from ansible_collections.sailloft.fleet.plugins.module_utils.topology.read.recordings import (
    read_recording,
    write_recording,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.read.saved import read_saved
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.common.errors import DomainError
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.vsphere.hosts.topology import read

GPUS = ["0000:13:00.0", "0000:83:00.0"]


@pytest.fixture(scope="module")
def served() -> Iterator[VCenter]:
    """Serve two hosts; on the first, train runs with devices and batch is stopped, and esx02 has none."""
    with serving(site(esxi(server(), "esx02", active=False), esxi(server(), "esx01"))) as vcenter:
        run(vcenter, vm("train", nics={}), state="running")
        run(vcenter, vm("batch", gpus={}, nics={}, memory_mib=4096, vcpus=2))
        yield vcenter


@pytest.fixture
def vcenter(served) -> Iterator[VCenter]:
    yield served
    assert served.sessions() == 0


def seen(vcenter: VCenter, *hosts: str, **more: Any) -> dict[str, Any]:
    options = {"validate_certs": True, "cluster": "", "hosts": list(hosts), "record": False, "accelerators": {}}
    return read({**vcenter.login, **options, **more})


def test_all_hosts_are_read_by_name_with_their_virtual_machines_by_name(vcenter):
    result = seen(vcenter)
    assert (set(result), result["changed"]) == ({"changed", "hosts"}, False)
    first, second = result["hosts"]
    assert {key: value for key, value in first.items() if key != "topology"} == {
        "name": "esx01",
        "cluster": "gpu",
        "machines": [
            {"name": "batch", "state": "stopped", "memory_mib": 4096, "vcpus": 2, "devices": []},
            {"name": "train", "state": "running", "memory_mib": 65536, "vcpus": 4, "devices": GPUS},
        ],
    }
    assert {key: value for key, value in second.items() if key != "topology"} == {
        "name": "esx02", "cluster": "gpu", "machines": [],
    }  # fmt: skip
    for row, active in ((first, True), (second, False)):
        gpus = [item for item in read_saved(row["topology"]).functions if item.kind == "gpu"]
        assert [(gpu.address, gpu.passthrough.active) for gpu in gpus] == [(address, active) for address in GPUS]


def test_named_hosts_are_read_in_the_given_order(vcenter):
    result = seen(vcenter, "esx02", "esx01")
    assert [row["name"] for row in result["hosts"]] == ["esx02", "esx01"]
    assert "topology" not in result


def test_the_topology_of_an_only_host_is_also_the_result(vcenter):
    result = seen(vcenter, "esx02")
    assert (set(result), [row["name"] for row in result["hosts"]]) == ({"changed", "hosts", "topology"}, ["esx02"])
    assert result["topology"] == result["hosts"][0]["topology"]
    assert "recording" not in result["hosts"][0]


def test_a_recording_of_each_host_is_returned_on_request(vcenter, tmp_path):
    result = seen(vcenter, record=True)
    assert set(result) == {"changed", "hosts"}
    for row in result["hosts"]:
        topology = read_saved(row["topology"])
        assert row["recording"] == write_recording(topology)
        path = tmp_path / f"{row['name']}.json"
        path.write_text(row["recording"], encoding="utf-8")
        again = read_recording(str(path))
        assert [item.passthrough for item in again.functions] == [item.passthrough for item in topology.functions]
    one = seen(vcenter, "esx01", record=True)
    assert one["recording"] == one["hosts"][0]["recording"] == result["hosts"][0]["recording"]


def test_accelerators_of_the_inventory_change_the_kinds_of_devices(vcenter):
    def gpus(**more: Any) -> list[str]:
        host = read_saved(seen(vcenter, "esx01", **more)["topology"])
        return [item.address for item in host.functions if item.kind == "gpu"]

    assert gpus() == GPUS
    assert gpus(accelerators={"10de:2330": False}) == []


def test_an_unknown_host_or_cluster_is_refused_and_the_session_ends(vcenter):
    with raises(DomainError, "'esx09'", "esx01", "esx02"):
        seen(vcenter, "esx01", "esx09")
    with pytest.raises(DomainError) as caught:
        seen(vcenter, cluster="lab")
    name = f"vCenter 127.0.0.1:{vcenter.port}"
    assert str(caught.value) == Mentions(name, "'lab'", "gpu")
