# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The comparison uses the arguments of the roles' tasks, and leaves cases that it cannot decide to the role."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml
from ansible.errors import AnsibleConnectionFailure
from ansible.parsing.dataloader import DataLoader
from ansible.playbook.play_context import PlayContext
from ansible.playbook.task import Task
from ansible.template import Templar, trust_as_template
from messages import Mentions

from ansible_collections.sailloft.fleet.plugins.action import gpu_server_compare
from ansible_collections.sailloft.fleet.plugins.module_utils.host import compare
from ansible_collections.sailloft.fleet.plugins.modules import gpu_host_compare
from ansible_collections.sailloft.fleet.plugins.plugin_utils.gpu_server_arguments import refused

ROLES = Path(__file__).parents[3] / "roles"
OMITTED = "left out"
PACKAGES = {"installed": {"Debian": ["ovmf"]}, "sockets": {}}


def load(path):
    return yaml.safe_load((ROLES / path).read_text(encoding="utf-8"))


def trusted(value):
    """Mark the strings within as templates, as Ansible's loader marks those of roles."""
    if isinstance(value, dict):
        return {key: trusted(each) for key, each in value.items()}
    if isinstance(value, list):
        return [trusted(each) for each in value]
    return trust_as_template(value) if isinstance(value, str) else value


def by_templates(role, files, **given):
    """Return by module the arguments of the role's tasks, as Ansible computes them."""
    names = {"inventory_hostname": "hv01", "ansible_connection": "ssh", "omit": OMITTED}
    variables = {**load(f"{role}/defaults/main.yml"), **given, **names}
    if (ROLES / role / "vars/main.yml").is_file():
        variables.update(load(f"{role}/vars/main.yml"))
    templar = Templar(loader=DataLoader(), variables=trusted(variables))
    found = {}
    for task in [task for file in files for task in load(f"{role}/tasks/{file}.yml")]:
        for key, arguments in task.items():
            if key.startswith("sailloft.fleet.") and key != "sailloft.fleet.report":
                made = {name: templar.template(trusted(value)) for name, value in arguments.items()}
                found[key.split(".")[2]] = {name: value for name, value in made.items() if value != OMITTED}
    return found


class Ask(gpu_server_compare.ActionModule):
    """The action plugin, with ``answer`` (a result, or an error to raise) in place of a host."""

    def __init__(self, answer, transport="ssh", **given):
        task = Task.load({"action": "sailloft.fleet.gpu_server_compare", "args": given})

        connection = SimpleNamespace(transport=transport, _shell=SimpleNamespace(tmpdir="/nowhere"))
        super().__init__(task, connection, PlayContext(), DataLoader(), None, None)
        self.answer, self.asked = answer, None

    def run(self, tmp=None, task_vars=None):
        task_vars = {"inventory_hostname": "hv01", **task_vars}
        self._templar = Templar(loader=DataLoader(), variables=task_vars)
        return super().run(tmp, task_vars)

    def _execute_module(self, module_name=None, module_args=None, *_more, **_named):
        assert module_name == "sailloft.fleet.gpu_host_compare"
        self.asked = module_args
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


ASKED = {name: [] for name in (*compare.PARTS, "gpu_domain")}
HELD = {"differences": ASKED, "domains": [{"name": "train", "nccl_topology": "<system/>"}]}


def asked(**variables):
    action = Ask(HELD)
    action.run(task_vars=variables)
    return action.asked


