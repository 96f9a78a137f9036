# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Send lines of rsyslogd to Elasticsearch's bulk API; a batch is confirmed when each of its lines is stored.

rsyslogd starts this program (omprog with confirmMessages and useTransactions) and sends a batch again until it is
confirmed. Its own module omelasticsearch 8.2302 lost the whole batch when a request was answered 503.

Each line has an id, and is created by it: one that is sent again is not stored twice. A line that Elasticsearch cannot
store (a status of 4xx but 409 and 429) is dropped and counted.

rsyslogd 8.2302 that is stopped takes the batch that it was just sending for sent, up to 512 lines. Each batch is
therefore in a file of ours until it is confirmed, and the next process sends that first.
"""

from __future__ import annotations

import base64
import contextlib
import http.client
import json
import os
import ssl
import sys
from collections import deque
from typing import Any, TextIO
from urllib.parse import urlsplit

from ansible_collections.sailloft.fleet.plugins.module_utils.common.disk import write_atomic
from ansible_collections.sailloft.fleet.plugins.module_utils.common.error import SailloftError
from ansible_collections.sailloft.fleet.plugins.module_utils.logs.counts import head

TIMEOUT_S = 20
BEGIN, COMMIT = "BEGIN TRANSACTION", "COMMIT TRANSACTION"
STORED, EXISTS, BUSY, TOO_LARGE = (200, 201), 409, 429, 413
# The ids of dropped lines that are remembered: those of several batches of rsyslogd.
REMEMBERED = 4096


class NotStoredError(SailloftError):
    """The reason for which a batch must be sent again, in one line."""


class Unconfirmed:
    """The lines that are not confirmed yet, in a file that outlives this process; "" is no file."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.lines: list[str] = []
        with contextlib.suppress(OSError), open(path, encoding="utf-8") as file:
            self.lines = file.read().splitlines()

    def add(self, batch: list[str]) -> None:
        """Keep a batch; one that is sent again is there already. Without room for the file it is kept in memory."""
        lines = list(dict.fromkeys([*self.lines, *batch]))
        if lines != self.lines and self.path:
            # Not synced, as this happens for each batch: it is to outlive the process, not the power.
            with contextlib.suppress(OSError):
                with open(f"{self.path}.new", "w", encoding="utf-8") as file:
                    file.write("".join(f"{line}\n" for line in lines))
                os.replace(f"{self.path}.new", self.path)
        self.lines = lines

    def clear(self) -> None:
        """Forget all lines: they are stored."""
        self.lines = []
        with contextlib.suppress(OSError):
            os.remove(self.path)


class Sender:
    """The servers of one receiver; the next one is asked when one fails."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self.settings = settings
        self.servers: list[str] = settings["servers"]
        self.number = 0
        self.connection: http.client.HTTPConnection | None = None
        self.refused = 0
        self.dropped: deque[str] = deque(maxlen=REMEMBERED)
        self.unconfirmed = Unconfirmed(settings.get("unconfirmed_file") or "")

    def confirm(self, batch: list[str]) -> None:
        """Store a batch, and the lines that an earlier process did not confirm. Raises NotStoredError."""
        self.unconfirmed.add(batch)
        self.send(self.unconfirmed.lines)
        self.unconfirmed.clear()

    def send(self, lines: list[str]) -> None:
        """Store lines, each an id, a space, the day and a record as JSON. Raises NotStoredError."""
        actions = [line.split(" ", 2) for line in lines]
        body = "".join(
            json.dumps({"create": {"_index": f"{self.settings['index']}-{day}", "_id": identity}}) + f"\n{record}\n"
            for identity, day, record in actions
        )
        status, answer = self._post(body.encode())
        if status == TOO_LARGE and len(lines) > 1:
            middle = len(lines) // 2
            self.send(lines[:middle])
            self.send(lines[middle:])
            return
        if status == TOO_LARGE:
            self._drop([actions[0][0]])
            return
        try:
            items = [next(iter(item.values())) for item in json.loads(answer)["items"]] if status in STORED else []
            results = [int(item["status"]) for item in items]
        except (ValueError, KeyError, TypeError, AttributeError, StopIteration):
            results = []
        if len(results) != len(lines):
            self._next()
            raise NotStoredError(f"status {status}: {answer[:200].decode(errors='replace')!r}")
        again = sum(result == BUSY or result >= 500 for result in results)
        if again:
            raise NotStoredError(f"{again} of {len(lines)} lines are refused for now")
        self._drop([action[0] for action, result in zip(actions, results) if result not in (*STORED, EXISTS)])

    def _post(self, body: bytes) -> tuple[int, bytes]:
        headers = {"Content-Type": "application/x-ndjson"}
        try:
            if self.settings.get("user"):
                with open(self.settings["password_file"], encoding="utf-8") as file:
                    word = f"{self.settings['user']}:{file.read().strip()}"
                headers["Authorization"] = f"Basic {base64.b64encode(word.encode()).decode()}"
            self.connection = self.connection or self._connection()
            self.connection.request("POST", "/_bulk", body, headers)
            answer = self.connection.getresponse()
            return answer.status, answer.read()
        except (OSError, http.client.HTTPException) as error:
            server = self.servers[self.number]
            self._next()
            raise NotStoredError(f"{server}: {type(error).__name__}: {error}") from error

    def _connection(self) -> http.client.HTTPConnection:
        url = urlsplit(self.servers[self.number])
        host = url.hostname or ""
        if url.scheme == "http":
            return http.client.HTTPConnection(host, url.port, timeout=TIMEOUT_S)
        context = ssl.create_default_context(cafile=self.settings.get("ca") or None)
        if self.settings.get("certificate"):
            context.load_cert_chain(self.settings["certificate"], self.settings["key"])
        return http.client.HTTPSConnection(host, url.port, timeout=TIMEOUT_S, context=context)

    def _next(self) -> None:
        if self.connection:
            self.connection.close()
        self.connection = None
        self.number = (self.number + 1) % len(self.servers)

    def _drop(self, identities: list[str]) -> None:
        """Count lines, each once: rsyslogd repeats those of a batch whose rest was not stored."""
        new = [identity for identity in identities if identity not in self.dropped]
        self.dropped.extend(new)
        self.refused += len(new)
        path = self.settings.get("refused_file")
        if new and path:
            sample = 'sailloft_logs_dropped_total{output="elasticsearch",reason="refused"}'
            os.makedirs(os.path.dirname(path), exist_ok=True)
            write_atomic(path, f"{head('dropped_total')}{sample} {self.refused}\n".encode())


def serve(lines: TextIO, answers: TextIO, sender: Sender) -> None:
    """Answer each line as omprog expects: a batch is confirmed by OK, and repeated after any other answer."""
    batch: list[str] = []

    def answer(text: str) -> None:
        answers.write(f"{text}\n")
        answers.flush()

    answer("OK")
    for line in lines:
        text = line.rstrip("\n")
        if text == BEGIN:
            batch = []
            answer("OK")
        elif text == COMMIT:
            try:
                if batch:
                    sender.confirm(batch)
                answer("OK")
            except NotStoredError as error:
                answer(f"not stored: {' '.join(str(error).split())}")
        else:
            batch.append(text)
            answer("DEFER_COMMIT")


def main(arguments: list[str]) -> int:
    """Run until the input ends; the first argument is the file of the settings."""
    with open(arguments[0], encoding="utf-8") as file:
        settings = json.load(file)
    serve(sys.stdin, sys.stdout, Sender(settings))
    return 0
