# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""NetBox's REST API: pages, batches, and the messages when NetBox refuses or does not answer."""

from __future__ import annotations

import json
import ssl
import subprocess
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from io import BytesIO
from urllib.error import HTTPError

import netbox_api
import pytest
import sites
import yaml
from ansible.module_utils.urls import open_url

from ansible_collections.sailloft.fleet.plugins.doc_fragments.netbox import ModuleDocFragment
from ansible_collections.sailloft.fleet.plugins.module_utils.site.errors import SiteError
from ansible_collections.sailloft.fleet.plugins.module_utils.site.netbox.api import ARGUMENTS, NetboxApi

URL = "https://netbox.example.com"


def api(opened, token="token", url=URL, verified=True):
    return NetboxApi({"netbox_url": url, "netbox_token": token, "validate_certs": verified}, opened)


def answering(status, body):
    def opened(url, **_others):
        if status >= 400:
            raise HTTPError(url, status, "Refused", None, BytesIO(body.encode()))
        return BytesIO(body.encode())

    return api(opened)


def told(call):
    with pytest.raises(SiteError) as error:
        call()
    return str(error.value)


def test_the_options_are_those_of_the_documentation():
    documented = yaml.safe_load(ModuleDocFragment.DOCUMENTATION)["options"]
    for each in documented.values():
        del each["description"]
    # A token is not shown; the documentation has no such option.
    documented["netbox_token"]["no_log"] = True
    assert documented == ARGUMENTS


def test_all_pages_are_read():
    box = netbox_api.filled(sites.site(), most=7)
    found = api(box.open_url).read("dcim/interfaces", [("site_id", 1)])
    assert [each["id"] for each in found] == [each["id"] for each in box.paths["dcim/interfaces"]]
    assert len(found) > 14


def test_a_request_has_the_query_the_page_and_the_options():
    asked = []

    def opened(url, **others):
        asked.append((url, others))
        return BytesIO(b'{"count": 3, "results": [{"id": 1}, {"id": 2}]}')

    found = api(opened, url=f"{URL}/", verified=False).read("dcim/sites", [("name", "a b"), ("name", "c")])
    assert [each["id"] for each in found] == [1, 2, 1, 2]
    asked_for = "name=a+b&name=c&limit=1000"
    assert [url for url, _others in asked] == [
        f"{URL}/api/dcim/sites/?{asked_for}&offset={offset}&ordering=id" for offset in (0, 2)
    ]
    assert asked[0][1] == {
        "method": "GET",
        "headers": {
            "Accept": "application/json",
            "Content-Type": "application/json",
            "Authorization": "Token token",
        },
        "data": None,
        "validate_certs": False,
        "timeout": 300,
    }


@pytest.mark.parametrize(
    ("pages", "requests"),
    [
        ([(0, 0)], 1),
        ([(2, 2)], 1),
        ([(3, 2), (3, 1)], 2),
        # Objects that are removed meanwhile leave an empty last page.
        ([(3, 2), (3, 0)], 2),
    ],
)
def test_pages_are_read_until_all_objects_are_read_or_a_page_is_empty(pages, requests):
    left = [json.dumps({"count": count, "results": [{"id": 1}] * size}).encode() for count, size in pages]

    def opened(_url, **_others):
        return BytesIO(left.pop(0))

    assert len(api(opened).read("dcim/sites")) == sum(size for _count, size in pages)
    assert len(pages) - len(left) == requests


def test_a_filter_has_50_values_at_most():
    asked = []

    def opened(url, **_others):
        asked.append(url)
        return BytesIO(b'{"count": 0, "results": []}')

    api(opened).read_named("ipam/prefixes", "prefix", [f"10.0.{each}.0/24" for each in range(120)], ("vrf_id", "null"))
    assert [url.count("prefix=") for url in asked] == [50, 50, 20]
    assert all("vrf_id=null" in url for url in asked)
    assert max(map(len, asked)) < 4094


def test_a_request_writes_100_objects_at_most():
    asked = []

    def opened(url, method, data, **_others):
        asked.append((method, url, len(json.loads(data))))
        return BytesIO(data.encode())

    rows = [(f"sites {each}", {"id": each}) for each in range(201)]
    assert api(opened).write("PATCH", "dcim/sites", rows) == [each for _name, each in rows]
    assert asked == [("PATCH", f"{URL}/api/dcim/sites/", number) for number in (100, 100, 1)]
    asked.clear()
    api(opened).write("POST", "dcim/sites", rows[:100])
    assert asked == [("POST", f"{URL}/api/dcim/sites/", 100)]
    assert api(opened).write("POST", "dcim/sites", []) == []


