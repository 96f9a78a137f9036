# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""rsync reaches a boot server as Ansible does."""

from __future__ import annotations

import shlex

import pytest
from ansible.errors import AnsibleFilterError

from ansible_collections.sailloft.fleet.plugins.filter.ssh_command import ssh_command


@pytest.mark.parametrize(
    ("variables", "words"),
    [
        ({}, ["-p", "22"]),
        ({"ansible_port": 2202}, ["-p", "2202"]),
        ({"ansible_ssh_private_key_file": "/a key"}, ["-p", "22", "-i", "/a key"]),
        ({"ansible_private_key_file": "/key"}, ["-p", "22", "-i", "/key"]),
        (
            {"ansible_ssh_common_args": " -o A=b -o 'ProxyCommand=ssh -W %h:%p x' ", "ansible_ssh_extra_args": "-C"},
            ["-p", "22", "-o", "A=b", "-o", "ProxyCommand=ssh -W %h:%p x", "-C"],
        ),
    ],
)
def test_what_the_inventory_says_of_the_connection(variables, words):
    limits = ["ConnectTimeout=15", "ServerAliveInterval=15", "ServerAliveCountMax=4"]
    given_up = [word for limit in limits for word in ("-o", limit)]
    assert shlex.split(ssh_command(variables)) == ["ssh", "-o", "BatchMode=yes", *words, *given_up]


def test_what_is_no_hosts_variables():
    with pytest.raises(AnsibleFilterError, match="str is no host's variables"):
        ssh_command("boot01")
