# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Layers that begin with a container image: real skopeo, umoci and docker-registry, and images that are made here.

One file because all of them fetch images of one registry and of archives into one form of cache.
"""

from __future__ import annotations

import contextlib
import http.server
import json
import os
import signal
import subprocess
import tarfile
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from build_host import BASE, BuildHost
from messages import raises
from oci_images import CREATED_S, LAYER, MANIFEST, PASSWORD, OciLayout, Registry, debian_tree, member, tar
from rpm_packages import RUN, SPECS, archive, built, caches, fetch, index, package

from ansible_collections.sailloft.fleet.plugins.module_utils.image.common import process
from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.errors import ImageError
from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.model import Layer, OciImage
from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.namespace import isolated
from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.room import unpacking
from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.tools import Run
from ansible_collections.sailloft.fleet.plugins.module_utils.image.families import debian, rpm
from ansible_collections.sailloft.fleet.plugins.module_utils.image.oci import download, unpack
from ansible_collections.sailloft.fleet.plugins.module_utils.image.request import private_keys
from ansible_collections.sailloft.fleet.plugins.module_utils.image.request.spec import read_images

STATUS = "Package: less\nStatus: install ok installed\nArchitecture: amd64\nVersion: 590\n\n"
RELEASE = ("etc/os-release", '# a comment\nID=debian\nVERSION_ID="12"\nVERSION_CODENAME=bookworm\n')
SYSTEM = (RELEASE, ("var/lib/dpkg/status", STATUS))
TRUSTED = Path("/etc/ssl/certs/ca-certificates.crt")


@pytest.fixture(scope="module")
def registry(tmp_path_factory):
    started = Registry(tmp_path_factory.mktemp("registry"))
    yield started
    started.close()


@pytest.fixture
def layout(tmp_path) -> OciLayout:
    return OciLayout(tmp_path / "layout")


class Site:
    """A cache; ``lines`` are those of the progress."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.cache, self.lines = folder, folder / "cache", []
        self.cache.mkdir()

    def fetch(self, layer: Layer) -> None:
        work = self.folder / f"work-{len(list(self.folder.iterdir()))}"
        work.mkdir()
        download.fetch(layer, self.cache, work, Run(layer.subject, self.lines.append))

    def tree(self, layer: Layer) -> Path:
        """Fetch and unpack the image, and return its tree."""
        self.fetch(layer)
        work = self.folder / "unpacked"
        work.mkdir()
        image = download.cached(layer, self.cache)
        unpack.unpack(image, work / "root", work, layer, Run(layer.subject, self.lines.append))
        return work / "root"

    def cached(self) -> list[str]:
        return os.listdir(self.cache / "oci") if (self.cache / "oci").exists() else []


@pytest.fixture
def site(tmp_path) -> Site:
    return Site(tmp_path)


def layer_of(digest: str, **place: object) -> Layer:
    return Layer("base", None, "debian", "bookworm", "amd64", (), oci=OciImage(digest, **place))


def archived(layout: OciLayout, descriptor: dict) -> Layer:
    """Return the layer for an image in an archive of the layout."""
    return layer_of(descriptor["digest"], archive=layout.archive(layout.folder.parent / "image.tar"))


def pulled(registry: Registry, name: str, descriptor: dict, **settings: object) -> Layer:
    """Return the layer for an image of the registry, whose CA is not verified."""
    access = {"auth_file": os.fspath(registry.auth_file), "verify_tls": False, **settings}
    return layer_of(descriptor["digest"], image=name, **access)


def test_an_image_of_a_registry_is_fetched_once_by_a_trusted_name(registry, layout, site):
    image = layout.image(tar(*SYSTEM))
    layer = pulled(registry, registry.push(layout, image, "once"), image, verify_tls=True)
    with raises(ImageError, "base", image["digest"], "x509", "CA"):
        site.fetch(layer)

    def with_ca() -> None:
        both = site.folder / "both.crt"
        both.write_bytes(TRUSTED.read_bytes() + (registry.ca / "ca.crt").read_bytes())
        subprocess.run(["mount", "--bind", both, TRUSTED], check=True)
        site.fetch(layer)

    isolated(with_ca)
    assert site.cached() == [f"{image['digest'][7:]}-amd64"]
    assert download.cached(layer, site.cache).created_s == CREATED_S
    site.fetch(replace(layer, oci=replace(layer.oci, image="localhost:9/gone")))  # the cache has it
    assert debian.packages(site.tree(layer), RUN) == [{"name": "less", "version": "590", "architecture": "amd64"}]
    assert PASSWORD not in "".join(site.lines)


