# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""RHEL and related distributions: packages are installed into a root by ``dnf --installroot`` of the build host.

The build host's own configuration of dnf and rpm is not used. An archive is verified by its packages' signatures
(``keyring``), by the digest of its ``repodata/repomd.xml`` (``release_sha256: {repomd: ...}``), or by both. That file
has the digests of the archive's lists, and the lists have the digests of its packages.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

from ansible_collections.sailloft.fleet.plugins.module_utils.common.settings import Settings
from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.caches import Caches
from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.errors import ImageError
from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.files import sha256_of
from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.model import Archive, Layer
from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.room import entered
from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.tools import PROXIES, Run, inside, tail
from ansible_collections.sailloft.fleet.plugins.module_utils.image.families.archive import (
    read_keyring,
    read_pins,
    read_url,
    readable_paths,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.image.first_stage import userland

ARCHITECTURES = ("x86_64", "aarch64")
# dnf(8): NAME-VERSION, globs and @group. A name that begins with "-" would be an option of dnf.
PACKAGE = re.compile(r"@?[A-Za-z0-9][A-Za-z0-9._+~^:*?-]*")
PURL_TYPE = "rpm"
BUILD_PACKAGES = ("dnf", "rpm", "busybox-static", "dmsetup")
TOOLS = ("dnf", "rpm", "busybox", "dmsetup")
# repodata/repomd.xml is the file with the digests of an RPM repository's other files.
RPM_RELEASE = "repomd"
# RPM archives have none of the first stage's programs, so the build host's are used.
OWN_PROGRAMS = Path("/")

# The path of rpm's database (rpm's macro %_dbpath) by the release of RHEL. From RHEL 10 on, as in Fedora 36, it is
# under /usr. Debian's own rpm would write the database to /root/.rpmdb.
OLD_DATABASE = "/var/lib/rpm"
NEW_DATABASE = "/usr/lib/sysimage/rpm"
FIRST_NEW_RELEASE = 10
DATABASE_FILE = "rpmdb.sqlite"
CACHE = "var/cache/dnf"
# Files that dnf and rpm leave behind and that do not belong to what was installed.
LEFTOVERS = (
    *(CACHE, "var/cache/yum", "var/cache/libdnf5", "var/lib/dnf"),
    *("var/log/dnf.log", "var/log/dnf.librepo.log", "var/log/dnf.rpm.log", "var/log/dnf5.log", "var/log/hawkey.log"),
)
OF_THE_DATABASE = (f"{DATABASE_FILE}-shm", f"{DATABASE_FILE}-wal", ".rpm.lock")
SCRIPT_FAILED = re.compile(r"^Error in (\w+) scriptlet in rpm package (\S+)", re.MULTILINE)
QUERY = r"%{NAME}\t%|EPOCH?{%{EPOCH}:}:{}|%{VERSION}-%{RELEASE}\t%{ARCH}\n"
FILES_QUERY = r"[%{FILENAMES}\t%{FILEDIGESTS}\n]"
CHECKPOINT = "import sqlite3, sys; sqlite3.connect(sys.argv[1]).execute('PRAGMA wal_checkpoint(TRUNCATE)')"
# rpm lists a key that was used to check signatures as if it were a package.
KEY = "gpg-pubkey"
CONFIGURATION = """[main]
assumeyes = 1
best = 1
cachedir = /var/cache/dnf
gpgcheck = 1
install_weak_deps = 0
keepcache = 1
logdir = /var/log
# The digests are of the metadata that was fetched first; they must not change before the packages are.
metadata_expire = never
module_platform_id = platform:el{major}
persistdir = /var/lib/dnf
plugins = 0
pluginconfpath = {folder}/none
reposdir = {folder}/none
retries = 3
timeout = 60
# Bytes/s; dnf's own 1000 would let a mirror take hours for a driver.
minrate = 65536
varsdir = {folder}/none
"""
REPOSITORY = """
[{name}]
name = {name}
baseurl = {url}/
enabled = 1
gpgcheck = {check}
{keys}"""


def read_archive(settings: Settings) -> Archive:
    """Return the archive. Raises ImageError."""
    settings.only("url", "suites", "components", "keyring", "release_sha256")
    url, keyring = read_url(settings), read_keyring(settings)
    if settings.data.get("suites") or settings.data.get("components"):
        raise settings.refuse(
            "an RPM repository has no suites and components", "give the url of the directory that contains repodata"
        )
    pins = read_pins(settings, (RPM_RELEASE,))
    if keyring is None and not pins:
        raise settings.refuse(
            "nothing verifies its packages", f"give a keyring, or release_sha256: {{{RPM_RELEASE}: ...}}"
        )
    return Archive(url, (), (), keyring, pins)


def archive_inputs(archive: Archive) -> dict[str, Any]:
    """Return an empty dict: dnf's configuration is the builder's, and ``release_digests`` has the keyring's digest."""
    return {}


def install(root: Path, layer: Layer, run: Run, digests: Mapping[str, str], caches: Caches) -> None:
    """Put ``layer``'s packages into ``root``: empty for the lowest layer, else the merged root of the layers below.

    dnf fetches them in one room and installs them in another, which has no network. ``digests`` are
    ``release_digests``; the metadata that dnf reads must match them. rpm takes ``SOURCE_DATE_EPOCH`` of this process as
    the time of installation. Raises ImageError; ``root`` must not be used then.
    """
    if not layer.packages:
        return
    with tempfile.TemporaryDirectory(prefix="sailloft-dnf-") as folder:
        _configure(Path(folder), layer)
        environment = dnf_environment(folder)
        command = [
            *("dnf", "--config", f"{folder}/dnf.conf", "--installroot", str(root)),
            *("--releasever", layer.suite, "--forcearch", layer.architecture),
        ]
        readable = readable_paths(layer.archives)

        def dnf(*args: str, network: bool) -> subprocess.CompletedProcess[str]:
            return run.process(entered(root, [*command, *args], network, readable, [Path(folder)]), env=environment)

        with caches.downloading(root, run):
            process = dnf("makecache", network=True)
            if process.returncode != 0:
                raise ImageError(*_unreachable(process.stdout, layer), subject=layer.subject)
            _check_fetched(root, layer, digests)
            process = dnf("install", "--downloadonly", *layer.packages, network=True)
        if process.returncode == 0:
            with caches.lent(root, run):
                process = dnf("--cacheonly", "install", *layer.packages, network=layer.network)
    script = script_failure(root, process.stdout)
    if process.returncode != 0:
        raise ImageError(*_failure(script, process.stdout), subject=layer.subject)
    if script:
        # rpm installs a package also if one of its later scripts fails, and dnf succeeds.
        run.progress(f"layer {layer.name}: warning: {script}")


def script_failure(root: Path, output: str) -> str:
    """Return the first package whose script failed in this output of dnf, with its last lines; "" if none did."""
    failed = SCRIPT_FAILED.search(output)
    if not failed:
        return ""
    # dnf shows the output of all scripts at its end, after the list of packages.
    match = re.search(r"^(error: .+)\n\n?" + re.escape(failed[0]), output, re.MULTILINE)
    printed = output.rpartition("\n\n" if "Complete!" not in output else "Complete!\n")[2]
    parts = [f"package {failed[2]}: its {failed[1].lower()} script failed", match[1] if match else "", tail(printed)]
    return ": ".join(part for part in parts if part)


def packages(root: Path, run: Run) -> list[dict[str, str]]:
    """Return the packages in ``root`` as ``{"name", "version", "architecture"}``, sorted. ``root`` is only read.

    ``version`` is ``EPOCH:VERSION-RELEASE``, or ``VERSION-RELEASE`` if no epoch is set. Raises ImageError.
    """
    rows = _query(root, QUERY, 3, run)
    return [
        {"name": name, "version": version, "architecture": architecture}
        for name, version, architecture in sorted(rows)
        if name != KEY
    ]


def packaged_files(root: Path, paths: Collection[str], run: Run) -> set[str]:
    """Return those of ``paths`` in ``root`` whose content is that of the archive of a package that is listed in it."""
    wanted = {path: sha256_of(root / path[1:]) for path in paths}
    return {path for path, digest in _query(root, FILES_QUERY, 2, run) if wanted.get(path) == digest}


def _query(root: Path, form: str, columns: int, run: Run) -> list[list[str]]:
    """Return the rows that rpm prints for all packages. Raises ImageError."""
    database = _database(root)
    if database is None:
        return []
    # rpm locks the database that it reads and leaves files beside it, so it reads a copy.
    with tempfile.TemporaryDirectory(prefix="sailloft-rpm-") as folder:
        for path in database.iterdir():
            if path.is_file() and not path.is_symlink() and path.name != ".rpm.lock":
                shutil.copy(path, folder)
        command = ["rpm", "--dbpath", folder, "--query", "--all", "--queryformat", form]
        process = run.process(entered(root, command, writable=[Path(folder)]), env=dnf_environment(folder))
    if process.returncode != 0:
        cause = f"rpm cannot read it: {last_lines(process.stdout)}"
        raise ImageError(cause, "build the layer again", subject=str(database))
    return [line.split("\t") for line in process.stdout.splitlines() if line.count("\t") == columns - 1]


def clean(root: Path, run: Run) -> None:
    """Remove the files of dnf and rpm from ``root`` that differ from one installation to the next."""
    database = _database(root)
    if database is not None:
        log = database / f"{DATABASE_FILE}-wal"
        if log.exists() and log.stat().st_size:
            # Data that is only in the write-ahead log would be lost with it. dnf's own Python has sqlite3.
            run(entered(root, ["/usr/bin/python3", "-Ic", CHECKPOINT, os.fspath(database / DATABASE_FILE)]))
        for name in OF_THE_DATABASE:
            (database / name).unlink(missing_ok=True)
    for name in LEFTOVERS:
        path = inside(root, name)
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        elif path.exists():
            path.unlink()
    # dnf makes these directories for modules, even if there are none.
    for name in ("etc/dnf/modules.d", "etc/dnf"):
        with contextlib.suppress(OSError):
            inside(root, name).rmdir()


def release_digests(layer: Layer, fetch: Callable[[str], bytes]) -> dict[str, str]:
    """Return the sha256 of each archive's ``repomd.xml``, by URL, and of its keyring.

    ``fetch`` returns the bytes at a URL. Raises ImageError if an archive has no ``repomd.xml`` or one that differs from
    its pin, and the errors of ``fetch``.
    """
    digests = {}
    for archive in layer.archives:
        digest = hashlib.sha256(_fetched(archive, layer, fetch)).hexdigest()
        pin = archive.release_sha256.get(RPM_RELEASE, digest)
        if pin != digest:
            raise ImageError(
                f"{_repomd(archive)} has sha256 {digest}, but {pin} is pinned",
                "use a mirror or snapshot that has the pinned one, or pin the new one",
                subject=layer.subject,
            )
        digests[_repomd(archive)] = digest
        if archive.keyring is not None:
            # rpm puts the keys into the image's database.
            try:
                digests[f"{archive.url} keyring"] = sha256_of(archive.keyring)
            except OSError as error:
                raise ImageError(
                    f"cannot read keyring {archive.keyring} for {archive.url}: {error.strerror}",
                    "put the archive's public key there, on the build host",
                    subject=layer.subject,
                ) from error
    return digests


def source_date_epoch(layer: Layer, fetch: Callable[[str], bytes]) -> int:
    """Return the time of the newest list of the archives, s since 1970; 0 if there are none. Raises ImageError."""
    times = []
    for archive in layer.archives:
        # createrepo_c(8) writes the time of each list; old versions of the tool write a fraction.
        stamps = re.findall(rb"<timestamp>\s*(\d+)(?:\.\d+)?\s*</timestamp>", _fetched(archive, layer, fetch))
        if not stamps:
            raise ImageError(
                f"{_repomd(archive)} has no timestamp", "make the archive with createrepo_c", subject=layer.subject
            )
        times += [int(stamp) for stamp in stamps]
    return max(times, default=0)


def caches(layer: Layer, digests: Mapping[str, str]) -> dict[str, str]:
    """Return image directory -> directory of the builder's cache to mount there; each state of the archives has one."""
    state = "\n".join(f"{name} {digests[name]}" for name in sorted(digests))
    return {CACHE: f"dnf/{layer.distribution}-{hashlib.sha256(state.encode()).hexdigest()}"}


def first_stage_digest() -> str:
    """Return the digest of the build host's programs that the first stage has."""
    return userland.digest(OWN_PROGRAMS)


def first_stage_caches(layer: Layer, digests: Mapping[str, str]) -> dict[str, str]:
    """Return an empty dict: the programs are not downloaded."""
    return {}


def first_stage_tree(into: Path, layer: Layer, digests: Mapping[str, str], run: Run, caches: Caches) -> Path:
    """Return the build host's own tree."""
    return OWN_PROGRAMS


def _configure(folder: Path, layer: Layer) -> None:
    (folder / "none").mkdir()
    # A file of macros is the only way to pass the path to librpm inside dnf; HOME is set to this directory.
    (folder / ".rpmmacros").write_text(f"%_dbpath {_database_path(layer)}\n", encoding="utf-8")
    text = CONFIGURATION.format(folder=folder, major=layer.suite.partition(".")[0])
    for number, archive in enumerate(layer.archives):
        text += REPOSITORY.format(
            name=_name(number),
            url=archive.url,
            check=int(archive.keyring is not None),
            keys="" if archive.keyring is None else f"gpgkey = file://{archive.keyring}\n",
        )
    (folder / "dnf.conf").write_text(text, encoding="utf-8")


def dnf_environment(home: str) -> dict[str, str]:
    """Return the environment of dnf and rpm, whose SOURCE_DATE_EPOCH is the time and number of a transaction."""
    environment = {name: os.environ[name] for name in ("PATH", *PROXIES) if name in os.environ}
    environment["SOURCE_DATE_EPOCH"] = os.environ.get("SOURCE_DATE_EPOCH", "1")
    return {**environment, "HOME": home, "LC_ALL": "C.UTF-8", "PYTHONDONTWRITEBYTECODE": "1"}


def _database_path(layer: Layer) -> str:
    major = layer.suite.partition(".")[0]
    return NEW_DATABASE if major.isdecimal() and int(major) >= FIRST_NEW_RELEASE else OLD_DATABASE


def _database(root: Path) -> Path | None:
    for path in (NEW_DATABASE, OLD_DATABASE):
        file = inside(root, f"{path}/{DATABASE_FILE}")
        if file.is_file() and not file.is_symlink():
            return file.parent
    return None


def _name(number: int) -> str:
    return f"archive{number}"


def _repomd(archive: Archive) -> str:
    return f"{archive.url}/repodata/repomd.xml"


def _fetched(archive: Archive, layer: Layer, fetch: Callable[[str], bytes]) -> bytes:
    try:
        return fetch(_repomd(archive))
    except FileNotFoundError:
        raise ImageError(
            f"there is no RPM repository at {archive.url}: it has no repodata/repomd.xml",
            "give the url of the directory that contains repodata",
            subject=layer.subject,
        ) from None


def _check_fetched(root: Path, layer: Layer, digests: Mapping[str, str]) -> None:
    """Compare the metadata that dnf has fetched and will use with the digests in the layer's key."""
    for number, archive in enumerate(layer.archives):
        fetched = {
            sha256_of(path) for path in inside(root, CACHE, follow=True).glob(f"{_name(number)}-*/repodata/repomd.xml")
        }
        if digests[_repomd(archive)] not in fetched:
            raise ImageError(
                f"{_repomd(archive)} was changed during the build: dnf did not get {digests[_repomd(archive)]}",
                "run again; if the archive changes often, use a snapshot",
                subject=layer.subject,
            )


def _unreachable(output: str, layer: Layer) -> tuple[str, str]:
    failed = re.search(r"Failed to download metadata for repo '\w+?(\d+)'", output)
    url = layer.archives[int(failed[1])].url if failed else ", ".join(archive.url for archive in layer.archives)
    reasons = re.findall(r"(Curl error .*?|Status code: .*?|Cannot .*?)(?: \[|$)", output, re.MULTILINE)
    return (
        f"the archive {url} cannot be read: {reasons[0] if reasons else last_lines(output)}",
        "correct its url, or check that its server answers",
    )


def _failure(script: str, output: str) -> tuple[str, str]:
    if script:
        return script, "fix the package or what its script needs, or leave it out"
    missing = re.findall(r"^No match for argument: (.*)$", output, re.MULTILINE)
    if missing:
        return f"no archive has a package {', '.join(missing)}", "correct the name, or add the archive that has it"
    signature = re.search(
        r"^(Package \S+ is not signed|Public key for \S+ is not installed|The GPG keys listed)", output, re.MULTILINE
    )
    if signature or "GPG check FAILED" in output:
        package = re.search(r"^(?:Package|Public key for) (\S+) is not", output, re.MULTILINE)
        return (
            f"{package[1] if package else 'a package'} is not signed by a key in the archive's keyring",
            "give the archive's keyring; unsigned packages are accepted only with release_sha256 and without a keyring",
        )
    refused = re.search(r"^\[(?:MIRROR|FAILED)\] (.*)$", output, re.MULTILINE)
    if refused:
        return (
            f"a package cannot be downloaded: {refused[1].strip()}",
            "run again if the archive has just changed; otherwise use another url",
        )
    return f"dnf failed: {last_lines(output)}", "correct the packages or the archives"


def last_lines(output: str) -> str:
    """Return the last error of dnf's or rpm's output with the lines after it, or the last lines."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith(("Error", "error"))]
    start = lines.index(errors[-1]) if errors else max(len(lines) - 3, 0)
    return "; ".join(lines[start : start + 6])[:600] or "no output"
