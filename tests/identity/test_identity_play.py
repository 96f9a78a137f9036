# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The role and its modules under ansible-playbook: their effects, and what their output reveals."""

from __future__ import annotations

import base64
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from identity_site import PUBLISH, SECRET, TOKEN, make_guarded_pair, publisher, record_arguments

from ansible_collections.sailloft.fleet.plugins.module_utils.image.identity import identity
from ansible_collections.sailloft.fleet.plugins.module_utils.image.store.sign import Signer

REPOSITORY = Path(__file__).parents[2]
PASSWORD = "the-password-of-the-signing-key"
HIDDEN = ("nobody-else-may-read-this-host-key", TOKEN, PASSWORD)


@pytest.fixture
def locked(tmp_path):
    """A signing key with a password, which minisign creates by default."""
    secret, public = tmp_path / "locked.key", tmp_path / "locked.pub"
    make_guarded_pair(public, secret, PASSWORD)
    return Signer(str(secret), str(public), PASSWORD)


@pytest.fixture
def nodes(site, tmp_path):
    """Two enrolled nodes and one that is not."""
    (tmp_path / "served").mkdir()
    first, second = site.nodes
    return {
        "localhost": publisher(site, tmp_path, site.signer),
        "bm01": {
            "node_identity_ek": first["ek"],
            "node_identity_secrets": {
                "/etc/ssh/ssh_host_ed25519_key": {"content": SECRET},
                "/etc/site/token": {"content": TOKEN, "mode": "0640"},
            },
        },
        "bm02": {"node_identity_ek": second["ek"]},
        "bm03": {},
    }


def test_publish_shows_no_secret(site, tmp_path, nodes, play, locked):
    log = tmp_path / "arguments"
    path = record_arguments(tmp_path / "bin", log, ("minisign", "openssl", "tpm2_makecredential", "rsync"))
    nodes["localhost"] = publisher(site, tmp_path, locked)

    output, status = play(PUBLISH, nodes, "-vvv", "--check", "--diff", path=path)
    assert status == 0, output
    assert "changed=1" in output
    assert site.store.entries("identity") == []
    assert "written: bm01, bm02\n" in output
    assert "removed: none\n" in output
    shown = output

    output, status = play(PUBLISH, nodes, "-vvv", "--diff", path=path)
    assert status == 0, output
    assert sorted(os.listdir(tmp_path / "served/identity")) == ["bm01", "bm02"]
    shown += output + log.read_text()

    for secret in HIDDEN:
        for form in (secret, base64.b64encode(secret.encode()).decode(), secret.encode().hex()):
            assert form not in shown
    assert "tpm2_makecredential" in shown
    # The only digest shown is the name of the key to which bundles are bound: no key of a bundle is shown.
    assert set(re.findall("[0-9a-f]{64,}", log.read_text())) == {identity.activated_name()}
    served = b"".join(file.read_bytes() for file in (tmp_path / "served/identity").iterdir())
    assert not any(secret.encode() in served for secret in HIDDEN)


@pytest.mark.parametrize(
    ("secrets", "why"),
    [
        ({"/etc/token": TOKEN}, "node bm01: node_identity_secrets: /etc/token is not a dictionary with content"),
        *(
            pytest.param(secrets, why, marks=pytest.mark.long)
            for secrets, why in (
                (TOKEN, "node bm01: node_identity_secrets is not a dictionary"),
                ({"/etc/token": {"content": [TOKEN]}}, "the content of /etc/token is not text"),
                ({"etc/token": {"content": TOKEN}}, "node bm01: 'etc/token' is not an absolute path"),
                (
                    {"/etc/token": {"content": TOKEN, "mode": "rw"}},
                    "node bm01: mode 'rw' of /etc/token is not three octal digits",
                ),
            )
        ),
    ],
)
def test_the_error_of_refused_input_shows_no_secret(site, tmp_path, nodes, play, secrets, why):
    nodes["bm01"]["node_identity_secrets"] = secrets
    output, status = play(PUBLISH, nodes, "-vvv")
    assert status != 0
    assert why in " ".join(output.split()), output
    assert not [line for line in output.splitlines() if any(secret in line for secret in HIDDEN)]
    assert site.store.entries("identity") == []


def info(tpm):
    return [
        {"name": "Read", "sailloft.fleet.node_identity_info": {"tcti": tpm.tcti}, "register": "found"},
        {"name": "Show", "ansible.builtin.debug": {"msg": "found {{ found | to_json }}"}},
    ]


def shown(output):
    text = output[output.index("found {") + 6 :]
    return json.JSONDecoder().raw_decode(text.replace('\\"', '"'))[0]


