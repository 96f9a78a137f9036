# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The calls to tools that make bundles: arguments, input and environment; secrets are in no argument."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from image_samples import refused

from ansible_collections.sailloft.fleet.plugins.module_utils.image.identity import identity, tools

KEY = bytes(range(32))
ENVIRONMENT = {"PATH": "/opt/bin:/usr/local/sbin:/usr/sbin:/sbin:/usr/bin:/bin", "LC_ALL": "C.UTF-8"}


class Runs:
    """Tools that do not run: calls are (arguments without directories, input, text of inherited files)."""

    def __init__(self, folder):
        self.folder = folder
        self.calls, self.files, self.answers = [], [], []

    def run(self, argv, check, capture_output, env, input=None, pass_fds=(), cwd=None):
        assert env == ENVIRONMENT
        passed = [os.read(handle, 1000) for handle in pass_fds]
        words = [os.path.basename(word) if word.startswith("/") else word for word in argv]
        self.calls.append((words, input, passed))
        self.files.append({path.name: path.read_bytes() for path in self.folder.glob("*/*")})
        if "-o" in argv:
            Path(argv[argv.index("-o") + 1]).write_bytes(b"credential")
        status, output, errors = self.answers.pop(0) if self.answers else (0, b"output", b"")
        return subprocess.CompletedProcess(argv, status, output, errors)


@pytest.fixture
def runs(tmp_path, monkeypatch):
    found = Runs(tmp_path / "memory")
    found.folder.mkdir()
    monkeypatch.setenv("PATH", "/opt/bin")
    monkeypatch.setattr(tools, "MEMORY", str(found.folder))
    monkeypatch.setattr(tools.shutil, "which", lambda tool, path: f"/bin/{tool}")
    monkeypatch.setattr(tools.subprocess, "run", found.run)
    yield found
    assert list(found.folder.iterdir()) == []


def test_a_key_is_wrapped_for_a_tpm(runs):
    assert tools.wrap(KEY, b"ek", "node bm01") == b"credential"
    argv = ["tpm2_makecredential", "-Q", "-T", "none", "-u", "ek.pub", "-n", identity.activated_name()]
    assert runs.calls == [([*argv, "-s", "-", "-o", "credential"], KEY, [])]
    assert runs.files == [{"ek.pub": b"ek"}]


def test_data_is_encrypted_with_a_key_from_a_pipe(runs):
    before = len(os.listdir("/proc/self/fd"))
    assert tools.encrypt(b"data", KEY, "node bm01") == b"output"
    ((argv, given, passed),) = runs.calls
    words = ["openssl", "enc", "-e", "-aes-256-ctr", "-pbkdf2", "-iter", "1", "-md", "sha256", "-pass"]
    assert argv[:-1] == words
    assert argv[-1].startswith("fd:")
    assert (given, passed) == (b"data", [KEY.hex().encode() + b"\n"])
    assert len(os.listdir("/proc/self/fd")) == before


@pytest.mark.parametrize(
    ("output", "errors", "message"),
    [(b"one\n two", b"three", "one two three"), (b"", b" \xff\n", "\ufffd"), (b"", b"", "it gave no reason")],
)
def test_a_failed_tool_is_reported_with_its_output(runs, output, errors, message):
    runs.answers += [(1, output, errors)] * 2
    assert refused(tools.wrap, KEY, b"ek", "node bm01") == (
        f"node bm01: tpm2_makecredential failed: {message}; check its endorsement key"
    )
    assert refused(tools.encrypt, b"data", KEY, "node bm01") == (
        f"node bm01: openssl failed: {message}; check openssl on this machine"
    )


@pytest.fixture
def authorities(tmp_path):
    texts = [f"-----BEGIN CERTIFICATE-----\n{name}\n-----END CERTIFICATE-----" for name in ("one", "two")]
    (tmp_path / "one.pem").write_text(texts[0])
    (tmp_path / "two.pem").write_text(texts[1] + "\n\n")
    return [str(tmp_path / name) for name in ("one.pem", "two.pem")], "\n".join([*texts, ""]).encode()


def test_a_certificate_is_verified_against_the_given_authorities_only(runs, authorities):
    paths, chain = authorities
    assert tools.verify(b"certificate", paths) == ""
    assert [argv for argv, _given, _passed in runs.calls] == [
        ["openssl", "x509", "-inform", "DER", "-in", "certificate.der", "-out", "certificate.pem"],
        ["openssl", "verify", "-no-CApath", "-no-CAstore", "-CAfile", "chain.pem", "certificate.pem"],
    ]
    assert runs.files[0] == {"chain.pem": chain, "certificate.der": b"certificate"}


def test_the_problem_of_a_certificate_is_the_line_of_the_error(runs, authorities):
    paths, _chain = authorities
    runs.answers += [(1, b"", b"unable to load\ncertificate\n")]
    assert tools.verify(b"certificate", paths) == "unable to load certificate"
    assert len(runs.calls) == 1
    runs.answers += [(0, b"", b""), (2, b"", b"CN = x\nerror 20 at 0 depth lookup: no issuer\nerror: failed\n")]
    assert tools.verify(b"certificate", paths) == "error 20 at 0 depth lookup: no issuer"


def test_an_unusable_file_of_authorities_is_refused(runs, tmp_path):
    path = tmp_path / "root.pem"
    assert refused(tools.verify, b"", [str(path)]) == (
        f"node_identity_tpm_ca {path}: No such file or directory; give a file that exists"
    )
    path.write_text("DER")
    assert refused(tools.verify, b"", [str(path)]) == (
        f"node_identity_tpm_ca {path}: it has no certificate in PEM; convert it to PEM"
    )
    assert runs.calls == []


def test_a_signer_signs_with_the_comments_of_identities(runs, tmp_path, monkeypatch):
    (tmp_path / "image.pub").write_text("RW" + "A" * 54)
    given = []
    monkeypatch.setattr(tools, "signatures", lambda *words: given.append(words) or [b"signature"])
    signer = tools.Signer("/keys/image.key", str(tmp_path / "image.pub"), "password")
    assert signer.sign([b"message"]) == [b"signature"]
    comments = ("sailloft node identity", "signature of a sailloft node identity")
    assert given == [([b"message"], Path("/keys/image.key"), "RW" + "A" * 54, "password", comments)]
    assert "password'" not in repr(signer)
