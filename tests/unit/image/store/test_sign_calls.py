# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""minisign's calls: arguments, input and environment in order, its refusals, and valid public keys."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from messages import raises

from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.errors import ImageError
from ansible_collections.sailloft.fleet.plugins.module_utils.image.store import sign

KEY = "RW" + "Ab0+/9" * 9


@pytest.fixture
def secret(tmp_path):
    (tmp_path / "image.key").write_bytes(b"secret key")
    return tmp_path / "image.key"


@pytest.fixture
def minisign(monkeypatch):
    """Replace minisign: it signs with the text "signed MESSAGE", and fails where ``answers`` has an output.

    Returns (calls, answers): a call is (arguments, input, environment), with the contents of files instead of paths.
    """
    calls, answers = [], []
    monkeypatch.setattr(sign, "require", lambda tool: calls.append(f"require {tool}"))
    monkeypatch.setenv("PATH", "/opt/bin")

    def run(argv, check, input, stdout, stderr, text, errors, pass_fds, env):
        passed = {f"/proc/self/fd/{number}": os.pread(number, 1000, 0).decode() for number in pass_fds}
        calls.append(([passed.get(word, word) for word in argv], input, env))
        answer = answers.pop(0) if answers else None
        if answer is None and argv[1] == "-C":
            Path(argv[-1]).write_bytes(b"open key")
        if answer is None and argv[1] == "-S":
            Path(argv[-1]).write_bytes(b"signed " + passed[argv[-3]].encode())
        return subprocess.CompletedProcess(argv, 0 if answer is None else 1, answer or "")

    monkeypatch.setattr(sign.subprocess, "run", run)
    return calls, answers


ENVIRONMENT = {"PATH": "/opt/bin:/usr/local/sbin:/usr/sbin:/sbin:/usr/bin:/bin", "LC_ALL": "C.UTF-8"}


@pytest.mark.parametrize("password", [None, "pass word", ""])
def test_each_message_is_signed_and_the_first_is_verified(minisign, secret, password):
    calls, _answers = minisign
    before = os.listdir("/proc/self/fd")
    assert sign.signatures([b"a", b"b"], secret, KEY, password, sign.Comments("trusted", "untrusted")) == [
        b"signed a",
        b"signed b",
    ]
    key = "secret key" if password is None else "open key"
    decrypted = (["minisign", "-C", "-W", "-s", "secret key"], f"{password}\n", ENVIRONMENT)
    options = ["minisign", "-S", "-s", key, "-t", "trusted", "-c", "untrusted"]
    assert calls == [
        "require minisign",
        *([] if password is None else [decrypted]),
        ([*options, "-m", "a", "-x", ""], "", ENVIRONMENT),
        ([*options, "-m", "b", "-x", ""], "", ENVIRONMENT),
        (["minisign", "-V", "-q", "-P", KEY, "-m", "a", "-x", "signed a"], "", ENVIRONMENT),
    ]
    assert secret.read_bytes() == b"secret key"
    assert os.listdir("/proc/self/fd") == before


def test_a_manifest_is_signed_with_constant_comments(minisign, secret):
    calls, _answers = minisign
    (secret.parent / "image.pub").write_text(KEY)
    signer = sign.Signer(str(secret), str(secret.parent / "image.pub"), "password")
    assert signer.sign([b"manifest"], sign.MANIFEST) == [b"signed manifest"]
    assert "password'" not in repr(signer)
    assert calls[2][0][4:8] == ["-t", "sailloft image manifest", "-c", "signature of a sailloft image manifest"]


def test_a_signature_is_verified_with_the_public_key(minisign):
    calls, answers = minisign
    assert sign.verifies(b"manifest", b"signature", KEY) is True
    answers.append("Signature verification failed")
    assert sign.verifies(b"manifest", b"signature", KEY) is False
    argv = ["minisign", "-V", "-q", "-P", KEY, "-m", "manifest", "-x", "signature"]
    assert calls == ["require minisign", (argv, "", ENVIRONMENT)] * 2


@pytest.mark.parametrize(
    ("output", "told"),
    [
        ("Password: \nDeriving a key from the password and decrypting the secret key... done\nWrong\n", "Wrong"),
        ("Password: get_password()", "it has a password, but none was given"),
        ("", "minisign gave no reason"),
    ],
)
def test_a_failed_signature_is_refused_with_the_reason(minisign, secret, output, told):
    calls, answers = minisign
    answers.append(output)
    with raises(ImageError, secret, told):
        sign.signatures([b"manifest"], secret, KEY, None, sign.MANIFEST)
    assert len(calls) == 2


def test_a_secret_key_that_cannot_be_read_is_refused(minisign, tmp_path):
    with raises(ImageError, f"{tmp_path}/none.key: No such file or directory"):
        sign.signatures([b"manifest"], tmp_path / "none.key", KEY, None, sign.MANIFEST)


def test_a_signature_of_another_key_is_refused(minisign, secret):
    _calls, answers = minisign
    answers += [None, "Signature key id in FILE is A"]
    with raises(ImageError, secret, "Signature key id in FILE is A", "public key"):
        sign.signatures([b"manifest"], secret, KEY, None, sign.MANIFEST)


@pytest.mark.parametrize("text", ["{key}", "untrusted comment: minisign\n{key}\n", "\n  {key} \n\n"])
def test_the_line_of_a_public_key_is_read(tmp_path, text):
    (tmp_path / "image.pub").write_text(text.format(key=KEY))
    assert sign.read_public_key(tmp_path / "image.pub") == KEY


@pytest.mark.parametrize("text", ["", KEY[:-1], f"{KEY}A", f"{KEY}\n{KEY}", f"comment\n{KEY}", f"RX{KEY[2:]}"])
def test_a_file_without_exactly_one_public_key_is_refused(tmp_path, text):
    (tmp_path / "image.pub").write_text(text)
    with raises(ImageError, f"{tmp_path}/image.pub", "minisign public key"):
        sign.read_public_key(tmp_path / "image.pub")


def test_a_missing_public_key_is_refused(tmp_path):
    with raises(ImageError, f"{tmp_path}/image.pub: No such file or directory"):
        sign.read_public_key(tmp_path / "image.pub")
