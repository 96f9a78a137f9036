# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Certificates of firmware over Redfish, as DMTF's mockup of a server has them."""

from __future__ import annotations

import base64
from types import SimpleNamespace

import pytest

from ansible_collections.sailloft.fleet.plugins.module_utils.image.node import bmc_certificates
from ansible_collections.sailloft.fleet.plugins.module_utils.image.node.bmc import BmcError, BootBmc
from ansible_collections.sailloft.fleet.plugins.module_utils.image.node.bmc_certificates import FirmwareKeys, enrol_in

SYSTEM = {"SecureBoot": {"@odata.id": "/SecureBoot"}}


def pem(content: bytes, line: int = 64) -> str:
    text = base64.b64encode(content).decode()
    lines = [text[at : at + line] for at in range(0, len(text), line)]
    return "\n".join(["-----BEGIN CERTIFICATE-----", *lines, "-----END CERTIFICATE-----", ""])


OURS, MAKERS = pem(b"the site's" * 20), pem(b"the maker's" * 20)


class Bmc:
    """A BMC's resources by path; ``late``: it shows certificates only after a restart."""

    def __init__(self, late: bool = False) -> None:
        self.late = late
        self.sent: list[tuple[str, dict[str, object]]] = []
        self.certificates = {"db": [MAKERS], "KEK": [MAKERS], "PK": []}
        self.enabled = False

    def get(self, path: str) -> SimpleNamespace:
        part = path.split("/")[1:]
        bodies: dict[int, object] = {
            1: {"SecureBootEnable": self.enabled, "SecureBootDatabases": {"@odata.id": "/SecureBoot/D"}},
            2: {"Members": [{"@odata.id": f"/SecureBoot/D/{name}"} for name in [*self.certificates, "dbDefault"]]},
        }
        if len(part) == 3:
            found = {"Id": part[2], "DatabaseId": part[2]}
            bodies[3] = {**found, "Certificates": {"@odata.id": f"{path}/C"}} if part[2] in self.certificates else found
        elif len(part) == 4:
            bodies[4] = {"Members": [{"@odata.id": f"{path}/{at}"} for at in range(len(self.certificates[part[2]]))]}
        elif len(part) == 5:
            bodies[5] = {"CertificateString": self.certificates[part[2]][int(part[4])], "CertificateType": "PEM"}
        return SimpleNamespace(json=lambda: bodies[len(part)], headers={"ETag": "1"})

    def post(self, path: str, data: dict[str, str]) -> None:
        self.sent.append((path, data))
        if not self.late:
            self.certificates[path.split("/")[3]].append(data["CertificateString"])

    def patch(self, path: str, data: dict[str, bool], etag: str) -> None:
        assert etag == "1"
        self.sent.append((path, data))
        self.enabled = data["SecureBootEnable"]


def test_the_certificate_is_added_once_and_read_back_before_secure_boot_is_turned_on():
    bmc = Bmc()
    names = ["db", "KEK", "PK"]
    before, after = (FirmwareKeys(dict.fromkeys(names, held), held) for held in (False, True))
    predicted = enrol_in(bmc, SYSTEM, OURS, names, True, True)
    assert bmc.sent == []
    made = enrol_in(bmc, SYSTEM, OURS, names, True, False)
    assert made == predicted == bmc_certificates.Enrolment(before, after)
    assert [path for path, _data in bmc.sent] == [*(f"/SecureBoot/D/{name}/C" for name in names), "/SecureBoot"]
    assert bmc.sent[0][1] == {"CertificateString": OURS, "CertificateType": "PEM"}
    # Another form of the same certificate is the same.
    again = enrol_in(bmc, SYSTEM, pem(b"the site's" * 20, 76), names, True, False)
    assert (again.before, again.after, len(bmc.sent)) == (after, after, 4)


def test_a_bmc_that_does_not_show_the_certificate_yet_keeps_secure_boot_off():
    bmc = Bmc(late=True)
    made = enrol_in(bmc, SYSTEM, OURS, ["db"], True, False)
    assert made.pending == ("db",)
    assert made.after == FirmwareKeys({"db": False}, False)
    assert not bmc.enabled


@pytest.mark.parametrize(
    ("system", "certificate", "database", "cause"),
    [
        ({}, OURS, "db", "SecureBoot"),
        (SYSTEM, OURS, "dbx", "dbx"),
        (SYSTEM, OURS, "dbDefault", "dbDefault"),
        (SYSTEM, "/etc/sailloft/boot.crt", "db", "PEM"),
    ],
)
def test_what_cannot_be_enrolled_is_named(system, certificate, database, cause):
    with pytest.raises(BmcError, match=cause):
        enrol_in(Bmc(), system, certificate, [database], False, False)


def test_ipmi_has_no_certificates():
    with pytest.raises(BmcError, match="IPMI"):
        bmc_certificates.enrol(BootBmc("10.9.9.1", "root", "x", type="ipmi"), OURS, ["db"], False, False)
