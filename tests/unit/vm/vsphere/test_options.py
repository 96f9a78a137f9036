# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The common options of the vsphere modules."""

from __future__ import annotations

import yaml

from ansible_collections.sailloft.fleet.plugins.doc_fragments.vsphere import ModuleDocFragment
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.vsphere.options import (
    HOSTS,
    LOGIN,
    VMS,
    with_environment,
)


def test_the_password_is_not_logged_and_falls_back_to_the_environment():
    marker = object()
    options = with_environment(LOGIN, marker)
    assert options["password"] == {"type": "str", "no_log": True, "fallback": (marker, ["VMWARE_PASSWORD"])}
    assert "fallback" not in options["port"]
    assert "fallback" not in LOGIN["password"]


def test_options_are_documented_with_their_defaults():
    fragment = ModuleDocFragment
    for options, text in ((LOGIN, fragment.DOCUMENTATION), (VMS, fragment.VMS), (HOSTS, fragment.HOSTS)):
        documented = yaml.safe_load(text)["options"]
        assert {name: (item["type"], item.get("default")) for name, item in documented.items()} == {
            name: (item["type"], item.get("default")) for name, item in options.items()
        }
