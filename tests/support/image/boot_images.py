# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Images that nodes boot or must refuse, for tests/image_boot and benchmarks."""

from __future__ import annotations

import hashlib
import inspect
import re
import shutil
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import boot_network as networks
import pytest

from ansible_collections.sailloft.fleet.plugins.module_utils.image.first_stage import initramfs
from ansible_collections.sailloft.fleet.plugins.module_utils.image.serving import boot_script, issue, node_scripts
from ansible_collections.sailloft.fleet.plugins.module_utils.image.store import channels, node_files, statement
from ansible_collections.sailloft.fleet.plugins.module_utils.image.store import manifest as manifests
from ansible_collections.sailloft.fleet.plugins.module_utils.image.store import sign as signatures
from ansible_collections.sailloft.fleet.plugins.module_utils.image.store.sign import Signer
from ansible_collections.sailloft.fleet.plugins.module_utils.image.store.store import Store

REPOSITORY = Path(__file__).parents[3]


INIT = REPOSITORY / "roles" / "node_image" / "files" / "first-stage" / "init"


PACKAGES = "linux-image-cloud-amd64,systemd-sysv,udev,dbus,kmod"


# A unit that shows on the console what the node booted, and that it came up.
PROOF = """[Unit]
Description=Tell what was booted
# A terminal that starts hangs up on who writes there.
Before=serial-getty@ttyS0.service
[Service]
Type=oneshot
StandardOutput=tty
TTYPath=/dev/ttyS0
ExecStart=/bin/sh -c 'printf "REPORT "; cat /run/sailloft/boot.json; printf "LAYER "; cat /etc/layer; \
grep -E "overlay|sailloft" /proc/mounts; udevadm settle; echo UNNAMED: $$(grep -ls ID_RENAMING=1 /run/udev/data/n*); \
echo written > /etc/written && cat /etc/written; echo SYSTEMD IS UP'
[Install]
WantedBy=multi-user.target
"""


ARGUMENTS = ("console=ttyS0", "no_timer_check", "quiet", "systemd.show_status=no")


EPOCH = 1700000000


@dataclass(frozen=True)
class Parts:
    """The parts of images: the kernel's version and file, the tree of its modules, two layers, and key pairs."""

    folder: Path
    kernel_version: str

    @property
    def kernel(self) -> Path:
        return self.folder / "boot" / f"vmlinuz-{self.kernel_version}"


@dataclass(frozen=True)
class Image:
    """A store with one image in it."""

    store: Store
    digest: str
    manifest: manifests.Manifest
    parts: Parts
    keys: Signer

    def blob(self, sha256: str) -> Path:
        return Path(self.store.place("blobs", sha256))

    def file(self, name: str) -> Path:
        return Path(self.store.place("images", self.digest, name))

    def direct(self, servers: list[str], *arguments: str) -> list:
        """Sign that the node runs this image; return QEMU's options to start its kernel without a network boot."""
        state(self.store, self.keys, {"digest": self.digest, "servers": servers, "report": f"{servers[-1]}/report"})
        settings = f"sailloft.image={self.digest} sailloft.servers={','.join(servers)} sailloft.node={networks.NODE} "
        settings += f"sailloft.report={servers[-1]}/report BOOTIF=01-{networks.MAC.replace(':', '-')}"
        line = " ".join((*ARGUMENTS, *arguments, settings))
        kernel, stage = (self.blob(part.sha256) for part in (self.manifest.kernel, self.manifest.first_stage))
        return ["-kernel", kernel, "-initrd", stage, "-append", line]


@pytest.fixture(scope="session")
def parts() -> Parts:
    """The parts, which are made once, and again if the way in which they are made changes."""
    recipe = hashlib.sha256((PACKAGES + PROOF + inspect.getsource(_make_parts)).encode()).hexdigest()[:12]
    folder = REPOSITORY / ".cache" / "image_boot" / recipe
    if not folder.exists():
        shutil.rmtree(folder.parent, ignore_errors=True)
        unfinished = folder.with_name("unfinished")
        unfinished.mkdir(parents=True)
        _make_parts(unfinished)
        unfinished.rename(folder)
    return Parts(folder, next((folder / "lib" / "modules").iterdir()).name)


