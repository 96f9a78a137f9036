# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""node_bmc_baselines is read, and one that is not possible is refused with the place of the mistake."""

from __future__ import annotations

import pytest

from ansible_collections.sailloft.fleet.plugins.module_utils.firmware.baseline import (
    Baseline,
    BaselineError,
    WantedVersion,
    read,
)

SHA = "a" * 64


def test_a_baseline_is_read():
    image = {"version": "2", "url": "https://boot01/bmc.bin", "sha256": SHA}
    given = {"3500": {"bios": {"A": "x", "B": 1, "C": True, "D": ""}, "firmware": {"BMC": image}}, "X": {}}
    assert read(given, "gpu01") == {
        "3500": Baseline(
            {"A": "x", "B": 1, "C": True, "D": ""}, (WantedVersion("BMC", "2", "https://boot01/bmc.bin", SHA),)
        ),
        "X": Baseline(),
    }


@pytest.mark.parametrize(
    ("given", "place"),
    [
        ([], "node_bmc_baselines"),
        ({"3500": {"bioss": {}}}, "bioss"),
        ({"3500": {"bios": {"A": [1]}}}, "A"),
        ({"3500": {"bios": {"A": 1.5}}}, "A"),
        ({"3500": {"firmware": {"BMC": {}}}}, "version"),
        ({"3500": {"firmware": {"BMC": {"version": 2}}}}, "version"),
        ({"3500": {"firmware": {"BMC": {"version": "2", "url": "https://boot01/x"}}}}, "sha256"),
        ({"3500": {"firmware": {"BMC": {"version": "2", "sha256": SHA}}}}, "url"),
        ({"3500": {"firmware": {"BMC": {"version": "2", "url": "ftp://boot01/x", "sha256": SHA}}}}, "url"),
        ({"3500": {"firmware": {"BMC": {"version": "2", "url": "http://me:pw@boot01/x", "sha256": SHA}}}}, "url"),
        ({"3500": {"firmware": {"BMC": {"version": "2", "url": "http://boot01/x", "sha256": "abc"}}}}, "sha256"),
        ({"3500": {"firmware": {"BMC": {"version": "2", "targets": "x"}}}}, "targets"),
    ],
)
def test_a_mistake_is_refused_with_its_place(given, place):
    with pytest.raises(BaselineError) as error:
        read(given, "gpu01")
    assert "gpu01" in str(error.value)
    assert place in str(error.value)
