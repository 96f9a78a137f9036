# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Claims about everything else that an attacker on the boot network could have changed. Pure.

Each field of the boot report and each word of the kernel's command line has a claim here or in ``claims``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ansible_collections.sailloft.fleet.plugins.module_utils.image.node.boot_report import PATH
from ansible_collections.sailloft.fleet.plugins.module_utils.image.node.node_state import SECURE_BOOT
from ansible_collections.sailloft.fleet.plugins.module_utils.image.serving.boot_script import (
    INITRD,
    NICS_ARGUMENT,
    boot_words,
    checked_mac,
    sealed_words,
    stated_nics,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.image.store import node_files
from ansible_collections.sailloft.fleet.plugins.module_utils.image.store.manifest import Manifest
from ansible_collections.sailloft.fleet.plugins.module_utils.image.store.statement import FORMAT
from ansible_collections.sailloft.fleet.plugins.module_utils.image.uki import measured
from ansible_collections.sailloft.fleet.plugins.module_utils.image.uki.measured import Prediction
from ansible_collections.sailloft.fleet.plugins.module_utils.proof.claims import Claim, compare, not_applicable

BOOT = "boot"
COMMAND_LINE = "/proc/cmdline"
VERIFIED = "the firmware has verified what it started"
MEASURED = "the node's TPM has measured this image and nothing else"
SEQUENCE = "the node boots only what the site has signed for it"
NO_STATEMENT = "the image's first stage knows no statement; build the image again with this version"
NO_CACHES = "the image's first stage knows no caches; build the image again with this version"
# Warnings of the first stage that say nothing about what was booted, or that have claims of their own.
HARMLESS = re.compile(
    r"a clock is wrong: |passed over: |the TPM does not |"
    r"this kernel has no (NUMA policy|dm-verity)|layers \(\d+ MiB\) and writable"
)


@dataclass(frozen=True)
class NodePlan:
    """The inventory's plan of a node's boot; ``nics`` are the lines of its statement, ``files`` its files' digest.

    With ``secure_boot``, its firmware starts only signed programs. ``sequence`` is that of the boot servers' statement,
    0 if it is unknown; ``booted``: whether this run has booted the node, so that it must have used this statement.
    ``prediction`` is what a boot of its image measures, None if the image was built without it.
    """

    mac: str
    servers: tuple[str, ...]
    report_url: str = ""
    nics: tuple[str, ...] = ()
    sequence: int = 0
    booted: bool = False
    secure_boot: bool = False
    prediction: Prediction | None = None
    files: str = ""
    caches: tuple[str, ...] = ()

    @classmethod
    def of_options(cls, name: str, options: Mapping[str, Any]) -> NodePlan:
        """Build an instance from the options of node_image_proof. Raises ImageError."""
        mac = checked_mac(options["mac"], f"node {name}").replace("-", ":")
        nics = tuple(stated_nics(mac, options["nics"], f"node {name}"))
        terms = (options["report"], nics, options["sequence"], options["booted"], options["secure_boot"])
        prediction = measured.load(options["prediction"], options["digest"]) if options["prediction"] else None
        files = node_files.digest_of(options["files"])
        return cls(mac, tuple(options["servers"]), *terms, prediction, files, tuple(options["caches"]))


def claims(name: str, digest: str, manifest: Manifest, plan: NodePlan, state: Mapping[str, Any]) -> list[Claim]:
    """Return the claims about the boot of the node ``name``; ``state`` as node_image_info reads it."""
    # Tuples, if the report did not come as JSON.
    report = {
        key: list(value) if isinstance(value, tuple) else value for key, value in (state.get("report") or {}).items()
    }
    result = [
        compare(BOOT, "the first stage booted this node", name, report.get("node"), PATH),
        compare(BOOT, "the image's name is that of its manifest", manifest.name, report.get("name"), PATH),
        compare(BOOT, "the first stage ran in the image's kernel", manifest.kernel.version, report.get("kernel"), PATH),
        compare(
            BOOT,
            "the writable layer has the image's size",
            manifest.writable_mib << 20,
            report.get("writable_bytes"),
            PATH,
        ),
        compare(
            BOOT,
            "the command line is the one that the first stage read",
            report.get("arguments", "that of the boot report"),
            state.get("command_line"),
            COMMAND_LINE,
        ),
        _host_key(report, state),
        _warnings(report),
    ]
    if plan.secure_boot:
        result += [compare(BOOT, VERIFIED, True, state.get("secure_boot"), SECURE_BOOT), *_measured(plan, state)]
    if FORMAT in manifest.first_stage.knows:
        return [*result, _words(plan, report, state), *_statement(plan, report), *_settings(plan, report)]
    planned = _words_before_statements(name, digest, plan)
    words_claim = _compared_words(planned, state.get("boot_arguments"))
    return [*result, words_claim, not_applicable(BOOT, SEQUENCE, "a statement", PATH, NO_STATEMENT)]


def _measured(plan: NodePlan, state: Mapping[str, Any]) -> list[Claim]:
    """Compare the TPM's registers with those that the image predicts."""
    source, pcrs = "/sys/class/tpm/tpm0/pcr-sha256", state.get("pcrs")
    if plan.prediction is None or pcrs is None:
        reason = "the node has no TPM" if plan.prediction else f"the image has no prediction; {measured.AGAIN}"
        return [not_applicable(BOOT, MEASURED, "predicted PCRs", source, reason)]
    verdicts = measured.verdicts(plan.prediction, measured.Seen(pcrs, state.get("firmware_log")))
    return [
        Claim(BOOT, f"PCR {row.pcr}: {row.says}", list(row.wanted), row.seen, not row.problem, source, row.problem)
        for row in verdicts
    ]


def _compared_words(planned: Sequence[str], seen: Sequence[str] | None) -> Claim:
    claim = "the command line has no other words of the boot than its script writes"
    return compare(BOOT, claim, list(planned), seen, COMMAND_LINE)


def _words(plan: NodePlan, report: Mapping[str, Any], state: Mapping[str, Any]) -> Claim:
    """Compare the words for the first stage with what the statement said when the node booted.

    With Secure Boot, they are signed with the kernel. Otherwise they decide nothing; that they are others shows an
    altered script. The script gives the servers
    in the inventory's order, the report in the node's. The word about NICs is for other first stages.
    """
    seen = state.get("boot_arguments")
    if plan.secure_boot:
        return _compared_words(sealed_words(report.get("image", "")), seen)
    seen = None if seen is None else [word for word in seen if word != NICS_ARGUMENT]
    stated: list[str] = next(
        (word.partition("=")[2].split(",") for word in seen or [] if word.startswith("sailloft.servers=")), []
    )
    servers = stated if sorted(stated) == sorted(report.get("servers", [])) else report.get("servers", [])
    settings = (report.get("image", ""), ",".join(servers), report.get("node", ""), report.get("report_url", ""))
    return _compared_words([INITRD, *boot_words(*settings, report.get("mac", "").replace(":", "-"))], seen)


def _words_before_statements(name: str, digest: str, plan: NodePlan) -> list[str]:
    mac = plan.mac.replace(":", "-")
    nics = [] if plan.nics == (f"{plan.mac} dhcp",) else [NICS_ARGUMENT]
    return [INITRD, *nics, *boot_words(digest, ",".join(plan.servers), name, plan.report_url, mac)]


def _statement(plan: NodePlan, report: Mapping[str, Any]) -> list[Claim]:
    sequence, clock, rollback = (report.get(key) for key in ("statement", "clock", "rollback"))
    minimum = max(plan.sequence, 1) if plan.booted else 1
    holds = (sequence or 0) >= minimum
    # The next run, in which the node does not boot, knows only this much: its proof then does not change.
    wanted = "a signed statement" if holds else f"statement {minimum} or later"
    result = [
        Claim(BOOT, SEQUENCE, wanted, sequence, holds, PATH),
        compare(BOOT, "the node booted by its NIC", plan.mac, report.get("mac"), PATH),
    ]
    claim = "the node refuses older statements than it has seen"
    if rollback == "expiry":
        reasons = [text for text in report.get("warnings", []) if text.startswith("the TPM ")]
        reason = (reasons or ["rollback protection: expiry only, the node has no TPM"])[0]
        result.append(not_applicable(BOOT, claim, "TPM", PATH, reason, rollback))
    else:
        result.append(compare(BOOT, claim, "TPM", rollback, PATH))
    right = "the node's clock is not before its statement"
    result.append(
        not_applicable(BOOT, right, "", PATH, str(clock), clock) if clock else compare(BOOT, right, "", clock, PATH)
    )
    return result


def _settings(plan: NodePlan, report: Mapping[str, Any]) -> list[Claim]:
    """Compare the settings that the statement gave the node with the inventory's, which may be later than its boot."""
    servers = report.get("servers")
    rows = [
        ("the node's boot servers are the inventory's", sorted(plan.servers), servers and sorted(servers)),
        ("the node reports to the inventory's URL", plan.report_url, report.get("report_url")),
        ("the first stage has configured the inventory's NICs", list(plan.nics), report.get("nics")),
        ("the node has the inventory's files of its own", plan.files, report.get("files")),
    ]
    sequence = report.get("statement") or 0
    later = 0 < sequence < plan.sequence and not plan.booted
    caches, result = report.get("caches"), []
    by_caches = "the node's caches are the inventory's"
    if report and caches is None:
        result.append(not_applicable(BOOT, by_caches, sorted(plan.caches), PATH, NO_CACHES))
    else:
        rows.append((by_caches, sorted(plan.caches), caches and sorted(caches)))
    for claim, wanted, seen in rows:
        if later and seen is not None and seen != wanted:
            reason = f"it booted by statement {sequence}, now there is {plan.sequence}; it takes effect when it boots"
            result.append(not_applicable(BOOT, claim, wanted, PATH, reason, seen))
        else:
            result.append(compare(BOOT, claim, wanted, seen, PATH))
    server, stated = report.get("server"), [*(servers or []), *(caches or [])]
    last = "the last layer came from one of these servers or caches"
    result.append(Claim(BOOT, last, stated, server, server is not None and server in stated, PATH))
    return result


def _host_key(report: Mapping[str, Any], state: Mapping[str, Any]) -> Claim:
    """Compare the host key that the first stage has reported with the one that the node has."""
    claim, source = "the SSH host key is the one that the node has reported", "/etc/ssh/ssh_host_ed25519_key.pub"
    reported, key = report.get("host_keys"), state.get("host_key")
    if state.get("has_identity"):
        return not_applicable(BOOT, claim, reported, source, "the node has an identity, with its own host key", key)
    return compare(BOOT, claim, reported, None if key is None else [key] * bool(key), source)


def _warnings(report: Mapping[str, Any]) -> Claim:
    warnings = report.get("warnings")
    harmful = [text for text in warnings or [] if not HARMLESS.match(text)]
    claim = "the first stage has warned of nothing"
    if warnings and not harmful:
        return not_applicable(BOOT, claim, [], PATH, "; ".join(warnings), warnings)
    return compare(BOOT, claim, [], harmful if warnings is not None else None, PATH)