def test_a_private_registry_needs_credentials(registry, layout, site):
    image = layout.image(tar(*SYSTEM))
    name = registry.push(layout, image, "private")
    with raises(ImageError, "unauthorized", "auth_file"):
        site.fetch(pulled(registry, name, image, auth_file=None))
    with raises(ImageError, "/nowhere/auth.json", "auth_file"):
        site.fetch(pulled(registry, name, image, auth_file="/nowhere/auth.json"))
    assert site.cached() == []
    site.fetch(pulled(registry, name, image))
    assert len(site.cached()) == 1


class Redirecting(http.server.BaseHTTPRequestHandler):
    """A registry whose blobs are at another address, with a permission in the parameters, where nothing answers."""

    def do_GET(self) -> None:
        manifest = self.server.manifest if "/manifests/" in self.path else b""
        self.send_response(307 if "/blobs/" in self.path else 200)
        self.send_header("Location", "http://127.0.0.1:1/blob?Signature=s3cret")
        self.send_header("Content-Type", MANIFEST)
        self.send_header("Content-Length", str(len(manifest)))
        self.end_headers()
        self.wfile.write(manifest)

    def log_message(self, *words: object) -> None:
        pass


def test_an_error_has_no_permission_that_a_registry_gave(layout, site):
    image = layout.image(tar(*SYSTEM))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Redirecting) as server:
        server.manifest = (layout.blobs / image["digest"][7:]).read_bytes()
        threading.Thread(target=server.serve_forever, daemon=True).start()
        name = f"127.0.0.1:{server.server_port}/a"
        with raises(ImageError, "127.0.0.1:1/blob") as caught:
            site.fetch(layer_of(image["digest"], image=name, verify_tls=False))
        server.shutdown()
    assert "s3cret" not in str(caught.value)


def test_a_list_of_manifests_gives_the_one_of_the_architecture(registry, layout, site):
    ours, other = layout.image(tar(*SYSTEM)), layout.image(tar(("arm", "")), architecture="arm64")
    listed = layout.index(other, ours)
    name = registry.push(layout, listed, "list")
    of_registry, of_archive = pulled(registry, name, listed), archived(layout, listed)
    assert (site.tree(of_registry) / "etc/os-release").exists()
    (site.folder / "again").mkdir()
    again = Site(site.folder / "again")
    assert (again.tree(of_archive) / "etc/os-release").exists()
    with raises(ImageError, other["digest"], "linux/arm64"):
        again.fetch(archived(layout, other))
    with raises(ImageError, "linux/amd64"):
        again.fetch(archived(layout, layout.index(other)))
    with raises(ImageError, "linux/arm64"):
        again.fetch(pulled(registry, name, other))
    again.fetch(replace(of_registry, architecture="arm64"))
    assert sorted(again.cached()) == [f"{listed['digest'][7:]}-{architecture}" for architecture in ("amd64", "arm64")]


def test_an_image_in_dockers_form_is_one_by_its_own_digest(registry, layout, site):
    layout.name(layout.image(tar(*SYSTEM)), "oci")
    there = f"docker://{registry.name}/docker:1"
    command = ["skopeo", "--insecure-policy", "copy", "--quiet", "--format", "v2s2", "--dest-cert-dir", registry.ca]
    command += ["--dest-authfile", registry.auth_file, "--digestfile", site.folder / "digest"]
    subprocess.run([*command, f"oci:{layout.folder}:oci", there], check=True)
    digest = (site.folder / "digest").read_text().strip()
    assert (site.tree(pulled(registry, f"{registry.name}/docker", {"digest": digest})) / "etc/os-release").exists()


def test_an_image_that_docker_saved_is_one_after_skopeo_has_copied_it(layout, site):
    layout.name(layout.image(tar(*SYSTEM)), "oci")
    saved, copied = site.folder / "saved.tar", site.folder / "copied.tar"
    for source, target in (
        (f"oci:{layout.folder}:oci", f"docker-archive:{saved}"),
        (
            f"docker-archive:{saved}",
            f"oci-archive:{copied}",
        ),
    ):
        subprocess.run(["skopeo", "--insecure-policy", "copy", "--quiet", source, target], check=True)
    inspect = ["skopeo", "inspect", "--format", "{{.Digest}}", f"oci-archive:{copied}"]
    digest = subprocess.run(inspect, check=True, capture_output=True, text=True).stdout.strip()
    with raises(ImageError, digest, "oci-archive"):
        site.fetch(layer_of(digest, archive=os.fspath(saved)))
    assert (site.tree(layer_of(digest, archive=os.fspath(copied))) / "etc/os-release").exists()


