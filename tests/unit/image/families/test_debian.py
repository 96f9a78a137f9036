# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Archives of Debian and Ubuntu, with simulated answers; nothing is installed."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path

import pytest
from messages import raises
from recorded_tools import Tools

from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.caches import Caches
from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.errors import ImageError
from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.model import Archive, Layer
from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.tools import ToolError
from ansible_collections.sailloft.fleet.plugins.module_utils.image.families import apt, debian
from ansible_collections.sailloft.fleet.plugins.module_utils.image.first_stage import userland

RELEASE = b"Origin: Debian\nSuite: oldstable\nCodename: bookworm\nDate: Sat, 11 Jul 2026 10:16:37 UTC\n"
OLDER = b"Origin: x\nDate: Fri, 10 Jul 2026 10:16:37 UTC\n"
PAGES = {
    "http://a/debian/dists/bookworm/InRelease": RELEASE,
    "http://b/flat/Release": OLDER,
}
MAIN = Archive("http://a/debian", ("bookworm",), ("main",), "/keys.gpg")
FLAT = Archive("http://b/flat", ("./",), release_sha256={"./": hashlib.sha256(OLDER).hexdigest()})
NO_ROOT = Path("/nonexistent")


def fetch(url: str) -> bytes:
    try:
        return PAGES[url]
    except KeyError:
        raise FileNotFoundError(url) from None


def layer(*archives: Archive, parent: str | None = None) -> Layer:
    return Layer("base", parent, "debian", "bookworm", "amd64", archives, ("bash",))


def test_releases_are_identified_by_their_digests():
    assert debian.release_digests(layer(MAIN, FLAT), fetch) == {
        "http://a/debian bookworm": hashlib.sha256(RELEASE).hexdigest(),
        "http://b/flat ./": hashlib.sha256(OLDER).hexdigest(),
    }


def test_a_release_that_differs_from_the_pinned_digest_is_refused():
    pinned = Archive("http://a/debian", ("bookworm",), ("main",), release_sha256={"bookworm": "0" * 64})
    with pytest.raises(ImageError, match=r"0{64} is pinned"):
        debian.release_digests(layer(pinned), fetch)


def test_a_suite_that_no_archive_of_the_lowest_layer_has_is_refused():
    """mmdebstrap would find no essential package, and apt would end with the status 100."""
    other = replace(layer(MAIN, FLAT), suite="stable")
    with raises(ImageError, "base", "stable", "oldstable", "bookworm"):
        debian.release_digests(other, fetch)
    assert debian.release_digests(replace(other, suite="oldstable"), fetch)
    assert debian.release_digests(replace(other, parent="below"), fetch)


@pytest.mark.parametrize(
    ("fields", "is_mixed"),
    [
        ("Origin: Debian\nSuite: stable\nCodename: trixie\n", True),
        ("Origin: Debian\nSuite: stable-security\nCodename: trixie-security\n", True),
        ("Origin: Debian Backports\nSuite: stable-backports\nCodename: trixie-backports\n", True),
        ("Origin: Ubuntu\nSuite: noble-updates\nCodename: noble\n", True),
        ("Origin: Debian\nSuite: oldstable-security\nCodename: bookworm-security\n", False),
        ("Origin: Debian\nSuite: oldstable\nCodename: bookworm/updates\r\n", False),
        ("Origin: Docker\nSuite: trixie\nCodename: trixie\n", False),
    ],
)
def test_another_release_of_the_distribution_is_refused_whatever_its_address(fields, is_mixed):
    other = Archive("https://snapshot.example/archive/debian/20261101T000000Z", ("any",), ("main",))
    lower = layer(MAIN, other, parent="below")

    def fetch_both(url):
        return fields.encode() if url.startswith(other.url) else fetch(url)

    if not is_mixed:
        assert len(debian.release_digests(lower, fetch_both)) == 2
        return
    with pytest.raises(ImageError) as refused:
        debian.release_digests(lower, fetch_both)
    assert refused.value.subject == f"archive {other.url} any"
    assert "bookworm" in refused.value.cause


