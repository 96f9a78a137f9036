# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The lists of archives, from servers that abort the transfer, send too slowly or do not have them."""

from __future__ import annotations

import http.client
import io
import socket
import threading
import time
import urllib.error
from types import SimpleNamespace

import pytest
from ansible.module_utils.urls import open_url
from messages import raises

from ansible_collections.sailloft.fleet.plugins.module_utils.image.build import fetch
from ansible_collections.sailloft.fleet.plugins.module_utils.image.build.fetch import Fetcher
from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.errors import ImageError


@pytest.mark.parametrize("answer", [b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf", b"SSH-2.0-OpenSSH_9.2\r\n"])
def test_an_aborted_or_invalid_http_response_is_refused(answer):
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            with server.accept()[0] as connection:
                connection.recv(10000)
                connection.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        url = f"http://127.0.0.1:{server.getsockname()[1]}/InRelease"
        with raises(ImageError, url, "read"):
            Fetcher(open_url)(url)
        thread.join()


def test_an_answer_without_end_is_refused(monkeypatch):
    monkeypatch.setattr(fetch, "MOST_BYTES", 1 << 20)
    endless = SimpleNamespace(read1=bytes, close=lambda: None)
    with raises(ImageError, "http://a/InRelease", f"{1 << 20} bytes"):
        Fetcher(lambda url, timeout: endless)("http://a/InRelease")


def test_a_download_that_exceeds_its_deadline_is_refused():
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            with server.accept()[0] as connection:
                connection.recv(10000)
                connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n")
                for _byte in range(100):
                    try:
                        connection.sendall(b"x")
                    except OSError:
                        return  # the builder has closed the connection
                    time.sleep(0.2)

        thread = threading.Thread(target=serve)
        thread.start()
        url = f"http://127.0.0.1:{server.getsockname()[1]}/InRelease"
        began = time.monotonic()
        with raises(ImageError, url, "1 s"):
            Fetcher(open_url, deadline_s=1)(url)
        assert time.monotonic() - began < 5
        thread.join()


ADVICE = "correct its url, or check the network and the proxy of the build host"


def failing(error):
    """Return an open_url that raises the error."""

    def call(url, timeout):
        assert timeout == 60
        raise error

    return call


def test_each_url_is_fetched_once():
    asked = []

    def answer(url, timeout):
        asked.append(url)
        return io.BufferedReader(io.BytesIO(b"list of " + url.encode()))

    fetch = Fetcher(answer)
    assert [fetch(url) for url in ("http://a/x", "http://a/y", "http://a/x")] == [
        b"list of http://a/x",
        b"list of http://a/y",
        b"list of http://a/x",
    ]
    assert asked == ["http://a/x", "http://a/y"]


@pytest.mark.parametrize(
    "error",
    [
        urllib.error.HTTPError("http://a/x", 404, "Not Found", None, None),
        urllib.error.URLError(FileNotFoundError(2, "No such file or directory")),
        urllib.error.URLError("[Errno 2] No such file or directory: '/a'"),
    ],
)
def test_a_file_that_the_server_does_not_have_raises_file_not_found_error(error):
    with pytest.raises(FileNotFoundError, match=r"^http://a/x$"):
        Fetcher(failing(error))("http://a/x")


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (urllib.error.HTTPError("http://a/x", 503, "Busy", None, None), "the server answers 503 Busy"),
        (urllib.error.URLError("timed out"), "cannot be reached: timed out"),
        (ValueError("unknown url type"), "cannot be reached: unknown url type"),
        (http.client.UnknownProtocol("HTTP/9"), "cannot be read: HTTP/9"),
        (http.client.ResponseNotReady(), "cannot be read: ResponseNotReady"),
    ],
)
def test_an_unreachable_or_failing_server_is_named(error, words):
    with raises(ImageError, "http://a/x", words):
        Fetcher(failing(error))("http://a/x")


@pytest.mark.parametrize(("took_s", "whole"), [(120, True), (120.5, False)])
def test_a_download_may_take_two_minutes(monkeypatch, took_s, whole):
    times_s = [0, took_s]
    monkeypatch.setattr(time, "monotonic", lambda: times_s.pop(0))
    parts = [b"one", b""]
    answer = SimpleNamespace(read1=lambda _size: parts.pop(0), close=lambda: None)
    fetch = Fetcher(lambda url, timeout: answer)
    if whole:
        assert fetch("http://a/x") == b"one"
        return
    with raises(ImageError, "http://a/x", "3", "120"):
        fetch("http://a/x")
