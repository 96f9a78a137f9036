# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The proof notices each alteration of a boot, one at a time, and fails no node for a wrong clock or a missing TPM."""

from __future__ import annotations

import copy
import json
import re
from dataclasses import fields, replace

import pytest
from first_stage import INIT
from hypothesis import given
from hypothesis import strategies as st
from image_samples import Sample
from programs import boot_program

from ansible_collections.sailloft.fleet.plugins.module_utils.image.node import (
    boot_claims,
    boot_report,
    measurements,
    node_state,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.image.node.boot_claims import NodePlan
from ansible_collections.sailloft.fleet.plugins.module_utils.image.node.claims import ExpectedImage, SeenNode, prove
from ansible_collections.sailloft.fleet.plugins.module_utils.image.serving.boot_script import boot_words, sealed_words
from ansible_collections.sailloft.fleet.plugins.module_utils.image.store import manifest as manifests
from ansible_collections.sailloft.fleet.plugins.module_utils.image.uki import measured

IMAGE = Sample("gpu-node", base=b"base", gpu=b"driver", arguments=("console=ttyS0", "quiet"))
MAC, KEY = "52:54:00:00:00:01", "ssh-ed25519 AAAA"
SERVERS = ("http://10.9.0.1", "http://10.9.0.2")
REPORTS = "http://10.9.0.1/report"
NICS = (f"{MAC} dhcp", "ens1 10.1.0.5/24")
FILES = "5" * 64
CACHE = "http://10.9.1.2"
PLAN = NodePlan(MAC, SERVERS, REPORTS, NICS, 7, files=FILES, caches=(CACHE,))
WORDS = boot_words(IMAGE.digest, ",".join(SERVERS), "bm01", REPORTS, MAC.replace(":", "-"))
LINE = ["initrd=first-stage", *IMAGE.manifest.kernel_arguments, "own=1", "sailloft.nics=1", *WORDS]
REPORT = {
    "format": boot_report.FORMAT,
    "node": "bm01",
    "image": IMAGE.digest,
    "name": "gpu-node",
    "kernel": IMAGE.manifest.kernel.version,
    "arguments": " ".join(LINE),
    "layers": [
        {"name": layer.name, "sha256": layer.sha256, "verity": True, "root_sha256": layer.verity.root_sha256}
        for layer in IMAGE.manifest.layers
    ],
    "server": SERVERS[1],
    "writable_bytes": IMAGE.manifest.writable_mib << 20,
    "phases": [{"name": "network", "start_s": 1, "end_s": 2}],
    "warnings": [],
    "host_keys": [KEY],
    "mac": MAC,
    "statement": 7,
    "rollback": "TPM",
    "clock": "",
    "report_url": REPORTS,
    "servers": [*SERVERS[::-1]],
    "caches": [CACHE],
    "nics": [*NICS],
    "files": FILES,
}
# The times of phases are those of a clock that says nothing about what was booted.
WITHOUT_CLAIM = {"phases"}


def state(report=None, line=LINE, **changes):
    """Return what node_image_info reads of a node with this report and command line."""
    text = " ".join(line)
    report = REPORT if report is None else report
    whole = {
        "image": report["image"],
        "report": report,
        "reason": "",
        "kernel": IMAGE.manifest.kernel.version,
        "command_line": text,
        "arguments": node_state.requested_arguments(text),
        "boot_arguments": [word for word in line if word not in node_state.requested_arguments(text)],
        "verity_possible": True,
        "systemd": {"state": "running"},
        "failed_units": [],
        "host_key": KEY,
        "has_identity": False,
    }
    return {**whole, **changes}


def proof(seen, plan=PLAN, image=IMAGE.manifest):
    text = manifests.dump(image)
    expected = ExpectedImage.of_text(manifests.digest(text), text.decode(), plan, "stable", ["own=1"], [])
    return prove("bm01", expected, SeenNode(seen))


def failed(seen, plan=PLAN):
    return [claim.claim for claim in proof(seen, plan).claims if claim.holds is False]


def test_the_proof_of_a_node_as_planned_holds_without_exception():
    found = proof(state())
    assert failed(state()) == []
    assert found.counts.not_applicable == 0


def test_every_field_of_the_report_is_altered_here():
    names = {item.name for item in fields(boot_report.BootReport)}
    assert set(REPORT) - {"format"} == names
    assert {item.name for item in fields(boot_report.BootedLayer)} == set(REPORT["layers"][0])


def altered(value):
    """Return other values of the same type."""
    if isinstance(value, bool):
        return [not value]
    if isinstance(value, int):
        return [value + 1 << 40, 0]
    if isinstance(value, str):
        return [f"{value}x", ""] if value else ["x"]
    if value and isinstance(value[0], str):
        return [[*value, "http://10.9.0.66"], value[:-1], [*value[:-1], value[-1] + "0"]]
    return [["x"]]


@pytest.mark.parametrize("name", sorted(set(REPORT) - {"format", "layers", "statement", "clock"} - WITHOUT_CLAIM))
def test_each_altered_field_of_the_report_fails_the_proof(name):
    for value in altered(REPORT[name]):
        assert failed(state({**REPORT, name: value})), (name, value)


@pytest.mark.parametrize("key", ["name", "sha256", "verity", "root_sha256"])
@pytest.mark.parametrize("number", [0, 1])
def test_each_altered_field_of_a_layer_fails_the_proof(number, key):
    for value in altered(REPORT["layers"][number][key]):
        report = copy.deepcopy(REPORT)
        report["layers"][number][key] = value
        assert failed(state(report))


def test_an_older_statement_than_the_boot_servers_fails_a_node_that_this_run_booted():
    for sequence, booted, holds in ((6, True, False), (7, True, True), (8, True, True), (6, False, True)):
        seen = state({**REPORT, "statement": sequence})
        assert (failed(seen, replace(PLAN, booted=booted)) == []) == holds
    assert failed(state({**REPORT, "statement": 0})) == [boot_claims.SEQUENCE]


@pytest.mark.parametrize("number", range(len(LINE)))
def test_each_altered_word_of_the_command_line_fails_the_proof(number):
    word = LINE[number]
    others = [[*LINE[:number], f"{word}0", *LINE[number + 1 :]], [*LINE[:number], word, word, *LINE[number + 1 :]]]
    if word != "sailloft.nics=1":
        others.append([*LINE[:number], *LINE[number + 1 :]])
    for line in others:
        # The report has the altered line too: the first stage runs after it.
        assert failed(state({**REPORT, "arguments": " ".join(line)}, line)) or word == "sailloft.nics=1", line


WORDS_OF_ATTACKS = (
    *("init=/bin/sh", "rdinit=/bin/sh", "rd.break", "systemd.unit=rescue.target", "ima_appraise=off", "nvidia.x=1"),
    *(
        "sailloft.image=0",
        "sailloft.servers=http://10.66.0.1",
        "sailloft.reboot_after_s=5",
        "BOOTIF=01-x",
        "sailloft.x",
    ),
    *("initrd=other", "BOOT_IMAGE=x", "module.sig_enforce=0", "lockdown=none", "dm_verity.mode=log"),
)
EXTRA = st.sampled_from(WORDS_OF_ATTACKS) | st.from_regex(r"[a-z_.]{1,12}(=[!-~]{0,12})?", fullmatch=True).filter(
    lambda word: word != "sailloft.nics=1"
)


@given(EXTRA, st.integers(0, len(LINE)))
def test_each_additional_word_fails_the_proof(word, place):
    line = [*LINE[:place], word, *LINE[place:]]
    assert failed(state({**REPORT, "arguments": " ".join(line)}, line))


def test_a_command_line_that_the_first_stage_did_not_read_fails_the_proof():
    assert failed(state({**REPORT, "arguments": "quiet"})) == ["the command line is the one that the first stage read"]


def test_another_host_key_fails_and_that_of_an_identity_does_not_apply():
    assert failed(state(host_key="ssh-ed25519 BBBB")) == ["the SSH host key is the one that the node has reported"]
    assert failed(state({**REPORT, "host_keys": []}, host_key="")) == []
    identity = state({**REPORT, "host_keys": []}, has_identity=True)
    assert (failed(identity), proof(identity).counts.not_applicable) == ([], 1)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"rollback": "expiry"}, "rollback protection: expiry only"),
        ({"rollback": "expiry", "warnings": ["the TPM does not keep it"]}, "the TPM does not keep it"),
        ({"clock": "a clock is wrong: x", "warnings": ["a clock is wrong: x"]}, "a clock is wrong: x"),
    ],
)
def test_a_missing_tpm_and_a_wrong_clock_are_named_and_fail_no_node(change, reason):
    found = proof(state({**REPORT, **change}))
    assert found.holds
    assert reason in [claim.reason for claim in found.claims if claim.holds is None] or any(
        reason in claim.reason for claim in found.claims
    )


