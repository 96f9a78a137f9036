# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The proof reads the node unless its state is given, checks its health, and writes the files."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest
from ansible.errors import AnsibleConnectionFailure
from ansible.parsing.dataloader import DataLoader
from ansible.playbook.play_context import PlayContext
from ansible.playbook.task import Task
from image_samples import Sample
from messages import Mentions

from ansible_collections.sailloft.fleet.plugins.action import node_image_proof
from ansible_collections.sailloft.fleet.plugins.module_utils.image.serving.boot_script import INITRD, boot_words
from ansible_collections.sailloft.fleet.plugins.module_utils.image.store import manifest as manifests

IMAGE = Sample("gpu-node", knows=(), base=b"base", gpu=b"driver")
OTHER = Sample("gpu-node", knows=(), base=b"base", gpu=b"driver 2")
MAC, SERVER = "52:54:00:00:00:01", "http://10.9.0.1"


def state(image=IMAGE):
    """Return the result of node_image_info on a node that runs the image."""
    manifest = image.manifest
    words = [INITRD, *boot_words(image.digest, SERVER, "bm01", "", MAC.replace(":", "-"))]
    line = " ".join([words[0], *manifest.kernel_arguments, *words[1:]])
    layers = [{"name": layer.name, "sha256": layer.sha256, "verity": True} for layer in manifest.layers]
    report = {
        "node": "bm01",
        "name": manifest.name,
        "kernel": manifest.kernel.version,
        "arguments": line,
        "host_keys": [],
    }
    report |= {"image": image.digest, "layers": layers, "writable_bytes": manifest.writable_mib << 20, "warnings": []}
    return {
        "image": image.digest,
        "reason": "",
        "report": report,
        "boot_arguments": words,
        "host_key": "",
        "has_identity": False,
        "boot_id": "1",
        "kernel": manifest.kernel.version,
        "command_line": line,
        "arguments": list(manifest.kernel_arguments),
        "verity_possible": True,
        "systemd": {"state": "running"},
        "failed_units": [],
    }


class Proof(node_image_proof.ActionModule):
    """The action plugin; ``answer`` is the node's, ``shell`` the result of a command there, or an error to raise."""

    def __init__(self, folder, answer=None, shell=None, check_mode=False, **given):
        arguments = {
            "path": str(folder),
            "name": "bm01",
            "digest": IMAGE.digest,
            "manifest": manifests.dump(IMAGE.manifest).decode(),
            **given,
        }
        task = Task.load({"action": "sailloft.fleet.node_image_proof", "args": json.loads(json.dumps(arguments))})
        task.check_mode = check_mode
        connection = SimpleNamespace(transport="ssh", _shell=SimpleNamespace(tmpdir="/nowhere"))
        super().__init__(task, connection, PlayContext(), DataLoader(), None, None)
        self.answer, self.shell, self.ran = answer, shell, []

    def run(self, **of_node):
        node = {"node_boot_mac": MAC, "node_boot_server_urls": [SERVER], **of_node}
        return super().run(task_vars={"hostvars": {"bm01": node}})

    def _execute_module(self, module_name=None, module_args=None, *_more, **_named):
        assert module_name == "sailloft.fleet.node_image_info"
        if isinstance(self.answer, Exception):
            raise self.answer
        return {"changed": False, "invocation": {}, **self.answer}

    def _compute_environment_string(self, *_given, **_named):
        return ""

    def _low_level_execute_command(self, cmd, *_given, **_named):
        self.ran.append(cmd)
        if isinstance(self.shell, Exception):
            raise self.shell
        return self.shell


@pytest.fixture
def proofs(tmp_path):
    return tmp_path / "proofs"


def test_a_given_state_is_proved_and_written_once(proofs):
    health = {"what": "nvidia-smi", "held": True}
    first = Proof(proofs, state=state(), health=health).run()
    assert (first["changed"], first["holds"]) == (True, True)
    assert sorted(path.name for path in proofs.iterdir()) == ["bm01.html", "bm01.json", "bm01.txt"]
    assert Proof(proofs, state=state(), health=health).run()["changed"] is False
    failed = Proof(proofs, state={}).run()
    assert failed["failed"] is True
    assert "bm01.html" in failed["msg"]
    assert json.loads((proofs / "bm01.json").read_text())["holds"] is False


