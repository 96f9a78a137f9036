# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""nvbandwidth's report becomes bandwidths of GPUs by their addresses, or is refused."""

from __future__ import annotations

import json

import pytest
import tool_outputs as printed
from messages import Mentions

from ansible_collections.sailloft.fleet.plugins.module_utils.common import nvbandwidth

GPUS = ["0000:1b:00.0", "0000:43:00.0"]


def test_slow_copies_are_read_and_copies_that_were_not_made_are_omitted():
    read = nvbandwidth.copies(printed.nvbandwidth(GPUS, [0.4, 0.0]))
    found = [copy for copy in read.copies if copy.test == "host_to_device_memcpy_ce"]
    assert found == [nvbandwidth.Copy("host_to_device_memcpy_ce", 0, 0, 0.4)]


def test_nvbandwidth_cells_are_assigned_to_gpus():
    read = nvbandwidth.copies("warning\n" + printed.nvbandwidth(GPUS, [55.1, 27.2]))
    assert read.gpus == tuple(GPUS)
    assert nvbandwidth.Copy("host_to_device_memcpy_ce", 0, 1, 27.2) in read.copies
    pairs = [copy for copy in read.copies if copy.test == "device_to_device_memcpy_read_ce"]
    assert [(copy.row, copy.column) for copy in pairs] == [(0, 1), (1, 0)]
    assert read.waived == ()
    alone = nvbandwidth.copies(printed.nvbandwidth(GPUS[:1], [55.1], None))
    assert alone.waived == ("device_to_device_memcpy_read_ce (Waived)",)


def test_a_missing_pci_address_is_reported_as_the_error():
    with pytest.raises(nvbandwidth.UnreadableError) as error:
        nvbandwidth.copies(printed.nvbandwidth(["x"], [1.0]))
    assert str(error.value).startswith("no PCI address in ")


def test_a_pci_address_keeps_its_domain():
    assert nvbandwidth.copies(printed.nvbandwidth(["000a:43:00.0"], [1.0])).gpus == ("000a:43:00.0",)
    assert nvbandwidth.copies(printed.nvbandwidth(["0010:43:00.0"], [1.0])).gpus == ("0010:43:00.0",)


def test_copies_of_1_gb_per_s_or_less_count_and_a_waived_test_does_not_end_the_others():
    tests = [
        {"name": "first", "status": "Waived"},
        {"name": "second", "status": "Passed", "bandwidth_matrix": [["0.5", "N/A"], ["0", "1"]]},
    ]
    text = json.dumps({"nvbandwidth": {"GPU Device list": [], "testcases": tests}})
    assert nvbandwidth.copies(text) == nvbandwidth.Copies(
        (), (nvbandwidth.Copy("second", 0, 0, 0.5), nvbandwidth.Copy("second", 1, 1, 1.0)), ("first (Waived)",)
    )


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", Mentions("nvbandwidth")),
        ('{"nvbandwidth": {"error": "no CUDA"}}', Mentions("CUDA")),
        ('{"nvbandwidth": {}}', Mentions("GPU", "list")),
        (printed.nvbandwidth(["x"], [1.0]), Mentions("PCI", "address")),
        (
            printed.nvbandwidth(GPUS, [1.0, 2.0]).replace('"1.0"', '"fast"'),
            Mentions("nvbandwidth", "fast"),
        ),
    ],
)
def test_incomplete_or_erroneous_output_is_refused(text, why):
    with pytest.raises(nvbandwidth.UnreadableError) as error:
        nvbandwidth.copies(text)
    assert str(error.value) == why
