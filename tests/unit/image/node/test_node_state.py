# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The state of a node that booted an image: read and proven."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from image_samples import Sample
from messages import raises

from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.errors import ImageError
from ansible_collections.sailloft.fleet.plugins.module_utils.image.node import node_state
from ansible_collections.sailloft.fleet.plugins.module_utils.image.node.boot_claims import NodePlan
from ansible_collections.sailloft.fleet.plugins.module_utils.image.node.claims import (
    ExpectedImage,
    Gate,
    SeenNode,
    prove,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.image.store import manifest as manifests

IMAGE = Sample("gpu-node", base=b"base", gpu=b"driver")
KERNEL = IMAGE.manifest.kernel.version
ARGUMENTS = list(IMAGE.manifest.kernel_arguments)
OWN = ["hugepages=4", "sailloft.reboot_after_s=60", "sailloft.debug=1"]
LINE = " ".join(
    [
        "initrd=first-stage",
        *ARGUMENTS,
        *OWN,
        f"sailloft.image={IMAGE.digest}",
        "sailloft.servers=http://10.9.0.1 sailloft.node=bm01 sailloft.report= sailloft.nics=1",
        "BOOTIF=01-52-54-00-00-00-01",
    ]
)


MAC = "52:54:00:00:00:01"
KEY = "ssh-ed25519 AAAA"
PLAN = NodePlan(MAC, ("http://10.9.0.1",), "", (f"{MAC} dhcp", "ens1 10.1.0.5/24"), 7)


def booted(layer):
    return {"name": layer.name, "sha256": layer.sha256, "verity": True, "root_sha256": layer.verity.root_sha256}


def report(**changes):
    whole = {
        "format": "sailloft-boot/1",
        "node": "bm01",
        "image": IMAGE.digest,
        "name": "gpu-node",
        "kernel": KERNEL,
        "arguments": LINE,
        "layers": [booted(layer) for layer in IMAGE.manifest.layers],
        "server": "http://10.9.0.1",
        "writable_bytes": 1024 << 20,
        "phases": [{"name": "network", "start_s": 1.25, "end_s": 2}],
        "warnings": [],
        "host_keys": [KEY],
        "mac": MAC,
        "statement": 7,
        "rollback": "TPM",
        "clock": "",
        "report_url": "",
        "servers": ["http://10.9.0.1"],
        "caches": [],
        "nics": [f"{MAC} dhcp", "ens1 10.1.0.5/24"],
        "files": "",
    }
    return {**whole, **changes}


@pytest.fixture
def root(tmp_path):
    """The root of a node's files."""
    files = {
        "proc/sys/kernel/osrelease": f"{KERNEL}\n",
        "proc/sys/kernel/random/boot_id": "11111111-2222-3333-4444-555555555555\n",
        "proc/cmdline": f"{LINE}\n",
        "proc/uptime": "61.25 100.00\n",
        "etc/ssh/ssh_host_ed25519_key.pub": f"{KEY} bm01\n",
        "run/sailloft/boot.json": json.dumps(report()),
        f"lib/modules/{KERNEL}/modules.dep": "kernel/drivers/md/dm-verity.ko: kernel/drivers/md/dm-bufio.ko\n",
    }
    for path, text in files.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    return tmp_path


def systemd(state="running", finished_us=102404600, failed=""):
    def run(command):
        if command[1] == "show":
            return (
                0,
                f"SystemState={state}\nUserspaceTimestampMonotonic=26113000\nFinishTimestampMonotonic={finished_us}\n",
                "",
            )
        return 0, failed, ""

    return run


def read(root, run=None):
    return node_state.read("bm01", run or systemd(), str(root))


def test_the_state_of_a_node_is_read(root):
    state = read(root)
    assert state["image"] == IMAGE.digest
    assert state["reason"] == ""
    assert json.loads(json.dumps(state["report"])) == report()
    assert state["arguments"] == ARGUMENTS + OWN
    assert state["command_line"] == LINE
    assert [*state["arguments"], *state["boot_arguments"]] == sorted(
        LINE.split(), key=[*ARGUMENTS, *OWN, *state["boot_arguments"]].index
    )
    assert (state["host_key"], state["has_identity"]) == (KEY, False)
    assert state["uptime_s"] == 61.25
    assert state["systemd"] == {"state": "running", "userspace_s": 26.113, "finished_s": 102.405}
    assert state["verity_possible"] is True
    assert state["failed_units"] == []


def test_a_host_that_booted_from_its_disk_has_no_image(root):
    (root / "run/sailloft/boot.json").unlink()
    state = read(root)
    assert (state["image"], state["report"]) == (None, None)
    assert state["reason"].startswith("bm01 did not boot a Sailloft image: it has no /run/sailloft/boot.json")


@pytest.mark.parametrize("text", ["", "{", "[]", '{"format": "other"}', json.dumps(report(image="x"))])
def test_an_invalid_boot_report_is_refused(root, text):
    (root / "run/sailloft/boot.json").write_text(text)
    with pytest.raises(ImageError, match="bm01"):
        read(root)


def test_failed_units_and_an_unfinished_start_are_read(root):
    failed = "ssh.service loaded failed failed OpenBSD Secure Shell server\ngpu.service loaded failed failed GPUs\n"
    state = read(root, systemd("starting", 0, failed))
    assert state["failed_units"] == ["gpu.service", "ssh.service"]
    assert state["systemd"]["finished_s"] is None


def test_a_node_without_systemd_is_refused(root):
    with raises(ImageError, "bm01", "systemctl show", "not booted with systemd"):
        read(root, lambda command: (1, "", "not booted with systemd\n"))


@pytest.mark.parametrize(
    ("output", "errors", "cause"),
    [("", "Access\n denied\n", "Access denied"), ("No bus\n", "", "No bus"), ("", "", "no output")],
)
def test_units_that_cannot_be_listed_are_an_error(root, output, errors, cause):
    def run(command):
        return systemd()(command) if command[1] == "show" else (1, output, errors)

    with raises(ImageError, "bm01", "systemctl list-units", cause):
        read(root, run)


def test_verity_support_of_the_kernel_is_read(root):
    (root / f"lib/modules/{KERNEL}/modules.dep").write_text("kernel/drivers/md/dm-mod.ko:\n")
    assert read(root)["verity_possible"] is False
    (root / "sys/module/dm_verity").mkdir(parents=True)
    assert read(root)["verity_possible"] is True


def request(**changes):
    given = ExpectedImage.of_text(IMAGE.digest, manifests.dump(IMAGE.manifest).decode(), PLAN, "stable", OWN, [])
    return replace(given, **changes)


def failures(state, gate=None, wanted=None):
    proof = prove("bm01", wanted or request(), SeenNode(state, gate))
    return [claim.claim for claim in proof.claims if claim.holds is False]


def test_the_proof_of_a_node_with_the_wanted_image_holds(root):
    proof = prove("bm01", request(), SeenNode(read(root), Gate("nvidia-smi", True)))
    assert proof.holds
    assert proof.counts.not_applicable == 0
    assert any(claim.claim == "the node runs the image that the channel stable names" for claim in proof.claims)


def test_the_kernel_name_before_the_arguments_of_a_uefi_boot_is_accepted(root):
    state = read(root)
    state["arguments"].insert(0, IMAGE.manifest.kernel.sha256)
    assert failures(state) == []
    state["arguments"][0] = "f" * 64
    assert failures(state) == ["the kernel arguments are those of the image, then those of the node"]


@pytest.mark.parametrize(
    ("change", "claim"),
    [
        ({"image": "0" * 64}, "the node runs the image that the channel stable names"),
        ({"kernel": "5.10"}, "the kernel is that of the image"),
        ({"arguments": [*ARGUMENTS]}, "the kernel arguments are those of the image, then those of the node"),
        ({"arguments": [*OWN, *ARGUMENTS]}, "the kernel arguments are those of the image, then those of the node"),
        (
            {"command_line": LINE.replace("sailloft.image=", "sailloft.image=0")},
            "the command line is the one that the first stage read",
        ),
        ({"failed_units": ["gpu.service"]}, "no unit has failed"),
        ({"systemd": {"state": "starting"}}, "systemd has started everything"),
    ],
)
def test_each_difference_fails_only_its_claim(root, change, claim):
    (failed,) = failures({**read(root), **change})
    assert failed.startswith(claim)


def test_a_unit_that_may_fail_does_not_hide_other_failed_units(root):
    degraded = {**read(root), "systemd": {"state": "degraded"}, "failed_units": ["identity.service"]}
    assert failures(degraded) == ["no unit has failed"]
    excused = request(may_fail=("identity.service",))
    assert failures(degraded, wanted=excused) == []
    both = {**degraded, "failed_units": ["gpu.service", "identity.service"]}
    assert failures(both, wanted=excused) == ["no unit has failed (except identity.service)"]


def test_layers_are_compared_with_the_manifest(root):
    state = read(root)
    layers = state["report"]["layers"]
    other = [{**layers[0], "sha256": "0" * 64}, *layers[1:]]
    assert failures({**state, "report": report(layers=other)}) == [f"layer {layers[0]['name']} has its digest"]
    assert len(failures({**state, "report": report(layers=layers[:1])})) > 1
    assert failures({**state, "report": report(layers=layers[::-1])}) == [
        "the layers are those of the image, lowest first"
    ]


def test_missing_verity_fails_only_if_the_kernel_supports_it(root):
    state = read(root)
    layers = [{**layer, "verity": False} for layer in state["report"]["layers"]]
    without = {**state, "report": report(layers=layers)}
    assert [claim for claim in failures(without) if "dm-verity" in claim] == failures(without) != []
    proof = prove("bm01", request(), SeenNode({**without, "verity_possible": False}))
    assert proof.holds
    assert proof.counts.not_applicable == len(layers)


@pytest.mark.parametrize("possible", [{"verity_possible": None}, {}])
def test_missing_verity_fails_if_the_kernel_support_is_unknown(root, possible):
    state = {name: value for name, value in read(root).items() if name != "verity_possible"}
    layers = [{**layer, "verity": False} for layer in state["report"]["layers"]]
    failed = failures({**state, **possible, "report": report(layers=layers)})
    assert [claim for claim in failed if "dm-verity" in claim] == failed
    assert len(failed) == len(layers)


def test_no_claim_holds_for_a_node_that_does_not_answer():
    proof = prove("bm01", request(), SeenNode())
    assert proof.counts.held == 0
    assert proof.counts.not_applicable == 0


@pytest.mark.parametrize(
    "gate", [Gate("check", False, "GPU 3 is gone"), Gate("check", None), Gate("check", False, "healthy")]
)
def test_a_failed_or_unknown_health_check_fails_its_claim(root, gate):
    assert failures(read(root), gate) == ["the health check passes"]


@pytest.mark.parametrize(
    ("gate", "seen"),
    [
        (Gate("check", True), "healthy"),
        (Gate("check", True, "all 8 GPUs"), "healthy"),
        (Gate("check", False, "GPU 3 is gone"), "GPU 3 is gone"),
        (Gate("check", False), "no output"),
        (Gate("check", None, "timed out"), None),
    ],
)
def test_the_result_of_the_health_check_is_the_seen_value(root, gate, seen):
    (claim,) = [
        claim
        for claim in prove("bm01", request(), SeenNode(read(root), gate)).claims
        if claim.claim.startswith("the health")
    ]
    assert claim.seen == seen


def test_a_manifest_of_another_digest_is_refused():
    text = manifests.dump(IMAGE.manifest).decode()
    with raises(ImageError, "0" * 64, "manifest", "digest"):
        ExpectedImage.of_text("0" * 64, text, PLAN, "", [], [])