def test_experimental_is_an_addition_to_unstable():
    pages = {"unstable": b"Origin: Debian\nSuite: unstable\nCodename: sid\n"}
    pages["experimental"] = b"Origin: Debian\nSuite: experimental\nCodename: rc-buggy\n"
    both = replace(layer(Archive("http://a/debian", tuple(pages), ("main",))), suite="unstable")
    assert len(debian.release_digests(both, lambda url: pages[url.split("/")[-2]])) == 2


def test_an_archive_without_release_is_refused_with_its_address():
    with raises(ImageError, "archive http://c/debian sid", "http://c/debian/dists/sid/InRelease"):
        debian.release_digests(layer(Archive("http://c/debian", ("sid",), ("main",))), fetch)


def test_the_date_of_the_image_is_that_of_the_newest_release():
    assert debian.source_date_epoch(layer(FLAT, MAIN), fetch) == 1_783_764_997
    assert debian.source_date_epoch(layer(FLAT), fetch) == 1_783_764_997 - 86400


@pytest.fixture
def root(tmp_path):
    """An image with the release of MAIN that apt has fetched, a host name, and a link as its resolv.conf."""
    folder = tmp_path / "root"
    for path in ("var/lib/apt/lists", "etc/apt/sources.list.d"):
        (folder / path).mkdir(parents=True)
    (folder / "var/lib/apt/lists/a_debian_InRelease").write_bytes(RELEASE)
    (folder / "etc/hostname").write_text("build01")
    (folder / "etc/resolv.conf").symlink_to("/run/resolv.conf")
    return folder


DIGESTS = {"http://a/debian bookworm": hashlib.sha256(RELEASE).hexdigest()}
SOURCE = "deb [signed-by=/keys.gpg] http://a/debian bookworm main"


@pytest.fixture
def caches(root):
    """The builder's download directories; nothing is mounted here."""
    folder = root.parent / "cache"
    folder.mkdir()
    return Caches({apt.LISTS: folder / "lists", apt.ARCHIVES: folder / "archives"}, folder)


def without_mounts(tools: Tools) -> list[list[str]]:
    return [command for command in tools.commands if command[0] not in ("mount", "umount")]


INSTALL = ["apt-get", "-q", "install", "-y", "--allow-change-held-packages", "--", "bash"]
DOWNLOAD = [*INSTALL[:5], "--download-only", "--"]
UPDATE = ["apt-get", "-q", "update"]


def test_the_lowest_layer_has_the_essential_packages_by_mmdebstrap_and_the_others_by_apt(root, caches):
    tools = Tools()
    debian.install(root, layer(MAIN), tools, DIGESTS, caches)
    update, essential, bootstrap, download, install = without_mounts(tools)
    assert update == UPDATE
    assert essential[:-1] == DOWNLOAD
    assert "?codename(^bookworm$)" in essential[-1]
    assert "?essential" in essential[-1]
    assert (download, install) == ([*DOWNLOAD, "bash"], INSTALL)
    words = {"mmdebstrap", "--variant=essential", "--architectures=amd64", "bookworm", str(root), SOURCE}
    assert words <= set(bootstrap)
    assert (root / "var/lib/apt/lists/whole").exists()
    # An image's own link is kept.
    assert (root / "etc/resolv.conf").is_symlink()


def test_only_downloads_have_the_network_and_then_the_tree_has_no_say(root, caches):
    tools = Tools()
    debian.install(root, layer(MAIN, parent="below"), tools, DIGESTS, caches)
    rooms = [argv for argv in tools.ran if "bwrap" in " ".join(argv)]
    assert ["--unshare-net" not in argv for argv in rooms] == [True, True, False]
    fetching = (root.parent / "apt-root/fetch.conf").read_text()
    assert {'Dir::Etc::Parts "/dev/null";', 'Dir::Etc::Main "/dev/null";'} <= set(fetching.splitlines())
    assert "Chroot-Directory" not in fetching
    with_network = Tools()
    debian.install(root, replace(layer(MAIN, parent="below"), network=True), with_network, DIGESTS, caches)
    assert not [argv for argv in with_network.ran if "--unshare-net" in argv]


