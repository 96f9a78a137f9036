# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The slow one among many, by the median of like nodes."""

from __future__ import annotations

from fleet_answers import GPUS, answer, values

from ansible_collections.sailloft.fleet.plugins.module_utils.health.fleet.table import table


def fleet(count=96, **odd):
    """Return the table of so many nodes; ``odd``: the values of some, by node."""
    names = [f"gpu{number:02}" for number in range(count)]
    results = [(name, answer(values=odd.get(name, values(number)))) for number, name in enumerate(names)]
    return table(results)


def test_the_papers_node_with_a_failed_power_feed_is_named_with_its_distance():
    """arXiv 2407.05467, 2.3: of 96 nodes with 768 GPUs one had the power brake, and the job was three times slower."""
    found = fleet(gpu41=values(41, clock=345.0, power=210.0, step=3.6))
    assert {each.node for each in found.outliers} == {"gpu41"}
    assert {each.check for each in found.outliers} == {
        "gpu_sm_clock_under_load",
        "gpu_power_under_load",
        "step_time",
    }
    clocks = [each for each in found.outliers if each.check == "gpu_sm_clock_under_load"]
    assert len(clocks) == len(GPUS)
    assert all(-0.9 < each.distance < -0.8 for each in clocks)
    line = next(line for line in found.lines if "clock" in line)
    assert line.startswith("1 node: GPU ")
    assert "and 7 more" in line
    assert "of 96 like nodes" in line
    assert line.endswith(": gpu41")
    assert "1 unlike their like" in found.summary
    assert found.holds  # an outlier is no fault: it is shown to people


def test_a_healthy_fleet_has_no_outlier():
    assert fleet().outliers == []
    assert fleet(2000).outliers == []


def test_equal_values_have_no_outlier_and_a_small_distance_is_none():
    same = {"gpu_sm_clock_under_load": {"gpu x": 1980.0}}
    near = {"gpu_sm_clock_under_load": {"gpu x": 1905.0}}
    far = {"gpu_sm_clock_under_load": {"gpu x": 1800.0}}
    nodes = [(f"n{number}", answer(values=same)) for number in range(20)]
    assert table([*nodes, ("near", answer(values=near))]).outliers == []
    assert [each.node for each in table([*nodes, ("far", answer(values=far))]).outliers] == ["far"]


def test_better_than_the_others_is_no_outlier():
    found = fleet(gpu41=values(41, clock=3000.0, power=1000.0, step=0.1))
    assert found.outliers == []


def test_only_like_nodes_are_compared():
    others = [(f"a{number}", answer(like="8 A100", values=values(number, clock=1410.0))) for number in range(10)]
    found = table([*others, *[(f"h{number}", answer(values=values(number))) for number in range(90)]])
    assert found.outliers == []


def test_few_like_nodes_are_not_compared_and_named():
    found = fleet(3, gpu01=values(1, clock=345.0))
    assert found.outliers == []
    assert "3 nodes: not compared, too few are like them: gpu[00-02]" in found.lines


def test_an_idle_gpus_temperature_is_not_compared():
    hot = values(41)
    hot["gpu_temperature"] = dict.fromkeys(hot["gpu_temperature"], 95.0)
    assert {each.check for each in fleet(gpu41=hot).outliers} == {"gpu_temperature"}
    idle = {**hot, "gpu_utilization": dict.fromkeys(hot["gpu_utilization"], 0.0)}
    assert fleet(gpu41=idle).outliers == []


def test_numbers_that_nobody_compares_and_nonsense_are_passed_over():
    odd = {"unknown": {"node": 1e300}, "step_time": {"node": float("nan")}}
    found = fleet(gpu41={**values(41), **odd})
    assert "unknown" not in {each.check for each in found.outliers}
