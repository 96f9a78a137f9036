# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Small parts of the kernel's settings: exact texts, boundaries of releases, commands in order."""

from __future__ import annotations

import gpudirect_servers as servers
import pytest

from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.errors import HostError
from ansible_collections.sailloft.fleet.plugins.module_utils.host.kernel import (
    acs_argument,
    avic,
    irqbalance,
    kernel_settings,
    lockdown,
    vfio_consoles,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.gpudirect.acs_plan import AcsPlan
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.gpudirect.acs_rules import VIRTUAL_MACHINES

GPU, NIC = "0000:13:00.0", "0000:14:00.0"
UNKNOWN = "the release of the running kernel is not known"


@pytest.mark.parametrize(
    ("release", "entries", "why"),
    [
        ("6.10.99", 1, "Linux 6.10.99 has no pci=config_acs= (6.11 has it)"),
        ("5.99", 1, "Linux 5.99 has no pci=config_acs= (6.11 has it)"),
        ("6.11", 1, None),
        ("6.11.99", 2, "Linux 6.11.99 sets only the first port of pci=config_acs= (6.12.23 and 6.15 set all)"),
        ("6.12", 2, "Linux 6.12 sets only the first port of pci=config_acs= (6.12.23 and 6.15 set all)"),
        ("6.12.22", 2, "Linux 6.12.22 sets only the first port of pci=config_acs= (6.12.23 and 6.15 set all)"),
        ("6.12.23", 2, None),
        ("6.13.23", 2, "Linux 6.13.23 sets only the first port of pci=config_acs= (6.12.23 and 6.15 set all)"),
        ("6.14.99", 2, "Linux 6.14.99 sets only the first port of pci=config_acs= (6.12.23 and 6.15 set all)"),
        ("6.15.0", 2, None),
        ("7.0", 2, None),
        ("v6.15", 1, UNKNOWN),
        ("", 1, UNKNOWN),
        (None, 1, UNKNOWN),
    ],
)
def test_a_kernel_without_the_acs_argument_is_named_with_those_that_have_it(release, entries, why):
    assert acs_argument.cannot(release, entries) == why


def test_a_decision_has_a_form_for_facts():
    assert acs_argument.NOT_NEEDED.to_dict() == {"argument": None, "reason": None, "not_taken": []}
    decision = acs_argument.Decision("a", "b", ["c"])
    assert decision.to_dict() == {"argument": "a", "reason": "b", "not_taken": ["c"]}


def test_the_reason_against_the_argument_is_part_of_the_decision():
    host = servers.hgx()
    host.kernel_release = None
    plan = AcsPlan(host, servers.passed(host), VIRTUAL_MACHINES)
    assert acs_argument.decide(plan, "") == acs_argument.Decision(None, UNKNOWN, [])


@pytest.mark.parametrize(("command_line", "named"), [("ro {}", 2), ("{}", 2), ("ro {};more", 0), ("ro x{}", 0)])
def test_ports_are_compared_only_if_the_kernel_was_started_with_the_argument(command_line, named):
    host = servers.inline()
    plan = AcsPlan(host, servers.passed(host), VIRTUAL_MACHINES)
    argument = acs_argument.decide(plan, "").argument
    not_taken = acs_argument.decide(plan, command_line.format(argument)).not_taken
    assert len(not_taken) == named
    for line, entry in zip(not_taken, argument[len("pci=config_acs=") :].split(";")):
        mask, _at, port = entry.partition("@")
        assert line == f"port {port} has ACS 0011101, although the kernel argument requests {mask}"


AMD = "vendor_id\t: AuthenticAMD\ncpu family\t: {}\nflags\t\t: svm {}\n"
ERRATUM = "its CPUs have erratum 1235, which makes guests hang; Linux 6.18 avoids it"
HYBRID = "its CPUs have no x2AVIC, and before Linux 6.0 guests with x2APIC then cannot use AVIC"


@pytest.mark.parametrize(
    ("family", "flags", "release", "why"),
    [
        (25, "avic x2avic", "5.4", ""),
        (25, "avic", "5.19", HYBRID),
        (25, "avic", "6.0", ""),
        (23, "avic x2avic", "6.17", ERRATUM),
        (23, "avic", "6.18", ""),
        (22, "avic", "6.17", ""),
        (24, "avic", "6.17", ""),
        ("?", "avic", "6.17", ERRATUM),
        ("?", "avic", "6.18", ""),
        (25, "x2avic", "6.18", "its CPUs or their firmware do not offer AVIC (no flag avic in /proc/cpuinfo)"),
        (25, "avic", "6", UNKNOWN),
        (25, "avic", "", UNKNOWN),
    ],
)
def test_the_reason_against_avic_is_named(server, family, flags, release, why):
    server.put("/proc/cpuinfo", AMD.format(family, flags))
    server.put("/proc/sys/kernel/osrelease", f"{release}\n")
    assert avic.cannot(server) == why


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("vendor_id : GenuineIntel\nflags : avic\n", "its CPUs are not AMD's"),
        ("model name : AuthenticAMD\n", "its CPUs are not AMD's"),
        (
            "vendor_id : AuthenticAMD\n",
            "its CPUs or their firmware do not offer AVIC (no flag avic in /proc/cpuinfo)",
        ),
    ],
)
def test_processors_without_avic_are_named(server, text, why):
    server.put("/proc/cpuinfo", text)
    assert avic.cannot(server) == why
    server.remove("/proc/cpuinfo")
    assert avic.cannot(server) == "its CPUs are not AMD's"


