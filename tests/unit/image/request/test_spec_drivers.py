# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The drivers that a layer adds to the first stage."""

from __future__ import annotations

import pytest
from image_samples import refused
from messages import Mentions

from ansible_collections.sailloft.fleet.plugins.module_utils.image.request.spec import read_images

BASE = {
    "distribution": "debian",
    "suite": "bookworm",
    "architecture": "amd64",
    "archives": [{"url": "file:///srv/packages", "suites": ["./"]}],
    "packages": ["systemd-sysv"],
}


def read(drivers):
    images = read_images({"node": {"layer": "base"}}, {"base": {**BASE, "drivers": drivers}})
    return images["node"].layers[0].drivers


def test_the_drivers_of_a_layer_are_sorted():
    assert read(["nfp", "8139too"]) == ("8139too", "nfp")


@pytest.mark.parametrize("drivers", ["nfp", ["../nfp"], ["nfp", "nfp"], ["a b"]])
def test_what_is_no_list_of_modules_is_refused(drivers):
    assert refused(read, drivers) == Mentions("node_image_layers.base", "drivers")
