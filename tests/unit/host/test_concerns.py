# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A pass over all settings: which of them run, what is read again, and what is saved and reported."""

from __future__ import annotations

import shutil

import pytest
from messages import raises

from ansible_collections.sailloft.fleet.plugins.module_utils.host import concerns
from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.errors import HostError, RequestError
from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.outcome import Outcome

GPU, PF = "0000:13:00.0", "0000:15:00.0"
VFS = ["0000:15:10.0", "0000:15:10.2"]


def vfs(count, **more):
    return {"functions": [{"devices": [PF], "count": count, **more}]}


def addresses(host):
    return [function.address for function in host.functions]


@pytest.mark.parametrize(
    ("concern", "settings", "again"),
    [
        ("hugepages", {"pages": [{"node": 0, "size_mib": 2, "count": 1}]}, False),
        ("pci_tuning", {"settings": [{"devices": [GPU], "max_read_request_bytes": 4096}]}, False),
        ("kernel_settings", {}, False),
        ("sriov", vfs(2), True),
        ("sriov", vfs(0), False),  # nothing changes
        ("vfio_binding", {"devices": [GPU]}, True),
        ("vfio_binding", {"devices": []}, False),
    ],
)
def test_the_host_is_read_again_after_its_functions_or_drivers_changed(server, concern, settings, again):
    run = concerns.ConcernPass(server, check=False)
    first = run.host
    assert run.one(concern, settings).failed == ""
    assert (run.host is not first) == again
    assert run.host == server.host() or not again


def test_a_failed_change_of_vfs_is_followed_by_a_new_read_of_the_host(server):
    for check in (True, False):
        run = concerns.ConcernPass(server, check)
        first = run.host
        outcome = run.one("sriov", vfs(1, eswitch_mode="switchdev"))
        assert outcome.failed.startswith(f"sriov: the mode of {PF}'s embedded switch cannot be read")
        assert run.host is not first


@pytest.mark.parametrize(("count", "left"), [(0, []), (1, []), (2, VFS)])
def test_check_mode_predicts_the_host_after_the_vfs_changed(server, count, left):
    server.poke(f"/sys/bus/pci/devices/{PF}/sriov_numvfs", "2")
    run = concerns.ConcernPass(server, check=True)
    before = run.host
    run.one("sriov", vfs(count))
    function = run.host.function(PF)
    assert (function.sriov.now, function.sriov.vfs, function.sriov.total) == (count, left, 7)
    assert addresses(run.host) == [address for address in addresses(before) if address not in VFS or left]
    assert addresses(server.host()) == addresses(before)


def test_a_mistake_in_the_settings_is_raised_and_is_not_a_failure(server):
    with pytest.raises(RequestError, match="unknown setting 'page'"):
        concerns.ConcernPass(server, check=False).one("hugepages", {"page": []})


def test_a_second_pass_is_made_only_if_something_changes(server):
    settings = {"sriov": vfs(1, trust=True)}
    concerns.ensure(server, settings)
    server.commands.clear()
    assert not concerns.ensure(server, settings)["sriov"].changed
    assert server.commands == ["ip -j -d link show dev nic1"]


def test_settings_are_applied_in_a_fixed_order_and_absent_ones_are_left_out():
    given = {"kernel_settings": {}, "pci_tuning": None, "vfio_binding": {}, "sriov": {}, "hugepages": {}}
    assert list(concerns.checked(given)) == ["hugepages", "sriov", "vfio_binding", "kernel_settings"]
    with raises(RequestError, "cpus", "hugepages", "sriov", "vfio_binding", "pci_tuning", "kernel_settings"):
        concerns.checked({"vfio": {}, "cpus": {}, "sriov": {}})


DONE, FAILED = Outcome(), Outcome(failed="no")


@pytest.mark.parametrize(
    ("settings", "done", "before", "saved"),
    [
        ({"sriov": 1, "hugepages": 2}, {"sriov": DONE, "hugepages": DONE}, None, {"hugepages": 2, "sriov": 1}),
        # A failed concern keeps what was saved before; without that, nothing of it is saved.
        ({"sriov": 1, "hugepages": 2}, {"sriov": FAILED, "hugepages": DONE}, None, {"hugepages": 2}),
        ({"sriov": 1}, {"sriov": FAILED}, {"sriov": 3, "hugepages": 4}, {"sriov": 3}),
        ({"sriov": 1}, {"sriov": DONE}, {"sriov": 3, "hugepages": 4}, {"sriov": 1}),
        # In an image, nothing is done.
        ({"vfio_binding": {"devices": ["nvme:unused"]}}, {}, None, {"vfio_binding": {"devices": ["nvme:unused"]}}),
        (
            {"vfio_binding": {"devices": ["nvme:unused"]}},
            {"vfio_binding": Outcome(facts={"unused_drives": [PF]})},
            None,
            {"vfio_binding": {"devices": [PF]}},
        ),
        ({"vfio_binding": {"devices": ["nvme:unused"]}}, {"vfio_binding": FAILED}, None, {}),
    ],
)
def test_the_saved_settings_are_those_that_were_done_and_the_former_ones_of_failures(settings, done, before, saved):
    result = concerns.to_save(settings, done, before)
    assert result == saved
    assert list(result) == list(saved)


def test_one_outcome_has_the_differences_and_failures_of_all():
    done = {
        "hugepages": Outcome({"node0 2 MiB": 0}, {"node0 2 MiB": 4}, {"a": 1}, ["later"]),
        "sriov": Outcome(failed="no driver"),
        "vfio_binding": Outcome(failed="no driver"),
        "pci_tuning": Outcome(failed="locked"),
    }
    whole = concerns.together(done, Outcome({"unit": None}, {"unit": "text"}, {"unit": "x"}, ["first"]))
    assert whole == Outcome(
        before={"unit": None, "hugepages: node0 2 MiB": 0},
        after={"unit": "text", "hugepages: node0 2 MiB": 4},
        facts={
            "unit": "x",
            "outcomes": {"hugepages": {"a": 1}, "sriov": {}, "vfio_binding": {}, "pci_tuning": {}},
            "failures": ["no driver", "locked"],
        },
        pending=["first", "later"],
        failed="failed: sriov, vfio_binding, pci_tuning; done and saved for every boot: hugepages\n"
        "1. no driver\n2. locked",
    )


def test_a_host_that_cannot_be_read_is_an_error(server):
    shutil.rmtree(server.path("/sys"))
    with pytest.raises(HostError, match="/sys"):
        concerns.read_topology(server)
