# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A wrong answer of a UFM, or of what is in its place, gives one sentence that names the request, without the login."""

from __future__ import annotations

import io
import ssl
from http.client import BadStatusLine, IncompleteRead
from urllib.error import HTTPError, URLError

import pytest
from messages import raises
from simulated_ufm import Answer, SimulatedUfm

from ansible_collections.sailloft.fleet.plugins.module_utils.infiniband.errors import InfinibandError
from ansible_collections.sailloft.fleet.plugins.module_utils.infiniband.ufm import api as ufm_api
from ansible_collections.sailloft.fleet.plugins.module_utils.infiniband.ufm.api import PAGE, Api

URL = "https://ufm.example.com"
LOGIN = {"ufm_url": URL, "ufm_username": "admin", "ufm_password": "secret", "ufm_token": None}
HTML = b"<html>\n<body>Please log in</body></html>"


def api(answer, **given):
    def open_url(*_arguments, **_options):
        if isinstance(answer, Exception):
            raise answer
        reply = Answer()
        reply.write(answer)
        reply.seek(0)
        return reply

    return Api({**LOGIN, "validate_certs": True, "ca_path": None, **given}, open_url)


def refused(status):
    return HTTPError(URL, status, "Reason", {}, io.BytesIO(HTML))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("answer", "facts"),
    [
        (HTML, ("no JSON", "check the URL")),
        (b"", ("no JSON",)),
        (b"[" * 100_000, ("no JSON",)),
        (refused(401), ("401", "password, or the token")),
        (refused(302), ("302", "URL of UFM itself")),
        (refused(500), ("500", "Please log in", "UFM's log")),
        (URLError(ssl.SSLCertVerificationError("self-signed certificate")), ("self-signed", "ca_path")),
        (TimeoutError(), ("TimeoutError",)),
        (BadStatusLine("SSH-2.0-OpenSSH\r\n"), ("SSH-2.0",)),
        (IncompleteRead(b"{"), ("IncompleteRead",)),
    ],
)
def test_a_wrong_answer_is_one_sentence(answer, facts):
    with raises(InfinibandError, "UFM", f"{URL}/ufmRest/resources/links", *facts) as error:
        api(answer).read("resources/links")
    assert "\n" not in str(error.value)
    assert "secret" not in str(error.value)


@pytest.mark.parametrize(
    "given",
    [
        {"ufm_url": "http://ufm.example.com"},
        {"ufm_url": "https://admin:secret@ufm.example.com"},
        {"ufm_url": "ufm.example.com"},
        {"ufm_password": None},
    ],
)
def test_a_login_is_not_sent_anywhere_else(given):
    with raises(InfinibandError, "UFM"):
        api(b"{}", **given)


def rows_of(ufm):
    return list(Api({**LOGIN, "validate_certs": True, "ca_path": None}, ufm).rows("resources/links"))


@pytest.mark.parametrize("cap", [1, 100, 250, PAGE, 2 * PAGE])
@pytest.mark.parametrize("count", [0, 1, 99, 100, 101, 250])
def test_all_rows_are_read_whatever_a_page_has_at_most(cap, count):
    ufm = SimulatedUfm()
    ufm.cap, ufm.links = cap, [{"name": number} for number in range(count)]
    assert rows_of(ufm) == ufm.links


def test_a_ufm_that_does_not_page_or_stays_at_its_last_page_gives_all(monkeypatch):
    rows = [{"name": number} for number in range(250)]
    ufm = SimulatedUfm()
    monkeypatch.setattr(ufm, "_page", lambda page_number, rpp: {"data": rows})
    assert rows_of(ufm) == rows
    monkeypatch.setattr(
        ufm, "_page", lambda page_number, rpp: {"data": rows[:100] if page_number == "1" else rows[100:200]}
    )
    assert rows_of(ufm) == rows[:200]


def test_a_page_that_comes_again_is_no_end(monkeypatch):
    ufm = SimulatedUfm()
    for pages in (["full"], ["a", "b"]):
        monkeypatch.setattr(
            ufm,
            "_page",
            lambda page_number, rpp, pages=pages: {
                "data": [{"name": pages[int(page_number) % len(pages)]}] * (PAGE if len(pages) == 1 else 2)
            },
        )
        with raises(InfinibandError, "resources/links", "documented"):
            rows_of(ufm)


def test_an_answer_without_end_is_refused(monkeypatch):
    monkeypatch.setattr(ufm_api, "MOST_BYTES", 1 << 20)
    with raises(InfinibandError, f"{URL}/ufmRest/resources/links", "1 MiB"):
        api(b"x" * (1 << 21)).read("resources/links")
