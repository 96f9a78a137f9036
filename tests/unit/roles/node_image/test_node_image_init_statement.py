# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The first stage takes what the node boots from a signed statement, and refuses old, expired and foreign ones."""

from __future__ import annotations

import re
import shutil
import subprocess
import time
from dataclasses import replace
from pathlib import Path

import pytest
from first_stage import DIGEST, Behaviour, shell

from ansible_collections.sailloft.fleet.plugins.module_utils.image.serving import issue
from ansible_collections.sailloft.fleet.plugins.module_utils.image.store.sign import Signer
from ansible_collections.sailloft.fleet.plugins.module_utils.image.store.statement import signed, split, text_of
from ansible_collections.sailloft.fleet.plugins.module_utils.image.store.store import Store

pytestmark = pytest.mark.skipif(
    not shutil.which("busybox") or not shutil.which("minisign"), reason="no busybox or minisign here (bindep.txt)"
)
BOOTIF = "BOOTIF=01-52-54-00-aa-bb-01"
MAC = "52:54:00:aa:bb:01"
STATED = "a" * 64
HOUR_S, DAY_S = 3600, 86400


class Site:
    """Keys, and statements of n1 and n2 that the site has signed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.key = Signer(str(folder / "key.sec"), str(folder / "key.pub"))
        self.other = Signer(str(folder / "other.sec"), str(folder / "other.pub"))
        for key in (self.key, self.other):
            command = ["minisign", "-G", "-W", "-s", key.secret_key, "-p", key.public_key]
            subprocess.run(command, check=True, capture_output=True)

    def statement(self, servers: list[str], sequence: int = 1, now_s: float | None = None, **changes) -> bytes:
        """Return the signed statement with this sequence; ``changes`` are of n1."""
        key = changes.pop("key", self.key)
        one = {"name": "n1", "mac": MAC, "digest": STATED, "servers": servers, **changes}
        one.pop("previous", None)
        two = {"name": "n2", "mac": "52:54:00:aa:bb:02", "digest": "b" * 64, "servers": ["http://10.9.0.9"]}
        store = Store(str(self.folder / f"store-{time.monotonic_ns()}"))
        terms = issue.Terms(90, int(time.time() if now_s is None else now_s))
        if "previous" in changes:
            issue.ensure(
                store, issue.StatementRequest([{**one, "digest": changes.pop("previous")}, two]), [], key, terms, False
            )
        stated = issue.ensure(store, issue.StatementRequest([one, two]), [], key, terms, True).statement
        return signed(replace(stated, sequence=sequence), key)


@pytest.fixture
def site(tmp_path):
    return Site(tmp_path)


def booted(site: Site, urls: list[str], before: str = "", arguments: str = "") -> str:
    """Return the output of the first stage that takes its statement from these servers, and what it then boots."""
    script = f"""
        public_key={site.key.public_key} tpm=/nonexistent window_s=4 silence_s=1
        restart() {{ echo "rebooting: $1"; exit; }}
        servers='{chr(10).join(urls)}'
        {before}
        fetch_statement
        echo "BOOTS $node $image $(echo $servers) $sequence $rollback $report_url"
        echo "NICS $(echo $nics)"
        echo "CACHES $(echo $caches)"
        echo "WARNED $(echo $warnings)"
    """
    return shell(site.folder, script, f"{BOOTIF} {arguments}")


ONCE = "deadline_s=0"


def at(clock_s: float) -> str:
    """Return the script of a node whose clock says these seconds."""
    return f'date() {{ [ "$*" = +%s ] && echo {int(clock_s)} || busybox date "$@"; }}'


def test_a_node_boots_what_the_statement_says_of_it(site, serve):
    behaviour = Behaviour(b"")
    url = serve(behaviour)
    nics = [{"name": "ens1", "address": "10.1.0.5/24"}]
    caches = ["http://10.9.1.2", "http://10.9.1.3:8080"]
    behaviour.turns = [site.statement([url], 7, report="http://10.9.0.1/report", nics=nics, caches=caches)]
    output = booted(site, [url], "image= node=")
    assert f"BOOTS n1 {STATED} {url} 7 expiry http://10.9.0.1/report\n" in output
    assert f"NICS {MAC} dhcp ens1 10.1.0.5/24\n" in output
    assert sorted(re.search("CACHES (.*)", output)[1].split()) == caches
    assert "REFUSED" not in output
    assert behaviour.asked == [("/nodes/statement", 0)]


def test_the_command_line_decides_nothing(site, serve):
    """An attacker writes another node's name, an old image, and a server of his own, which has an old statement."""
    own, honest = Behaviour(b""), Behaviour(b"")
    urls = [serve(own), serve(honest)]
    own.turns, honest.turns = [site.statement([urls[1]], 3, digest=DIGEST)], [site.statement([urls[1]], 4)]
    output = booted(site, [urls[0]], "node=n2")
    assert f"BOOTS n1 {STATED} {urls[1]} 4 expiry \n" in output
    assert f"names image {DIGEST}, the statement {STATED}" in output
    assert "names node n2, the statement n1" in output


