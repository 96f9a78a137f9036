# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""One call writes and applies all objects of a cluster, shows differences, and removes what is planned no more."""

from __future__ import annotations

import copy
import json
import shutil
import subprocess
import sys

import pytest
import yaml
from ansible.errors import AnsibleActionFail
from api_server import ApiServer, serving
from planned_clusters import SMALL, server, small
from playing import ansible_playbook, only_collections

from ansible_collections.sailloft.fleet.plugins.action import kubernetes_objects
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.read.recordings import write_recording

NODES = ["gpu01", "gpu02", "gpu03", "gpu04"]
SETTINGS = {"groups": ["nodes"], "vfs": 8}
KINDS = {(item["apiVersion"], item["kind"]) for items in small().objects.values() for item in items}
LOCAL = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable}


@pytest.fixture
def recordings(tmp_path):
    folder = tmp_path / "recordings"
    folder.mkdir()
    for node in NODES:
        (folder / f"{node}.json").write_text(write_recording(server()), encoding="utf-8")
    return folder


def cluster() -> ApiServer:
    """Return a cluster whose nodes have joined, except the last one."""
    api = ApiServer(KINDS)
    for node in NODES[:3]:
        item = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": node, "labels": {"rack": "hers"}}}
        api.add(f"/api/v1/nodes/{node}", item)
    return api


def run(folder, *options, settings=None, collections=None, **arguments):
    """Run the module in a play on the inventory of the nodes; return its result and the output."""
    hosts = {"all": {"hosts": {"localhost": LOCAL}, "children": {"nodes": {"hosts": {node: {} for node in NODES}}}}}
    (folder / "hosts.json").write_text(json.dumps(hosts))
    task = {
        "sailloft.fleet.kubernetes_objects": {
            "settings": {**SETTINGS, **(settings or {})},
            "blueprint": str(SMALL),
            "recordings": str(folder / "recordings"),
            **arguments,
        },
        "register": "seen",
    }
    save = {"ansible.builtin.copy": {"content": "{{ seen | to_json }}", "dest": str(folder / "seen.json")}}
    play = {"hosts": "localhost", "gather_facts": False, "tasks": [task, {**save, "check_mode": False, "diff": False}]}
    (folder / "play.json").write_text(json.dumps([play]))
    (folder / "seen.json").unlink(missing_ok=True)
    _status, output = ansible_playbook(
        *options, f"-i{folder / 'hosts.json'}", str(folder / "play.json"), **(collections or {})
    )
    seen = folder / "seen.json"
    return json.loads(seen.read_text()) if seen.exists() else {}, output


def test_manifests_are_written_once(make, recordings, tmp_path):
    folder = tmp_path / "plans"

    def plan(check_mode=False, **given):
        arguments = {"settings": SETTINGS, "blueprint": str(SMALL), "recordings": str(recordings), **given}
        made = make(kubernetes_objects, check_mode=check_mode, path=str(folder), **arguments)
        return made.run(task_vars={"groups": {"nodes": NODES}, "hostvars": {node: {} for node in NODES}})

    first = plan(check_mode=True)
    assert first["changed"]
    assert not folder.exists()
    assert plan()["written"] == first["written"]
    assert not plan()["changed"]
    assert list(yaml.safe_load_all((folder / "sriov.yaml").read_text())) == first["objects"]["sriov"]
    (config,) = (folder / "kubelet").iterdir()
    assert yaml.safe_load(config.read_text()) == first["kubelets"][config.stem]
    assert sorted(plan(settings={**SETTINGS, "vfs": 4})["written"]) == [
        str(folder / "nic_configuration.yaml"),
        str(folder / "sriov.yaml"),
    ]
    with pytest.raises(AnsibleActionFail, match="vf'"):
        plan(settings={"vf": 4})


@pytest.mark.skipif(not shutil.which("kubectl"), reason="kubectl is not installed")
def test_kubectl_reads_a_name_like_a_number_as_text(make, recordings, tmp_path):
    names = ["12e4", "0o17", "1.5e3", "007"]
    for name in names:
        (recordings / f"{name}.json").write_text(write_recording(server()), encoding="utf-8")
    arguments = {"settings": SETTINGS, "recordings": str(recordings), "path": str(tmp_path / "plans")}
    made = make(kubernetes_objects, **arguments)
    made.run(task_vars={"groups": {"nodes": names}, "hostvars": {name: {} for name in names}})
    (tmp_path / "plans/kustomization.yaml").write_text("resources: [labels.yaml]\n")
    done = subprocess.run(["kubectl", "kustomize", f"{tmp_path}/plans"], capture_output=True, text=True, check=False)
    assert sorted(node["metadata"]["name"] for node in yaml.safe_load_all(done.stdout)) == sorted(names), done.stderr