def test_settings_that_changed_since_the_boot_are_named_and_fail_no_node():
    plan = replace(PLAN, servers=("http://10.9.0.3",), nics=NICS[:1], report_url="", files="6" * 64, sequence=9)
    found = [claim.claim for claim in proof(state(), plan).claims if claim.holds is None]
    assert (failed(state(), plan), len(found)) == ([], 4)
    assert len(failed(state(), replace(plan, booted=True))) == 5
    assert len(failed(state(), replace(plan, sequence=7))) == 4


def test_an_image_whose_first_stage_knows_no_caches_is_named_and_fails_no_node():
    report = {key: value for key, value in REPORT.items() if key != "caches"}
    found = proof(state(report))
    assert found.holds
    assert [claim.holds for claim in found.claims if "caches are" in claim.claim] == [None]


def test_a_cache_that_lied_is_named_and_fails_no_node():
    lied = f"passed over: {CACHE} sent a wrong blobs/1: sha256 wanted 1, seen 2"
    found = proof(state({**REPORT, "warnings": [lied]}))
    assert found.holds
    assert [claim.holds for claim in found.claims if lied in claim.reason] == [None]


def test_an_image_of_an_earlier_version_is_compared_without_a_statement():
    image = replace(IMAGE.manifest, first_stage=replace(IMAGE.manifest.first_stage, knows=()))
    digest = manifests.digest(manifests.dump(image))
    line = [word.replace(IMAGE.digest, digest) for word in LINE]
    old = {key: REPORT[key] for key in list(REPORT)[: list(REPORT).index("mac")]}
    old |= {"image": digest, "arguments": " ".join(line)}
    report = {**old, "layers": [{**layer, "root_sha256": ""} for layer in old["layers"]]}
    found = proof(state(report, line), image=image)
    assert found.holds
    assert [claim.reason for claim in found.claims if claim.holds is None] == [boot_claims.NO_STATEMENT]
    other = [*line, "sailloft.servers=http://10.66.0.1"]
    assert not proof(state({**report, "arguments": " ".join(other)}, other), image=image).holds


