# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

import pytest
import tool_outputs as printed
from messages import Mentions

from ansible_collections.sailloft.fleet.plugins.module_utils.gpu_node.acceptance import outputs


def test_perftest_rates_are_converted_from_their_units():
    assert outputs.perftest_gb_per_s(printed.perftest(394.2)) == pytest.approx(49.275)
    # This is the output without --report_gbits.
    assert outputs.perftest_gb_per_s(printed.perftest(1000.0, "MiB/sec")) == pytest.approx(1.048576)


def test_the_nccl_bus_bandwidth_is_that_of_the_largest_size():
    assert outputs.nccl_bus_gb_per_s(printed.nccl(478.1)) == 478.1


def test_rows_of_nccl_tests_without_a_root_column_are_refused():
    """The eighth word in the output of NVIDIA/nccl-tests#107 is the error, which would be read as 0 GB/s."""
    row = (
        "  1310720000     327680000     float     sum   1135943    1.15    1.15  1e-06   1133850    1.16    1.16  1e-06"
    )
    with pytest.raises(outputs.UnreadableError, match="results"):
        outputs.nccl_bus_gb_per_s(f"{row}\n# Out of bounds values : 0 OK\n")


@pytest.mark.parametrize(
    ("read", "text", "why"),
    [
        (outputs.perftest_gb_per_s, "", Mentions("results")),
        (outputs.perftest_gb_per_s, printed.perftest().split(" 65536")[0], Mentions("results")),
        (outputs.perftest_gb_per_s, " Couldn't connect to 10.0.0.2:18515\n", Mentions("results")),
        (outputs.nccl_bus_gb_per_s, printed.nccl(wrong=3), Mentions("3", "wrong")),
        (outputs.nccl_bus_gb_per_s, printed.nccl().split("# Out of")[0], Mentions("finish")),
        (outputs.nccl_bus_gb_per_s, "# Out of bounds values : 0 OK\n", Mentions("results")),
    ],
)
def test_incomplete_or_erroneous_output_is_refused(read, text, why):
    with pytest.raises(outputs.UnreadableError) as error:
        read(text)
    assert str(error.value) == why


def test_perftest_rows_before_the_head_and_words_of_other_lines_are_ignored():
    row = " 65536      1000          0.00               80.00              0.75\n"
    head = " #bytes     #iterations    BW peak[MB/sec]    BW average[MB/sec]   MsgRate[Mpps]\n"
    with pytest.raises(outputs.UnreadableError):
        outputs.perftest_gb_per_s(row)
    later = row.replace("80.00", "1000.00")
    assert outputs.perftest_gb_per_s(head + row + later) == 1000 * 1048576 / 1e9
    assert outputs.perftest_gb_per_s(head.replace("MB", "Gb") + row) == 10.0


def test_nccl_rows_of_twelve_words_or_without_numbers_are_refused():
    row = "8 2 float sum -1 1 2.0 3.5 0 1 2.0 3.0 0"
    end = "\n# Out of bounds values : 0 OK\n"
    assert outputs.nccl_bus_gb_per_s(row + end) == 3.5
    for wrong in (row.rpartition(" ")[0], f"x{row}", row.replace("8 2", "8 2x")):
        with pytest.raises(outputs.UnreadableError, match="results"):
            outputs.nccl_bus_gb_per_s(wrong + end)