@pytest.mark.parametrize("part", ["manifest", "config", "layer"])
@pytest.mark.parametrize("change", ["altered", "truncated"])
def test_what_has_another_digest_is_not_kept(registry, layout, site, part, change):
    image = layout.image(tar(*SYSTEM, ("unique", f"{part} {change}")), author=f"{part} {change}")
    manifest = json.loads((layout.blobs / image["digest"][7:]).read_bytes())
    digest = {
        "manifest": image["digest"],
        "config": manifest["config"]["digest"],
        "layer": manifest["layers"][0]["digest"],
    }[part]
    name = registry.push(layout, image, f"{part}-{change}")
    for stored in (registry.stored(digest), layout.blobs / digest[7:]):
        data = stored.read_bytes()
        stored.write_bytes(data[:-9] + b"x" + data[-8:] if change == "altered" else data[:-9])
    with raises(ImageError, "base", image["digest"]):
        site.fetch(pulled(registry, name, image))
    with raises(ImageError, "base", image["digest"], digest):
        site.fetch(archived(layout, image))
    assert site.cached() == []


def test_a_layer_that_was_altered_in_the_cache_is_not_unpacked(layout, site):
    layer = archived(layout, layout.image(tar(*SYSTEM)))
    site.fetch(layer)
    (blob,) = download.cached(layer, site.cache).layers
    blob.write_bytes(tar(*SYSTEM, ("etc/motd", "altered")))
    with raises(ImageError, blob.name, download.cached(layer, site.cache).folder):
        site.tree(layer)
    assert not list(site.folder.rglob("motd"))


def test_a_registry_that_falls_silent_ends_the_download(registry, layout, site, monkeypatch):
    monkeypatch.setattr(process, "CHECK_S", 0.2)
    monkeypatch.setattr(download, "WINDOW_S", 1)
    image = layout.image(tar(*SYSTEM))
    layer = pulled(registry, registry.push(layout, image, "silent"), image)
    registry.process.send_signal(signal.SIGSTOP)
    try:
        with raises(ImageError, image["digest"], "bytes/s"):
            site.fetch(layer)
    finally:
        registry.process.send_signal(signal.SIGCONT)


@pytest.mark.parametrize(("sizes", "slow"), [((9 << 20, 9 << 20), True), ((9 << 20, 19 << 20), False), ((9, 1), False)])
def test_a_download_is_slow_by_what_it_receives(tmp_path, monkeypatch, sizes, slow):
    monkeypatch.setattr(download, "WINDOW_S", 0)
    clock = iter(range(0, 10_000, 60))
    monkeypatch.setattr(download.time, "monotonic", lambda: next(clock))
    fault = download.too_slow(tmp_path, "layer base")
    for size in sizes:
        (tmp_path / "blob").write_bytes(b"x" * size)
        error = fault()
    (tmp_path / "moved").symlink_to("gone")
    assert fault() is None
    assert bool(error) == slow


def test_a_killed_download_leaves_nothing_and_the_next_one_finishes(registry, layout, site):
    image = layout.image(tar(*SYSTEM, ("unique", "killed")))
    layer = pulled(registry, registry.push(layout, image, "killed"), image)
    registry.process.send_signal(signal.SIGSTOP)
    child = os.fork()
    if not child:
        isolated(lambda: site.fetch(layer))
        os._exit(0)
    try:
        wait_until(lambda: commands("skopeo", site.folder))
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        wait_until(lambda: not commands("skopeo", site.folder))
    finally:
        registry.process.send_signal(signal.SIGCONT)
    assert site.cached() == []
    assert (site.tree(layer) / "unique").read_text() == "killed"


def commands(program: str, folder: Path) -> list[bytes]:
    """Return the command lines with this program's name and the folder."""
    lines = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            lines.append(path.read_bytes())
    return [line for line in lines if os.fsencode(folder) in line and line.startswith(program.encode())]


def wait_until(reached: Callable[[], object]) -> None:
    deadline = time.monotonic() + 60
    while not reached():
        assert time.monotonic() < deadline
        time.sleep(0.02)


