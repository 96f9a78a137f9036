# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Layers of RPM packages, with real rpmbuild, createrepo_c and dnf, from a repository that is built here."""

from __future__ import annotations

import hashlib
import os
import shutil
import stat
from types import SimpleNamespace

import pytest
from messages import raises
from rpm_packages import KERNEL, RUN, SPECS, TIME, archive, built, caches, command, fetch, index, package

from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.errors import ImageError
from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.tools import Run
from ansible_collections.sailloft.fleet.plugins.module_utils.image.families import rpm
from ansible_collections.sailloft.fleet.plugins.module_utils.image.request.spec import read_images

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="images are built by root"),
    pytest.mark.skipif(
        not all(shutil.which(tool) for tool in ("dnf", "rpmbuild", "createrepo_c", "unshare")),
        reason="needs dnf, rpm and createrepo-c (bindep.txt)",
    ),
]


@pytest.fixture(scope="module")
def repository(tmp_path_factory):
    """A repository with all packages, with the first release of hello."""
    folder = tmp_path_factory.mktemp("repository")
    for name, text in SPECS.items():
        package(folder, name, text.format(release=1) if name == "hello" else text)
    index(folder)
    return folder


@pytest.fixture(scope="module")
def update(tmp_path_factory):
    """A repository with only the second release of hello."""
    folder = tmp_path_factory.mktemp("update")
    package(folder, "hello", SPECS["hello"].format(release=2))
    index(folder)
    return folder


@pytest.fixture(scope="module")
def key(tmp_path_factory):
    """A GnuPG key that signs packages."""
    home = tmp_path_factory.mktemp("gnupg")
    home.chmod(0o700)
    environment = {**os.environ, "GNUPGHOME": str(home)}
    command(
        ["gpg", "--batch", "--passphrase", "", "--quick-gen-key", "Packages <p@example.org>", "rsa2048"], environment
    )
    public = home / "public.asc"
    command(["gpg", "--batch", "--armor", "--output", str(public), "--export", "Packages"], environment)
    yield SimpleNamespace(name="Packages", home=home, public=str(public))
    command(["gpgconf", "--kill", "gpg-agent"], environment)


def layers(packages, archives, above=None, suite="9"):
    """Return the layer ``base``, followed by the layer ``top`` on it if ``above`` is set."""
    base = {
        "distribution": "rocky",
        "suite": suite,
        "architecture": "x86_64",
        "archives": archives,
        "packages": packages,
    }
    given = {"base": base, **({"top": {"parent": "base", **above}} if above else {})}
    return read_images({"node": {"layer": "top" if above else "base"}}, given)["node"].layers


def tree(root):
    """Return everything below ``root`` except times, by path."""
    found = {}
    for path in sorted(root.rglob("*")):
        facts = path.lstat()
        content = os.readlink(path) if path.is_symlink() else ""
        if path.is_file() and not path.is_symlink():
            content = hashlib.sha256(path.read_bytes()).hexdigest()
        found[str(path.relative_to(root))] = (stat.filemode(facts.st_mode), facts.st_uid, facts.st_gid, content)
    return found


@pytest.fixture(scope="module", autouse=True)
def epoch():
    """Set the environment of one build as the builder does."""
    os.environ["SOURCE_DATE_EPOCH"] = str(TIME)
    yield
    del os.environ["SOURCE_DATE_EPOCH"]


def test_a_layer_without_parent_is_built_without_leftovers(tmp_path, repository):
    (layer,) = layers(["hello", "kernel-core"], [archive(repository)])
    packages = built(tmp_path / "root", layer)
    assert packages == [
        {"name": "filesystem", "version": "3.16-2.el9", "architecture": "noarch"},
        {"name": "hello", "version": "1:2.10-1.el9", "architecture": "noarch"},
        {"name": "kernel-core", "version": "5.14.0-503.el9", "architecture": "x86_64"},
    ]
    assert rpm.packaged_files(tmp_path / "root", {"/usr/bin/hello", "/etc/hello.installed"}, RUN) == {"/usr/bin/hello"}
    found = tree(tmp_path / "root")
    assert (tmp_path / "root/usr/bin/hello").read_text() == "hello 1\n"
    assert (tmp_path / "root/etc/hello.installed").read_text() == "by a scriptlet\n"
    assert (tmp_path / f"root/lib/modules/{KERNEL}/vmlinuz").is_file()
    assert "var/lib/rpm/rpmdb.sqlite" in found
    assert found["tmp"][0] == "drwxrwxrwt"
    left = [path for path in found if "dnf" in path or path.startswith(("root/", "dev/", "run/", "tmp/", "var/log/"))]
    assert left == []
    assert not [path for path in found if path.endswith(("-shm", "-wal", ".lock"))]


@pytest.mark.long
def test_two_builds_of_a_layer_are_identical(tmp_path, repository):
    (layer,) = layers(["hello", "kernel-core"], [archive(repository)])
    for name in ("one", "another"):
        built(tmp_path / name, layer)
    assert tree(tmp_path / "one") == tree(tmp_path / "another")


@pytest.mark.long
def test_release_10_has_its_rpm_database_in_usr_lib_sysimage(tmp_path, repository):
    (layer,) = layers(["hello"], [archive(repository)], suite="10.1")
    assert built(tmp_path / "root", layer)[1]["name"] == "hello"
    assert (tmp_path / "root/usr/lib/sysimage/rpm/rpmdb.sqlite").is_file()
    assert not (tmp_path / "root/var/lib/rpm").exists()


