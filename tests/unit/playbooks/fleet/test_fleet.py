# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""playbooks/fleet.yml on nodes that are directories, and its page in Debian's chromium."""

from __future__ import annotations

import html
import json
import re
import shutil
import subprocess
import sys
import time
from dataclasses import replace

import pytest
import yaml
from fleets import fleet
from playing import ROOT, ansible_playbook

from ansible_collections.sailloft.fleet.plugins.module_utils.fleet.datum import FAULT, HEALTH, datum
from ansible_collections.sailloft.fleet.plugins.module_utils.fleet.page import fleet_page
from ansible_collections.sailloft.fleet.plugins.module_utils.health import state
from ansible_collections.sailloft.fleet.plugins.module_utils.health.latch import Condition
from ansible_collections.sailloft.fleet.plugins.module_utils.health.state import Round, State
from ansible_collections.sailloft.fleet.plugins.module_utils.proof.claims import compare
from ansible_collections.sailloft.fleet.plugins.module_utils.proof.proof import Proof

LOCAL = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable}
GONE = {"ansible_connection": "ssh", "ansible_host": "192.0.2.1", "ansible_ssh_common_args": "-o ConnectTimeout=1"}


@pytest.fixture
def site(tmp_path):
    """Return a function that runs the playbook on a healthy node, one that is gone, and a switch with its proof."""
    now = state.moment()
    (tmp_path / "gpu-1").mkdir()
    state.save(State("gpu-1", Round(7, now, 0.4, 60.0), Condition()), str(tmp_path / "gpu-1"))
    (tmp_path / "proofs").mkdir()
    claim = compare("switch", "leaf1: its settings", "a", "a", "running")
    (tmp_path / "proofs/fabric_drift.json").write_text(
        Proof("fabric_drift", "Drift", "fabric_drift", [claim]).to_json()
    )
    groups = {"gpu_nodes": {"hosts": {"gpu-1": LOCAL, "gpu-2": GONE}}, "roce_switches": {"hosts": {"leaf1": GONE}}}
    (tmp_path / "hosts.json").write_text(json.dumps({"all": {"children": groups}}))
    plays = yaml.safe_load((ROOT / "playbooks/fleet.yml").read_text())
    for play in plays:
        if play.get("hosts", "").startswith("{{ 'gpu_hosts:"):
            where = {"state_dir": f"{tmp_path}/{{{{ inventory_hostname }}}}"}
            play["module_defaults"] = {"sailloft.fleet.fleet_node_info": where}
        if play.get("ansible.builtin.import_playbook") == "fabric_drift.yml":
            play["ansible.builtin.import_playbook"] = str(ROOT / "playbooks/fabric_drift.yml")
    (tmp_path / "fleet.yml").write_text(yaml.safe_dump(plays, sort_keys=False))

    def run(*more):
        paths = ("-e", f"fleet_path={tmp_path}/fleet", "-e", f"proofs_path={tmp_path}/proofs")
        return ansible_playbook("-i", str(tmp_path / "hosts.json"), *paths, *more, str(tmp_path / "fleet.yml"))

    return run


@pytest.mark.fleet
def test_a_refresh_reads_the_nodes_and_a_look_without_one_reads_none(site, tmp_path):
    rc, output = site("-e", "fleet_refresh=true", "--limit", "gpu-1,localhost")
    assert rc != 0, output
    assert "2 of 3 hosts are as planned, 1 is not known" in output
    page = (tmp_path / "fleet/fleet.html").read_bytes()
    rc, output = site("-e", "fleet_report_only=true")
    assert rc == 0, output
    assert "TASK [Read the " not in output
    assert not re.search(r"changed=[1-9]|unreachable=[1-9]", output)
    assert (tmp_path / "fleet/fleet.html").read_bytes() == page


# What the page is asked to show: the part of its address after "#".
CHROMIUM = shutil.which("chromium")


@pytest.fixture(scope="module")
def shown(tmp_path_factory):
    """Return a function that returns the elements of the page of so many nodes, as chromium shows it."""
    folder = tmp_path_factory.mktemp("page")
    if CHROMIUM is None:
        pytest.skip("chromium is not installed")

    def run(nodes, asked="", text="row remap pending"):
        look, floor = fleet(nodes, time.time())
        first, *others = look.hosts
        each = datum(HEALTH, FAULT, text, time.time(), [text])
        sick = {("gpu-0001", "leaf-001-1"): text}
        look = replace(look, hosts=(replace(first, data=(each,)), *others), links=sick)
        file = folder / "fleet.html"
        file.write_text(fleet_page(look, floor, text, "../proofs"))
        done = subprocess.run(
            [
                *(CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"),
                *(f"--user-data-dir={folder}/profile", "--virtual-time-budget=5000", "--dump-dom"),
                f"file://{file}{asked}",
            ],
            capture_output=True,
            text=True,
            timeout=300,
            check=True,
        )
        return done.stdout.partition('<script type="application/json"')[0]

    return run


def rows(dom):
    return re.findall(r'<button type="button" class="open">(.*?)</button>', dom)


@pytest.mark.long
@pytest.mark.parametrize(("nodes", "hosts", "sick"), [(40, 80, 3), (5000, 6600, 216)])
def test_a_browser_shows_racks_table_search_and_filter(shown, nodes, hosts, sick):
    whole = shown(nodes, "#sort=-host")
    assert whole.count('class="tile') == hosts
    assert (len(rows(whole)), rows(whole)[0][:6]) == (min(hosts, 300), "spine-")
    assert f"{hosts} hosts" in whole
    faults = shown(nodes, "#state=fault&group=gpu_nodes&q=REMAP")
    assert (len(rows(faults)), rows(faults)[0]) == (sick, "gpu-0001")
    assert f"{sick} of {hosts} hosts" in faults


@pytest.mark.long
def test_a_host_shows_its_faults_its_proof_and_its_links(shown):
    panel = shown(40, "#host=gpu-0006").partition('<aside id="panel"')[2]
    assert "PFC: wanted 3, seen none" in panel
    assert 'href="./../proofs/fabric_drift.html"' in panel
    assert len(re.findall("leaf-001-[1-8]</span>", panel)) == 8
    assert "drained: waits for a new riser (ada)" in panel


@pytest.mark.long
def test_text_of_a_node_is_never_markup(shown):
    text = "</script><script>document.title='owned'</script><img src=x onerror=\"document.title='owned'\">"
    dom = shown(4, "#host=gpu-0001", text=text)
    assert "<title>owned" not in dom
    assert "<img" not in dom
    assert dom.count(html.escape(text, quote=False)) >= 3
    assert dom.count("<b>link differs</b>") == 1
