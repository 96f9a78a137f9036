# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The inputs of a layer: its whole request, as plain data for its key and its manifest."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.errors import ImageError
from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.files import canonical_json
from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.model import Layer
from ansible_collections.sailloft.fleet.plugins.module_utils.image.families.registry import family_of


def layer_inputs(layer: Layer, content_digests: Mapping[str, str]) -> dict[str, Any]:
    """Return the layer as plain data that is the same on every build machine: files and roles are given by digests.

    ``content_digests`` must have exactly one sha256 for each path of ``layer.sources()`` and for the name of each role
    in ``layer.roles``. Raises ImageError if one is missing or unknown.
    """
    needed = {*layer.sources(), *(role.name for role in layer.roles)}
    if set(content_digests) != needed:
        mismatched = sorted(needed ^ set(content_digests))
        raise ImageError(
            f"digests of its files and roles are missing or superfluous: {', '.join(mismatched)}",
            "give one digest for each file with a source and for each role",
            subject=layer.subject,
        )
    family = family_of(layer.distribution)
    return {
        "name": layer.name,
        "parent": layer.parent,
        "distribution": layer.distribution,
        "suite": layer.suite,
        "architecture": layer.architecture,
        "archives": [
            {
                "url": archive.url,
                "suites": list(archive.suites),
                "components": list(archive.components),
                "release_sha256": dict(archive.release_sha256),
                **family.archive_inputs(archive),
            }
            for archive in layer.archives
        ],
        "packages": list(layer.packages),
        "files": [
            {
                "path": file.path,
                "sha256": content_digests[file.path]
                if file.content is None
                else hashlib.sha256(file.content.encode()).hexdigest(),
                "mode": file.mode,
                "owner": file.owner,
                "group": file.group,
            }
            for file in layer.files
        ],
        "users": [
            {
                "name": user.name,
                "groups": list(user.groups),
                "shell": user.shell,
                "authorized_keys": list(user.authorized_keys),
            }
            for user in layer.users
        ],
        "services": {
            "enabled": list(layer.services.enabled),
            "disabled": list(layer.services.disabled),
            "masked": list(layer.services.masked),
        },
        "roles": [
            # Variables may contain values that must not be in a manifest, which anyone may fetch.
            {
                "name": role.name,
                "vars_sha256": hashlib.sha256(canonical_json(role.vars)).hexdigest(),
                "sha256": content_digests[role.name],
            }
            for role in layer.roles
        ],
        "kernel_arguments": list(layer.kernel_arguments),
        "published_keys": list(layer.published_keys),
        "network": layer.network,
        # Not its name: the same image from another registry, or from a file, gives the same layer.
        **({"oci": layer.oci.digest} if layer.oci else {}),
    }
