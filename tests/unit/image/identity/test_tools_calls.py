# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The calls to tools that make bundles: arguments, input and environment; secrets are in no argument."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from image_samples import refused
from messages import Mentions

from ansible_collections.sailloft.fleet.plugins.module_utils.image.identity import tools

KEY = bytes(range(32))
ENVIRONMENT = {"PATH": "/opt/bin:/usr/local/sbin:/usr/sbin:/sbin:/usr/bin:/bin", "LC_ALL": "C.UTF-8"}


class Runs:
    """Tools that do not run: calls are (arguments with the content of unnamed files, input, content of pipes)."""

    def __init__(self):
        self.calls, self.answers = [], []

    def run(self, argv, check, capture_output, env, input=None, pass_fds=()):
        assert env == ENVIRONMENT
        files = {f"/proc/self/fd/{number}": number for number in pass_fds}
        words = [os.pread(files[word], 1000, 0) if word in files else word for word in argv]
        pipes = [os.read(number, 1000) for path, number in files.items() if path not in argv]
        self.calls.append((words, input, pipes))
        for option, content in (("-o", b"credential"), ("-out", b"PEM")):
            if option in argv:
                Path(argv[argv.index(option) + 1]).write_bytes(content)
        status, output, errors = self.answers.pop(0) if self.answers else (0, b"output", b"")
        return subprocess.CompletedProcess(argv, status, output, errors)


@pytest.fixture
def runs(monkeypatch):
    found = Runs()
    monkeypatch.setenv("PATH", "/opt/bin")
    monkeypatch.setattr(tools.shutil, "which", lambda tool, path: f"/bin/{tool}")
    monkeypatch.setattr(tools.subprocess, "run", found.run)
    before = os.listdir("/proc/self/fd")
    yield found
    assert os.listdir("/proc/self/fd") == before


def test_a_key_is_wrapped_for_a_tpm(runs):
    assert tools.wrap(KEY, b"ek", "000babcd", "node bm01") == b"credential"
    argv = ["tpm2_makecredential", "-Q", "-T", "none", "-u", b"ek", "-n", "000babcd", "-s", "-", "-o"]
    (call,) = runs.calls
    assert call[0][:-1] == argv
    assert call[1:] == (KEY, [])


def test_data_is_encrypted_with_a_key_from_a_pipe(runs):
    assert tools.encrypt(b"data", KEY, "node bm01") == b"output"
    ((argv, given, passed),) = runs.calls
    words = ["openssl", "enc", "-e", "-aes-256-ctr", "-pbkdf2", "-iter", "1", "-md", "sha256", "-pass"]
    assert argv[:-1] == words
    assert argv[-1].startswith("fd:")
    assert (given, passed) == (b"data", [KEY.hex().encode() + b"\n"])


@pytest.mark.parametrize(
    ("output", "errors", "message"),
    [(b"one\n two", b"three", "one two three"), (b"", b" \xff\n", "\ufffd"), (b"", b"", "it gave no reason")],
)
def test_a_failed_tool_is_reported_with_its_output(runs, output, errors, message):
    runs.answers += [(1, output, errors)] * 2
    assert refused(tools.wrap, KEY, b"ek", "000babcd", "node bm01") == Mentions("bm01", "tpm2_makecredential", message)
    assert refused(tools.encrypt, b"data", KEY, "node bm01") == Mentions("bm01", "openssl", message)


@pytest.fixture
def authorities(tmp_path):
    texts = [f"-----BEGIN CERTIFICATE-----\n{name}\n-----END CERTIFICATE-----" for name in ("one", "two")]
    (tmp_path / "one.pem").write_text(texts[0])
    (tmp_path / "two.pem").write_text(texts[1] + "\n\n")
    return [str(tmp_path / name) for name in ("one.pem", "two.pem")], "\n".join([*texts, ""]).encode()


def test_a_certificate_is_verified_against_the_given_authorities_only(runs, authorities):
    paths, chain = authorities
    assert tools.verify(b"certificate", paths) is None
    ends = ([b"certificate", "-out", b""], ["-CAfile", chain, b"PEM"])
    for (argv, _given, _passed), begin, end in zip(
        runs.calls, ("x509 -inform DER -in", "verify -no-CApath -no-CAstore"), ends
    ):
        assert argv == ["openssl", *begin.split(), *end]
    assert len(runs.calls) == 2


def test_the_problem_of_a_certificate_is_the_line_of_the_error(runs, authorities):
    paths, _chain = authorities
    runs.answers += [(1, b"", b"unable to load\ncertificate\n")]
    assert tools.verify(b"certificate", paths) == "unable to load certificate"
    assert len(runs.calls) == 1
    runs.answers += [(0, b"", b""), (2, b"", b"CN = x\nerror 20 at 0 depth lookup: no issuer\nerror: failed\n")]
    assert tools.verify(b"certificate", paths) == "error 20 at 0 depth lookup: no issuer"


def test_an_unusable_file_of_authorities_is_refused(runs, tmp_path):
    path = tmp_path / "root.pem"
    assert refused(tools.verify, b"", [str(path)]) == Mentions(
        "node_identity_tpm_ca", path, "No such file or directory"
    )
    path.write_text("DER")
    assert refused(tools.verify, b"", [str(path)]) == Mentions("node_identity_tpm_ca", path, "certificate", "PEM")
    assert runs.calls == []
