# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Archives of Debian: requests, pins, flat archives, and messages of apt."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

import pytest
from image_samples import refusal, refused
from messages import Mentions, raises
from recorded_tools import Tools

from ansible_collections.sailloft.fleet.plugins.module_utils.common.settings import Settings
from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.caches import Caches
from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.errors import ImageError
from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.model import Archive, Layer
from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.tools import ToolError
from ansible_collections.sailloft.fleet.plugins.module_utils.image.families import apt, debian

DATED = b"Codename: bookworm\nDate: Sat, 11 Jul 2026 10:16:37 UTC\n"
PIN = "a" * 64
NO_ROOT = Path("/nonexistent")


def archive(**data):
    return Settings(ImageError, "archives[0]", {"url": "http://a/debian/", **data})


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (
            {"suites": ["bookworm"], "components": ["main", "contrib"], "keyring": "/k"},
            Archive("http://a/debian", ("bookworm",), ("main", "contrib"), "/k"),
        ),
        (
            {"suites": ["./", "/"], "release_sha256": {"./": PIN}},
            Archive("http://a/debian", ("./", "/"), release_sha256={"./": PIN}),
        ),
    ],
)
def test_an_archive_of_debian_is_read(data, expected):
    assert debian.read_archive(archive(**data)) == expected


@pytest.mark.parametrize(
    ("data", "fact"),
    [
        ({}, "suites"),
        ({"suites": ["bookworm"]}, "components"),
        ({"suites": ["./", "bookworm"]}, "components"),
        ({"suites": ["bookworm", "x/"], "components": ["main"]}, "'x/'"),
    ],
)
def test_an_invalid_archive_of_debian_is_refused(data, fact):
    error = refusal(debian.read_archive, archive(**data))
    assert error.subject == "archives[0]"
    assert fact in error.cause


@pytest.mark.parametrize(
    ("suite", "folder"),
    [
        ("bookworm", "http://a/dists/bookworm"),
        ("updates/main", "http://a/dists/updates/main"),
        ("./", "http://a"),
        ("/", "http://a"),
        ("x/y/", "http://a/x/y"),
    ],
)
@pytest.mark.parametrize("name", ["InRelease", "Release"])
def test_the_release_of_a_suite_is_fetched_from_its_directory(suite, folder, name):
    asked = []

    def fetch(url):
        asked.append(url)
        if url.endswith(f"/{name}"):
            return DATED
        raise FileNotFoundError(url)

    layer = Layer("base", None, "debian", "bookworm", "amd64", (Archive("http://a", (suite,)),))
    assert debian.release_digests(layer, fetch) == {f"http://a {suite}": hashlib.sha256(DATED).hexdigest()}
    assert asked == [f"{folder}/InRelease", f"{folder}/Release"][: 1 if name == "InRelease" else 2]


def layer_of(*archives):
    return Layer("base", None, "debian", "bookworm", "amd64", archives, ("bash",))


def test_a_layer_on_a_container_image_needs_archives_for_the_first_stage():
    with raises(ImageError, "base", "archives"):
        debian.release_digests(layer_of(), lambda url: b"")


def test_refusals_of_releases_have_a_remedy():
    pinned = Archive("http://a", ("sid",), ("main",), None, {"sid": PIN})
    found = hashlib.sha256(DATED).hexdigest()
    assert refused(debian.release_digests, layer_of(pinned), lambda url: DATED) == Mentions("http://a sid", found, PIN)
    assert refused(debian.release_digests, layer_of(pinned), open) == Mentions("http://a/dists/sid/InRelease")
    assert refused(
        debian.source_date_epoch, layer_of(pinned), lambda url: DATED.replace(b"Date", b"xDate")
    ) == Mentions("http://a sid", "InRelease", "date")


