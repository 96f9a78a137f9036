# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""minisign's calls: arguments, input and environment in order, its refusals, and valid public keys."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.errors import ImageError
from ansible_collections.sailloft.fleet.plugins.module_utils.image.store import sign

KEY = "RW" + "Ab0+/9" * 9
SECRET = Path("/keys/image.key")


@pytest.fixture
def minisign(monkeypatch, tmp_path):
    """Replace minisign: it signs with the text "signed MESSAGE", and fails where ``answers`` has an output.

    Returns (calls, answers): a call is (arguments, input, environment), with names of files instead of paths.
    """
    calls, answers = [], []
    monkeypatch.setattr(sign, "MEMORY", str(tmp_path))
    monkeypatch.setattr(sign, "require", lambda tool: calls.append(f"require {tool}"))
    monkeypatch.setenv("PATH", "/opt/bin")

    def run(argv, check, input, stdout, stderr, text, errors, env):
        calls.append(([os.path.basename(word) for word in argv], input, env))
        if argv[1] == "-S":
            for path in argv[argv.index("-m") + 1 :]:
                Path(f"{path}.minisig").write_bytes(b"signed " + path.read_bytes())
        answer = answers.pop(0) if answers else None
        if check and answer is not None:
            raise subprocess.CalledProcessError(1, argv)
        return subprocess.CompletedProcess(argv, 0 if answer is None else 1, answer or "")

    monkeypatch.setattr(sign.subprocess, "run", run)
    return calls, answers


ENVIRONMENT = {"PATH": "/opt/bin:/usr/local/sbin:/usr/sbin:/sbin:/usr/bin:/bin", "LC_ALL": "C.UTF-8"}


@pytest.mark.parametrize(("password", "given"), [(None, ""), ("pass word", "pass word\n"), ("", "\n")])
def test_messages_are_signed_by_one_call_and_the_first_is_verified(minisign, tmp_path, password, given):
    calls, _answers = minisign
    assert sign.signatures([b"a", b"b"], SECRET, KEY, password, ("trusted", "untrusted")) == [b"signed a", b"signed b"]
    assert calls == [
        "require minisign",
        (
            ["minisign", "-S", "-s", "image.key", "-t", "trusted", "-c", "untrusted", "-m", "0", "1"],
            given,
            ENVIRONMENT,
        ),
        (["minisign", "-V", "-q", "-P", os.path.basename(KEY), "-m", "0", "-x", "0.minisig"], "", ENVIRONMENT),
    ]
    assert os.listdir(tmp_path) == []


def test_a_manifest_is_signed_with_constant_comments(minisign):
    calls, _answers = minisign
    assert sign.sign(b"manifest", SECRET, KEY, None) == b"signed manifest"
    assert calls[1][0][4:8] == ["-t", "sailloft image manifest", "-c", "signature of a sailloft image manifest"]


def test_a_signature_is_verified_with_the_public_key(minisign):
    calls, answers = minisign
    assert sign.verifies(b"manifest", b"signature", KEY) is True
    answers.append("Signature verification failed")
    assert sign.verifies(b"manifest", b"signature", KEY) is False
    argv = ["minisign", "-V", "-q", "-P", os.path.basename(KEY), "-m", "manifest.json", "-x", "manifest.json.minisig"]
    assert calls == ["require minisign", (argv, "", ENVIRONMENT)] * 2


@pytest.mark.parametrize(
    ("output", "told"),
    [
        ("Password: \nDeriving a key from the password and decrypting the secret key... done\nWrong\n", "Wrong"),
        ("Password: get_password()", "it has a password, but none was given"),
        ("", "minisign gave no reason"),
    ],
)
def test_a_failed_signature_is_refused_with_the_reason(minisign, tmp_path, output, told):
    calls, answers = minisign
    answers.append(output)
    with pytest.raises(ImageError) as caught:
        sign.sign(b"manifest", SECRET, KEY, "x")
    assert str(caught.value) == f"signing key /keys/image.key: {told}; check the file and its password"
    assert len(calls) == 2
    assert os.listdir(tmp_path) == []


def test_a_signature_of_another_key_is_refused(minisign):
    _calls, answers = minisign
    answers += [None, "Signature key id in 0.minisig is A"]
    with pytest.raises(ImageError) as caught:
        sign.sign(b"manifest", SECRET, KEY, "x")
    assert str(caught.value) == (
        "signing key /keys/image.key: Signature key id in 0.minisig is A; "
        "check that the public key belongs to the signing key: nodes refuse other signatures"
    )


@pytest.mark.parametrize("text", ["{key}", "untrusted comment: minisign\n{key}\n", "\n  {key} \n\n"])
def test_the_line_of_a_public_key_is_read(tmp_path, text):
    (tmp_path / "image.pub").write_text(text.format(key=KEY))
    assert sign.read_public_key(tmp_path / "image.pub") == KEY


@pytest.mark.parametrize("text", ["", KEY[:-1], f"{KEY}A", f"{KEY}\n{KEY}", f"comment\n{KEY}", f"RX{KEY[2:]}"])
def test_a_file_without_exactly_one_public_key_is_refused(tmp_path, text):
    (tmp_path / "image.pub").write_text(text)
    with pytest.raises(ImageError) as caught:
        sign.read_public_key(tmp_path / "image.pub")
    assert str(caught.value) == (
        f"public key {tmp_path}/image.pub: is not a minisign public key; give what minisign -G wrote to its -p file"
    )


def test_a_missing_public_key_is_refused(tmp_path):
    with pytest.raises(ImageError) as caught:
        sign.read_public_key(tmp_path / "image.pub")
    assert str(caught.value) == (
        f"public key {tmp_path}/image.pub: No such file or directory; "
        "make a key pair with minisign -G, or correct the path"
    )
