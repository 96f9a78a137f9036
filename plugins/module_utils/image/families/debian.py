# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Debian and Ubuntu: mmdebstrap makes the essential packages of a layer without a parent; apt installs all others."""

from __future__ import annotations

import email.utils
import hashlib
import os
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ansible_collections.sailloft.fleet.plugins.module_utils.common import values
from ansible_collections.sailloft.fleet.plugins.module_utils.common.settings import Settings
from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.caches import Caches
from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.errors import ImageError
from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.model import Archive, Layer
from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.room import entered
from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.tools import (
    NO_SPACE,
    Run,
    ToolError,
    file_inside,
    inside,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.image.families import apt, apt_output, debian_releases
from ansible_collections.sailloft.fleet.plugins.module_utils.image.families.archive import (
    read_keyring,
    read_pins,
    read_url,
    readable_paths,
)
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
# A line of the field Conffiles in dpkg's status file: path and md5.
CONFIGURATION_FILE = re.compile(r"^ (/.*) ([0-9a-f]{32})(?: obsolete)?$", re.MULTILINE)
SOURCE_FOLDER = "etc/apt/sources.list.d"
# apt's pattern (apt-patterns(7)) for the packages that mmdebstrap's variant "essential" has.
ESSENTIAL = "?narrow(?or(?archive(^{0}$),?codename(^{0}$)),?architecture({1}),?essential)"
# Done by the room, or before: the directories in which the room mounts are not unpacked (tar(1), ENVIRONMENT).
SKIPPED = "check/empty,update,download/empty,essential/unlink,cleanup/apt,chroot/mount"
MOUNTED = {"TAR_OPTIONS": " ".join(f"--exclude=./{name}" for name in ("dev", "proc", "run", "tmp"))}
# mmdebstrap makes these links in /dev, and fails if they exist.
WITHOUT_LINKS = ("sh", "-euc", 'rm /dev/fd /dev/stdin /dev/stdout /dev/stderr; exec "$@"', "sh")
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
    if not layer.archives:
        raise ImageError(
            "has no archives, from which a node's first stage gets its programs",
            "give it those of its distribution",
            subject=layer.subject,
        )
    for archive in layer.archives:
        for suite in archive.suites:
            release = _release(archive, suite, fetch)
            releases[f"{archive.url} {suite}"] = debian_releases.fields(release)
            digest = hashlib.sha256(release).hexdigest()
            pin = archive.release_sha256.get(suite, digest)
            if pin != digest:
                raise ImageError(
                    f"its InRelease has sha256 {digest}, but {pin} is pinned",
                    "use a mirror or snapshot that has the pinned one, or pin the new one",
                    subject=f"archive {archive.url} {suite}",
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
                    "its InRelease has no date",
                    "make the archive with apt-ftparchive",
                    subject=f"archive {archive.url} {suite}",
                )
            dates.append(int(email.utils.parsedate_to_datetime(match.group(1).decode()).timestamp()))
    return max(dates)


def caches(layer: Layer, digests: Mapping[str, str]) -> dict[str, str]:
    """Return image directory -> directory of the builder's cache that is mounted there while packages are installed.

    Each state of the archives has its own lists, so a layer on top needs no update of them. Each set of archives has
    its own packages: apt only compares the size of a package that is there, and another archive may have one of the
    same name.
    """
    lines = apt.sources(layer.archives)
    states = [f"{name} {digests[name]}" for name in sorted(digests)]
    return {
        apt.ARCHIVES: f"apt/archives-{_digest(lines)}",
        apt.LISTS: f"apt/lists-{_digest([*lines, *states])}",
    }


def _digest(lines: Iterable[str]) -> str:
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def install(root: Path, layer: Layer, run: Run, digests: Mapping[str, str], caches: Caches) -> None:
    """Install the layer's packages and their dependencies into ``root``, which is empty or has the parent's packages.

    Raises ImageError.
    """
    try:
        if layer.parent is None and layer.oci is None:
            essential = ESSENTIAL.format(layer.suite, layer.architecture)
            apt.fetch(root, layer, run, digests, caches, [essential])
            _bootstrap(root, layer, run, caches, "essential")
        lines = apt.sources(layer.archives)
        written = "".join(path.read_text() for path in _source_files(root)).splitlines()
        new = [line for line in lines if line not in written]
        if new:
            path = inside(root, f"{SOURCE_FOLDER}/{layer.name}.list")
            path.unlink(missing_ok=True)
            path.write_text("\n".join(new) + "\n")
        if layer.packages or (layer.roles and layer.network):  # these roles get the lists
            apt.fetch(root, layer, run, digests, caches, layer.packages)
        if layer.packages:
            apt.install(root, layer, run, caches, layer.packages)
    except ToolError as error:
        raise apt_error(root, layer, error) from error


def _bootstrap(root: Path, layer: Layer, run: Run, caches: Caches, variant: str, *options: str) -> None:
    """Have mmdebstrap make a tree of packages that were fetched. Raises ToolError."""
    command = [
        *(*WITHOUT_LINKS, "mmdebstrap", "--mode=root", f"--variant={variant}", "--format=directory"),
        *(f"--architectures={layer.architecture}", '--aptopt=APT::Install-Recommends "false"', *options),
        *(f"--skip={SKIPPED}", layer.suite, os.fspath(root), *apt.sources(layer.archives)),
    ]
    with caches.lent(root, run):
        run(
            entered(root, command, network=layer.network, readable=readable_paths(layer.archives)),
            env={**apt.ENVIRONMENT, **MOUNTED},
            show=r"I: ((?:extracting|installing).*?)\.*$",
        )


def packages(root: Path, run: Run) -> list[dict[str, str]]:
    """Return name, version and architecture of the packages in ``root``, sorted by name and architecture."""
    form = "${db:Status-Status} ${Package} ${Version} ${Architecture}\n"
    command = ["dpkg-query", f"--admindir={root}/var/lib/dpkg", "--show", f"--showformat={form}"]
    output = run(entered(root, command))
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


def clean(root: Path, run: Run) -> None:
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


def first_stage_tree(into: Path, layer: Layer, digests: Mapping[str, str], run: Run, caches: Caches) -> Path:
    """Unpack the first stage's packages and their dependencies into ``into``, without installing them; return it."""
    try:
        apt.fetch(into, layer, run, digests, caches, userland.PACKAGES)
        _bootstrap(into, layer, run, caches, "extract", f"--include={','.join(userland.PACKAGES)}")
    except ToolError as error:
        raise apt_error(into, layer, error) from error
    return into


def unpack_alone(
    into: Path, layer: Layer, digests: Mapping[str, str], run: Run, lists: Path, names: Sequence[str]
) -> None:
    """Unpack packages into ``into`` without their dependencies. The lists of archives are kept in ``lists``.

    It is only of this family: these are tools of the build, not a part of an image. Raises ImageError.
    """
    try:
        apt.fetch(into, layer, run, digests, Caches({apt.LISTS: lists}, into.parent), names, alone=True)
        for path in sorted(inside(into, apt.ARCHIVES).glob("*.deb")):
            run(entered(into, ["dpkg-deb", "--extract", f"{path}", f"{into}"]))
    except ToolError as error:
        raise apt_error(into, layer, error) from error


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
                f"has no release: {folder}/InRelease does not exist",
                "correct the url or the suite",
                subject=f"archive {archive.url} {suite}",
            ) from None


