# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Ports of switches are disabled and enabled once; programs of infiniband-diags are simulated or scripts."""

from __future__ import annotations

import os

import pytest
from messages import raises

from ansible_collections.sailloft.fleet.plugins.module_utils.infiniband.errors import InfinibandError
from ansible_collections.sailloft.fleet.plugins.module_utils.subnet_manager.diags import Diags
from ansible_collections.sailloft.fleet.plugins.module_utils.subnet_manager.ports import read_ports, set_port

GUID = "0x0000000000200003"
SUMMARY = "## Summary: 2 nodes checked, 1 bad nodes found"


class SwitchDiags(Diags):
    """A switch with one port. ``obeys`` is False if it needs an M_Key."""

    def __init__(self, state: str = "LinkUp", obeys: bool = True) -> None:
        super().__init__()
        self.state, self.obeys, self.changes = state, obeys, []

    def run(self, program: str, *arguments: str) -> str:
        """Answer smpquery and ibportstate."""
        if program == "smpquery":
            return (
                f"# Port info: Lid 2 port 4\nLinkState:.......................Active\nPhysLinkState:...{self.state}\n"
            )
        assert (program, *arguments[:3]) == ("ibportstate", "-G", GUID, "4")
        self.changes.append(arguments[3])
        if self.obeys:
            self.state = {"disable": "Disabled", "enable": "Polling"}[arguments[3]]
        return ""


@pytest.mark.parametrize(
    ("held", "state", "operation"), [("LinkUp", "disabled", "disable"), ("Disabled", "enabled", "enable")]
)
def test_a_port_is_changed_once_and_compared_in_check_mode(held, state, operation):
    diags = SwitchDiags(held)
    assert set_port(diags, GUID, 4, state, check=True).changed
    assert diags.changes == []
    assert set_port(diags, GUID, 4, state).changed
    assert not set_port(diags, GUID, 4, state).changed
    assert diags.changes == [operation]


def test_a_switch_that_ignores_the_change_fails():
    with raises(InfinibandError, f"{GUID} port 4", "M_Key"):
        set_port(SwitchDiags(obeys=False), GUID, 4, "disabled")
    with raises(InfinibandError, f"{GUID} port 4", "smpquery"):
        set_port(SwitchDiags(""), GUID, 4, "disabled")


@pytest.fixture
def tools(tmp_path, monkeypatch):
    """Return a function that installs the programs; ibqueryerrors ends with a status."""
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)

    def install(status):
        for name, script in (
            ("ibnetdiscover", "echo links"),
            ("ibqueryerrors", f"echo $*; echo '{SUMMARY}'; echo 'query failed on a, Lid 1 port 1' >&2; exit {status}"),
            ("iblinkinfo", "echo 'Down/ Polling'; echo 'Down/Disabled'"),
        ):
            (tmp_path / name).write_text(f"#!/bin/sh\n{script}\n")
            (tmp_path / name).chmod(0o755)

    return install


@pytest.mark.parametrize("status", [0, 1])
def test_counters_are_read_with_the_ports_that_did_not_answer(tools, tmp_path, status):
    tools(status)
    read = read_ports(Diags("mlx5_0"), tmp_path)
    assert read.counters.splitlines() == [
        "-C mlx5_0 --threshold-file /dev/null",
        SUMMARY,
        "query failed on a, Lid 1 port 1",
    ]
    assert (read.found, read.disabled) == ("links\n", "Down/Disabled\n")


def test_a_scan_that_failed_is_an_error(tools, tmp_path):
    tools(255)
    with raises(InfinibandError, "ibqueryerrors"):
        read_ports(Diags(), tmp_path)
