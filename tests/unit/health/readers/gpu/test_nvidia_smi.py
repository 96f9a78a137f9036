# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""nvidia-smi's report names each fault at its GPU, and what it does not say is not measured."""

from __future__ import annotations

import pytest
from gpu_readings import FIRST, SECOND, Verdicts, expected, gpu, node, report
from hypothesis import given
from hypothesis import strategies as st
from messages import raises

from ansible_collections.sailloft.fleet.plugins.module_utils.health.judge import RESET_COUNT
from ansible_collections.sailloft.fleet.plugins.module_utils.health.model import PASS, Expected, ExpectedDevice, Reading
from ansible_collections.sailloft.fleet.plugins.module_utils.health.readers.gpu.nvidia_smi import parse, read
from ansible_collections.sailloft.fleet.plugins.module_utils.health.readers.node import NotMeasuredError, Ran

TWO = expected(FIRST, SECOND)
DEPRECATED = "Requested functionality has been deprecated"


def verdicts(text, plan=TWO, earlier=None):
    """Return the verdicts on a report."""
    before = Reading("nvidia_smi", parse(earlier, plan)) if earlier else None
    return Verdicts(Reading("nvidia_smi", parse(text, plan)), plan, before)


def sick(**changed):
    """Return the verdicts on a healthy GPU and one with these fields."""
    return verdicts(report(gpu(FIRST), gpu(SECOND, **changed)))


def test_a_healthy_node_passes_all_that_it_reports():
    result = verdicts(report(gpu(FIRST), gpu(SECOND)), earlier=report(gpu(FIRST), gpu(SECOND)))
    assert result.faults() == set()
    assert result.passed() >= {
        "gpu_lost",
        "gpu_unreadable",
        "gpu_row_remap_pending",
        "gpu_row_remap_failure",
        "gpu_ecc_dram_uncorrectable",
        "gpu_ecc_sram_uncorrectable",
        "gpu_ecc_lifetime_uncorrectable",
        "gpu_sram_threshold_exceeded",
        "gpu_power_brake",
        "gpu_hw_thermal_slowdown",
        "gpu_hw_slowdown",
        "gpu_reset_required",
        "pcie_width",
        "pcie_speed",
        "gpu_pcie_replays",
        "gpu_fabric_state",
        "gpu_fabric_status",
        "gpu_fabric_bandwidth",
        "gpu_persistence_mode",
        "gpu_ecc_mode",
        "gpu_inforom_corrupted",
        "device_missing",
    }


@pytest.mark.parametrize(
    ("changed", "checks"),
    [
        ({"remapped_row_pending": "Yes"}, {"gpu_row_remap_pending"}),
        ({"remapped_row_failure": "Yes"}, {"gpu_row_remap_failure"}),
        ({"pending_blacklist": "Yes"}, {"gpu_retired_pages_pending"}),
        ({"pending_retirement": "Yes"}, {"gpu_retired_pages_pending"}),
        ({"dram_uncorrectable": "1"}, {"gpu_ecc_dram_uncorrectable"}),
        ({"ecc_errors__volatile__sram_uncorrectable": "4"}, {"gpu_ecc_sram_uncorrectable"}),
        ({"sram_uncorrectable_parity": "4"}, {"gpu_ecc_sram_uncorrectable"}),
        ({"sram_threshold_exceeded": "Yes"}, {"gpu_sram_threshold_exceeded"}),
        ({"ecc_errors__channel_repair_pending": "Yes"}, {"gpu_repair_pending"}),
        ({"ecc_errors__tpc_repair_pending": "Yes"}, {"gpu_repair_pending"}),
        ({"ecc_errors__unrepairable_memory": "Yes"}, {"gpu_unrepairable_memory"}),
        ({"current_ecc": "Disabled"}, {"gpu_ecc_mode"}),
        ({"persistence_mode": "Disabled"}, {"gpu_persistence_mode"}),
        (
            {
                "clocks_event_reason_hw_power_brake_slowdown": "Active",
                "clocks_event_reason_hw_slowdown": "Active",
            },
            {"gpu_power_brake"},
        ),
        (
            {"clocks_event_reason_hw_thermal_slowdown": "Active", "clocks_event_reason_hw_slowdown": "Active"},
            {"gpu_hw_thermal_slowdown"},
        ),
        ({"clocks_event_reason_hw_slowdown": "Active"}, {"gpu_hw_slowdown"}),
        ({"reset_required": "Yes"}, {"gpu_reset_required"}),
        ({"drain_and_reset_recommended": "Yes"}, {"gpu_drain_recommended"}),
        ({"gpu_recovery_action": "Reset"}, {"gpu_reset_required"}),
        ({"gpu_recovery_action": "Reboot"}, {"gpu_reboot_required"}),
        ({"gpu_recovery_action": "Drain P2P"}, {"gpu_drain_recommended"}),
        ({"gpu_recovery_action": "Drain and Reset"}, {"gpu_drain_recommended", "gpu_reset_required"}),
        ({"current_link_width": "8x"}, {"pcie_width"}),
        ({"current_link_gen": "1"}, {"pcie_speed"}),
        ({"state": "Not Started", "status": "N/A", "bandwidth": "N/A"}, {"gpu_fabric_state"}),
        # At each boot; if it lasts, gpu_unreadable, which is not occasional, is not measured.
        ({"state": "In Progress", "status": "N/A", "bandwidth": "N/A"}, set()),
        ({"status": "Insufficient Resources"}, {"gpu_fabric_status"}),
        ({"bandwidth": "Degraded"}, {"gpu_fabric_bandwidth"}),
        ({"fabric__health__summary": "Unhealthy"}, {"gpu_fabric_health"}),
        ({"gpu_util": "GPU is lost"}, {"gpu_lost"}),
        ({"temperature__gpu_temp_tlimit": "GPU requires reset"}, {"gpu_reset_required"}),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, dict) else "",
)
def test_one_sick_gpu_is_named_and_no_other(changed, checks):
    assert sick(**changed).faults() == {(check, f"gpu {SECOND}") for check in checks}


