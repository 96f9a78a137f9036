# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The check of a run on real inventories: sources, names, values and hosts."""

from __future__ import annotations

import importlib
import json
from pathlib import Path

import pytest
from ansible.errors import AnsibleActionFail, AnsibleFilterError
from ansible.inventory.manager import InventoryManager
from ansible.parsing.dataloader import DataLoader
from ansible.playbook.play import Play
from ansible.plugins.loader import init_plugin_loader
from ansible.utils.collection_loader._collection_finder import _AnsibleCollectionFinder
from ansible.utils.display import Display
from ansible.vars.hostvars import HostVars
from ansible.vars.manager import VariableManager
from messages import Mentions

from ansible_collections.sailloft.fleet.plugins.filter.run_hosts import run_hosts

run_check = importlib.import_module("ansible_collections.sailloft.fleet.plugins.action.run_check")
HOSTS = {
    "all": {
        "children": {
            "gpu_hosts": {"hosts": {"hv01": {}, "hv02": {}}},
            "gpu_guests": {"hosts": {"gpu01": {"gpu_guest_host": "hv01"}}},
            "roce_switches": {"hosts": {"leaf1": {}}},
        }
    }
}


@pytest.fixture(scope="module", autouse=True)
def plugins_of_collections():
    """Let Ansible find plugins by their full names, as its programs do first."""
    init_plugin_loader([])
    yield
    _AnsibleCollectionFinder._remove()


class Site:
    """An inventory in a directory, whose runs are checked."""

    def __init__(self, folder: Path, make, monkeypatch) -> None:
        self.folder, self.make, self.warnings = folder, make, []
        self.inventory = self.write("hosts.json", json.dumps(HOSTS))
        # An installed collection has no ansible.cfg.
        monkeypatch.setattr("ansible.constants.INVENTORY_ANY_UNPARSED_IS_FAILED", False)
        monkeypatch.setattr(Display, "warning", lambda _self, text, *_rest, **_more: self.warnings.append(text))

    def write(self, name: str, text: str) -> str:
        path = self.folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return str(path)

    def check(self, playbook: str, *sources: str, limit: str = "", part: bool = False, **typed: object) -> None:
        """Check a run with the variables of -e. Raises AnsibleActionFail, with the message of the run."""
        given, loader = list(sources or [self.inventory]), DataLoader()
        inventory = InventoryManager(loader, given)
        if limit:
            inventory.subset(limit)
        manager = VariableManager(loader, inventory)
        manager._extra_vars = typed
        hostvars = HostVars(inventory, manager, loader)
        play = Play().load({"hosts": "all", "tasks": [{"meta": "noop"}]}, variable_manager=manager, loader=loader)
        first = inventory.get_hosts("all:localhost")[-1]
        inventory.restrict_to_hosts([first])
        variables = {
            **manager.get_vars(play=play, host=first),
            "hostvars": hostvars,
            "ansible_inventory_sources": given,
            "ansible_limit": limit,
        }
        action = self.make(run_check, playbook=playbook, part=part)
        action._task._parent = play.get_tasks()[0][0]._parent
        action._templar.available_variables = variables
        self.warnings.clear()
        assert action.run(task_vars=variables)["changed"] is False

    def refusal(self, *arguments: str, **more: object) -> str:
        with pytest.raises(AnsibleActionFail) as refused:
            self.check(*arguments, **more)
        return str(refused.value)


@pytest.fixture
def site(tmp_path, make, monkeypatch):
    return Site(tmp_path, make, monkeypatch)


@pytest.mark.parametrize(
    ("name", "text", "begins"),
    [
        ("more.yml", "all: {\n", "{}: YAML"),
        ("more.yml", "[a, b]\n", "{}: "),
        ("more.ini", "[gpu_guests]\nhost one: two\n", "{}"),
        ("script", "#!/bin/sh\necho no database >&2; exit 3\n", "{}"),
        ("more.yml", None, "{} does not exist"),
    ],
)
def test_every_kind_of_source_that_is_not_read_ends_the_run_with_its_cause(site, name, text, begins):
    path = f"{site.folder}/{name}"
    if text is not None:
        Path(site.write(name, text)).chmod(0o755 if name == "script" else 0o644)
    for sources in ((path,), (site.inventory, path), (path, site.inventory)):
        assert begins.format(path) in site.refusal("prove", *sources)[: len(begins) + len(path)]


