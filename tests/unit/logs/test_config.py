# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The real rsyslogd with receivers that refuse, are slow, are gone and come back: what is lost is counted."""

from __future__ import annotations

import os
import signal
import subprocess
import time

import pytest
from receivers import BulkReceiver, MockBroker, certificate
from running_rsyslogd import Rsyslogd, wait_for
from sockets import free_port

pytestmark = pytest.mark.long
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="a network of its own needs root")

LINES = [f"line {number:04}" for number in range(300)]


@pytest.fixture(scope="module")
def tls(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tls")
    certificate(folder)
    (folder / "password").write_text("secret")
    return folder


@pytest.fixture
def bulk(tls):
    receiver = BulkReceiver(tls, free_port())
    yield receiver
    receiver.stop()


@pytest.fixture
def broker(tmp_path):
    receiver = MockBroker(tmp_path)
    yield receiver
    receiver.stop()


@pytest.fixture
def rsyslogd(tmp_path):
    made = []

    def make(**settings):
        made.append(Rsyslogd(tmp_path, **settings))
        return made[-1]

    yield make
    for each in made:
        each.stop(signal.SIGKILL)


def to(bulk, tls, **more):
    settings = {"servers": [f"https://127.0.0.1:{bulk.port}"], "ca": str(tls / "server.pem"), "user": "logs"}
    return {"elasticsearch": {**settings, "password_file": str(tls / "password")}, **more}


def arrived(receiver, count):
    wait_for(lambda: len(set(receiver.messages)) >= count, what=lambda: (len(receiver.messages), vars(receiver)))


def test_a_record_has_the_fields_of_its_place(bulk, tls, rsyslogd):
    bulk.start()
    rsyslogd(**to(bulk, tls)).say(['GPU "4"\tfell off'])
    arrived(bulk, 1)
    (record,) = bulk.by_id.values()
    names = ("host", "rack", "boot_id", "unit", "program", "pid", "severity", "facility")
    assert [record[name] for name in names] == ["n1", "r1", "boot-1", "slurmd.service", "slurmd", "7", "info", "daemon"]
    assert record["message"].startswith('GPU "4"')
    assert record["@timestamp"].startswith("20")
    assert record["_index"].startswith("logs-20")


@pytest.mark.parametrize(
    ("how", "lost"),
    [
        # A kill loses what came after the last checkpoint at most.
        (signal.SIGKILL, 10),
        (signal.SIGTERM, 0),
    ],
)
def test_few_lines_are_lost_if_rsyslogd_ends_while_the_receiver_is_gone(bulk, tls, rsyslogd, how, lost):
    server = rsyslogd(**to(bulk, tls))
    server.say(LINES[:200])
    server.stop(how)
    server.start()
    server.say(LINES[200:])
    assert bulk.messages == []
    bulk.start()
    arrived(bulk, len(LINES) - lost)
    assert server.counted("dropped_total", "elasticsearch", "full") == 0


def test_nothing_is_lost_or_doubled_when_the_receiver_refuses_requests_or_single_lines(bulk, tls, rsyslogd):
    bulk.refuse_requests = 503
    bulk.refuse_lines = {"line 0007": 429, "line 0008": 429, "line 0009": 400}
    bulk.start()
    server = rsyslogd(**to(bulk, tls))
    server.say(LINES)
    for status in (503, 429, 401):
        bulk.refuse_requests, bulk.requests = status, 0
        wait_for(lambda: bulk.requests > 1)
    assert bulk.messages == []
    bulk.refuse_requests = 0
    arrived(bulk, len(LINES) - 1)
    assert sorted(bulk.messages) == [line for line in LINES if line != "line 0009"]
    wait_for(lambda: server.counted("dropped_total", "elasticsearch", "refused") == 1, what=server.counts.read_text)


def test_a_slow_receiver_gets_everything(bulk, tls, rsyslogd):
    bulk.delay_s = 0.3
    bulk.start()
    rsyslogd(**to(bulk, tls)).say(LINES)
    arrived(bulk, len(LINES))
    assert sorted(bulk.messages) == LINES


def test_what_a_full_queue_drops_is_counted_and_the_other_receiver_gets_it(bulk, tls, rsyslogd, broker):
    server = rsyslogd(**to(bulk, tls, queue_mib=1, kafka={"brokers": [broker.address]}))
    long_lines = [f"line {number:04} {'x' * 4000}" for number in range(600)]
    server.say(long_lines)
    dropped = server.counted("dropped_total", "elasticsearch", "full")
    assert 300 < dropped < 550
    arrived(broker, len(long_lines) - server.counted("dropped_total", "kafka", "full"))
    assert len(broker.messages) > len(long_lines) - dropped
    bulk.start()
    arrived(bulk, len(long_lines) - dropped)
    assert len(bulk.messages) == len(long_lines) - dropped


def test_nothing_is_lost_while_a_broker_is_gone_at_first_and_hangs_later(rsyslogd, broker):
    port = free_port()
    server = rsyslogd(kafka={"brokers": [f"127.0.0.1:{port}"]})
    server.say(LINES[:100])
    assert broker.messages == []
    with broker.reached_at(port):
        arrived(broker, 100)
        with broker.hung():
            server.say(LINES[100:])
            time.sleep(1)
        arrived(broker, len(LINES))
    assert sorted(set(broker.messages)) == LINES
    assert server.counted("dropped_total", "kafka", "full") == 0


def test_a_broker_that_is_gone_gets_the_lines_from_the_next_process_but_one(rsyslogd, broker):
    port = free_port()
    server = rsyslogd(kafka={"brokers": [f"127.0.0.1:{port}"]})
    server.say(LINES)
    server.stop()
    server.start()
    with broker.reached_at(port):
        # omkafka sends what it kept in its file together with the next line; rsyslogd loses one that it was sending.
        server.say(["the next line"])
        arrived(broker, len(LINES))


@needs_root
def test_a_broker_with_tls_gets_the_lines_of_clients_that_it_knows(tls, rsyslogd, tmp_path):
    broker = MockBroker(tmp_path, tls)
    try:
        pem = {name: str(tls / "server.pem") for name in ("ca", "certificate")}
        server = rsyslogd(kafka={"brokers": [broker.address], **pem, "key": str(tls / "server.key")})
        server.say(LINES)
        arrived(broker, len(LINES))
    finally:
        broker.stop()


@needs_root
def test_a_broker_whose_certificate_names_another_host_gets_nothing(rsyslogd, tmp_path):
    certificate(tmp_path, "127.0.0.2")
    broker = MockBroker(tmp_path, tmp_path)
    try:
        pem = {name: str(tmp_path / "server.pem") for name in ("ca", "certificate")}
        server = rsyslogd(kafka={"brokers": [broker.address], **pem, "key": str(tmp_path / "server.key")})
        server.say(LINES[:3])
        time.sleep(3)
        assert broker.messages == []
    finally:
        broker.stop()


def test_rsyslogd_accepts_all_settings(tls, rsyslogd, bulk):
    pem = {
        name: str(tls / file)
        for name, file in (("ca", "server.pem"), ("certificate", "server.pem"), ("key", "server.key"))
    }
    both = to(bulk, tls, kafka={"brokers": ["a:9093", "[fd00::1]:9093"], "topic": "node.logs", **pem})
    both["elasticsearch"].update(pem, index="nodes")
    server = rsyslogd(**both)
    command = ["rsyslogd", "-N1", "-f", server.config]
    checked = subprocess.run(command, capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stderr
