# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Whatever a switch answers, a system's reader understands it or says in one error what it does not."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest
import switches
from hypothesis import given, settings
from hypothesis import strategies as st

from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.model.errors import FabricError
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.systems import cumulus, dell_sonic, junos, linux

PORT = {cumulus: "swp1", dell_sonic: "Eth1/1", junos: "et-0/0/0", linux: "p1"}
TEXTS = [(system, system.render(switches.switch(system.SYSTEM, [port]))) for system, port in PORT.items()]
TEXTS.append((linux, Path(__file__).parents[1].joinpath("systems/linux_reading.json").read_text()))
BITS = ['"', "{", "}", "[", "]", ":", ",", "null", "true", "-1", "9" * 20, "'", "\n", "  ", "- ", "0x", "{}", "1e400"]
PLACES = st.integers(0, 1 << 16)
SPLICES = st.lists(st.tuples(PLACES, st.integers(0, 40), st.sampled_from(["", *BITS])), min_size=1, max_size=4)


@pytest.mark.parametrize(
    ("system", "text"), TEXTS, ids=[f"{system.SYSTEM}{at}" for at, (system, _t) in enumerate(TEXTS)]
)
@settings(max_examples=120, deadline=None)
@given(splices=SPLICES, head=PLACES)
def test_a_damaged_configuration_is_read_or_refused(system, text, splices, head):
    for place, length, bit in splices:
        at = place % len(text)
        text = text[:at] + bit + text[at + length :] or "-"
    if head % 3 == 0:
        text = text[: head % len(text)]
    wanted = switches.switch(system.SYSTEM, [PORT[system]])
    with contextlib.suppress(FabricError):
        assert system.parse(text, "leaf1").name == "leaf1"
    with contextlib.suppress(FabricError):
        assert isinstance(system.remediation(text, wanted), str)
