# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The module gets the variables of the roles; a comparison leaves what it cannot decide to the role."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml
from ansible.errors import AnsibleConnectionFailure, AnsibleError
from ansible.parsing.dataloader import DataLoader
from ansible.playbook.play_context import PlayContext
from ansible.playbook.task import Task
from ansible.template import Templar, trust_as_template

from ansible_collections.sailloft.fleet.plugins.action import gpu_host
from ansible_collections.sailloft.fleet.plugins.module_utils.host import wanted

ROLES = Path(__file__).parents[3] / "roles"
BOTH = ["gpu_host", "gpu_vm"]
LISTS = {name: [] for name in ("missing", "notes", "failures", "pending")}
SAME = {"changed": False, "diff": {"before": {}, "after": {}}, **LISTS, "reboot_required": False, "reboot_due": False}
MACHINE = {"name": "train", "nccl_topology": "<system/>"}
HELD = {**SAME, "virtual_machines": {"domains": [MACHINE], "differences": []}}


def load(path):
    return yaml.safe_load((ROLES / path).read_text(encoding="utf-8"))


class Call(gpu_host.ActionModule):
    """The action plugin, with ``answer`` (a result, or an error to raise) in place of a host."""

    def __init__(self, answer=HELD, transport="ssh", **given):
        task = Task.load({"action": "sailloft.fleet.gpu_host", "args": given})
        connection = SimpleNamespace(transport=transport, _shell=SimpleNamespace(tmpdir="/nowhere"))
        super().__init__(task, connection, PlayContext(), DataLoader(), None, None)
        self.answer, self.asked = answer, None

    def run(self, tmp=None, task_vars=None):
        task_vars = {"inventory_hostname": "hv01", **task_vars}
        self._templar = Templar(loader=DataLoader(), variables=task_vars)
        return super().run(tmp, task_vars)

    def _execute_module(self, module_name=None, module_args=None, *_more, **_named):
        assert module_name == "sailloft.fleet.gpu_host"
        self.asked = module_args
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


def asked(transport="ssh", task=(), **variables):
    action = Call(transport=transport, **dict(task))
    action.run(task_vars=variables)
    return action.asked


def test_the_module_gets_the_defaults_and_packages_of_the_role():
    variables = load("gpu_host/vars/main.yml")
    expected = {name: value for name, value in wanted.defaults().items() if name not in ("parts", "now", "outcomes")}
    expected["packages"] = variables["__gpu_host_packages"]
    expected["sockets"] = variables["__gpu_host_sockets"]
    assert asked() == expected
    without = asked(packages_install="false")
    assert (without["packages"], without["sockets"]) == ({}, {})
    assert "{{" not in str(expected)


def test_variables_are_templated_and_have_the_types_of_the_role():
    template = trust_as_template("{{ [{'node': 0, 'size_mib': 2, 'count': pages}] }}")
    given = asked(pages=4, gpu_host_hugepages=template, gpu_host_reboot_ok="yes", gpu_host_acs_at_boot="0")
    assert given["hugepages"] == [{"node": 0, "size_mib": 2, "count": 4}]
    assert (given["reboot_ok"], given["acs_at_boot"]) == (True, False)


WHOLE_HOST = {"image": "/a.qcow2", "bridge": "br0"}


def test_the_host_gets_the_settings_of_the_virtual_machine_with_the_whole_host_unless_others_are_listed():
    assert asked(gpu_vm_whole_host=WHOLE_HOST)["whole_host"] == WHOLE_HOST
    listed = {"gpu_vm_whole_host": WHOLE_HOST, "gpu_vm_domains": [{"name": "train"}]}
    assert asked(**listed)["whole_host"] == {}
    with pytest.raises(AnsibleError):
        asked(gpu_vm_whole_host=trust_as_template("{{ nowhere }}"))
    compared = asked(task={"compare": BOTH}, gpu_vm_whole_host=WHOLE_HOST)
    assert compared["whole_host"] == WHOLE_HOST
    assert compared["gpu_domain"]["whole_host"] == {**WHOLE_HOST, "name": "hv01-vm"}
    assert asked(task={"compare": BOTH})["gpu_domain"]["whole_host"] == {}


def test_an_option_of_the_task_precedes_the_variable():
    task = {"parts": ["settings"], "packages": {}}
    given = asked(task=task, gpu_host_iommu="translated")
    assert (given["parts"], given["packages"], given["iommu"]) == (["settings"], {}, "translated")


