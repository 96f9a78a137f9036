# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The first stage of a signed kernel: it finds its NIC and servers by DHCP, in BusyBox's own shell and udhcpc."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from boot_server_role import dnsmasq_configuration
from dhcp_network import DNSMASQ, DhcpNetwork
from first_stage import DIGEST, INIT, shell

pytestmark = pytest.mark.skipif(
    not shutil.which("busybox") or not DNSMASQ, reason="no busybox or dnsmasq on this machine (bindep.txt)"
)
NODE = {"name": "bm01", "mac": "52:54:00:aa:bb:01", "address": "10.9.0.11"}
SERVERS = ["http://10.9.0.1", "http://10.9.0.2:8001"]


@pytest.fixture
def network(tmp_path: Path):
    """A network whose side of the clients also has a NIC without a DHCP server, and has the node's address."""
    found = DhcpNetwork(tmp_path, 24)
    found._run(found.clients, f"ip link set nodes0 address {NODE['mac']}", "ip address flush dev nodes0")
    found._run(found.clients, "ip link add aaa0 type veth peer name aaa1", "ip link set aaa1 up")
    yield found
    found.close()


def found_by(network: DhcpNetwork, folder: Path, seconds: float = 60) -> str:
    """Return what the first stage prints when it has looked for its NIC."""
    lease = folder / "dhcp-lease"
    lease.write_text(f'#!/bin/sh\n. {INIT}\nfolder={folder}/run\nlease "$1"\n')
    lease.chmod(0o755)
    script = f"""
        . {INIT}
        folder={folder}/run
        mkdir -p $folder
        arguments='sailloft.image={DIGEST} sailloft.signed=1'
        settings
        mount -t sysfs sysfs /sys
        load_modules() {{ :; }}
        devices() {{ echo aaa0; echo nodes0; }}
        restart() {{ echo "rebooting: $1"; exit; }}
        udhcpc() {{ busybox udhcpc "$@" -s {lease}; }}
        find_boot_nic
        for each in aaa0 nodes0; do [ $(($(cat /sys/class/net/$each/flags) & 1)) = 0 ] || echo "$each is up"; done
        echo "$mac" $(echo "$servers" | sort)
    """
    # udhcpc, which keeps running, ends with the shell.
    unshare = ["unshare", "--mount", "--pid", "--fork"]
    command = [*network._enter(network.clients), *unshare, "busybox", "sh", "-c", script, "test"]
    found = subprocess.run(command, capture_output=True, text=True, timeout=seconds, check=False)
    assert found.stderr == ""
    return found.stdout


def test_the_nic_that_boots_is_the_one_whose_server_names_boot_servers(network: DhcpNetwork, tmp_path: Path):
    network.dnsmasq(dnsmasq_configuration([NODE], boot_server_interface="boot0", boot_server_servers=SERVERS), 1)
    # udev could not rename the others if they were up.
    *before, found = found_by(network, tmp_path).splitlines()
    assert found == f"{NODE['mac']} {' '.join(SERVERS)}"
    assert [line for line in before if line.endswith(" is up")] == ["nodes0 is up"]


def test_a_node_to_which_nobody_names_boot_servers_reboots(network: DhcpNetwork, tmp_path: Path):
    """The DHCP server gives addresses, and knows nothing about booting."""
    text = dnsmasq_configuration([NODE], boot_server_interface="boot0", boot_server_servers=SERVERS)
    network.dnsmasq("".join(line for line in text.splitlines(True) if "224" not in line), 1)
    assert "rebooting: " in found_by(network, tmp_path)


def test_a_signed_kernel_of_another_image_than_the_statements_is_refused(tmp_path: Path):
    """It is an older one of the site, which the firmware trusts as well. iPXE's command line decides nothing."""
    script = 'stated() {{ [ $1 != image ] || echo {0}; }}; sequence=7; check_image && echo boots || echo "$reason"'
    signed = "sailloft.signed=1"
    assert shell(tmp_path, script.format(DIGEST), signed) == "boots\n"
    assert shell(tmp_path, script.format("0" * 64)) == "boots\n"
    refused = shell(tmp_path, script.format("0" * 64), signed)
    assert DIGEST in refused
    assert "0" * 64 in refused
