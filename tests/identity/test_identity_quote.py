# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Quotes of software TPMs: only the enrolled TPM that has measured the node's image, now, proves what it runs."""

from __future__ import annotations

import shutil
import subprocess
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from identity_site import PUBLISH, TOKEN, power_on, publisher
from messages import raises
from programs import boot_program

from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.errors import ImageError
from ansible_collections.sailloft.fleet.plugins.module_utils.image.identity import identity, quotes
from ansible_collections.sailloft.fleet.plugins.module_utils.image.store import sign, statement
from ansible_collections.sailloft.fleet.plugins.module_utils.image.uki import measured
from ansible_collections.sailloft.fleet.plugins.modules import node_identity_info

IMAGE, OTHER = "1" * 64, "2" * 64
PROGRAM = boot_program(IMAGE)


class Node:
    """A node's side of the module node_identity_info, with a software TPM."""

    def __init__(self, tpm, folder: Path, log: Path) -> None:
        folder.mkdir(exist_ok=True)
        params = {"tcti": tpm.tcti, "firmware_log": str(log)}
        module = SimpleNamespace(get_bin_path=shutil.which, run_command=self._run, params=params)
        self.tools = node_identity_info.TpmTools(module, str(folder))
        ek, ak, _certificate = node_identity_info.read_keys(self.tools)
        self.ek, self.ak = ek, identity.read_ak(node_identity_info.text_of(ak), "node bm01")

    @staticmethod
    def _run(argv, environ_update, cwd=None):
        environment = {"PATH": "/usr/bin:/bin", **environ_update}
        done = subprocess.run(argv, env=environment, cwd=cwd, capture_output=True, text=True, timeout=300, check=False)
        return done.returncode, done.stdout, done.stderr

    def answer(self, asked: quotes.Ask) -> quotes.Quote:
        text = node_identity_info.text_of(asked.credential)
        return quotes.Quote.of_result(node_identity_info.read_quote(self.tools, text), "node bm01")


@dataclass
class Made:
    """The inputs of ``quotes.check`` after one challenge."""

    ak: bytes
    nonce: bytes
    quote: quotes.Quote

    def check(self) -> None:
        quotes.check("bm01", measured.predict(IMAGE, PROGRAM), self.ak, self.nonce, self.quote)


@pytest.fixture
def quoted(new_tpm, tmp_path):
    """quoted(image, program): the answer of a machine that has booted this, to a challenge for its own TPM."""
    tpm = new_tpm()

    def run(image: str = IMAGE, program: bytes = PROGRAM) -> Made:
        node = Node(tpm, tmp_path / "node", power_on(tpm, image, program))
        asked = quotes.challenge(node.ek, node.ak, "node bm01")
        return Made(node.ak, asked.nonce, node.answer(asked))

    return run


def test_a_tpm_that_has_measured_the_image_proves_it_at_each_boot(quoted):
    first, second = quoted(), quoted()
    first.check()
    second.check()
    assert first.ak == second.ak
    assert first.nonce != second.nonce
    # An old quote is no answer to a new challenge.
    with raises(ImageError, "node bm01", "another challenge"):
        replace(second, quote=first.quote).check()


def test_another_image_is_refused_with_its_registers(quoted):
    with raises(ImageError, "node bm01", "PCR 4", "PCR 8", "PCR 11", IMAGE, "reimage.yml -l bm01"):
        quoted(OTHER, boot_program(OTHER)).check()


def test_an_altered_command_line_is_refused_though_all_else_is_the_image_s(quoted):
    made = quoted(program=boot_program(IMAGE, cmdline=b"init=/bin/sh sailloft.signed=1"))
    with raises(ImageError, "node bm01", "PCR 4", "PCR 11", IMAGE) as caught:
        made.check()
    assert "PCR 8" not in str(caught.value)


