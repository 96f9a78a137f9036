# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Ask the boot servers of a node without a disk for the copy of its health, and send them new ones.

Each server is asked once in a boot, before the first round judges, and gets copies only after it has answered: so no
copy replaces one that the node has not seen. What was asked and sent in this boot is noted in a file below /run.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace

from ansible_collections.sailloft.fleet.plugins.module_utils.common import disk, stored
from ansible_collections.sailloft.fleet.plugins.module_utils.common.error import SailloftError
from ansible_collections.sailloft.fleet.plugins.module_utils.health import copied
from ansible_collections.sailloft.fleet.plugins.module_utils.health.copied import StateCopy
from ansible_collections.sailloft.fleet.plugins.module_utils.health.model import Event, Measurement, Place, clean
from ansible_collections.sailloft.fleet.plugins.module_utils.health.rules.checker import (
    COPY_NOT_KEPT,
    STATE_BEFORE_BOOT,
    STATE_UNREADABLE,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.health.state import State, locked, read

# What the first stage of an image wrote, and the role node_identity.
BOOT, IDENTITY = "/run/sailloft/boot.json", "/run/sailloft/identity.json"
KEY = "/etc/ssh/ssh_host_ed25519_key"
NOTES, NOTES_FORMAT = "boot_servers.json", "sailloft-health-copies/1"
# Seconds for one server, and for one call of ssh-keygen.
SERVER_S, SIGN_S = 5.0, 10.0
KEPT, NONE, NEWER = 200, 204, 409
REASONS = {
    403: "it does not know this node's host key: run playbooks/node_identities.yml",
    404: "it keeps no copies: run playbooks/boot_servers.yml",
    502: "its sailloft-health-keeper.service does not run",
    NEWER: "it has a newer copy, which the next round reads",
    507: "it cannot write: is its disk full?",
}


class CopyError(SailloftError):
    """A copy that cannot be signed, or is not signed by this node."""


@dataclass(frozen=True)
class Notes:
    """The servers that were asked in this boot, and the copies that were sent."""

    number: int = 0  # the greatest of a copy of this node
    is_known: bool = False  # what was before the boot: a copy was there, or no server has one
    asked: tuple[str, ...] = ()  # the servers that answered
    sent: dict[str, str] = field(default_factory=dict)  # the essence of the last copy, by server that took it
    # By server: why it did not answer, or did not take the last copy.
    silent: dict[str, str] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Asked:
    """The answers of the boot servers in this round, and the notes with them."""

    notes: Notes
    copy: State | None = None  # the newest that this node signed
    event: Event | None = None  # a copy is there, but none that this node signed

    @property
    def measurements(self) -> tuple[Measurement, ...]:
        """The two checks: is the state of before the boot known, and is a new copy kept."""
        notes, node = self.notes, Place("node")
        silent = "" if notes.is_known else _sentence(notes.silent)
        result = [Measurement(STATE_BEFORE_BOOT, node, not notes.is_known, BOOT, silent)]
        if notes.sent or notes.refused:
            is_kept = any(server not in notes.refused for server in notes.sent)
            result.append(Measurement(COPY_NOT_KEPT, node, not is_kept, BOOT, _sentence(notes.refused)))
        return tuple(result)

    @property
    def remarks(self) -> tuple[str, ...]:
        """Sentences on servers that fail while another one has a copy."""
        notes = self.notes
        silent = [
            f"{server} may have a newer copy: {cause}" for server, cause in notes.silent.items() if notes.is_known
        ]
        refused = [f"{server} does not keep the last copy: {cause}" for server, cause in notes.refused.items()]
        return tuple(clean(text) for text in (*silent, *refused))


def _sentence(reasons: Mapping[str, str]) -> str:
    return clean("; ".join(f"{server}: {reason}" for server, reason in reasons.items()))


@dataclass(frozen=True)
class _BootedBy:
    """This node's name in its boot, and the URLs of its boot servers."""

    node: str
    servers: tuple[str, ...]

    def url(self, server: str) -> str:
        return f"{server.rstrip('/')}/health/{self.node}"


def ask(root: str, run: str) -> Asked | None:
    """Ask the servers that have not answered in this boot; None on a node that was not booted from a boot server."""
    boot = _boot(root)
    if boot is None:
        return None
    notes = _notes(run)
    missing = [server for server in boot.servers if server not in notes.asked]
    if not missing:
        return Asked(notes)
    problem = _identity_problem(root)
    if problem:
        return Asked(replace(notes, silent=dict.fromkeys(missing, problem)))
    copies, silent, damaged = _answers(boot, missing, root, run)
    newest = max(copies, key=lambda copy: copy.number, default=None)
    event = _unreadable(damaged) if damaged and not copies else None
    is_newer = newest is not None and newest.number > notes.number
    notes = replace(
        notes,
        number=newest.number if newest and is_newer else notes.number,
        is_known=notes.is_known or bool(copies) or not silent,
        asked=(*notes.asked, *(server for server in missing if server not in silent)),
        silent=silent,
    )
    return Asked(notes, newest.state if newest and is_newer else None, event)


def _answers(
    boot: _BootedBy, servers: Sequence[str], root: str, run: str
) -> tuple[list[StateCopy], dict[str, str], dict[str, str]]:
    """Return the copies that this node signed, and by server why there is no answer, or no such copy."""
    copies: list[StateCopy] = []
    silent: dict[str, str] = {}
    damaged: dict[str, str] = {}
    for server in servers:
        try:
            status, content = exchange(boot.url(server))
            if status not in (KEPT, NONE):
                silent[server] = _reason(status)
            elif status == KEPT:
                copies.append(_verified(content, boot.node, root, run))
        except SailloftError as error:
            damaged[server] = error.cause
        except OSError as error:
            silent[server] = str(error)
    return copies, silent, damaged


def _unreadable(damaged: Mapping[str, str]) -> Event:
    reason = clean(f"{_sentence(damaged)}: faults and drains of before are unknown")
    return Event(STATE_UNREADABLE, Place("node"), reason, "boot servers", reason)


def remember(answers: Asked, run: str) -> None:
    """Note what was asked, after a state with the copies in it was saved. Raises OSError."""
    with locked("copies", run):
        # A person's word may have been sent in the meantime.
        old, new = _notes(run), answers.notes
        _write(replace(new, number=max(old.number, new.number), sent=old.sent, refused=old.refused), run)


def send(directory: str, root: str, run: str) -> dict[str, str]:
    """Send a copy of the saved state to each server that needs one; return why servers do not have it. Raises OSError.

    ``directory``: that of the state.
    """
    boot = _boot(root)
    if boot is None:
        return {}
    with locked("copies", run):
        notes, state = _notes(run), read(directory)
        essence = copied.essence(state.condition) if state else ""
        needing = [server for server in notes.asked if notes.sent.get(server) != essence]
        if state is None or not needing:
            return notes.refused
        # A number is used once, also by one who is killed before the answer.
        notes = replace(notes, number=notes.number + 1)
        _write(notes, run)
        reasons = _put(boot, needing, notes.number, state, root)
        receivers = [server for server in needing if not reasons[server]]
        refused = {**notes.refused, **reasons}
        notes = replace(
            notes,
            # One that has a newer copy is asked for it.
            asked=tuple(server for server in notes.asked if reasons.get(server) != _reason(NEWER)),
            sent={**notes.sent, **dict.fromkeys(receivers, essence)},
            refused={server: reason for server, reason in refused.items() if reason},
        )
        _write(notes, run)
        return notes.refused


def _put(boot: _BootedBy, servers: Sequence[str], number: int, state: State, root: str) -> dict[str, str]:
    """Send a copy and return by server why it was not taken, "" if it was."""
    try:
        content = _signed(copied.text(boot.node, number, state), root)
    except SailloftError as error:
        return dict.fromkeys(servers, error.cause)
    reasons = {}
    for server in servers:
        try:
            status, _content = exchange(boot.url(server), content)
            reasons[server] = "" if status == NONE else _reason(status)
        except OSError as error:
            reasons[server] = str(error)
    return reasons


def _write(notes: Notes, run: str) -> None:
    data = {"format": NOTES_FORMAT, **asdict(notes)}
    disk.write_atomic(os.path.join(run, NOTES), json.dumps(data).encode())


def _boot(root: str) -> _BootedBy | None:
    report = _json(root, BOOT)
    node, servers = report.get("node"), report.get("servers")
    if not isinstance(node, str) or not node or not isinstance(servers, list) or not servers:
        return None
    return _BootedBy(node, tuple(str(server) for server in servers))


def _identity_problem(root: str) -> str:
    """Return why the node does not have its own host key, "" if it may have it."""
    report = _json(root, IDENTITY)
    if report.get("opened") is False:
        return clean(f"this node has no identity in this boot: {report.get('reason')}")
    return ""


def _json(root: str, path: str) -> dict[str, object]:
    try:
        with open(os.path.join(root, path.lstrip("/")), encoding="utf-8") as stream:
            data = json.loads(stream.read(copied.LIMIT_BYTES))
    except (OSError, ValueError, RecursionError):
        return {}
    return data if isinstance(data, dict) else {}


def _notes(run: str) -> Notes:
    """Return the notes of this boot. Without them each server is asked again, which loses nothing."""
    try:
        notes: Notes = stored.load(Notes, _json(run, NOTES), NOTES_FORMAT, "notes", "run a round")
    except stored.StoredError:
        return Notes()
    return notes


def _reason(status: int) -> str:
    return f"HTTP {status}" + (f": {REASONS[status]}" if status in REASONS else "")


def _verified(content: bytes, node: str, root: str, run: str) -> StateCopy:
    """Return the copy if this node signed it. Raises StateError, CopyError."""
    copy = copied.parse(content, node)
    key = os.path.join(root, KEY.lstrip("/"))
    public = _ssh_keygen(["-y", "-f", key]).decode(errors="replace").split()
    signers, signature = (os.path.join(run, name) for name in ("copy.signer", "copy.signature"))
    disk.write_atomic(signers, f"{node} {' '.join(public[:2])}\n".encode())
    disk.write_atomic(signature, copy.signature)
    try:
        _ssh_keygen(["-Y", "verify", "-f", signers, "-I", node, "-n", copied.NAMESPACE, "-s", signature], copy.signed)
    except CopyError as error:
        raise CopyError(f"its copy is not signed by this node's host key: {error.cause}") from error
    return copy


def _signed(content: bytes, root: str) -> bytes:
    """Return a copy with its signature. Raises CopyError."""
    key = os.path.join(root, KEY.lstrip("/"))
    result = content + _ssh_keygen(["-Y", "sign", "-q", "-f", key, "-n", copied.NAMESPACE], content)
    if len(result) > copied.LIMIT_BYTES:
        raise CopyError(f"the copy has more than {copied.LIMIT_BYTES >> 10} KiB")
    return result


def _ssh_keygen(arguments: Sequence[str], content: bytes = b"") -> bytes:
    """Return what ssh-keygen prints. Raises CopyError."""
    try:
        process = subprocess.run(
            ["ssh-keygen", *arguments], input=content, capture_output=True, timeout=SIGN_S, check=False
        )
    except FileNotFoundError as error:
        raise CopyError("ssh-keygen: no such program") from error
    except subprocess.TimeoutExpired as error:
        raise CopyError(f"ssh-keygen gave no answer in {SIGN_S:g} s") from error
    if process.returncode:
        raise CopyError(f"ssh-keygen: {clean(process.stderr.decode(errors='replace')):.200}")
    return process.stdout


def exchange(url: str, content: bytes | None = None) -> tuple[int, bytes]:
    """Return status and content of an answer to GET, or to PUT with ``content``. Raises OSError."""
    import http.client
    import urllib.error
    import urllib.request

    request = urllib.request.Request(url, content, method="GET" if content is None else "PUT")
    # Without a proxy of the environment.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with _limited(SERVER_S), opener.open(request, timeout=SERVER_S) as answer:
            data = answer.read(copied.LIMIT_BYTES + 1)
    except urllib.error.HTTPError as error:
        return error.code, b""
    except urllib.error.URLError as error:
        raise OSError(str(error.reason)) from error
    except (http.client.HTTPException, ValueError) as error:
        raise OSError(f"no answer of a web server: {error!r:.100}") from error
    if len(data) > copied.LIMIT_BYTES:
        raise OSError(f"more than {copied.LIMIT_BYTES >> 10} KiB")
    return answer.status, data


@contextlib.contextmanager
def _limited(seconds: float) -> Iterator[None]:
    """Raise TimeoutError in the block after so many seconds: a socket's own limit begins anew with each byte."""

    def end(_signal: int, _frame: object) -> None:
        raise TimeoutError(f"no complete answer in {seconds:g} s")

    old = signal.signal(signal.SIGALRM, end)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, old)