def test_each_warning_of_the_first_stage_is_harmless_or_fails_the_proof():
    """The warnings of the script itself, by their first words."""
    failing = (
        "the image has neither",
        "the command line names image",
        "the command line names node",
        "the debug shell cannot be opened",
        "no SSH host key",
        # Of a crash kernel, which reports no boot.
        "the drivers of watchdogs do not load",
        "the kernel's messages were not sent",
        "the memory was not sent",
    )
    texts = re.findall(r'\bwarn "([^"$(]+)', INIT.read_text())
    assert len(texts) >= 8
    for text in texts:
        report = {**REPORT, "warnings": [f"{text}(1 MiB) and writable overlay"]}
        assert bool(failed(state(report))) == text.startswith(failing), text
    assert json.loads(json.dumps(REPORT)) == REPORT


SIGNED_PLAN = replace(PLAN, secure_boot=True)
SIGNED_LINE = [*IMAGE.manifest.kernel_arguments, "own=1", *sealed_words(IMAGE.digest)]
SIGNED = {**REPORT, "arguments": " ".join(SIGNED_LINE)}


def test_a_node_that_its_firmware_has_verified_holds():
    assert failed(state(SIGNED, SIGNED_LINE, secure_boot=True), SIGNED_PLAN) == []
    assert failed(state(secure_boot=None)) == []


@pytest.mark.parametrize("seen", [False, None])
def test_a_node_whose_firmware_verifies_nothing_fails_the_proof(seen):
    assert failed(state(SIGNED, SIGNED_LINE, secure_boot=seen), SIGNED_PLAN) == [boot_claims.VERIFIED]


def test_a_node_with_secure_boot_that_ipxe_has_booted_fails_the_proof():
    assert failed(state(secure_boot=True), SIGNED_PLAN)
    line = [*SIGNED_LINE, "BOOTIF=01-52-54-00-00-00-01"]
    assert failed(state({**SIGNED, "arguments": " ".join(line)}, line, secure_boot=True), SIGNED_PLAN)


ROGUE, OTHER_IMAGE = "http://10.66.0.1", "9" * 64


def words_with(begin, value, line=LINE):
    """Return the command line with another value of one of its words."""
    return [f"{begin}{value}" if word.startswith(begin) else word for word in line]


def layer_with(**changes):
    first, *others = REPORT["layers"]
    return {"layers": [{**first, **changes}, *others]}


