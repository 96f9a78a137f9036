# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The failure of a BMC to restart its node: the cause and the next step."""

from __future__ import annotations

import pytest

from ansible_collections.sailloft.fleet.plugins.filter.node_boot_bmc_failure import node_boot_bmc_failure

BMC = {"address": "10.9.9.1", "password": "do-not-show-me"}


@pytest.mark.parametrize(
    ("said", "remedy"),
    [
        ("HTTP Error 401 on GET request", "See node_boot_bmc.username and password."),
        ("Unauthorized name", "See node_boot_bmc.username and password."),
        (
            "Incorrect password provided",
            "See node_boot_bmc.password; some BMCs keep only 16 characters of it for IPMI.",
        ),
        (
            "certificate verify failed",
            "Name its certificate authority in node_boot_bmc.ca, or set verify_tls to false.",
        ),
        ("it has the systems 1, 2; node_boot_bmc.system names 3", "See node_boot_bmc.system."),
        ("No module named pyghmi", "Install pyghmi on ctl1, for the Python that Ansible runs there."),
        ("timed out", "See whether ctl1 reaches that address, and whether the BMC needs a restart."),
    ],
)
def test_each_cause_has_its_next_step(said, remedy):
    sentence = node_boot_bmc_failure({"msg": said}, "bm01", BMC, "ctl1")
    assert sentence == f"bm01: its BMC 10.9.9.1 did not restart it: {said}. {remedy}"


def test_a_bmc_that_does_not_answer_or_has_no_address():
    sentence = node_boot_bmc_failure({"msg": None}, "bm01", {}, "ctl1")
    assert sentence.startswith("bm01: its BMC (none) did not restart it: it did not answer. See whether ctl1 reaches")
    assert "{'rc': 3}" in node_boot_bmc_failure({"rc": 3}, "bm01", BMC, "ctl1")
