# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The wait for a guest ends when it answers, does not run or does nothing for too long, not after a number of tries."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from ansible.errors import AnsibleConnectionFailure
from ansible.playbook.play_context import PlayContext
from messages import Mentions

from ansible_collections.sailloft.fleet.plugins.action import guest_answers

SILENT_S = 100

# What Mitogen says of a guest behind a jump host that has not booted.
MITOGEN = """\
EOF on stream; last 100 lines received:
channel 0: open failed: connect failed: No route to host
stdio forwarding failed
kex_exchange_identification: Connection closed by remote host"""


def stats(read: int, state: int = 1, received: int = 0) -> bytes:
    """Return the output of virsh domstats."""
    counters = {"state.state": state, "net.0.rx.bytes": received, "net.0.tx.bytes": 0, "block.0.rd.bytes": read}
    return "".join(["Domain: 'gpu01'\n", *(f"  {name}={value}\n" for name, value in counters.items())]).encode()


class Hypervisor:
    """A connection plugin to the hypervisor, whose virsh prints each item of ``told``, and repeats the last one."""

    def __init__(self, *told: bytes | None) -> None:
        self.told, self.asked = list(told), []

    def get(self, kind, context, new_stdin):
        self.address = (kind, context.remote_addr)
        return self

    def set_options(self, var_options):
        self.variables = var_options

    def exec_command(self, command, sudoable):
        self.asked.append(command)
        out = self.told.pop(0) if len(self.told) > 1 else self.told[0]
        if out is None:
            raise AnsibleConnectionFailure("the hypervisor is not reached")
        return (1, b"", out) if out.startswith(b"error: ") else (0, out, b"")


@pytest.fixture
def wait(monkeypatch):
    """Return a function that runs the action for a guest that answers at a given time; only sleep moves the clock."""
    clock = SimpleNamespace(now_s=0.0, step_s=10)

    def sleep(_seconds):
        clock.now_s += clock.step_s
        assert clock.now_s < 10_000, "the wait has no end"

    monkeypatch.setattr(guest_answers, "time", SimpleNamespace(monotonic=lambda: 5000 + clock.now_s, sleep=sleep))
    shown = []
    monkeypatch.setattr(guest_answers, "display", SimpleNamespace(display=shown.append))

    def run(
        hypervisor,
        answers_at_s=10**6,
        load=0.0,
        step_s=10,
        check_mode=False,
        silent_s=SILENT_S,
        hypervisor_name="hv01",
        causes=(MITOGEN,),
        **more,
    ):
        clock.step_s = step_s
        host = SimpleNamespace(getloadavg=lambda: (load, 0.0, 0.0), cpu_count=lambda: 2)
        monkeypatch.setattr(guest_answers, "os", host)
        task = SimpleNamespace(
            args={"hypervisor": hypervisor_name, **({"silent_s": silent_s} if silent_s else {}), **more},
            async_val=0,
            check_mode=check_mode,
            action="guest_answers",
        )
        connection = SimpleNamespace(reset=lambda: None, _shell=SimpleNamespace(tmpdir="/tmp"))
        monkeypatch.setattr(guest_answers, "connection_loader", hypervisor)
        action = guest_answers.ActionModule(task, connection, PlayContext(), None, None, None)

        told = list(causes)

        def command(_command, sudoable):
            if clock.now_s < answers_at_s:
                raise AnsibleConnectionFailure(told.pop(0) if len(told) > 1 else told[0])
            return {"rc": 0}

        monkeypatch.setattr(action, "_low_level_execute_command", command)
        variables = {"inventory_hostname": "gpu01", "hostvars": {"hv01": {"ansible_host": "10.0.0.1"}}}
        return action.run(task_vars=variables), shown

    return run


def test_the_wait_for_an_active_guest_has_no_limit(wait):
    hypervisor = Hypervisor(*(stats(read) for read in range(400)))
    result, shown = wait(hypervisor, answers_at_s=3900)
    assert (result.get("failed", False), result["elapsed_s"], result["changed"]) == (False, 3900, False)
    assert shown[0] == Mentions("gpu01", "20", "0.0", "MB", "kB")
    assert hypervisor.address == ("ssh", "10.0.0.1")
    assert hypervisor.asked[0] == "LC_ALL=C virsh --connect qemu:///system domstats --state --block --interface gpu01"


def test_progress_fits_a_line_and_has_the_first_cause(wait):
    _result, shown = wait(Hypervisor(*(stats(read) for read in range(10))), answers_at_s=57)
    assert {line.rpartition("; ")[2] for line in shown} == {"channel 0: open failed: connect failed: No route to host"}
    assert max(map(len, shown)) < 150


@pytest.mark.parametrize(("step_s", "at_s"), [(15, [15, 30, 45]), (14, [28, 56]), (16, [16, 32, 48])])
def test_progress_is_shown_every_15_s(wait, step_s, at_s):
    _result, shown = wait(Hypervisor(*(stats(read) for read in range(10))), answers_at_s=57, step_s=step_s)
    assert [line.partition(":")[0] for line in shown] == [f"gpu01 boots, {now} s" for now in at_s]


def test_a_guest_may_be_silent_for_10_minutes_by_default(wait):
    result, _shown = wait(Hypervisor(stats(0)), silent_s=None)
    assert "has shown no activity for 610 s" in result["msg"]


