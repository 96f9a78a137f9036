# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Errors of failed builds have their cause: with real apt, dpkg and DKMS, and packages that are made here."""

from __future__ import annotations

import functools
import os
import re
import threading
from collections.abc import Callable
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from messages import raises
from placeholder_archive import Archive

from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.caches import Caches
from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.errors import ImageError
from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.model import Layer
from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.tools import Run
from ansible_collections.sailloft.fleet.plugins.module_utils.image.families import apt, debian
from ansible_collections.sailloft.fleet.plugins.module_utils.image.request.spec import read_images

FAILING = """#!/bin/sh
echo begun: $1
echo using http://ops:s3cret-word@proxy.example:3128/ >&2
for number in 1 2 3 4 5 6 7 8; do echo "step $number"; done
echo cannot find /etc/nonesuch.conf >&2
exit 3
"""


class Quiet(SimpleHTTPRequestHandler):
    """Serve files without a line for each request."""

    def log_message(self, *_arguments: object) -> None:
        pass


@pytest.fixture
def archive(tmp_path):
    made = Archive(tmp_path / "archive", tmp_path)
    made.keyring = tmp_path / "key.asc"
    made.keyring.write_text(made.key)
    server = ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(made.folder)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    made.url = f"http://127.0.0.1:{server.server_port}"
    yield made
    server.shutdown()
    made.close()


def published(archive: Archive, fields: str = "") -> dict:
    """Write the archive's lists; return it as a layer names it."""
    archive.publish(fields)
    return {"url": archive.url, "suites": ["./"], "keyring": os.fspath(archive.keyring)}


def on_base(requested: dict, *packages: str, **archive: object) -> dict:
    """Return the layer base of the site and the layer site on it, with these packages of the archive."""
    return {"base": requested["base"], "site": {"parent": "base", "packages": list(packages), "archives": [archive]}}


def error_of(site, layers: dict) -> str:
    with pytest.raises(ImageError) as caught:
        site.build(layers)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_a_failed_script_is_named_and_its_log_is_kept_until_the_next_build(site, requested, archive):
    archive.add("failing", "1.0", {"DEBIAN/postinst": FAILING})
    archive.add("above", "1.0", {}, "Depends: failing\n")
    archive.add("fine", "1.0", {"usr/share/fine": "x\n"})
    given = published(archive)
    message = error_of(site, on_base(requested, "above", **given))
    assert message.startswith("layer site: package failing: ")
    assert "exit status 3" in message
    assert "step 8 / cannot find /etc/nonesuch.conf" in message
    assert "step 1 " not in message
    log = site.cache / "logs" / "site.log"
    assert os.fspath(log) in message
    assert log.stat().st_mode & 0o777 == 0o600
    assert {"begun: configure", "step 1", "cannot find /etc/nonesuch.conf"} <= set(log.read_text().splitlines())
    assert "proxy.example:3128" in log.read_text()
    assert "s3cret-word" not in log.read_text() + message
    assert not (site.cache / "work").exists()
    (outcome,), _lines, _seconds = site.checking().build(on_base(requested, "fine", **given))
    assert outcome.built == ("site",)
    assert not log.exists()


MODULE = {
    "usr/src/broken-1.0/dkms.conf": "PACKAGE_NAME=broken\nPACKAGE_VERSION=1.0\nBUILT_MODULE_NAME[0]=broken\n"
    'DEST_MODULE_LOCATION[0]=/updates\nMAKE[0]="make"\nAUTOINSTALL=yes\n',
    "usr/src/broken-1.0/Makefile": "broken.ko: broken.c\n\ttcc -c -o $@ $<\n",
    "usr/src/broken-1.0/broken.c": "int broken(void)\n{\n  return of_another_kernel;\n}\n",
    "usr/src/headers/include/linux/version.h": "",
    "DEBIAN/postinst": "#!/bin/sh -e\ndkms add broken/1.0\n"
    "dkms build broken/1.0 -k $(ls /lib/modules) --kernelsourcedir /usr/src/headers --force\n",
}


