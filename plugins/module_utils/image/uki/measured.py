# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The PCRs of a TPM after a boot of an image's program, predicted from the program and the image's digest. Pure.

A PCR is a register that can only be extended: its new value is the sha256 of the old one and of the digest of what is
measured. Nothing is learned from a boot. Systemd's own tool (systemd-measure) predicts PCR 11 only, and needs the
libraries of its suite; the rules are few lines, and a test compares both.

PCR 4: the firmware measures each program that it starts, and that it starts one. How often it tries depends on the
       firmware and its boot order, so this PCR has no predicted value: the digests in the firmware's log are compared.
PCR 8: the first stage measures the image's digest, after it has verified all of the image. No other part of these boots
       uses it: GRUB does, which starts no UKI.
PCR 11: systemd-stub measures its sections, and systemd in the image the phases of the boot, if the image has libtss2.
PCR 12, 13: systemd-stub measures settings and extensions that are not in the program. There are none.

PCR 7 (the firmware's keys) is not compared: it depends on all keys of the maker and on updates of dbx, and PCR 4 says
which program has started, whoever has signed it. PCR 0 to 3 are the firmware's own.

Sources: TCG, "PC Client Platform Firmware Profile", 2.3.4 and 3.3; UAPI group, "Linux TPM PCR Registry"; systemd,
"TPM2 PCR Measurements Made by systemd", and src/boot/stub.c of version 257.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field

from ansible_collections.sailloft.fleet.plugins.module_utils.common import stored
from ansible_collections.sailloft.fleet.plugins.module_utils.common.stored import StoredError
from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.errors import ImageError
from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.files import DIGEST, canonical_json
from ansible_collections.sailloft.fleet.plugins.module_utils.image.node.measurements import (
    EXTENSIONS,
    FIRMWARE,
    IMAGE,
    PROGRAM,
    SETTINGS,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.image.uki import authenticode

FORMAT = "sailloft-pcrs/1"
AGAIN = "build the image again (playbooks/node_images.yml)"
BEGIN = "0" * 64
# The sections of our programs that the stub measures, in its order.
MEASURED = (".linux", ".osrel", ".cmdline", ".initrd", ".uname", ".sbat")
PHASES = ("sysinit", "ready")
# What the firmware measures into PCR 4 besides programs: each try to boot, its end, and the end of its own preparation.
TRIES = tuple(
    hashlib.sha256(text).hexdigest()
    for text in (
        b"Calling EFI Application from Boot Option",
        b"Returning from EFI Application from Boot Option",
        bytes(4),
    )
)


@dataclass(frozen=True)
class Prediction:
    """The measurements of a boot of the image ``image``.

    ``programs`` are the digests of the programs that firmware starts: the image's, and the kernel in it, which some
    stubs let the firmware start (that of systemd 257 did not). ``pcrs`` are the values that a PCR may have, by its
    number. ``policies`` are those of ``policy``, hexadecimal, with their signatures by ``policy_key``, in base64; empty
    if the site signs none.
    """

    image: str
    programs: tuple[str, ...]
    pcrs: dict[str, tuple[str, ...]]
    policy_key: str = ""
    policies: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Seen:
    """The values of PCRs by number, and the digests in the firmware's log of PCR 4, None if it cannot be read."""

    pcrs: Mapping[str, str]
    log: Sequence[str] | None


@dataclass(frozen=True)
class PcrVerdict:
    """One PCR: its number, what it says, the values that are right, the one that was seen, and why it is not right."""

    pcr: str
    says: str
    wanted: tuple[str, ...]
    seen: str | None
    problem: str = ""


def extended(value: str, *measured: str) -> str:
    """Return the value of a PCR after measurements, whose digests these are; all are hexadecimal."""
    for digest in measured:
        value = hashlib.sha256(bytes.fromhex(value + digest)).hexdigest()
    return value


def predict(image: str, program: bytes) -> Prediction:
    """Return what a boot of the image's program measures; its signature makes no difference. Raises ImageError."""
    subject = f"program of image {image}"
    program_sections = authenticode.sections(program) if authenticode.unsigned(program) else {}
    missing = [name for name in MEASURED if name not in program_sections]
    if missing or not authenticode.unsigned(program_sections[".linux"]):
        reason = f"has no section {missing[0]}" if missing else "its kernel is no program of 64-bit firmware"
        raise ImageError(reason, "use a kernel with an EFI stub, as those of the distributions", subject=subject)
    phases = [extended(BEGIN, *measurements_of(program))]
    for phase in PHASES:
        phases.append(extended(phases[-1], _sha256(phase.encode())))
    pcrs = {IMAGE: (extended(BEGIN, image),), PROGRAM: tuple(phases), SETTINGS: (BEGIN,), EXTENSIONS: (BEGIN,)}
    programs = (authenticode.digest(program), authenticode.digest(program_sections[".linux"]))
    return Prediction(image, programs, pcrs)


def measurements_of(program: bytes) -> list[str]:
    """Return the digests that the stub of an image's program measures into PCR 11: a section's name, its content."""
    program_sections = authenticode.sections(program)
    return [_sha256(data) for name in MEASURED for data in (name.encode() + b"\0", program_sections[name])]


def dump(prediction: Prediction) -> bytes:
    """Return the bytes of pcrs.json; ``load`` is the inverse."""
    return canonical_json({"format": FORMAT, **asdict(prediction)})


def load(data: bytes | str, image: str) -> Prediction:
    """Parse the prediction of this image. Raises ImageError."""
    subject = f"prediction of image {image}"
    try:
        prediction: Prediction = stored.load(Prediction, json.loads(data), FORMAT, "prediction of PCRs", AGAIN)
    except StoredError as error:
        raise ImageError(error.cause, error.remedy, subject=subject) from error
    except (ValueError, RecursionError) as error:
        raise ImageError(f"not a prediction of PCRs: {error}", AGAIN, subject=subject) from error
    values = [*prediction.programs, *(value for values in prediction.pcrs.values() for value in values)]
    if prediction.image != image or not prediction.programs or not all(map(DIGEST.fullmatch, values)):
        raise ImageError(f"is that of image {prediction.image}, or not complete", AGAIN, subject=subject)
    return prediction


def verdicts(prediction: Prediction, seen: Seen) -> list[PcrVerdict]:
    """Return the comparison of each PCR, in their order."""
    texts = {
        IMAGE: "the first stage has verified this image",
        PROGRAM: "the kernel, first stage and command line are the image's",
        SETTINGS: "nothing was added to the command line",
        EXTENSIONS: "the program has loaded no extension",
    }
    checked = [_firmware_verdict(prediction, seen)]
    for pcr, text in texts.items():
        wanted, value = prediction.pcrs.get(pcr, ()), seen.pcrs.get(pcr)
        problem = "" if value in wanted else "another value than predicted" if value else "it could not be read"
        checked.append(PcrVerdict(pcr, text, wanted, value, problem))
    return checked


def _firmware_verdict(prediction: Prediction, seen: Seen) -> PcrVerdict:
    """Compare the programs that the firmware has started, by its log, if PCR 4 says that this log is true."""
    value, log = seen.pcrs.get(FIRMWARE), seen.log
    # A node's own words: it may send anything.
    if log is not None and not all(DIGEST.fullmatch(str(digest)) for digest in log):
        log = None
    programs = [digest for digest in log or () if digest not in TRIES]
    foreign = [digest for digest in programs if digest not in prediction.programs]
    if value is None:
        problem = "it could not be read"
    elif log is None:
        problem = "the firmware's log could not be read"
    elif extended(BEGIN, *log) != value:
        problem = "the firmware's log is not that of this boot"
    elif foreign:
        problem = f"the firmware has started another program, {foreign[0]}"
    elif programs[:1] != [prediction.programs[0]]:
        problem = "the firmware has not started the image's program"
    else:
        problem = ""
    text = "the firmware has started nothing but the image's program"
    return PcrVerdict(FIRMWARE, text, prediction.programs, value, problem)


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