def _make_parts(folder: Path) -> None:
    (folder / "proof.service").write_text(PROOF)
    hooks = (
        f"upload {folder}/proof.service /etc/systemd/system/proof.service",
        'chroot "$1" systemctl --quiet enable proof.service; echo base > "$1/etc/layer"; : > "$1/etc/machine-id"',
        f"copy-out /boot /lib/modules {folder}",
        'rm -rf "$1"/boot/* "$1"/var/cache/apt/* "$1"/var/lib/apt/lists/* "$1"/usr/share/doc "$1"/usr/share/locale',
    )
    command = ["mmdebstrap", "--quiet", "--variant=minbase", f"--include={PACKAGES}"]
    command += ['--aptopt=Apt::Install-Recommends "false"', *(f"--customize-hook={hook}" for hook in hooks)]
    subprocess.run([*command, "bookworm", folder / "root.tar"], check=True)
    if not (folder / "lib").exists():
        (folder / "lib").mkdir()
        (folder / "modules").rename(folder / "lib" / "modules")
    with (folder / "root.tar").open("rb") as tar:
        squash = ["mksquashfs", "-", folder / "base", "-tar", "-quiet", "-no-progress", "-noappend"]
        subprocess.run([*squash, "-comp", "zstd", "-Xcompression-level", "3"], stdin=tar, check=True)
    (folder / "root.tar").unlink()
    top = folder / "tree"
    (top / "etc").mkdir(parents=True)
    (top / "etc" / "layer").write_text("top\n")
    subprocess.run(
        ["mksquashfs", top, folder / "top", "-quiet", "-no-progress", "-all-root", "-comp", "zstd"], check=True
    )
    for name in ("key", "other"):
        pair = ["-p", folder / f"{name}.pub", "-s", folder / f"{name}.sec"]
        subprocess.run(["minisign", "-G", "-W", *pair], check=True, stdout=subprocess.DEVNULL)