def test_an_upper_layer_contains_only_changed_files(tmp_path, repository, update):
    base, top = layers(["hello"], [archive(repository)], {"archives": [archive(update)], "packages": ["hello"]})
    built(tmp_path / "base", base)
    before = tree(tmp_path / "base")
    uppers = []
    for name in ("one", "another"):
        place, upper, work = tmp_path / name, tmp_path / f"{name}.upper", tmp_path / f"{name}.work"
        for folder in (place, upper, work):
            folder.mkdir()
        # An overlay cannot be on another overlay, which /tmp may be.
        options = f"lowerdir={tmp_path / 'base'},upperdir={upper},workdir={work}"
        command(["mount", "-t", "overlay", "overlay", "-o", options, str(place)])
        try:
            packages = built(place, top)
        finally:
            command(["umount", str(place)])
        assert {"name": "hello", "version": "1:2.10-2.el9", "architecture": "noarch"} in packages
        assert len(packages) == 2
        uppers.append(tree(upper))
    assert uppers[0] == uppers[1]
    files = [path for path, facts in uppers[0].items() if not facts[0].startswith("d")]
    # rpm decides which of the unchanged files it writes again.
    assert set(files) - {"etc/hello.conf", "etc/hello.installed"} == {"usr/bin/hello", "var/lib/rpm/rpmdb.sqlite"}
    assert tree(tmp_path / "base") == before


def test_a_package_that_no_archive_has_is_refused(tmp_path, repository):
    (layer,) = layers(["hello", "helo"], [archive(repository)])
    with raises(ImageError, "base", "package helo"):
        built(tmp_path / "root", layer)


def test_a_script_that_fails_is_named_with_its_last_lines(tmp_path, repository):
    (layer,) = layers(["fails-before"], [archive(repository)])
    with pytest.raises(ImageError, match=r"^layer base: package fails-before: .*no good.*cannot find /etc/nonesuch;"):
        built(tmp_path / "root", layer)


def test_a_script_whose_failure_rpm_ignores_is_a_warning(tmp_path, repository):
    told = []
    (layer,) = layers(["fails-after"], [archive(repository)])
    (tmp_path / "root").mkdir()
    root, digests = tmp_path / "root", rpm.release_digests(layer, fetch)
    rpm.install(root, layer, Run("layer base", told.append), digests, caches(root))
    assert [line for line in told if "warning: package fails-after: " in line and "cannot find /etc/nonesuch" in line]


def test_an_unreachable_archive_is_refused(tmp_path, repository):
    given = {**archive(repository), "url": "http://127.0.0.1:9/el9"}
    (layer,) = layers(["hello"], [archive(repository), given])
    (tmp_path / "root").mkdir()
    with raises(ImageError, "base", "http://127.0.0.1:9/el9", "read"):
        rpm.install(tmp_path / "root", layer, RUN, {}, caches(tmp_path / "root"))


def test_an_archive_without_repodata_is_refused(tmp_path):
    (layer,) = layers(["hello"], [{"url": f"file://{tmp_path}", "release_sha256": {"repomd": "0" * 64}}])

    def missing(url):
        raise FileNotFoundError(url)

    with raises(ImageError, "no repodata/repomd.xml", "url"):
        rpm.release_digests(layer, missing)


def test_an_archive_that_differs_from_its_pin_is_refused(repository):
    (layer,) = layers(["hello"], [{**archive(repository), "release_sha256": {"repomd": "0" * 64}}])
    with raises(ImageError, "repomd.xml", "0" * 64):
        rpm.release_digests(layer, fetch)


def test_an_archive_that_changes_during_the_build_is_refused(tmp_path, repository):
    (layer,) = layers(["hello"], [archive(repository)])
    (tmp_path / "root").mkdir()
    digests = dict.fromkeys(rpm.release_digests(layer, fetch), "0" * 64)
    with raises(ImageError, "repomd.xml", "changed"):
        rpm.install(tmp_path / "root", layer, RUN, digests, caches(tmp_path / "root"))
    assert not (tmp_path / "root/usr").exists()


def test_the_source_date_epoch_is_that_of_the_newest_metadata(repository):
    (layer,) = layers(["hello"], [archive(repository)])
    assert rpm.source_date_epoch(layer, fetch) == TIME


@pytest.mark.long
def test_two_builds_of_signed_packages_are_identical(tmp_path, key):
    folder = tmp_path / "signed"
    for name in ("filesystem", "hello"):
        package(folder, name, SPECS[name].format(release=1) if name == "hello" else SPECS[name], key)
    index(folder)
    (layer,) = layers(["hello"], [archive(folder, key.public)])
    for name in ("one", "another"):
        assert [one["name"] for one in built(tmp_path / name, layer)] == ["filesystem", "hello"]
    assert tree(tmp_path / "one") == tree(tmp_path / "another")


def test_an_unsigned_package_is_refused(tmp_path, repository, key):
    (layer,) = layers(["hello"], [archive(repository, key.public)])
    with raises(ImageError, "base", "keyring", "signed"):
        built(tmp_path / "root", layer)


def test_a_missing_keyring_is_refused(tmp_path, repository):
    (layer,) = layers(["hello"], [archive(repository, "/nowhere/key.asc")])
    with raises(ImageError, "keyring /nowhere/key.asc"):
        built(tmp_path / "root", layer)
