# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The variable node_image_secure_boot."""

from __future__ import annotations

from pathlib import Path

import pytest
from messages import raises

from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.errors import ImageError
from ansible_collections.sailloft.fleet.plugins.module_utils.image.request.secure_boot import read_secure_boot

KEY = {"certificate": "/etc/sailloft/boot.crt", "key": "/etc/sailloft/boot.key"}


@pytest.mark.parametrize("data", [None, {}, {"certificate": None, "key": None, "signing_command": None}])
def test_a_site_without_a_certificate_signs_nothing(data):
    assert read_secure_boot(data) is None


def test_the_tools_are_those_of_debian_13_unless_the_site_pins_others():
    found = read_secure_boot(KEY)
    assert (found.certificate, found.key, found.command) == (Path(KEY["certificate"]), Path(KEY["key"]), ())
    assert (found.archive.url, found.archive.suites) == ("http://deb.debian.org/debian", ("trixie",))
    assert found.archive.keyring
    pinned = {"url": "http://mirror.example/debian", "release_sha256": {"trixie": "0" * 64}}
    command = {"certificate": KEY["certificate"], "signing_command": ["ssh", "signer"], "archive": pinned}
    found = read_secure_boot({**command, "policy_signing_command": ["sign"]})
    assert (found.key, found.command, found.policy_command) == (None, ("ssh", "signer"), ("sign",))
    assert (found.archive.url, found.archive.release_sha256) == (pinned["url"], pinned["release_sha256"])


@pytest.mark.parametrize(
    ("data", "facts"),
    [
        ({"key": KEY["key"]}, ["certificate"]),
        ({"certificate": KEY["certificate"]}, ["key", "signing_command"]),
        ({**KEY, "signing_command": ["sign"]}, ["key", "signing_command"]),
        ({**KEY, "policy_signing_command": ["sign"]}, ["key", "policy_signing_command"]),
        ({"policy_signing_command": ["sign"]}, ["certificate"]),
        ({**KEY, "certificate": "boot.crt"}, ["certificate", "'boot.crt'"]),
        ({**KEY, "archive": {"suite": "trixie"}}, ["archive", "suite"]),
        ({**KEY, "password": "x"}, ["password"]),
    ],
)
def test_settings_that_cannot_sign_are_refused(data, facts):
    with raises(ImageError, "node_image_secure_boot", *facts):
        read_secure_boot(data)