@pytest.fixture(scope="session")
def stage(parts: Parts, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The first stage."""
    path = tmp_path_factory.mktemp("first-stage") / "initramfs"
    public_key = signatures.read_public_key(parts.folder / "key.pub")
    initramfs.build(parts.folder, parts.kernel_version, Path("/"), public_key, INIT.read_text(), EPOCH, path)
    return path


@pytest.fixture
def image(parts: Parts, stage: Path, tmp_path: Path) -> Image:
    """A store with an image of two layers, and a channel that names it."""
    return made_image(parts, stage, tmp_path, parts.folder / "top")


def made_image(
    parts: Parts,
    stage: Path,
    tmp_path: Path,
    top: Path,
    base: Path | None = None,
    own: tuple[str, ...] = (),
    name: str = "test-node",
) -> Image:
    """Make the store of ``image``, with the squashfs ``top`` as upper layer and ``base``, or Debian, as the lower.

    ``own`` are further kernel arguments.
    """
    folder = tmp_path / "store"
    blobs = folder / "blobs"
    for kind in ("blobs", "images", "channels", "nodes"):
        (folder / kind).mkdir(parents=True)

    def put(path: Path) -> tuple[str, int]:
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        shutil.copy(path, blobs / digest)
        return digest, path.stat().st_size

    layers = []
    for layer_name, source, salt in (("base", base or parts.folder / "base", "aabb"), ("top", top, "")):
        layer = shutil.copy(source, tmp_path / layer_name)
        root = append_verity(layer, salt)
        size = source.stat().st_size
        # The first stage must not mistake inputs for the fields that it reads.
        inputs = {"sha256": "f" * 64, "verity": {"data_bytes": 1, "root_sha256": "f" * 64, "salt": "00"}}
        verity = manifests.Verity(size, root, salt)
        layers.append(manifests.ManifestLayer(layer_name, "0" * 64, *put(layer), put(INIT)[0], verity, inputs))
    kernel = manifests.Kernel(parts.kernel_version, *put(parts.kernel))
    made = manifests.Manifest(
        name=name,
        distribution="debian",
        suite="bookworm",
        architecture="amd64",
        kernel=kernel,
        first_stage=manifests.FirstStage(*put(stage), (statement.FORMAT, node_files.FORMAT)),
        kernel_arguments=(*ARGUMENTS, *own),
        writable_mib=64,
        layers=tuple(layers),
        packages=(),
        sbom_sha256=put(INIT)[0],
    )
    data = manifests.dump(made)
    digest = manifests.digest(data)
    place = folder / "images" / digest
    place.mkdir()
    (place / "manifest.json").write_bytes(data)
    (place / "boot.ipxe").write_text(boot_script.image_script(made, digest))
    keys = Signer(str(parts.folder / "key.sec"), str(parts.folder / "key.pub"))
    found = Image(Store(str(folder)), digest, made, parts, keys)
    sign(found, "key")
    channels.promote(found.store, "stable", digest)
    return found


def sign(image: Image, key: str) -> None:
    """Sign the manifest with one of the two keys."""
    secret = image.parts.folder / f"{key}.sec"
    command = ["minisign", "-S", "-W", "-s", secret, "-m", image.file("manifest.json")]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stdin=subprocess.DEVNULL)


def append_verity(path: Path, salt: str) -> str:
    """Append the dm-verity tree; return its root hash."""
    size = path.stat().st_size
    options = ["--no-superblock", "--hash=sha256", "--data-block-size=4096", "--hash-block-size=4096"]
    command = ["veritysetup", "format", *options, f"--data-blocks={size // 4096}", f"--hash-offset={size}"]
    output = subprocess.run([*command, f"--salt={salt or '-'}", path, path], check=True, capture_output=True, text=True)
    return re.search(r"^Root hash:\s*(\S+)$", output.stdout, re.MULTILINE).group(1)


def state(store: Store, keys: Signer, node: dict[str, object], now_s: float | None = None) -> bytes:
    """Sign a new statement of what the node boots; return its file. ``node`` has no name and MAC address."""
    return _state(store, keys, [{"name": networks.NODE, "mac": networks.MAC, **node}], now_s)


def _state(store: Store, keys: Signer, rows: list[dict[str, object]], now_s: float | None = None) -> bytes:
    named = [{"name": name, "digest": channel.digest} for name, channel in channels.read_all(store).items()]
    terms = issue.Terms(90, int(time.time() if now_s is None else now_s), reissue=True)
    digests = (*store.images(), *(row.get("digest") for row in rows))
    images = [{"digest": digest, "signed_kernel": True} for digest in digests]
    served = {"host": "boot01", "channels": named, "images": images, "files": [], "statement": 0, "now_s": terms.now_s}
    return issue.ensure(store, issue.StatementRequest(rows), [served], keys, terms, False).after


def follow(
    store: Store, keys: Signer, servers: list[str], names: Sequence[str] = (networks.NODE,), **changed: object
) -> None:
    """Make the nodes follow the channel stable, with ``changed`` settings of their scripts."""
    shared = {"channel": "stable", "kernel_arguments": ["from_the_node=1"], "servers": servers}
    shared |= {"report": f"{servers[-1]}/report", **changed}
    nodes = [{"name": name, "mac": networks.mac_of(number), **shared} for number, name in enumerate(names, 1)]
    node_scripts.ensure(store, nodes, False)
    _state(store, keys, nodes)


@pytest.fixture
def network(tmp_path: Path):
    """A network that is closed after the test."""
    found = networks.Network(tmp_path)
    yield found
    found.close()