@pytest.mark.parametrize(
    "changed",
    [
        {"clocks_event_reason_sw_power_cap": "Active"},
        {"clocks_event_reason_gpu_idle": "Active", "gpu_util": "0 %", "performance_state": "P8"},
        {"current_link_gen": "1", "performance_state": "P8", "gpu_util": "0 %"},
        {"current_link_gen": "1", "gpu_util": "0 %"},
        {"current_link_gen": "1", "gpu_util": "N/A"},
        {"gpu_recovery_action": "None"},
        {"display_mode": DEPRECATED},
        {"ecc_errors__aggregate__dram_uncorrectable": "7"},
        {"remapped_rows__remapped_row_unc": "1"},
    ],
    ids="-".join,
)
def test_what_is_normal_is_no_fault(changed):
    assert sick(**changed).faults() == set()


@pytest.mark.parametrize(
    "words", ["N/A", "Unknown Error", "ERR!", "Requested functionality has been deprecated", "なし", "๓"]
)
@pytest.mark.parametrize(
    ("field", "check"),
    [
        ("remapped_row_pending", "gpu_row_remap_pending"),
        ("dram_uncorrectable", "gpu_ecc_dram_uncorrectable"),
        ("sram_uncorrectable_secded", "gpu_ecc_sram_uncorrectable"),
        ("clocks_event_reason_hw_power_brake_slowdown", "gpu_power_brake"),
        ("reset_required", "gpu_reset_required"),
        ("current_link_width", "pcie_width"),
        ("current_ecc", "gpu_ecc_mode"),
        ("persistence_mode", "gpu_persistence_mode"),
    ],
)
def test_words_instead_of_a_value_are_neither_zero_nor_no(field, check, words):
    result = sick(**{field: words})
    assert result.faults() == set()
    assert check in result.unmeasured(SECOND)
    # What exists and cannot be read is said: it is not quietly passed over as what the GPU does not have.
    assert ("gpu_unreadable" in result.unmeasured(SECOND)) == (words in ("Unknown Error", "ERR!", "なし", "๓"))


@pytest.mark.parametrize(
    "idle", [{"performance_state": "P8", "gpu_util": "0 %"}, {"gpu_util": "0 %"}, {"gpu_util": "N/A"}], ids=range(3)
)
def test_an_idle_gpu_does_not_show_that_it_is_no_longer_slowed_down(idle):
    slowdowns = {"gpu_power_brake", "gpu_hw_thermal_slowdown", "gpu_hw_slowdown"}
    assert slowdowns <= sick(**idle).unmeasured(SECOND)
    active = sick(clocks_event_reason_hw_power_brake_slowdown="Active", **idle)
    assert active.faults() == {("gpu_power_brake", f"gpu {SECOND}")}


def test_rows_under_mig_are_not_measured():
    result = sick(remapped_rows="N/A", without=("remapped_rows/",))
    assert result.faults() == set()
    assert {"gpu_row_remap_pending", "gpu_row_remap_failure"} <= result.unmeasured(SECOND)