def test_sources_that_are_read_are_right_in_every_form(site):
    site.write("site/hosts.json", json.dumps(HOSTS))
    for name in (".hidden", "notes.md", "group_vars/all.yml", "hosts.json~"):
        path = site.folder / "site" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text("{")
    (site.folder / "site/group_vars/all.yml").write_text("a: 1\n")
    (site.folder / "site/more").mkdir()
    site.write("site/more/hosts.ini", "[gpu_guests]\ngpu02\n")
    site.check("prove", f"{site.folder}/site")
    site.check("record", "a,b")
    (site.folder / "empty").mkdir()
    site.check("plan", f"{site.folder}/empty", recording="x.json")


@pytest.mark.parametrize("playbook", ["prove", "accept", "site", "rollout", "fabric_qos", "confirm"])
def test_an_inventory_without_hosts_is_refused_by_its_name(site, playbook):
    empty = site.write("empty.yml", "")
    assert empty in site.refusal(playbook, empty)


def test_a_limit_that_leaves_out_the_hosts_of_the_playbook_is_named_with_them(site):
    assert "--limit hv01 leaves out all hosts of prove.yml: gpu01" in site.refusal("prove", limit="hv01")
    assert "--limit hv01 leaves out all hosts of fabric_qos.yml: leaf1" in site.refusal("fabric_qos", limit="hv01")
    assert "localhost" in site.refusal("plan", limit="hv01", recording="machine.xml")
    assert "localhost" in site.refusal("cabling", limit="leaf1")
    site.check("cabling", limit="leaf1,localhost")
    site.check("prove", limit="gpu01")
    site.check("site", limit="gpu01")


def test_a_part_of_a_run_may_have_no_hosts_but_the_whole_run_may_not(site):
    hosts = site.write("other.yml", "others: {hosts: {a: }}\n")
    site.check("prove", hosts, part=True)
    site.check("fabric_qos", limit="hv01", part=True)
    assert "gpu_hosts:gpu_guests:roce_switches" in site.refusal("site", hosts)


def groups(**hosts: str) -> str:
    """Return an inventory of groups with one host each; "" is a group without hosts."""
    return json.dumps({name: {"hosts": {host: {}} if host else {}} for name, host in hosts.items()})


@pytest.mark.parametrize(
    ("playbook", "hosts", "misspelt", "group"),
    [
        ("gpu_vms", {"gpu_host": "hv01", "gpu_guests": "gpu01"}, "gpu_host", "gpu_hosts"),
        ("site", {"gpu_hosts": "hv01", "gpu_guest": "gpu01"}, "gpu_guest", "gpu_guests"),
        ("prove", {"gpu_host": "hv01", "gpu_guests": "gpu01"}, "gpu_host", "gpu_hosts"),
        ("fabric_qos", {"roce_switches": "leaf1", "roce_host": "hv01"}, "roce_host", "roce_hosts"),
        ("fabric_config", {"roce_switch": "leaf1"}, "roce_switch", "roce_switches"),
        ("accept", {"gpu_node": "n1", "gpu_guests": "gpu01"}, "gpu_node", "gpu_nodes"),
        ("node_images", {"image_builder": "b", "nodes": "n1"}, "image_builder", "image_builders"),
        ("record", {"gpu_host": "hv01"}, "gpu_host", "gpu_hosts"),
        ("rollout", {"node": "n1"}, "node", "nodes"),
    ],
)
def test_a_misspelt_group_is_refused_even_if_another_group_of_the_playbook_has_hosts(
    site, playbook, hosts, misspelt, group
):
    text = site.refusal(playbook, site.write("misspelt.json", groups(**hosts)))
    assert text == Mentions(f"{playbook}.yml", f"group {misspelt}", f"rename it to {group}")


@pytest.mark.parametrize(
    ("playbook", "hosts", "group"),
    [
        ("gpu_vms", {"gpu_guests": "gpu01"}, "gpu_hosts"),
        ("gpu_vms", {"gpu_hosts": "hv01", "gpu_guests": ""}, "gpu_guests"),
        ("site", {"gpu_hosts": "hv01", "gpu_guests": ""}, "gpu_guests"),
        ("prove", {"hypervisors": "hv01", "gpu_guests": "gpu01"}, "gpu_hosts"),
        ("node_identities", {"nodes": "n1"}, "boot_servers"),
        ("node_images", {"boot_servers": "b1", "nodes": "n1"}, "image_builders"),
        ("fabric_qos", {"roce_switches": "leaf1", "roce_hosts": ""}, "roce_hosts"),
    ],
)
def test_a_group_whose_plays_would_do_nothing_is_refused(site, playbook, hosts, group):
    text = site.refusal(playbook, site.write("empty.json", groups(**hosts)))
    assert text == Mentions(f"group {group}", f"{playbook}.yml")


