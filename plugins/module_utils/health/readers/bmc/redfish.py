# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Read what a BMC says over Redfish of power supplies, their redundancy, fans, temperatures and the whole server.

New BMCs have PowerSubsystem and ThermalSubsystem, older ones Power and Thermal, many have both: the new ones count.
Only GET is sent, only to the BMC's own address, and no text of an answer or an exception is in an error, because some
BMCs repeat the request, with the account, in it.
"""

from __future__ import annotations

import base64
import http.client
import json
import socket
import ssl
import time
from collections.abc import Iterator
from typing import Any

from ansible_collections.sailloft.fleet.plugins.module_utils.health.model import Measurement, Place, Reading
from ansible_collections.sailloft.fleet.plugins.module_utils.health.readers.bmc import documents
from ansible_collections.sailloft.fleet.plugins.module_utils.health.readers.bmc.target import Bmc
from ansible_collections.sailloft.fleet.plugins.module_utils.health.readers.node import NotMeasuredError

ROOT = "/redfish/v1"
# A document of a real BMC has less than 100 KiB, and a server less than 256 chassis, or supplies or fans of one.
MOST_BYTES, MOST_MEMBERS = 4 << 20, 256
MOVED = (301, 302, 303, 307, 308)
REASONS = {
    401: "it refused the account (401): check its user name and password",
    403: "its account may not read this (403): give it the role ReadOnly",
    404: "it has no such resource (404)",
    503: "it is busy (503)",
}


class _NoResourceError(NotMeasuredError):
    """A resource that the BMC links to and does not have, or cannot give now."""


class Connection:
    """A connection to a BMC that is kept open, and the deadline for all that is read through it."""

    def __init__(self, bmc: Bmc) -> None:
        self.end = time.monotonic() + bmc.timeout_s
        account = base64.b64encode(f"{bmc.username}:{bmc.password}".encode()).decode()
        self.headers = {"Accept": "application/json", "Authorization": f"Basic {account}", "OData-Version": "4.0"}
        try:
            context = ssl.create_default_context(cafile=bmc.ca or None)
        except (OSError, ssl.SSLError) as error:
            raise NotMeasuredError(f"the certificates in {bmc.ca} cannot be read") from error
        if not bmc.verify_tls:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        try:
            self.connection = http.client.HTTPSConnection(bmc.address, context=context)
        except http.client.InvalidURL as error:
            raise NotMeasuredError("its address is no address: write HOST or HOST:PORT") from error

    def close(self) -> None:
        """End the connection."""
        self.connection.close()

    def get(self, path: str) -> dict[str, Any]:
        """Return the JSON object at a path of the BMC. Raises NotMeasuredError."""
        for _attempt in range(3):
            status, body, location = self._answer(path)
            if status in MOVED and location.startswith("/"):
                path = location
                continue
            if status != 200:
                kind = NotMeasuredError if status in (401, 403) else _NoResourceError
                raise kind(REASONS.get(status, f"it answered {status}"))
            try:
                document = json.loads(body)
            except (ValueError, RecursionError) as error:
                raise _NoResourceError("its answer is no JSON") from error
            if not isinstance(document, dict):
                raise _NoResourceError("its answer is no JSON object")
            if not document:
                raise _NoResourceError("its answer is an empty object")
            return document
        raise _NoResourceError("it moves the resource again and again")

    def _answer(self, path: str) -> tuple[int, bytes, str]:
        """Return status, body and the new place of a GET. A connection that the BMC closed is opened once more."""
        for attempt in (1, 2):
            remaining_s = self.end - time.monotonic()
            if remaining_s <= 0:
                raise NotMeasuredError("it did not answer in time")
            self.connection.timeout = remaining_s
            if self.connection.sock:
                self.connection.sock.settimeout(remaining_s)
            is_new = not self.connection.sock
            try:
                self.connection.request("GET", path, headers=self.headers)
                answer = self.connection.getresponse()
                return answer.status, self._body(answer), answer.getheader("Location") or ""
            except ssl.SSLCertVerificationError as error:
                cause = f"its certificate is not trusted ({error.verify_message}): name its authority as ca"
                raise NotMeasuredError(cause) from None
            except socket.timeout:
                raise NotMeasuredError("it did not answer in time") from None
            except (OSError, http.client.HTTPException, ValueError) as error:
                self.connection.close()
                if is_new or attempt == 2:
                    kind = error.strerror if isinstance(error, OSError) and error.strerror else type(error).__name__
                    raise NotMeasuredError(f"it cannot be reached: {kind}") from None
        raise AssertionError("unreachable")

    def _body(self, answer: http.client.HTTPResponse) -> bytes:
        """Return the body; a BMC that sends a byte now and then must not outlast the deadline."""
        body = bytearray()
        while True:
            part = answer.read1(1 << 16)
            body += part
            if not part:
                return bytes(body)
            if len(body) > MOST_BYTES:
                raise NotMeasuredError(f"its answer has more than {MOST_BYTES >> 20} MiB")
            if time.monotonic() > self.end:
                raise NotMeasuredError("it did not answer in time")


def read(bmc: Bmc) -> Reading:
    """Measure what the BMC says of all its chassis and systems. Raises NotMeasuredError."""
    start = time.monotonic()
    connection = Connection(bmc)
    try:
        measurements = [item for chassis in _roots(connection, "Chassis") for item in _chassis(connection, chassis)]
        measurements += _health(connection, measurements)
    finally:
        connection.close()
    return Reading("redfish", tuple(measurements), seconds=time.monotonic() - start)


def _roots(connection: Connection, name: str) -> list[dict[str, Any]]:
    """Return the documents of a collection of the root, which has a member in every server."""
    members = _members(connection, f"{ROOT}/{name}")
    if not members:
        raise _NoResourceError(f"its collection {name} is empty")
    return members


def _members(connection: Connection, path: str) -> list[dict[str, Any]]:
    """Return the documents of a collection's members; of one that cannot be read only its name."""
    listed = _at(connection, path).get("Members")
    if not isinstance(listed, list):
        raise _NoResourceError("its collection has no list of members")
    if len(listed) > MOST_MEMBERS:
        raise _NoResourceError(f"its collection has more than {MOST_MEMBERS} members")
    members = []
    for number, member in enumerate(documents.links(listed)):
        try:
            members.append(_at(connection, member))
        except _NoResourceError:
            members.append({"Id": member.rstrip("/").rsplit("/", 1)[-1] or f"member {number}", "@odata.id": member})
    return members