HOSTS = {
    "defaults": {},
    "all": {
        "gpu_host_iommu": "translated",
        "gpu_host_hugepages": [{"node": 0, "size_mib": 1024, "count": 4}],
        "gpu_host_kernel_arguments": ["pci=realloc"],
        "gpu_host_kernel_arguments_removed": ["quiet"],
        "gpu_host_kernel_settings": {"avic": True, "ksm": False},
        "gpu_host_sriov": [{"devices": ["15b3:1021"], "count": 8}],
        "gpu_host_vfio": ["gpu"],
        "gpu_host_vfio_released": ["nic"],
        "gpu_host_nic_firmware": [{"devices": ["nic"], "values": {"ATS_ENABLED": True}}],
        "gpu_host_bios_required": ["acs"],
        "gpu_host_acs_devices": ["gpu"],
        "gpu_host_pci": [],
    },
    "iommu": {"gpu_host_iommu": "unchanged"},
    "pages later": {
        "gpu_host_hugepages": [{"node": 0, "size_mib": 2, "count": 4}],
        "gpu_host_hugepages_at_boot": False,
    },
    "words for truth": {
        "gpu_host_hugepages": [{"node": 0, "size_mib": 2, "count": 4}],
        "gpu_host_hugepages_at_boot": "no",
        "gpu_host_keep_drivers_off": "false",
        "gpu_host_acs_at_boot": "0",
        "gpu_host_nic_firmware_by_family": "off",
    },
    "bare metal": {"gpu_host_acs": "bare_metal"},
    "ACS as it is": {"gpu_host_acs": "unchanged"},
    "ACS by hand": {"gpu_host_acs": [{"devices": ["bridge"], "acs": ["SourceValid"]}]},
    "another word": {"gpu_host_acs": "Auto"},
    "a guest with the whole host": {"gpu_vm_whole_host": {"image": "/a.qcow2", "bridge": "br0"}},
    "a list of guests instead": {
        "gpu_vm_whole_host": {"image": "/a.qcow2", "bridge": "br0"},
        "gpu_vm_domains": [{"name": "train", "memory_mib": 4096}],
    },
}


@pytest.mark.parametrize("name", HOSTS)
def test_the_host_is_compared_with_the_arguments_of_the_tasks_that_set_it(name):
    expected = by_templates("gpu_host", ["prepare", "next_boot", "settle"], **HOSTS[name])
    given = asked(**HOSTS[name])
    for part in ("bios_info", "kernel_arguments", "nic_firmware", "gpu_host_boot"):
        assert given[part] == expected[part], part


def test_the_packages_are_those_of_the_role_unless_it_installs_none():
    variables = load("gpu_host/vars/main.yml")
    assert asked()["packages"] == {
        "installed": variables["__gpu_host_packages"],
        "sockets": variables["__gpu_host_sockets"],
    }
    assert asked(gpu_host_packages_install="false")["packages"] == {}


@pytest.mark.parametrize(
    "given",
    [
        {},
        {
            "gpu_vm_domains": [{"name": "train", "memory_mib": 4096}],
            "gpu_vm_gpu_module_ids": {"0000:13:00.0": 1},
            "gpu_vm_gpu_partitions": {"1": [1, 2]},
            "gpu_vm_accelerators": {"1002:744c": True},
            "gpu_vm_state": "stopped",
            "gpu_vm_allow_restart": True,
            "gpu_vm_shutdown_timeout_s": 5,
            "gpu_vm_remove_disks": True,
        },
    ],
)
def test_virtual_machines_are_compared_with_the_arguments_of_the_task_that_sets_them(given):
    assert asked(**given)["gpu_domain"] == by_templates("gpu_vm", ["libvirt"], **given)["gpu_domain"]


def test_a_variable_of_a_host_may_be_a_template():
    of_host = trusted({"pages": 4, "gpu_host_hugepages": "{{ [{'node': 0, 'size_mib': 2, 'count': pages}] }}"})
    assert asked(**of_host)["gpu_host_boot"]["hugepages"] == {"pages": [{"node": 0, "size_mib": 2, "count": 4}]}


def test_the_action_requests_every_part_that_the_module_compares():
    assert list(ASKED) == [part for parts in gpu_server_compare.PARTS.values() for part in parts]
    assert set(asked()) == set(ASKED)
    one = Ask(HELD, roles=["gpu_vm"])
    result = one.run(task_vars={})
    assert set(one.asked) == {"gpu_domain"}
    assert result["held"] == {"gpu_vm": True}


def test_the_defaults_contain_no_templates():
    """The action reads the defaults itself, without templating."""
    assert "{{" not in str(gpu_server_compare.DEFAULTS)
    assert "{{" not in str(gpu_server_compare.PACKAGES)


