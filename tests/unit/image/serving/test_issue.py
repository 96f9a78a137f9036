# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Statements of what nodes may run: issued, renewed, kept, refused."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from image_samples import refused, tree
from kills import kills
from messages import Mentions

from ansible_collections.sailloft.fleet.plugins.module_utils.image.serving import issue
from ansible_collections.sailloft.fleet.plugins.module_utils.image.serving.issue import (
    CHANGE_S,
    DAY_S,
    StatementRequest,
    Terms,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.image.store import node_files, sign, statement
from ansible_collections.sailloft.fleet.plugins.module_utils.image.store.sign import Signer
from ansible_collections.sailloft.fleet.plugins.module_utils.image.store.store import Store

pytestmark = pytest.mark.skipif(not shutil.which("minisign"), reason="no minisign on this machine (bindep.txt)")
NOW_S = 1_800_000_000
OLD, NEW = "1" * 64, "2" * 64


@pytest.fixture(scope="module")
def keys(tmp_path_factory):
    folder = tmp_path_factory.mktemp("keys")
    made = []
    for name in ("site", "other"):
        pair = [str(folder / f"{name}.{kind}") for kind in ("sec", "pub")]
        subprocess.run(["minisign", "-G", "-W", "-s", pair[0], "-p", pair[1]], check=True, capture_output=True)
        made.append(Signer(*pair))
    return made


@pytest.fixture
def site(tmp_path, keys):
    """A function that issues a statement of nodes at a time; by default of two nodes that follow stable."""
    store = Store(str(tmp_path / "store"))

    def run(*nodes, now_s=NOW_S, days=90, reissue=False, check=False, key=keys[0], servers=None, **request):
        rows = nodes or (node(1), node(2))
        given = [server()] if servers is None else servers
        given = [{**each, "now_s": now_s if each["now_s"] is None else each["now_s"]} for each in given]
        return issue.ensure(
            store, StatementRequest(list(rows), **request), given, key, Terms(days, now_s, reissue), check
        )

    run.store = store
    return run


TEXT = node_files.text_of("bm01", {"/etc/hosts": {"content": "10.9.0.1 boot01\n"}})
FILES = node_files.digest_of(TEXT)


def node(number, **changes):
    own = {"name": f"bm0{number}", "mac": f"52-54-00-00-00-0{number}", "channel": "stable"}
    return {**own, "servers": ["http://10.9.0.1"], "report": "http://10.9.0.1/report", **changes}


def server(host="boot01", sequence=0, now_s=None, **channels):
    """A boot server's store with the images OLD and NEW, whose clock is by default that of the host that signs."""
    named = channels or {"stable": OLD}
    rows = [{"name": name, "digest": digest} for name, digest in named.items()]
    images = [{"digest": digest, "knows": [node_files.FORMAT]} for digest in (OLD, NEW)]
    return {"host": host, "channels": rows, "images": images, "files": [], "statement": sequence, "now_s": now_s}


def test_a_statement_has_what_each_node_boots_with_and_is_signed(site, keys):
    nics = [{"name": "ens1", "address": "10.1.0.5/24", "gateway": "10.1.0.1"}]
    change = site(node(1, nics=nics), node(2, channel=None, digest=NEW))
    data = site.store.contents("nodes", "statement")
    assert (change.changed, change.before, change.after) == (True, b"", data)
    assert sign.verifies(*statement.split(data), keys[0].key)
    read = statement.load(data, "statement")
    assert read == change.statement
    assert (read.sequence, statement.seconds(read.issued)) == (NOW_S, NOW_S)
    assert statement.seconds(read.expires) == NOW_S + 90 * DAY_S
    first, second = (read.nodes[f"52:54:00:00:00:0{number}"] for number in (1, 2))
    assert first.nics == ("52:54:00:00:00:01 dhcp", "ens1 10.1.0.5/24 10.1.0.1")
    assert (first.name, first.image, first.channel) == ("bm01", OLD, "stable")
    assert (first.servers, first.report) == (("http://10.9.0.1",), "http://10.9.0.1/report")
    assert (second.image, second.channel) == (NEW, "")


def test_a_second_run_changes_nothing_until_a_third_of_the_validity_has_passed(site):
    first = site()
    again = site(now_s=NOW_S + 30 * DAY_S)
    assert (again.changed, again.after) == (False, first.after)
    renewed = site(now_s=NOW_S + 30 * DAY_S + 1)
    assert renewed.changed
    assert renewed.statement.nodes == first.statement.nodes
    assert renewed.statement.sequence == NOW_S + 30 * DAY_S + 1
    assert statement.seconds(renewed.statement.expires) == NOW_S + 120 * DAY_S + 1


def test_the_lines_of_a_node_name_its_own_files(site):
    """They are signed, kept beside the statement, and given to the boot servers that lack them."""
    change = site(files={"bm01": TEXT})
    assert [row.files for row in change.statement.nodes.values()] == [FILES, ""]
    assert (change.files, node_files.present(site.store)) == ([TEXT], [FILES])
    assert [row["after_header"] for row in change.diffs] == ["bm01: /etc/hosts"]
    # Another node's run gives them to a boot server that is new, from the store of the host that signs.
    served = [{**server("boot01"), "files": [FILES]}, server("boot02")]
    assert site(node(2), servers=served).files == [TEXT]
    again = site(servers=served[:1], files={"bm01": TEXT})
    assert (again.changed, again.files, again.diffs) == (False, [], ())
    gone = site(servers=served[:1])
    assert (gone.changed, gone.files, [row["after"] for row in gone.diffs]) == (True, [], [""])


def test_a_check_shows_the_change_of_a_file_and_writes_nothing(site):
    site(files={"bm01": TEXT})
    before = tree(site.store.path)
    other = node_files.text_of("bm01", {"/etc/hosts": {"content": "10.9.0.2 boot01\n"}})
    (diff,) = site(files={"bm01": other, "bm02": TEXT}, check=True).diffs[:1]
    assert (diff["before_header"], diff["before"][-16:], diff["after"][-16:]) == (
        "bm01: /etc/hosts",
        "10.9.0.1 boot01\n",
        "10.9.0.2 boot01\n",
    )
    assert tree(site.store.path) == before


def test_files_that_nobody_has_any_more_are_refused(site):
    site(files={"bm01": TEXT})
    Path(site.store.place(node_files.path_of(FILES))).unlink()
    message = refused(lambda: site(node(2)))
    assert message == Mentions("node bm01", "node_scripts.yml -l bm01")
    site(files={"bm01": TEXT})
    assert node_files.present(site.store) == [FILES]


def test_an_image_whose_first_stage_would_leave_the_files_out_is_refused(site):
    old = server()
    del old["images"][0]["knows"]
    message = refused(lambda: site(servers=[old], files={"bm01": TEXT}))
    assert message == Mentions("node bm01", OLD)
    assert site.store.contents("nodes", "statement") is None
    assert site(node(1, channel=None, digest=NEW), servers=[old], files={"bm01": TEXT}).changed


def test_another_validity_is_issued_at_once(site):
    site()
    assert statement.seconds(site(days=10).statement.expires) == NOW_S + 10 * DAY_S


def test_a_run_changes_only_the_lines_of_its_nodes(site):
    first = site()
    # The channel has moved for all, but only bm02 is in the run.
    change = site(node(2), servers=[server(stable=NEW)])
    assert change.statement.sequence == NOW_S + 1
    assert change.statement.nodes["52:54:00:00:00:01"] == first.statement.nodes["52:54:00:00:00:01"]
    assert change.statement.nodes["52:54:00:00:00:02"].image == NEW
    gone = site(node(2), removed=["bm01"], servers=[server(stable=NEW)])
    assert list(gone.statement.nodes) == ["52:54:00:00:00:02"]


def test_a_new_mac_address_replaces_the_line_under_the_old_one(site):
    site()
    change = site(node(1, mac="52:54:00:00:00:09"))
    assert sorted(change.statement.nodes) == ["52:54:00:00:00:02", "52:54:00:00:00:09"]
    taken = refused(site, node(3, mac="52:54:00:00:00:02"))
    assert taken == Mentions("bm03", "bm02", "52:54:00:00:00:02")


def test_check_mode_predicts_the_statement_and_writes_nothing(site):
    assert site(check=True).changed
    assert not issue.os.path.exists(site.store.path)
    site()
    before = tree(site.store.path)
    assert not site(check=True).changed
    change = site(node(1, channel=None, digest=NEW), check=True)
    assert (change.changed, change.statement.sequence) == (True, NOW_S + 1)
    assert tree(site.store.path) == before


def test_a_node_of_a_channel_that_is_to_come_has_no_line(site):
    site()
    assert list(site(node(1), node(2, channel="lab"), channels_to_come=["lab"]).statement.nodes) == [
        "52:54:00:00:00:01"
    ]
    before = tree(site.store.path)
    assert refused(site, node(2, channel="labb")) == Mentions("channel labb, which bm02 would boot", "stable")
    assert tree(site.store.path) == before


def test_channels_that_differ_between_servers_are_refused(site):
    servers = [server("boot01"), server("boot02", stable=NEW)]
    assert refused(site, servers=servers) == Mentions("stable", "boot01", "boot02", OLD, NEW)
    # Nobody in this run follows it.
    site(node(1, channel=None, digest=NEW), servers=servers)


def test_a_clock_before_the_last_statement_is_refused_with_both_times(site):
    site()
    moved = [server(stable=NEW)]
    said = refused(site, now_s=NOW_S - 3600, servers=moved)
    assert said == Mentions("clock", statement.text_of(NOW_S), statement.text_of(NOW_S - 3600))
    # Nothing is to be signed, so the clock does not matter.
    assert not site(now_s=NOW_S - 3600).changed
    change = site(now_s=NOW_S - 3600, servers=moved, reissue=True)
    assert (change.statement.sequence, len(change.statement.nodes)) == (NOW_S + 1, 2)


def test_a_boot_server_with_a_later_statement_is_refused(site):
    site()
    later = [server(), server("boot02", sequence=NOW_S + 7)]
    assert refused(site, servers=later) == Mentions("boot02", str(NOW_S + 7), "node_boot_signer")
    assert site(servers=later, reissue=True).statement.sequence == NOW_S + 8
    issue.os.remove(site.store.place("nodes", "statement"))
    assert refused(site, servers=later) == Mentions("boot02", str(NOW_S + 7), "does not exist")


def test_a_sequence_that_no_clock_can_reach_is_not_followed(site):
    """A boot server that is not the site's any more must not push the sequence to where no other can follow."""
    wild = [server(sequence=statement.SEQUENCE_END - 1)]
    assert refused(site, servers=wild, reissue=True) == Mentions(str(statement.SEQUENCE_END))
    assert site.store.contents("nodes", "statement") is None


def test_the_sequence_grows_though_all_hosts_have_lost_the_last_statement(site):
    last = site().statement.sequence
    shutil.rmtree(site.store.path)
    assert site(now_s=NOW_S + 60).statement.sequence > last


@pytest.mark.parametrize("apart_s", [-issue.CLOCK_S - 1, issue.CLOCK_S + 1])
@pytest.mark.parametrize("reissue", [False, True])
def test_a_clock_that_no_boot_server_confirms_signs_nothing(site, apart_s, reissue):
    """The first statement of a host that was a year late would have expired on all nodes."""
    other = server("boot02", now_s=NOW_S + apart_s)
    told = refused(site, servers=[other], reissue=reissue)
    assert told == Mentions("clock", "boot02", statement.text_of(NOW_S), statement.text_of(NOW_S + apart_s))
    # One boot server with a wrong clock does not stop a host with a right one.
    assert site(servers=[other, server()]).changed
    assert not site(servers=[other]).changed


def test_a_pin_to_an_image_that_a_boot_server_lacks_is_refused_before_it_is_signed(site):
    site()
    before = tree(site.store.path)
    assert refused(site, node(1, channel=None, digest="3" * 64)) == Mentions("bm01", "boot01", "3" * 64)
    assert tree(site.store.path) == before


def images(change):
    """Return the image, the image before and the end of its time, of the node bm01."""
    row = change.statement.nodes["52:54:00:00:00:01"]
    return row.image, row.previous, row.until


def test_the_image_before_may_boot_for_an_hour(site):
    """The scripts on the boot servers, and the kernels that nodes have fetched, are of the one before."""
    assert images(site()) == (OLD, "", "")
    moved = [server(stable=NEW)]
    end = statement.text_of(NOW_S + 10 + CHANGE_S)
    assert images(site(servers=moved, now_s=NOW_S + 10)) == (NEW, OLD, end)
    # The lines of a run for other nodes, soon and later; a second run signs nothing.
    assert images(site(node(2, report=""), servers=moved, now_s=NOW_S + 20)) == (NEW, OLD, end)
    assert not site(node(1), servers=moved, now_s=NOW_S + 2 * CHANGE_S).changed
    assert images(site(node(2), servers=moved, now_s=NOW_S + 2 * CHANGE_S)) == (NEW, "", "")
    # Back, in the hour after another change.
    site(servers=[server(stable="3" * 64)], now_s=NOW_S + 3 * CHANGE_S)
    back = images(site(servers=moved, now_s=NOW_S + 3 * CHANGE_S + 9))
    assert back == (NEW, "3" * 64, statement.text_of(NOW_S + 4 * CHANGE_S + 9))


def test_the_image_before_of_a_clock_that_was_ahead_ends_with_the_next_statement(site):
    site(now_s=NOW_S + 400 * DAY_S)
    site(servers=[server(stable=NEW)], now_s=NOW_S + 400 * DAY_S)
    assert images(site(servers=[server(stable=NEW)], reissue=True)) == (NEW, "", "")


def test_what_a_channel_will_name_is_signed_before_it_is_promoted(site):
    """A run that was killed between two servers left copies that differ."""
    differing = [server("boot01", stable=NEW), server("boot02")]
    for servers in ([server()], differing):
        assert images(site(servers=servers, promoted={"stable": NEW}))[0] == NEW
        shutil.rmtree(site.store.path)
    assert images(site(servers=[server(lab=OLD)], promoted={"stable": NEW}))[0] == NEW
    assert refused(site, promoted={"stable": "3" * 64}) == Mentions("channel stable", "boot01", "3" * 64)


def test_a_node_with_secure_boot_is_stated_no_image_without_a_signed_kernel(site):
    """Its script would be refused after the statement, and it would boot neither image."""
    site()
    before = tree(site.store.path)
    servers = [{**server(), "images": [{"digest": OLD, "signed_kernel": True}, {"digest": NEW}]}]
    pin = {"channel": None, "digest": NEW, "secure_boot": True}
    assert refused(site, node(1, **pin), servers=servers) == Mentions("bm01", "boot01", NEW, "node_image_secure_boot")
    assert refused(site, node(1, secure_boot=True), servers=servers, promoted={"stable": NEW}) == Mentions(NEW)
    assert tree(site.store.path) == before
    assert site(node(1, secure_boot=True), node(2, channel=None, digest=NEW), servers=servers).changed


def test_a_run_that_is_killed_at_any_point_leaves_the_old_or_the_new_statement(site, keys):
    first, moved = site().after, [server(stable=NEW)]
    path = Path(statement.path_of(site.store))
    for _kill in kills(lambda: site(servers=moved), lambda: path.write_bytes(first)):
        data = path.read_bytes()
        assert sign.verifies(*statement.split(data), keys[0].key)
        assert site(servers=moved).statement.nodes["52:54:00:00:00:01"].image == NEW


def test_a_command_of_the_site_signs_instead_of_a_key(site, keys, tmp_path):
    """The key is on another machine; what the command prints is verified."""
    script = 'cat >"$0/text"; minisign -S -s "$1" -m "$0/text" -x "$0/signature" >/dev/null; cat "$0/signature"'
    commands = [("sh", "-c", script, str(tmp_path), pair.secret_key) for pair in keys]
    right, wrong = (replace(keys[0], secret_key="/nowhere", command=command) for command in commands)
    assert refused(site, key=wrong) == Mentions("sh")
    assert site.store.contents("nodes", "statement") is None
    data = site(key=right).after
    assert sign.verifies(*statement.split(data), keys[0].key)


def test_a_statement_of_another_key_is_never_continued(site, keys):
    site()
    assert refused(site, node(1), key=keys[1]) == Mentions(keys[1].public_key, "node_boot_statement_reissue")
    change = site(node(1), key=keys[1], reissue=True)
    assert (change.statement.sequence, len(change.statement.nodes)) == (NOW_S + 1, 1)


def test_an_altered_statement_is_never_continued(site):
    data = site().after
    path = statement.path_of(site.store)
    with open(path, "wb") as stream:
        stream.write(data.replace(b"bm02", b"bm99"))
    assert refused(site, node(1)) == Mentions("not signed")


def test_the_same_input_gives_the_same_bytes(site, tmp_path):
    one = site().after
    shutil.rmtree(site.store.path)
    assert site(node(2), node(1)).after == one


@pytest.mark.parametrize("days", [0, 3651])
def test_a_validity_that_must_be_a_mistake_is_refused(days):
    assert refused(Terms, days, NOW_S) == Mentions("node_boot_statement_days", str(days))


def test_a_store_keeps_the_latest_statement(site):
    first = site().after
    second = site(servers=[server(stable=NEW)]).after
    served = Store(str(site.store.path) + "-served")
    issue.os.mkdir(served.path)
    assert statement.sequence_in(served) == 0
    assert statement.put(served, second, check=True)
    assert statement.put(served, second)
    assert not statement.put(served, second)
    assert not statement.put(served, first)
    assert served.contents("nodes", "statement") == second
    assert statement.sequence_in(served) == NOW_S + 1
    other = statement.dump(replace(statement.load(second, ""), expires="2030-01-01T00:00:00Z"))
    assert refused(statement.put, served, other) == Mentions(f"statement {NOW_S + 1}")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b"sailloft-statement/1", b"sailloft-image/1"),
        (OLD.encode(), b"x"),
        (b"Z", b""),
        (str(NOW_S).encode(), b"0"),
        (str(NOW_S).encode(), str(statement.SEQUENCE_END).encode()),
    ],
)
def test_a_file_that_is_no_statement_is_refused(site, old, new):
    data = site().after
    assert refused(statement.load, data.replace(old, new), "it").startswith("it: ")
