# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Images with a signed kernel, from Debian's archives and with the real signer."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import secure_boot
from build_host import BuildHost

from ansible_collections.sailloft.fleet.plugins.module_utils.image.uki import authenticode, measured


def test_an_image_gets_a_signed_kernel_with_the_same_bytes_each_time(site: BuildHost, requested: dict, tmp_path: Path):
    signer = secure_boot.make_pair(tmp_path, "site")
    host = replace(site, secure_boot=signer)
    [outcome], _lines, _seconds = host.checking().build(requested)
    place = Path(host.store.place("images", outcome.digest, "boot.efi"))
    assert (outcome.changed, outcome.built, place.exists()) == (True, (), False)
    assert any("boot.efi" in line for line in outcome.diff)

    [outcome], _lines, _seconds = host.build(requested)
    assert outcome.changed
    once = place.read_bytes()
    unsigned = next((host.cache / "ukis").iterdir()).read_bytes()
    assert authenticode.is_signed(once, unsigned, signer.certificate)
    prediction = place.with_name("pcrs.json").read_bytes()
    assert prediction == signer.predict(outcome.digest, once, prediction)
    assert len(measured.load(prediction, outcome.digest).policies) == 8
    words = f"sailloft.image={outcome.digest} sailloft.signed=1"
    assert words.encode() in once
    [outcome], _lines, seconds = host.build(requested)
    assert not outcome.changed
    assert seconds < 30

    # Made anew, it has the same bytes, with its signature; an altered one is replaced.
    next((host.cache / "ukis").iterdir()).unlink()
    os.remove(place)
    host.build(requested)
    assert place.read_bytes() == once
    place.write_bytes(once.replace(b"sailloft.signed=1", b"sailloft.signed=0"))
    assert host.build(requested)[0][0].changed
    assert place.read_bytes() == once

    # A new key signs the same image again.
    other = secure_boot.make_pair(tmp_path, "other")
    [changed], _lines, _seconds = replace(site, secure_boot=other).build(requested)
    assert (changed.changed, changed.digest) == (True, outcome.digest)
    assert authenticode.is_signed(place.read_bytes(), unsigned, other.certificate)
