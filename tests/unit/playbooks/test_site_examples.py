# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""All playbooks of the reference on the example sites, and those of two pages on inventories/small, in check mode.

The hosts do not exist: modules check the arguments that inventory, roles and filters give them, and answer as on a host
without any setting (tests/support/site). A variable that is missing or wrong in an inventory ends the run.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import yaml
from absent_site import ADDED, AbsentSite
from playing import ROOT, ansible_playbook
from sonic_configs import ASICS, default_config

pytestmark = pytest.mark.fleet
LONG = pytest.mark.long
PLAYBOOKS = ROOT / "docs/reference/playbooks.md"
STATELESS = ROOT / "docs/how-to/stateless-nodes.md"
FIRST_SITE = ROOT / "docs/tutorials/first-site.md"

# A switch's image defines the size of its pools; fabric_config.yml uses the ASICs of the inventory.
POOLS = ("-e", json.dumps({"roce_asics": ASICS, "roce_switch_asic": "as_imaged"}))
NODES_OF_VELA = ("-e", json.dumps({"kubernetes_cluster": {"groups": ["gpu_hosts"]}}))
# Playbooks for other targets than hosts of these sites, and the tests that run them.
ELSEWHERE = {
    "bmc_baseline.yml": "test_reimage.py",
    "consoles.yml": "test_reimage.py",
    "accept_nodes.yml": "discovery/test_accept_nodes.py",
    "controller.yml": "test_controller.py",
    "fabric_drift.yml": "fabric/test_fabric_drift.py",
    "fabric_restore.yml": "fabric/test_fabric_qos.py",
    "gateways.yml": "test_gateways.py",
    "heal.yml": "../../scheduler/test_heal.py",
    "netbox.yml": "../site/netbox/test_write_playbooks.py",
    "netbox_links.yml": "../site/netbox/test_write_playbooks.py",
    "release.yml": "test_reimage.py",
    "restart_vm.yml": "../../rooms/test_restart_vm.py",
}
# Site, playbooks of one run, its further arguments, and the only tasks that fail. Proofs and measurements fail in their
# last task, because the hosts do not exist, and so do those of the health of nodes, which have neither recordings nor a
# health. The first run of vela uses most of its variables; most others are long.
HEALTH = "Check that all nodes are known and none has a fault"
RUNS = [
    pytest.param("vela", "plan.yml fabric_config.yml health.yml", (), {HEALTH}),
    pytest.param("vela", "gpu_nodes.yml record.yml", (), set(), marks=LONG),
    pytest.param("vela", "site.yml", POOLS, {"Check that the proof holds"}, marks=LONG),
    pytest.param("vela", "accept.yml", (), {"Check that the verdicts hold"}, marks=LONG),
    pytest.param("vela", "cabling.yml", (), {"Check that no cable is wrong"}, marks=LONG),
    # The site has no switch with RoCE, and the playbook reports that.
    pytest.param("blue_vela", "fabric_config.yml", (), {"Render all switches"}, marks=LONG),
    pytest.param("blue_vela", "boot_servers.yml node_scripts.yml", (), set(), marks=LONG),
    pytest.param(
        "blue_vela", "node_images.yml node_identities.yml collect_images.yml gpu_nodes.yml", (), set(), marks=LONG
    ),
    pytest.param("blue_vela", "kubernetes.yml", (), set()),
    pytest.param("vela", "kubernetes.yml", NODES_OF_VELA, set(), marks=LONG),
    pytest.param("blue_vela", "ib_fabric.yml", (), set(), marks=LONG),
    *(
        pytest.param(name, "fleet.yml", (), {"Check that nothing differs and all is known"}, marks=LONG)
        for name in ("vela", "blue_vela")
    ),
    pytest.param("blue_vela", "ib_health.yml", (), {"Check that all links are known and none has a fault"}, marks=LONG),
    pytest.param("blue_vela", "record.yml reimage.yml", ("--limit", "nodes,localhost"), set(), marks=LONG),
    pytest.param("blue_vela", "accept.yml", (), {"Check that the verdicts hold"}, marks=LONG),
    pytest.param(
        "blue_vela",
        "cabling.yml",
        ("-e", "cabling_hosts=nodes:boot_servers"),
        {"Check that no cable is wrong"},
        marks=LONG,
    ),
]
RUNS.append(pytest.param("blue_vela", "scheduler.yml", (), set(), marks=LONG))
INSTALL = "Install the health check of the node"
RUNS += [
    pytest.param("vela", "node_health.yml", (), {INSTALL}, marks=LONG),
    pytest.param("blue_vela", "node_health.yml", (), {INSTALL}),
    pytest.param("blue_vela", "health.yml", (), {HEALTH}, marks=LONG),
]
# The kinds of hosts with changes, by the first playbook of a run, or by site and playbook.
CHANGED = {
    "plan.yml": {"gpu-host", "leaf"},
    "gpu_nodes.yml": {"gpu-host", "train"},
    "site.yml": {"gpu-host", "leaf", "spine", "train"},
    "boot_servers.yml": {"boot"},
    "node_images.yml": {"boot", "build", "node"},
    "record.yml": {"node"},
    "ib_fabric.yml": {"node"},
    "cabling.yml": {"localhost"},
    "fleet.yml": {"localhost"},
    "kubernetes.yml": {"localhost"},
    "ib_health.yml": {"node"},
    "vela accept.yml": {"train"},
    "blue_vela accept.yml": {"node"},
}
# Playbooks that connect to no host run on the whole site.
WHOLE = ("site_plan.yml", "monitoring.yml", "confirm.yml")
# Playbooks for machines that a site does not have.
NO_HOSTS = {
    "vela": "boot_servers.yml ib_fabric.yml ib_health.yml node_images.yml node_scripts.yml node_identities.yml "
    "collect_images.yml reimage.yml scheduler.yml",
    "blue_vela": "site.yml plan.yml",
}