def certify(tpm, owner):
    """Put a certificate of the endorsement key of ``owner`` into ``tpm``, signed by a key made for this test."""
    (tpm.folder / "v3.cnf").write_text("basicConstraints = critical, CA:FALSE\nextendedKeyUsage = 2.23.133.8.1\n")
    (owner.folder / "ek.pem").write_bytes(owner.run("tpm2_print", "-t", "TPM2B_PUBLIC", "-f", "pem", "ek.pub"))
    for argv in (
        (
            "openssl",
            "req",
            "-x509",
            "-newkey",
            "rsa:2048",
            "-nodes",
            "-keyout",
            "ca.key",
            "-out",
            "ca.pem",
            "-subj",
            "/CN=maker",
        ),
        ("openssl", "req", "-new", "-key", "ca.key", "-subj", "/CN=TPM", "-out", "request.pem"),
        (
            *("openssl", "x509", "-req", "-in", "request.pem", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial"),
            *("-force_pubkey", str(owner.folder / "ek.pem"), "-outform", "DER", "-out", "certificate.der"),
            *("-extfile", "v3.cnf"),
        ),
    ):
        subprocess.run(argv, cwd=tpm.folder, check=True, capture_output=True)
    # Vendors' NV indices are larger than the certificates in them.
    stored = (tpm.folder / "certificate.der").read_bytes() + b"\xff" * 20
    (tpm.folder / "stored").write_bytes(stored)
    tpm.run("tpm2_nvdefine", "0x01c00002", "-C", "o", "-s", str(len(stored)), "-a", "ownerwrite|ownerread|authread")
    tpm.run("tpm2_nvwrite", "0x01c00002", "-C", "o", "-i", "stored")
    return base64.b64encode((tpm.folder / "certificate.der").read_bytes()).decode()


@pytest.mark.long
def test_the_endorsement_key_is_read(tpms, play):
    output, status = play(info(tpms["bm01"]), {})
    assert status == 0, output
    found = shown(output)
    assert found["ek"] == tpms["bm01"].ek
    assert found["certificate"] is None
    assert found["opened"] is None


@pytest.mark.long
@pytest.mark.parametrize(("owner", "is_of_ek"), [("itself", True), ("bm02", False)])
def test_the_certificate_is_compared_with_the_endorsement_key(new_tpm, tpms, play, owner, is_of_ek):
    tpm = new_tpm()
    assert tpm.ek
    assert tpms["bm02"].ek
    certificate = certify(tpm, tpms.get(owner, tpm))
    output, status = play(info(tpm), {})
    assert status == 0, output
    found = shown(output)
    assert found["certificate"] == certificate
    assert found["certificate_is_of_ek"] is is_of_ek


@pytest.mark.long
def test_a_missing_tpm_is_reported(play):
    output, status = play([{"sailloft.fleet.node_identity_info": {"tcti": "device:/dev/no-tpm"}}], {})
    assert status != 0
    assert "TPM device:/dev/no-tpm:" in output
    assert "check that the machine has a TPM 2.0" in output


@pytest.mark.long
@pytest.mark.parametrize(("enrolled", "status"), [("", 0), ("bm01", 0), ("bm02", 2)])
def test_the_endorsement_key_is_shown_unless_another_one_is_enrolled(tpms, play, enrolled, status):
    """An endorsement key is shown for the inventory; a key other than the enrolled one is refused."""
    role = {"name": "sailloft.fleet.node_identity", "tasks_from": "enroll"}
    task = {"name": "Enrol", "ansible.builtin.include_role": role}
    key = tpms[enrolled].ek if enrolled else ""
    defaults = {"sailloft.fleet.node_identity_info": {"tcti": tpms["bm01"].tcti}}
    block = {"block": [task], "module_defaults": defaults, "vars": {"node_identity_ek": key}}
    output, ended = play([block], {})
    assert ended == status, output
    # Leave out the arguments of a failed task, which Ansible shows as well.
    text = "".join(output[output.rindex("fatal:") if status else 0 :].split())
    fingerprint = identity.ek_digest(identity.read_ek(tpms["bm01"].ek, ""))
    if status:
        assert "nodelocalhost:theendorsementkeyofitsTPMdiffersfromnode_identity_ek" in text
        assert f"putitsfingerprint{fingerprint}intonode_identity_approved" in text
    else:
        assert f"node_identity_ek:{tpms['bm01'].ek}" in text
        what = "approved,itistheenrolledkey" if enrolled else "pending,itsfingerprintisnotinnode_identity_approved"
        assert f"Fingerprint{fingerprint}:{what}" in text


@pytest.fixture
def run(site, tmp_path, play):
    """run(tpm, variables): enrol bm01 with ``tpm`` and publish, as playbooks/node_identities.yml does in one run.

    Return the output, the names of enrolled nodes, and the bundles in the store.
    """
    (tmp_path / "served").mkdir()
    enrolled = tmp_path / "enrolled"

    def go(tpm, **variables):
        lookup = f"{{{{ lookup('file', '{enrolled}/bm01', errors='ignore') or '' }}}}"
        secrets = {"/etc/site/token": {"content": TOKEN}}
        local = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable}
        node = {**local, "node_identity_ek": lookup, "node_identity_secrets": secrets}
        role = {"name": "sailloft.fleet.node_identity", "tasks_from": "enroll"}
        enrol = {
            "block": [{"ansible.builtin.include_role": role}],
            "module_defaults": {"sailloft.fleet.node_identity_info": {"tcti": tpm.tcti}},
        }
        both = [
            {"hosts": "bm01", "gather_facts": False, "tasks": [enrol]},
            {"hosts": "localhost", "gather_facts": False, "tasks": PUBLISH},
        ]
        hosts = {"bm01": node, "localhost": publisher(site, tmp_path, site.signer)}
        given = {"node_identity_enrolled_dir": str(enrolled), **variables}
        output, status = play(both, hosts, "-e", json.dumps(given))
        return output, status, sorted(os.listdir(enrolled)) if enrolled.exists() else [], site.store.entries("identity")

    return go