@pytest.mark.fleet
def test_one_call_applies_all_and_a_second_nothing(recordings, tmp_path):
    api = cluster()
    with serving(api, tmp_path) as kubeconfig:
        seen, output = run(tmp_path, "--check", "--diff", kubeconfig=str(kubeconfig))
        assert seen["changed"], output
        assert api.writes == []
        first, output = run(tmp_path, kubeconfig=str(kubeconfig))
        assert first["applied"] == seen["applied"], output
        assert len(first["applied"]) == sum(map(len, first["objects"].values())) - 1
        assert [note for note in first["notes"] if note.startswith("gpu04")]
        labels = api.by_kind("Node")["gpu01"]["metadata"]["labels"]
        assert labels["rack"] == "hers"
        assert labels["sailloft.fleet/hardware"].startswith("hw-")
        assert set(api.by_kind("Node")) == set(NODES[:3])

        # kubernetes.core sends a patch without a change for each object with a list.
        before = copy.deepcopy(api.objects)
        again, output = run(tmp_path, kubeconfig=str(kubeconfig))
        assert not again["changed"], output
        assert api.objects == before

        # Somebody changes one object and removes another; an earlier plan left one, and a person has one of that name.
        path = next(path for path in api.objects if "sriovnetworknodepolicies/rail0-" in path)
        api.objects[path]["spec"]["numVfs"] = 2
        api.objects[path]["spec"]["priority"] = 10
        del api.objects[next(path for path in api.objects if path.endswith("deviceclasses/rail3"))]
        stale = json.loads(json.dumps(api.objects[path]))
        stale["metadata"]["name"] = "rail0-hw-00000000"
        api.add(path.replace(stale["spec"]["nodeSelector"]["sailloft.fleet/hardware"], "hw-00000000"), stale)
        theirs = json.loads(json.dumps(stale))
        theirs["metadata"] = {"name": "theirs", "namespace": stale["metadata"]["namespace"]}
        api.add(f"{path.rsplit('/', 1)[0]}/theirs", theirs)
        writes = len(api.writes)
        drift, output = run(tmp_path, "--check", "--diff", kubeconfig=str(kubeconfig))
        assert [name.split("-")[0] for name in drift["applied"]] == [
            "SriovNetworkNodePolicy rail0",
            "DeviceClass rail3",
        ]
        assert drift["removed"] == ["SriovNetworkNodePolicy rail0-hw-00000000"]
        assert "-  numVfs: 2" in output
        assert "+  numVfs: 8" in output
        assert len(api.writes) == writes
        repaired, output = run(tmp_path, kubeconfig=str(kubeconfig))
        assert (repaired["applied"], repaired["removed"]) == (drift["applied"], drift["removed"]), output
        assert api.objects[path]["spec"]["numVfs"] == 8
        # What the plan does not set stays.
        assert api.objects[path]["spec"]["priority"] == 10
        assert "theirs" in api.by_kind("SriovNetworkNodePolicy")
        assert "rail0-hw-00000000" not in api.by_kind("SriovNetworkNodePolicy")


@pytest.mark.fleet
def test_what_no_part_plans_any_more_is_removed_unless_a_node_is_not_known(recordings, tmp_path):
    api = cluster()
    left_out = {"parts": ["labels", "kubelet"]}
    with serving(api, tmp_path) as kubeconfig:
        run(tmp_path, kubeconfig=str(kubeconfig))
        owned = {
            f"{item['kind']} {item['metadata']['name']}"
            for item in api.objects.values()
            if item["kind"] not in ("Node", "ClusterPolicy")
        }
        assert len({name.split()[0] for name in owned}) > 7
        (recordings / "gpu02.json").rename(tmp_path / "gpu02.json")
        kept, output = run(tmp_path, settings=left_out, kubeconfig=str(kubeconfig))
        assert kept["removed"] == [], output
        assert {" ".join(note.split(":")[0].split()) for note in kept["notes"] if "gpu02" in note} >= owned
        (tmp_path / "gpu02.json").rename(recordings / "gpu02.json")
        # Who may not list a kind of the cluster is told, and all others are looked for.
        api.refused = {"clusterrolebindings"}
        removed, output = run(tmp_path, settings=left_out, kubeconfig=str(kubeconfig))
        assert any("ClusterRoleBinding" in note for note in removed["notes"]), output
        api.refused = set()
        rest, output = run(tmp_path, settings=left_out, kubeconfig=str(kubeconfig))
        assert {*removed["removed"], *rest["removed"]} == owned, output
    assert {item["kind"] for item in api.objects.values()} == {"Node", "ClusterPolicy"}


@pytest.mark.fleet
def test_a_missing_operator_is_named_and_all_others_are_applied(recordings, tmp_path):
    api = cluster()
    api.kinds = {item for item in KINDS if item[1] != "NicConfigurationTemplate"}
    with serving(api, tmp_path) as kubeconfig:
        seen, output = run(tmp_path, kubeconfig=str(kubeconfig))
    assert not seen
    assert "NicConfigurationTemplate rail0" in output
    assert api.by_kind("SriovNetworkNodePolicy")
    assert api.by_kind("ConfigMap")


@pytest.mark.fleet
def test_without_the_collection_nothing_is_touched(recordings, tmp_path):
    only = only_collections(tmp_path / "collections")
    path = str(tmp_path / "plans")
    seen, output = run(tmp_path, collections=only, path=path, kubeconfig=str(tmp_path / "kubeconfig"))
    assert not seen
    assert "ansible-galaxy collection install kubernetes.core" in output
    assert not (tmp_path / "plans").exists()
    seen, output = run(tmp_path, collections=only, path=path)
    assert seen["written"], output


@pytest.mark.fleet
def test_a_cluster_that_does_not_answer_is_named(recordings, tmp_path):
    with serving(cluster(), tmp_path) as kubeconfig:
        pass
    seen, output = run(tmp_path, kubeconfig=str(kubeconfig))
    assert not seen
    assert str(kubeconfig) in output
