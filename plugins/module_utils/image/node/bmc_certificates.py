# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Enrol a certificate in a node's firmware over Redfish, and turn Secure Boot on once the firmware has it.

Sources: DMTF, DSP0268 "Redfish Data Model", SecureBoot, SecureBootDatabase and Certificate. sushy knows the databases,
but not their certificates.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from ansible_collections.sailloft.fleet.plugins.module_utils.image.node import bmc_redfish
from ansible_collections.sailloft.fleet.plugins.module_utils.image.node.bmc import BmcError, BootBmc

PEM = re.compile(r"-----BEGIN CERTIFICATE-----(.*?)-----END CERTIFICATE-----", re.DOTALL)
ENABLE = "SecureBootEnable"


@dataclass(frozen=True)
class FirmwareKeys:
    """The databases by name and whether each has the certificate, and whether Secure Boot is set to on."""

    databases: dict[str, bool]
    enabled: bool


@dataclass(frozen=True)
class Enrolment:
    """The databases before and after the change; ``pending``: those that do not show the certificate yet."""

    before: FirmwareKeys
    after: FirmwareKeys
    pending: tuple[str, ...] = ()


def enrol(bmc: BootBmc, certificate: str, databases: Sequence[str], enable: bool, check: bool) -> Enrolment:
    """Add the certificate, PEM, to databases that lack it; with ``enable``, turn Secure Boot on. Raises BmcError."""
    if bmc.type != "redfish":
        raise BmcError("IPMI has no SecureBoot")
    with bmc_redfish.errors_of_bmc():
        connection = bmc_redfish.connect(bmc)
        system = bmc_redfish.find_system(connection, bmc).json
        return enrol_in(connection, system, certificate, databases, enable, check)


def enrol_in(
    connection: Any, system: dict[str, Any], certificate: str, databases: Sequence[str], enable: bool, check: bool
) -> Enrolment:
    """Do the work of ``enrol`` for a system's resource, over a sushy Connector."""
    wanted = next(_certificates(certificate), None)
    if wanted is None:
        raise BmcError("what it is to get is not in PEM")
    place = (system.get("SecureBoot") or {}).get("@odata.id")
    if not place:
        raise BmcError("its system has no SecureBoot")
    secure_boot = connection.get(place).json()
    collections = dict(_collections(connection, secure_boot))
    missing = [name for name in databases if name not in collections]
    if missing:
        raise BmcError(f"its SecureBootDatabases have no {', '.join(missing)} that can be read")

    def shown() -> dict[str, bool]:
        return {name: wanted in _stored(connection, collections[name]) for name in databases}

    old_keys = FirmwareKeys(shown(), bool(secure_boot.get(ENABLE)))
    if check:
        return Enrolment(old_keys, FirmwareKeys(dict.fromkeys(databases, True), enable or old_keys.enabled))
    lacking = [name for name in databases if not old_keys.databases[name]]
    for name in lacking:
        connection.post(collections[name], data={"CertificateString": certificate, "CertificateType": "PEM"})
    is_enrolled = shown()
    pending = tuple(name for name in lacking if not is_enrolled[name])
    # A node whose firmware does not yet trust the site's programs would not boot.
    if enable and not old_keys.enabled and all(is_enrolled.values()):
        answer = connection.get(place)
        connection.patch(place, data={ENABLE: True}, etag=answer.headers.get("ETag"))
    return Enrolment(old_keys, FirmwareKeys(is_enrolled, bool(connection.get(place).json().get(ENABLE))), pending)


def _collections(connection: Any, secure_boot: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield each database's name with the path of its certificates."""
    place = (secure_boot.get("SecureBootDatabases") or {}).get("@odata.id")
    for member in connection.get(place).json()["Members"] if place else ():
        database = connection.get(member["@odata.id"]).json()
        if certificates := (database.get("Certificates") or {}).get("@odata.id"):
            yield str(database.get("DatabaseId") or database["Id"]), str(certificates)


def _stored(connection: Any, collection: str) -> set[bytes]:
    """Return the certificates of a database, DER, that the BMC shows in PEM."""
    members = connection.get(collection).json()["Members"]
    texts = [connection.get(member["@odata.id"]).json().get("CertificateString") for member in members]
    return {certificate for text in texts for certificate in _certificates(str(text))}


def _certificates(text: str) -> Iterator[bytes]:
    """Yield the certificates of a text in PEM, as DER."""
    for body in PEM.findall(text):
        try:
            yield base64.b64decode("".join(body.split()), validate=True)
        except binascii.Error:
            continue