def test_downloads_are_lent_to_an_installation_by_an_overlay(root, caches):
    tools = Tools()
    debian.install(root, layer(MAIN, parent="below"), tools, DIGESTS, caches)
    mounts = [command for command in map(list, tools.ran) if command[0] in ("mount", "umount")]
    kinds = [command[1] if command[0] == "mount" else "umount" for command in mounts]
    assert kinds == ["--bind"] * 2 + ["umount"] * 2 + ["-t"] * 2 + ["umount"] * 2
    assert f"lowerdir={caches.folders[apt.ARCHIVES]}," in mounts[4][4]


def test_the_directory_of_lists_may_be_a_link(root, caches):
    (root / "var/lib/apt/lists").rename(root / "lists")
    (root / "var/lib/apt/lists").symlink_to("/lists")
    debian.install(root, layer(MAIN), Tools(), DIGESTS, caches)
    assert (root / "lists/whole").exists()


def test_a_higher_layer_uses_apt_with_its_additional_archives(root, caches):
    (root / "etc/apt/sources.list").write_text(f"{SOURCE}\n")
    extra = Archive("http://b/flat", ("./",), release_sha256={"./": hashlib.sha256(OLDER).hexdigest()})
    digests = {**DIGESTS, "http://b/flat ./": hashlib.sha256(OLDER).hexdigest()}
    (root / "var/lib/apt/lists/b_flat_Release").write_bytes(OLDER)
    tools = Tools()
    debian.install(root, layer(MAIN, extra, parent="below"), tools, digests, caches)
    assert without_mounts(tools) == [UPDATE, [*DOWNLOAD, "bash"], INSTALL]
    flat = "deb [check-valid-until=no trusted=yes] http://b/flat ./\n"
    added = (root / "etc/apt/sources.list.d/base.list").read_text()
    assert added == flat
    folder = root.parent / "apt-root"
    assert (folder / "sources.list").read_text() == f"{SOURCE}\n{flat}"
    configuration = (folder / "install.conf").read_text().splitlines()
    assert {f'Dir "{root}/";', 'APT::Architecture "amd64";', 'APT::Install-Recommends "false";'} <= set(configuration)
    assert f'DPkg::Chroot-Directory "{root}";' in configuration
    # The lists exist now: nothing is fetched or written again.
    (root / "etc/apt/sources.list.d/base.list").write_text(added + "# kept\n")
    tools = Tools()
    debian.install(root, layer(MAIN, extra, parent="below"), tools, digests, caches)
    assert without_mounts(tools) == [[*DOWNLOAD, "bash"], INSTALL]
    assert (root / "etc/apt/sources.list.d/base.list").read_text() == added + "# kept\n"


def test_a_higher_layer_without_packages_gets_only_its_archives(root, caches):
    tools = Tools()
    debian.install(root, replace(layer(MAIN, parent="below"), packages=()), tools, DIGESTS, caches)
    assert tools.ran == []
    assert (root / "etc/apt/sources.list.d/base.list").read_text() == f"{SOURCE}\n"


@pytest.mark.parametrize("parent", [None, "below"])
def test_an_archive_that_changed_during_the_build_is_refused(root, caches, parent):
    (root / "var/lib/apt/lists/a_debian_InRelease").write_bytes(OLDER)
    with raises(ImageError, "http://a/debian", "bookworm", "base", "changed"):
        debian.install(root, layer(MAIN, parent=parent), Tools(), DIGESTS, caches)
    assert not (root / "var/lib/apt/lists/whole").exists()


@pytest.mark.parametrize("parent", [None, "below"])
def test_a_package_that_no_archive_has_is_refused(root, caches, parent):
    tools = Tools(answer=lambda argv: (100, "E: Unable to locate package bash\n") if "--download-only" in argv else "")
    with raises(ImageError, "base", "package bash"):
        debian.install(root, layer(MAIN, parent=parent), tools, DIGESTS, caches)


