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
from simulated_ufm import Answer

from ansible_collections.sailloft.fleet.plugins.module_utils.infiniband.errors import InfinibandError
from ansible_collections.sailloft.fleet.plugins.module_utils.infiniband.ufm.api import Api

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