IN_THE_ROOM = """
import os, socket, stat, sys
readable, writable = sys.argv[1:]
os.mknod(f"{writable}/zero", 0o666 | stat.S_IFCHR, os.makedev(1, 5))
attempts = {
    "device": lambda: open(f"{writable}/zero", "rb"),
    "archive": lambda: open(f"{readable}/x", "w"),
    "program": lambda: open("/usr/x", "w"),
    "secret": lambda: open("/etc/shadow"),
    "kernel": lambda: open("/proc/sys/kernel/core_pattern"),
    "mount": lambda: os.chroot("/"),
}
for name, attempt in attempts.items():
    try:
        attempt()
        print(name)
    except OSError:
        pass
print([name for _index, name in socket.if_nameindex()])
"""


def test_the_room_that_unpacks_reaches_nothing_of_the_build_host(tmp_path):
    readable, writable = tmp_path / "readable", tmp_path / "writable"
    for folder in (readable, writable):
        folder.mkdir()
    command = ["/usr/bin/python3", "-c", IN_THE_ROOM, os.fspath(readable), os.fspath(writable)]
    done = process.run(unpacking(command, readable, writable))
    assert (done.returncode, done.stdout) == (0, "['lo']\n")
    assert os.listdir(writable) == ["zero"]


def test_a_tree_has_owners_and_capabilities_and_nothing_of_a_container(layout, site):
    capability = "\x01\x00\x00\x02\x00\x20\x00\x00" + "\x00" * 12  # cap_net_raw=ep (linux/capability.h)
    first = tar(
        *SYSTEM,
        ("etc/gone", "removed above"),
        ("opt/old", "hidden above"),
        *((name, "of a container") for name in unpack.OF_CONTAINERS),
        member("usr/bin/tool", tarfile.REGTYPE, mode=0o6755, uid=12, gid=34),
        member("home/user", tarfile.DIRTYPE, mode=0o700, uid=12),
        member("usr/bin/ping", tarfile.REGTYPE, pax_headers={"SCHILY.xattr.security.capability": capability}),
        member("srv/jail/null", tarfile.CHRTYPE, devmajor=1, devminor=3),
        member("usr/bin/same", tarfile.LNKTYPE, "usr/bin/tool"),
        member("srv", tarfile.DIRTYPE, pax_headers={"SCHILY.xattr.trusted.overlay.opaque": "y"}),
    )
    second = tar(("etc/.wh.gone", ""), ("opt/.wh..wh..opq", ""), ("opt/new", ""), ("home/user/file", ""))
    root = site.tree(archived(layout, layout.image(first, second)))
    assert not {name for name in (*unpack.OF_CONTAINERS, "etc/gone", "opt/old") if (root / name).exists()}
    status = (root / "usr/bin/tool").stat()
    assert (status.st_mode & 0o7777, status.st_uid, status.st_gid, status.st_nlink) == (0o6755, 12, 34, 2)
    assert (root / "srv/jail/null").stat().st_rdev == os.makedev(1, 3)
    assert os.getxattr(root / "usr/bin/ping", "security.capability") == capability.encode("latin-1")
    assert os.listxattr(root / "srv") == []
    assert sorted(os.listdir(root / "opt")) == ["new"]
    assert int((root / "etc/os-release").stat().st_mtime) == CREATED_S - 100


def test_a_private_key_in_an_image_is_seen(layout, site):
    key = subprocess.run(["openssl", "genpkey", "-algorithm", "ed25519"], capture_output=True, text=True, check=True)
    root = site.tree(archived(layout, layout.image(tar(*SYSTEM, ("srv/tls.key", key.stdout)))))
    assert list(private_keys.keys_in(root)) == ["/srv/tls.key"]
    assert debian.packaged_files(root, ["/srv/tls.key"], RUN) == set()


