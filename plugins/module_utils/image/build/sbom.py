# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The manifest's packages as a CycloneDX bill of materials, made with the library cyclonedx-python-lib."""

from __future__ import annotations

import datetime
import uuid
from typing import Any

from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.errors import ImageError
from ansible_collections.sailloft.fleet.plugins.module_utils.image.families.registry import family_of
from ansible_collections.sailloft.fleet.plugins.module_utils.image.store.manifest import ImagePackage

# A UUID of the project's address in RFC 9562's URL namespace. The serial number is derived from the image's identity.
NAMESPACE = uuid.uuid5(uuid.NAMESPACE_URL, "https://github.com/sailloft/sailloft")


def sbom(
    name: str,
    distribution: str,
    suite: str,
    layers: dict[str, str],
    packages: tuple[ImagePackage, ...],
    epoch: int,
    oci_digest: str | None = None,
) -> bytes:
    """Return CycloneDX 1.6 JSON: the same image gives the same bytes.

    ``layers``: name -> key; ``epoch`` (s since 1970) is its time stamp; ``oci_digest`` is that of the container image
    with which the lowest layer begins. Raises ImageError if the library is missing.
    """
    try:
        from cyclonedx.model import Property
        from cyclonedx.model.bom import Bom
        from cyclonedx.model.component import Component, ComponentType
        from cyclonedx.output.json import JsonV1Dot6
        from packageurl import PackageURL
    except ImportError as error:
        raise ImageError(
            f"Python on the build host has no {error.name}",
            "pip install cyclonedx-python-lib for the Python that ansible_python_interpreter names there",
            subject="the bill of materials",
        ) from error
    bom = Bom()
    identity = "\n".join([name, *(f"{layer} {key}" for layer, key in layers.items())])
    bom.serial_number = uuid.uuid5(NAMESPACE, identity)
    bom.metadata.timestamp = datetime.datetime.fromtimestamp(epoch, datetime.timezone.utc)
    bom.metadata.component = Component(name=name, type=ComponentType.OPERATING_SYSTEM, bom_ref=f"image:{name}")

    def component(package: ImagePackage) -> Any:
        purl = PackageURL(
            type=family_of(distribution).PURL_TYPE,
            namespace=distribution,
            name=package.name,
            version=package.version,
            qualifiers={"arch": package.architecture, "distro": f"{distribution}-{suite}"},
        )
        return Component(
            name=package.name,
            version=package.version,
            type=ComponentType.LIBRARY,
            purl=purl,
            bom_ref=str(purl),
            properties=[Property(name="sailloft:layer", value=package.layer)],
        )

    for package in packages:
        bom.components.add(component(package))
    if oci_digest:
        reference = f"oci:{oci_digest}"
        bom.components.add(
            Component(name="container image", version=oci_digest, type=ComponentType.CONTAINER, bom_ref=reference)
        )
    bom.register_dependency(bom.metadata.component, bom.components)
    return JsonV1Dot6(bom).output_as_string(indent=1).encode() + b"\n"