def test_a_guest_whose_large_bars_are_mapped_slowly_may_be_silent_longer(wait):
    assert wait(Hypervisor(stats(1)), answers_at_s=SILENT_S + 350, boot_stall_s=400)[0].get("failed", False) is False
    assert wait(Hypervisor(stats(1)), boot_stall_s=400)[0]["failed"] is True


def test_a_guest_is_waited_for_in_check_mode_too(wait):
    result, _shown = wait(Hypervisor(stats(0)), answers_at_s=20, check_mode=True)
    assert (result["elapsed_s"], result.get("skipped", False)) == (20, False)


@pytest.mark.parametrize(
    ("hypervisor", "did"),
    [
        (Hypervisor(stats(5_000_000)), Mentions("5.0", "MB", "0.0", "kB")),
        # Packets that the guest receives are no sign of activity.
        (
            Hypervisor(*(stats(0, received=n) for n in range(100))),
            Mentions("0.0", "MB", "kB"),
        ),
        (Hypervisor(b"error: failed to connect to the hypervisor\n"), Mentions("activity")),
    ],
    ids=["stands still", "only receives", "hypervisor does not tell"],
)
def test_a_guest_without_activity_fails_with_the_next_step(wait, hypervisor, did):
    result, _shown = wait(hypervisor)
    assert result["failed"]
    assert result["msg"] == (
        Mentions("gpu01", SILENT_S + 10, did, "No route to host", "/var/log/libvirt/qemu/gpu01-console.log", "hv01")
    )


def test_the_error_of_an_unreachable_hypervisor_names_the_hypervisor(wait):
    result, shown = wait(Hypervisor(stats(5_000_000), None))
    assert result["failed"]
    assert result["msg"] == (Mentions("hv01", "gpu01", "310", "hv01's"))
    assert shown[-1] == Mentions("300", "its hypervisor hv01 cannot be reached")


def test_the_wait_restarts_if_the_hypervisor_answers_again_in_time(wait):
    hypervisor = Hypervisor(*[None] * 5, stats(1), *[None] * 5, *(stats(read) for read in range(2, 50)))
    result, _shown = wait(hypervisor, answers_at_s=400)
    assert (result.get("failed", False), result["elapsed_s"]) == (False, 400)


def test_the_silence_limit_is_longer_on_a_loaded_controller(wait):
    result, _shown = wait(Hypervisor(stats(0)), load=6.0)
    assert f"no activity for {3 * SILENT_S + 10} s" in result["msg"]


def test_a_guest_that_is_off_fails_at_once(wait):
    result, _shown = wait(Hypervisor(stats(0, state=5)))
    assert result["failed"]
    assert result["msg"] == Mentions("gpu01", "hv01")


@pytest.mark.parametrize("check_mode", [False, True])
def test_a_guest_that_the_hypervisor_does_not_have_fails_at_once(wait, check_mode):
    result, shown = wait(Hypervisor(b"error: failed to get domain 'gpu01'\n\n"), check_mode=check_mode)
    assert (result["failed"], shown) == (True, [])
    assert result["msg"] == Mentions("gpu01", "hv01", "gpu_guest_host", "playbooks/gpu_vms.yml")


def test_a_hypervisor_that_the_inventory_does_not_have_fails_at_once(wait):
    result, shown = wait(Hypervisor(stats(0)), hypervisor_name="hv02")
    assert (result["failed"], shown) == (True, [])
    assert result["msg"] == Mentions("gpu01", "hv02", "gpu_guest_host")


SSH = "Failed to connect to the host via ssh: "
DENIED = f"{SSH}root@192.0.2.21: Permission denied (publickey)."
UNKNOWN_KEY = f"{SSH}No ED25519 host key is known for 192.0.2.21.\r\nHost key verification failed."


@pytest.mark.parametrize(
    "cause",
    [
        UNKNOWN_KEY,
        "Host key checking is enabled, and SSH reported an unrecognized or mismatching host key.",
        "host key mismatch for 192.0.2.21",
    ],
    ids=["ssh", "Mitogen", "paramiko"],
)
def test_a_guest_whose_host_key_is_not_known_fails_at_once(wait, cause):
    result, shown = wait(Hypervisor(*(stats(read) for read in range(2000))), causes=(cause,))
    assert (result["failed"], shown) == (True, [])
    assert result["msg"] == Mentions("gpu01", "accept-new", "ssh-keygen -R")


@pytest.mark.parametrize(
    "cause",
    [DENIED, f"{SSH}Received disconnect: Too many authentication failures", "SSH authentication is incorrect"],
)
def test_a_guest_that_refuses_the_key_fails_before_it_is_silent_for_long(wait, cause):
    result, shown = wait(Hypervisor(*(stats(read) for read in range(2000))), causes=(cause,))
    assert result["failed"]
    assert result["msg"] == Mentions("gpu01", "ansible_user", "ansible_ssh_private_key_file")
    assert len(shown) == 2  # after 20 and 40 s; the third would come after 60


def test_a_guest_may_refuse_keys_until_its_first_boot_has_written_them(wait):
    refusals = (*[DENIED] * 5, MITOGEN, *[DENIED] * 5)
    result, _shown = wait(Hypervisor(stats(0)), answers_at_s=110, causes=refusals, silent_s=None)
    assert (result.get("failed", False), result["elapsed_s"]) == (False, 110)


def test_a_guest_that_does_not_run_is_reported_as_such_where_another_machine_has_its_address(wait):
    result, _shown = wait(Hypervisor(stats(0, state=5)), causes=(UNKNOWN_KEY,))
    assert result["msg"] == Mentions("virsh start gpu01")