def test_names_and_links_lead_to_no_file_of_the_build_host(layout, site, tmp_path):
    canary = tmp_path / "canary"
    canary.mkdir()
    for name in ("kept", "policy-rc.d"):
        (canary / name).write_text("of the build host")
    up = "../" * 40
    first = tar(
        ("usr/lib/os-release", RELEASE[1]),
        SYSTEM[1],
        (f"{up}above", "x"),
        (f"{up}{canary}/by-name", "x"),
        member("absolute", tarfile.SYMTYPE, os.fspath(canary)),
        member("relative", tarfile.SYMTYPE, f"{up}{canary}"),
        member("usr/sbin", tarfile.SYMTYPE, os.fspath(canary)),
        member("etc/hosts", tarfile.SYMTYPE, "/etc/passwd"),
        member("srv/hard", tarfile.LNKTYPE, f"{up}usr/lib/os-release"),
    )
    second = tar(("absolute/one", "x"), ("relative/two", "x"), ("absolute/.wh.kept", ""), ("relative/.wh..wh..opq", ""))
    root = site.tree(archived(layout, layout.image(first, second)))
    assert sorted(os.listdir(canary)) == ["kept", "policy-rc.d"]
    assert (root / "above").read_text() == "x"
    assert {"one", "two"} <= set(os.listdir(root / os.fspath(canary)[1:]))
    assert (os.readlink(root / "absolute"), os.readlink(root / "relative")) == (f"{canary}", f"{up}{canary}")
    assert (root / "srv/hard").samefile(root / "usr/lib/os-release")
    assert (root / "etc/hosts").is_symlink()


def test_a_link_to_a_file_of_the_build_host_is_refused(layout, site, tmp_path):
    (tmp_path / "secret").write_text("of the build host")
    layer = archived(layout, layout.image(tar(*SYSTEM, member("etc/x", tarfile.LNKTYPE, f"{tmp_path}/secret"))))
    with raises(ImageError, "base", layer.oci.digest, "etc/x"):
        site.tree(layer)


def test_a_layer_that_ends_early_is_refused(layout, site):
    huge = tarfile.TarInfo("var/huge")
    huge.size = 1 << 60
    header = huge.tobuf(tarfile.GNU_FORMAT)
    layer = archived(layout, layout.image(header, kind=LAYER.removesuffix("+gzip")))
    with raises(ImageError, layer.oci.digest, "var/huge"):
        site.tree(layer)


@pytest.mark.parametrize(
    ("members", "cause"),
    [
        ((("etc/os-release", "ID=alpine\n"), SYSTEM[1]), "alpine"),
        ((("etc/os-release", "ID=devuan\nVERSION_CODENAME=bookworm\n"), SYSTEM[1]), "devuan bookworm"),
        ((("etc/os-release", "ID=ubuntu\nVERSION_CODENAME=noble\n"), SYSTEM[1]), "ubuntu noble"),
        ((("etc/os-release", "ID=debian\nVERSION_CODENAME=trixie\n"), SYSTEM[1]), "debian trixie"),
        ((SYSTEM[1],), "nothing"),
        ((RELEASE,), "packages"),
    ],
)
def test_an_image_of_another_distribution_or_without_packages_is_refused(layout, site, members, cause):
    layer = archived(layout, layout.image(tar(*members)))
    with raises(ImageError, "base", layer.oci.digest, cause):
        site.tree(layer)


@pytest.mark.parametrize(
    ("changes", "cause"),
    [
        ({"kind": "application/vnd.oci.image.layer.nondistributable.v1.tar+gzip"}, "nondistributable"),
        ({"kind": "application/vnd.oci.image.layer.v1.tar+zstd"}, "zstd"),
        ({"kind": "application/vnd.docker.image.rootfs.foreign.diff.tar.gzip"}, "foreign"),
        ({"created": "2199-01-01T00:00:00Z"}, "2199"),
        ({"created": "yesterday"}, "yesterday"),
        ({"os": "windows"}, "windows/amd64"),
        ({"architecture": "riscv64"}, "linux/riscv64"),
    ],
)
def test_an_image_that_can_be_no_base_is_refused(layout, site, changes, cause):
    layer = archived(layout, layout.image(tar(*SYSTEM), **changes))
    with raises(ImageError, "base", layer.oci.digest, cause):
        site.fetch(layer)
    assert site.cached() == []


@pytest.mark.parametrize("created", [None, "0001-01-01T00:00:00Z"])
def test_an_image_without_a_time_is_one_of_1970(layout, site, created):
    layer = archived(layout, layout.image(tar(*SYSTEM), created=created))
    site.fetch(layer)
    assert download.cached(layer, site.cache).created_s == 0


