# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Base images that are downloaded if they are missing, and never changed later: disks are overlays of them."""

from __future__ import annotations

import hashlib
import http.client
import os
import urllib.request

from ansible_collections.sailloft.fleet.plugins.module_utils.vm.common.errors import DomainError
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.common.units import MIB
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.preflight.disk_use import partial
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.request.spec import Disk

# A server that sends nothing for a minute does not answer any more.
TIMEOUT_S = 60


def download(disk: Disk, name: str) -> None:
    """Download the base of a disk if it is missing. It appears complete and with its checksum, or not at all.

    The proxy is that of the environment (``https_proxy``). Raises DomainError for virtual machine ``name``.
    """
    if not disk.base_url or not disk.base or os.path.lexists(disk.base):
        return
    unfinished = partial(disk.base)
    algorithm, _colon, digits = (disk.base_checksum or "").partition(":")
    digest = hashlib.new(algorithm)
    try:
        os.makedirs(os.path.dirname(disk.base), exist_ok=True)
        # The setting allows http and https only. The opener uses the proxy of the environment.
        opener = urllib.request.build_opener()
        with opener.open(disk.base_url, timeout=TIMEOUT_S) as answer, open(unfinished, "wb") as file:
            while block := answer.read(MIB):
                digest.update(block)
                file.write(block)
            file.flush()
            os.fsync(file.fileno())
        if digest.hexdigest() != digits:
            os.remove(unfinished)
            raise DomainError(
                f"image {disk.base_url} has the checksum {algorithm}:{digest.hexdigest()}, not {disk.base_checksum}",
                "correct the checksum if the vendor published another one; nothing was kept",
                domain=name,
            )
        os.replace(unfinished, disk.base)
    except (OSError, http.client.HTTPException) as error:
        raise DomainError(
            f"image {disk.base_url} cannot be downloaded to {disk.base}: {error}",
            "check the host's way to the server (https_proxy), or copy the file there and set its path as image",
            domain=name,
        ) from error
