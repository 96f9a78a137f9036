# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""playbooks/fabric_qos.yml with a device that refuses connections, or accepts them and never answers.

Its name, its address, the cause and the next step are reported once, and nothing else follows.
"""

from __future__ import annotations

import json
import re
import shutil
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from playing import ansible_playbook

pytestmark = pytest.mark.fleet
PASSWORD = "s3cret-w0rd"
NETWORK = {  # network OS, connection
    "dell_sonic": ("dellemc.enterprise_sonic.sonic", "httpapi"),
    "eos": ("arista.eos.eos", "httpapi"),
    "junos": ("junipernetworks.junos.junos", "netconf"),
    "nxos": ("cisco.nxos.nxos", "httpapi"),
}
PORTS = {
    "cumulus": "swp1",
    "dell_sonic": "Eth1/1",
    "eos": "Ethernet1/1",
    "junos": "et-0/0/0",
    "linux": "eth1",
    "nxos": "Ethernet1/1",
    "sonic": "Ethernet0",
}
CAUSES = {
    "cumulus": "Request failed: <urlopen error [Errno 111] Connection refused>; see user, "
    "password and ca_path of roce_switch_api, and `nv show system api` on the switch",
    "dell_sonic": r"[Errno 111] Connection refused. Check the connection (ansible_host,",
    "eos": r"[Errno 111] Connection refused. Check the connection (ansible_host,",
    "junos": "Could not open socket to 127.0.0.1:{port}. Check the connection (ansible_host,",
    "linux": "port 22: Connection refused. Check that it is up and that the inventory has its address",
    "nxos": r"[Errno 111] Connection refused. Check the connection (ansible_host,",
    "sonic": "port 22: Connection refused. Check that it is up and that the inventory has its address",
}


@contextmanager
def bound(listening: bool) -> Iterator[int]:
    """Yield a port of 127.0.0.1 that refuses connections, or accepts them and sends nothing."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        if listening:
            taken.listen(16)
        yield taken.getsockname()[1]


def switch(system: str, port: int, other: str) -> dict[str, Any]:
    name = PORTS[system]
    given = {
        "ansible_host": "127.0.0.1",
        "ansible_port": port,
        "ansible_user": "admin",
        "roce_switch_system": system,
        "roce_switch_asic": "spectrum4",
        "roce_switch_queue_buffer_bytes": 50_000_000,
        "roce_switch_ports": {name: {"speed_gbit_s": 400, "cable_m": 5, "peer": {"switch": other, "port": name}}},
        "roce_switch_api": {"url": f"https://127.0.0.1:{port}/nvue_v1"},
    }
    if system not in ("sonic", "linux"):
        given["ansible_password"] = PASSWORD
    if system in NETWORK:
        network_os, connection = NETWORK[system]
        given["ansible_network_os"] = network_os
        given["ansible_connection"] = f"ansible.netcommon.{connection}"
        given |= {"ansible_httpapi_port": port, "ansible_httpapi_use_ssl": False}
        given["ansible_python_interpreter"] = sys.executable
    return given


def play(folder: Path, groups: dict[str, dict[str, Any]], *more: str) -> tuple[int, str]:
    """Return (exit status, output in one line)."""
    inventory = folder / "inventory.json"
    inventory.write_text(json.dumps({name: {"hosts": hosts} for name, hosts in groups.items()}))
    paths = {"roce_switch_backup_dir": f"{folder}/backups", "proofs_path": f"{folder}/proofs"}
    options = ["-i", str(inventory), "-e", json.dumps(paths), *more]
    status, output = ansible_playbook(*options, "playbooks/fabric_qos.yml", COLUMNS="4000")
    return status, " ".join(output.split())


def told_once(output: str, name: str, words: str) -> None:
    """Check that ``name`` is reported once, in these words, without internals, and that no other play follows."""
    assert output.count(words) == 1, output
    assert len(re.findall(r"fatal: \[", output)) == 1, output
    assert re.search(rf"FAILED! =>.*\b1 of \d devices were not read: {name}; .*; nothing was changed", output)
    assert re.findall(r"PLAY \[(.*?)\]", output)[1:] == ["Read the fabric and plan the stages"]
    for other in ("censored", "HostVars", "UNREACHABLE", PASSWORD):
        assert other not in output


