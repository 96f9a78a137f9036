# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""One call restarts many nodes: each BMC has its own outcome, and what it says after the request is no verdict."""

from __future__ import annotations

import time

import pytest
from quirky_bmc import QuirkyBmc

from ansible_collections.sailloft.fleet.plugins.modules.node_boot_restart import restart_all


@pytest.fixture
def bmcs(tmp_path):
    """Return a function that starts BMCs with these faults, by node."""
    started = []

    def start(**faults):
        made = {name: QuirkyBmc(tmp_path / name, faults=(fault,)) for name, fault in faults.items()}
        started.extend(made.values())
        return made

    yield start
    for bmc in started:
        bmc.released.set()
        bmc.stop()


def resets(bmc):
    """Return the kinds of resets that a BMC was asked for."""
    return [change for change in bmc.changes if isinstance(change, str)]


def restart(made, timeout_s=5):
    """Return the outcomes of a restart of all nodes."""
    common = {"username": "root", "password": "none", "timeout_s": timeout_s, "power_timeout_s": 2}
    rows = [
        {"node": name, "http_boot": True, "bmc": {**common, "address": bmc.address, "ca": bmc.ca}}
        for name, bmc in made.items()
    ]
    return restart_all(rows, "localhost")


def test_each_node_has_its_own_outcome(bmcs):
    made = bmcs(bm01="", bm02="forgets", bm03="refuses", bm04="")
    began_s = time.monotonic()
    outcomes = restart(made)
    assert {name: bool(told["msg"]) for name, told in outcomes.items()} == {
        "bm01": False,
        "bm02": True,
        "bm03": True,
        "bm04": False,
    }
    assert {name for name, told in outcomes.items() if told["requested"]} == {"bm01", "bm04"}
    assert resets(made["bm02"]) == []
    assert all(0 <= told["since_s"] <= time.monotonic() - began_s for told in outcomes.values())


@pytest.mark.parametrize("fault", ["busy", "breaks_off"])
def test_a_bmc_that_fails_when_it_is_asked_may_have_restarted_the_node(bmcs, fault):
    made = bmcs(bm01=fault)
    outcome = restart(made)["bm01"]
    assert (outcome["requested"], "ForceRestart" in outcome["msg"]) == (True, True)
    assert set(resets(made["bm01"])) == {"ForceRestart"}


def test_a_bmc_that_hangs_does_not_hold_up_the_others(bmcs):
    made = bmcs(bm01="hangs", bm02="")
    began_s = time.monotonic()
    outcomes = restart(made, timeout_s=1)
    assert (outcomes["bm02"]["msg"], outcomes["bm02"]["requested"]) == ("", True)
    assert outcomes["bm01"]["msg"]
    assert made["bm01"].changes == []
    assert time.monotonic() - began_s < 60
