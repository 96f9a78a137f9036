# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Silences are for exactly the named hosts, end by themselves, and a login goes only where it is safe."""

from __future__ import annotations

import io
import json
import re
from urllib.error import HTTPError

import pytest
from messages import raises

from ansible_collections.sailloft.fleet.plugins.module_utils.monitoring.errors import MonitoringError
from ansible_collections.sailloft.fleet.plugins.module_utils.monitoring.silences import (
    RESTARTED,
    SilenceApi,
    login_of,
    silence,
)


def test_a_silence_names_exactly_its_hosts_and_its_end():
    body = silence(["gpu-1", "leaf.1"], "a wave", 1.8e9, 90)
    (matcher,) = body["matchers"]
    names = [name for name in ("gpu-1", "gpu-11", "leaf.1", "leafx1", "") if re.fullmatch(matcher["value"], name)]
    assert (matcher["name"], matcher["isRegex"], names) == ("host", True, ["gpu-1", "leaf.1"])
    assert (body["startsAt"], body["endsAt"]) == ("2027-01-15T08:00:00.000Z", "2027-01-15T08:01:30.000Z")
    assert silence(["a"], "", 0, 1, RESTARTED)["matchers"][1]["value"] == RESTARTED


class Servers:
    """Alertmanagers by URL: an exception, or the answers to requests in their order."""

    def __init__(self, **answers):
        self.answers, self.asked = answers, []

    def open_url(self, url, **given):
        self.asked.append((given["method"], url, given))
        answer = self.answers[url.split("/")[2].split(":")[0]]
        if isinstance(answer, Exception):
            raise answer
        return io.BytesIO(json.dumps(answer.pop(0)).encode())


def test_the_next_one_is_asked_if_one_does_not_answer():
    servers = Servers(a=OSError("no route"), b=[{"silenceID": "7"}])
    api = SilenceApi(["https://a:9093", "https://b:9093/"], servers.open_url, login_of("u:p\n"), "/etc/ca.pem")
    assert api.create({"matchers": []}) == "7"
    assert [url for _method, url, _given in servers.asked] == [f"https://{name}:9093/api/v2/silences" for name in "ab"]
    given = servers.asked[1][2]
    assert (given["ca_path"], given["headers"]["Authorization"]) == ("/etc/ca.pem", "Basic dTpw")
    assert "validate_certs" not in given, "Ansible verifies certificates unless told otherwise"


@pytest.mark.parametrize(("state", "methods"), [("active", ["GET", "DELETE"]), ("expired", ["GET"])])
def test_a_silence_that_has_ended_is_not_ended_again(state, methods):
    servers = Servers(a=[{"status": {"state": state}}, None])
    SilenceApi(["https://a"], servers.open_url).expire("7")
    assert [method for method, _url, _given in servers.asked] == methods


@pytest.mark.parametrize("answer", [None, [], {}, {"status": "active"}])
def test_a_silence_of_unknown_state_is_ended(answer):
    servers = Servers(a=[answer, None])
    SilenceApi(["https://a"], servers.open_url).expire("7")
    assert [method for method, _url, _given in servers.asked] == ["GET", "DELETE"]


def test_an_error_names_each_server_and_no_login():
    servers = Servers(a=OSError("no route"), b=HTTPError("https://b", 401, "Unauthorized", {}, None))
    api = SilenceApi(["https://a", "https://b"], servers.open_url, login_of("user:secret"))
    with raises(MonitoringError, "https://a", "no route", "https://b", "401") as refused:
        api.create({})
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize(
    ("urls", "login"),
    [([], ""), (["mon1:9093"], ""), (["https://u:p@mon1"], ""), (["http://mon1:9093"], "Basic dTpw")],
)
def test_a_place_that_is_no_url_or_not_safe_is_refused(urls, login):
    with raises(MonitoringError):
        SilenceApi(urls, Servers().open_url, login)


@pytest.mark.parametrize("text", ["", "token", "a:b\nc:d"])
def test_a_file_without_a_login_is_refused_and_not_shown(text):
    with pytest.raises(MonitoringError) as refused:
        login_of(text)
    assert "token" not in str(refused.value)
