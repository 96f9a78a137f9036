# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A batch is confirmed to rsyslogd only when each line is stored or can never be."""

from __future__ import annotations

import io
import json

import pytest

from ansible_collections.sailloft.fleet.plugins.module_utils.logs import bulk


def items(*statuses):
    return 200, json.dumps({"errors": True, "items": [{"create": {"status": status}} for status in statuses]}).encode()


class Answering(bulk.Sender):
    """A sender to whom servers answer in turn."""

    def __init__(self, *answers, **settings):
        super().__init__({"servers": ["http://a:1", "http://b:1"], "index": "logs", **settings})
        self.answers, self.bodies = list(answers), []

    def _post(self, body):
        self.bodies.append(body.decode().splitlines())
        return self.answers.pop(0)


def served(sender, lines=2):
    batch = [f'id{number} 2026-11-28 {{"message": "{number}"}}' for number in range(lines)]
    answers = io.StringIO()
    bulk.serve(io.StringIO("\n".join([bulk.BEGIN, *batch, bulk.COMMIT, ""])), answers, sender)
    said = answers.getvalue().splitlines()
    assert said[: lines + 2] == ["OK", "OK", *["DEFER_COMMIT"] * lines]
    return said[lines + 2]


@pytest.mark.parametrize("statuses", [(201, 201), (409, 201), (201, 400)])
def test_a_batch_is_confirmed_that_is_stored_was_stored_before_or_never_can_be(statuses):
    sender = Answering(items(*statuses))
    assert served(sender) == "OK"
    assert json.loads(sender.bodies[0][0]) == {"create": {"_index": "logs-2026-11-28", "_id": "id0"}}
    assert json.loads(sender.bodies[0][1]) == {"message": "0"}


@pytest.mark.parametrize(
    "answer",
    [items(201, 429), items(201, 503), items(201), (503, b""), (429, b"{}"), (401, b"no"), (200, b""), (200, b"[]")],
)
def test_a_batch_is_sent_again_that_is_not_stored(answer):
    assert served(Answering(answer)).startswith("not stored: ")


def test_a_request_that_is_too_large_is_sent_in_halves(tmp_path):
    refused = tmp_path / "refused.prom"
    sender = Answering((413, b""), items(201), (413, b""), refused_file=str(refused))
    assert served(sender) == "OK"
    assert refused.read_text().splitlines()[-1].endswith(" 1")


def test_a_batch_that_was_not_confirmed_is_sent_by_the_next_process_too(tmp_path):
    file = {"unconfirmed_file": str(tmp_path / "unconfirmed")}
    assert served(Answering((503, b""), **file)).startswith("not stored: ")
    # rsyslogd sends another batch, without the first one's last line.
    second = Answering(items(409, 201), items(201), **file)
    assert served(second, lines=1) == "OK"
    assert [json.loads(line)["message"] for line in second.bodies[0][1::2]] == ["0", "1"]
    assert served(second, lines=1) == "OK"
    assert len(second.bodies[1]) == 2
    assert list(tmp_path.iterdir()) == []


def test_a_line_that_is_sent_again_counts_once_as_refused():
    sender = Answering(items(409, 400), items(400))
    assert served(sender) == "OK"
    sender.confirm(["id1 2026-11-28 {}"])
    assert sender.refused == 1


def test_a_server_that_is_gone_makes_room_for_the_next():
    sender = bulk.Sender({"servers": ["http://127.0.0.1:1", "http://127.0.0.1:1"], "index": "logs"})
    assert served(sender).startswith("not stored: http://127.0.0.1:1: ConnectionRefusedError")
    assert sender.number == 1
