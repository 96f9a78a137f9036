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


def with_policies(prediction, pair, signed=None):
    key, certificate = pair
    return policy.with_policies(prediction, lambda data: policy.sign_by_key(data, key), certificate, signed or {})


def test_the_same_image_and_key_give_the_same_policies(pair):
    keys = pair("rsa:2048")
    once = with_policies(PREDICTION, keys)
    assert once == with_policies(PREDICTION, keys)
    assert len(once.policies) == 2 * policy.MOST_TRIES
    assert measured.load(measured.dump(once), IMAGE) == once
    other = with_policies(measured.predict("2" * 64, boot_program("2" * 64)), keys)
    assert not set(once.policies) & set(other.policies)


def test_a_signature_that_holds_is_not_made_again(pair):
    """A token signs slowly, and its signatures are counted."""
    keys = pair("rsa:2048")
    once = with_policies(PREDICTION, keys)
    first, second = list(once.policies)[:2]
    asked = []

    def sign(data):
        asked.append(data.hex())
        return policy.sign_by_key(data, keys[0])

    stored = {**once.policies, first: once.policies[second], second: "?"}
    assert policy.with_policies(PREDICTION, sign, keys[1], stored) == once
    assert asked == [first, second]


def test_another_kind_of_key_signs_no_policies_and_binds_nothing(pair):
    key, certificate = pair("rsa:3072")
    assert policy.rsa_2048_key(certificate) is None
    with raises(ImageError, certificate, "RSA"):
        policy.public_key(certificate)
    with raises(ImageError, "openssl x509"):
        policy.public_key(key)


def test_what_a_signer_gives_is_verified(pair):
    _key, certificate = pair("rsa:2048")
    with raises(ImageError, "node_image_secure_boot", certificate):
        policy.with_policies(PREDICTION, lambda data: b"not a signature", certificate, {})
