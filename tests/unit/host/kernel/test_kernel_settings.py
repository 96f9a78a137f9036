# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

import pytest
from messages import Mentions, raises

from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.errors import HostError
from ansible_collections.sailloft.fleet.plugins.module_utils.host.kernel import kernel_settings

ALL = {
    "governor": "performance",
    "idle_exit_latency_us_max": 10,
    "numa_balancing": False,
    "ksm": False,
    "transparent_huge_pages": "madvise",
}
POLICY = f"{kernel_settings.CPUS}/cpufreq/policy"


def with_everything(server):
    """Give the server all files that can be set, with Linux's default values."""
    for cpu in (0, 1):
        server.put(f"{POLICY}{cpu}/scaling_governor", "powersave\n")
        server.put(f"{POLICY}{cpu}/scaling_available_governors", "performance powersave\n")
        server.put(f"{kernel_settings.CPUS}/cpu{cpu}/power/pm_qos_resume_latency_us", "0\n")
        server.put(f"{kernel_settings.CPUS}/cpu{cpu}/cpuidle/state0/latency", "2\n")
    server.put(kernel_settings.NUMA_BALANCING, "1\n")
    server.put(kernel_settings.KSM, "1\n")
    server.put(kernel_settings.HUGE, "[always] madvise never\n")


def test_all_settings_are_set_and_a_second_run_changes_nothing(server):
    with_everything(server)
    predicted = kernel_settings.ensure(server, ALL, check=True)
    assert server.effects == []
    outcome = kernel_settings.ensure(server, ALL)
    assert (predicted.before, predicted.after) == (outcome.before, outcome.after)
    assert outcome.before == {
        "governor": "powersave",
        "idle_exit_latency_us_max": "0",
        "numa_balancing": "1",
        "ksm": "1",
        "transparent_huge_pages": "always",
    }
    assert outcome.after == ALL
    assert server.read(f"{POLICY}1/scaling_governor") == "performance"
    assert server.read(f"{kernel_settings.CPUS}/cpu1/power/pm_qos_resume_latency_us") == "10"
    assert server.read(kernel_settings.NUMA_BALANCING) == "0"
    assert server.read(kernel_settings.HUGE) == "madvise"
    assert outcome.facts["settings"]["ksm"] == {"wanted": False, "seen": "0"}
    server.put(kernel_settings.HUGE, "always [madvise] never\n")  # the format in which the kernel shows it
    assert not kernel_settings.ensure(server, ALL).changed


def test_settings_that_are_not_given_are_not_changed(server):
    with_everything(server)
    assert not kernel_settings.ensure(server, {}).changed
    assert list(kernel_settings.ensure(server, {"ksm": False}).before) == ["ksm"]


def test_settings_that_the_host_lacks_are_not_applicable(server):
    outcome = kernel_settings.ensure(server, ALL)
    assert not outcome.changed
    assert {name: "not_applicable" in one for name, one in outcome.facts["settings"].items()} == dict.fromkeys(
        ALL, True
    )


def test_a_governor_that_the_driver_lacks_is_not_applicable(server):
    with_everything(server)
    outcome = kernel_settings.ensure(server, {"governor": "schedutil"})
    assert outcome.facts["settings"]["governor"]["not_applicable"] == (Mentions("CPUs", "performance", "powersave"))


def test_a_single_differing_cpu_is_detected(server):
    with_everything(server)
    kernel_settings.ensure(server, ALL)
    server.put(f"{POLICY}1/scaling_governor", "powersave\n")
    assert kernel_settings.ensure(server, {"governor": "performance"}).before == {"governor": "performance,powersave"}


def test_a_value_that_is_not_kept_is_an_error(server):
    with_everything(server)
    server.read_only.add(("ksm", 0))
    with pytest.raises(HostError, match=r"1.*/sys/kernel/mm/ksm/run"):
        kernel_settings.ensure(server, {"ksm": False})


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"turbo": True}, Mentions("turbo")),
        ({"governor": "fast"}, Mentions("governor", "fast")),
        ({"idle_exit_latency_us_max": 0}, Mentions("idle_exit_latency_us_max", 0)),
        ({"transparent_huge_pages": "sometimes"}, Mentions("transparent_huge_pages", "sometimes")),
    ],
)
def test_bad_input_is_refused(server, given, message):
    with pytest.raises(HostError) as error:
        kernel_settings.ensure(server, {**ALL, **given})
    assert str(error.value) == message
    assert server.effects == []


def test_services_that_set_the_same_settings_are_named(server):
    server.link("/etc/systemd/system/multi-user.target.wants/tuned.service", "/usr/lib/systemd/system/tuned.service")
    (line,) = kernel_settings.ensure(server, {}).facts["also_set_by"]
    assert line.startswith("tuned.service is enabled and sets governor")


def test_a_run_killed_at_any_point_is_completed_by_the_next_run(killed_anywhere):
    assert killed_anywhere(with_everything, lambda server: kernel_settings.ensure(server, ALL)) > 4