@pytest.mark.parametrize(
    ("text", "level", "forbids", "cause"),
    [
        (
            None,
            None,
            False,
            "the kernel refuses writes to PCI config space (EPERM), and /sys/kernel/security/lockdown does not say "
            "whether lockdown is on",
        ),
        (
            "[none] integrity confidentiality",
            "none",
            False,
            "the kernel refuses writes to PCI config space (EPERM), although lockdown is off: run as root of the host",
        ),
        (
            "none integrity [confidentiality]",
            "confidentiality",
            True,
            "kernel lockdown is on (confidentiality), which blocks all writes to PCI config space",
        ),
    ],
)
def test_the_level_of_lockdown_is_read_and_explained(server, text, level, forbids, cause):
    if text:
        server.put(lockdown.FILE, text)
    assert lockdown.level(server) == level
    assert lockdown.forbids_config_writes(level) is forbids
    assert lockdown.cause(level) == cause


@pytest.mark.parametrize(
    ("release", "boot_vga", "found"),
    [
        ("5.19", "1", ["initcall_blacklist=sysfb_init"]),
        ("4.18.0", "1", ["initcall_blacklist=sysfb_init"]),
        ("unknown", "1", ["initcall_blacklist=sysfb_init"]),
        ("5.19", "0", []),
        ("5.19", None, []),
        ("6.0", "1", []),
        ("6.1", "1", []),
        ("7.0", "1", []),
    ],
)
def test_consoles_are_kept_off_only_by_old_kernels(server, release, boot_vga, found):
    server.put("/proc/sys/kernel/osrelease", f"{release}\n")
    if boot_vga:
        server.put(f"{server.directory(GPU)}/boot_vga", f"{boot_vga}\n")
    server.put(f"{server.directory(NIC)}/boot_vga", "1\n")  # not a device of the guest
    assert vfio_consoles.arguments(server, server.host(), {"devices": [GPU]}) == found


TEXT = (
    "# Written by sailloft.fleet.gpu_host_boot; changes here are lost.\n[Service]\n"
    'Environment="IRQBALANCE_BANNED_CPULIST=1-3"\n'
)
DROP_IN = "/etc/systemd/system/irqbalance.service.d/sailloft.conf"
RESTART = "systemctl try-restart irqbalance.service"
WRITE = [f"replace {DROP_IN}", "systemctl daemon-reload", RESTART]


@pytest.fixture
def with_irqbalance(server):
    """The server with irqbalance installed, whose restart takes the variable from the file."""
    server.put("/lib/systemd/system/irqbalance.service", "")
    server.put("/proc/7/comm", "bash\n")
    server.put("/proc/7/environ", "IRQBALANCE_BANNED_CPULIST=7\0")
    return server


def irqbalance_runs(server, *environment):
    server.put("/proc/815/comm", "irqbalance\n")
    server.put("/proc/815/environ", "\0".join(environment))


def test_irqbalance_that_is_not_installed_is_left_alone(server):
    outcome = irqbalance.ensure(server, "1-3")
    assert (outcome.changed, outcome.facts) == (False, {"not_applicable": "irqbalance is not installed"})
    assert server.effects == []


def test_the_list_is_written_for_an_irqbalance_that_does_not_run(with_irqbalance):
    predicted = irqbalance.ensure(with_irqbalance, "1-3", check=True)
    assert with_irqbalance.effects == []
    outcome = irqbalance.ensure(with_irqbalance, "1-3")
    assert predicted == outcome
    assert (outcome.before, outcome.after) == ({DROP_IN: None}, {DROP_IN: "1-3"})
    assert outcome.facts == {"seen": "irqbalance does not run"}
    assert with_irqbalance.read_bytes(DROP_IN).decode() == TEXT
    assert with_irqbalance.effects == WRITE
    assert not irqbalance.ensure(with_irqbalance, "1-3").changed


