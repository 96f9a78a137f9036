# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Counters of rsyslogd 8.2302 as metrics."""

from __future__ import annotations

import io
import sys

from ansible_collections.sailloft.fleet.plugins.module_utils.logs.counts import main

# Lines of the real rsyslogd; one is cut.
LINES = """\
{ "name": "elasticsearch", "origin": "core.queue", "size": 7, "enqueued": 20, "discarded.full": 3, "discarded.nf": 1 }
{ "name": "elasticsearch", "origin": "core.action", "processed": 6, "failed": 0, "suspended": 0, "resumed": 0 }
{ "name": "main Q", "origin": "core.queue", "size": 5, "enqueued": 53, "discarded.full": 0, "discarded.nf": 0 }
{ "name": "omkafka", "origin": "omkafka", "submitted": 9, "failures": 2, "failures_msg_too_large": 2, "acked": 1 }
{ "name": "kafka", "origin": "core.qu
"""


def test_the_file_has_the_counters_of_each_receiver(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.StringIO(LINES))
    path = tmp_path / "made" / "sailloft_logs.prom"
    assert main([str(path)]) == 0
    assert [line for line in path.read_text().splitlines() if not line.startswith("#")] == [
        'sailloft_logs_queue_messages{output="elasticsearch"} 7',
        'sailloft_logs_received_total{output="elasticsearch"} 20',
        'sailloft_logs_dropped_total{output="elasticsearch",reason="full"} 4',
        'sailloft_logs_dropped_total{output="kafka",reason="refused"} 2',
    ]
    assert path.read_text().count("# TYPE") == 3
