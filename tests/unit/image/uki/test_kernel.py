# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""An image's kernel, first stage and command line in one program, and what is in its command line."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from image_samples import Sample
from messages import raises
from programs import boot_program

from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.errors import ImageError
from ansible_collections.sailloft.fleet.plugins.module_utils.image.uki import measured
from ansible_collections.sailloft.fleet.plugins.module_utils.image.uki.kernel import Programs, SecureBoot
from ansible_collections.sailloft.fleet.plugins.module_utils.image.uki.tools import Tools

IMAGE = Sample("gpu-node", base=b"base", arguments=("console=ttyS0", "quiet"))
SIGNER = SecureBoot(Path("/boot.crt"), Path("/boot.key"), (), None)


@pytest.fixture
def made(tmp_path, monkeypatch):
    """The arguments of each call of ukify, which writes a program."""
    calls = []

    def ukify(tools, run, *arguments, readable=(), writable=()):
        calls.append(arguments)
        output = next(word for word in arguments if word.startswith("--output="))
        Path(output.partition("=")[2]).write_bytes(b"program of " + tools.key.encode())
        assert Path(output.partition("=")[2]).parent in writable

    monkeypatch.setattr(Tools, "ukify", ukify)
    for name in ("cache", "work"):
        (tmp_path / name).mkdir()
    return calls


def unsigned(folder: Path, key: str = "1") -> bytes:
    tools = {"amd64": Tools(key, folder / "tools", "x64")}
    programs = Programs(SIGNER, tools, folder / "cache", folder / "work")
    for path in (folder / "work").iterdir():
        path.rmdir()
    return programs.unsigned(IMAGE.manifest, IMAGE.digest, Path("/vmlinuz"), Path("/first-stage"), None)


def test_the_signed_command_line_has_the_images_arguments_and_its_digest_and_nothing_of_a_node(tmp_path, made):
    unsigned(tmp_path)
    given = dict(word.lstrip("-").partition("=")[::2] for word in made[0][1:])
    assert made[0][0] == "build"
    assert given["cmdline"] == f"console=ttyS0 quiet sailloft.image={IMAGE.digest} sailloft.signed=1"
    assert (given["linux"], given["initrd"]) == ("/vmlinuz", "/first-stage")
    assert given["uname"] == IMAGE.manifest.kernel.version
    assert given["efi-arch"] == "x64"
    # Without it, ukify takes the build host's.
    assert "gpu-node" in given["os-release"]


def test_a_program_is_made_once_and_again_by_other_tools(tmp_path, made):
    assert unsigned(tmp_path) == unsigned(tmp_path) == b"program of 1"
    assert len(made) == 1
    assert unsigned(tmp_path, "2") == b"program of 2"
    assert len(made) == 2


def test_a_command_signs_the_same_policies_as_the_key_file(tmp_path):
    key, certificate = tmp_path / "boot.key", tmp_path / "boot.crt"
    made = ["openssl", "req", "-new", "-x509", "-newkey", "rsa:2048", "-noenc", "-subj", "/CN=site"]
    subprocess.run([*made, "-keyout", key, "-out", certificate], check=True, capture_output=True)
    program, command = boot_program(IMAGE.digest), ("openssl", "dgst", "-sha256", "-sign", f"{key}")
    by_key = SecureBoot(certificate, key, (), None).predict(IMAGE.digest, program)
    assert measured.load(by_key, IMAGE.digest).policies
    by_command = SecureBoot(certificate, None, ("sign-boot",), None, command)
    assert by_command.predict(IMAGE.digest, program) == by_key
    # What the store has is kept; the command is not asked.
    unable = SecureBoot(certificate, None, ("sign-boot",), None, ("false",))
    assert unable.predict(IMAGE.digest, program, by_key) == by_key
    with raises(ImageError, "false"):
        unable.predict(IMAGE.digest, program, b"{}")
    none = SecureBoot(certificate, None, ("sign-boot",), None)
    assert measured.load(none.predict(IMAGE.digest, program, by_key), IMAGE.digest).policies == {}
