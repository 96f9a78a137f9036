# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""playbooks/accept.yml on simulated nodes, whose tools are scripts that print in the formats of the real tools."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import gpudirect_servers as servers
import pytest
import tool_outputs as printed
from fleet import recap
from playing import ROOT, ansible_playbook

from ansible_collections.sailloft.fleet.plugins.module_utils.topology.gpudirect.acs_rules import BARE_METAL

pytestmark = pytest.mark.fleet
TOPOLOGY = """#!/usr/bin/python
# WANT_JSON
import json, sys

place = json.load(open(sys.argv[1]))["_ansible_remote_tmp"]
print(json.dumps({"changed": False, "topology": json.load(open(place + "/topology.json"))}))
"""
# The script serves one client and ends, as ib_write_bw does.
IB_WRITE_BW = """#!/bin/sh
[ "$1" != --help ] || { echo '      --use_cuda_bus_id=<cuda full BUS id>'; exit 0; }
port=$(echo "$*" | sed 's/.*-p \\([0-9]*\\).*/\\1/')
echo "$*" >> FOLDER/log
case "$*" in
*:??:??.[0-7])
    touch FOLDER/$port.listens
    until [ -e FOLDER/$port.done ]; do sleep 0.1; done ;;
*)
    [ -e FOLDER/$port.listens ] || { echo "Couldn't connect to x:$port" >&2; exit 1; }
    touch FOLDER/$port.done
    cat FOLDER/perftest ;;
esac
"""


