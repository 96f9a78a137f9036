# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The inputs of a layer as exact data, and its key."""

from __future__ import annotations

import hashlib
from dataclasses import replace

import pytest
from messages import raises

from ansible_collections.sailloft.fleet.plugins.module_utils.image.build.layer_inputs import layer_inputs
from ansible_collections.sailloft.fleet.plugins.module_utils.image.build.layer_keys import BUILD_FORMAT, layer_key
from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.errors import ImageError
from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.files import canonical_json
from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.model import (
    Archive,
    File,
    Layer,
    Role,
    Services,
    User,
)

LAYER = Layer(
    name="site",
    parent="base",
    distribution="debian",
    suite="bookworm",
    architecture="amd64",
    archives=(Archive("http://a", ("bookworm",), ("main",), "/keys.gpg", {"bookworm": "a" * 64}),),
    packages=("bash",),
    files=(File("/a", "hello"), File("/b", None, "/srv/b", "0600", "1000", "adm")),
    users=(User("ops", ("adm",), "/bin/sh", ("ssh-ed25519 AAAA",)),),
    services=Services(("a.service",), ("b.service",), ("c.service",)),
    roles=(Role("site.x.y", {"secret": 1}),),
    kernel_arguments=("quiet",),
    published_keys=("/etc/test.key",),
    network=True,
)
DIGESTS = {"/b": "b" * 64, "site.x.y": "c" * 64}
INPUTS = {
    "name": "site",
    "parent": "base",
    "distribution": "debian",
    "suite": "bookworm",
    "architecture": "amd64",
    "archives": [
        {
            "url": "http://a",
            "suites": ["bookworm"],
            "components": ["main"],
            "release_sha256": {"bookworm": "a" * 64},
            "keyring": "/keys.gpg",
        }
    ],
    "packages": ["bash"],
    "files": [
        {
            "path": "/a",
            "sha256": hashlib.sha256(b"hello").hexdigest(),
            "mode": "0644",
            "owner": "root",
            "group": "root",
        },
        {"path": "/b", "sha256": "b" * 64, "mode": "0600", "owner": "1000", "group": "adm"},
    ],
    "users": [{"name": "ops", "groups": ["adm"], "shell": "/bin/sh", "authorized_keys": ["ssh-ed25519 AAAA"]}],
    "services": {"enabled": ["a.service"], "disabled": ["b.service"], "masked": ["c.service"]},
    "roles": [
        {
            "name": "site.x.y",
            "vars_sha256": hashlib.sha256(b'{\n  "secret": 1\n}\n').hexdigest(),
            "sha256": "c" * 64,
        }
    ],
    "kernel_arguments": ["quiet"],
    "published_keys": ["/etc/test.key"],
    "network": True,
}


def test_the_inputs_have_every_setting_of_the_layer():
    assert layer_inputs(LAYER, DIGESTS) == INPUTS


def test_the_keyring_of_an_rpm_archive_is_not_an_input():
    rpm = replace(LAYER, distribution="rocky")
    assert "keyring" not in layer_inputs(rpm, DIGESTS)["archives"][0]


def test_the_key_of_a_layer_is_the_digest_of_its_format_inputs_parent_and_lists():
    whole = {"format": BUILD_FORMAT, "layer": INPUTS, "parent": "d" * 64, "releases": {"a": "1"}}
    assert layer_key(LAYER, "d" * 64, {"a": "1"}, DIGESTS) == hashlib.sha256(canonical_json(whole)).hexdigest()


@pytest.mark.parametrize(
    ("digests", "odd"),
    [({}, "/b, site.x.y"), ({**DIGESTS, "/a": "0" * 64}, "/a"), ({"/b": "b" * 64}, "site.x.y")],
)
def test_missing_or_superfluous_digests_are_named(digests, odd):
    with raises(ImageError, "site", odd):
        layer_inputs(LAYER, digests)
