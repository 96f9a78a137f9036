# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The module cabling_info with tools that are scripts, and ports that are files."""

from __future__ import annotations

import json

import pytest
from ansible.module_utils import basic
from messages import Mentions

from ansible_collections.sailloft.fleet.plugins.module_utils.subnet_manager import diags
from ansible_collections.sailloft.fleet.plugins.modules import cabling_info

NEIGHBOUR = {"name": "e1", "chassis": [{"name": [{"value": "leaf1"}]}], "port": [{"descr": [{"value": "swp1"}]}]}
READ = {"e1": {"device": "leaf1", "ports": ["swp1"]}}
LLDPCLI = f"""echo "$*" > "${{0%/*}}/asked"
echo '{json.dumps({"lldp": [{"interface": [NEIGHBOUR]}]})}'"""


@pytest.fixture(autouse=True)
def ports(tmp_path, monkeypatch):
    """The host's ports: two have a link, of 400 Gbit/s and of 1 Mbit/s."""
    for name, speed in (("e1", "400000\n"), ("e2", "1\n"), ("e3", "0\n"), ("e4", "-1\n"), ("e5", "\n"), ("e6", None)):
        (tmp_path / "net" / name).mkdir(parents=True)
        if speed:
            (tmp_path / "net" / name / "speed").write_text(speed)
    monkeypatch.setattr(cabling_info, "NET", tmp_path / "net")


@pytest.mark.parametrize("check_mode", [False, True])
@pytest.mark.parametrize(
    ("given", "asked"),
    [({}, "-f json0 show neighbors\n"), ({"socket": "/run/s"}, "-u /run/s -f json0 show neighbors\n")],
)
def test_neighbours_and_speeds_are_read_from_the_host(call, tool, tmp_path, given, asked, check_mode):
    tool("lldpcli", LLDPCLI)
    result = call(cabling_info, given, check_mode)
    assert result == {"changed": False, "neighbours": READ, "speeds": {"e1": 400.0, "e2": 0.001}}
    assert (tmp_path / "bin/asked").read_text() == asked


def test_a_given_text_is_read_without_the_host(call):
    row = {"port": "Ethernet1", "neighborDevice": "spine1", "neighborPort": "Ethernet2"}
    assert call(cabling_info, {"system": "eos", "text": json.dumps({"lldpNeighbors": [row]})}) == {
        "changed": False,
        "neighbours": {"Ethernet1": {"device": "spine1", "ports": ["Ethernet2"]}},
        "speeds": {},
    }


def test_infiniband_is_returned_as_printed(call, tool):
    tool("lldpcli", LLDPCLI)
    tool("ibnetdiscover", """[ "$*" = -p ] && echo 'SW 1 1 0x1 4x NDR - CA 2 1 0x2'""")
    assert call(cabling_info, {"infiniband": True})["infiniband"] == "SW 1 1 0x1 4x NDR - CA 2 1 0x2\n"


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ("echo out; echo wrong >&2; exit 1", "wrong"),
        ("echo out; exit 1", "out"),
        (f"echo {'e' * 500} >&2; exit 3", "e" * 400),
    ],
)
def test_the_message_of_a_failing_tool_is_reported(call, tool, script, message):
    tool("lldpcli", script)
    assert call(cabling_info, {}) == {
        "failed": True,
        "msg": Mentions("lldpcli -f json0 show neighbors", message, "lldpd"),
    }


@pytest.mark.parametrize(
    ("missing", "remedy"), [("lldpcli", "install lldpd"), ("ibnetdiscover", "install infiniband-diags")]
)
def test_a_missing_tool_is_reported_with_its_package(call, tool, tmp_path, monkeypatch, missing, remedy):
    tool("lldpcli", LLDPCLI)
    find = basic.AnsibleModule.get_bin_path
    monkeypatch.setattr(
        basic.AnsibleModule, "get_bin_path", lambda self, name: None if name == missing else find(self, name)
    )
    monkeypatch.setattr(diags, "SYSTEM_PATHS", "")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    assert call(cabling_info, {"infiniband": True})["msg"] == Mentions(missing, remedy)