@pytest.mark.long
def test_the_compilers_error_is_shown_if_dkms_cannot_build_a_module(site, requested, archive):
    archive.add("broken-dkms", "1.0", MODULE, "Depends: dkms, tcc\n")
    message = error_of(site, on_base(requested, "broken-dkms", **published(archive)))
    assert message.startswith("layer site: package broken-dkms: ")
    error = "broken.c:3: error: 'of_another_kernel' undeclared"
    assert re.search(rf"make\.log: .*{error}", message), message
    # The tree with DKMS's log is gone.
    assert error in (site.cache / "logs" / "site.log").read_text()


def on_empty_image(tmp_path: Path, given: dict, *packages: str) -> tuple[Path, Layer, Run, dict[str, str], Caches]:
    """Return what debian.install needs for a layer on an image without packages."""
    root = tmp_path / "root"
    for path in ("var/lib/dpkg", "etc/apt/sources.list.d"):
        (root / path).mkdir(parents=True)
    (root / "var/lib/dpkg/status").touch()
    base = {"distribution": "debian", "suite": "sid", "architecture": "amd64", "archives": [given]}
    layers = {"base": {**base, "packages": ["x0"]}, "top": {"parent": "base", "packages": list(packages)}}
    layer = read_images({"node": {"layer": "top"}}, layers)["node"].layers[1]
    caches = Caches({name: tmp_path / "cache" / name for name in (apt.ARCHIVES, apt.LISTS)}, tmp_path)
    return root, layer, Run("layer top", print), {}, caches


def install(tmp_path: Path, given: dict, *packages: str) -> str:
    """Return the error of apt, which runs outside of the image."""
    with pytest.raises(ImageError) as caught:
        debian.install(*on_empty_image(tmp_path, given, *packages))
    assert str(caught.value).startswith("layer top: ")
    return str(caught.value)


def test_a_key_that_is_not_in_the_keyring_is_named_with_its_archive(tmp_path, archive):
    archive.add("fine", "1.0", {})
    other = Archive(tmp_path / "other", tmp_path / "other-work")
    archive.keyring.write_text(other.key)
    other.close()
    message = install(tmp_path, published(archive), "fine")
    assert re.search(rf"{archive.url} \S* ?InRelease: .*NO_PUBKEY [0-9A-F]{{16}}", message), message
    assert "keyring" in message.rpartition(";")[2]


def test_an_expired_release_is_named_with_its_archive(tmp_path, archive):
    archive.add("fine", "1.0", {})
    message = install(tmp_path, published(archive, "Valid-Until: Mon, 23 Nov 2026 12:00:00 UTC\n"), "fine")
    assert re.search(rf"Release file for {archive.url}/\S* is expired", message), message
    assert "release_sha256" in message.rpartition(";")[2]


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (lambda file: file.unlink(), "404"),
        (lambda file: file.write_bytes(bytes(file.stat().st_size)), "Hash Sum mismatch"),
    ],
)
def test_a_file_that_cannot_be_downloaded_is_named_with_its_url(
    tmp_path, archive, damage: Callable[[Path], object], reason: str
):
    archive.add("fine", "1.0", {})
    given = published(archive)
    damage(archive.folder / "fine_1.0_amd64.deb")
    message = install(tmp_path, given, "fine")
    assert re.search(rf"Failed to fetch {archive.url}/\S*fine_1.0_amd64.deb +{reason}", message), message
    assert "SHA256" not in message


def test_dependencies_that_no_archive_fulfils_are_named(tmp_path, archive):
    archive.add("lacking", "1.0", {}, "Depends: nonesuch (>= 2)\n")
    message = install(tmp_path, published(archive), "lacking")
    assert re.search(r"lacking : Depends: nonesuch \(>= 2\)", message), message


def test_what_is_in_the_cache_is_compared_with_the_release(tmp_path, archive):
    """apt takes a package that is there by its name and size, and a list as it is."""
    archive.add("fine", "1.0", {})
    given = on_empty_image(tmp_path, published(archive), "fine")
    folders = given[-1].folders
    apt.fetch(*given, ["fine"])
    package, (list_of_packages,) = folders[apt.ARCHIVES] / "fine_1.0_amd64.deb", folders[apt.LISTS].glob("*_Packages")
    for path in (package, list_of_packages):
        content = path.read_bytes()
        path.write_bytes(bytes(len(content)))
        if path == list_of_packages:
            with raises(ImageError, path.name, "release"):
                apt.fetch(*given, ["fine"])
        apt.fetch(*given, ["fine"])
        assert path.read_bytes() == content
