# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A host gets the descriptions and interfaces of its fabric's plan, now and at every boot, and NCCL's settings."""

from __future__ import annotations

import json
import shutil
import socket

import pytest
from messages import Mentions, raises

from ansible_collections.sailloft.fleet.plugins.module_utils.hca import boot, converge, ports
from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.errors import HostError, RequestError

RDMA = "/sys/class/infiniband"
PLANNED = {"mlx5_0": [], "mlx5_1": ["0x0001"]}
NCCL = {"NCCL_IB_HCA": "=mlx5_0,mlx5_1"}


def converged(machine, check=False, **options):
    return converge.converge(machine, {"host": "node-1", "hcas": PLANNED, "nccl": None, "now": True, **options}, check)


def test_a_host_is_compared_then_changed_and_then_as_planned(host):
    before = host.state()
    predicted = converged(host, check=True, nccl=NCCL)
    assert host.state() == before
    made = converged(host, nccl=NCCL)
    assert (made.before, made.after, made.failed, made.pending) == (predicted.before, predicted.after, "", [])
    assert [host.read(f"{RDMA}/{device}/node_desc") for device in PLANNED] == ["node-1 mlx5_0", "node-1 mlx5_1"]
    assert host.exists("/sys/class/net/ib1.8001")
    assert not host.exists("/sys/class/net/ib0.8001")
    assert "NCCL_IB_HCA==mlx5_0,mlx5_1" in host.read("/etc/nccl.conf").splitlines()
    assert not converged(host, nccl=NCCL).changed


def test_another_partition_is_added_and_the_earlier_interface_stays(host):
    converged(host)
    outcome = converged(host, hcas={"mlx5_0": [], "mlx5_1": ["0x0002"]})
    assert "ib1.8002" in outcome.after
    assert host.exists("/sys/class/net/ib1.8001")


def test_the_partition_at_index_0_has_the_main_interface(host):
    host.put(f"{host.directory('0000:15:00.0')}/net/ib1/pkey", "0x0001\n")
    assert converged(host).failed == ""
    assert not host.exists("/sys/class/net/ib1.8001")


def test_an_ethernet_nic_gets_its_link_type_and_waits_for_the_boot(host):
    host.be_ethernet("mlx5_1")
    outcome = converged(host)
    assert outcome.failed == ""
    assert outcome.pending == [Mentions("0000:15:00.0", "LINK_TYPE_P1", "next boot")]
    assert [command for command in host.commands if " set " in command] == [
        "mstconfig -d 0000:15:00.0 -y set LINK_TYPE_P1=IB"
    ]
    # The other HCA is ready.
    assert host.read(f"{RDMA}/mlx5_0/node_desc") == "node-1 mlx5_0"
    assert host.read(f"{RDMA}/mlx5_1/node_desc") != "node-1 mlx5_1"


def test_a_nic_that_cannot_be_an_hca_fails(host):
    host.be_ethernet("mlx5_1")
    host.firmware["0000:15:00.0"] = {"ADVANCED_PCI_SETTINGS": ["True(1)"] * 3}
    assert converged(host).failed == Mentions("0000:15:00.0", "LINK_TYPE_P1")


def test_rdma_ndd_writes_the_same_descriptions(host):
    converged(host)
    text = host.read("/etc/systemd/system/rdma-ndd.service.d/sailloft.conf")
    assert 'Environment="RDMA_NDD_ND_FORMAT=node-1 %%d"' in text.splitlines()
    assert host.commands[-1] == "systemctl try-restart rdma-ndd.service"
    # Without a name of its own the host has the description that rdma-ndd gives by itself.
    converged(host, host="")
    assert not host.exists("/etc/systemd/system/rdma-ndd.service.d/sailloft.conf")
    assert host.read(f"{RDMA}/mlx5_0/node_desc") == f"{socket.gethostname().split('.')[0]} mlx5_0"


def test_an_image_gets_the_settings_of_the_boot_only(host):
    outcome = converged(host, now=False, host="", nccl=NCCL)
    assert {name for name in outcome.after if name.startswith("mlx5")} == set()
    assert json.loads(host.read("/etc/sailloft/ib_host.json")) == {
        "host": "",
        "hcas": {"mlx5_0": [], "mlx5_1": [0x8001]},
    }
    assert not host.exists("/sys/class/net/ib1.8001")


def test_a_boot_applies_the_saved_settings_and_waits_for_the_interfaces(host):
    converged(host, now=False, host="")
    saved = json.loads(host.read("/etc/sailloft/ib_host.json"))
    host.put(f"{RDMA}/mlx5_1/ports/1/link_layer", "Ethernet\n")
    waited = []

    def wait(seconds):
        waited.append(seconds)
        host.put(f"{RDMA}/mlx5_1/ports/1/link_layer", "InfiniBand\n")

    assert boot.apply(host, saved, lambda _line: None, wait) == []
    assert len(waited) == 1
    assert host.exists("/sys/class/net/ib1.8001")


def test_a_missing_device_fails_before_a_change(host):
    before = host.state()
    with raises(HostError, "mlx5_7", "mlx5_0, mlx5_1"):
        converged(host, hcas={"mlx5_0": [], "mlx5_7": []})
    assert host.state() == before


def test_an_hca_without_an_interface_names_the_module(host):
    shutil.rmtree(host.path(f"{host.directory('0000:15:00.0')}/net"))
    assert converged(host).failed == Mentions("mlx5_1", "ib_ipoib")


@pytest.mark.parametrize(
    ("host_name", "hcas"),
    [
        ("two words", {}),
        ("%h", {}),
        ("n" * 32, {}),
        ("", {"../x": []}),
        ("", {"mlx5_0": ["0x7fff"]}),
        ("", {"mlx5_0": ["0"]}),
        ("", {"mlx5_0": ["research"]}),
        ("", {"mlx5_0": 1}),
    ],
)
def test_settings_that_cannot_be_are_refused(host_name, hcas):
    with pytest.raises(RequestError):
        ports.settings(host_name, hcas)


def test_names_of_nccl_only_are_written(host):
    with raises(HostError, "IB_HCA"):
        converged(host, nccl={"IB_HCA": "mlx5_0"})