def test_an_image_gets_only_settings_for_its_boot():
    given = asked("community.general.chroot")
    assert (given["parts"], given["now"]) == (["settings"], False)


def test_a_role_has_nothing_to_do_if_nothing_differs():
    action = Call(compare=BOTH)
    result = action.run(task_vars={})
    assert action._task.check_mode
    assert (result["held"], result["changed"]) == ({"gpu_host": True, "gpu_vm": True}, False)
    assert result["unread"] == ""
    assert result["domains"] == [MACHINE]
    assert result["time"] > 0


@pytest.mark.parametrize(
    "difference",
    [
        {"diff": {"before": {}, "after": {"/etc/default/grub": "x"}}},
        *({name: ["it differs"]} for name in LISTS),
    ],
)
def test_a_host_that_differs_or_has_something_to_report_is_not_held(difference):
    result = Call({**SAME, **difference}, compare=BOTH).run(task_vars={})
    assert result["held"] == {"gpu_host": False, "gpu_vm": False}
    assert result["differences"]["gpu_host"]


def test_virtual_machines_may_differ_on_a_host_that_does_not():
    machines = {"domains": [], "differences": ["train: start"]}
    result = Call({**SAME, "virtual_machines": machines}, compare=BOTH).run(task_vars={})
    assert result["held"] == {"gpu_host": True, "gpu_vm": False}
    assert result["differences"] == {"gpu_host": [], "gpu_vm": ["train: start"]}


def test_virtual_machines_are_compared_with_the_arguments_of_the_task_that_sets_them():
    (task,) = [task for task in load("gpu_vm/tasks/libvirt.yml") if "sailloft.fleet.gpu_domain" in task]
    given = asked(task={"compare": ["gpu_vm"]}, gpu_vm_domains=[{"name": "train"}], gpu_vm_state="stopped")
    assert given["parts"] == []
    assert set(given["gpu_domain"]) == set(task["sailloft.fleet.gpu_domain"])
    assert task["sailloft.fleet.gpu_domain"]["domains"] == "{{ gpu_vm_domains }}"
    assert (given["gpu_domain"]["domains"], given["gpu_domain"]["state"]) == ([{"name": "train"}], "stopped")


@pytest.mark.parametrize(
    "answer",
    [
        {"failed": True, "msg": "it is no x86_64"},
        {"unreachable": True, "msg": "it is no x86_64"},
        AnsibleConnectionFailure("it is no x86_64"),
    ],
)
def test_a_failed_comparison_confirms_no_role_and_does_not_fail_the_task(answer):
    result = Call(answer, compare=BOTH).run(task_vars={})
    assert result["held"] == {"gpu_host": False, "gpu_vm": False}
    assert result["differences"]["gpu_host"] == ["it is no x86_64"]
    assert result["unread"] == "it is no x86_64"
    assert not result.get("failed")
    assert not result.get("unreachable")


@pytest.mark.parametrize(
    ("given", "transport", "role"),
    [
        ({"gpu_host_iommu": "pt"}, "ssh", "gpu_host"),
        ({"gpu_host_state": "absent"}, "ssh", "gpu_host"),
        ({"gpu_vm_state": "gone"}, "ssh", "gpu_vm"),
        ({"gpu_vm_backend": "vsphere"}, "ssh", "gpu_vm"),
        ({"gpu_vm_domains": trust_as_template("{{ nowhere }}")}, "ssh", "gpu_vm"),
        ({}, "community.general.chroot", "gpu_host"),
    ],
)
def test_a_role_is_not_compared_if_the_comparison_cannot_decide(given, transport, role):
    action = Call(HELD, transport, compare=BOTH)
    result = action.run(task_vars=given)
    assert [name for name, held in result["held"].items() if not held] == [role]
    assert action.asked["parts"] == (list(wanted.PARTS) if role == "gpu_vm" else [])
    assert ("gpu_domain" in action.asked) == (role == "gpu_host")


def test_no_module_runs_if_no_role_is_compared():
    action = Call(AssertionError("asked"), compare=["gpu_vm"])
    assert action.run(task_vars={"gpu_vm_backend": "vsphere"})["held"] == {"gpu_vm": False}
    assert action.asked is None
