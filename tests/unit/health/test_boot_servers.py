# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A node without a disk knows after a boot what it knew before, if a boot server keeps a copy that it signed."""

from __future__ import annotations

import contextlib
import json
import shutil
import socket
import subprocess
import threading
import time
from http.server import ThreadingHTTPServer
from pathlib import Path

import health_keeper
import pytest
from messages import raises
from rounds import EXPECTED, GPU, TABLE, at, happened, measured

from ansible_collections.sailloft.fleet.plugins.module_utils.health import boot_servers, copied, round, state, verdict
from ansible_collections.sailloft.fleet.plugins.module_utils.health.expect import stored
from ansible_collections.sailloft.fleet.plugins.module_utils.health.latch import drained, maintained
from ansible_collections.sailloft.fleet.plugins.module_utils.health.model import Reading
from ansible_collections.sailloft.fleet.plugins.module_utils.health.process import Reader
from ansible_collections.sailloft.fleet.plugins.module_utils.health.round import CheckerPaths
from ansible_collections.sailloft.fleet.plugins.module_utils.health.state import State, StateError

pytestmark = pytest.mark.skipif(not shutil.which("ssh-keygen"), reason="no ssh-keygen on this machine (bindep.txt)")
NODE = "gpu01"
WIDTH = f"width@gpu:{GPU.name}"
BEFORE_BOOT = "state_before_boot@node"


keeper = health_keeper.load()


class BootServer:
    """A boot server's keeper, which answers by TCP instead of through nginx."""

    def __init__(self, folder: Path, signers: Path) -> None:
        self.copies = folder
        folder.mkdir()
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self.signers = signers
        self.start()

    def start(self):
        class Handler(keeper.Handler):
            def address_string(self):
                return "node"

        self.server = ThreadingHTTPServer(("127.0.0.1", self.port), Handler)
        self.server.keeper = keeper.Keeper(self.signers, self.copies)
        self.server.pending = None
        threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True).start()

    def stop(self):
        self.server.shutdown()
        self.server.server_close()

    @property
    def copy(self):
        return (self.copies / NODE).read_bytes()


class Site:
    """Two boot servers and a node; ``boots`` counts its boots, each of which empties its memory."""

    def __init__(self, folder: Path, key: Path) -> None:
        self.folder = folder
        self.boots = 1
        self.root = folder / "root"
        (folder / "signers").mkdir()
        signer = f'{NODE} namespaces="sailloft-health" {key.with_suffix(".pub").read_text()}'
        (folder / "signers" / f".{NODE}.signer").write_text(signer)
        self.one, self.two = (BootServer(folder / name, folder / "signers") for name in ("one", "two"))
        (self.root / "etc/ssh").mkdir(parents=True)
        shutil.copy(key, self.root / "etc/ssh/ssh_host_ed25519_key")
        (self.root / "run/sailloft").mkdir(parents=True)
        self.write("boot.json", node=NODE, servers=[self.one.url, self.two.url])
        (folder / "expected.json").write_text(stored.text(EXPECTED))
        names = ("state", "run", "expected.json", "root")
        self.paths = CheckerPaths(*(str(folder / name) for name in names))
        self.second = 0

    def write(self, name, **data):
        (self.root / "run/sailloft" / name).write_text(json.dumps(data))

    def now(self):
        self.second += 60
        return at(self.second, f"boot-{self.boots}", 1_800_000_000 + 10_000 * self.boots + self.second)

    def round(self, *found):
        measurements = tuple(each for each in found if not hasattr(each, "identity"))
        events = tuple(each for each in found if hasattr(each, "identity"))
        reader = Reader("reader", lambda _node: Reading("reader", measurements, events), 20)
        self.saved = round.make(self.paths, [reader], TABLE, now=self.now)
        return self.saved

    def say(self, how, reason):
        round.change(self.paths, lambda condition, now: how(condition, reason, "ada", now), self.now())
        return boot_servers.send(self.paths.state, self.paths.root, self.paths.run)

    def boot(self):
        """Boot the node, which has no disk."""
        for name in ("state", "run"):
            shutil.rmtree(self.folder / name, ignore_errors=True)
        self.boots += 1
        self.second = 0

    def faults(self):
        return sorted(fault.name for fault in self.saved.condition.faults)

    def verdict(self):
        return verdict.verdict(self.saved, at(self.second + 1, f"boot-{self.boots}")).word