NONE = {
    "governor": Mentions("CPUs", "cpufreq"),
    "idle_exit_latency_us_max": Mentions("CPUs", "cpuidle"),
    "numa_balancing": Mentions("NUMA"),
    "ksm": Mentions("KSM"),
    "transparent_huge_pages": Mentions("transparent"),
}


def test_each_missing_setting_has_its_reason(server):
    found = kernel_settings.ensure(server, ALL).facts
    assert found["settings"] == {name: {"wanted": value, "not_applicable": NONE[name]} for name, value in ALL.items()}
    assert found["also_set_by"] == []


def test_cpus_without_idle_states_and_other_files_are_passed_over(server):
    with_everything(server)
    server.put(f"{kernel_settings.CPUS}/cpu2/power/pm_qos_resume_latency_us", "0\n")  # offline: no cpuidle
    server.put(f"{kernel_settings.CPUS}/cpu3/cpuidle/state0/latency", "2\n")
    server.put(f"{kernel_settings.CPUS}/cpuidle/cpuidle/x", "")
    server.put(f"{kernel_settings.CPUS}/cpuidle/power/pm_qos_resume_latency_us", "0\n")
    server.put(f"{kernel_settings.CPUS}/cpufreq/boost/scaling_governor", "x\n")
    kernel_settings.ensure(server, {"idle_exit_latency_us_max": 10, "governor": "performance"})
    assert server.effects == [f"poke {POLICY}{cpu}/scaling_governor" for cpu in (0, 1)] + [
        f"poke {kernel_settings.CPUS}/cpu{cpu}/power/pm_qos_resume_latency_us" for cpu in (0, 1)
    ]


def test_a_governor_is_the_only_choice_if_the_driver_names_none(server):
    server.put(f"{POLICY}0/scaling_governor", "powersave\n")
    assert not kernel_settings.ensure(server, {"governor": "powersave"}).changed
    settings = kernel_settings.ensure(server, {"governor": "performance"}).facts["settings"]
    assert settings["governor"]["not_applicable"] == Mentions("CPUs", "powersave")


@pytest.mark.parametrize(("wanted", "text"), [(True, "1"), (False, "0")])
def test_a_switch_is_written_as_a_digit(server, wanted, text):
    with_everything(server)
    server.put(kernel_settings.KSM, "2\n")
    outcome = kernel_settings.ensure(server, {"ksm": wanted})
    assert (outcome.before, outcome.after) == ({"ksm": "2"}, {"ksm": wanted})
    assert server.read(kernel_settings.KSM) == text
    assert outcome.facts["settings"] == {"ksm": {"wanted": wanted, "seen": text}}


def test_check_mode_reports_the_present_values(server):
    with_everything(server)
    facts = kernel_settings.ensure(server, {"ksm": False}, check=True).facts
    assert facts["settings"] == {"ksm": {"wanted": False, "seen": "1"}}


def test_a_value_that_is_not_kept_is_named_with_its_file(server):
    with_everything(server)
    server.read_only.add(("ksm", 0))
    with raises(HostError, "kernel_settings", "1", "/sys/kernel/mm/ksm/run"):
        kernel_settings.ensure(server, {"ksm": False})


def test_every_other_program_is_named_with_what_it_sets(server):
    for unit in ("tuned", "ksmtuned", "power-profiles-daemon", "cron"):
        server.link(f"/etc/systemd/system/multi-user.target.wants/{unit}.service", "/nowhere")
    assert kernel_settings.ensure(server, {}).facts["also_set_by"] == [
        Mentions(f"{unit}.service", what)
        for unit, what in (
            ("tuned", Mentions("governor", "transparent_huge_pages")),
            ("ksmtuned", "ksm"),
            ("power-profiles-daemon", "governor"),
        )
    ]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            {"idle_exit_latency_us_max": 0},
            Mentions("idle_exit_latency_us_max", "0"),
        ),
        ({"idle_exit_latency_us_max": 1000001}, Mentions("idle_exit_latency_us_max", "1000001")),
        ({"turbo": True}, Mentions("turbo", "settings", "avic", "governor", "idle_exit_latency_us_max")),
        ({"ksm": 1}, Mentions("ksm", "1")),
        ({"numa_balancing": "no"}, Mentions("numa_balancing", "no")),
        ({"avic": "on"}, Mentions("avic", "on")),
    ],
)
def test_a_wrong_kernel_setting_is_refused(given, message):
    with pytest.raises(HostError) as error:
        kernel_settings.wanted(given)
    assert str(error.value) == message


def test_settings_are_in_a_fixed_order_with_their_limits():
    given = {"ksm": True, "idle_exit_latency_us_max": 1000000, "governor": "powersave"}
    assert list(kernel_settings.wanted(given).items()) == [
        ("governor", "powersave"),
        ("idle_exit_latency_us_max", 1000000),
        ("ksm", True),
    ]
    assert kernel_settings.wanted({"idle_exit_latency_us_max": 1}) == {"idle_exit_latency_us_max": 1}
