# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The role ib_fabric reads a fabric of the real opensm and proves it; the programs find ibsim by scripts in PATH."""

from __future__ import annotations

import json
import os
import shutil
import sys

import ib_sites
import simulated_subnet
import sites
import yaml
from playing import ansible_playbook
from simulated_subnet import Subnet

from ansible_collections.sailloft.fleet.plugins.module_utils.infiniband.fabric import fabric_of
from ansible_collections.sailloft.fleet.plugins.module_utils.infiniband.plan import plan

MASTER = "node-1 mlx5_0"
SITE = ib_sites.tree()
CABLES = simulated_subnet.cables(fabric_of(SITE, "compute"))
GUIDS = simulated_subnet.guids_of(CABLES)
PARTITIONS = {"a": {"pkey": 1, "members": {"node-1": "full", "node-2": "limited"}}}
PLAY = {
    "hosts": "ib_managers",
    "gather_facts": False,
    "tasks": [
        {"ansible.builtin.import_role": {"name": "sailloft.fleet.ib_fabric", "tasks_from": entry}}
        for entry in ("read", "prove")
    ],
}


def wrapped(subnet: Subnet, folder) -> None:
    """Write scripts that run infiniband-diags on the simulated host, one at a time, without the name of its device."""
    folder.mkdir()
    for name in ("ibnetdiscover", "smpquery", "saquery", "sminfo"):
        settings = ("LD_PRELOAD", "IBSIM_SOCKNAME")
        variables = " ".join(f"{setting}={subnet.environment[setting]}" for setting in settings)
        script = folder / name
        script.write_text(
            f"#!/bin/sh\nshift 2\nexec flock {folder} env SIM_HOST='{MASTER}' {variables} {shutil.which(name)} \"$@\"\n"
        )
        script.chmod(0o755)


def test_the_role_reads_and_proves_the_fabric(tmp_path):
    blueprint = tmp_path / "blueprint.yml"
    blueprint.write_text(yaml.safe_dump(sites.changed(**ib_sites.TREE)))
    home, proofs = tmp_path / "subnet/node-1", tmp_path / "proofs"
    options = {"dump_files_dir": str(home), "log_file": f"{home}/opensm.log"}
    settings = {"managers": [MASTER], "partitions": PARTITIONS, "options": options, "directory": str(home)}
    variables = {
        "ansible_connection": "local",
        "ansible_python_interpreter": sys.executable,
        "site_blueprint": str(blueprint),
        "ib_fabric_managers": [MASTER],
        "ib_fabric_guids": GUIDS,
        "ib_fabrics": {"compute": {"partitions": PARTITIONS, "options": options}},
        "ib_fabric_directory": str(home),
        "proofs_path": str(proofs),
    }
    inventory = {"ib_managers": {"hosts": {"node-1": variables}}}
    (tmp_path / "hosts.json").write_text(json.dumps(inventory))
    with Subnet(tmp_path / "subnet", CABLES) as subnet:
        wrapped(subnet, tmp_path / "bin")
        files = plan(SITE, "compute", settings, GUIDS).files
        config = subnet.configure(MASTER, files, "opensm-node-1.conf")
        config.write_text(files["opensm-node-1.conf"])
        play = {**PLAY, "environment": {"PATH": f"{tmp_path}/bin:{os.environ['PATH']}"}}
        (tmp_path / "play.yml").write_text(yaml.safe_dump([play]))
        with subnet.manager(MASTER, config):
            status, output = ansible_playbook(
                "-i", str(tmp_path / "hosts.json"), str(tmp_path / "play.yml"), folder=tmp_path
            )
    assert status == 0, output
    claims = json.loads((proofs / "infiniband-compute.json").read_text())["claims"]
    assert [claim for claim in claims if claim["holds"] is not True] == []
    assert {claim["layer"] for claim in claims} == {"cables", "routes", "partitions", "managers"}
    # The progress of the reading, and the table.
    assert "the P_Keys of 8 of 8 HCAs are read" in output
    assert "infiniband-compute.html" in output