def parameters(names, quick):
    """Return parameters of which ``make test`` runs ``quick``, and ``make test-all`` all."""
    return [name if name in quick else pytest.param(name, marks=pytest.mark.long) for name in sorted(names)]


# A host with ssh, of another kind of connection, is tried below.
@pytest.mark.parametrize("system", parameters(PORTS, ("eos",)))
def test_a_switch_that_refuses_connections_is_reported_once(tmp_path, system):
    with bound(listening=False) as port:
        status, output = play(tmp_path, {"roce_switches": {"leaf1": switch(system, port, "leaf1")}})
    assert status == 2
    cause = CAUSES[system].format(port=port).replace("port 22", f"port {port}")
    told_once(output, "leaf1", cause)
    where = {
        "cumulus": f"leaf1: NVUE's API at https://127.0.0.1:{port}/nvue_v1",
        "linux": f"leaf1 cannot be reached at 127.0.0.1, port {port}: ssh: ",
        "sonic": f"leaf1 cannot be reached at 127.0.0.1, port {port}: ssh: ",
    }
    assert where.get(system, "leaf1: its running configuration cannot be read at 127.0.0.1: ") in output


@pytest.mark.long
@pytest.mark.parametrize("system", ["eos", "sonic"])
def test_a_switch_that_accepts_connections_but_never_answers_is_reported_once(tmp_path, system):
    with bound(listening=True) as port:
        given = {**switch(system, port, "leaf1"), "ansible_command_timeout": 5, "ansible_connect_timeout": 5}
        status, output = play(tmp_path, {"roce_switches": {"leaf1": given}}, "-T", "3")
    assert status == 2
    words = {
        "eos": "leaf1: its running configuration cannot be read at 127.0.0.1: command timeout triggered",
        "sonic": f"Connection timed out during banner exchange; Connection to 127.0.0.1 port {port}",
    }
    told_once(output, "leaf1", words[system])


@pytest.mark.parametrize("playing", [[], pytest.param(["--check"], marks=pytest.mark.long)])
def test_a_roce_host_that_refuses_connections_is_reported_once(tmp_path, playing):
    """The switch is read, but not planned or changed."""
    shutil.copy(Path(__file__).parents[2] / "support/roles/sonic_switch/ssh", tmp_path / "ssh")
    (tmp_path / "leaf1/bin").mkdir(parents=True)
    config = tmp_path / "leaf1/bin/sonic-cfggen"
    config.write_text("#!/bin/sh\necho '{}'\n")
    config.chmod(0o755)
    leaf = switch("sonic", 22, "leaf1")
    leaf["roce_switch_ports"]["Ethernet0"]["peer"] = {"host": "gpu1", "port": "mlx5_0"}
    leaf |= {"ansible_host": "leaf1", "ansible_ssh_executable": str(tmp_path / "ssh")}
    leaf["ansible_python_interpreter"] = sys.executable
    with bound(listening=False) as port:
        host = {"ansible_host": "127.0.0.1", "ansible_port": port, "roce_host_nics": {"mlx5_0": {"speed_gbit_s": 400}}}
        status, output = play(tmp_path, {"roce_switches": {"leaf1": leaf}, "roce_hosts": {"gpu1": host}}, *playing)
    assert status == 2
    words = f"gpu1 cannot be reached at 127.0.0.1, port {port}: ssh: connect to host 127.0.0.1 port {port}: "
    if playing:  # the other devices are planned
        assert output.count(words) == 1, output
        assert "1 of 2 devices were not read" in output
    else:
        told_once(output, "gpu1", words)
    assert not (tmp_path / "backups").exists()