@pytest.mark.parametrize(("token", "sent"), [("abc", "Token abc"), ("nbt_abc.def", "Bearer nbt_abc.def")])
def test_each_kind_of_token_has_its_authorization_header(token, sent):
    asked = {}

    def opened(_url, **others):
        asked.update(others)
        return BytesIO(b'{"count": 0, "results": []}')

    api(opened, token).read("dcim/sites")
    assert asked["headers"]["Authorization"] == sent


@pytest.mark.parametrize(
    ("status", "body", "wanted"),
    [
        (401, '{"detail": "No token"}', "No token; check the token"),
        (403, '{"detail": "Invalid token"}', "Invalid token; check the token and the permissions of its user"),
        (404, "<html>", "this is not a response of NetBox; check the URL"),
        (400, '{"site": ["Select a valid choice."]}', "site: Select a valid choice.; check the URL and netbox_site"),
        (499, '{"error": "closed"}', "closed; check the URL and netbox_site"),
        (500, '{"error": "KeyError"}', "KeyError; see NetBox's log"),
        (502, "<html>", "this is not a response of NetBox; see NetBox's log"),
    ],
)
def test_the_error_of_a_refused_read_has_the_cause_and_the_next_step(status, body, wanted):
    found = told(lambda: answering(status, body).read("dcim/sites"))
    assert found == f"NetBox: {URL}/api/dcim/sites/: HTTP Error {status}: Refused: {wanted}"


@pytest.mark.parametrize(
    ("names", "body", "wanted"),
    [
        ("ab", '[{}, {"type": ["nonsense is not a valid choice."]}]', "b: type: nonsense is not a valid choice."),
        ("ab", '[{"__all__": ["It exists."]}, {"a": ["1", "2"]}]', "a: It exists.; b: a: 1 2"),
        ("ab", '[{"non_field_errors": ["No."]}, {"a": {"b": "1"}, "c": 2}]', "a: No.; b: a: b: 1, c: 2"),
        ("ab", '{"position": ["U1 is occupied"]}', "one of a to b: position: U1 is occupied"),
        ("abc", '["No."]', "one of a to c: No."),
        ("a", '{"position": ["U1 is occupied"]}', "position: U1 is occupied"),
        ("a", '[{"position": ["U1 is occupied"]}]', "a: position: U1 is occupied"),
    ],
)
def test_the_error_of_a_refused_write_names_the_object_and_the_cause(names, body, wanted):
    found = told(lambda: answering(400, body).write("POST", "dcim/sites", [(name, {}) for name in names]))
    assert found == (
        f"NetBox: {URL}/api/dcim/sites/: HTTP Error 400: Refused: {wanted}; change the blueprint or NetBox"
    )


@pytest.mark.parametrize("body", ["<html>", "[]", "{}"])
def test_a_response_that_is_not_from_netbox_is_refused(body):
    found = told(lambda: answering(200, body).read("dcim/sites"))
    assert found == f"NetBox: {URL}/api/dcim/sites/: this is not a response of NetBox; check the URL"


def test_an_unreachable_netbox_is_reported_with_the_next_step():
    found = told(lambda: api(open_url, url="http://127.0.0.1:9").read("dcim/sites"))
    assert found.startswith("NetBox: http://127.0.0.1:9/api/dcim/sites/: ")
    assert "Connection refused" in found
    assert found.endswith("; check the URL, and that NetBox is running and reachable from this machine")


@pytest.fixture
def own_certificate(tmp_path):
    """Serve an empty list with a self-signed certificate; yield the URL."""
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    made = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj /CN=localhost -days 1"
    subprocess.run([*made.split(), "-keyout", key, "-out", certificate], check=True, capture_output=True)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b'{"count": 0, "results": []}')

        def log_message(self, *arguments):
            pass

    class Server(HTTPServer):
        def handle_error(self, *arguments):
            pass

    server = Server(("127.0.0.1", 0), Handler)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"https://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()


def test_an_untrusted_certificate_is_refused(own_certificate, monkeypatch):
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    found = told(lambda: api(open_url, url=own_certificate).read("dcim/sites"))
    assert "CERTIFICATE_VERIFY_FAILED" in found
    assert found.endswith("or set netbox_validate_certs to false for a test")
    assert api(open_url, url=own_certificate, verified=False).read("dcim/sites") == []
