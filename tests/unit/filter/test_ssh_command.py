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
def test_the_ssh_command_has_the_connection_settings_of_the_inventory(variables, words):
    limits = ["ConnectTimeout=15", "ServerAliveInterval=15", "ServerAliveCountMax=4"]
    given_up = [word for limit in limits for word in ("-o", limit)]
    assert shlex.split(ssh_command(variables)) == ["ssh", "-o", "BatchMode=yes", *words, *given_up]


def test_input_that_is_not_a_dictionary_of_variables_is_refused():
    with pytest.raises(AnsibleFilterError, match="variables"):
        ssh_command("boot01")
