# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The places and keys of a build, and the result for one image."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.namespace import apart
from ansible_collections.sailloft.fleet.plugins.module_utils.image.store.sign import MANIFEST, Signer
from ansible_collections.sailloft.fleet.plugins.module_utils.image.uki.kernel import SecureBoot


@dataclass(frozen=True)
class BuildEnvironment:
    """The places where images are built and published, and the signer.

    ``init`` is the text of the first stage's script, ``open_url`` opens a URL as Ansible's function of that name does.
    With ``secure_boot``, each image also has a program that firmware with Secure Boot starts.
    """

    store: Path
    cache: Path
    signer: Signer
    init: str
    check: bool
    open_url: Callable[..., Any]
    secure_boot: SecureBoot | None = None

    def sign(self, data: bytes) -> bytes:
        """Return the signature of a manifest. Only another process opens the key. Raises ImageError."""
        return apart(lambda: self.signer.sign([data], MANIFEST)[0])


@dataclass(frozen=True)
class BuiltImage:
    """The result for one image: ``built`` names its layers that the cache had not before the build."""

    name: str
    digest: str
    changed: bool
    diff: tuple[str, ...]
    size_bytes: int
    built: tuple[str, ...] = ()
