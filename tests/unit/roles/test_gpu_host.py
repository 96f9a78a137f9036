# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The defaults of the role, compared with the library, and the values that it computes from its variables."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from ansible.module_utils.common.arg_spec import ArgumentSpecValidator
from ansible.parsing.dataloader import DataLoader
from ansible.template import Templar, trust_as_template

from ansible_collections.sailloft.fleet.plugins.module_utils.host.devices import acs_bits, vf_request
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.gpudirect.acs_rules import PURPOSES
from ansible_collections.sailloft.fleet.plugins.modules import sriov

ROLE = Path(__file__).parents[3] / "roles" / "gpu_host"


def load(path):
    return yaml.safe_load((ROLE / path).read_text(encoding="utf-8"))


DEFAULTS = load("defaults/main.yml")
OPTIONS = load("meta/argument_specs.yml")["argument_specs"]["main"]["options"]


def variable(name, **given):
    """Return a variable of the role's vars for these values of others."""
    variables = {**DEFAULTS, **load("vars/main.yml"), **given}
    # The role's defaults and vars are trusted templates, as Ansible's loader marks them.
    variables = {
        name: trust_as_template(value) if isinstance(value, str) else value for name, value in variables.items()
    }
    templar = Templar(loader=DataLoader(), variables=variables)
    return templar.template(trust_as_template(variables[name]))


def tuning(**given):
    """Return the role's arguments of pci_tuning for these variables."""
    return variable("__gpu_host_pci_tuning", **given)


@pytest.mark.parametrize(
    ("compared", "held"),
    [
        ({"held": {"gpu_host": True}}, True),
        ({"held": {"gpu_host": False}}, False),
        ({"skipped": True}, False),
    ],
)
def test_a_host_counts_as_configured_only_if_the_comparison_confirmed_it(compared, held):
    assert variable("__gpu_host_held", __gpu_host_compared=compared) is held


@pytest.mark.parametrize(
    ("known", "again"),
    [
        ({}, True),
        ({"skipped": True}, True),
        ({"held": {"gpu_host": True}}, True),
        ({"held": {"gpu_host": False}}, False),
    ],
)
def test_a_host_is_compared_unless_the_playbook_already_found_differences(known, again):
    """An earlier play's result that the host has every setting may be outdated."""
    (compare,) = [task for task in load("tasks/compare.yml") if "sailloft.fleet.gpu_server_compare" in task]
    given = {"__gpu_server_compared": known} if known else {}
    assert variable("__when", __when=f"{{{{ {compare['when']} }}}}", **given) is again


@pytest.mark.parametrize(
    ("tasks", "held", "given", "file"),
    [
        ("main", True, {}, None),
        ("main", False, {}, "present.yml"),
        ("main", False, {"gpu_host_state": "absent"}, "absent.yml"),
        ("before_reboot", True, {}, None),
        ("before_reboot", False, {}, "without_reboot.yml"),
        ("before_reboot", False, {"gpu_host_state": "absent"}, "absent.yml"),
    ],
)
def test_a_host_with_every_setting_loads_no_tasks(tasks, held, given, file):
    """There is one include for all: Ansible starts a process per host for each include, even for a skipped one."""
    _tasks, included = load(f"tasks/{tasks}.yml")
    included_file = included["ansible.builtin.include_tasks"]
    name = included_file["file"] if isinstance(included_file, dict) else included_file
    of_host = {
        "__gpu_host_compared": {"held": {"gpu_host": held}},
        "__file": name,
        "__when": f"{{{{ {included['when']} }}}}",
        **given,
    }
    assert variable("__when", **of_host) is (file is not None)
    if file:
        assert (variable("__file", **of_host), (ROLE / "tasks" / file).is_file()) == (file, True)


def test_acs_is_computed_unless_it_is_unchanged_or_a_list_of_settings():
    reads = DEFAULTS["gpu_host_pci"]
    by_port = {"devices": ["gpu", "nic"], "purpose": "virtual_machines"}
    assert tuning() == {"settings": reads, "acs_by_port": by_port}
    assert tuning(gpu_host_acs="bare_metal")["acs_by_port"]["purpose"] == "bare_metal"
    assert tuning(gpu_host_acs="unchanged") == {"settings": reads}
    by_hand = [{"devices": ["bridge"], "acs": list(acs_bits.DEFAULT)}]
    assert tuning(gpu_host_acs=by_hand) == {"settings": reads + by_hand}


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


def test_vfs_have_the_same_options_in_role_module_and_documentation():
    documented = yaml.safe_load(sriov.DOCUMENTATION)["options"]["functions"]["suboptions"]
    wanted = checked(vf_request.options(), "options")
    assert checked(documented, "suboptions") == wanted
    assert checked(OPTIONS["gpu_host_sriov"]["options"], "options") == wanted


@pytest.mark.parametrize("wrong", ["yes", "Auto", ""])
def test_an_invalid_acs_value_gives_an_unknown_purpose(wrong):
    """The comparison then confirms no setting, and the role's own check of the value follows."""
    by_port = tuning(gpu_host_acs=wrong)["acs_by_port"]
    assert by_port["purpose"] not in PURPOSES