def test_a_manifest_of_another_image_is_refused(proofs):
    refused = Proof(proofs, state=state(), digest="0" * 64).run()
    assert refused["failed"] is True
    assert refused["msg"].startswith("bm01: image " + "0" * 64)


def test_the_plan_of_the_boot_is_that_of_the_nodes_own_variables(proofs):
    for setting, value in {
        "node_boot_mac": "52:54:00:00:00:02",
        "node_boot_server_urls": ["http://10.9.0.2"],
        "node_boot_kernel_arguments": ["quiet"],
        "node_boot_report_url": "http://10.9.0.1/report",
        "node_boot_secure_boot": True,
    }.items():
        assert Proof(proofs, state=state()).run(**{setting: value})["holds"] is False, setting
    failed = state() | {"systemd": {"state": "degraded"}, "failed_units": ["one.service"]}
    assert Proof(proofs, state=failed).run()["holds"] is False
    assert Proof(proofs, state=failed).run(node_boot_units_may_fail=["one.service"])["holds"] is True


def test_the_node_is_read_if_its_state_is_not_given(proofs):
    done = Proof(proofs, answer=state()).run()
    assert done["holds"] is True
    assert done["state"] == state()
    silent = Proof(proofs, answer={"failed": True, "msg": "systemctl show failed"}).run()
    assert silent["failed"] is True
    assert silent["msg"] == "systemctl show failed"
    assert "state" not in silent
    with pytest.raises(AnsibleConnectionFailure):
        Proof(proofs, answer=AnsibleConnectionFailure("no route")).run()


def test_check_mode_writes_nothing(proofs):
    done = Proof(proofs, answer=state(), check_mode=True).run()
    assert (done["changed"], done["holds"]) == (True, True)
    assert not proofs.exists()


def test_a_node_that_runs_another_image_is_not_proved_with_only_if_it_runs(proofs):
    shell = {"rc": 0, "stdout": "", "stderr": ""}
    action = Proof(proofs, answer=state(OTHER), shell=shell, only_if_it_runs=True, health={"command": ["true"]})
    done = action.run()
    assert (done["changed"], done["holds"], done.get("failed")) == (False, False, None)
    assert done["state"]["image"] == OTHER.digest
    assert action.ran == []
    assert not proofs.exists()
    assert Proof(proofs, answer=state(OTHER)).run()["failed"] is True
    assert Proof(proofs, answer=state(), only_if_it_runs=True).run()["holds"] is True


@pytest.mark.parametrize(
    ("shell", "message"),
    [
        ({"rc": 0, "stdout": "2 of 8 GPUs", "stderr": ""}, Mentions("healthy")),
        ({"rc": 3, "stdout": "2 of 8 GPUs\n", "stderr": " "}, Mentions("2", "8", "GPUs", "GPUs")),
        ({"rc": 1, "stdout": "healthy", "stderr": "GPU 3 is gone\n"}, Mentions("GPU", "3", "gone")),
        ({"rc": 1, "stdout": "", "stderr": ""}, Mentions("output")),
        (AnsibleConnectionFailure("timed out"), Mentions("timed")),
    ],
)
def test_a_health_command_runs_on_the_node(proofs, shell, message):
    action = Proof(proofs, answer=state(), shell=shell, health={"command": ["gpu-health", "--for", "all of them"]})
    done = action.run()
    assert action.ran == ["gpu-health --for 'all of them'"]
    assert done["holds"] is (message == "healthy")
    claims = json.loads((proofs / "bm01.json").read_text())["claims"]
    (gate,) = [claim for claim in claims if claim["layer"] == "health"]
    assert gate["holds"] is (message == "healthy")
    assert gate["seen"] == message
    assert gate["source"] == "gpu-health --for all of them"
