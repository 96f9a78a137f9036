# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The files of a cluster: equal nodes share lines, what is not known is said, mistakes are refused."""

from __future__ import annotations

import pytest
import sites
import yaml
from messages import Mentions, raises
from recorded_nodes import RECORDED

from ansible_collections.sailloft.fleet.plugins.module_utils.scheduler.errors import SchedulerError
from ansible_collections.sailloft.fleet.plugins.module_utils.scheduler.plan import plan

NODES = [f"gpu{number:02}" for number in range(1, 5)]
GROUPS = {"nodes": NODES, "debug": NODES[:1], "empty": []}
HOSTS = dict.fromkeys(NODES, RECORDED["aws-g4dn-metal"])
SETTINGS = {"controllers": ["c1", "c2"], "partitions": [{"name": "gpu", "groups": ["nodes"], "default": True}]}


def planned(hosts=None, site=None, spares=(), **settings):
    return plan({**SETTINGS, **settings}, GROUPS, HOSTS if hosts is None else hosts, site, spares)


def lines(text, start):
    return [line for line in text.splitlines() if line.startswith(start)]


def test_equal_nodes_share_their_lines():
    made = planned()
    line = "NodeName=gpu[01-04] Sockets=2 CoresPerSocket=24 ThreadsPerCore=2 RealMemory=378624 Gres=gpu:8"
    assert lines(made.files["slurm.conf"], "NodeName") == [line]
    assert lines(made.files["gres.conf"], "NodeName") == [
        "NodeName=gpu[01-04] Name=gpu File=/dev/nvidia[0-3] Cores=0-23",
        "NodeName=gpu[01-04] Name=gpu File=/dev/nvidia[4-7] Cores=24-47",
    ]
    assert lines(made.files["slurm.conf"], "SlurmctldHost") == ["SlurmctldHost=c1", "SlurmctldHost=c2"]
    assert lines(made.files["slurm.conf"], "PartitionName") == ["PartitionName=gpu Nodes=gpu[01-04] Default=YES"]
    assert made.notes == []
    assert planned() == made


def test_a_state_in_the_file_would_drain_nodes_in_service():
    assert " State=" not in planned().files["slurm.conf"]


def test_a_node_without_a_recording_is_said_and_has_no_devices():
    made = planned({name: host for name, host in HOSTS.items() if name != "gpu03"})
    assert "NodeName=gpu03" in made.files["slurm.conf"].splitlines()
    assert "gpu03" not in made.files["gres.conf"]
    assert made.notes == [Mentions("gpu03", "recording")]
    assert made.nodes["gpu03"] is None


def test_only_the_trees_of_jobs_fabric_before_topologies_had_names():
    site = sites.example("blue_vela")
    names = [device.name for device in site.by_kind["nodes"]][:64]
    data = {**SETTINGS, "partitions": [{"name": "gpu", "groups": ["nodes"]}]}
    old = plan(data, {"nodes": names}, {}, site).files
    assert lines(old["topology.conf"], "SwitchName") == [
        "SwitchName=layer1-1 Nodes=node-[0001-0032]",
        "SwitchName=layer1-2 Nodes=node-[0033-0064]",
        "SwitchName=layer2-1 Switches=layer1-[1-2]",
        "SwitchName=layer3-1 Switches=layer2-1",
    ]
    assert "TopologyPlugin=topology/tree" in old["slurm.conf"].splitlines()
    new = plan({**data, "version": "25.05.2"}, {"nodes": names}, {}, site).files
    assert "topology.conf" not in new
    assert "TopologyPlugin" not in new["slurm.conf"]
    compute, storage = yaml.safe_load(new["topology.yaml"])
    assert (compute["topology"], compute["cluster_default"], storage["cluster_default"]) == ("compute", True, False)
    assert compute["tree"]["switches"][0] == {"switch": "layer1-1", "nodes": "node-[0001-0032]"}
    assert storage["topology"] == "storage"


def test_nodes_outside_of_the_fabric_are_said():
    made = plan(SETTINGS, {"nodes": [*NODES, "other"]}, {}, sites.site())
    assert Mentions("other", "fabric") in made.notes


def test_spares_are_those_of_inventory_and_blueprint():
    assert planned(spares=["gpu02", "elsewhere"]).spares == ["gpu02"]
    site = sites.site(devices__node__spare_percent=50)
    assert planned(site=site).spares == ["gpu02", "gpu04"]


