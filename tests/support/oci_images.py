# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Container images that tests make, and a registry with TLS and a password: Debian's docker-registry on loopback."""

from __future__ import annotations

import base64
import gzip
import hashlib
import io
import json
import os
import socket
import subprocess
import tarfile
import time
from pathlib import Path
from typing import Any

CREATED = "2026-01-02T03:04:05.678Z"
CREATED_S = 1767323045
INDEX = "application/vnd.oci.image.index.v1+json"
MANIFEST = "application/vnd.oci.image.manifest.v1+json"
CONFIG = "application/vnd.oci.image.config.v1+json"
LAYER = "application/vnd.oci.image.layer.v1.tar+gzip"
USER, PASSWORD = "builder", "s3cret-word"


def tar(*members: tarfile.TarInfo | tuple[str, str]) -> bytes:
    """Return a layer: members without content, or a file for each (path, text)."""
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for item in members:
            if isinstance(item, tarfile.TarInfo):
                archive.addfile(item)
                continue
            info = tarfile.TarInfo(item[0])
            info.size, info.mtime = len(item[1].encode()), CREATED_S - 100
            archive.addfile(info, io.BytesIO(item[1].encode()))
    return gzip.compress(stream.getvalue(), mtime=0)


def member(name: str, kind: bytes, link: str = "", **properties: Any) -> tarfile.TarInfo:
    """Return a member of another type than a file."""
    info = tarfile.TarInfo(name)
    info.type, info.linkname, info.mode = kind, link, 0o755
    for setting, value in properties.items():
        setattr(info, setting, value)
    return info


def debian_tree(path: Path, packages: list[str]) -> bytes:
    """Return a tree of Debian 12 with apt and these packages as a layer; ``path`` is that of a file for it."""
    command = ["mmdebstrap", "--variant=minbase", f"--include={','.join(packages)}", "bookworm", path]
    command += ["http://deb.debian.org/debian"]
    subprocess.run(command, check=True, capture_output=True, env={**os.environ, "INITRD": "No"})
    return gzip.compress(path.read_bytes(), 1, mtime=0)


class OciLayout:
    """An image layout in ``folder``, to which images are added."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.blobs = folder / "blobs/sha256"
        self.blobs.mkdir(parents=True)
        (folder / "oci-layout").write_text('{"imageLayoutVersion": "1.0.0"}')

    def blob(self, data: bytes, kind: str, **more: Any) -> dict[str, Any]:
        """Add a blob; return its descriptor."""
        name = hashlib.sha256(data).hexdigest()
        (self.blobs / name).write_bytes(data)
        return {"mediaType": kind, "digest": f"sha256:{name}", "size": len(data), **more}

    def image(self, *layers: bytes, kind: str = LAYER, architecture: str = "amd64", **config: Any) -> dict[str, Any]:
        """Add an image; return its manifest's descriptor, as in a list."""
        settings = {
            "created": CREATED,
            "os": "linux",
            "architecture": architecture,
            # A container's settings, which a node does not have.
            "config": {"Entrypoint": ["/bin/false"], "User": "nobody", "Env": ["A=b"], "Volumes": {"/srv": {}}},
            "rootfs": {
                "type": "layers",
                "diff_ids": [f"sha256:{hashlib.sha256(self._plain(data)).hexdigest()}" for data in layers],
            },
            **config,
        }
        document = {
            "schemaVersion": 2,
            "mediaType": MANIFEST,
            "config": self.blob(json.dumps(settings).encode(), CONFIG),
            "layers": [self.blob(data, kind) for data in layers],
        }
        platform = {"os": settings["os"], "architecture": settings["architecture"]}
        return self.blob(json.dumps(document).encode(), MANIFEST, platform=platform)

    def index(self, *descriptors: dict[str, Any]) -> dict[str, Any]:
        """Add a list of manifests; return its descriptor."""
        document = {"schemaVersion": 2, "mediaType": INDEX, "manifests": list(descriptors)}
        return self.blob(json.dumps(document).encode(), INDEX)

    def name(self, descriptor: dict[str, Any], name: str) -> None:
        """Give the layout this image alone."""
        annotations = {"org.opencontainers.image.ref.name": name}
        listed = {"schemaVersion": 2, "manifests": [{**descriptor, "annotations": annotations}]}
        (self.folder / "index.json").write_text(json.dumps(listed))

    def archive(self, path: Path) -> str:
        """Write the layout as an archive, as tar of its directory does; return its path."""
        with tarfile.open(path, "w") as archive:
            for name in ("blobs", "index.json", "oci-layout"):
                if (self.folder / name).exists():
                    archive.add(self.folder / name, f"./{name}")
        return os.fspath(path)

    def _plain(self, data: bytes) -> bytes:
        return gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data


