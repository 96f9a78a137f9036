# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Read the container image with which a layer without parent begins."""

from __future__ import annotations

import re

from ansible_collections.sailloft.fleet.plugins.module_utils.common import values
from ansible_collections.sailloft.fleet.plugins.module_utils.common.settings import Settings
from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.model import OciImage

DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
# The distribution specification's repository names, after a registry with a dot, a port or the name localhost: others
# would be names on Docker Hub (github.com/distribution/reference, "domain").
IMAGE = re.compile(
    r"(?=[^/]*[.:]|localhost/)[a-z0-9][a-z0-9.-]*(:[0-9]{1,5})?(/[a-z0-9]+((\.|_|__|-+)[a-z0-9]+)*)+",
)


def read_oci(layer: Settings) -> OciImage | None:
    """Return the layer's container image, None if it has none. Raises ImageError."""
    if "oci" not in layer.data:
        return None
    settings = layer.part("oci")
    settings.only("image", "archive", "digest", "auth_file", "verify_tls")
    if ("image" in settings.data) == ("archive" in settings.data):
        raise settings.refuse("it needs either image or archive", "give one of them")
    image = settings.value(
        "image", values.matching(IMAGE, "write REGISTRY/NAME without tag and digest, like docker.io/library/debian")
    )
    archive = settings.value("archive", values.path)
    command = (
        f"skopeo inspect --format '{{{{.Digest}}}}' {f'docker://{image}:TAG' if image else f'oci-archive:{archive}'}"
    )
    if "digest" not in settings.data:
        raise settings.refuse("digest is missing, and a name or tag may get another content", f"run: {command}")
    digest = settings.value(
        "digest", values.matching(DIGEST, f"give sha256: and 64 hexadecimal digits; run: {command}")
    )
    for setting in ("auth_file", "verify_tls") if archive else ():
        if setting in settings.data:
            raise settings.refuse_setting(setting, "an archive is a file, not a registry", "remove it")
    return OciImage(
        digest,
        image,
        archive,
        settings.value("auth_file", values.path),
        settings.value("verify_tls", values.flag, True),
    )