def _at(connection: Connection, path: str) -> dict[str, Any]:
    """Return the document at a link's path, "" of what is no link."""
    if not path:
        raise _NoResourceError("its link to the resource is none")
    return connection.get(path)


def _is_unread(member: dict[str, Any]) -> bool:
    return not member.keys() - {"Id", "@odata.id"}


def _chassis(connection: Connection, chassis: dict[str, Any]) -> Iterator[Measurement]:
    """Return the measurements of one chassis; one without power supplies and fans, such as a drive cage, has none."""
    if _is_unread(chassis):
        place = Place("bmc", f"chassis {chassis.get('Id', '')}".rstrip())
        yield Measurement("bmc_power_supply", place, None, f"{ROOT}/Chassis", "the chassis cannot be read")
    yield from _first(connection, chassis, (("PowerSubsystem", _power_subsystem), ("Power", _power)))
    yield from _first(connection, chassis, (("ThermalSubsystem", _thermal_subsystem), ("Thermal", _thermal)))


def _first(connection: Connection, chassis: dict[str, Any], ways: tuple[tuple[str, Any], ...]) -> list[Measurement]:
    """Return the measurements of the first resource that has some. A resource that cannot be read gives the reason."""
    causes = []
    for name, parse in ways:
        if chassis.get(name) is None:
            continue
        path = documents.link(chassis[name])
        try:
            measurements = list(parse(connection, _at(connection, path)))
        except _NoResourceError as error:
            causes.append((name, path, error.cause))
            continue
        if measurements:
            return measurements
    check = "bmc_power_supply" if ways[0][0] == "PowerSubsystem" else "bmc_fan"
    return [Measurement(check, Place("bmc", name), None, path, cause) for name, path, cause in causes[:1]]


def _linked_members(connection: Connection, document: dict[str, Any], key: str) -> list[dict[str, Any]]:
    """Return the members of a collection that a document links to, none if it has no such property."""
    value = document.get(key)
    return [] if value is None else _members(connection, documents.link(value))


def _power_subsystem(connection: Connection, subsystem: dict[str, Any]) -> Iterator[Measurement]:
    yield from documents.power_supplies(_linked_members(connection, subsystem, "PowerSupplies"))
    yield from documents.redundancy(subsystem.get("PowerSupplyRedundancy"))


def _power(_connection: Connection, power: dict[str, Any]) -> Iterator[Measurement]:
    yield from documents.power(power)


def _thermal_subsystem(connection: Connection, subsystem: dict[str, Any]) -> Iterator[Measurement]:
    yield from documents.fans(_linked_members(connection, subsystem, "Fans"))
    yield from documents.redundancy(subsystem.get("FanRedundancy"))
    yield from documents.thermal_status(subsystem)


def _thermal(_connection: Connection, thermal: dict[str, Any]) -> Iterator[Measurement]:
    yield from documents.thermal(thermal)


def _health(connection: Connection, parts: list[Measurement]) -> list[Measurement]:
    """Return the health of each system, which a fault of a part above explains."""
    is_explained = any(part.value is True for part in parts)
    try:
        systems = _roots(connection, "Systems")
    except _NoResourceError as error:
        return [Measurement("bmc_health", Place("bmc", "system"), None, f"{ROOT}/Systems", error.cause)]
    return [documents.health(system, is_explained) for system in systems]