def test_sources_trust_only_a_keyring_or_a_pinned_digest():
    main = Archive("http://a/debian", ("bookworm",), ("main",), "/keys.gpg")
    flat = Archive("http://b/flat", ("./",), release_sha256={"./": PIN})
    unproven = Archive("http://c/debian", ("sid",), ("main", "contrib"))
    lines = apt.sources((main, flat, unproven))
    assert lines == [
        "deb [signed-by=/keys.gpg] http://a/debian bookworm main",
        "deb [check-valid-until=no trusted=yes] http://b/flat ./",
        "deb http://c/debian sid main contrib",
    ]


def test_the_packages_of_a_directory_of_the_build_host_are_copied_into_the_image():
    local = Archive("file:///srv/debian", ("./",), keyring="/k")
    assert apt.sources((local,)) == ["deb [signed-by=/k] copy:///srv/debian ./"]


def test_pinned_archives_do_not_expire_and_keep_their_keyring():
    both = Archive("http://a", ("one", "two"), ("main",), "/k", {"two": PIN})
    assert apt.sources((both,)) == [
        "deb [signed-by=/k] http://a one main",
        "deb [signed-by=/k check-valid-until=no] http://a two main",
    ]


@pytest.mark.parametrize(
    ("output", "told"),
    [
        *(
            (f"E: {line}\n", f"layer base: {line}; correct the name, or add the archive that has it to archives")
            for line in (
                "Unable to locate package bosh",
                "Package 'bosh' has no installation candidate",
                "Version '1' for 'bash' was not found",
            )
        ),
        *(
            (
                f"E: Unable to locate package {name}\n",
                f"layer base: Unable to locate package {name}; "
                "the first stage needs it: add the archive or component that has it (Ubuntu: universe)",
            )
            for name in ("busybox-static", "minisign", "dmsetup")
        ),
        (
            "E: one\nW: two\nE: three\nE: apt-get failed\nE: run_setup\n"
            "E: received eof\nE: setup failed: x\nE: env x\n",
            "layer base: one / three; fix the problem that apt reports, and run again",
        ),
        (
            "E: mmdebstrap failed\n",
            "layer base: mmdebstrap failed: E: mmdebstrap failed; "
            "fix the reported problem, and run again: complete layers are kept",
        ),
        (
            "E: x\nNo space left on device\n",
            "layer base: no space is left on the device (mmdebstrap); free some space where node_image_cache_dir is",
        ),
    ],
)
def test_the_message_of_apt_has_a_remedy(output, told):
    error = ToolError(["mmdebstrap"], output, subject="layer base")
    assert str(debian.apt_error(NO_ROOT, layer_of(), error)) == told


@pytest.mark.parametrize("name", ["bash", "g++", "libc6:i386", "bash=5.2-1", "bash/stable", "a0:any=1:2~b+c"])
def test_a_valid_package_of_debian_is_accepted(name):
    assert debian.PACKAGE.fullmatch(name)


@pytest.mark.parametrize("name", ["a", "-bash", "bash-", "Bash", "bash=", "bash,zsh", "bash:", "bash=1-"])
def test_an_invalid_package_of_debian_is_refused(name):
    assert not debian.PACKAGE.fullmatch(name)


def test_progress_is_taken_from_the_lines_of_the_tools(tmp_path):
    shown = []

    class Shown(Tools):
        def process(self, argv, env=None, show=None, fault=None):
            if "mmdebstrap" in argv:
                shown.append(show)
            # Only downloads can be too slow.
            assert callable(fault) == ("--download-only" in argv or "update" in argv)
            return super().process(argv, env, show, fault)

    (tmp_path / "root").mkdir()
    caches = Caches({apt.LISTS: tmp_path / "lists"}, tmp_path)
    debian.install(tmp_path / "root", layer_of(), Shown(), {}, caches)
    line = re.match(shown[0], "I: extracting archives...")
    assert line.group(1) == "extracting archives"
    assert not re.match(shown[0], "I: automatically chosen mode: root")
