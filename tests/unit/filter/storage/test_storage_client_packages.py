# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Packages follow from the settings, which are checked first."""

from __future__ import annotations

import pytest
from ansible.errors import AnsibleFilterError
from messages import raises

from ansible_collections.sailloft.fleet.plugins.filter.storage_client_packages import storage_client_packages

HOME = {"source": "nas1:/home", "path": "/home"}


def test_only_the_tools_of_what_is_wanted_are_installed():
    assert storage_client_packages({"local": [], "nfs": [HOME], "s3": []}, "RedHat") == ["nfs-utils", "cachefilesd"]
    assert storage_client_packages({}, "Debian") == []


@pytest.mark.parametrize(
    ("settings", "family", "words"),
    [
        ({"nfs": [{**HOME, "sorce": "nas1:/"}]}, "Debian", ["sorce"]),
        ({"local": [{"name": "cache"}]}, "Debian", ["drives"]),
        ({"nfs": [HOME]}, "Suse", ["Suse", "packages_install"]),
    ],
)
def test_wrong_settings_are_refused_before_packages_are_installed(settings, family, words):
    with raises(AnsibleFilterError, *words):
        storage_client_packages(settings, family)