def test_counters_are_not_measured_while_ecc_is_off():
    result = sick(current_ecc="Disabled", dram_uncorrectable="3")
    assert {"gpu_ecc_dram_uncorrectable", "gpu_ecc_sram_uncorrectable"} <= result.unmeasured(SECOND)


def test_of_a_lost_gpu_nothing_else_passes():
    result = sick(gpu_util="GPU is lost", gpu_temp="GPU is lost")
    assert result.passed(SECOND) <= {"device_missing", "gpu_inforom_corrupted"}
    assert "gpu_row_remap_pending" in result.passed(FIRST)


def test_counters_are_judged_by_their_increase():
    before = report(gpu(FIRST, replay_counter="48211"), gpu(SECOND, ecc_errors__aggregate__dram_uncorrectable="2"))
    same = verdicts(before, earlier=before)
    assert same.faults() == set()
    after = report(gpu(FIRST, replay_counter="96000"), gpu(SECOND, ecc_errors__aggregate__dram_uncorrectable="3"))
    assert verdicts(after, earlier=before).faults() == {
        ("gpu_pcie_replays", f"gpu {FIRST}"),
        ("gpu_ecc_lifetime_uncorrectable", f"gpu {SECOND}"),
    }


def test_slow_times_between_rounds_are_counted():
    path = "clocks_event_reasons_counters__clocks_event_reasons_counters_hw_power_brake"
    texts = [report(gpu(FIRST), gpu(SECOND, **{path: f"{time} us"}), dtd="v13") for time in (0, 5_000_000)]
    assert verdicts(texts[1], earlier=texts[0]).faults() == {("gpu_power_brake_time", f"gpu {SECOND}")}


def test_v11_has_other_names():
    names = {
        "clocks_throttle_reasons__clocks_throttle_reason_hw_slowdown": "Active",
        "clocks_throttle_reasons__clocks_throttle_reason_hw_power_brake_slowdown": "Active",
        "ecc_errors__volatile__dram_uncorrectable": "1",
        "ecc_errors__volatile__sram_uncorrectable": "0",
    }
    absent = ("clocks_event_reasons", "gpu_reset_status", "fabric", "ecc_errors")
    result = verdicts(report(gpu(FIRST), gpu(SECOND, without=absent, **names), dtd="v11"))
    assert result.faults() == {
        ("gpu_power_brake", f"gpu {SECOND}"),
        ("gpu_ecc_dram_uncorrectable", f"gpu {SECOND}"),
    }
    assert {"gpu_reset_required", "gpu_fabric_state", "gpu_sram_threshold_exceeded"} <= result.unmeasured(SECOND)


def test_an_absent_gpu_is_missing_wherever_its_index_was():
    result = verdicts(report(gpu(SECOND)))
    assert result.faults() == {("device_missing", f"gpu {FIRST}")}
    assert "device_missing" in result.passed(SECOND)
    assert verdicts("No devices were found\n").faults() == {
        ("device_missing", f"gpu {each}") for each in (FIRST, SECOND)
    }


@pytest.mark.parametrize("name", ["GPU1", "gpu 1", "GPU 00000000:1B:00.0", "GPU0000:1B:00.0"])
def test_a_gpu_without_a_handle_is_lost_and_the_others_are_not_measured(name):
    text = f"Unable to determine the device handle for {name}: GPU is lost.  Reboot the system to recover this GPU\n\n"
    result = verdicts(text)
    assert result.faults() == {("gpu_lost", f"gpu {SECOND}")}
    assert "gpu_lost" in result.unmeasured(FIRST)
    assert result.passed(FIRST) == set()


def test_a_corrupted_inforom_is_named_behind_the_report():
    text = f"{report(gpu(FIRST), gpu(SECOND))}WARNING: infoROM is corrupted at gpu 0000:1B:00.0\n"
    assert verdicts(text).faults() == {("gpu_inforom_corrupted", f"gpu {SECOND}")}


def test_numbers_are_given_to_the_fleet_and_those_of_work_only_at_full_load():
    busy = {each.check: each.value for each in parse(report(gpu()), expected())}
    assert (busy["gpu_temperature"], busy["gpu_power"], busy["gpu_sm_clock_under_load"]) == (64, 651.0, 1965)
    idle = {each.check: each.value for each in parse(report(gpu(gpu_util="3 %", sm_clock="345 MHz")), expected())}
    assert idle["gpu_utilization"] == 3
    assert not [check for check in idle if check.endswith("_under_load")]


