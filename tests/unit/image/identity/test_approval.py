# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The approval of TPMs for secrets, with certificates that openssl makes and verifies."""

from __future__ import annotations

import base64
import json
import subprocess

import pytest
from ansible.module_utils.testing import patch_module_args
from messages import Mentions, raises

from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.errors import ImageError
from ansible_collections.sailloft.fleet.plugins.module_utils.image.identity import approval, identity, tools
from ansible_collections.sailloft.fleet.plugins.module_utils.image.identity.approval import Approval
from ansible_collections.sailloft.fleet.plugins.modules import node_identity_approval

# Manufacturers of TPMs write X.509 v3 certificates with the TPM's manufacturer in an alternative name (openssl numbers
# fields with a prefix such as 0.) and the purpose tcg-kp-EKCertificate. Source: TCG, "EK Credential Profile", 3.2.
EK_EXTENSIONS = """
basicConstraints = critical, CA:FALSE
keyUsage = critical, keyEncipherment
extendedKeyUsage = 2.23.133.8.1
subjectAltName = critical, dirName:tpm
[tpm]
0.2.23.133.2.1 = id:00001014
"""
CA_EXTENSIONS = "basicConstraints = critical, CA:TRUE\nkeyUsage = critical, keyCertSign\n"


class Maker:
    """A manufacturer of TPMs: a root, an intermediate that the root signs, and TPM keys with certificates."""

    def __init__(self, folder):
        self.folder = folder
        folder.mkdir()
        (folder / "ca.cnf").write_text(CA_EXTENSIONS)
        (folder / "ek.cnf").write_text(EK_EXTENSIONS)
        self._run("openssl genrsa -out root.key 2048")
        self._run(f"openssl req -x509 -new -key root.key -subj /CN={folder.name}-root -days 30 -out root.pem")
        self._run("openssl genrsa -out issuer.key 2048")
        self._run(f"openssl req -new -key issuer.key -subj /CN={folder.name}-issuer -out issuer.csr")
        self._run(
            "openssl x509 -req -in issuer.csr -CA root.pem -CAkey root.key -extfile ca.cnf -days 30 -out issuer.pem"
        )
        self.authorities = [str(folder / "root.pem"), str(folder / "issuer.pem")]

    def _run(self, command):
        return subprocess.run(command.split(), cwd=self.folder, check=True, capture_output=True).stdout

    def tpm(self, name, extensions="-extfile ek.cnf"):
        """Return a TPM's endorsement key as a TPM2B_PUBLIC, and its certificate in DER."""
        self._run(f"openssl genrsa -out {name}.key 2048")
        self._run(f"openssl req -new -key {name}.key -subj /CN=TPM -out {name}.csr")
        signed = (
            f"openssl x509 -req -in {name}.csr -CA issuer.pem -CAkey issuer.key -days 30 -outform DER -out {name}.der"
        )
        self._run(f"{signed} {extensions}")
        modulus = self._run(f"openssl rsa -in {name}.key -noout -modulus").decode().strip().partition("=")[2]
        ek = (len(identity.EK_TEMPLATE) + 256).to_bytes(2, "big") + identity.EK_TEMPLATE + bytes.fromhex(modulus)
        return ek, (self.folder / f"{name}.der").read_bytes()


@pytest.fixture(scope="module")
def maker(tmp_path_factory):
    return Maker(tmp_path_factory.mktemp("makers") / "maker")


@pytest.fixture(scope="module")
def tpms(maker):
    return {name: maker.tpm(name) for name in ("bm01", "laptop")}


def version(certificate):
    """Return the X.509 version: the INTEGER in [0] of TBSCertificate plus 1 (RFC 5280 4.1.2.1), or 1 without it."""
    body = certificate[8:]
    return body[4] + 1 if body[0] == 0xA0 else 1


def test_an_x509_v3_certificate_matches_only_its_key(tpms):
    ek, certificate = tpms["bm01"]
    assert version(certificate) == 3
    assert identity.certificate_of(certificate + b"\xff" * 9) == certificate
    assert identity.certificate_is_of(certificate, ek) is True
    assert identity.certificate_is_of(certificate, tpms["laptop"][0]) is False


def test_an_x509_v1_certificate_matches_its_key(maker):
    ek, certificate = maker.tpm("old", "")
    assert version(certificate) == 1
    assert identity.certificate_is_of(certificate, ek) is True


def test_a_certificate_verifies_only_against_the_chain_of_its_manufacturer(maker, tpms, tmp_path):
    _ek, certificate = tpms["bm01"]
    assert tools.verify(certificate, maker.authorities) is None
    other = Maker(tmp_path / "other")
    assert "unable to get local issuer certificate" in tools.verify(certificate, other.authorities)
    # The intermediate alone is not enough: it may be revoked, which a missing root expresses.
    assert "unable to get issuer certificate" in tools.verify(certificate, maker.authorities[1:])
    forged = certificate[:-1] + bytes([certificate[-1] ^ 1])
    assert "certificate signature failure" in tools.verify(forged, maker.authorities)
    assert tools.verify(b"\x30\x03abc", maker.authorities) is not None