def test_a_group_that_a_site_does_not_have_is_no_error(site):
    """VMs without managed guests, a fabric without hosts, and the parts of a site that it does not have."""
    hosts = site.write("some.json", groups(gpu_hosts="hv01", roce_switches="leaf1"))
    for playbook in ("gpu_vms", "fabric_qos", "site"):
        site.check(playbook, hosts)
    site.check("gpu_vms", site.write("switches.json", groups(roce_switches="leaf1")), part=True)
    site.check("gpu_vms", limit="gpu01")


def test_a_misspelt_variable_of_the_command_line_is_refused_with_the_nearest_name(site):
    for playbook, name, near in (
        ("plan", "recoding", "recording"),
        ("plan", "gpu_host_hugepage", "gpu_host_hugepages"),
        ("prove", "proof_path", "proofs_path"),
        ("site", "proof_path", "proofs_path"),
        ("gpu_hosts", "gpu_host_sriv", "gpu_host_sriov"),
        ("fabric_qos", "roce_polcy", "roce_policy"),
    ):
        text = site.refusal(playbook, **{name: "x"})
        assert text.startswith(f"-e {name}: ")
        assert f"did you mean {near}?" in text
    # Of other playbooks or roles, of the site, and Ansible's.
    site.check("prove", recording="x", gpu_host_reboot_ok=True, region="eu", ansible_usr="a", record="x")


def test_a_name_that_the_sites_templates_use_is_not_misspelt(site):
    site.write("group_vars/gpu_hosts.yml", 'note: "{{ recoding }} GHz"\n')
    site.write("group_vars/all.yml", 'roce_polcy: {dscp: 30}\ntext: [{a: "{{ roce_polcy.dscp }}"}]\n')
    site.check("plan", recoding="x")
    site.check("fabric_qos")
    assert site.warnings == []


def test_a_misspelt_variable_of_the_inventory_gives_a_warning_with_the_nearest_name(site):
    site.write("group_vars/all.yml", "roce_polcy: {dscp: 30}\nroce_policy: {}\nproofs_dir: /a\n")
    site.check("fabric_qos")
    (text,) = site.warnings
    assert all(word in text for word in ("group all", "roce_polcy", "did you mean roce_policy?"))
    # The playbook has no such variable.
    site.check("plan")
    assert site.warnings == []


@pytest.mark.parametrize(
    ("playbook", "name", "value", "form"),
    [
        ("plan", "boot_trial", "maybe", "true or false"),
        ("confirm", "confirmed", "tru", "true or false"),
        ("gateways", "gateways_forks", "many", "a whole number"),
        ("confirm", "confirm_share_percent", "ten", "a number"),
        ("fabric_qos", "roce_policy", "default", "a dictionary"),
    ],
)
def test_a_value_of_another_type_is_refused_with_its_name(site, playbook, name, value, form):
    site.write("group_vars/all.yml", json.dumps({name: value}))
    for typed in ({name: value}, {}):
        text = site.refusal(playbook, **typed)
        assert text.startswith(f"{name} is '{value}'")
        assert form in text


def test_secrets_and_templates_that_lack_a_variable_are_not_judged(site):
    site.check("netbox", netbox_token={"a": 1}, netbox_url="{{ nowhere }}", blueprint="x.yml")
    site.check("plan", boot_trial="yes")


@pytest.mark.parametrize(("playbook", "refused"), [("reimage", True), ("node_identities", True), ("prove", False)])
def test_no_host_overrides_what_is_done_for_it_on_the_controller(site, monkeypatch, playbook, refused):
    """Ansible's default is that what a host returns overrides the inventory."""
    groups = {"nodes": {"hosts": {"bm01": {}}}, "boot_servers": {"hosts": {"boot1": {}}}}
    inventory = site.write("nodes.json", json.dumps({**HOSTS, **groups}))
    site.check(playbook, inventory)
    monkeypatch.setattr("ansible.constants.INJECT_FACTS_AS_VARS", True)
    if refused:
        assert site.refusal(playbook, inventory) == Mentions(f"{playbook}.yml", "inject_facts_as_vars = false")
    else:
        site.check(playbook, inventory)


BMC_PLAYBOOKS = [name for name, row in run_check.registry.read()["playbooks"].items() if row.get("bmcs")]