def failed_tasks(output: str) -> set[str]:
    """Return the names of the tasks whose failure is printed."""
    failed, task = set(), ""
    for line in output.splitlines():
        if found := re.match(r"TASK \[(?:[\w.]+ : )?(.*)\] \*", line):
            task = found[1]
        elif line.startswith(("fatal: ", "failed: ")):
            failed.add(task)
    return failed


def changed_kinds(output: str) -> set[str]:
    """Return the names, without numbers, of hosts with changes."""
    names = re.findall(r"^(\S+) +: ok=\d+ +changed=[1-9]", output, re.MULTILINE)
    return {re.split(r"-\d", name)[0] for name in names}


def with_imports(playbook: str) -> set[str]:
    """Return a playbook and those that it imports."""
    plays = yaml.safe_load((ROOT / "playbooks" / playbook).read_text(encoding="utf-8"))
    names = [play["ansible.builtin.import_playbook"] for play in plays if "ansible.builtin.import_playbook" in play]
    imported = [name for name in names if name != "sailloft.fleet.run_check"]
    return {playbook}.union(*map(with_imports, imported))


@pytest.mark.parametrize("name", NO_HOSTS)
def test_all_playbooks_of_the_reference_are_run(name):
    rows = re.findall(r"^\| (`.*?) \|", PLAYBOOKS.read_text(encoding="utf-8"), re.MULTILINE)
    told = {playbook for row in rows for playbook in re.findall(r"`(\w+\.yml)", row)}
    runs = [run.values[1] for run in RUNS if run.values[0] == name]
    run = [*WHOLE, *" ".join([*runs, NO_HOSTS[name]]).split()]
    assert told - set(ELSEWHERE) <= set().union(*map(with_imports, run))
    assert len(told) > 20


@pytest.mark.parametrize(("name", "playbooks", "arguments", "failed"), RUNS)
def test_the_playbooks_run_in_check_mode(tmp_path, name, playbooks, arguments, failed):
    status, output = AbsentSite(tmp_path, name).check(*playbooks.split(), arguments=arguments)
    assert failed_tasks(output) == failed, output
    assert status == (2 if failed else 0), output
    first = playbooks.split()[0]
    assert changed_kinds(output) == CHANGED.get(f"{name} {first}", CHANGED.get(first, set())), output