def test_installed_packages_are_listed_by_name_and_architecture(root):
    output = (
        "installed zlib1g 1.2 amd64\nconfig-files old 1 amd64\ninstalled libc6 2.36 i386\ninstalled libc6 2.36 amd64\n"
    )
    tools = Tools(answer=lambda argv: output)
    assert debian.packages(root, tools) == [
        {"name": "libc6", "version": "2.36", "architecture": "amd64"},
        {"name": "libc6", "version": "2.36", "architecture": "i386"},
        {"name": "zlib1g", "version": "1.2", "architecture": "amd64"},
    ]
    assert tools.commands[0][:3] == ["dpkg-query", f"--admindir={root}/var/lib/dpkg", "--show"]


def test_a_file_is_known_to_be_as_in_its_package(root):
    contents = {
        "/usr/share/a/test.key": "a",
        "/etc/a.key": "c",
        "/usr/lib/b.key": "b",
        "/etc/ours.key": "o",
        "/etc/d.key": "d",
    }
    digests = {name: hashlib.md5(text.encode()).hexdigest() for name, text in contents.items()}
    for name, text in contents.items():
        (root / name[1:]).parent.mkdir(parents=True, exist_ok=True)
        (root / name[1:]).write_text(text)
    info = root / "var/lib/dpkg/info"
    info.mkdir(parents=True)
    (info / "a.md5sums").write_text(
        f"{digests['/usr/share/a/test.key']}  usr/share/a/test.key\n{'0' * 32}  etc/d.key\n"
    )
    # A package of Debian 12 from before the merge of /usr.
    (info / "b:amd64.md5sums").write_text(f"{digests['/usr/lib/b.key']}  lib/b.key\n")
    (root / "var/lib/dpkg/status").write_text(
        f"Package: a\nConffiles:\n /etc/a.key {digests['/etc/a.key']}\nVersion: 1\n"
    )
    known = debian.packaged_files(root, set(contents), Tools())
    assert known == {"/usr/share/a/test.key", "/etc/a.key", "/usr/lib/b.key"}
    assert debian.packaged_files(root / "etc", {"/a.key"}, Tools()) == set()


def test_leftovers_of_apt_are_removed(root):
    for path in ("var/lib/dpkg/status", "var/lib/dpkg/status-old", "etc/apt/apt.conf.d/99mmdebstrap"):
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).touch()
    debian.clean(root, Tools())
    assert (root / "var/lib/dpkg/status").exists()
    assert not (root / "var/lib/dpkg/status-old").exists()
    assert not (root / "etc/apt/apt.conf.d/99mmdebstrap").exists()


def test_packages_of_the_first_stage_are_unpacked_with_separate_lists(root, caches):
    tools = Tools()
    assert debian.first_stage_tree(root, layer(MAIN), DIGESTS, tools, caches) == root
    update, download, command = without_mounts(tools)
    assert (update, download) == (UPDATE, [*DOWNLOAD, *userland.PACKAGES])
    assert {"mmdebstrap", "--variant=extract", "--architectures=amd64", "bookworm", str(root), SOURCE} <= set(command)
    assert f"--include={','.join(userland.PACKAGES)}" in command
    assert debian.first_stage_digest() == ""
    own, first = debian.caches(layer(MAIN), DIGESTS), debian.first_stage_caches(layer(MAIN), DIGESTS)
    assert first == {name: f"{folder}-first-stage" for name, folder in own.items()}
    tools = Tools(answer=lambda argv: (25, "E: Unable to locate package minisign\n") if "mmdebstrap" in argv else "")
    with raises(ImageError, "package minisign", "first stage"):
        debian.first_stage_tree(root, layer(MAIN), DIGESTS, tools, caches)


def test_a_release_without_date_is_refused():
    with raises(ImageError, "http://a/debian", "bookworm", "InRelease", "date"):
        debian.source_date_epoch(layer(MAIN), lambda url: b"Origin: x\n")


