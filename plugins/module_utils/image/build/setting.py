# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The places and keys of a build, and the result for one image."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.namespace import apart
from ansible_collections.sailloft.fleet.plugins.module_utils.image.store import sign
from ansible_collections.sailloft.fleet.plugins.module_utils.image.uki.kernel import SecureBoot


@dataclass(frozen=True)
class BuildEnvironment:
    """The places where images are built and published, and the signer: a key file, or a command of the site.

    ``init`` is the text of the first stage's script, ``open_url`` opens a URL as Ansible's function of that name does.
    With ``secure_boot``, each image also has a program that firmware with Secure Boot starts.
    """

    store: Path
    cache: Path
    secret_key: Path | None
    public_key: Path
    password: str | None
    init: str
    check: bool
    open_url: Callable[..., Any]
    signing_command: tuple[str, ...] = ()
    secure_boot: SecureBoot | None = None

    def sign(self, data: bytes, public_key: str) -> bytes:
        """Return the signature of a manifest. Only another process opens the key. Raises ImageError."""
        key = self.secret_key
        if key is None or self.signing_command:
            return sign.sign_by_command(data, self.signing_command, public_key)
        return apart(lambda: sign.sign(data, key, public_key, self.password))


@dataclass(frozen=True)
class BuiltImage:
    """The result for one image: ``built`` names the layers that were not in the cache."""

    name: str
    digest: str
    changed: bool
    built: tuple[str, ...]
    diff: tuple[str, ...]
    size_bytes: int