@pytest.mark.long
def test_a_switch_that_is_lost_while_it_is_read_ends_the_run(tmp_path):
    """The connection is lost after the check of the connection."""
    shutil.copy(Path(__file__).parents[2] / "support/roles/sonic_switch/ssh", tmp_path / "ssh")
    (tmp_path / "leaf1/bin").mkdir(parents=True)
    lost = tmp_path / "leaf1/bin/sh"
    lost.write_text(
        '#!/bin/sh\ncase "$*" in "") touch "$(dirname "$0")/../down"; exit 255 ;; esac\nexec /bin/sh "$@"\n'
    )
    lost.chmod(0o755)
    leaf = switch("linux", 22, "leaf1") | {"ansible_host": "leaf1", "ansible_ssh_executable": str(tmp_path / "ssh")}
    leaf["ansible_python_interpreter"] = sys.executable
    status, output = play(tmp_path, {"roce_switches": {"leaf1": leaf}})
    assert status != 0
    assert "ssh: connect to host leaf1 port 22: Connection refused" in output
    assert re.search(r"FAILED! =>.*\b1 of 1 devices were not read: leaf1; .*; nothing was changed", output)
    assert "HostVars" not in output
    assert not (tmp_path / "backups").exists()


SITE = {"gpu_hosts": "hv01", "gpu_guests": "vm01", "boot_servers": "boot01", "image_builders": "b01", "nodes": "n01"}
# By playbook: a host, and the play that reports why the host is not reached.
FIRST_PLAYS = {
    "gpu_hosts": ("hv01", "Configure the servers that need changes, until a reboot is due"),
    "gpu_vms": ("hv01", "Define and start the GPU virtual machines"),
    "node_identities": ("n01", "Enrol the nodes' TPMs"),
    "node_images": ("b01", "Build images"),
    "plan": ("hv01", "Plan GPU virtual machines"),
    "prove": ("hv01", "Read the hypervisors"),
    "record": ("hv01", "Record hosts"),
}
# Earlier plays check the run and compare all servers. The comparison leaves a server that it cannot
# compare to the play in FIRST_PLAYS.
BEFORE = {
    "Check the run",
    "Find the servers that need changes",
    "Find the servers whose virtual machines need changes",
}


def site(folder: Path, playbook: str, port: int, *more: str) -> tuple[int, str]:
    host = {"ansible_host": "127.0.0.1", "ansible_port": port, "gpu_guest_host": "hv01"}
    inventory = folder / "inventory.json"
    inventory.write_text(json.dumps({group: {"hosts": {name: host}} for group, name in SITE.items()}))
    options = ["-i", str(inventory), "-e", f"proofs_path={folder}", *more]
    status, output = ansible_playbook(*options, f"playbooks/{playbook}.yml", COLUMNS="4000")
    return status, " ".join(output.split())


@pytest.mark.parametrize("playbook", parameters(FIRST_PLAYS, ("gpu_hosts",)))
def test_a_host_that_refuses_connections_ends_other_playbooks_in_their_first_play(tmp_path, playbook):
    name, first = FIRST_PLAYS[playbook]
    with bound(listening=False) as port:
        status, output = site(tmp_path, playbook, port)
    assert status == 2
    assert (
        f"{name} cannot be reached at 127.0.0.1, port {port}: ssh: connect to host 127.0.0.1 port {port}: Connection "
        "refused. Check that it is up and that the inventory has its address, port, user and key (ansible_host, "
        "ansible_port, ansible_user, ansible_ssh_private_key_file), then run again"
    ) in output
    assert output.count("fatal: [") == 1
    # Plays without hosts, here the one for ESXi, do not count.
    plays = re.findall(r"PLAY \[([^\]]*)\] \*+ (?!skipping: no hosts matched)", output)
    assert [play for play in plays if play not in BEFORE] == [first]
    assert "UNREACHABLE" not in output


def test_the_proof_of_a_guest_fails_if_its_hypervisor_was_not_read(tmp_path):
    with bound(listening=False) as port:
        status, output = site(tmp_path, "prove", port, "--limit", "vm01")
    assert status == 2
    assert "vm01: it cannot be proved, since its hypervisor hv01 was not read" in output
    assert "has no attribute" not in output
