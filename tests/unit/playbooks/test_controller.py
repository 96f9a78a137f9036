# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""playbooks/controller.yml, checked with the argument specifications of awx.awx."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import argument_specs
import sites
import yaml
from ansible.parsing.dataloader import DataLoader
from ansible.template import Templar, trust_as_template

from ansible_collections.sailloft.fleet.plugins.module_utils.site.output.inventory import inventory

PLAYBOOKS = Path(__file__).parents[3] / "playbooks"
PLAY = yaml.safe_load((PLAYBOOKS / "controller.yml").read_text())[1]
TASKS = [(task, name) for task in PLAY["tasks"] for name in task if name.startswith("awx.awx.")]


def trusted(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: trusted(each) for name, each in value.items()}
    if isinstance(value, list):
        return [trusted(each) for each in value]
    return trust_as_template(value) if isinstance(value, str) else value


def templated(value: Any, **variables: Any) -> Any:
    given = {**PLAY["vars"], "controller_scm_url": "https://git.example.com/site.git", **variables}
    return Templar(DataLoader(), variables=trusted(given)).template(trusted(value))


def arguments(**variables: Any) -> list[tuple[str, dict[str, Any]]]:
    """Return (module, arguments) of each call."""
    calls = []
    for task, name in TASKS:
        if "when" in task and not templated(f"{{{{ {task['when']} }}}}", **variables):
            continue
        items = templated(task["loop"], **variables) if "loop" in task else [None]
        calls += [(name, templated(task[name], **variables, item=item)) for item in items]
    return calls


def test_the_awx_modules_accept_the_arguments():
    calls = arguments(controller_image="registry.example.com/sailloft", controller_credentials=["ssh"])
    assert len(calls) == 5 + len(PLAY["vars"]["__jobs"])
    for name, given in calls:
        assert argument_specs.faults(name, "ControllerAPIModule", given) == []
    # The check finds a wrong argument.
    assert argument_specs.faults("awx.awx.project", "ControllerAPIModule", {"name": "a", "scm_type": "cvs"})


def test_jobs_are_existing_playbooks_and_jobs_that_run_per_host_are_sliced():
    given = [each for name, each in arguments(controller_slices=8) if name == "awx.awx.job_template"]
    assert all((PLAYBOOKS.parent / each["playbook"]).is_file() for each in given)
    assert {each["name"]: each["job_slice_count"] for each in given if each["job_slice_count"] != 1} == {
        "GPU hosts": 8,
        "GPU nodes": 8,
    }


def test_the_workflow_is_in_the_order_of_site_yml():
    ((_name, given),) = [each for each in arguments() if each[0] == "awx.awx.workflow_job_template"]
    nodes = given["workflow_nodes"]
    following = [node["related"]["success_nodes"][0]["identifier"] for node in nodes if "related" in node]
    assert following == [node["identifier"] for node in nodes[1:]]
    playbooks = {job["name"]: job["playbook"] for job in PLAY["vars"]["__jobs"]}
    plays = yaml.safe_load((PLAYBOOKS / "site.yml").read_text())[1:]
    site = [play["ansible.builtin.import_playbook"] for play in plays]
    assert [playbooks[node["unified_job_template"]["name"]] for node in nodes] == site
    # The module finds nodes by their identifiers. With this option, each run would delete and create them again.
    assert "destroy_current_nodes" not in given


def test_the_rules_for_a_failed_node_run_jobs_that_take_their_arguments():
    rules = yaml.safe_load((PLAYBOOKS.parent / "extensions/eda/rulebooks/failed_node.yml").read_text())[0]["rules"]
    jobs = {given["name"]: given for name, given in arguments() if name == "awx.awx.job_template"}
    asked = {"limit": "ask_limit_on_launch", "extra_vars": "ask_variables_on_launch"}
    for rule in rules:
        action = rule["action"]["run_job_template"]
        assert all(jobs[action["name"]][asked[argument]] for argument in action["job_args"])
    extra = rules[1]["action"]["run_job_template"]["job_args"]["extra_vars"]
    specs = yaml.safe_load((PLAYBOOKS.parent / "roles/node_boot/meta/argument_specs.yml").read_text())
    assert set(extra) <= set(specs["argument_specs"]["rollout"]["options"])
    extra = rules[0]["action"]["run_job_template"]["job_args"]["extra_vars"]
    specs = yaml.safe_load((PLAYBOOKS.parent / "roles/node_repair/meta/argument_specs.yml").read_text())
    assert set(extra) <= set(specs["argument_specs"]["main"]["options"])


def test_an_alert_that_does_not_name_one_node_runs_no_job():
    rules = yaml.safe_load((PLAYBOOKS.parent / "extensions/eda/rulebooks/failed_node.yml").read_text())[0]["rules"]
    blue_vela = inventory(sites.example("blue_vela"))
    others = [*blue_vela["groups"], "all", "", "node-*", "node-0001:node-0002", "node-0001\nall", "boot-1-1"]
    for rule in rules:
        (pattern,) = re.findall(r'event\.alert\.labels\.node is match\("(.*?)"\)', rule["condition"])
        assert all(re.fullmatch(pattern, name) for name, at in blue_vela["hosts"].items() if at["group"] == "nodes")
        assert not any(re.fullmatch(pattern, name) for name in others)
        assert rule["throttle"]["group_by_attributes"] == ["event.alert.labels.node"]


def test_a_survey_has_the_fields_that_the_controller_needs():
    jobs = [given for name, given in arguments() if name == "awx.awx.job_template"]
    assert [job["name"] for job in jobs if job["survey_enabled"]] == ["Rollout"]
    assert all(("survey_spec" in job) == job["survey_enabled"] for job in jobs)
    questions = [question for job in jobs if job["survey_enabled"] for question in job["survey_spec"]["spec"]]
    assert len(questions) == 2
    for question in questions:
        assert set(question) == {"variable", "question_name", "type", "default", "required"}
