# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

import pytest
from ansible.errors import AnsibleFilterError

from ansible_collections.sailloft.fleet.plugins.filter.node_console_list import node_console_list

BMC = {"address": "10.9.1.1:8443", "username": "admin", "password": "secret"}


def site(**node):
    return {"boot01": {}, "n1": {"node_bmc_console": {"device": "ipmi"}, "node_boot_bmc": BMC, **node}}


def test_a_host_keeps_the_consoles_that_name_it():
    hosts = site(node_bmc_console_server="boot01")
    account = {"username": "admin", "password": "secret"}
    assert node_console_list(list(hosts), hosts, "boot01") == [{"name": "n1", "device": "ipmi:10.9.1.1", **account}]
    assert node_console_list(list(hosts), hosts, "n1") == []


@pytest.mark.parametrize("node", [{}, {"node_bmc_console_server": "boot1"}])
def test_a_console_that_nobody_would_keep_is_refused(node):
    hosts = site(**node)
    with pytest.raises(AnsibleFilterError):
        node_console_list(list(hosts), hosts, "boot01")