@pytest.mark.parametrize(
    "text",
    [
        "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. Make sure that the latest ...\n",
        "Failed to initialize NVML: Driver/library version mismatch\nNVML library version: 570.86\n",
        "Failed to initialize NVML: Driver Not Loaded\n",
    ],
    ids=["not loaded", "another version", "not loaded, by NVML"],
)
def test_without_a_working_driver_the_node_has_one_fault_and_no_gpu_is_missing(text):
    result = verdicts(text)
    assert result.faults() == {("gpu_driver_fails", "node")}
    assert {"gpu_lost", "device_missing"} <= result.unmeasured(FIRST)
    again = verdicts(report(gpu(FIRST), gpu(SECOND)))
    assert [each.verdict for (check, _place), each in again.results.items() if check == "gpu_driver_fails"] == [PASS]


@pytest.mark.parametrize(
    ("text", "facts"),
    [
        ("NVIDIA-SMI couldn't find libnvidia-ml.so library in your system.", ["libnvidia-ml.so"]),
        ("", ["nothing"]),
        (report(gpu())[:900], ["end"]),
        (report("<gpu id='x'></gpu>"), ["address"]),
        (report("<gpu id='0000:1a:00.0'><a></gpu>"), ["XML"]),
        ("Unable to determine the device handle for GPU9: GPU is lost.", ["GPU 9"]),
    ],
    ids=range(6),
)
def test_without_a_report_nothing_is_measured(text, facts, tmp_path):
    with raises(NotMeasuredError, *facts):
        read(node(tmp_path, {"nvidia-smi -q -x": Ran(9, text, "")}))


def test_a_node_without_planned_nvidia_gpus_is_not_asked(tmp_path):
    assert read(node(tmp_path, {}, Expected("cpu-001"))).measurements == ()
    amd = Expected("amd-001", devices=(ExpectedDevice(FIRST, "gpu", "GPU 0", "1002:74a1"),))
    assert read(node(tmp_path, {}, amd)).measurements == ()


WORDS = st.one_of(st.text(max_size=30), st.sampled_from(["N/A", "Yes", "1e999", "9" * 40, "-1", "GPU is lost", "16x"]))


@given(st.dictionaries(st.sampled_from(["remapped_row_pending", "current_link_width", "gpu_util"]), WORDS))
def test_any_words_in_fields_are_read_without_a_crash(fields):
    safe = {name: "".join(c for c in words if c.isalnum() or c in " /!.,-") for name, words in fields.items()}
    result = sick(**safe)
    if safe.get("remapped_row_pending", "No").strip().lower() not in ("no", "not active"):
        assert "gpu_row_remap_pending" not in result.passed(SECOND)


@given(st.integers(0, 4000), st.binary(max_size=50))
def test_a_damaged_report_never_passes_what_it_does_not_say(cut, noise):
    text = report(gpu(FIRST), gpu(SECOND))
    damaged = text[:cut] + noise.decode(errors="replace") + text[cut + 20 :]
    try:
        measurements = parse(damaged, TWO)
    except NotMeasuredError:
        return
    # A lost word leaves a value unknown; it makes none that the report did not have.
    assert not any(each.value is True for each in measurements)


def test_a_gpu_that_needed_a_reset_and_needs_none_any_more_was_reset(tmp_path):
    kept, counts = {}, []
    for words in ("No", "No", "Yes", "N/A", "Yes", "No", "No", "Yes", "No"):
        text = report(gpu(FIRST, reset_required=words), gpu(SECOND))
        reading = read(node(tmp_path, {"nvidia-smi -q -x": text}, TWO, kept=kept))
        kept = reading.kept
        counts.append([each.value for each in reading.measurements if each.check == RESET_COUNT])
    assert counts == [[0, 0], [0, 0], [0, 0], [0], [0, 0], [1, 0], [1, 0], [1, 0], [2, 0]]


def test_a_recovery_action_that_was_done_is_a_reset_too(tmp_path):
    kept, counts = {}, []
    for action in ("None", "Drain and Reset", "None"):
        text = report(gpu(FIRST, gpu_recovery_action=action), dtd="v13")
        reading = read(node(tmp_path, {"nvidia-smi -q -x": text}, kept=kept))
        kept = reading.kept
        counts += [each.value for each in reading.measurements if each.check == RESET_COUNT]
    assert counts == [0, 0, 1]