def racks(site, **addresses: object) -> str:
    """Write an inventory of nodes, each in all groups of playbooks that use BMCs, with these BMCs."""
    password = "{{ vault_that_nobody_opened }}"
    hosts = {
        name: {"node_boot_bmc": {"password": password, "username": "a", **bmc} if isinstance(bmc, dict) else bmc}
        for name, bmc in addresses.items()
    }
    names = ("nodes", "gpu_nodes", "gpu_hosts", "gpu_guests", "console_servers", "boot_servers", "image_builders")
    return site.write("racks.json", json.dumps({group: {"hosts": hosts} for group in names}))


@pytest.mark.parametrize("playbook", BMC_PLAYBOOKS)
def test_two_hosts_with_one_bmc_are_refused_by_each_playbook_that_uses_bmcs(site, playbook):
    inventory = racks(site, n1={"address": "10.9.1.1"}, n2={"address": "10.9.1.2"}, n3={"address": "10.9.1.1"})
    arguments = {"to": "n1", "vm": "a"} if playbook == "restart_vm" else {}
    assert site.refusal(playbook, inventory, **arguments) == Mentions("n1", "n3", "10.9.1.1")
    # A command for n1 would reach n3, which the limit leaves out; one for n2 reaches n2.
    assert site.refusal(playbook, inventory, limit="n1", **arguments) == Mentions("n1", "n3")
    site.check(playbook, inventory, limit="n2", **arguments)


def test_bmcs_are_used_by_the_playbooks_of_their_roles_and_no_other():
    data = run_check.registry.read()
    of_roles = {
        name
        for name in data["playbooks"]
        if {"node_boot", "node_bmc"} & set(run_check.registry.playbook(name, data).roles)
    }
    assert of_roles - {"collect_images", "node_scripts"} <= set(BMC_PLAYBOOKS)  # the two only read stores


@pytest.mark.parametrize(
    ("one", "other", "shared"),
    [
        ({"address": "10.9.1.1"}, {"address": "10.9.1.1:443"}, True),
        ({"address": "BMC1.example"}, {"address": "bmc1.example."}, True),
        ({"address": "[fd00::7]"}, {"address": "[fd00:0::7]:443"}, True),
        ({"address": "10.9.1.1"}, {"address": "10.9.1.1", "type": "ipmi"}, True),
        ({"address": "10.9.1.1", "type": "ipmi"}, {"address": "10.9.1.1", "type": "ipmi", "port": 623}, True),
        ({"address": "10.9.1.{{ 3 - 2 }}"}, {"address": "10.9.1.1"}, True),
        ("{{ {'address': hostvars.n2.node_boot_bmc.address} }}", {"address": "10.9.1.1"}, True),
        ({"address": "10.9.1.1", "system": "a"}, {"address": "10.9.1.1", "system": "a"}, True),
        ({"address": "10.9.1.1", "system": "a"}, {"address": "10.9.1.1"}, True),
        ({"address": "10.9.1.1", "system": "a"}, {"address": "10.9.1.1", "system": "b"}, False),
        ({"address": "10.9.1.1:8000"}, {"address": "10.9.1.1"}, False),
        ({"address": "10.9.1.1", "type": "ipmi", "port": 6230}, {"address": "10.9.1.1", "type": "ipmi"}, False),
        # These fail the host that uses them.
        ({"address": "{{ nowhere }}"}, {"address": "{{ nowhere }}"}, False),
        ({}, {}, False),
    ],
)
def test_a_bmc_is_one_by_its_address_port_and_system(site, one, other, shared):
    inventory = racks(site, n1=one, n2=other)
    if shared:
        assert site.refusal("reimage", inventory) == Mentions("n1", "n2", "node_boot_bmc")
    else:
        site.check("reimage", inventory)


def test_an_unknown_playbook_is_refused(site):
    assert "there is no playbook 'proof'" in site.refusal("proof")


def test_a_limit_on_an_inventory_without_hosts_is_refused_before_the_first_play(tmp_path):
    missing, empty = f"{tmp_path}/missing", tmp_path / "empty.ini"
    empty.touch()
    for source, why in ((missing, f"{missing} does not exist"), (str(empty), f"the inventory has no host: {empty}")):
        with pytest.raises(AnsibleFilterError) as refused:
            run_hosts([source], [], "hv01")
        assert str(refused.value).startswith(why)
        assert run_hosts([source], [], "") == "localhost"
        assert run_hosts([source], [], "hv01,localhost") == "all:localhost"
    assert run_hosts([missing], ["hv01"], "hv01") == "all:localhost"
