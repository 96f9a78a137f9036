# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The waves of a play, from the variables of its first host."""

from __future__ import annotations

import re

import pytest
from ansible.errors import AnsibleFilterError

from ansible_collections.sailloft.fleet.plugins.filter import waves

of_play = waves.FilterModule().filters()["waves"]


@pytest.mark.parametrize(
    ("variables", "serial", "most"),
    [
        ({}, ["100%"], 100),
        ({"play_serial": 5, "play_max_fail_percentage": 0}, ["5"], 0),
        ({"play_serial": ["1", 10, "25%"], "play_max_fail_percentage": "100"}, ["1", "10", "25%"], 100),
    ],
)
def test_the_first_host_sets_the_waves_of_a_play(variables, serial, most):
    hosts = {"a": variables, "b": {"play_serial": 7, "play_max_fail_percentage": 7}}
    assert of_play(["a", "b"], hosts) == {"serial": serial, "max_fail_percentage": most}


@pytest.mark.parametrize(("names", "hosts"), [([], {"a": {"play_serial": 0}}), (["a"], {})])
def test_a_play_without_hosts_has_one_wave(names, hosts):
    assert of_play(names, hosts) == {"serial": ["100%"], "max_fail_percentage": 100}


def test_a_play_has_waves_of_its_own_unless_the_site_sets_them():
    play = {"serial": 1, "max_fail_percentage": 0}
    assert of_play(["a"], {"a": {}}, **play) == of_play([], {}, **play) == {"serial": ["1"], "max_fail_percentage": 0}
    site = {"play_serial": ["1", "10%"], "play_max_fail_percentage": 20}
    assert of_play(["a"], {"a": site}, **play) == {"serial": ["1", "10%"], "max_fail_percentage": 20}


@pytest.mark.parametrize("serial", [0, "0%", "101%", "x", [], [1, "-1"]])
def test_a_wrong_serial_is_refused(serial):
    message = f"a: play_serial is {serial!r}; write a number of hosts from 1, a share like 10%, or a list"
    with pytest.raises(AnsibleFilterError, match=f"^{re.escape(message)}$"):
        of_play(["a", "b"], {"a": {"play_serial": serial}, "b": {}})


@pytest.mark.parametrize("most", [101, -1, "x"])
def test_a_wrong_share_of_failures_is_refused(most):
    message = f"a: play_max_fail_percentage is '{most}'; write a number from 0 to 100"
    with pytest.raises(AnsibleFilterError, match=f"^{re.escape(message)}$"):
        of_play(["a", "b"], {"a": {"play_max_fail_percentage": most}, "b": {}})