class Site:
    """Two bare-metal nodes, a and b, and a guest c of the hypervisor hv."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        hosts = {}
        for name in ("a", "b", "c", "hv"):
            (folder / name).mkdir()
            hosts[name] = {"ansible_remote_tmp": str(folder / name), "gpu_node_accept_paths": [str(folder / "tools")]}
            (folder / name / "topology.json").write_text(json.dumps(self.board(name).to_dict()))
        hosts["c"]["gpu_guest_host"] = "hv"
        groups = {"gpu_nodes": ["a", "b"], "gpu_guests": ["c"], "gpu_hosts": ["hv"]}
        common = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable}
        inventory = {group: {"hosts": {name: hosts[name] for name in names}} for group, names in groups.items()}
        (folder / "hosts.json").write_text(json.dumps({"all": {"children": inventory, "vars": common}}))
        (folder / "tools").mkdir()
        place = folder / "collections/ansible_collections/sailloft/fleet"
        (place / "plugins/modules").mkdir(parents=True)
        for path in (ROOT / "galaxy.yml", ROOT / "meta", ROOT / "docs", ROOT / "roles", ROOT / "playbooks"):
            (place / path.name).symlink_to(path)
        for path in (ROOT / "plugins").iterdir():
            if path.name != "modules":
                (place / "plugins" / path.name).symlink_to(path)
        for path in (ROOT / "plugins/modules").iterdir():
            if path.name != "host_topology_info.py":
                (place / "plugins/modules" / path.name).symlink_to(path)
        (place / "plugins/modules/host_topology_info.py").write_text(TOPOLOGY)

    @staticmethod
    def board(name: str):
        """Return a host; a hypervisor has the kernel's ACS, which is wrong for GPUDirect, bare metal its role's."""
        host = servers.hgx(gpus=2, nics=1)
        if name in ("a", "b"):
            servers.apply_plan(host, BARE_METAL)
        for number, nic in enumerate(item for item in host.functions if item.kind == "nic"):
            nic.interfaces = {"rdma": [f"mlx5_{number}"]}
        return host

    def tool(self, name: str, text: str) -> None:
        path = self.folder / "tools" / name
        path.write_text(text)
        path.chmod(0o755)

    def prints(self, name: str, output: str) -> None:
        (self.folder / f"{name}.out").write_text(output)
        self.tool(name, f"#!/bin/sh\ncat {self.folder}/{name}.out\n")

    def play(self, *options: str) -> tuple[int, str]:
        return ansible_playbook(
            *("-i", str(self.folder / "hosts.json"), "-e", f"proofs_path={self.folder}/proofs"),
            # On a local connection, the directory for jobs below HOME may not be the user's own.
            *("-e", f"ansible_async_dir={self.folder}/jobs", *options),
            "playbooks/accept.yml",
            ANSIBLE_COLLECTIONS_PATH=str(self.folder / "collections"),
            ANSIBLE_CACHE_PLUGIN="memory",
        )

    def proof(self, name: str) -> dict:
        return json.loads((self.folder / f"proofs/acceptance-{name}.json").read_text())


@pytest.mark.long
def test_without_tools_no_claim_is_measured(tmp_path):
    site = Site(tmp_path)
    status, output = site.play()
    assert status != 0
    assert {name: counts["failed"] for name, counts in recap(output).items() if name != "hv"} == {
        "a": 1,
        "b": 1,
        "c": 1,
    }
    claims = site.proof("a")["claims"]
    assert {claim["holds"] for claim in claims} == {None}
    reasons = {re.sub(r"; b: .*", "", claim["reason"]) for claim in claims}
    assert reasons == {
        *(f"not measured: {tool} is not installed" for tool in ("nvbandwidth", "all_reduce_perf", "ib_write_bw")),
        "not measured: gpu_node_accept_launcher is empty",
    }
    assert sum("ib_write_bw" in claim["claim"] for claim in claims) == 4


@pytest.mark.long
def test_measurements_are_compared_with_the_links(tmp_path):
    site = Site(tmp_path)
    gpus = [item.address for item in site.board("a").functions if item.kind == "gpu"]
    site.prints("nvbandwidth", printed.nvbandwidth(gpus, [55.0] * 7 + [27.0]))
    site.prints("all_reduce_perf", printed.nccl(450.0))
    (tmp_path / "perftest").write_text(printed.perftest(394.4))
    site.tool("ib_write_bw", IB_WRITE_BW.replace("FOLDER", str(tmp_path)))
    status, output = site.play()
    # GPU 7 copies at half of its link's rate.
    assert status != 0, output
    first, *others = site.proof("a")["claims"]
    assert first["claim"] == "device_to_host_memcpy_ce, GPU 7"
    assert first["holds"] is False
    assert sum(claim["holds"] is True for claim in others) == 14
    rails = [claim for claim in others if claim["claim"].startswith("ib_write_bw")]
    assert [claim["seen"] for claim in rails] == [{"GB/s": 49.3}] * 4
    assert "a mlx5_0 to b mlx5_0" in rails[0]["source"]
    # This machine does not have the NIC, so its port cannot be read.
    assert {claim["holds"] for claim in rails} == {None}
    # Each side of each rail uses the GPU beside its NIC.
    log = (tmp_path / "log").read_text().splitlines()
    assert len([line for line in log if line.endswith(".0")]) == 4
    assert {re.search(r"--use_cuda_bus_id=(\S+)", line)[1] for line in log} <= set(gpus)
    assert "mlx5" not in json.dumps(site.proof("c")["claims"])


@pytest.mark.long
def test_a_measurement_is_compared_with_an_earlier_one(tmp_path):
    site = Site(tmp_path)
    gpus = [item.address for item in site.board("a").functions if item.kind == "gpu"]
    site.prints("nvbandwidth", printed.nvbandwidth(gpus, [55.0] * 7 + [27.0]))
    site.prints("all_reduce_perf", printed.nccl(450.0))
    assert site.play()[0] != 0
    # The baseline is the earlier measurement of node a.
    site.prints("nvbandwidth", printed.nvbandwidth(gpus, [55.0] * 8))
    status, output = site.play("-e", f"gpu_node_accept_baseline={tmp_path}/proofs/acceptance-a.json", "-l", "c,hv")
    assert status == 0, output
    against = [claim for claim in site.proof("c")["claims"] if claim["layer"] == "against the baseline"]
    assert len([claim for claim in against if claim["holds"]]) == 18


@pytest.mark.long
def test_a_tool_that_exceeds_its_time_limit_is_not_measured(tmp_path):
    site = Site(tmp_path)
    site.tool("nvbandwidth", "#!/bin/sh\nsleep 60\n")
    site.prints("all_reduce_perf", printed.nccl(450.0))
    status, output = site.play("-e", "__gpu_node_accept_limit_s=1", "-l", "c,hv")
    assert status != 0, output
    assert "it did not finish in 1 s" in json.dumps(site.proof("c")["claims"])


@pytest.mark.long
def test_check_mode_runs_no_tool_and_writes_no_proof(tmp_path):
    site = Site(tmp_path)
    site.tool("nvbandwidth", f"#!/bin/sh\ntouch {tmp_path}/ran\n")
    site.tool("ib_write_bw", f'#!/bin/sh\n[ "$1" = --help ] || touch {tmp_path}/ran\n')
    site.play("--check")
    assert not (tmp_path / "ran").exists()
    assert not (tmp_path / "proofs").exists()


@pytest.mark.long
def test_gpudirect_storage_is_shown_and_proved(tmp_path):
    site = Site(tmp_path)
    count = sum(item.kind == "gpu" for item in site.board("a").functions)
    gpus = "".join(f"GPU index {number} NVIDIA H100 bar:1 supports GDS\n" for number in range(count))
    settings = (
        "properties.use_pci_p2pdma : true\nproperties.use_compat_mode : false\nblock.nvme.use_pci_p2pdma : true\n"
    )
    drivers = "DRIVER CONFIGURATION:\nNVMe : nvfs, compat\n"
    site.prints("gdscheck", f"{drivers}CUFILE CONFIGURATION:\n{settings}{gpus}PLATFORM INFO:\nIOMMU: disabled\n")
    wanted = {"gpu_node_storage": "p2pdma", "gpu_node_storage_settings": {"properties.allow_compat_mode": False}}
    status, output = site.play("--limit", "a", "-e", json.dumps(wanted))
    assert status != 0
    claims = {
        claim["claim"]: claim["holds"] for claim in site.proof("a")["claims"] if claim["layer"] == "gpudirect storage"
    }
    assert [claim for claim, holds in claims.items() if not holds] == ["cuFile uses p2pdma for NVMe drives"], output
    assert len(claims) == 6
