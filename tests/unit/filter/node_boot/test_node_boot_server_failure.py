# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The failure of a task on all boot servers: the hosts, the causes and the next step."""

from __future__ import annotations

import pytest

from ansible_collections.sailloft.fleet.plugins.filter.node_boot_server_failure import node_boot_server_failure

HERE = ". The run ends here; no channel or script is partly written. "
AGAIN = " the same playbook again: it continues from there"
FIX = f"{HERE}Fix that, and run{AGAIN}"
STORE = {"host": "boot02", "path": "/srv/sailloft"}


@pytest.mark.parametrize(
    "answers",
    [
        {"changed": False},
        {"skipped": True},
        {"results": []},
        {"results": [{"item": "boot01", "failed": False, "unreachable": False, "msg": "fine"}, {"item": "boot02"}]},
    ],
)
def test_no_failure_is_reported_if_all_hosts_succeeded(answers):
    assert node_boot_server_failure(answers) == ""


def test_unreachable_and_failed_hosts_are_reported_differently():
    answers = {
        "results": [
            {"item": "boot01", "failed": True, "msg": "no space left \n"},
            {"item": STORE, "unreachable": True, "msg": "timed out"},
            {"item": "boot03"},
            {"item": "boot04", "unreachable": True},
        ]
    }
    assert node_boot_server_failure(answers) == (
        "boot01: no space left; boot02 does not answer: timed out; boot04 does not answer: no reason was given"
        f"{HERE}Bring boot02, boot04 back, or remove it from node_boot_servers in the inventory, and run{AGAIN}"
    )


def test_a_failed_host_is_not_reported_as_unreachable():
    assert (
        node_boot_server_failure({"results": [{"item": STORE, "failed": True, "msg": "held"}]}) == f"boot02: held{FIX}"
    )


def test_the_failure_of_a_task_without_a_loop_over_hosts_names_its_host():
    assert node_boot_server_failure({"failed": True, "msg": "no such file"}, "build01") == f"build01: no such file{FIX}"
    lost = [{"item": digest, "unreachable": True, "msg": "timed out"} for digest in ("aa", "bb")]
    assert node_boot_server_failure({"results": lost}, "boot01") == (
        f"boot01 does not answer: timed out{HERE}Bring boot01 back, or remove it from node_boot_servers "
        f"in the inventory, and run{AGAIN}"
    )