@LONG
@pytest.mark.parametrize("name", NO_HOSTS)
def test_playbooks_without_hosts_are_refused_and_those_for_the_complete_site_run(tmp_path, name):
    site = AbsentSite(tmp_path, name)
    for playbook in NO_HOSTS[name].split():
        status, output = site.check(playbook)
        assert failed_tasks(output) == {"Check inventory, variables, strategy and hosts"}, output
        assert status == 2
    whole = ("-i", f"inventories/{name}", "--check", "-e", "confirmed=true", "-e", f"plans_path={tmp_path}")
    status, output = ansible_playbook(*whole, *(f"playbooks/{playbook}" for playbook in WHOLE))
    assert status == 0, output


@LONG
@pytest.mark.parametrize(
    ("name", "file", "old", "new", "playbook", "why"),
    [
        ("vela", "group_vars/gpu_hosts.yml", "nics: {per_gpu: 1}", "nics: {per_gpus: 1}", "plan.yml", "per_gpus"),
        ("vela", "blueprint.yml", 'gpu_guest_host: "{{ site_host }}"', "a: 1", "gpu_vms.yml", "gpu_guest_host"),
        ("blue_vela", "group_vars/image_builders.yml", "{layer: site,", "{layer: sites,", "node_images.yml", "sites"),
        ("blue_vela", "blueprint.yml", "serves: inband, ", "", "boot_servers.yml", "boot_server_address"),
    ],
)
def test_a_missing_or_wrong_variable_is_found(tmp_path, name, file, old, new, playbook, why):
    site = AbsentSite(tmp_path, name)
    site.change(file, old, new)
    status, output = site.check(playbook)
    assert status == 2, output
    assert why in output


def told(page: Path) -> list[str]:
    """Return the playbooks that a page runs on ~/SITE, each once."""
    commands = re.findall(r"ansible-playbook -i ~/SITE playbooks/(\w+\.yml)", page.read_text(encoding="utf-8"))
    return list(dict.fromkeys(commands))


# Neighbours and the pools of switches can only be read from real machines, and the plan of a site has no hosts.
REAL = {"site_plan.yml", "cabling.yml", "fabric_qos.yml"}


@LONG
def test_stateless_nodes_need_no_variable_that_their_page_does_not_name(tmp_path):
    rows = re.findall(r"^\| (`.*?) \|", STATELESS.read_text(encoding="utf-8"), re.MULTILINE)
    named = {name for row in rows for name in re.findall(r"`(\w+)`", row)}
    # inventories/small has the last two.
    assert named == {*ADDED["small"], "roce_switch_system", "roce_switch_asic"}
    site = AbsentSite(tmp_path, "small")
    assert {"boot_servers.yml", "node_images.yml", "fabric_config.yml"} <= set(told(STATELESS))
    for playbook in set(told(STATELESS)) - REAL:
        status, output = site.check(playbook)
        assert status == 0, output


@LONG
def test_a_first_site_gets_its_virtual_machines_from_the_blocks_of_its_page(tmp_path):
    page = FIRST_SITE.read_text(encoding="utf-8")
    guests, variables = re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)
    site = AbsentSite(tmp_path, "small")
    site.change("blueprint.yml", "groups: [roce_hosts, gpu_nodes]", "groups: [roce_hosts, gpu_hosts]")
    site.change("blueprint.yml", "\nlinks:\n", f"{guests}\nlinks:\n")
    (site.inventory / "group_vars/gpu_hosts.yml").write_text(variables, encoding="utf-8")
    assert {"plan.yml", "gpu_hosts.yml", "gpu_vms.yml", "prove.yml"} <= set(told(FIRST_SITE))
    # A proof fails, because the hosts do not exist.
    for playbook in set(told(FIRST_SITE)) - REAL - {"prove.yml"}:
        status, output = site.check(playbook)
        assert status == 0, output
        assert playbook != "gpu_vms.yml" or "gpu04-vm" in output


def block(page: str, first: str) -> str:
    """Return the one YAML block of a how-to page that begins with ``first``."""
    text = (ROOT / f"docs/how-to/{page}.md").read_text(encoding="utf-8")
    (content,) = re.findall(rf"```yaml\n({re.escape(first)}.*?)```", text, re.DOTALL)
    return str(content)


def site_of(folder: Path, page: str, first: str = "# ~/SITE/hosts.yml") -> AbsentSite:
    """Return a site with the inventory of a how-to page."""
    site = AbsentSite(folder, "small")
    for file in site.inventory.rglob("*.yml"):
        file.unlink()
    (site.inventory / "hosts.yml").write_text(block(page, first), encoding="utf-8")
    return site