@pytest.mark.long
def test_a_pending_tpm_stays_pending_until_its_own_fingerprint_is_approved_and_a_second_run_changes_nothing(run, tpms):
    tpm, other = tpms["bm01"], identity.ek_digest(identity.read_ek(tpms["bm02"].ek, ""))
    for approved in ([], [], [other]):
        assert run(tpm, node_identity_approved=approved)[1:] == (0, ["bm01.pending"], [])
    fingerprint = identity.ek_digest(identity.read_ek(tpm.ek, ""))
    assert run(tpm, node_identity_approved=[fingerprint])[1:] == (0, ["bm01"], ["bm01"])
    output, status, *_rest = run(tpm)
    assert status == 0, output
    assert "changed=0" in output


def test_no_secret_is_encrypted_to_an_unknown_tpm_until_its_fingerprint_is_approved(run, tpms):
    tpm = tpms["bm01"]
    output, status, enrolled, bundles = run(tpm)
    assert status == 0, output
    assert (enrolled, bundles) == (["bm01.pending"], [])
    assert "No secret is encrypted to it." in " ".join(output.split())
    fingerprint = identity.ek_digest(identity.read_ek(tpm.ek, ""))
    output, status, enrolled, bundles = run(tpm, node_identity_approved=[fingerprint])
    assert status == 0, output
    assert (enrolled, bundles) == (["bm01"], ["bm01"])
    # Another machine that answers as bm01 changes nothing and removes nothing.
    output, status, enrolled, bundles = run(tpms["bm02"])
    assert status != 0
    assert "the endorsement key of its TPM differs from node_identity_ek" in " ".join(output.split())
    assert (enrolled, bundles) == (["bm01"], ["bm01"])


@pytest.mark.long
def test_a_tpm_with_a_certificate_of_a_given_authority_is_approved(run, new_tpm, tmp_path):
    tpm = new_tpm()
    assert tpm.ek
    certify(tpm, tpm)
    assert run(tpm)[2:] == (["bm01.pending"], [])
    output, status, enrolled, bundles = run(tpm, node_identity_tpm_ca=[str(tpm.folder / "ca.pem")])
    assert status == 0, output
    assert (enrolled, bundles) == (["bm01"], ["bm01"])


@pytest.mark.long
def test_a_node_that_is_missing_keeps_its_bundle_until_it_is_removed_by_name(site, tmp_path, nodes, play):
    output, status = play(PUBLISH, nodes)
    assert status == 0, output
    del nodes["bm02"]
    output, status = play(PUBLISH, nodes)
    assert status == 0, output
    assert "changed=0" in output
    assert "the store has secrets of nodes without node_identity_ek in this inventory: bm02;" in " ".join(
        output.split()
    )
    assert sorted(os.listdir(tmp_path / "served/identity")) == ["bm01", "bm02"]
    removed = ["-e", json.dumps({"node_identity_removed": ["bm02"]})]
    output, status = play(PUBLISH, nodes, *removed, "--check")
    assert status == 0, output
    assert "changed=2" in output
    output, status = play(PUBLISH, nodes, *removed)
    assert status == 0, output
    assert "changed=2" in output
    assert os.listdir(tmp_path / "served/identity") == ["bm01"]
    assert site.store.entries("identity") == ["bm01"]