def _source_files(root: Path) -> Iterator[Path]:
    names = sorted(path.name for path in inside(root, SOURCE_FOLDER, follow=True).glob("*.list"))
    for name in ["etc/apt/sources.list", *(f"{SOURCE_FOLDER}/{name}" for name in names)]:
        path = file_inside(root, name)
        if path:
            yield path


def apt_error(root: Path, layer: Layer, error: ToolError) -> ImageError:
    """Return the error with its cause: the package and its script's last lines, or apt's own messages."""
    subject = layer.subject
    if NO_SPACE in error.output:
        return error
    script = apt_output.script_failure(root, error.output)
    if script:
        return ImageError(script, "fix the package or what its script needs, or leave it out", subject=subject)
    reasons = apt_output.errors(error.output)
    for line in reasons:
        if "Unable to locate package" in line or "has no installation candidate" in line or "was not found" in line:
            advice = "correct the name, or add the archive that has it to archives"
            if any(package in line.split() for package in userland.PACKAGES):
                advice = "the first stage needs it: add the archive or component that has it (Ubuntu: universe)"
            return ImageError(line, advice, subject=subject)
    if reasons:
        cause = " / ".join(reasons)
        advices = (advice for pattern, advice in REMEDIES.items() if re.search(pattern, cause))
        return ImageError(cause, next(advices, "fix the problem that apt reports, and run again"), subject=subject)
    return error
