# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Bring a firmware image to a node's BMC, and wait for the task that writes it.

A BMC that takes images by MultipartHttpPushUri gets the bytes whose SHA-256 was checked here. Others fetch them
themselves (SimpleUpdate), after the URL was fetched and checked from here; the version alone proves what they got.
Source: DMTF DSP0266, section "Update service", and DSP2062.
"""

from __future__ import annotations

import hashlib
import http.client
import io
import json
import os
import time
import urllib.request
from collections.abc import Iterator
from typing import Any

from ansible_collections.sailloft.fleet.plugins.module_utils.firmware.baseline import BaselineError, WantedVersion
from ansible_collections.sailloft.fleet.plugins.module_utils.image.node import bmc_redfish
from ansible_collections.sailloft.fleet.plugins.module_utils.image.node.bmc import BmcError, BootBmc

try:
    from sushy import exceptions
except ImportError:  # errors_of_bmc names it
    exceptions = None

CHUNK = 1 << 20
FETCH_S = 60
POLL_S = 2.0
# TaskState while a task is at work (DSP0268, Task).
AT_WORK = ("New", "Starting", "Running", "Suspended", "Interrupted", "Pending", "Stopping", "Service", "Cancelling")
BOUNDARY = "sailloft-firmware-boundary-5f0d2b"


class Images:
    """Firmware images by URL and SHA-256, each fetched once into a directory and checked."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self.paths: dict[tuple[str, str], str] = {}
        self.faults: dict[tuple[str, str], BaselineError] = {}

    def fetch(self, wanted: WantedVersion) -> None:
        """Fetch an image, if it has an URL. Raises BaselineError if it is not as wanted or cannot be read."""
        key = (wanted.url, wanted.sha256)
        if wanted.url and key not in self.paths and key not in self.faults:
            path = os.path.join(self.folder, f"{wanted.sha256}-{len(self.paths) + len(self.faults)}")
            try:
                _fetch(wanted, path)
            except BaselineError as error:
                self.faults[key] = error
            else:
                self.paths[key] = path
        if key in self.faults:
            raise self.faults[key]


def _fetch(wanted: WantedVersion, path: str) -> None:
    digest = hashlib.sha256()
    try:
        with urllib.request.build_opener().open(wanted.url, timeout=FETCH_S) as source, open(path, "wb") as target:
            while chunk := source.read(CHUNK):
                digest.update(chunk)
                target.write(chunk)
    except (OSError, ValueError, http.client.HTTPException) as error:
        cause = f"{wanted.url} cannot be fetched: {error}"
        raise BaselineError(cause, "check the URL from the host node_boot_bmc_from") from error
    if digest.hexdigest() != wanted.sha256:
        cause = f"{wanted.url} has the SHA-256 {digest.hexdigest()}, not {wanted.sha256}"
        raise BaselineError(cause, "check which image the baseline means")


def update(
    connection: Any, bmc: BootBmc, wanted: WantedVersion, entry: str | None, images: Images, limit_s: float
) -> None:
    """Have the BMC write the image, and wait until it has. Raises BmcError and sushy's errors."""
    service = connection.get("/redfish/v1/UpdateService").json()
    targets = list(wanted.targets) if wanted.targets is not None else [entry] if entry else []
    push = service.get("MultipartHttpPushUri")
    if push:
        answer = _push(bmc, str(push), images.paths[wanted.url, wanted.sha256], targets)
    else:
        action = (service.get("Actions") or {}).get("#UpdateService.SimpleUpdate") or {}
        if not action.get("target"):
            raise BmcError("it offers neither MultipartHttpPushUri nor SimpleUpdate")
        protocol = wanted.url.split(":", 1)[0].upper()
        body = {"ImageURI": wanted.url, "TransferProtocol": protocol, **({"Targets": targets} if targets else {})}
        answer = connection.post(action["target"], data=body)
    place = answer.headers.get("Location")
    if place:
        _wait(connection, str(place), wanted.name, limit_s)


class _Body:
    """A multipart body that is read from its file while it is sent, with a length, because BMCs refuse chunks."""

    def __init__(self, parts: list[Any], length: int) -> None:
        self.parts, self.length = parts, length

    def __len__(self) -> int:
        return self.length

    def __iter__(self) -> Iterator[bytes]:  # requests takes nothing else for a stream
        return iter(lambda: self.read(CHUNK), b"")

    def read(self, size: int = -1) -> bytes:
        """Return the next bytes, none at the end."""
        while self.parts:
            if chunk := bytes(self.parts[0].read(size)):
                return chunk
            self.parts.pop(0)
        return b""


def _push(bmc: BootBmc, path: str, image: str, targets: list[str]) -> Any:
    """Send the image's bytes. Raises BmcError."""
    import requests

    parameters = json.dumps({"Targets": targets} if targets else {})
    lines = [
        f"--{BOUNDARY}",
        'Content-Disposition: form-data; name="UpdateParameters"',
        "Content-Type: application/json",
        "",
        parameters,
        f"--{BOUNDARY}",
        f'Content-Disposition: form-data; name="UpdateFile"; filename="{os.path.basename(image)}"',
        "Content-Type: application/octet-stream",
        "",
        "",
    ]
    head, tail = "\r\n".join(lines).encode(), f"\r\n--{BOUNDARY}--\r\n".encode()
    length = len(head) + os.path.getsize(image) + len(tail)
    try:
        with open(image, "rb") as content:
            answer = requests.post(
                f"https://{bmc.address}{path}",
                data=_Body([io.BytesIO(head), content, io.BytesIO(tail)], length),
                headers={"Content-Type": f"multipart/form-data; boundary={BOUNDARY}"},
                auth=(bmc.username, bmc.password),
                verify=bmc_redfish.trusted_certificates(bmc),
                timeout=bmc.timeout_s,
            )
    except (requests.RequestException, OSError) as error:
        raise BmcError(bmc_redfish.connection_cause(error)) from error
    if answer.status_code >= 400:
        raise BmcError(f"it refused the image: HTTP code {answer.status_code}")
    return answer


def _wait(connection: Any, place: str, name: str, limit_s: float) -> None:
    """Wait until the task at a task monitor, or a task itself, has ended well. Raises BmcError.

    A BMC that writes its own firmware does not answer for minutes, and may have forgotten the task then.
    """
    end = time.monotonic() + limit_s
    cause = "its task did not end"
    while time.monotonic() < end:
        try:
            answer = connection.get(place)
        except exceptions.ResourceNotFoundError:
            return
        except exceptions.ConnectionError as error:
            cause = bmc_redfish.connection_cause(error)
        except exceptions.HTTPError as error:
            if error.status_code < 500:
                raise
            cause = f"it answers {error.status_code}"
        else:
            task = answer.json() if answer.content else {}
            state, status = task.get("TaskState"), task.get("TaskStatus")
            if answer.status_code != 202 and state not in AT_WORK:
                if state in (None, "Completed") and status in (None, "OK"):
                    return
                raise BmcError(f"its task to update {name} ended as {state} ({status}): {_said(task)}")
            cause = "its task did not end"
        time.sleep(POLL_S)
    raise BmcError(f"{cause} {limit_s:g} s after the update of {name} began")


def _said(task: dict[str, Any]) -> str:
    texts = [str(message.get("Message") or message.get("MessageId")) for message in task.get("Messages") or []]
    return "; ".join(texts) or "it gives no reason"