def test_a_role_has_nothing_to_do_if_no_part_of_it_differs():
    result = Ask(HELD).run(task_vars={})
    assert (result["held"], result["changed"]) == ({"gpu_host": True, "gpu_vm": True}, False)
    assert result["domains"] == HELD["domains"]
    for part in ASKED:
        answer = {"differences": {**ASKED, part: ["it differs"]}, "domains": []}
        result = Ask(answer).run(task_vars={})
        role = "gpu_vm" if part == "gpu_domain" else "gpu_host"
        assert [name for name, held in result["held"].items() if not held] == [role]
        assert result["differences"][role] == [f"{part}: it differs"]


def test_parts_after_the_first_difference_are_reported_as_not_compared():
    answer = {"differences": {"packages": [], "bios_info": ["it differs"]}, "domains": []}
    result = Ask(answer).run(task_vars={})
    assert result["held"] == {"gpu_host": False, "gpu_vm": False}
    assert result["differences"] == {
        "gpu_host": ["bios_info: it differs"],
        "gpu_vm": [Mentions("compared")],
    }


@pytest.mark.parametrize(
    "answer",
    [
        {"failed": True, "msg": "it is no x86_64"},
        {"unreachable": True, "msg": "it is no x86_64"},
        AnsibleConnectionFailure("it is no x86_64"),
    ],
)
def test_a_failed_comparison_confirms_no_role_and_does_not_fail_the_task(answer):
    result = Ask(answer).run(task_vars={})
    assert result["held"] == {"gpu_host": False, "gpu_vm": False}
    assert result["differences"]["gpu_host"] == ["it is no x86_64"]
    assert not result.get("failed")
    assert not result.get("unreachable")


@pytest.mark.parametrize(
    ("given", "transport", "role"),
    [
        ({"gpu_host_iommu": "pt"}, "ssh", "gpu_host"),
        ({"gpu_host_serial": 0}, "ssh", "gpu_host"),
        ({"gpu_host_state": "absent"}, "ssh", "gpu_host"),
        ({"gpu_vm_state": "gone"}, "ssh", "gpu_vm"),
        ({"gpu_vm_backend": "vsphere"}, "ssh", "gpu_vm"),
        ({"gpu_vm_domains": trust_as_template("{{ nowhere }}")}, "ssh", "gpu_vm"),
        ({}, "community.general.chroot", "gpu_host"),
    ],
)
def test_a_role_is_not_compared_if_the_comparison_cannot_decide(given, transport, role):
    action = Ask(HELD, transport)
    result = action.run(task_vars=given)
    assert [name for name, held in result["held"].items() if not held] == [role]
    assert not set(action.asked) & set(gpu_server_compare.PARTS[role])


def test_no_module_runs_if_no_role_is_compared():
    action = Ask(AssertionError("asked"), roles=["gpu_vm"])
    assert action.run(task_vars={"gpu_vm_backend": "vsphere"})["held"] == {"gpu_vm": False}
    assert action.asked is None


@pytest.mark.parametrize(
    ("serial", "most", "wrong"),
    [
        (1, 0, False),
        ("10%", 100, False),
        ("100%", 0, False),
        (0, 0, True),
        ("101%", 0, True),
        ("10 %", 0, True),
        (1, 101, True),
        (1, -1, True),
    ],
)
def test_the_comparison_refuses_the_same_wave_settings_as_the_role(serial, most, wrong):
    of = {"gpu_host_serial": serial, "gpu_host_max_fail_percentage": most}
    assert refused(of) is wrong
    values = {**load("gpu_host/defaults/main.yml"), **load("gpu_host/vars/main.yml"), **of}
    templar = Templar(loader=DataLoader(), variables=trusted(values))
    valid = [templar.template(trusted(values[f"__gpu_host_{name}_valid"])) for name in ("serial", "max_fail")]
    assert all(valid) is not wrong


def test_the_options_of_the_module_are_the_compared_parts():
    documented = yaml.safe_load(gpu_host_compare.DOCUMENTATION)["options"]
    assert list(documented) == list(ASKED)
