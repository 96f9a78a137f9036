# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The requested images and layers, as ``spec.read_images`` returns them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Archive:
    """A source of packages. ``release_sha256``: suite -> digest of its InRelease, or "repomd" -> that of repomd.xml."""

    url: str
    suites: tuple[str, ...] = ()
    components: tuple[str, ...] = ()
    keyring: str | None = None
    release_sha256: dict[str, str] = field(default_factory=dict)

    def local_folder(self) -> str | None:
        """Return the directory of the build host that is this archive, None for one on a server."""
        return self.url[len("file://") :] if self.url.startswith("file://") else None


@dataclass(frozen=True)
class File:
    """A file of the image, from ``content`` or from the build machine's file ``source``; the other one is None."""

    path: str
    content: str | None = None
    source: str | None = None
    mode: str = "0644"
    owner: str = "root"
    group: str = "root"


@dataclass(frozen=True)
class User:
    """A user of the image; ``groups`` are in addition to the group with the user's name."""

    name: str
    groups: tuple[str, ...] = ()
    shell: str = "/bin/bash"
    authorized_keys: tuple[str, ...] = ()


@dataclass(frozen=True)
class Services:
    """systemd units by the state that they get; each name has its type ("ssh.service")."""

    enabled: tuple[str, ...] = ()
    disabled: tuple[str, ...] = ()
    masked: tuple[str, ...] = ()


@dataclass(frozen=True)
class Role:
    """An Ansible role to apply inside the image, with its variables (plain data)."""

    name: str
    vars: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class OciImage:
    """A container image, at ``image`` of a registry or in ``archive``, a file of the build host; the other is None.

    ``digest`` ("sha256:...") is that of its manifest, or of a list of manifests. ``auth_file`` has the credentials.
    """

    digest: str
    image: str | None = None
    archive: str | None = None
    auth_file: str | None = None
    verify_tls: bool = True

    @property
    def reference(self) -> str:
        """The image, as errors name it."""
        return f"{self.image or self.archive}@{self.digest}"


@dataclass(frozen=True)
class Layer:
    """One layer: the changes on top of ``parent``.

    ``distribution``, ``suite`` and ``architecture`` are the lowest layer's. ``archives`` are all sources of its
    packages: its ancestors' first, then its own. All other fields have only the layer's own part.
    """

    name: str
    parent: str | None
    distribution: str
    suite: str
    architecture: str
    archives: tuple[Archive, ...]
    packages: tuple[str, ...] = ()  # sorted
    files: tuple[File, ...] = ()  # by path
    users: tuple[User, ...] = ()
    services: Services = field(default_factory=Services)
    roles: tuple[Role, ...] = ()
    kernel_arguments: tuple[str, ...] = ()
    drivers: tuple[str, ...] = ()  # kernel modules of the first stage beside its usual ones, sorted
    published_keys: tuple[str, ...] = ()  # paths of private keys that are no secret
    network: bool = False  # whether scripts of packages and roles have the build host's network
    oci: OciImage | None = None  # the tree with which a layer without parent begins

    @property
    def subject(self) -> str:
        """The layer, as the subject of an error."""
        return f"layer {self.name}"

    def sources(self) -> dict[str, str]:
        """Return path in the image -> file on the build machine, for the files that are not given by their content."""
        return {file.path: file.source for file in self.files if file.source is not None}


@dataclass(frozen=True)
class Image:
    """A chain of layers, lowest first. ``kernel_arguments`` are the layers', lowest first, then the image's own."""

    name: str
    layers: tuple[Layer, ...]
    kernel_arguments: tuple[str, ...]
    writable_mib: int
