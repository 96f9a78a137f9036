# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Outputs of measuring tools become bandwidths, nvbandwidth's by the addresses of GPUs, or are refused."""

from __future__ import annotations

import json

import pytest
import tool_outputs as printed
from messages import Mentions

from ansible_collections.sailloft.fleet.plugins.module_utils.common import measuring_tools

GPUS = ["0000:1b:00.0", "0000:43:00.0"]


def test_slow_copies_are_read_and_copies_that_were_not_made_are_omitted():
    read = measuring_tools.copies(printed.nvbandwidth(GPUS, [0.4, 0.0]))
    found = [copy for copy in read.copies if copy.test == "host_to_device_memcpy_ce"]
    assert found == [measuring_tools.Copy("host_to_device_memcpy_ce", 0, 0, 0.4)]


def test_nvbandwidth_cells_are_assigned_to_gpus():
    read = measuring_tools.copies("warning\n" + printed.nvbandwidth(GPUS, [55.1, 27.2]))
    assert read.gpus == tuple(GPUS)
    assert measuring_tools.Copy("host_to_device_memcpy_ce", 0, 1, 27.2) in read.copies
    pairs = [copy for copy in read.copies if copy.test == "device_to_device_memcpy_read_ce"]
    assert [(copy.row, copy.column) for copy in pairs] == [(0, 1), (1, 0)]
    assert read.waived == ()
    alone = measuring_tools.copies(printed.nvbandwidth(GPUS[:1], [55.1], None))
    assert alone.waived == ("device_to_device_memcpy_read_ce (Waived)",)


def test_a_missing_pci_address_is_reported_as_the_error():
    with pytest.raises(measuring_tools.UnreadableError) as error:
        measuring_tools.copies(printed.nvbandwidth(["x"], [1.0]))
    assert str(error.value).startswith("no PCI address in ")


def test_a_pci_address_keeps_its_domain():
    assert measuring_tools.copies(printed.nvbandwidth(["000a:43:00.0"], [1.0])).gpus == ("000a:43:00.0",)
    assert measuring_tools.copies(printed.nvbandwidth(["0010:43:00.0"], [1.0])).gpus == ("0010:43:00.0",)


def test_copies_of_1_gb_per_s_or_less_count_and_a_waived_test_does_not_end_the_others():
    tests = [
        {"name": "first", "status": "Waived"},
        {"name": "second", "status": "Passed", "bandwidth_matrix": [["0.5", "N/A"], ["0", "1"]]},
    ]
    text = json.dumps({"nvbandwidth": {"GPU Device list": [], "testcases": tests}})
    assert measuring_tools.copies(text) == measuring_tools.Copies(
        (), (measuring_tools.Copy("second", 0, 0, 0.5), measuring_tools.Copy("second", 1, 1, 1.0)), ("first (Waived)",)
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
            Mentions("fast"),
        ),
    ],
)
def test_an_incomplete_or_erroneous_report_of_nvbandwidth_is_refused(text, why):
    with pytest.raises(measuring_tools.UnreadableError) as error:
        measuring_tools.copies(text)
    assert str(error.value) == why


DEVICE = "0: NVIDIA H100 (00000000:1b:00): (node1)"


@pytest.mark.parametrize(
    "matrix",
    [
        '"123"',
        '["123"]',
        '{"0": {"0": 1}}',
        "[[true]]",
        '[["nan"]]',
        "[[NaN]]",
        '[["inf"]]',
        "[[1e999]]",
        '[["-3"]]',
        '[["[Not Supported]"]]',
        '[["5,5"]]',
        "[[null]]",
        "[[[1]]]",
        "[[" + "9" * 400 + "]]",
        "[" * 100000,
    ],
    ids=lambda matrix: matrix[:20],
)
def test_what_is_no_matrix_of_rates_is_refused(matrix):
    tests = f'[{{"name": "host_to_device_memcpy_ce", "status": "Passed", "bandwidth_matrix": {matrix}}}]'
    text = f'{{"nvbandwidth": {{"GPU Device list": ["{DEVICE}"], "testcases": {tests}}}}}'
    with pytest.raises(measuring_tools.UnreadableError):
        measuring_tools.copies(text)


