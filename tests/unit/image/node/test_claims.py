# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Boot reports and the proof of a node: every refusal, and every claim with what was wanted and seen."""

from __future__ import annotations

import json

import pytest
from image_samples import Sample, refused
from messages import Mentions

from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.errors import ImageError
from ansible_collections.sailloft.fleet.plugins.module_utils.image.node import boot_claims, boot_report, claims
from ansible_collections.sailloft.fleet.plugins.module_utils.image.node.boot_claims import NodePlan
from ansible_collections.sailloft.fleet.plugins.module_utils.image.node.claims import ExpectedImage, Gate, SeenNode

IMAGE = Sample("gpu-node", base=b"base", gpu=b"driver")
BASE, GPU = IMAGE.manifest.layers
TEXT = IMAGE.bytes.decode()
PLAN = NodePlan("52:54:00:00:00:01", ("http://10.9.0.1",))
REPORT = {
    "format": "sailloft-boot/1",
    "node": "bm01",
    "image": IMAGE.digest,
    "name": "gpu-node",
    "kernel": "6.1",
    "arguments": "quiet",
    "layers": [
        {"name": layer.name, "sha256": layer.sha256, "verity": True, "root_sha256": layer.verity.root_sha256}
        for layer in (BASE, GPU)
    ],
    "server": "http://10.9.0.1",
    "writable_bytes": 0,
    "phases": [{"name": "network", "start_s": 1, "end_s": 2.5}],
    "warnings": ["slow"],
}
FULL = {
    "image": IMAGE.digest,
    "report": REPORT,
    "reason": "",
    "kernel": IMAGE.manifest.kernel.version,
    "command_line": f"quiet sailloft.image={IMAGE.digest}",
    "arguments": ["console=ttyS0", "debug"],
    "verity_possible": True,
    "systemd": {"state": "running"},
    "failed_units": [],
}


def test_a_report_is_read():
    found = boot_report.load(json.dumps(REPORT), "node bm01")
    assert (found.node, found.image, found.writable_bytes, found.warnings) == ("bm01", IMAGE.digest, 0, ("slow",))
    assert found.layers == tuple(
        boot_report.BootedLayer(each.name, each.sha256, True, each.verity.root_sha256) for each in (BASE, GPU)
    )
    assert found.phases == (boot_report.Phase("network", 1.0, 2.5),)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"node": 7}, "node is 7"),
        ({"layers": []}, "digest"),
        ({"image": "A" * 64}, "digest"),
        ({"layers": [{"name": "a", "sha256": "0" * 63, "verity": True}]}, "digest"),
        ({"layers": [{"name": "a", "sha256": "0" * 64}]}, "'verity' is missing"),
        ({"phases": [{"name": "a", "start_s": "x", "end_s": 1}]}, "phases[0].start_s"),
        ({"format": "sailloft-boot/2"}, "sailloft-boot/2"),
    ],
)
def test_an_invalid_report_is_refused(change, named):
    with pytest.raises(ImageError) as caught:
        boot_report.load(json.dumps({**REPORT, **change}), "node bm01")
    assert named in caught.value.cause
    assert (caught.value.subject, "boot.ipxe" in caught.value.remedy) == ("node bm01", True)


@pytest.mark.parametrize("text", ["", "[" * 100_000])
def test_text_that_is_not_json_is_refused(text):
    assert refused(boot_report.load, text, "node bm01").startswith("node bm01: not a boot report: ")


def test_a_manifest_of_another_digest_is_refused_with_the_remedy():
    assert refused(ExpectedImage.of_text, "0" * 64, TEXT, PLAN, "", [], []) == Mentions("0" * 64, IMAGE.digest)
    assert refused(ExpectedImage.of_text, claims.manifest.digest(b"{}"), "{}", PLAN, "", [], []).startswith(
        f"image {claims.manifest.digest(b'{}')}: not a manifest"
    )


def proof(state, gate=None, channel="stable", may_fail=()):
    expected = ExpectedImage.of_text(IMAGE.digest, TEXT, PLAN, channel, ["debug"], [*may_fail])
    return claims.prove("bm01", expected, SeenNode(state, gate))


def rows(found):
    """Return the claims but those about the boot (test_boot_claims.py)."""
    return [
        (claim.layer, claim.claim, claim.wanted, claim.seen, claim.holds, claim.source)
        for claim in found.claims
        if claim.layer != boot_claims.BOOT
    ]


def test_the_proof_of_a_whole_node_has_these_claims():
    found = proof(FULL, Gate("check", True, "fine"))
    report, verity = "/run/sailloft/boot.json", "every read of layer {} is verified against its digest (dm-verity)"
    kernel, arguments = IMAGE.manifest.kernel.version, ["console=ttyS0", "debug"]
    assert found.title == "Node bm01 runs the image gpu-node"
    assert rows(found) == [
        (
            "image",
            "the node runs the image that the channel stable names",
            IMAGE.digest,
            IMAGE.digest,
            True,
            report,
        ),
        ("kernel", "the kernel is that of the image", kernel, kernel, True, "/proc/sys/kernel/osrelease"),
        (
            "kernel",
            "the kernel arguments are those of the image, then those of the node",
            arguments,
            arguments,
            True,
            "/proc/cmdline",
        ),
        (
            "image_layers",
            "the layers are those of the image, lowest first",
            ["base", "gpu"],
            ["base", "gpu"],
            True,
            report,
        ),
        ("image_layers", "layer base has its digest", BASE.sha256, BASE.sha256, True, report),
        *[("image_layers", "layer base has its root hash", *[BASE.verity.root_sha256] * 2, True, report)],
        ("image_layers", verity.format("base"), True, True, True, report),
        ("image_layers", "layer gpu has its digest", GPU.sha256, GPU.sha256, True, report),
        *[("image_layers", "layer gpu has its root hash", *[GPU.verity.root_sha256] * 2, True, report)],
        ("image_layers", verity.format("gpu"), True, True, True, report),
        (
            "services",
            "systemd has started everything",
            "running, or degraded by the units in the next claim",
            "running",
            True,
            "systemctl show",
        ),
        ("services", "no unit has failed", [], [], True, "systemctl list-units --state=failed"),
        ("health", "the health check passes", "healthy", "healthy", True, "check"),
    ]


def test_a_pinned_node_has_a_claim_about_its_pin():
    assert proof(FULL, channel="").claims[0].claim == "the node runs the image that its pin names"


def test_a_node_that_does_not_answer_has_no_seen_values():
    found = proof({"reason": "no route to host"})
    assert {claim.seen for claim in found.claims} == {None}
    assert not any(claim.holds for claim in found.claims)
    assert found.claims[0].reason == "no route to host"


def test_the_units_that_may_fail_are_named_and_not_seen():
    claim = proof({**FULL, "failed_units": ["a", "b", "c"]}, may_fail=["c", "a"]).claims[-1]
    assert (claim.claim, claim.seen) == ("no unit has failed (except c, a)", ["b"])


def test_verity_is_not_applicable_only_without_support_and_without_verity():
    layers = [{**REPORT["layers"][0], "verity": False}, REPORT["layers"][1]]
    found = proof({**FULL, "report": {**REPORT, "layers": layers}, "verity_possible": False})
    told = [(claim.holds, claim.seen, claim.reason) for claim in found.claims if "dm-verity" in claim.claim]
    assert told == [(None, False, "the kernel has no dm-verity"), (True, True, "")]