class Registry:
    """A registry that only USER may read, with a certificate of its own CA."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.storage = folder / "storage"
        self.ca = folder / "ca"
        self.ca.mkdir(parents=True)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.name = f"localhost:{free.getsockname()[1]}"
        self.auth_file = folder / "auth.json"
        token = base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()
        self.auth_file.write_text(json.dumps({"auths": {self.name: {"auth": token}}}))
        self._certificate()
        self._start()

    def _certificate(self) -> None:
        make = ["openssl", "req", "-x509", "-nodes", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"]
        ca = [*make, "-subj", "/CN=made-up CA", "-keyout", self.folder / "ca.key", "-out", self.ca / "ca.crt"]
        leaf = [*make, "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"]
        leaf += ["-addext", "basicConstraints=critical,CA:FALSE", "-CA", self.ca / "ca.crt"]
        leaf += ["-CAkey", self.folder / "ca.key", "-keyout", self.folder / "tls.key", "-out", self.folder / "tls.crt"]
        for command in (ca, leaf):
            subprocess.run(command, check=True, capture_output=True)

    def _start(self) -> None:
        # The registry takes bcrypt only, which openssl passwd does not make.
        salted = ["perl", "-e", 'print crypt($ARGV[0], "\\$2b\\$05\\$abcdefghijklmnopqrstuu")', PASSWORD]
        hashed = subprocess.run(salted, check=True, capture_output=True, text=True).stdout
        (self.folder / "htpasswd").write_text(f"{USER}:{hashed}\n")
        settings = {
            "version": 0.1,
            "log": {"level": "warn", "accesslog": {"disabled": True}},
            "storage": {"filesystem": {"rootdirectory": os.fspath(self.storage)}},
            "auth": {"htpasswd": {"realm": "tests", "path": os.fspath(self.folder / "htpasswd")}},
            "http": {
                "addr": self.name.replace("localhost", "127.0.0.1"),
                "tls": {
                    "certificate": os.fspath(self.folder / "tls.crt"),
                    "key": os.fspath(self.folder / "tls.key"),
                },
            },
        }
        (self.folder / "config.yml").write_text(json.dumps(settings))
        with (self.folder / "log").open("w") as log:
            command = ["docker-registry", "serve", self.folder / "config.yml"]
            self.process = subprocess.Popen(command, stdout=log, stderr=log)
        host, _colon, port = self.name.partition(":")
        for _attempt in range(100):
            with socket.socket() as probe:
                if probe.connect_ex((host, int(port))) == 0:
                    return
            time.sleep(0.1)
        raise AssertionError((self.folder / "log").read_text())

    def push(self, layout: OciLayout, descriptor: dict[str, Any], name: str) -> str:
        """Push an image or a list with its images; return the name by which it is pulled."""
        layout.name(descriptor, "pushed")
        command = ["skopeo", "--insecure-policy", "copy", "--quiet", "--all", "--dest-cert-dir", self.ca]
        command += ["--dest-authfile", self.auth_file, f"oci:{layout.folder}:pushed", f"docker://{self.name}/{name}:1"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return f"{self.name}/{name}"

    def stored(self, digest: str) -> Path:
        """Return the file in which the registry has a blob."""
        name = digest.removeprefix("sha256:")
        return self.storage / "docker/registry/v2/blobs/sha256" / name[:2] / name / "data"

    def close(self) -> None:
        """Stop the registry."""
        self.process.kill()
        self.process.wait()
