# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Signed policies of an image's boots. That a TPM takes them is tested with a software TPM (tests/identity)."""

from __future__ import annotations

import subprocess

import pytest
from messages import raises
from programs import boot_program

from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.errors import ImageError
from ansible_collections.sailloft.fleet.plugins.module_utils.image.uki import measured, policy

IMAGE = "1" * 64
PREDICTION = measured.predict(IMAGE, boot_program(IMAGE))


@pytest.fixture
def pair(tmp_path):
    """pair(key): make a key of this kind and its certificate."""

    def make(kind: str):
        key, certificate = tmp_path / "boot.key", tmp_path / "boot.crt"
        command = ["openssl", "req", "-new", "-x509", "-newkey", kind, "-noenc", "-subj", "/CN=site"]
        subprocess.run([*command, "-keyout", key, "-out", certificate], check=True, capture_output=True)
        return key, certificate

    return make


def test_the_same_image_and_key_give_the_same_policies(pair):
    found = pair("rsa:2048")
    once = policy.with_policies(PREDICTION, *found)
    assert once == policy.with_policies(PREDICTION, *found)
    assert len(once.policies) == 2 * policy.MOST_TRIES
    assert measured.load(measured.dump(once), IMAGE) == once
    other = policy.with_policies(measured.predict("2" * 64, boot_program("2" * 64)), *found)
    assert not set(once.policies) & set(other.policies)


def test_another_kind_of_key_signs_no_policies_and_binds_nothing(pair):
    key, certificate = pair("rsa:3072")
    assert policy.with_policies(PREDICTION, key, certificate) == PREDICTION
    with raises(ImageError, certificate, "RSA"):
        policy.public_key(certificate)
    with raises(ImageError, "openssl x509"):
        policy.public_key(key)