def test_options_accounting_and_programs():
    made = planned(
        accounting={"host": "db", "database": "jobs"},
        options={"SchedulerType": "sched/builtin", "SelectTypeParameters": "CR_Core", "DisableRootJobs": True},
        prolog="/opt/prolog",
        reimage_command=["ssh", "deploy", "re image"],
    )
    text = made.files["slurm.conf"].splitlines()
    for line in (
        "AccountingStorageHost=db",
        "SelectTypeParameters=CR_Core",
        "DisableRootJobs=yes",
        "Prolog=/opt/prolog",
        "SlurmctldParameters=enable_configless,reboot_from_controller",
        "RebootProgram=/usr/lib/sailloft/slurm-reimage",
    ):
        assert line in text
    assert len([line for line in text if line.startswith("SelectTypeParameters")]) == 1
    assert "setsid ssh deploy 're image' \"$nodes\"" in made.files["slurm-reimage"]
    assert "StorageLoc=jobs" in made.files["slurmdbd.conf"].splitlines()
    assert "StoragePass" not in made.files["slurmdbd.conf"]


def test_containers_have_a_prolog_and_an_epilog_which_run_those_of_the_site():
    text = planned(container_directory="/scratch/c", prolog="/opt/p").files["slurm.conf"].splitlines()
    ours = {"Prolog=/usr/lib/sailloft/slurm-prolog", "Epilog=/usr/lib/sailloft/slurm-epilog", "PrologFlags=Alloc"}
    assert ours <= set(text)
    assert "Prolog=/opt/p" not in text


def test_the_summary_says_how_often_to_write_a_checkpoint():
    counted = {"gb": 300, "write_gb_s": 10, "failures": 12, "node_days": 2880}
    assert Mentions("partition gpu", "4 nodes", "12 counted") in planned(checkpoint=counted).summary
    assert Mentions("llama_3") in planned(checkpoint={"gb": 1, "write_gb_s": 1, "published": "llama_3"}).summary


@pytest.mark.parametrize(
    ("settings", "facts"),
    [
        ({"partitions": [{"name": "a", "groups": ["node"]}]}, ["node", "nodes"]),
        ({"partitions": [{"name": "a", "groups": ["empty"]}]}, ["empty"]),
        ({"partitions": [{"name": "a", "groups": ["nodes"]}, {"name": "A", "groups": ["debug"]}]}, ["two partitions"]),
        ({"partitions": [{"name": n, "groups": ["nodes"], "default": True} for n in "ab"]}, ["two default"]),
        ({"partitions": []}, ["partitions"]),
        ({"partitions": [{"name": "Default", "groups": ["nodes"]}]}, ["Default"]),
        ({"partitions": [{"name": "a b", "groups": ["nodes"]}]}, ["a b"]),
        ({"controllers": []}, ["controllers"]),
        ({"container_directory": "/scratch/a b"}, ["container_directory"]),
        ({"version": "new"}, ["version", "22.05"]),
        ({"options": {"RebootProgram": "/x"}}, ["RebootProgram"]),
        ({"options": {"Include": "/x"}}, ["Include"]),
        ({"options": {"JobRequeue": "1 2"}}, ["JobRequeue"]),
        ({"options": {"A-B": "1"}}, ["A-B"]),
        ({"accounting": {}}, ["host"]),
        ({"nodes": []}, ["nodes"]),
        ({"checkpoint": {"gb": 1}}, ["write_gb_s"]),
        ({"checkpoint": {"gb": "x", "write_gb_s": 1}}, ["checkpoint_gb"]),
        ({"checkpoint": {"gb": 1, "write_gb_s": 1, "failures": 1}}, ["node_days"]),
        ({"checkpoint": {"gb": 1, "write_gb_s": 1, "published": "x"}}, ["llama_3"]),
    ],
)
def test_mistakes_are_refused(settings, facts):
    with raises(SchedulerError, *facts):
        planned(**settings)


@pytest.mark.parametrize("name", ["a[1", "default", "ALL"])
def test_a_node_whose_name_slurm_cannot_have_is_refused(name):
    with raises(SchedulerError, name):
        plan(SETTINGS, {"nodes": [name]}, {})


def test_a_partition_may_be_called_all():
    planned(partitions=[{"name": "all", "groups": ["nodes"]}])