def test_lists_of_different_releases_are_cached_separately():
    one = layer(MAIN)
    first, second = (debian.caches(one, {"http://a/debian bookworm": digest}) for digest in ("0" * 64, "1" * 64))
    assert first["var/cache/apt/archives"] == second["var/cache/apt/archives"]
    assert first["var/lib/apt/lists"] != second["var/lib/apt/lists"]
    # apt takes a package that is there by its name and size.
    other = debian.caches(layer(MAIN, FLAT), {"http://a/debian bookworm": "0" * 64})
    assert other["var/cache/apt/archives"] != first["var/cache/apt/archives"]


# Recorded from dpkg 1.21 with a package below the one that was asked for, and with many packages in one step.
CONFIGURED = """Setting up below (1.0) ...
all is well
Setting up failing (1.0) ...
begun

cannot find /etc/nonesuch
dpkg: error processing package failing (--configure):
 installed failing package post-installation script subprocess returned error exit status 3
dpkg: dependency problems prevent configuration of above:
 above depends on failing; however:
  Package failing is not configured yet.

dpkg: error processing package above (--configure):
 dependency problems - leaving unconfigured
Errors were encountered while processing:
 failing
 above
E: Sub-process /usr/bin/dpkg returned an error code (1)
"""
UNPACKED = """Preparing to unpack .../07-two_1.0_all.deb ...
Unpacking two (1.0) ...
dpkg: error processing archive /tmp/apt-dpkg-install-xZ1/07-two_1.0_all.deb (--unpack):
 trying to overwrite '/usr/share/x', which is also in package one 1.0
E: Sub-process /usr/bin/dpkg returned an error code (1)
"""


@pytest.mark.parametrize(
    ("output", "cause"),
    [
        (
            CONFIGURED,
            "package failing: installed failing package post-installation script subprocess returned error exit "
            "status 3: begun / cannot find /etc/nonesuch; ",
        ),
        (UNPACKED, "package two: trying to overwrite '/usr/share/x', which is also in package one 1.0; "),
    ],
)
def test_the_first_package_that_dpkg_could_not_handle_is_named_with_its_scripts_lines(output, cause):
    error = debian.apt_error(NO_ROOT, layer(MAIN), ToolError(["apt-get"], output, subject="layer base"))
    assert str(error).startswith(f"layer base: {cause}")
    assert debian.script_failure(NO_ROOT, "Setting up below (1.0) ...\n") == ""


@pytest.mark.parametrize("damage", ["", "make: *** [Makefile:2: x.ko] Error 1\nno more\n"])
def test_the_log_that_a_script_names_has_the_compilers_error(tmp_path, damage):
    log = tmp_path / "var/lib/dkms/x/1.0/build/make.log"
    log.parent.mkdir(parents=True)
    told = "x.c:3: error: 'y' undeclared"
    log.write_text(damage or f"CC x.o\n{told}\nmake: *** [Makefile:2: x.ko] Error 1\n")
    named = "Error! Bad return status\nConsult /var/lib/dkms/x/1.0/build/make.log for more information.\n"
    message = debian.script_failure(tmp_path, CONFIGURED.replace("begun\n", named))
    assert message.endswith(
        "make.log: " + ("make: *** [Makefile:2: x.ko] Error 1 / no more" if damage else "x.c:3: error: 'y' undeclared")
    )


@pytest.mark.parametrize(
    ("output", "message"),
    [
        (
            "I: x\nE: Unable to locate package hallo\nE: apt-get --yes failed\n",
            "layer base: Unable to locate package hallo; correct the name",
        ),
        (
            "E: Unable to locate package minisign\n",
            "layer base: Unable to locate package minisign; the first stage needs it: ",
        ),
        (
            "E: Failed to fetch http://a/x.deb  404\nE: mmdebstrap failed to run\n",
            "layer base: Failed to fetch http://a/x.deb  404; ",
        ),
        ("dpkg: error: No space left on device\nE: Sub-process returned\n", "layer base: no space is left"),
    ],
)
def test_errors_contain_the_message_of_apt_and_not_of_mmdebstrap(output, message):
    error = debian.apt_error(NO_ROOT, layer(MAIN), ToolError(["mmdebstrap"], output, subject="layer base"))
    assert str(error).startswith(message)
    assert "mmdebstrap failed" not in str(error)
