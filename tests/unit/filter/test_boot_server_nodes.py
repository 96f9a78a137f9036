# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The nodes of a boot server, from their variables."""

from __future__ import annotations

from ansible_collections.sailloft.fleet.plugins.filter.boot_server_nodes import boot_server_nodes


def test_each_node_with_a_mac_is_served_with_its_own_variables():
    hostvars = {
        "bm02": {
            "node_boot_mac": "52:54:00:00:00:02",
            "ansible_host": "10.9.0.12",
            "boot_server_architecture": "aarch64",
        },
        "bm01": {
            "node_boot_mac": "52:54:00:00:00:01",
            "boot_server_nic_driver": "firmware",
            "node_boot_secure_boot": "yes",
        },
        "bm03": {"ansible_host": "10.9.0.13"},
    }
    assert boot_server_nodes(["bm02", "bm01", "bm03"], hostvars, "x86_64") == [
        {
            "name": "bm02",
            "mac": "52:54:00:00:00:02",
            "address": "10.9.0.12",
            "architecture": "aarch64",
            "nic_driver": "ipxe",
            "secure_boot": False,
        },
        {
            "name": "bm01",
            "mac": "52:54:00:00:00:01",
            "address": "bm01",
            "architecture": "x86_64",
            "nic_driver": "firmware",
            "secure_boot": True,
        },
    ]
