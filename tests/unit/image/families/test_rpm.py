# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""RPM archives, with simulated answers; nothing is installed."""

from __future__ import annotations

import hashlib
import os
import re
import sqlite3
from dataclasses import replace
from pathlib import Path

import pytest
from messages import Mentions, raises
from recorded_tools import Tools

from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.caches import Caches
from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.errors import ImageError
from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.model import Archive, Layer
from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.tools import Run
from ansible_collections.sailloft.fleet.plugins.module_utils.image.families import rpm

LIST = b"<repomd/>"


REPOMD = hashlib.sha256(LIST).hexdigest()
KEYED = Archive("http://a/9", keyring="/keys/a")
PINNED = Archive("http://b/extra", release_sha256={"repomd": REPOMD})
RUN = Run("the test", print)
BASE = Layer("base", None, "rocky", "9.4", "x86_64", (KEYED, PINNED), ("bash", "kernel-core"))
DIGESTS = {f"{archive.url}/repodata/repomd.xml": REPOMD for archive in BASE.archives}


@pytest.fixture
def database(tmp_path):
    """The directory of rpm's database in an image."""
    folder = tmp_path / "root/usr/lib/sysimage/rpm"
    folder.mkdir(parents=True)
    (folder / "rpmdb.sqlite").write_text("the packages")
    return folder


class Dnf:
    """A simulated dnf that fetches ``fetched`` as the archives' metadata and prints the given outputs."""

    def __init__(self, root, fetched=(LIST, LIST), makecache="", install=""):
        self.root, self.fetched, self.outputs = root, fetched, {"makecache": makecache, "install": install}
        self.configuration, self.macros = "", ""

    def __call__(self, argv):
        if argv[0] in ("mount", "umount"):
            return ""
        command = next(word for word in argv if word in self.outputs)
        configuration = Path(argv[argv.index("--config") + 1])
        self.configuration = configuration.read_text()
        self.macros = (configuration.parent / ".rpmmacros").read_text()
        for number, data in enumerate(self.fetched):
            place = self.root / f"var/cache/dnf/archive{number}-0123/repodata/repomd.xml"
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(data)
        return self.outputs[command]


def caches(root) -> Caches:
    return Caches({rpm.CACHE: root.parent / "cache"}, root.parent)


def refused(root, layer=BASE, **dnf) -> str:
    with pytest.raises(ImageError) as error:
        rpm.install(root, layer, Tools(answer=Dnf(root, **dnf)), DIGESTS, caches(root))
    return str(error.value)


def test_packages_are_installed_only_from_the_archives_of_the_layer(tmp_path, monkeypatch):
    monkeypatch.setenv("http_proxy", "http://proxy")
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "7")
    monkeypatch.setenv("SECRET", "x")
    dnf = Dnf(tmp_path)
    tools = Tools(answer=dnf)
    rpm.install(tmp_path, BASE, tools, DIGESTS, caches(tmp_path))
    _mount, fetch, download, _umount, _lend, install, _taken = tools.commands
    assert fetch[0] == "dnf"
    assert fetch[3:] == [
        *("--installroot", str(tmp_path), "--releasever", "9.4", "--forcearch", "x86_64", "makecache")
    ]  # fmt: skip
    assert download == [*fetch[:-1], "install", "--downloadonly", "bash", "kernel-core"]
    assert install == [*fetch[:-1], "--cacheonly", "install", "bash", "kernel-core"]
    assert ["--unshare-net" in argv for argv in tools.ran if "dnf" in argv] == [False, False, True]
    home = os.path.dirname(fetch[2])
    for environment in filter(None, tools.environments):
        assert {name: environment[name] for name in ("HOME", "SOURCE_DATE_EPOCH", "http_proxy")} == {
            "HOME": home, "SOURCE_DATE_EPOCH": "7", "http_proxy": "http://proxy"
        }  # fmt: skip
        assert "SECRET" not in environment
    assert not Path(home).exists()
    assert dnf.macros == "%_dbpath /var/lib/rpm\n"
    main, first, second = re.split(r"^\[archive\d\]$", dnf.configuration, flags=re.MULTILINE)
    assert "module_platform_id = platform:el9\n" in main
    assert f"reposdir = {home}/none\n" in main
    assert {"baseurl = http://a/9/", "gpgcheck = 1", "gpgkey = file:///keys/a"} <= set(first.splitlines())
    assert {"baseurl = http://b/extra/", "gpgcheck = 0"} <= set(second.splitlines())
    assert "gpgkey" not in second


