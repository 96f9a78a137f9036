# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Debian and Ubuntu: mmdebstrap builds a layer without a parent; apt and dpkg, run from outside, one with a parent."""

from __future__ import annotations

import email.utils
import hashlib
import os
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

from ansible_collections.sailloft.fleet.plugins.module_utils.common import values
from ansible_collections.sailloft.fleet.plugins.module_utils.common.settings import Settings
from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.confine import confined
from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.errors import ImageError
from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.files import sha256_of
from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.model import Archive, Layer
from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.tools import (
    NO_SPACE,
    Run,
    ToolError,
    file_inside,
    inside,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.image.families import apt_output, debian_releases
from ansible_collections.sailloft.fleet.plugins.module_utils.image.families.archive import (
    read_keyring,
    read_pins,
    read_url,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.image.families.downloads import Downloads
from ansible_collections.sailloft.fleet.plugins.module_utils.image.first_stage import userland

ARCHITECTURES = ("amd64", "arm64")
# sources.list(5) and deb-version(7): NAME[:ARCH][=VERSION | /RELEASE]. A name that begins with "-" would be an option
# of mmdebstrap, a comma or white space would split it in two, and a "-" at the end makes apt-get(8) remove the package.
PACKAGE = re.compile(r"[a-z0-9][a-z0-9+.-]+(:[a-z0-9-]+)?([=/][A-Za-z0-9.+~:-]+)?(?<!-)")
PURL_TYPE = "deb"
BUILD_PACKAGES = ("mmdebstrap", "debian-archive-keyring")
TOOLS = ("mmdebstrap", "apt-get", "dpkg-query")
# A suite becomes part of a URL. Suites with a slash, as Debian's "updates/main", and those of flat archives ("./", "/")
# are allowed.
SUITE = re.compile(r"[A-Za-z0-9./][A-Za-z0-9._/+-]*")
COMPONENT = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/+-]*")
# The environment of packages' scripts. INITRD=No: the hooks of initramfs-tools and dracut make no initrd, since the
# node boots with our first stage. PYTHONHASHSEED: sets in byte-compiled files always have the same order.
ENVIRONMENT = {
    "DEBIAN_FRONTEND": "noninteractive",
    "DEBCONF_NONINTERACTIVE_SEEN": "true",
    "INITRD": "No",
    "PYTHONHASHSEED": "0",
}
ARCHIVES, LISTS = "var/cache/apt/archives", "var/lib/apt/lists"
# A line of the field Conffiles in dpkg's status file: path and md5.
CONFIGURATION_FILE = re.compile(r"^ (/.*) ([0-9a-f]{32})(?: obsolete)?$", re.MULTILINE)
SOURCE_FOLDER = "etc/apt/sources.list.d"
# This file marks a directory that has all its lists: a build may have been killed while it fetched them.
WHOLE = "whole"
# mmdebstrap copies these two from the build host.
OF_THE_BUILD_HOST = ("etc/hostname", "etc/resolv.conf")
# What apt's message says -> the next step.
REMEDIES = {
    "NO_PUBKEY|is not signed": "give the archive's keyring, or pin the archive by release_sha256",
    "is expired|is not valid yet": "use an archive that is up to date, or pin this state by release_sha256",
    "unmet dependencies": "add the archive that has them to archives, or leave the package out",
    "Failed to fetch": "run again if the archive has just changed; otherwise use another url",
}
LEFTOVERS = (
    *("var/lib/dpkg/available", "var/lib/dpkg/available-old", "var/lib/dpkg/status-old"),
    *("var/lib/dpkg/diversions-old", "var/lib/dpkg/statoverride-old"),
    *("var/cache/debconf/config.dat-old", "var/cache/debconf/templates.dat-old", "var/cache/debconf/passwords.dat-old"),
    *("etc/apt/apt.conf.d/99mmdebstrap", "var/lib/ucf/hashfile.0", "var/lib/ucf/registry.0"),
)


def read_archive(settings: Settings) -> Archive:
    """Return the archive. Raises ImageError."""
    settings.only("url", "suites", "components", "keyring", "release_sha256")
    url = read_url(settings)
    suites = tuple(settings.value("suites", values.distinct(values.matching(SUITE)), []))
    components = tuple(settings.value("components", values.distinct(values.matching(COMPONENT)), []))
    keyring = read_keyring(settings)
    if not suites:
        raise settings.refuse("it has no suites", 'list them, such as [bookworm], or ["./"] for a flat archive')
    flat = [suite for suite in suites if suite.endswith("/")]
    if flat and components:
        raise settings.refuse(f"suite {flat[0]!r} is a flat archive, which has no components", "remove them")
    if not components and len(flat) < len(suites):
        raise settings.refuse("it has no components", "list them, such as [main]")
    return Archive(url, suites, components, keyring, read_pins(settings, suites))


def archive_inputs(archive: Archive) -> dict[str, Any]:
    """Return the keyring, which apt's source lists name in the image too."""
    return {"keyring": archive.keyring}


def release_digests(layer: Layer, fetch: Callable[[str], bytes]) -> dict[str, str]:
    """Return "URL SUITE" -> the sha256 of its InRelease.

    ``fetch`` returns the bytes at a URL or raises ImageError. Raises ImageError if an archive cannot be reached,
    differs from its pin, or has another release of the distribution: its packages would replace the layer's.
    """
    digests = {}
    releases = {}
    for archive in layer.archives:
        for suite in archive.suites:
            release = _release(archive, suite, fetch)
            releases[f"{archive.url} {suite}"] = debian_releases.fields(release)
            digest = hashlib.sha256(release).hexdigest()
            pin = archive.release_sha256.get(suite, digest)
            if pin != digest:
                raise ImageError(
                    f"archive {archive.url} {suite}",
                    f"its InRelease has sha256 {digest}, but {pin} is pinned",
                    "use a mirror or snapshot that has the pinned one, or pin the new one",
                )
            digests[f"{archive.url} {suite}"] = digest
    if layer.parent is None:
        debian_releases.require_suite(layer, releases.values())
    debian_releases.require_one_release(layer, releases)
    return digests


def source_date_epoch(layer: Layer, fetch: Callable[[str], bytes]) -> int:
    """Return the release time of the newest of the layer's archives, s since 1970: no file of the image is newer."""
    dates = []
    for archive in layer.archives:
        for suite in archive.suites:
            match = re.search(rb"^Date: (.+)$", _release(archive, suite, fetch), re.MULTILINE)
            if not match:
                raise ImageError(
                    f"archive {archive.url} {suite}",
                    "its InRelease has no date",
                    "make the archive with apt-ftparchive",
                )
            dates.append(int(email.utils.parsedate_to_datetime(match.group(1).decode()).timestamp()))
    return max(dates)


def caches(layer: Layer, digests: Mapping[str, str]) -> dict[str, str]:
    """Return image directory -> directory of the builder's cache that is mounted there while packages are installed.

    Each state of the archives has its own lists in the cache, so a layer on top needs no update of them.
    """
    text = "\n".join([*_sources(layer.archives), *(f"{name} {digests[name]}" for name in sorted(digests))])
    return {
        ARCHIVES: f"apt/archives-{layer.distribution}",
        LISTS: f"apt/lists-{hashlib.sha256(text.encode()).hexdigest()}",
    }


def install(root: Path, layer: Layer, run: Run, digests: Mapping[str, str]) -> None:
    """Install the layer's packages and their dependencies into ``root``, which is empty or has the parent's packages.

    Raises ImageError.
    """
    recommends = "false"
    full_list = inside(root, f"{LISTS}/{WHOLE}")
    downloads = Downloads(run.subject, [inside(root, ARCHIVES), inside(root, LISTS)])
    try:
        if layer.parent is None:
            run(
                [
                    *("mmdebstrap", "--mode=root", "--variant=essential", "--format=directory"),
                    f"--architectures={layer.architecture}",
                    f'--aptopt=APT::Install-Recommends "{recommends}"',
                    f"--include={','.join(layer.packages)}",
                    # The download directories are mounted from the cache and are kept.
                    "--skip=check/empty,download/empty,essential/unlink,cleanup/apt",
                    layer.suite,
                    root,
                    *_sources(layer.archives),
                ],
                env=ENVIRONMENT,
                show=r"I: ((?:running apt-get update|downloading|extracting|installing).*?)\.*$",
                fault=downloads,
            )
            _verify(root, layer, digests)
            full_list.touch()
            for name in OF_THE_BUILD_HOST:
                path = inside(root, name)
                if not path.is_symlink():
                    path.unlink(missing_ok=True)
            return
        lines = _sources(layer.archives)
        written = "".join(path.read_text() for path in _source_files(root)).splitlines()
        new = [line for line in lines if line not in written]
        if new:
            path = inside(root, f"{SOURCE_FOLDER}/{layer.name}.list")
            path.unlink(missing_ok=True)
            path.write_text("\n".join(new) + "\n")
        if not layer.packages:
            return
        config = root.parent / "apt.conf"
        config.write_text(_configuration(root, layer.architecture, recommends))
        environment = {**ENVIRONMENT, "APT_CONFIG": os.fspath(config)}
        if not full_list.exists():
            run.progress(f"{run.subject}: running apt-get update")
            run(["apt-get", "-q", "update"], env=environment, fault=downloads)
            _verify(root, layer, digests)
            full_list.touch()
        run(
            confined(root, ["apt-get", "-q", "-y", "--allow-change-held-packages", "install", "--", *layer.packages]),
            env=environment,
            show=r"(\d+ upgraded, \d+ newly installed.*)",
            fault=downloads,
        )
    except ToolError as error:
        raise _explained(root, layer, error) from error


def packages(root: Path, run: Run) -> list[dict[str, str]]:
    """Return name, version and architecture of the packages in ``root``, sorted by name and architecture."""
    output = run(
        [
            "dpkg-query",
            f"--admindir={root}/var/lib/dpkg",
            "--show",
            "--showformat=${db:Status-Status} ${Package} ${Version} ${Architecture}\n",
        ]
    )
    rows = (line.split() for line in output.splitlines())
    packages_of_root = [
        dict(zip(("name", "version", "architecture"), row[1:])) for row in rows if row[0] == "installed"
    ]
    return sorted(packages_of_root, key=lambda package: (package["name"], package["architecture"]))


def packaged_files(root: Path, paths: Collection[str], run: Run) -> set[str]:
    """Return those of ``paths`` in ``root`` whose content is that of the archive of a package that is listed in it."""
    wanted = {}
    for path in paths:
        digest = hashlib.md5((root / path[1:]).read_bytes(), usedforsecurity=False).hexdigest()
        # Packages of Debian 12 may have the name without /usr, to which the directory links.
        wanted.update({(digest, name): path for name in (path, path.removeprefix("/usr"))})
    info = inside(root, "var/lib/dpkg/info", follow=True)
    rows = [line for file in info.glob("*.md5sums") for line in file.read_text(errors="replace").splitlines()]
    listed = [(row[:32], f"/{row[34:]}") for row in rows]
    status = file_inside(root, "var/lib/dpkg/status")
    if status:
        listed += [(row[2], row[1]) for row in CONFIGURATION_FILE.finditer(status.read_text(errors="replace"))]
    return {wanted[row] for row in listed if row in wanted}


def clean(root: Path) -> None:
    """Remove files of apt, dpkg and mmdebstrap that an image does not need or that differ from build to build."""
    for name in LEFTOVERS:
        inside(root, name).unlink(missing_ok=True)


def script_failure(root: Path, output: str) -> str:
    """Return the package whose script failed in this output of apt or dpkg, and its last lines; "" if none did."""
    return apt_output.script_failure(root, output)


def first_stage_digest() -> str:
    """Return an empty text: the programs are from Debian packages, which the digests of the layer's archives cover."""
    return ""


def first_stage_caches(layer: Layer, digests: Mapping[str, str]) -> dict[str, str]:
    """Return other directories than ``caches``, since apt locks them and layers are built at the same time."""
    return {name: f"{folder}-first-stage" for name, folder in caches(layer, digests).items()}


def first_stage_tree(into: Path, layer: Layer, digests: Mapping[str, str], run: Run) -> Path:
    """Unpack the first stage's packages and their dependencies into ``into``, without installing them; return it."""
    try:
        run(
            [
                *("mmdebstrap", "--mode=root", "--variant=extract", "--format=directory"),
                f"--architectures={layer.architecture}",
                '--aptopt=APT::Install-Recommends "false"',
                f"--include={','.join(userland.PACKAGES)}",
                "--skip=check/empty,download/empty,cleanup/apt",
                layer.suite,
                into,
                *_sources(layer.archives),
            ],
            env=ENVIRONMENT,
        )
    except ToolError as error:
        raise _explained(into, layer, error) from error
    return into


def _release(archive: Archive, suite: str, fetch: Callable[[str], bytes]) -> bytes:
    folder = f"{archive.url}/{suite.strip('/.')}".rstrip("/") if suite.endswith("/") else f"{archive.url}/dists/{suite}"
    try:
        return fetch(f"{folder}/InRelease")
    except FileNotFoundError:
        # The archive has a separate signature, or is pinned and has no signature.
        try:
            return fetch(f"{folder}/Release")
        except FileNotFoundError:
            raise ImageError(
                f"archive {archive.url} {suite}",
                f"has no release: {folder}/InRelease does not exist",
                "correct the url or the suite",
            ) from None


def _sources(archives: tuple[Archive, ...]) -> list[str]:
    lines = []
    for archive in archives:
        for suite in archive.suites:
            options = [f"signed-by={archive.keyring}"] if archive.keyring else []
            if suite in archive.release_sha256:
                # A pinned state may be past the archive's own expiry date.
                options.append("check-valid-until=no")
                if not archive.keyring:
                    # The digest that the user pinned proves more than a signature; _verify checks that apt used it.
                    options.append("trusted=yes")
            option = f"[{' '.join(options)}] " if options else ""
            # apt does not copy packages of "file:" archives, and dpkg runs in the image.
            url = re.sub("^file:", "copy:", archive.url)
            lines.append(" ".join([f"deb {option}{url}", suite, *archive.components]))
    return lines


def _source_files(root: Path) -> Iterator[Path]:
    names = sorted(path.name for path in inside(root, SOURCE_FOLDER, follow=True).glob("*.list"))
    for name in ["etc/apt/sources.list", *(f"{SOURCE_FOLDER}/{name}" for name in names)]:
        path = file_inside(root, name)
        if path:
            yield path


def _configuration(root: Path, architecture: str, recommends: str) -> str:
    """Return apt's settings for working on ``root`` from outside; dpkg itself runs in ``root`` with chroot."""
    return "".join(
        f"{line};\n"
        for line in (
            f'Dir "{root}/"',
            'Dir::Etc::TrustedParts "/etc/apt/trusted.gpg.d/"',
            f'APT::Architecture "{architecture}"',
            f'APT::Architectures {{ "{architecture}"; }}',
            f'APT::Install-Recommends "{recommends}"',
            'APT::Sandbox::User "root"',
            'APT::Update::Error-Mode "any"',
            'Acquire::Languages "none"',
            f'DPkg::Chroot-Directory "{root}"',
            'Dpkg::Use-Pty "false"',
            'DPkg::Options:: "--force-confdef"',
            'DPkg::Options:: "--force-confold"',
        )
    )


def _releases(root: Path) -> set[str]:
    """Return the digests of the release files that apt has fetched."""
    return {sha256_of(path) for path in inside(root, LISTS, follow=True).glob("*Release") if path.is_file()}


def _verify(root: Path, layer: Layer, digests: Mapping[str, str]) -> None:
    """Raise ImageError if apt did not use the archives in the layer's key: a mirror may change in between."""
    releases = _releases(root)
    for name, digest in digests.items():
        if digest not in releases:
            raise ImageError(
                f"archive {name}",
                f"was changed while layer {layer.name} was built: apt did not get the InRelease {digest}",
                "run again; if the archive changes often, pin a snapshot",
            )


def _explained(root: Path, layer: Layer, error: ToolError) -> ImageError:
    """Return the error with its cause: the package and its script's last lines, or apt's own messages."""
    subject = f"layer {layer.name}"
    if NO_SPACE in error.output:
        return error
    script = apt_output.script_failure(root, error.output)
    if script:
        return ImageError(subject, script, "fix the package or what its script needs, or leave it out")
    reasons = apt_output.errors(error.output)
    for line in reasons:
        if "Unable to locate package" in line or "has no installation candidate" in line or "was not found" in line:
            advice = "correct the name, or add the archive that has it to archives"
            if any(package in line.split() for package in userland.PACKAGES):
                advice = "the first stage needs it: add the archive or component that has it (Ubuntu: universe)"
            return ImageError(subject, line, advice)
    if reasons:
        cause = " / ".join(reasons)
        advices = (advice for pattern, advice in REMEDIES.items() if re.search(pattern, cause))
        return ImageError(subject, cause, next(advices, "fix the problem that apt reports, and run again"))
    return error
