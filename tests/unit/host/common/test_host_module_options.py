# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The options of the modules are those of their documentation: types, defaults, choices and what is required."""

from __future__ import annotations

import importlib

import pytest
import yaml

from ansible_collections.sailloft.fleet.plugins.module_utils.host import bios_settings, packages
from ansible_collections.sailloft.fleet.plugins.module_utils.host.at_boot import now_and_at_boot
from ansible_collections.sailloft.fleet.plugins.module_utils.host.devices import nic_firmware, vf_request
from ansible_collections.sailloft.fleet.plugins.module_utils.host.kernel import kernel_arguments

FUNCTIONS = {"type": "list", "elements": "dict", "required": True}
OPTIONS = {
    "bios_info": bios_settings.options(),
    "gpu_host_boot": now_and_at_boot.options(),
    "kernel_arguments": kernel_arguments.options(),
    "nic_firmware": nic_firmware.options(),
    "sriov": {"functions": {**FUNCTIONS, "options": vf_request.options()}},
}
SHARED = ("type", "elements", "required", "default", "choices")


def facts(options, children):
    """Return what a program can compare of options: their facts by name, those of their parts by NAME.PART."""
    found = {}
    for name, option in (options or {}).items():
        found[name] = {key: option[key] for key in SHARED if key in option}
        for part, of_part in facts(option.get(children), children).items():
            found[f"{name}.{part}"] = of_part
    return found


@pytest.mark.parametrize("name", OPTIONS)
def test_a_module_has_the_documented_options(name):
    pytest.importorskip("ansible")  # Python 3.9 runs the library's tests without it
    module = importlib.import_module(f"ansible_collections.sailloft.fleet.plugins.modules.{name}")
    documented = facts(yaml.safe_load(module.DOCUMENTATION)["options"], "suboptions")
    assert facts(OPTIONS[name], "options") == documented


def test_packages_and_sockets_are_not_compared_unless_they_are_given():
    assert packages.options() == {
        "installed": {"type": "dict", "default": {}},
        "sockets": {"type": "dict", "default": {}},
    }
