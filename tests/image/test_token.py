# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The commands of docs/how-to/sign-with-a-token.md, with a software token, sign what a build and a run have signed."""

from __future__ import annotations

import base64
import re
import subprocess
import time
from pathlib import Path

import pytest
from programs import boot_program

from ansible_collections.sailloft.fleet.plugins.module_utils.image.identity import identities, identity
from ansible_collections.sailloft.fleet.plugins.module_utils.image.serving import issue
from ansible_collections.sailloft.fleet.plugins.module_utils.image.store import sign, statement
from ansible_collections.sailloft.fleet.plugins.module_utils.image.store.store import Store
from ansible_collections.sailloft.fleet.plugins.module_utils.image.uki import authenticode, measured, policy
from ansible_collections.sailloft.fleet.plugins.module_utils.image.uki.kernel import SecureBoot

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "sign-with-a-token.md"
# A program of the firmware (Debian's package ipxe) in place of a UKI.
PROGRAM = Path("/usr/lib/ipxe/ipxe.efi")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The page's /etc/sailloft, with its files, keys and commands."""
    (tmp_path / "tokens").mkdir()
    (tmp_path / "softhsm2.conf").write_text(f"directories.tokendir = {tmp_path}/tokens\n")
    monkeypatch.setenv("SOFTHSM2_CONF", str(tmp_path / "softhsm2.conf"))
    blocks = re.findall(r"^```sh\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    for block in blocks:
        text = block.replace("/etc/sailloft", str(tmp_path))
        file = re.match(rf"(?:#!/bin/sh\n)?# ({tmp_path}/[a-z-]+)", text)
        if file:
            Path(file[1]).write_text(text)
            Path(file[1]).chmod(0o700)
        else:
            subprocess.run(["sh", "-euc", text], check=True, capture_output=True)
    return tmp_path


def test_a_key_that_never_leaves_its_token_signs_statements_and_programs(folder: Path):
    signer = sign.Signer("", str(folder / "image.pub"), None, (str(folder / "sign-image"),))
    node = {"name": "bm01", "mac": "52:54:00:aa:bb:01", "digest": "1" * 64, "servers": ["http://10.9.0.1"]}
    terms = issue.Terms(90, int(time.time()))
    store = Store(str(folder / "store"))
    signed = issue.ensure(store, issue.StatementRequest([node]), [], signer, terms, False).after
    assert sign.verifies(*statement.split(signed), signer.key)
    assert not sign.verifies(statement.split(signed)[0] + b"\n", statement.split(signed)[1], signer.key)

    for name in ("blobs", "images"):
        Path(store.path, name).mkdir()
    ek = (len(identity.EK_TEMPLATE) + 256).to_bytes(2, "big") + identity.EK_TEMPLATE + b"\xa7" * 256
    secret = {"path": "/etc/token", "content": "5ecret", "mode": "0600", "owner": "root", "group": "root"}
    nodes = identities.read_nodes([{"name": "bm01", "ek": base64.b64encode(ek).decode(), "secrets": [secret]}])
    assert identities.ensure(store, nodes, signer, False).written == ("bm01",)
    _bundle, text, signature = identity.parse(store.contents("identity", "bm01"), "bm01")
    assert sign.verifies(text, signature, signer.key)
    assert sign.trusted_comment(signature) == identity.COMMENTS.trusted
    assert identities.ensure(store, nodes, signer, False).written == ()

    program, certificate = PROGRAM.read_bytes(), folder / "boot.crt"
    command = [str(folder / "sign-boot")]
    once = authenticode.sign_by_command(program, command, certificate)
    assert authenticode.is_signed(once, program, certificate)
    assert authenticode.sign_by_command(program, command, certificate) == once
    signer = SecureBoot(certificate, None, tuple(command), None, (str(folder / "sign-policy"),))
    signer.try_signer(program)
    predicted = signer.predict("1" * 64, boot_program("1" * 64))
    assert len(measured.load(predicted, "1" * 64).policies) == 2 * policy.MOST_TRIES
    # The keys are in the tokens alone, and were made there.
    assert not any(b"PRIVATE KEY" in path.read_bytes() for path in folder.iterdir() if path.is_file())
    shown = ["pkcs11-tool", "--module", "/usr/lib/softhsm/libsofthsm2.so", "--login", "--pin", "1234", "-O"]
    for name in ("image", "boot"):
        command = [*shown, "--type", "privkey", "--token-label", f"sailloft-{name}"]
        listed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        assert "sensitive, always sensitive, never extractable, local" in listed