def test_what_the_tpm_has_not_signed_is_refused(quoted, tmp_path):
    """A node of another image shows the registers, the log or the quote of the right one."""
    wrong, right = quoted(OTHER, boot_program(OTHER)), quoted()
    with raises(ImageError, "node bm01", "other PCRs"):
        replace(wrong, quote=replace(wrong.quote, values=right.quote.values, log=right.quote.log)).check()
    with raises(ImageError, "node bm01", "PCR 4"):
        replace(right, quote=replace(right.quote, log=wrong.quote.log)).check()
    altered = bytearray(wrong.quote.message)
    altered[-1] ^= 1
    with raises(ImageError, "node bm01", "not signed"):
        replace(wrong, quote=replace(wrong.quote, message=bytes(altered))).check()
    with raises(ImageError, "node bm01", "not signed"):
        replace(right, quote=replace(right.quote, signature=b"")).check()


def test_another_tpm_neither_opens_the_challenge_nor_signs_the_quote(quoted, new_tpm, tmp_path):
    right, tpm = quoted(), new_tpm()
    other = Node(tpm, tmp_path / "other", power_on(tpm, IMAGE, PROGRAM))
    enrolled = Node(new_tpm(), tmp_path / "enrolled", tmp_path / "none")
    for ek, ak in ((enrolled.ek, other.ak), (other.ek, enrolled.ak)):
        with raises(ImageError, tpm.tcti, "another TPM"):
            other.answer(quotes.challenge(ek, ak, "node bm01"))
    asked = quotes.challenge(other.ek, other.ak, "node bm01")
    quote = other.answer(asked)
    Made(other.ak, asked.nonce, quote).check()
    with raises(ImageError, "node bm01", "not signed"):
        Made(right.ak, asked.nonce, quote).check()


def test_a_key_that_may_leave_its_tpm_is_no_attestation_key(quoted):
    ak = bytearray(quoted().ak)
    # fixedTPM and restricted, in the attributes.
    for at, bit in ((9, 0x02), (7, 0x01)):
        changed = bytearray(ak)
        changed[at] ^= bit
        with raises(ImageError, "node bm01", "attestation key"):
            identity.read_ak(node_identity_info.text_of(bytes(changed)), "node bm01")


def test_no_secret_is_published_before_the_node_has_proven_what_it_runs(site, keys, tmp_path, new_tpm, play):
    """All of playbooks/node_identities.yml for one node: enrol, quote, publish; it first runs another image."""
    tpm = new_tpm()
    state(site, keys)
    predicted(site)
    (tmp_path / "served").mkdir()
    role = {"name": "sailloft.fleet.node_identity"}
    tasks = [{"ansible.builtin.include_role": {**role, "tasks_from": part}} for part in ("enroll", "quote")]
    node = {"node_identity_ek": tpm.ek, "node_boot_secure_boot": True}
    node["node_identity_secrets"] = {"/etc/site/token": {"content": TOKEN}}
    local = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable}

    def run(image: str):
        log = power_on(tpm, image, boot_program(image))
        defaults = {"sailloft.fleet.node_identity_info": {"tcti": tpm.tcti, "firmware_log": str(log)}}
        block = {"block": tasks, "module_defaults": defaults}
        plays = [
            {"hosts": "bm01", "gather_facts": False, "tasks": [block]},
            {"hosts": "localhost", "gather_facts": False, "tasks": PUBLISH},
        ]
        # Only the host that publishes has the variables of images.
        return play(plays, {"bm01": {**local, **node}, "localhost": publisher(site, tmp_path, keys)})

    output, status = run(OTHER)
    assert status != 0
    text = " ".join(output.split())
    assert f"node bm01: its TPM has not measured the image {IMAGE}: PCR 4" in text
    assert site.store.entries("identity") == []
    output, status = run(IMAGE)
    assert status == 0, output
    assert site.store.entries("identity") == ["bm01"]
    assert TOKEN not in output


LYING = """#!/usr/bin/python
import json
print(json.dumps({"ansible_facts": FACTS}))
"""