@pytest.fixture(scope="module")
def keys(tmp_path_factory):
    """The host keys of this node and of another one."""
    folder = tmp_path_factory.mktemp("keys")
    for name in ("own", "other"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", folder / name], check=True)
    return folder


@pytest.fixture
def site(tmp_path, keys):
    made = Site(tmp_path, keys / "own")
    yield made
    for server in (made.one, made.two):
        server.stop()


def signed(content, key):
    """Return content with a signature."""
    command = ["ssh-keygen", "-Y", "sign", "-q", "-f", key, "-n", "sailloft-health"]
    return content + subprocess.run(command, input=content, capture_output=True, check=True).stdout


def put(server, content, node=NODE):
    return boot_servers.exchange(f"{server.url}/health/{node}", content)[0]


def test_a_node_knows_its_faults_and_the_words_of_persons_after_a_boot(site):
    site.round(measured("width", 8), happened("xid_person"), happened("xid_reboot"))
    assert site.verdict() == verdict.SICK
    assert site.say(maintained, "new riser") == {}
    assert site.say(drained, "cable") == {}
    first = {fault.name: fault.since for fault in site.saved.condition.faults}
    site.boot()
    site.round(measured("width", 8))
    # A reboot is what one of them asked for.
    assert site.faults() == sorted([WIDTH, f"xid_person@gpu:{GPU.name}"])
    assert all(fault.since == first[fault.name] for fault in site.saved.condition.faults)
    condition = site.saved.condition
    assert (condition.drain.reason, condition.maintenance.reason, site.saved.round.number) == ("cable", "new riser", 2)
    site.boot()
    assert WIDTH not in [fault.name for fault in site.round(measured("width", 16)).condition.faults]
    site.boot()
    site.round()
    assert site.faults() == [f"xid_person@gpu:{GPU.name}"]


def test_a_new_node_is_known_and_both_servers_keep_its_first_copy(site):
    site.round(measured("width", 16))
    assert (site.faults(), site.verdict()) == ([], verdict.HEALTHY)
    assert site.one.copy == site.two.copy
    before = site.one.copy
    site.round(measured("width", 16))
    assert site.one.copy == before


def test_an_older_copy_and_one_of_another_node_are_refused(site, keys):
    site.round(measured("width", 16))
    old = site.one.copy
    site.round(measured("width", 8))
    new = site.one.copy
    assert new != old
    assert put(site.one, old) == 409
    assert put(site.one, new) == 204
    forged = signed(copied.text(NODE, 99, State(NODE)), keys / "other")
    assert put(site.one, forged) == 403
    other = signed(copied.text("gpu02", 99, State("gpu02")), keys / "own")
    assert [put(site.one, other), put(site.one, other, "gpu02")] == [400, 403]
    cut = signed(copied.text(NODE, 99, State(NODE)), keys / "own")[:-100]
    assert [put(site.one, cut), put(site.one, b"")] == [403, 400]
    assert site.one.copy == new


def test_without_an_answer_nothing_of_before_is_known_until_a_server_comes_back(site):
    site.round(measured("width", 16))
    site.say(drained, "cable")
    site.boot()
    site.one.stop()
    site.two.stop()
    site.round(measured("width", 16))
    assert (site.faults(), site.verdict()) == ([BEFORE_BOOT], verdict.NOT_KNOWN)
    site.say(maintained, "new riser")
    site.one.start()
    site.two.start()
    site.round(measured("width", 16))
    condition = site.saved.condition
    assert (site.faults(), condition.drain.reason, condition.maintenance.reason) == ([], "cable", "new riser")
    assert copied.parse(site.one.copy, NODE).state.condition.maintenance == condition.maintenance


def test_the_newest_copy_counts_and_a_server_that_was_down_gets_it(site):
    site.round(measured("width", 16))
    site.two.stop()
    site.round(measured("width", 8))
    assert "refused" in " ".join(site.round(measured("width", 8)).round.notes)
    site.two.start()
    site.boot()
    site.round()
    assert site.faults() == [WIDTH]
    assert copied.parse(site.two.copy, NODE).state.condition.faults == site.saved.condition.faults
    site.one.stop()
    site.boot()
    site.round()
    assert site.faults() == [WIDTH]
    assert any(site.one.url in note for note in site.saved.round.notes)


DAMAGED = {
    "empty": b"",
    "zeros": b"\0" * 9,
    "without keys": b"{}",
    "too long": b"x" * (1 << 20),
    "text": b"ERROR: Zugriff verweigert",
}


@pytest.mark.parametrize("content", DAMAGED.values(), ids=DAMAGED)
def test_a_copy_that_is_damaged_is_a_fault_and_replaced(site, content):
    site.round(measured("width", 16))
    for server in (site.one, site.two):
        (server.copies / NODE).write_bytes(content)
    site.boot()
    site.round(measured("width", 16))
    assert (site.faults(), site.verdict()) == (["state_unreadable@node"], verdict.SICK)
    assert copied.parse(site.one.copy, NODE).state.condition.faults == site.saved.condition.faults


def test_a_copy_that_another_key_signed_is_a_fault_and_a_good_one_beside_it_counts(site, keys):
    site.round(measured("width", 8))
    forged = signed(copied.text(NODE, 99, State(NODE)), keys / "other")
    (site.one.copies / NODE).write_bytes(forged)
    site.boot()
    site.round()
    assert site.faults() == [WIDTH]
    (site.one.copies / NODE).write_bytes(forged)
    (site.two.copies / NODE).write_bytes(forged)
    site.boot()
    site.round()
    assert site.faults() == ["state_unreadable@node"]


def test_a_full_disk_of_all_boot_servers_is_a_fault_of_the_check(site):
    site.round(measured("width", 16))
    before = site.one.copy
    for server in (site.one, site.two):
        (server.copies / f".{NODE}.new").symlink_to("/dev/full")
    assert set(site.say(drained, "cable")) == {site.one.url, site.two.url}
    assert site.one.copy == before
    site.round(measured("width", 16))
    assert site.faults() == ["copy_not_kept@node"]
    site.round(measured("width", 16))
    assert site.faults() == []


def test_a_kill_after_the_state_was_saved_loses_nothing(site, monkeypatch):
    site.round(measured("width", 8))
    site.boot()
    with monkeypatch.context() as patched:
        patched.setattr(boot_servers, "remember", None)
        with pytest.raises(TypeError):
            site.round()
    site.round()
    assert site.faults() == [WIDTH]
    (fault,) = site.saved.condition.faults
    assert fault.since.boot_id == "boot-1"


def test_a_kill_before_the_answer_does_not_use_a_number_twice(site, monkeypatch):
    site.round(measured("width", 16))
    exchange = boot_servers.exchange

    def killed(url, content=None):
        exchange(url, content)
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(boot_servers, "exchange", killed)
        with pytest.raises(KeyboardInterrupt):
            site.say(drained, "cable")
    site.round(measured("width", 16))
    site.round(measured("width", 16))
    assert site.faults() == []
    assert copied.parse(site.two.copy, NODE).state.condition.drain.reason == "cable"


def test_a_copy_newer_than_the_node_knows_is_read_before_it_is_replaced(site, keys):
    site.round(measured("width", 16))
    words = State(NODE, condition=drained(State(NODE).condition, "cable", "ada", at(1)))
    assert put(site.one, signed(copied.text(NODE, 99, words), keys / "own")) == 204
    site.say(maintained, "new riser")
    site.round(measured("width", 16))
    assert site.saved.condition.drain.reason == "cable"
    site.round(measured("width", 16))
    assert copied.parse(site.one.copy, NODE).number > 99


def test_a_server_that_never_ends_its_answer_is_left(site, monkeypatch):
    monkeypatch.setattr(boot_servers, "SERVER_S", 0.3)
    site.one.stop()
    with socket.create_server(("127.0.0.1", site.one.port)) as listening:

        def drip():
            connection, _address = listening.accept()
            with contextlib.suppress(OSError):
                for _byte in range(100):
                    connection.send(b"H")
                    time.sleep(0.1)

        threading.Thread(target=drip, daemon=True).start()
        start = time.monotonic()
        site.round(measured("width", 16))
        assert time.monotonic() - start < 5
    assert site.faults() == [BEFORE_BOOT]
    site.one.start()


def test_a_node_without_its_identity_says_so_and_asks_nobody(site):
    site.write("identity.json", opened=False, reason="no bundle")
    site.round(measured("width", 16))
    assert site.faults() == [BEFORE_BOOT]
    assert "no bundle" in site.saved.condition.faults[0].seen
    assert not (site.one.copies / NODE).exists()


def test_a_node_whose_key_was_not_published_is_told_what_to_run(site):
    for signer in (site.folder / "signers").iterdir():
        signer.unlink()
    site.round(measured("width", 16))
    site.round(measured("width", 16))
    assert site.faults() == ["copy_not_kept@node"]
    assert "node_identities.yml" in site.saved.condition.faults[0].seen


def test_a_node_with_a_disk_asks_nobody(site):
    (site.root / "run/sailloft/boot.json").unlink()
    site.round(measured("width", 16))
    assert (site.faults(), site.saved.round.notes) == ([], ())
    assert not (site.one.copies / NODE).exists()


def test_notes_that_cannot_be_read_only_cost_a_question(site):
    site.round(measured("width", 8))
    (Path(site.paths.run) / boot_servers.NOTES).write_text("{")
    site.round(measured("width", 8))
    assert site.faults() == [WIDTH]
    assert copied.parse(site.one.copy, NODE).number == 2


def test_a_copy_of_another_node_is_no_copy():
    text = copied.text(NODE, 3, State(NODE))
    assert copied.parse(text, NODE).number == 3
    for other in (text.replace(b" 3\n", b" -3\n"), text[:20], text.partition(b"\n")[0]):
        with raises(StateError, "copy"):
            copied.parse(other, NODE)
    with raises(StateError, NODE, "gpu02"):
        copied.parse(text, "gpu02")


def test_the_values_of_a_round_are_not_copied(site):
    site.round(measured("temperature", 50))
    assert site.saved.values
    assert state.load(site.one.copy.split(b"\n")[1]).values == {}