def test_what_is_no_archive_of_an_image_is_refused(layout, site):
    image = layout.image(tar(*SYSTEM))
    layer = archived(layout, image)
    for oci in (
        replace(layer.oci, archive="/nowhere/image.tar"),
        replace(layer.oci, archive="/etc"),
        replace(layer.oci, archive="/etc/passwd"),
        replace(layer.oci, digest=f"sha256:{'0' * 64}"),
    ):
        with raises(ImageError, "base", oci.archive, oci.digest):
            site.fetch(replace(layer, oci=oci))
    for descriptor in (layout.blob(b"[]", "x"), layout.blob(b"{}", "x"), layout.blob(b"\xff", "x")):
        with raises(ImageError, descriptor["digest"]):
            site.fetch(archived(layout, descriptor))
    assert site.cached() == []


def packed(tree: Path) -> bytes:
    """Return a tree as a layer."""
    return subprocess.run(["tar", "-C", tree, "-cz", "."], check=True, capture_output=True).stdout


@pytest.mark.long
def test_packages_go_onto_an_image_of_rpm_packages(layout, site, tmp_path):
    for release in (1, 2):
        for name in ("filesystem", "hello"):
            text = SPECS[name].format(release=release) if name == "hello" else SPECS[name]
            package(tmp_path / f"release-{release}", name, text)
        index(tmp_path / f"release-{release}")
    old, new = (archive(tmp_path / f"release-{release}") for release in (1, 2))
    base = {"distribution": "rocky", "suite": "9", "architecture": "x86_64"}

    def layer(**more: object) -> Layer:
        (only,) = read_images({"node": {"layer": "base"}}, {"base": {**base, **more}})["node"].layers
        return only

    built(tmp_path / "made", layer(archives=[old], packages=["hello"]))
    (tmp_path / "made/etc/os-release").write_text('ID="rocky"\nVERSION_ID="9.4"\n')
    image = layout.image(packed(tmp_path / "made"))
    oci = {"archive": layout.archive(tmp_path / "image.tar"), "digest": image["digest"]}
    above = layer(oci=oci, archives=[new], packages=["hello"])
    root = site.tree(above)
    assert "1:2.10-1.el9" in {package["version"] for package in rpm.packages(root, RUN)}
    rpm.install(root, above, RUN, rpm.release_digests(above, fetch), caches(root))
    assert "1:2.10-2.el9" in {package["version"] for package in rpm.packages(root, RUN)}
    assert (root / "usr/bin/hello").read_text() == "hello 2\n"
    assert rpm.source_date_epoch(layer(oci=oci), fetch) == 0


@pytest.mark.long
def test_the_same_image_from_a_registry_and_an_archive_gives_the_same_bytes(registry, layout, keys, other, tmp_path):
    # A tree that has all that a node needs, as images for Warewulf do.
    image = layout.image(debian_tree(tmp_path / "tree.tar", BASE["packages"]))
    name = registry.push(layout, image, "debian")
    of_registry = {"image": name, "auth_file": os.fspath(registry.auth_file), "verify_tls": False}
    of_archive = {"archive": layout.archive(tmp_path / "image.tar")}
    (credentials,) = json.loads(registry.auth_file.read_text())["auths"].values()
    token = credentials["auth"]
    outcomes = []
    (tmp_path / "site").mkdir()
    for host, place in ((BuildHost(tmp_path / "site", keys), of_registry), (other, of_archive)):
        oci = {**place, "digest": image["digest"]}
        layers = {"base": {**BASE, "oci": oci, "packages": ["less"], "services": {"masked": ["apt-daily.timer"]}}}
        (outcome,), lines, _seconds = host.build(layers, {"node": {"layer": "base"}})
        outcomes.append(outcome.digest)
        (again,), _lines, _seconds = host.build(layers, {"node": {"layer": "base"}})
        assert (again.changed, again.built) == (False, ())
        assert PASSWORD not in "".join(lines)
        found = subprocess.run(
            ["grep", "-rlF", "-e", PASSWORD, "-e", token, host.folder], capture_output=True, check=False
        )
        assert (found.returncode, found.stdout) == (1, b"")
    assert outcomes[0] == outcomes[1]
    manifest = other.store.manifest(outcomes[0])
    assert manifest.layers[0].inputs["oci"] == image["digest"]
    assert registry.name not in json.dumps(manifest.layers[0].inputs)
    bill = json.loads(Path(other.store.place("blobs", manifest.sbom_sha256)).read_bytes())
    assert [item["version"] for item in bill["components"] if item["type"] == "container"] == [image["digest"]]
    assert {"less", "systemd", "linux-image-cloud-amd64"} <= {item["name"] for item in bill["components"]}
    assert manifest.kernel.version.endswith("cloud-amd64")
