# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The images that nodes boot according to the inventory: each node's own variables are checked."""

from __future__ import annotations

import pytest
from ansible.errors import AnsibleActionFail
from messages import Mentions, raises

from ansible_collections.sailloft.fleet.plugins.action.node_boot_scripts import scripts_rows

NODE = {"node_boot_mac": "52:54:00:AA:bb:01", "node_boot_server_urls": ["http://10.9.0.1"]}


def test_each_node_has_the_values_of_its_own_variables():
    hostvars = {
        "bm02": {
            **NODE,
            "node_boot_server_urls": ["http://10.9.1.1"],
            "node_boot_cache_urls": ["http://10.9.1.2"],
            "node_boot_report_url": "http://10.9.1.1/report",
            "node_boot_secure_boot": True,
        },
        "bm01": {
            **NODE,
            "node_boot_image": {"digest": "a" * 64},
            "node_boot_kernel_arguments": ["debug"],
            "node_boot_nics": [{"name": "ens1", "address": "10.1.0.1/24"}],
        },
        "bm03": {},
    }
    assert scripts_rows(["bm02", "bm01"], hostvars) == [
        {
            "name": "bm01",
            "mac": "52:54:00:aa:bb:01",
            "digest": "a" * 64,
            "kernel_arguments": ["debug"],
            "servers": ["http://10.9.0.1"],
            "caches": [],
            "report": "",
            "nics": [{"name": "ens1", "address": "10.1.0.1/24"}],
            "secure_boot": False,
        },
        {
            "name": "bm02",
            "mac": "52:54:00:aa:bb:01",
            "channel": "stable",
            "kernel_arguments": [],
            "servers": ["http://10.9.1.1"],
            "caches": ["http://10.9.1.2"],
            "report": "http://10.9.1.1/report",
            "nics": [],
            "secure_boot": True,
        },
    ]


def test_a_timeout_may_be_text_from_the_command_line():
    assert scripts_rows(["bm01"], {"bm01": {**NODE, "node_boot_timeout_s": "600"}})[0]["name"] == "bm01"


def test_canaries_are_pinned_until_the_pin_is_empty():
    follows = {**NODE, "node_boot_image": {"channel": "lab"}}
    assert scripts_rows(["bm01"], {"bm01": follows}, "b" * 64)[0]["digest"] == "b" * 64
    assert scripts_rows(["bm01"], {"bm01": follows})[0]["channel"] == "lab"


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (
            {"node_boot_mac": "52:54:00:aa:bb"},
            Mentions("node_boot_mac", "52:54:00:aa:bb", "MAC"),
        ),
        (
            {"node_boot_timeout_s": 0},
            Mentions("node_boot_timeout_s", "0", "86400"),
        ),
        (
            {"node_boot_restart_timeout_s": "2m"},
            Mentions("node_boot_restart_timeout_s", "2m", "86400"),
        ),
        (
            {"node_boot_bmc": {"power_timeout_s": -1}},
            Mentions("node_boot_bmc.power_timeout_s", "-1", "86400"),
        ),
        (
            {"node_boot_mac": None},
            Mentions("node_boot_mac", "MAC"),
        ),
        (
            {"node_boot_image": {"channel": "stable", "digest": "a" * 64}},
            Mentions("node_boot_image", "stable", "digest", f"{'a' * 64}'}}"),
        ),
        (
            {"node_boot_image": "stable"},
            Mentions("node_boot_image", "stable"),
        ),
        ({"node_boot_image": {"channel": 7}}, Mentions("node_boot_image.channel", "7")),
        (
            {"node_boot_server_urls": []},
            Mentions("node_boot_server_urls"),
        ),
        (
            {"node_boot_server_urls": "http://10.9.0.1"},
            Mentions("node_boot_server_urls", "http://10.9.0.1"),
        ),
        (
            {"node_boot_nics": ["ens1"]},
            Mentions("node_boot_nics", "['ens1']", "NICs"),
        ),
        ({"node_boot_kernel_arguments": [1]}, Mentions("node_boot_kernel_arguments", "1")),
        ({"node_boot_secure_boot": "maybe"}, Mentions("node_boot_secure_boot", "maybe")),
        ({"node_boot_report_url": ["x"]}, Mentions("node_boot_report_url")),
    ],
)
def test_an_error_names_the_node_and_the_variable(wrong, message):
    with raises(AnsibleActionFail, "bm01", message):
        scripts_rows(["bm01"], {"bm01": {**NODE, **wrong}})


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (
            {"node_boot_servers": ["boot02"]},
            Mentions("bm02", "node_boot_servers", "boot02", "boot01", "bm01"),
        ),
    ],
)
def test_nodes_with_other_servers_or_stores_than_the_first_node_are_refused(other, message):
    hostvars = {"bm01": {**NODE, "node_boot_servers": ["boot01"]}, "bm02": {**NODE, **other}}
    with pytest.raises(AnsibleActionFail) as caught:
        scripts_rows(["bm01", "bm02"], hostvars)
    assert str(caught.value) == message


@pytest.mark.parametrize("setting", ["node_boot_health", "node_boot_drain", "node_boot_return"])
def test_a_missing_file_of_tasks_is_refused(tmp_path, setting):
    folder = {"playbook_dir": str(tmp_path)}
    for file in (str(tmp_path / "no.yml"), "no.yml"):
        with pytest.raises(AnsibleActionFail, match=rf"bm01: {setting}.tasks: .*no.yml"):
            scripts_rows(["bm01"], {"bm01": {**NODE, **folder, setting: {"tasks": file}}})
    (tmp_path / "tasks").mkdir()
    (tmp_path / "tasks/yes.yml").touch()
    for file in (str(tmp_path / "tasks/yes.yml"), "yes.yml", "tasks/yes.yml"):
        assert scripts_rows(["bm01"], {"bm01": {**NODE, **folder, setting: {"tasks": file}}})