@pytest.mark.parametrize(
    ("suite", "place"),
    [
        ("9.4", "/var/lib/rpm"),
        ("10", "/usr/lib/sysimage/rpm"),
        ("10.1", "/usr/lib/sysimage/rpm"),
        ("x", "/var/lib/rpm"),
    ],
)
def test_the_database_has_the_path_of_the_release(tmp_path, suite, place):
    dnf = Dnf(tmp_path)
    rpm.install(tmp_path, replace(BASE, suite=suite), Tools(answer=dnf), DIGESTS, caches(tmp_path))
    assert dnf.macros == f"%_dbpath {place}\n"


def test_dnf_does_not_run_for_a_layer_without_packages(tmp_path):
    tools = Tools()
    rpm.install(tmp_path, replace(BASE, packages=()), tools, {}, caches(tmp_path))
    assert tools.ran == []


def test_metadata_that_changed_during_the_build_is_refused(tmp_path):
    assert refused(tmp_path, fetched=(LIST, b"other")) == Mentions(
        "base", "http://b/extra/repodata/repomd.xml", "changed", REPOMD
    )


@pytest.mark.parametrize(
    ("output", "message"),
    [
        (
            "Errors during downloading metadata for repository 'archive1':\n"
            "  - Curl error (6): Couldn't resolve host name for http://b [Could not resolve]\n"
            "Error: Failed to download metadata for repo 'archive1': Cannot download repomd.xml\n",
            "the archive http://b/extra cannot be read: Curl error (6): Couldn't resolve host name for http://b;",
        ),
        (
            "  - Status code: 404 for http://a/9/repodata/repomd.xml (IP: 10.0.0.1)\n",
            "the archive http://a/9, http://b/extra cannot be read: Status code: 404 for http://a/9/repodata/repomd.xml"
            " (IP: 10.0.0.1);",
        ),
        ("dnf: killed\n", "the archive http://a/9, http://b/extra cannot be read: dnf: killed;"),
    ],
)
def test_an_archive_that_cannot_be_read_is_named(tmp_path, output, message):
    assert refused(tmp_path, makecache=(1, output)) == Mentions("base", message)


@pytest.mark.parametrize(
    ("output", "message"),
    [
        (
            "No match for argument: bosh\nNo match for argument: zash\nError: Unable to find a match: bosh zash\n",
            "no archive has a package bosh, zash; correct the name, or add the archive that has it",
        ),
        (
            "Package hello-1-1.noarch.rpm is not signed\nError: GPG check FAILED\n",
            "hello-1-1.noarch.rpm is not signed by a key in the archive's keyring; give the archive's keyring",
        ),
        (
            "Public key for hello-1-1.noarch.rpm is not installed\n",
            "hello-1-1.noarch.rpm is not signed by a key in the archive's keyring; give the archive's keyring",
        ),
        ("Error: GPG check FAILED\n", "a package is not signed by a key in the archive's keyring; give the archive's"),
        (
            "The GPG keys listed for the repository are not correct for this package.\n",
            "a package is not signed by a key in the archive's keyring; give the archive's",
        ),
        (
            "[MIRROR] x.rpm: Status code: 404 for http://a/x.rpm (IP: 127.0.0.1)\n[FAILED] x.rpm: No more mirrors\n"
            "Error: Error downloading packages:\n  x: Cannot download, all mirrors were already tried\n",
            "a package cannot be downloaded: x.rpm: Status code: 404 for http://a/x.rpm (IP: 127.0.0.1); "
            "run again if the archive has just changed; otherwise use another url",
        ),
        ("x\nError: conflict\n", "dnf failed: Error: conflict; correct the packages or the archives"),
    ],
)
def test_packages_that_cannot_be_installed_are_refused(tmp_path, output, message):
    assert refused(tmp_path, install=(1, output)).startswith(f"layer base: {message}")


def test_packages_are_read_from_a_copy_of_the_database(tmp_path, database):
    (database / ".rpm.lock").touch()
    (database / "folder").mkdir()
    seen = {}

    def answer(argv):
        seen.update({path.name: path.read_text() for path in Path(argv[argv.index("--dbpath") + 1]).iterdir()})
        return "warning: old\nzlib\t1.2-3\tx86_64\ngpg-pubkey\t1-2\t(none)\nbash\t0:5.1-2\tx86_64\na\tb\tc\td\n"

    assert rpm.packages(tmp_path / "root", Tools(answer=answer)) == [
        {"name": "bash", "version": "0:5.1-2", "architecture": "x86_64"},
        {"name": "zlib", "version": "1.2-3", "architecture": "x86_64"},
    ]
    assert seen == {"rpmdb.sqlite": "the packages"}
    assert rpm.packages(tmp_path, Tools()) == []


