# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The values that the role computes, and the options that it shares with modules."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from ansible.module_utils.common.arg_spec import ArgumentSpecValidator
from ansible.parsing.dataloader import DataLoader
from ansible.template import Templar, trust_as_template

from ansible_collections.sailloft.fleet.plugins.module_utils.host.devices import vf_request
from ansible_collections.sailloft.fleet.plugins.modules import sriov

ROLE = Path(__file__).parents[3] / "roles" / "gpu_host"


def load(path):
    return yaml.safe_load((ROLE / path).read_text(encoding="utf-8"))


OPTIONS = load("meta/argument_specs.yml")["argument_specs"]["main"]["options"]


def variable(name, **given):
    """Return a variable of the role's vars for these values of others."""
    variables = {**load("defaults/main.yml"), **load("vars/main.yml"), **given}
    # The role's defaults and vars are trusted templates, as Ansible's loader marks them.
    variables = {
        name: trust_as_template(value) if isinstance(value, str) else value for name, value in variables.items()
    }
    templar = Templar(loader=DataLoader(), variables=variables)
    return templar.template(trust_as_template(variables[name]))


@pytest.mark.parametrize(
    ("given", "predicted"),
    [
        ({"ansible_check_mode": True}, False),
        ({"ansible_check_mode": True, "__gpu_host_rebooted": True}, True),
        ({"ansible_check_mode": True, "__gpu_host_installed": {"changed": True}}, True),
        ({"ansible_check_mode": True, "__gpu_host_installed": {"skipped": True}}, False),
        ({"ansible_check_mode": False, "__gpu_host_rebooted": True, "__gpu_host_installed": {"changed": True}}, False),
    ],
)
def test_only_check_mode_expects_failures_and_only_before_a_reboot_or_packages(given, predicted):
    assert variable("__gpu_host_only_predicted", **given) is predicted


@pytest.mark.parametrize(("due", "lines"), [(True, ["limit"]), (False, ["limit", "reboot"])])
def test_the_reasons_of_a_reboot_are_shown_unless_it_follows(due, lines):
    given = {
        "__gpu_host_configured": {"notes": ["limit"]},
        "gpu_host_reboot": {"due": due},
        "gpu_host_pending": ["reboot"],
    }
    assert variable("__gpu_host_lines", **given) == lines


def test_the_kernels_name_of_an_iommu_mode_is_refused_with_the_valid_names():
    """Ansible refuses it in the same way before the role's first task."""
    errors = ArgumentSpecValidator(OPTIONS).validate({"gpu_host_iommu": "pt"}).error_messages
    assert errors == ["value of gpu_host_iommu must be one of: passthrough, translated, unchanged, got: pt"]


def checked(options, below):
    """Return the fields of each option that Ansible checks; ``below`` is the key of nested options."""
    keys = ("type", "elements", "required", "default", "choices")
    return {
        name: {
            **{key: option[key] for key in keys if key in option},
            **({"options": checked(option[below], below)} if below in option else {}),
        }
        for name, option in options.items()
    }


def test_vfs_have_the_same_options_in_module_and_documentation():
    documented = yaml.safe_load(sriov.DOCUMENTATION)["options"]["functions"]["suboptions"]
    assert checked(documented, "suboptions") == checked(vf_request.options(), "options")
