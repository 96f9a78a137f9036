# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Wrong settings are refused before anything is written."""

from __future__ import annotations

import pytest
from messages import raises

from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.errors import RequestError
from ansible_collections.sailloft.fleet.plugins.module_utils.logs.request import read_request

KAFKA = {"brokers": ["k1:9093"]}
SERVERS = {"servers": ["https://a:9200"]}


@pytest.mark.parametrize(
    ("settings", "facts"),
    [
        ({}, ["kafka", "elasticsearch"]),
        ({"kafka": {"brokers": []}}, ["kafka", "brokers", "empty"]),
        ({"kafka": {"brokers": ["k1"]}}, ["brokers", "k1", "HOST:PORT"]),
        ({"kafka": {"topic": "x"}}, ["brokers"]),
        ({"kafka": {**KAFKA, "tpoic": "x"}}, ["tpoic", "topic"]),
        ({"kafka": {**KAFKA, "key": "/k"}}, ["certificate", "key"]),
        ({"kafka": {**KAFKA, "key": "/k", "certificate": "/c"}}, ["ca"]),
        ({"kafka": {**KAFKA, "ca": '/x" evil'}}, ["ca"]),
        ({"elasticsearch": {"servers": ["a:9200"]}}, ["servers", "a:9200", "HOST:PORT"]),
        ({"elasticsearch": {"servers": ["https://a:9200", "http://b:9200"]}}, ["servers", "TLS"]),
        ({"elasticsearch": {"servers": ["http://a:9200"], "ca": "/ca"}}, ["ca", "TLS"]),
        ({"elasticsearch": {**SERVERS, "user": "x"}}, ["password_file"]),
        ({"elasticsearch": {**SERVERS, "index": "Logs"}}, ["index", "Logs"]),
        ({"kafka": KAFKA, "queue_mib": 0}, ["queue_mib", "0"]),
        ({"kafka": KAFKA, "host": 'a"b'}, ["host"]),
        ({"kafka": KAFKA, "counts_file": "/x/logs.txt"}, ["counts_file", ".prom"]),
    ],
)
def test_wrong_settings_are_refused(settings, facts):
    with raises(RequestError, "node_logs", *facts):
        read_request(settings)


def test_settings_have_defaults():
    request = read_request({"kafka": KAFKA, "elasticsearch": SERVERS})
    assert (request.kafka.topic, request.elasticsearch.index, request.queue_mib) == ("logs", "logs", 256)
