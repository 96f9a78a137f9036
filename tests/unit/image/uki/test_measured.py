# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Predicted PCRs: equal to those of systemd's own tool, and other ones for each altered part of a boot."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from messages import raises
from programs import boot_program, program

from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.errors import ImageError
from ansible_collections.sailloft.fleet.plugins.module_utils.image.node import measurements
from ansible_collections.sailloft.fleet.plugins.module_utils.image.uki import authenticode, measured

IMAGE, OTHER = "1" * 64, "2" * 64
PREDICTION = measured.predict(IMAGE, boot_program(IMAGE))
CALLING, RETURNING, SEPARATOR = measured.TRIES
SYSTEMD = Path("/usr/lib/systemd/systemd-measure")


def booted(image: str = IMAGE, firmware: tuple[str, ...] = (CALLING, SEPARATOR), **changed: bytes) -> measured.Seen:
    """Return what a TPM has measured after a boot of an image, whose program has ``changed`` sections."""
    found = measured.predict(image, boot_program(image, **changed))
    log = [*firmware, *found.programs]
    pcrs = {pcr: values[-1] for pcr, values in found.pcrs.items()}
    return measured.Seen({**pcrs, "4": measured.extended(measured.BEGIN, *log)}, log)


def wrong(seen: measured.Seen) -> list[str]:
    """Return the numbers of the PCRs that are not as predicted."""
    return [one.pcr for one in measured.verdicts(PREDICTION, seen) if one.problem]


@pytest.mark.skipif(not SYSTEMD.exists(), reason="no systemd-measure here")
def test_the_program_is_measured_as_systemd_measures_it(tmp_path):
    sections = authenticode.sections(boot_program(IMAGE))
    options = []
    for name in measured.MEASURED:
        (tmp_path / name).write_bytes(sections[name])
        options.append(f"--{name[1:]}={tmp_path / name}")
    phases = ["--phase=:", "--phase=sysinit", "--phase=sysinit:ready"]
    command = [SYSTEMD, "calculate", "--bank=sha256", *options, *phases]
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    assert tuple(line.partition("=")[2] for line in output.splitlines()) == PREDICTION.pcrs["11"]


def test_a_boot_of_the_image_is_as_predicted_whenever_it_is_read():
    seen = booted()
    assert wrong(seen) == []
    for value in PREDICTION.pcrs["11"]:
        assert wrong(replace(seen, pcrs={**seen.pcrs, "11": value})) == []
    # The firmware has tried another device first; a stub of version 258 starts the kernel itself.
    again = (CALLING, SEPARATOR, RETURNING, CALLING)
    assert wrong(booted(firmware=again)) == []
    log = [CALLING, SEPARATOR, PREDICTION.programs[0]]
    assert wrong(measured.Seen({**seen.pcrs, "4": measured.extended(measured.BEGIN, *log)}, log)) == []


@pytest.mark.parametrize("section", ["cmdline", "initrd", "linux", "uname", "osrel", "sbat"])
def test_an_altered_section_is_seen(section):
    changed = program(text=b"another kernel") if section == "linux" else b"altered"
    assert wrong(booted(**{section: changed})) == ["4", "11"]


def test_another_image_is_seen():
    assert wrong(booted(OTHER)) == ["4", "8", "11"]


def test_each_altered_register_is_seen():
    seen = booted()
    for pcr in measurements.PCRS:
        assert wrong(replace(seen, pcrs={**seen.pcrs, pcr: "3" * 64})) == [pcr]
        assert wrong(replace(seen, pcrs={name: value for name, value in seen.pcrs.items() if name != pcr})) == [pcr]


def test_another_program_in_the_firmwares_log_is_named():
    loader = "4" * 64
    for firmware in ((CALLING, SEPARATOR, loader), (CALLING, SEPARATOR, loader, RETURNING, CALLING)):
        verdict = measured.verdicts(PREDICTION, booted(firmware=firmware))[0]
        assert loader in verdict.problem


def test_a_log_that_is_missing_or_does_not_fit_the_register_proves_nothing():
    seen = booted()
    loader = booted(firmware=(CALLING, SEPARATOR, "4" * 64))
    assert wrong(replace(seen, log=None)) == ["4"]
    assert wrong(replace(loader, log=seen.log)) == ["4"]
    assert wrong(measured.Seen({**seen.pcrs, "4": measured.BEGIN}, [])) == ["4"]
    # What a node sends may be anything.
    assert wrong(measured.Seen(seen.pcrs, [*seen.log, "no digest"])) == ["4"]
    kernel = [CALLING, SEPARATOR, PREDICTION.programs[1]]
    assert wrong(measured.Seen({**seen.pcrs, "4": measured.extended(measured.BEGIN, *kernel)}, kernel)) == ["4"]


def test_a_prediction_is_read_as_it_was_written():
    assert measured.load(measured.dump(PREDICTION), IMAGE) == PREDICTION
    with raises(ImageError, OTHER, IMAGE):
        measured.load(measured.dump(PREDICTION), OTHER)
    for data in (b"", b"{", b"[]", measured.dump(PREDICTION).replace(PREDICTION.programs[0].encode(), b"x")):
        with raises(ImageError, IMAGE):
            measured.load(data, IMAGE)


@pytest.mark.parametrize("data", [b"", b"MZ", program(linux=b"kernel"), boot_program(IMAGE, linux=b"kernel")])
def test_a_program_of_another_form_is_refused(data):
    with raises(ImageError, IMAGE):
        measured.predict(IMAGE, data)