@pytest.mark.parametrize("rate", ["nan", "inf", "-nan", "-1.0", "N/A", "9" * 400])
def test_rates_of_other_tools_that_are_no_numbers_are_refused(rate):
    rows = f"8 2 float sum -1 1 2.0 3.5 0 1 2.0 3.0 0\n16 4 float sum -1 1 2.0 {rate} 0 1 2.0 3.0 0\n"
    with pytest.raises(measuring_tools.UnreadableError):
        measuring_tools.nccl_bus_gb_per_s(rows + "# Out of bounds values : 0 OK\n")


def test_numbers_of_other_scripts_and_broken_numbers_are_no_rows():
    with pytest.raises(measuring_tools.UnreadableError):
        measuring_tools.nccl_bus_gb_per_s("² ² float sum -1 1 2.0 3.5 0 1 2.0 3.0 0\n# Out of bounds values : 0 OK\n")
    with pytest.raises(measuring_tools.UnreadableError):
        measuring_tools.perftest_gb_per_s(printed.perftest().replace("394.21", "3.9.21"))


def test_perftest_rates_are_converted_from_their_units():
    assert measuring_tools.perftest_gb_per_s(printed.perftest(394.2)) == pytest.approx(49.275)
    # This is the output without --report_gbits.
    assert measuring_tools.perftest_gb_per_s(printed.perftest(1000.0, "MiB/sec")) == pytest.approx(1.048576)


def test_the_nccl_bus_bandwidth_is_that_of_the_largest_size():
    assert measuring_tools.nccl_bus_gb_per_s(printed.nccl(478.1)) == 478.1


def test_rows_of_nccl_tests_without_a_root_column_are_refused():
    """The eighth word in the output of NVIDIA/nccl-tests#107 is the error, which would be read as 0 GB/s."""
    row = (
        "  1310720000     327680000     float     sum   1135943    1.15    1.15  1e-06   1133850    1.16    1.16  1e-06"
    )
    with pytest.raises(measuring_tools.UnreadableError, match="results"):
        measuring_tools.nccl_bus_gb_per_s(f"{row}\n# Out of bounds values : 0 OK\n")


@pytest.mark.parametrize(
    ("read", "text", "why"),
    [
        (measuring_tools.perftest_gb_per_s, "", Mentions("results")),
        (measuring_tools.perftest_gb_per_s, printed.perftest().split(" 65536")[0], Mentions("results")),
        (measuring_tools.perftest_gb_per_s, " Couldn't connect to 10.0.0.2:18515\n", Mentions("results")),
        (measuring_tools.nccl_bus_gb_per_s, printed.nccl(wrong=3), Mentions("3", "wrong")),
        (measuring_tools.nccl_bus_gb_per_s, printed.nccl().split("# Out of")[0], Mentions("finish")),
        (measuring_tools.nccl_bus_gb_per_s, "# Out of bounds values : 0 OK\n", Mentions("results")),
    ],
)
def test_incomplete_or_erroneous_output_is_refused(read, text, why):
    with pytest.raises(measuring_tools.UnreadableError) as error:
        read(text)
    assert str(error.value) == why


def test_perftest_rows_before_the_head_and_words_of_other_lines_are_ignored():
    row = " 65536      1000          0.00               80.00              0.75\n"
    head = " #bytes     #iterations    BW peak[MB/sec]    BW average[MB/sec]   MsgRate[Mpps]\n"
    with pytest.raises(measuring_tools.UnreadableError):
        measuring_tools.perftest_gb_per_s(row)
    later = row.replace("80.00", "1000.00")
    assert measuring_tools.perftest_gb_per_s(head + row + later) == 1000 * 1048576 / 1e9
    assert measuring_tools.perftest_gb_per_s(head.replace("MB", "Gb") + row) == 10.0


def test_nccl_rows_of_twelve_words_or_without_numbers_are_refused():
    row = "8 2 float sum -1 1 2.0 3.5 0 1 2.0 3.0 0"
    end = "\n# Out of bounds values : 0 OK\n"
    assert measuring_tools.nccl_bus_gb_per_s(row + end) == 3.5
    for wrong in (row.rpartition(" ")[0], f"x{row}", row.replace("8 2", "8 2x")):
        with pytest.raises(measuring_tools.UnreadableError, match="results"):
            measuring_tools.nccl_bus_gb_per_s(wrong + end)