@LONG
def test_the_inventory_of_the_first_page_works_with_an_image_and_a_key(tmp_path):
    site, page = site_of(tmp_path, "gpu-vms", first="gpu_hosts:\n"), ROOT / "docs/how-to/gpu-vms.md"
    key = tmp_path / "key.pub"
    key.write_text("ssh-ed25519 AAAA root@controller\n", encoding="utf-8")
    site.change("hosts.yml", "~/.ssh/id_ed25519.pub", str(key))
    site.change("hosts.yml", "DIGITS", "0" * 64)
    assert set(told(page)) == {"plan.yml", "gpu_hosts.yml", "gpu_vms.yml", "prove.yml"}
    # A proof fails, because the hosts do not exist.
    for playbook in set(told(page)) - {"prove.yml"}:
        status, output = site.check(playbook)
        assert status == 0, output


@LONG
@pytest.mark.parametrize(
    ("page", "playbooks"),
    [
        ("gpu-hosts", "gpu_hosts.yml"),
        ("boot-servers", "boot_servers.yml"),
        ("roce-fabric", "fabric_config.yml"),
    ],
)
def test_the_inventory_of_a_page_works_as_it_stands_there(tmp_path, page, playbooks):
    site = site_of(tmp_path, page)
    for playbook in playbooks.split():
        assert playbook in told(ROOT / f"docs/how-to/{page}.md")
        status, output = site.check(playbook, arguments=("-e", "vault_switch_password=none"))
        assert status == 0, output


@LONG
def test_the_play_for_hosts_accepts_the_settings_of_nccl_that_its_page_adds(tmp_path):
    site, play = site_of(tmp_path, "roce-hosts"), tmp_path / "roce_hosts.yml"
    play.write_text(block("roce-hosts", "# roce_hosts.yml"), encoding="utf-8")
    text = (ROOT / "docs/how-to/roce-hosts.md").read_text(encoding="utf-8")
    (example,) = re.findall(r"^ {4}(roce_host_nccl: .*)$", text, re.MULTILINE)
    nccl = yaml.safe_load(example)["roce_host_nccl"]
    for settings, expected in ((nccl, 0), ({**nccl, "NCCL_IB_TC": "0"}, 2)):
        status, output = site.check(str(play), arguments=("-e", json.dumps({"roce_host_nccl": settings})))
        assert status == expected, output
    assert "NCCL_IB_TC" in output


@LONG
def test_the_play_for_infiniband_hosts_works_as_it_stands_on_its_page(tmp_path):
    site, play = AbsentSite(tmp_path, "blue_vela"), tmp_path / "ib_hosts.yml"
    play.write_text(block("infiniband-hosts", "# ib_hosts.yml"), encoding="utf-8")
    status, output = site.check(str(play))
    assert status == 0, output
    assert changed_kinds(output) == {"node"}


@LONG
def test_a_takeover_compares_saved_configurations_as_its_page_says(tmp_path):
    site, saved = tmp_path / "site", tmp_path / "saved"
    for folder in (site / "group_vars", saved):
        folder.mkdir(parents=True)
    (site / "hosts.yml").write_text(block("roce-fabric", "# ~/SITE/hosts.yml"), encoding="utf-8")
    (site / "group_vars/all.yml").write_text(block("roce-takeover", "# group_vars/all.yml"), encoding="utf-8")
    (tmp_path / "saved.yml").write_text(block("roce-takeover", "# saved.yml"), encoding="utf-8")
    (saved / "leaf1.json").write_text(json.dumps(default_config()), encoding="utf-8")
    (saved / "leaf2.conf").write_text("hostname leaf2\ninterface Ethernet1/1\n   mtu 9214\nend\n", encoding="utf-8")
    arguments = ("-i", str(site), "-e", "vault_switch_password=none", str(tmp_path / "saved.yml"))
    status, output = ansible_playbook(*arguments, folder=tmp_path, COLUMNS="1000")
    assert status == 0, output
    # The MTU and the shares are those of the page's policy.
    one_line = " ".join(output.split())
    assert re.search(r"leaf2: Ethernet1/1: [^']*wanted 9202[^']*seen 9214", one_line), output
    assert re.search(r"leaf1: [^']*wanted 60%", one_line), output