@pytest.mark.parametrize("environment", [["LANG=C"], ["IRQBALANCE_BANNED_CPULIST=5"]])
def test_a_running_irqbalance_is_restarted_without_a_new_file(with_irqbalance, environment):
    with_irqbalance.put(DROP_IN, TEXT)
    irqbalance_runs(with_irqbalance, *environment)
    restart = with_irqbalance._systemctl

    def restarted(argv, stdin):
        irqbalance_runs(with_irqbalance, "LANG=C", "IRQBALANCE_BANNED_CPULIST=1-3")
        return restart(argv, stdin)

    with_irqbalance._systemctl = restarted
    before = irqbalance.ensure(with_irqbalance, "1-3", check=True)
    outcome = irqbalance.ensure(with_irqbalance, "1-3")
    assert (before.before, before.after) == (outcome.before, outcome.after)
    assert outcome.before == {DROP_IN: environment[0].partition("=")[2] if "CPULIST" in environment[0] else None}
    assert outcome.facts == {"seen": "1-3"}
    assert with_irqbalance.effects == [RESTART]


@pytest.mark.parametrize(("environment", "seen"), [(["LANG=C"], ""), (["IRQBALANCE_BANNED_CPULIST=5"], "5")])
def test_a_list_that_irqbalance_does_not_take_is_an_error(with_irqbalance, environment, seen):
    irqbalance_runs(with_irqbalance, *environment)
    with pytest.raises(HostError) as error:
        irqbalance.ensure(with_irqbalance, "1-3")
    assert str(error.value) == (
        f"kernel_settings: irqbalance runs with IRQBALANCE_BANNED_CPULIST={seen} after {DROP_IN} was written; look for "
        "the variable in /etc/default/irqbalance or /etc/sysconfig/irqbalance"
    )


def test_a_process_that_ends_meanwhile_is_passed_over(with_irqbalance, monkeypatch):
    irqbalance_runs(with_irqbalance, "IRQBALANCE_BANNED_CPULIST=1-3")
    with_irqbalance.put("/proc/8/comm", "irqbalance\n")
    with_irqbalance.put("/proc/self/comm", "irqbalance\n")
    with_irqbalance.put("/proc/self/environ", "IRQBALANCE_BANNED_CPULIST=9\0")
    read = with_irqbalance.read

    def ended(path):
        if path == "/proc/7/comm":
            raise HostError("cannot read", "")
        return read(path)

    monkeypatch.setattr(with_irqbalance, "read", ended)
    assert irqbalance._running(with_irqbalance) == (True, "1-3")


@pytest.mark.parametrize("cpus", ["0", "2-47", "2-47,50-95", "12345", "0,1,2"])
def test_lists_of_cpus_are_accepted(cpus):
    assert kernel_settings.wanted({"irqbalance_banned_cpus": cpus}) == {"irqbalance_banned_cpus": cpus}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            {"idle_exit_latency_us_max": 0},
            "idle_exit_latency_us_max: 0 is not valid; use a whole number from 1 to ",
        ),
        ({"idle_exit_latency_us_max": 1000001}, "idle_exit_latency_us_max: 1000001 is not valid"),
        ({"irqbalance_banned_cpus": "1,"}, "irqbalance_banned_cpus: '1,' is not a list of CPUs; write it like "),
        ({"irqbalance_banned_cpus": "123456"}, "irqbalance_banned_cpus: '123456' is not a list of CPUs"),
        ({"turbo": True}, "unknown setting 'turbo'; valid settings: avic, governor, idle_exit_latency_us_max, "),
        ({"ksm": 1}, "ksm: 1 is not valid"),
        ({"numa_balancing": "no"}, "numa_balancing: 'no' is not valid"),
        ({"avic": "on"}, "avic: 'on' is not valid"),
    ],
)
def test_a_wrong_kernel_setting_is_refused(given, message):
    with pytest.raises(HostError) as error:
        kernel_settings.wanted(given)
    assert str(error.value).startswith(f"kernel_settings: {message}")


def test_settings_are_in_a_fixed_order_with_their_limits():
    given = {"ksm": True, "idle_exit_latency_us_max": 1000000, "governor": "x"}
    assert list(kernel_settings.wanted(given).items()) == [
        ("governor", "x"),
        ("idle_exit_latency_us_max", 1000000),
        ("ksm", True),
    ]
    assert kernel_settings.wanted({"idle_exit_latency_us_max": 1}) == {"idle_exit_latency_us_max": 1}
