# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The files of single nodes: refusals that name the node, one text for equal files, and what a store has of them."""

from __future__ import annotations

from pathlib import Path

import pytest
from image_samples import refused
from messages import Mentions

from ansible_collections.sailloft.fleet.plugins.module_utils.image.store import node_files
from ansible_collections.sailloft.fleet.plugins.module_utils.image.store.store import Store

KEY = "-----BEGIN OPENSSH PRIVATE KEY-----\nb3BlbnNzaC1rZXktdjEAAAAABG5vbmUAAAAEbm9uZQ\n"


def test_the_text_has_each_file_with_its_mode_and_owner_whatever_the_order():
    files = {
        "/etc/b": {"content": "b\n", "mode": "755", "owner": "site", "group": "1000"},
        "/etc/a": {"content": ""},
    }
    text = "0644 root root /etc/a -\n0755 site 1000 /etc/b Ygo=\n"
    assert node_files.text_of("bm01", files) == node_files.text_of("bm01", dict(sorted(files.items()))) == text
    assert (node_files.text_of("bm01", {}), node_files.digest_of("")) == ("", "")


@pytest.mark.parametrize(
    ("files", "words"),
    [
        ([], ("not a dictionary",)),
        ({"etc/hosts": {"content": ""}}, ("'etc/hosts'", "absolute")),
        ({"/etc/../hosts": {"content": ""}}, ("'/etc/../hosts'", "absolute")),
        ({"/etc/a b": {"content": ""}}, ("'/etc/a b'",)),
        ({"/": {"content": ""}}, ("'/'",)),
        ({7: {"content": ""}}, ("7", "absolute")),
        ({"/etc/a": "text"}, ("/etc/a", "not a dictionary")),
        ({"/etc/a": {"mode": "0644"}}, ("/etc/a", "content")),
        ({"/etc/a": {"content": "", "source": "/a"}}, ("/etc/a", "'source'")),
        ({"/etc/a": {"content": 5}}, ("/etc/a", "UTF-8")),
        ({"/etc/a": {"content": "\ud800"}}, ("/etc/a", "UTF-8")),
        ({"/etc/a": {"content": "", "mode": 420}}, ("/etc/a", "mode", "420", "quotes")),
        ({"/etc/a": {"content": "", "mode": "4755"}}, ("/etc/a", "'4755'")),
        ({"/etc/a": {"content": "", "owner": "a b"}}, ("/etc/a", "owner", "'a b'")),
        ({"/etc/a": {"content": ""}, "/etc/a/b": {"content": ""}}, ("/etc/a is both",)),
        ({"/run/a": {"content": ""}}, ("/run/a", "hidden")),
        ({"/proc/a": {"content": ""}}, ("/proc/a",)),
        ({"/etc/ssh/ssh_host_ed25519_key": {"content": KEY}}, ("ssh_host_ed25519_key", "node_identity_secrets")),
        ({"/etc/hostname": {"content": "bm02"}}, ("/etc/hostname", "name")),
        ({"/etc/ssh/ssh_host_rsa_key.pub": {"content": ""}}, ("ssh_host_rsa_key.pub", "node_identity_secrets")),
        ({"/usr/lib/sailloft/identity": {"content": ""}}, ("/usr/lib/sailloft/identity",)),
        ({"/etc/systemd/system/sailloft-identity.service": {"content": ""}}, ("sailloft-identity.service",)),
        ({"/usr/sbin/init": {"content": ""}}, ("/usr/sbin/init", "first process")),
        ({"/lib/systemd/systemd": {"content": ""}}, ("/lib/systemd/systemd", "first process")),
        ({"/etc": {"content": ""}}, ("/etc", "directory")),
        ({"/etc/a": {"content": "x" * node_files.MOST_BYTES}}, (str(node_files.MOST_BYTES), "image")),
    ],
)
def test_what_no_node_could_have_is_refused_with_the_node_and_the_file(files, words):
    message = refused(lambda: node_files.text_of("bm01", files))
    assert message == Mentions("bm01", "node_boot_files", *words)
    assert "b3BlbnNzaC1" not in message


@pytest.mark.parametrize(
    "path",
    [
        *("/etc/hosts", "/etc/resolv.conf", "/etc/machine-id", "/etc/hostname.d/a", "/etc/sailloft/logs.conf"),
        *("/etc/systemd/system/sailloft-s3-a.service.d/more.conf", "/usr/bin/initialise", "/srv/a"),
    ],
)
def test_a_file_that_nothing_else_writes_at_boot_may_be_a_nodes_own(path):
    assert path in node_files.text_of("bm01", {path: {"content": "a"}})


def test_equal_changes_of_nodes_are_one_diff_with_their_folded_names():
    old, new = ({"/etc/a": {"content": content}, "/etc/b": {"content": "b"}} for content in ("1\n", "2\n"))
    before = {f"bm0{number}": node_files.text_of("", old) for number in (1, 2, 3)}
    after = {**before, **{f"bm0{number}": node_files.text_of("", new) for number in (1, 2)}}
    row = {"before": "0644 root root\n1\n", "after": "0644 root root\n2\n"}
    assert node_files.diffs(before, after) == [
        {"before_header": "bm[01-02]: /etc/a", "after_header": "bm[01-02]: /etc/a", **row}
    ]
    assert node_files.diffs(after, after) == []


def test_a_store_writes_what_it_lacks_and_what_is_damaged(tmp_path):
    store = Store(str(tmp_path / "store"))
    text = node_files.text_of("bm01", {"/etc/a": {"content": "a"}})
    Path(store.path).mkdir()
    assert node_files.put(store, [text, ""], check=True)
    assert node_files.present(store) == []
    assert node_files.put(store, [text, ""])
    assert not node_files.put(store, [text])
    place = Path(store.place(node_files.path_of(node_files.digest_of(text))))
    assert (place.read_text(), place.stat().st_mode & 0o777) == (text, 0o644)
    place.write_text("cut")
    assert (node_files.present(store), node_files.put(store, [text])) == ([], True)
    assert node_files.present(store) == [node_files.digest_of(text)]
