# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Bills of materials of the same image are identical byte by byte."""

from __future__ import annotations

import json

import pytest

from ansible_collections.sailloft.fleet.plugins.module_utils.image.build.sbom import sbom
from ansible_collections.sailloft.fleet.plugins.module_utils.image.store.manifest import ImagePackage

pytest.importorskip("cyclonedx")

PACKAGES = (ImagePackage("bash", "5.2-1", "amd64", "base"), ImagePackage("less", "1:590-2", "amd64", "site"))
LAYERS = {"base": "0" * 64, "site": "1" * 64}


def bill(layers=None, packages=PACKAGES):
    return sbom("node", "debian", "bookworm", layers or LAYERS, packages, 1_783_764_997)


def test_the_sbom_lists_every_package_and_its_layer():
    text = bill().decode()
    assert text.startswith('{\n "')
    assert text.endswith("\n}\n")
    read = json.loads(text)
    needed = {item["ref"]: item.get("dependsOn") for item in read["dependencies"]}
    assert needed[read["metadata"]["component"]["bom-ref"]] == [item["bom-ref"] for item in read["components"]]
    assert (read["bomFormat"], read["specVersion"]) == ("CycloneDX", "1.6")
    assert read["metadata"]["timestamp"] == "2026-07-11T10:16:37+00:00"
    assert [item["purl"] for item in read["components"]] == [
        "pkg:deb/debian/bash@5.2-1?arch=amd64&distro=debian-bookworm",
        "pkg:deb/debian/less@1:590-2?arch=amd64&distro=debian-bookworm",
    ]
    assert read["components"][1]["properties"] == [{"name": "sailloft:layer", "value": "site"}]


def test_the_sbom_names_the_container_image_by_its_digest():
    digest = f"sha256:{'3' * 64}"
    read = json.loads(sbom("node", "debian", "bookworm", LAYERS, PACKAGES, 1_783_764_997, digest))
    assert [(item["type"], item["version"]) for item in read["components"] if item["type"] != "library"] == [
        ("container", digest)
    ]


def test_the_sbom_is_reproducible_and_its_serial_number_depends_on_the_image():
    assert bill() == bill(packages=tuple(reversed(PACKAGES)))
    assert json.loads(bill())["serialNumber"] != json.loads(bill(layers={**LAYERS, "site": "2" * 64}))["serialNumber"]