# Each link of a boot, altered alone, as the node then shows it: changes of the report, the command line, and changes of
# the state. What no proof can see has no row here: docs/background/images.md names it ("nothing").
LINKS = {
    "DHCP names other boot servers": ({"server": ROGUE}, LINE, {}),
    "DHCP names another script, which names another image": ({}, words_with("sailloft.image=", OTHER_IMAGE), {}),
    "the script names other servers": ({}, words_with("sailloft.servers=", ROGUE), {}),
    "the script names another node": ({}, words_with("sailloft.node=", "bm02"), {}),
    "the script is that of another NIC": ({}, words_with("BOOTIF=", "01-52-54-00-00-00-02"), {}),
    "the firmware starts an unsigned program": (SIGNED, SIGNED_LINE, {"secure_boot": False}),
    "the firmware starts iPXE": ({}, LINE, {"secure_boot": True}),
    "the signed program is that of the image before": (
        {**SIGNED, "image": OTHER_IMAGE},
        words_with("sailloft.image=", OTHER_IMAGE, SIGNED_LINE),
        {"secure_boot": True},
    ),
    "the firmware adds to the signed command line": (SIGNED, [*SIGNED_LINE, "init=/bin/sh"], {"secure_boot": True}),
    "the kernel is another one": ({"kernel": "6.2"}, LINE, {"kernel": "6.2"}),
    "the kernel was replaced after the first stage": ({}, LINE, {"kernel": "6.2"}),
    "the command line has another word": ({}, [*LINE, "init=/bin/sh"], {}),
    "the image is another one": ({"image": OTHER_IMAGE}, words_with("sailloft.image=", OTHER_IMAGE), {}),
    "a layer is another one": (layer_with(sha256=OTHER_IMAGE), LINE, {}),
    "a layer's tree of hashes is another one": (layer_with(root_sha256=OTHER_IMAGE), LINE, {}),
    "a layer is not verified when it is read": (layer_with(verity=False), LINE, {}),
    "there is one layer more": ({"layers": [*REPORT["layers"], REPORT["layers"][0]]}, LINE, {}),
    "the statement is an old one": ({"statement": 6}, LINE, {}),
    "there was no statement": ({"statement": 0}, LINE, {}),
    "the statement has other servers": ({"servers": [ROGUE], "server": ROGUE}, LINE, {}),
    "the statement has other caches": ({"caches": [ROGUE]}, LINE, {}),
    "the statement has other NICs": ({"nics": [*NICS[:1], "ens1 10.66.0.5/24"]}, LINE, {}),
    "the statement has another URL for reports": ({"report_url": ROGUE}, LINE, {}),
    "the report to the site has another host key": ({}, LINE, {"host_key": "ssh-ed25519 BBBB"}),
}


@pytest.mark.parametrize("link", LINKS)
def test_the_proof_sees_each_altered_link_of_a_boot(link):
    changes, line, seen = LINKS[link]
    report = {**REPORT, **changes, "arguments": " ".join(line)}
    whole = state(report, line, **seen)
    plan = replace(SIGNED_PLAN if "secure_boot" in seen else PLAN, booted=True)
    assert failed(whole, plan)


@pytest.mark.parametrize("secure_boot", [False, True])
def test_the_same_boot_with_no_altered_link_holds_in_the_run_that_booted_it(secure_boot):
    report, line, plan = (SIGNED, SIGNED_LINE, SIGNED_PLAN) if secure_boot else (REPORT, LINE, PLAN)
    assert failed(state(report, line, secure_boot=secure_boot), replace(plan, booted=True)) == []


PROGRAM = boot_program(IMAGE.digest)
MEASURED_PLAN = replace(SIGNED_PLAN, prediction=measured.predict(IMAGE.digest, PROGRAM))


def as_measured(program: bytes = PROGRAM) -> dict[str, object]:
    """Return the registers and the firmware's log of a node that has booted this program."""
    found = measured.predict(IMAGE.digest, program)
    log = [measured.TRIES[0], *found.programs]
    pcrs = {pcr: values[-1] for pcr, values in found.pcrs.items()}
    return {"pcrs": {**pcrs, "4": measured.extended(measured.BEGIN, *log)}, "firmware_log": log}


def measured_claims(**seen):
    found = proof(state(SIGNED, SIGNED_LINE, secure_boot=True, **seen), MEASURED_PLAN).claims
    return {claim.claim.partition(":")[0]: claim for claim in found if claim.claim.startswith("PCR ")}


def test_a_node_whose_tpm_has_measured_the_image_holds():
    found = measured_claims(**as_measured())
    assert list(found) == [f"PCR {pcr}" for pcr in measurements.PCRS]
    assert all(claim.holds for claim in found.values())


def test_a_node_whose_tpm_has_measured_something_else_fails_the_proof():
    """The report is the image's own, as an altered first stage could write it."""
    seen = as_measured(boot_program(IMAGE.digest, initrd=b"altered first stage"))
    assert [pcr for pcr, claim in measured_claims(**seen).items() if not claim.holds] == ["PCR 4", "PCR 11"]
    seen = {**as_measured(), "firmware_log": None}
    assert [pcr for pcr, claim in measured_claims(**seen).items() if claim.holds is not True] == ["PCR 4"]


def test_without_a_tpm_or_a_prediction_no_register_is_claimed_to_hold():
    for plan, seen in ((MEASURED_PLAN, {"pcrs": None}), (SIGNED_PLAN, as_measured())):
        found = proof(state(SIGNED, SIGNED_LINE, secure_boot=True, **seen), plan)
        assert [claim.holds for claim in found.claims if claim.claim == boot_claims.MEASURED] == [None]
        assert not [claim for claim in found.claims if claim.claim.startswith("PCR ")]
