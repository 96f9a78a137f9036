# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The signed statement of what each node may run: one file for all nodes, so that nothing in it can be mixed.

It has the roles of TUF's snapshot (all parts of one moment), by its one signature, and timestamp (a sequence and an
expiry). TUF's own client needs Python, which the first stage does not have. The file is canonical JSON, which the first
stage reads by lines and indentation, and then the four lines of minisign's signature of it.
"""

from __future__ import annotations

import calendar
import json
import os
import re
import time
from dataclasses import asdict, dataclass, field

from ansible_collections.sailloft.fleet.plugins.module_utils.common import stored
from ansible_collections.sailloft.fleet.plugins.module_utils.common.disk import write_atomic
from ansible_collections.sailloft.fleet.plugins.module_utils.common.stored import StoredError
from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.errors import ImageError
from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.files import (
    DIGEST,
    canonical_json,
    make_folder,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.image.store.sign import Comments, Signer
from ansible_collections.sailloft.fleet.plugins.module_utils.image.store.store import NODES, Store

FORMAT = "sailloft-statement/1"
# The file in the store's directory of nodes, whose files no web server caches.
STATEMENT = "statement"
COMMENTS = Comments("sailloft statement", "signature of a sailloft statement")
SIGNATURE_BEGINS = b"untrusted comment: "
AGAIN = "write it again with playbooks/node_scripts.yml"
TIME = "%Y-%m-%dT%H:%M:%SZ"
# Above any time in seconds. The sequence in a store is not verified, and must not push the next one beyond.
SEQUENCE_END = 1 << 40
# Characters that end a value for the first stage.
UNREADABLE = re.compile(r'["\\]')


@dataclass(frozen=True)
class StatedNode:
    """A node's lines: its image's digest, the URLs of its servers, caches and for its reports, and its NICs.

    ``nics`` are lines "NIC ADDRESS [GATEWAY]"; ``channel`` is the one that it follows, empty for a pin. Until the time
    ``until`` a kernel of the image ``previous`` may boot that image: the node had fetched it, or its script is replaced
    after the statement. Both are empty if the image has not changed lately. ``files`` is the digest of its own files
    (node_files), empty for none.
    """

    name: str
    image: str
    servers: tuple[str, ...]
    nics: tuple[str, ...]
    channel: str = ""
    report: str = ""
    previous: str = ""
    until: str = ""
    files: str = ""
    caches: tuple[str, ...] = ()


@dataclass(frozen=True)
class Statement:
    """The images that nodes may run, by the MAC address that boots; times are UTC, as ``TIME`` writes them."""

    sequence: int
    issued: str
    expires: str
    nodes: dict[str, StatedNode] = field(default_factory=dict)


def dump(statement: Statement) -> bytes:
    """Return the bytes that are signed; ``load`` reads them."""
    return canonical_json({"format": FORMAT, **asdict(statement)})


def signed(statement: Statement, signer: Signer) -> bytes:
    """Return the statement's file, with its signature. Raises ImageError."""
    data = dump(statement)
    return data + signer.sign([data], COMMENTS)[0]


def split(data: bytes) -> tuple[bytes, bytes]:
    """Return the signed bytes of a statement's file, and their signature."""
    head, _newline, tail = data.partition(b"\n" + SIGNATURE_BEGINS)
    return head + b"\n", SIGNATURE_BEGINS + tail


def load(data: bytes, subject: str) -> Statement:
    """Parse a statement's file. Its signature is not verified. Raises ImageError, about ``subject``."""
    try:
        statement: Statement = stored.load(Statement, json.loads(split(data)[0]), FORMAT, "statement", AGAIN)
        for text in (statement.issued, statement.expires, *(node.until for node in statement.nodes.values())):
            if text:
                seconds(text)
        if not 0 < statement.sequence < SEQUENCE_END:
            raise ValueError(f"its sequence is {statement.sequence}")
    except StoredError as error:
        raise ImageError(error.cause, error.remedy, subject=subject) from error
    except (ValueError, RecursionError) as error:
        raise ImageError(f"not a statement: {error}", AGAIN, subject=subject) from error
    for mac, node in statement.nodes.items():
        texts = (mac, node.name, node.channel, node.report, node.until, *node.servers, *node.caches, *node.nics)
        digests = [node.image, *filter(None, [node.previous, node.files])]
        if not all(map(DIGEST.fullmatch, digests)) or any(map(UNREADABLE.search, texts)):
            raise ImageError(f"its lines of {mac} cannot be read by a first stage", AGAIN, subject=subject)
    return statement


def seconds(text: str) -> int:
    """Return the seconds since 1970 of a time in the form TIME. Raises ValueError."""
    return calendar.timegm(time.strptime(text, TIME))


def text_of(instant_s: int) -> str:
    """Return the seconds since 1970 as text in the form TIME."""
    return time.strftime(TIME, time.gmtime(instant_s))


def path_of(store: Store) -> str:
    """Return the path of a store's statement."""
    return store.place(NODES, STATEMENT)


def read(store: Store) -> Statement | None:
    """Return the store's statement, None if there is none that can be read. Raises ImageError."""
    data = store.contents(NODES, STATEMENT)
    try:
        return load(data, store.subject) if data else None
    except ImageError:
        return None


def sequence_in(store: Store) -> int:
    """Return the sequence of the store's statement, 0 if there is none that can be read. Raises ImageError."""
    present = read(store)
    return present.sequence if present else 0


def put(store: Store, data: bytes, check: bool = False) -> bool:
    """Write a signed statement, unless the store has it or a later one; return whether the store changes.

    Call it only under ``locked``. Raises ImageError, also if the store has another statement with the same sequence.
    """
    present = store.contents(NODES, STATEMENT)
    sequence, present_sequence = load(data, "statement to write").sequence, sequence_in(store)
    if present == data or present_sequence > sequence:
        return False
    if present_sequence == sequence:
        raise ImageError(
            "differs from the one to be written, with the same number",
            "let one host sign for all (node_boot_signer), and run once with node_boot_statement_reissue: true",
            subject=f"{store.subject}: statement {sequence}",
        )
    if not check:
        with store.reported():
            folder = store.place(NODES)
            if not os.path.isdir(folder):
                make_folder(folder)
            write_atomic(path_of(store), data)
    return True