def test_a_file_is_known_to_be_as_in_its_package(tmp_path, database):
    root = tmp_path / "root"
    for name in ("a.key", "b.key", "c.key"):
        (root / name).write_text("key")
    rows = f"/a.key\t{hashlib.sha256(b'key').hexdigest()}\n/b.key\t{'0' * 64}\n/usr\t\n"
    assert rpm.packaged_files(root, {"/a.key", "/b.key", "/c.key"}, Tools(answer=lambda argv: rows)) == {"/a.key"}
    assert rpm.packaged_files(root / "usr", set(), Tools()) == set()


def test_a_database_that_rpm_cannot_read_is_refused(tmp_path, database):
    with raises(ImageError, database, "error: cannot open"):
        rpm.packages(tmp_path / "root", Tools(answer=lambda argv: (1, "x\nerror: cannot open\n")))


@pytest.mark.skipif(os.geteuid() != 0, reason="a room (make image runs as root)")
def test_leftovers_of_dnf_and_rpm_are_removed_without_loss_of_data(tmp_path, database):
    (database / "rpmdb.sqlite").unlink()
    connection = sqlite3.connect(database / "rpmdb.sqlite")
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("CREATE TABLE packages (name)")
    connection.execute("INSERT INTO packages VALUES ('bash')")
    connection.commit()
    assert (database / "rpmdb.sqlite-wal").stat().st_size
    (database / ".rpm.lock").touch()
    root = tmp_path / "root"
    for path in ("var/cache/dnf/x", "var/lib/dnf/x", "etc/dnf/modules.d/x", "var/log/dnf.log", "var/log/other.log"):
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).touch()
    (root / "var/cache/yum").symlink_to("/etc")
    rpm.clean(root, RUN)
    assert sorted(path.name for path in database.iterdir()) == ["rpmdb.sqlite"]
    assert not (root / "var/cache/yum").is_symlink()
    with sqlite3.connect(f"file:{database}/rpmdb.sqlite?immutable=1", uri=True) as again:
        assert again.execute("SELECT name FROM packages").fetchall() == [("bash",)]
    left = [str(path.relative_to(root)) for path in root.rglob("*") if path.is_file()]
    assert sorted(left) == ["etc/dnf/modules.d/x", "usr/lib/sysimage/rpm/rpmdb.sqlite", "var/log/other.log"]
    (root / "etc/dnf/modules.d/x").unlink()
    rpm.clean(root, RUN)
    assert not (root / "etc/dnf").exists()
    connection.close()


def test_metadata_that_differs_from_the_pinned_digest_is_refused():
    with pytest.raises(
        ImageError, match=rf"^layer base: http://b/extra/repodata/repomd.xml has .*, but {REPOMD} is pinned"
    ):
        rpm.release_digests(replace(BASE, archives=(PINNED,)), lambda url: b"other")
    assert rpm.release_digests(replace(BASE, archives=(PINNED,)), lambda url: LIST) == {
        "http://b/extra/repodata/repomd.xml": REPOMD
    }


def test_the_date_of_the_image_is_that_of_the_newest_metadata():
    lists = {
        "http://a/9/repodata/repomd.xml": b"<timestamp>5</timestamp><timestamp> 9.75 </timestamp>",
        "http://b/extra/repodata/repomd.xml": b"<timestamp>7</timestamp>",
    }
    assert rpm.source_date_epoch(BASE, lists.__getitem__) == 9
    with raises(ImageError, "http://a/9/repodata/repomd.xml", "timestamp"):
        rpm.source_date_epoch(BASE, lambda url: b"")


def test_a_url_without_a_repository_is_refused():
    def fetch(url):
        raise FileNotFoundError(url)

    with raises(ImageError, "http://a/9", "repodata/repomd.xml"):
        rpm.release_digests(BASE, fetch)


def test_metadata_of_different_archives_are_cached_separately():
    first, second = (rpm.caches(BASE, {"http://a/9": digest}) for digest in ("0", "1"))
    assert first != second
    assert list(first) == ["var/cache/dnf"]
    assert first["var/cache/dnf"].startswith("dnf/rocky-")


def releases(keyring) -> dict[str, str]:
    layer = Layer("base", None, "rocky", "9", "x86_64", (Archive("http://a/9", keyring=str(keyring)),), ("bash",))
    return rpm.release_digests(layer, lambda url: LIST)


def test_the_release_digests_include_the_keyring(tmp_path):
    (tmp_path / "key").write_text("a key")
    assert releases(tmp_path / "key") == {
        "http://a/9/repodata/repomd.xml": hashlib.sha256(LIST).hexdigest(),
        "http://a/9 keyring": hashlib.sha256(b"a key").hexdigest(),
    }


def test_a_missing_keyring_is_refused(tmp_path):
    with raises(ImageError, "base", "http://a/9", "No such file"):
        releases(tmp_path / "key")
