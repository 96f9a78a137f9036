# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The monitoring is planned from the run's inventory, and only files that differ are written."""

from __future__ import annotations

import json

import pytest
import yaml
from ansible.errors import AnsibleActionFail
from monitored_sites import SETTINGS

from ansible_collections.sailloft.fleet.plugins.action import monitoring_plan

HOSTVARS = {
    "n1": {
        "ansible_host": "10.0.0.1",
        "ansible_port": 2222,
        "site_rack": "r1",
        "site_unit": 1,
        "site_blocks": {"rack": 1, "pod": 2},
    },
    "vm1": {"gpu_guest_host": "n1", "site_spare": True, "site_addresses": {"bmc": "10.1.0.1"}},
    "leaf1": {"site_ports": {"eth0": {"peer": "leaf1 swp1", "rail": 3}, "eth1": {"peer": "mgmt1 swp1"}}},
    "localhost": {},
}
VARIABLES = {
    "groups": {"nodes": ["n1", "localhost"], "gpu_guests": ["vm1"], "roce_switches": ["leaf1"]},
    "hostvars": HOSTVARS,
}


def test_files_are_written_once_and_only_those_that_differ_again(make, tmp_path):
    folder = tmp_path / "plans"

    def run(check_mode=False, **given):
        arguments = {**SETTINGS, "path": str(folder), **given}
        return make(monitoring_plan, check_mode=check_mode, **arguments).run(task_vars=VARIABLES)

    first = run(check_mode=True)
    assert first["changed"]
    assert not folder.exists()
    assert run()["written"] == first["written"]
    assert not run()["changed"]
    again = run(limits={"clock_offset_seconds": 1})
    assert again["written"] == [str(folder / "rules/sailloft.yml")]
    fewer = run(jobs={"dcgm": {"groups": []}}, receivers={}, routes=[])
    assert fewer["stale"] == [str(folder / "targets/dcgm.json"), str(folder / "alertmanager.yml")]


def test_values_of_ansibles_own_classes_are_written_as_what_they_extend(make, tmp_path):
    class Tagged(str):
        """As a text of the inventory is in ansible-core 2.19."""

    rules = {"own": [{"name": Tagged("own"), "rules": [{"record": "a:b", "expr": Tagged("up")}]}]}
    make(monitoring_plan, path=str(tmp_path), site=Tagged("harbour"), rules=rules).run(task_vars=VARIABLES)
    read = yaml.safe_load((tmp_path / "prometheus.yml").read_text())
    assert read["global"]["external_labels"] == {"site": "harbour"}
    assert yaml.safe_load((tmp_path / "rules/own.yml").read_text()) == {"groups": rules["own"]}


def test_labels_are_from_the_variables_of_the_hosts(make, tmp_path):
    make(monitoring_plan, path=str(tmp_path)).run(task_vars=VARIABLES)
    targets = {
        each["labels"].pop("instance"): (*each["targets"], each["labels"])
        for each in json.loads((tmp_path / "targets/ssh.json").read_text())
    }
    assert targets == {
        "leaf1": ("leaf1:22", {"host": "leaf1", "role": "switch", "rail": "3", "uplinks": "leaf1"}),
        "n1": ("10.0.0.1:2222", {"host": "n1", "role": "node", "rack": "r1", "unit": "1", "pod": "2"}),
        "vm1": ("vm1:22", {"host": "n1", "role": "guest", "spare": "true"}),
    }


def test_nothing_is_written_of_what_is_refused(make, tmp_path):
    with pytest.raises(AnsibleActionFail, match="limits"):
        make(monitoring_plan, path=str(tmp_path), limits={"nonesuch": 1}).run(task_vars=VARIABLES)
    assert list(tmp_path.iterdir()) == []


class Templated(dict):
    """The variables of hosts as Ansible has them: raw, and evaluated when they are asked for."""

    evaluated = 0

    def raw_get(self, name):
        return dict.__getitem__(self, name)

    def __getitem__(self, name):
        self.evaluated += 1
        return {"ansible_host": "10.0.0.1", "site_addresses": {"bmc": "10.1.0.1"}}


def test_templates_are_evaluated_at_any_depth_with_one_reading_of_a_host():
    raw = {"ansible_host": "{{ a }}", "site_addresses": {"bmc": "{{ b }}"}, "site_rack": "r1"}
    hostvars = Templated(n1=raw, n2={"ansible_host": "10.0.0.2"})
    hosts = monitoring_plan.monitored_hosts({"nodes": ["n1", "n2"]}, hostvars)
    assert [(each.address, each.addresses) for each in hosts] == [
        ("10.0.0.1", {"bmc": "10.1.0.1"}),
        ("10.0.0.2", {}),
    ]
    assert hostvars.evaluated == 1