@pytest.mark.long
def test_facts_of_a_node_do_not_decide_about_it(site, keys, tmp_path, new_tpm, play, monkeypatch):
    """A machine with another TPM answers as bm01, and returns facts with the names of the variables that decide."""
    ours, theirs = new_tpm(), new_tpm()
    state(site, keys)
    predicted(site)
    (tmp_path / "served").mkdir()
    facts = {"node_identity_ek": theirs.ek, "node_identity_measured": False, "node_identity_quoted": {"verified": True}}
    (tmp_path / "library").mkdir()
    (tmp_path / "library/lying.py").write_text(LYING.replace("FACTS", repr(facts)))
    role = {"name": "sailloft.fleet.node_identity"}
    tasks = [{"ansible.builtin.include_role": {**role, "tasks_from": part}} for part in ("enroll", "quote")]
    defaults = {"sailloft.fleet.node_identity_info": {"tcti": theirs.tcti}}
    node = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable, "node_identity_ek": ours.ek}
    node = {**node, "node_boot_secure_boot": True, "node_identity_secrets": {"/etc/token": {"content": TOKEN}}}
    plays = [
        {"hosts": "bm01", "gather_facts": False, "tasks": [{"lying": {}}], "ignore_errors": True},
        {"hosts": "bm01", "gather_facts": False, "tasks": [{"block": tasks, "module_defaults": defaults}]},
        {"hosts": "localhost", "gather_facts": False, "tasks": PUBLISH},
    ]
    hosts = {"bm01": node, "localhost": publisher(site, tmp_path, keys)}
    output, status = play(plays, hosts)
    assert status != 0
    assert "the endorsement key of its TPM differs from node_identity_ek" in " ".join(output.split())
    assert site.store.entries("identity") == []
    monkeypatch.setenv("ANSIBLE_INJECT_FACT_VARS", "true")
    output, status = play(plays, hosts)
    assert status != 0
    assert "inject_facts_as_vars" in output
    assert site.store.entries("identity") == []


def state(site, keys, image: str = IMAGE, name: str = "bm01") -> None:
    """Sign that the node runs the image, in the site's store."""
    row = statement.StatedNode(name, image, ("http://10.9.0.1",), ())
    times = ("2026-01-01T00:00:00Z", "2026-04-01T00:00:00Z")
    data = statement.dump(statement.Statement(7, *times, {"52:54:00:aa:bb:01": row}))
    public_key = sign.read_public_key(Path(keys.public_key))
    signature = sign.signatures([data], Path(keys.secret_key), public_key, None, statement.COMMENTS)[0]
    place = Path(site.store.place("nodes"))
    place.mkdir(exist_ok=True)
    (place / "statement").write_bytes(data + signature)


def predicted(site, image: str = IMAGE) -> None:
    """Put the image's prediction into the site's store."""
    place = Path(site.store.place("images", image))
    place.mkdir()
    (place / "pcrs.json").write_bytes(measured.dump(measured.predict(image, boot_program(image))))


def test_the_expected_image_is_that_of_the_signed_statement(site, keys):
    with raises(ImageError, "node bm01", "statement", keys.public_key):
        quotes.expected(site.store, "bm01", keys.public_key)
    state(site, keys)
    with raises(ImageError, "node bm01", IMAGE, "node_images.yml"):
        quotes.expected(site.store, "bm01", keys.public_key)
    predicted(site)
    assert quotes.expected(site.store, "bm01", keys.public_key) == measured.predict(IMAGE, PROGRAM)
    with raises(ImageError, "node bm02", "node_scripts.yml"):
        quotes.expected(site.store, "bm02", keys.public_key)
    place = Path(site.store.place("nodes", "statement"))
    place.write_bytes(place.read_bytes().replace(IMAGE.encode(), OTHER.encode()))
    with raises(ImageError, "node bm01", "statement", keys.public_key):
        quotes.expected(site.store, "bm01", keys.public_key)
