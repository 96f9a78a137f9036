# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The options of a virtual machine are declared in three places, which must agree."""

from __future__ import annotations

import sys
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from playing import ansible_playbook

from ansible_collections.sailloft.fleet.plugins.doc_fragments.gpu_domain import ModuleDocFragment
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model import kinds
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.request import spec
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.request.options import domain_options

KEYS = ("type", "elements", "required", "default", "choices")
CLASSES = {
    **dict.fromkeys(kinds.SETTINGS.values(), spec.DeviceRequest),
    "gpus": spec.Gpus,
    "nics": spec.Nics,
    "disks": spec.Disk,
    "interfaces": spec.Interface,
    "boot": spec.Boot,
}


def facts(options: dict[str, Any], below: str) -> dict[str, Any]:
    """Return each option's checked properties without its description; ``below`` is the key of nested options."""
    return {
        name: {
            **{key: option[key] for key in KEYS if key in option},
            **({"options": facts(option[below], below)} if below in option else {}),
        }
        for name, option in options.items()
    }


def test_documentation_and_modules_agree() -> None:
    documented = yaml.safe_load(ModuleDocFragment.DOMAINS)["options"]["domains"]["suboptions"]
    assert facts(documented, "suboptions") == facts(domain_options(), "options")


@pytest.mark.long
def test_the_role_refuses_a_number_instead_of_a_dictionary(tmp_path: Path) -> None:
    play = [
        {
            "hosts": "localhost",
            "gather_facts": False,
            "vars": {"gpu_vm_domains": [{"name": "a", "memory_mib": 1024, "gpus": 8}]},
            "roles": ["sailloft.fleet.gpu_vm"],
        }
    ]
    (tmp_path / "play.yml").write_text(yaml.safe_dump(play), encoding="utf-8")
    status, output = ansible_playbook(
        str(tmp_path / "play.yml"), f"-eansible_python_interpreter={sys.executable}", "-clocal"
    )
    assert status != 0
    assert "virtual machine a: gpus: not a dictionary; write it as name: value pairs" in " ".join(output.split())


def test_spec_and_modules_agree() -> None:
    def check(kind: type, options: dict[str, Any], **required: Any) -> None:
        assert is_dataclass(kind)
        assert {item.name for item in fields(kind)} == set(options)
        made = kind(**required)
        for name, option in options.items():
            if "default" in option:
                assert getattr(made, name) == option["default"], name

    check(spec.DomainSpec, domain_options(), name="a")
    for name, kind in CLASSES.items():
        needed = {key: "/a" for key, option in domain_options()[name]["options"].items() if option.get("required")}
        check(kind, domain_options()[name]["options"], **needed)