SIGNED = "sailloft.signed=1"


@pytest.mark.parametrize("arguments", ["", SIGNED])
def test_a_kernel_of_the_image_before_boots_that_image_for_an_hour(site, serve, arguments):
    """The node has fetched its kernel before its script was replaced, or by a server that has the old one still."""
    behaviour = Behaviour(b"")
    url = serve(behaviour)
    changed_s = time.time()
    behaviour.turns = [site.statement([url], now_s=changed_s, previous=DIGEST)]
    output = booted(site, [url], at(changed_s + HOUR_S - 60), arguments)
    assert f"BOOTS n1 {DIGEST} {url} 1 " in output
    assert "WARNED \n" in output
    assert f"BOOTS n1 {STATED} " in booted(site, [url], f"image={STATED}", arguments)
    # Afterwards, with another kernel, and with a clock that cannot say when it ends.
    for clock_s, image in ((changed_s + HOUR_S + 60, DIGEST), (changed_s, "c" * 64), (100, DIGEST)):
        output = booted(site, [url], f"{ONCE}; {at(clock_s)}; image={image}", arguments)
        assert f"BOOTS n1 {image}" not in output
        assert (f"BOOTS n1 {STATED}" in output) == (not arguments)


def test_the_highest_sequence_of_the_servers_wins(site, serve):
    behaviours = [Behaviour(b"") for _server in range(3)]
    urls = [serve(each) for each in behaviours]
    for behaviour, sequence in zip(behaviours, (5, 6, 5)):
        behaviour.turns = [site.statement(urls, sequence)]
    output = booted(site, [*urls, "http://127.0.0.1:9"])
    assert " 6 expiry \n" in output
    assert f"{urls[1]} has statement 6, another server had 5" in output


def test_of_two_statements_in_one_file_the_first_counts(site, serve):
    """Nothing that follows a signature is read, whether it is older or later."""
    behaviour = Behaviour(b"")
    url = serve(behaviour)
    behaviour.turns = [site.statement([url], 5) + site.statement([url], 9, digest="d" * 64)]
    assert f"BOOTS n1 {STATED} {url} 5 expiry \n" in booted(site, [url])


@pytest.mark.parametrize("turn", ["silent", "missing", b"garbage\n"])
def test_a_bad_server_does_not_keep_a_node_from_a_good_one(site, serve, turn):
    good = Behaviour(b"")
    urls = [serve(Behaviour(turn)), serve(good)]
    good.turns = [site.statement(urls)]
    begun = time.monotonic()
    assert "BOOTS n1" in booted(site, urls)
    # Less than the window: a silent server is left.
    assert turn != "silent" or time.monotonic() - begun < 20


def test_an_old_copy_waits_for_a_server_with_a_new_one(site, serve):
    """The first server's old statement has expired, and the second one answers only later."""
    old, new = Behaviour(b""), Behaviour("missing")
    urls = [serve(old), serve(new)]
    old.turns = [site.statement(urls, 1, now_s=time.time() - 91 * DAY_S)]
    new.turns = ["missing", site.statement(urls, 2)]
    output = booted(site, urls)
    assert output.count("REFUSED") == 1
    assert " 2 expiry \n" in output


def mixed(site: Site, url: str) -> tuple[bytes, bytes]:
    """Return the lines of a statement and the signature of another one."""
    old, new = (site.statement([url], sequence) for sequence in (1, 2))
    return split(old)[0], split(new)[1]


@pytest.mark.parametrize(
    ("data", "cause"),
    [
        (lambda site, url: site.statement([url], key=site.other), "the signature does not hold"),
        (lambda site, url: site.statement([url]).replace(b"n1", b"n3"), "the signature does not hold"),
        (lambda site, url: site.statement([url]).partition(b"untrusted")[0], "the signature does not hold"),
        (lambda site, url: site.statement([url])[:-30], "the signature does not hold"),
        # The lines of an old one with the signature of a new one, and the signature first.
        (lambda site, url: b"".join(mixed(site, url)), "the signature does not hold"),
        (lambda site, url: b"".join(mixed(site, url)[::-1]), "the signature does not hold"),
        (lambda site, url: "missing", "404"),
        (lambda site, url: site.statement([url], mac="52:54:00:aa:bb:03"), f"no node that boots from {MAC}"),
    ],
)
def test_a_statement_that_is_not_the_sites_boots_nothing(site, serve, data, cause):
    behaviour, sink = Behaviour("missing"), Behaviour("missing")
    url = serve(behaviour)
    behaviour.turns = [data(site, url)]
    output = booted(site, [url], ONCE, f"sailloft.report={serve(sink)}/report")
    assert "BOOTS" not in output
    assert "REFUSED: node n1: " in output
    assert cause in output
    assert "rebooting" in output
    assert "event=refused&node=n1" in sink.asked[0][0]
    assert "file=nodes/statement&wanted=" in sink.asked[0][0]