def test_the_certificate_authorities_of_the_system_are_not_trusted(maker, tpms, tmp_path, monkeypatch):
    """openssl searches the system's directories of certificates unless its options prevent that."""
    other = Maker(tmp_path / "other")
    subprocess.run(["openssl", "rehash", str(maker.folder)], check=True, capture_output=True)
    real = subprocess.run
    folder = {"SSL_CERT_DIR": str(maker.folder)}
    monkeypatch.setattr(
        tools.subprocess,
        "run",
        lambda *argv, env, check, **more: real(*argv, env={**env, **folder}, check=check, **more),
    )
    assert tools.verify(tpms["bm01"][1], other.authorities) is not None


@pytest.mark.parametrize(
    ("content", "why"),
    [(None, "No such file or directory; give a file that exists"), (b"DER", "it has no certificate in PEM; convert")],
)
def test_a_file_without_authorities_is_refused(tpms, tmp_path, content, why):
    path = tmp_path / "ca.pem"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ImageError) as caught:
        tools.verify(tpms["bm01"][1], [str(path)])
    assert str(caught.value).startswith(f"node_identity_tpm_ca {path}: {why}")


UNKNOWN = "its fingerprint is not in node_identity_approved"


def test_an_unknown_tpm_is_pending(tpms):
    ek, certificate = tpms["laptop"]
    fingerprint = identity.ek_digest(ek)
    for seen in (None, certificate):
        assert approval.decide("bm01", ek, seen, None, [], None) == Approval(False, fingerprint, UNKNOWN)
    assert approval.decide("bm01", ek, None, None, [], lambda _data: None) == Approval(
        False, fingerprint, f"{UNKNOWN}, and it has no certificate"
    )
    assert approval.decide("bm01", ek, certificate, None, ["0" * 64], lambda _data: "too old") == Approval(
        False, fingerprint, f"{UNKNOWN}, and its certificate does not verify against node_identity_tpm_ca: too old"
    )


def test_a_tpm_is_approved_by_fingerprint_enrolled_key_or_certificate(tpms):
    ek, certificate = tpms["bm01"]
    other = tpms["laptop"][0]
    fingerprint = identity.ek_digest(ek)
    for given, why in (
        ((None, None, [fingerprint], None), "its fingerprint is in node_identity_approved"),
        ((None, other, [fingerprint], None), "its fingerprint is in node_identity_approved"),
        ((None, ek, [], None), "it is the enrolled key"),
        ((certificate, None, [], lambda _data: None), "its certificate verifies against node_identity_tpm_ca"),
    ):
        assert approval.decide("bm01", ek, *given) == Approval(True, fingerprint, why)


def test_a_key_other_than_the_enrolled_one_is_refused_even_with_a_certificate(tpms):
    """A laptop with the node's MAC address may also have a TPM with a valid certificate."""
    ek, certificate = tpms["laptop"]
    with raises(ImageError, "bm01", "node_identity_ek", identity.ek_digest(ek), "node_identity_approved"):
        approval.decide("bm01", ek, certificate, tpms["bm01"][0], [], lambda _data: None)


def test_a_certificate_of_another_key_is_refused(tpms):
    with raises(ImageError, "bm01", "certificate", "another key"):
        approval.decide("bm01", tpms["bm01"][0], tpms["laptop"][1], None, [], None)


@pytest.mark.parametrize("fingerprint", ["", "5d0c", "A" * 64, 7])
def test_an_invalid_fingerprint_is_refused(tpms, fingerprint):
    with raises(ImageError, "bm01", "node_identity_approved", repr(fingerprint), "64"):
        approval.decide("bm01", tpms["bm01"][0], None, None, [fingerprint], None)


def test_the_module_returns_the_approval_with_reason_and_fingerprint(maker, tpms, capsys):
    def call(**options):
        with patch_module_args(json.loads(json.dumps(options))), pytest.raises(SystemExit):
            node_identity_approval.main()
        return json.loads(capsys.readouterr().out)

    ek, certificate = (base64.b64encode(data).decode() for data in tpms["bm01"])
    found = call(node="bm01", ek=ek, certificate=certificate, tpm_ca=maker.authorities)
    assert (found["changed"], found["approved"]) == (False, True)
    assert found["why"] == "its certificate verifies against node_identity_tpm_ca"
    assert found["fingerprint"] == identity.ek_digest(tpms["bm01"][0])
    assert found["checked"] != call(node="bm01", ek=ek)["checked"]
    assert call(node="bm01", ek=ek)["approved"] is False
    assert call(node="bm01", ek=ek, enrolled=ek)["approved"] is True
    assert call(node="bm01", ek=ek, certificate="@")["msg"] == Mentions("certificate", "base64")
    # What is shown of the node's answer is computed here: white space in it could overwrite the line on a terminal.
    assert call(node="bm01", ek=f"{ek[:9]}\r\x1c\n{ek[9:]}")["ek"] == ek
    assert call(node="bm01", ek=f"\x1b{ek}")["msg"] == Mentions("node bm01", "base64")
    assert call(node="bm01", ek="AAAA")["msg"] == Mentions("node bm01", "RSA 2048", "endorsement key")