def test_a_node_with_a_signed_command_line_is_named_by_its_address_until_the_statement_names_it(site):
    output = booted(site, ["http://127.0.0.1:9"], f"{ONCE} node=", "sailloft.signed=1")
    assert f"REFUSED: node {MAC}: " in output


def test_a_node_with_a_signed_command_line_reports_a_refusal_where_the_refused_statement_says(site, serve):
    behaviour, sink = Behaviour(b""), Behaviour("missing")
    url, report = serve(behaviour), f"{serve(sink)}/report"
    behaviour.turns = [site.statement([url], now_s=time.time() - 91 * DAY_S, report=report)]
    booted(site, [url], f"{ONCE} node=", "sailloft.signed=1")
    assert f"event=refused&node={MAC}&" in sink.asked[0][0]
    # Nobody may choose the URL but the site.
    silent = Behaviour("missing")
    behaviour.turns = [site.statement([url], key=site.other, report=f"{serve(silent)}/report")]
    assert "the signature does not hold" in booted(site, [url], f"{ONCE} node=", "sailloft.signed=1")
    assert silent.asked == []


def test_an_expired_statement_is_refused_with_the_clocks_that_decide(site, serve):
    """The statement is in order, and the node's clock is a year ahead of the server's."""
    behaviour = Behaviour(b"")
    url = serve(behaviour)
    behaviour.turns = [site.statement([url], 9)]
    ahead_s = time.time() + 365 * DAY_S
    output = booted(site, [url], f"{ONCE}; {at(ahead_s)}")
    assert "BOOTS" not in output
    expires = text_of(int(time.time()) + 90 * DAY_S)[:13]
    (line,) = [line for line in output.splitlines() if "REFUSED" in line]
    assert f"statement 9 has expired at {expires}" in line
    assert f"this node's clock says {text_of(int(ahead_s))}, that of {url} " in line
    assert time.strftime("%d %b %Y", time.gmtime()) in line
    assert "node_scripts.yml" in line


def test_no_clock_of_a_server_is_named_if_it_agrees(site, serve):
    behaviour = Behaviour(b"")
    url = serve(behaviour)
    behaviour.turns = [site.statement([url], now_s=time.time() - 91 * DAY_S)]
    output = booted(site, [url], ONCE)
    assert "has expired at" in output
    assert "that of http" not in output


@pytest.mark.parametrize("clock_s", [100, time.time() - 30 * DAY_S], ids=["1970", "a month ago"])
def test_a_clock_before_the_statement_is_named_and_the_node_boots(site, serve, clock_s):
    """The node has no battery, or the controller's clock was ahead."""
    behaviour = Behaviour(b"")
    url = serve(behaviour)
    behaviour.turns = [site.statement([url])]
    output = booted(site, [url], at(clock_s))
    assert f"BOOTS n1 {STATED}" in output
    (line,) = [line for line in output.splitlines() if line.startswith("WARNED")]
    assert "a clock is wrong: statement 1 was issued at" in line
    assert text_of(int(clock_s)) in line
    assert url in line


@pytest.mark.parametrize("behind_s", [0, HOUR_S - 60])
def test_a_clock_that_is_nearly_right_is_not_named(site, serve, behind_s):
    behaviour = Behaviour(b"")
    url = serve(behaviour)
    behaviour.turns = [site.statement([url], digest=DIGEST)]
    assert "WARNED \n" in booted(site, [url], at(time.time() - behind_s))


def test_a_statement_of_many_nodes_is_read(site, serve, tmp_path):
    behaviour = Behaviour(b"")
    url = serve(behaviour)
    nodes = [
        {"name": f"n{at}", "mac": f"52:54:00:aa:{at >> 8:02x}:{at & 255:02x}", "digest": STATED, "servers": [url]}
        for at in range(3000, 3400)
    ]
    own = {"name": "n1", "mac": MAC, "digest": "c" * 64, "servers": [url]}
    store, key = Store(str(tmp_path / "many")), site.key
    terms = issue.Terms(90, int(time.time()))
    behaviour.turns = [issue.ensure(store, issue.StatementRequest([*nodes, own]), [], key, terms, False).after]
    assert f"BOOTS n1 {'c' * 64} {url} " in booted(site, [url])
