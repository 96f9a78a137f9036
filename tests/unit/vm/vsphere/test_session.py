# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Requests to vCenter. Those that reach the simulated one are in test_converge.py; test_session_login.py has logins."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from clock import Clock
from messages import raises
from pyVmomi import vim

from ansible_collections.sailloft.fleet.plugins.module_utils.vm.common.errors import DomainError
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.vsphere import session as sessions
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.vsphere.session import Login, Session

STATES = vim.TaskInfo.State


class VCenter:
    """A vCenter that answers each request for properties with ``retrieve``, its clock, logins and the told lines."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, retrieve: Callable[[], list[Any]] = list) -> None:
        self.clock, self.told, self.logins, self.views = Clock(), [], 0, []
        collector = SimpleNamespace(
            RetrievePropertiesEx=lambda _specs, _options: SimpleNamespace(objects=retrieve(), token="")
        )
        content = SimpleNamespace(
            propertyCollector=collector,
            viewManager=SimpleNamespace(CreateContainerView=self.view),
            rootFolder="everything",
        )
        self.instance = SimpleNamespace(content=content, _stub=None)
        monkeypatch.setattr(sessions, "time", self.clock)
        monkeypatch.setattr(sessions, "SmartConnect", self.login)
        self.session = Session(Login("vc", "u", "p"), self.told.append).__enter__()

    def login(self, **_arguments: Any) -> Any:
        self.logins += 1
        return self.instance

    def view(self, root: Any, kinds: Any, below: bool) -> Any:
        self.views.append((root, kinds, below))
        return vim.view.ContainerView("view")

    @property
    def pauses(self) -> list[float]:
        return [pause for pause in self.clock.pauses if pause]


def answered(reference: Any, **properties: Any) -> SimpleNamespace:
    values = [SimpleNamespace(name=name, val=value) for name, value in properties.items()]
    return SimpleNamespace(obj=reference, propSet=values)


def test_a_session_that_is_refused_after_a_new_login_is_an_error(monkeypatch):
    """A vCenter that refuses every session must not be called forever."""
    vcenter, asked = VCenter(monkeypatch), []

    def request():
        asked.append(1)
        raise vim.fault.NotAuthenticated()

    with raises(DomainError, "power on gpu01", "session has expired"):
        vcenter.session.call("power on gpu01", request, "gpu01")
    assert (len(asked), vcenter.logins) == (2, 2)


def waiting(monkeypatch, **states: str) -> tuple[Session, dict[str, tuple[str, Any]], list[str]]:
    """Return a session whose tasks stay in these states, its tasks, and the lines that it prints."""
    infos = [
        answered(
            SimpleNamespace(_moId=name),
            info=SimpleNamespace(
                state=state, progress=None, result=name, error=SimpleNamespace(msg=f"no {name}", faultMessage=[])
            ),
        )
        for name, state in states.items()
    ]
    vcenter = VCenter(monkeypatch, lambda: infos)
    monkeypatch.setattr(sessions, "POLL_S", (1,))
    tasks = {name: (f"{name}: power on", SimpleNamespace(_moId=name)) for name in states}
    return vcenter.session, tasks, vcenter.told


def test_each_failed_task_is_reported(monkeypatch):
    session, tasks, _told = waiting(monkeypatch, one=STATES.error, two=STATES.success, three=STATES.error)
    with raises(DomainError, "one: power on: no one", "three: power on: no three") as error:
        session.wait(tasks, 10)
    assert "two" not in str(error.value)


def test_the_session_waits_for_tasks_only_up_to_the_limit(monkeypatch):
    session, tasks, _told = waiting(monkeypatch, one=STATES.running, two=STATES.success, three=STATES.queued)
    with raises(DomainError, "one", "three", "0 s"):
        session.wait(tasks, 0)


def test_all_pages_of_an_answer_are_read(monkeypatch):
    """The simulator answers with one page, regardless of the number of objects, so the pages are made up here."""
    pages = {"": ((1, 2), "a"), "a": ((3, 4), "b"), "b": ((5,), "")}
    limits: list[int] = []

    def page(token: str) -> SimpleNamespace:
        numbers, following = pages[token]
        return SimpleNamespace(objects=[answered(vim.HostSystem(f"host-{at}")) for at in numbers], token=following)

    def first(_specs: Any, options: Any) -> SimpleNamespace:
        limits.append(options.maxObjects)
        return page("")

    vcenter = VCenter(monkeypatch)
    vcenter.instance.content.propertyCollector = SimpleNamespace(
        RetrievePropertiesEx=first, ContinueRetrievePropertiesEx=page
    )
    rows = vcenter.session.read({"HostSystem": ["name"]})["HostSystem"]
    assert [reference._moId for reference, _properties in rows] == [f"host-{at}" for at in range(1, 6)]
    assert limits == [200]


def test_a_read_without_objects_is_empty(monkeypatch):
    vcenter = VCenter(monkeypatch)
    # vCenter's answer is then None.
    vcenter.instance.content.propertyCollector.RetrievePropertiesEx = lambda _specs, _options: None
    assert vcenter.session.read({"HostSystem": ["name"]}) == {"HostSystem": []}


def polled(monkeypatch, answers: Any, limit_s: int = 100) -> tuple[dict[str, Any], list[str], VCenter]:
    """Wait for a task ``one`` whose state is the next of ``answers`` at each poll; return results and timed lines."""
    left = list(answers)

    def infos() -> list[Any]:
        state, progress = left.pop(0) if len(left) > 1 else left[0]
        info = SimpleNamespace(state=state, progress=progress, result="made", error=None)
        return [answered(SimpleNamespace(_moId="one"), info=info)] if state else []

    vcenter = VCenter(monkeypatch, infos)
    told: list[Any] = []
    vcenter.session.tell = lambda line: told.append((vcenter.clock.now, line))
    results = vcenter.session.wait({"key": ("one: create", SimpleNamespace(_moId="one"))}, limit_s)
    return results, told, vcenter


def test_tasks_are_polled_with_growing_pauses_until_they_end(monkeypatch):
    running = (STATES.running, None)
    results, told, vcenter = polled(monkeypatch, [running] * 7 + [(STATES.success, None)])
    assert results == {"key": "made"}
    assert vcenter.pauses == [0.1, 0.2, 0.5, 1.0, 2.0, 2.0, 2.0]
    assert told == []


def test_a_task_that_vcenter_does_not_report_yet_is_polled_again(monkeypatch):
    results, _told, vcenter = polled(monkeypatch, [(None, None), (STATES.success, None)])
    assert (results, vcenter.pauses) == ({"key": "made"}, [0.1])


def test_no_task_ends_at_once(monkeypatch):
    assert VCenter(monkeypatch).session.wait({}, 0) == {}


def test_progress_is_told_once_for_each_value(monkeypatch):
    steps = [(STATES.running, value) for value in (0, 0, 50, None, 50, 70)]
    _results, told, _vcenter = polled(monkeypatch, [*steps, (STATES.success, 100)])
    assert [line for _at, line in told] == ["one: create: 0 %", "one: create: 50 %", "one: create: 70 %"]


def test_a_task_without_progress_is_told_after_ten_seconds(monkeypatch):
    # The polls are 0, 0.1, 0.3, 0.8, 1.8, 3.8, ... seconds after the start.
    _results, told, _vcenter = polled(monkeypatch, [(STATES.running, None)] * 16 + [(STATES.success, None)])
    assert [(round(at, 1), line) for at, line in told] == [
        (11.8, "one: create: vCenter is working on it"),
        (23.8, "one: create: vCenter is working on it"),
    ]


def test_progress_begins_the_ten_seconds_again(monkeypatch):
    steps = [(STATES.running, None)] * 6 + [(STATES.running, 10)] * 7 + [(STATES.success, None)]
    _results, told, _vcenter = polled(monkeypatch, steps)
    assert [(round(at, 1), line) for at, line in told] == [
        (5.8, "one: create: 10 %"),
        (17.8, "one: create: vCenter is working on it"),
    ]


@pytest.mark.parametrize(("pause", "lines"), [(10, 0), (10.5, 1)])
def test_exactly_ten_seconds_are_not_told(monkeypatch, pause, lines):
    monkeypatch.setattr(sessions, "POLL_S", (pause,))
    _results, told, vcenter = polled(monkeypatch, [(STATES.running, None)] * 2 + [(STATES.success, None)])
    # The second poll is as long after the line as the first after the start.
    assert (len(told), vcenter.clock.now) == (lines, 2 * pause)


@pytest.mark.parametrize(("limit_s", "pauses"), [(9, 1), (10, 2), (11, 2)])
def test_a_task_may_run_as_long_as_the_limit(monkeypatch, limit_s, pauses):
    monkeypatch.setattr(sessions, "POLL_S", (10,))
    with raises(DomainError, "one", limit_s):
        polled(monkeypatch, [(STATES.running, None)], limit_s)
    assert sessions.time.now == 10 * pauses


def test_one_failed_task_is_an_error_about_its_machine(monkeypatch):
    session, tasks, _told = waiting(monkeypatch, one=STATES.error, two=STATES.success)
    with pytest.raises(DomainError) as caught:
        session.wait(tasks, 10)
    assert (caught.value.cause, caught.value.domain) == ("one: power on: no one (SimpleNamespace)", "one")


def test_several_tasks_are_told_as_the_first_and_a_number(monkeypatch):
    session, tasks, told = waiting(monkeypatch, one=STATES.running, two=STATES.running, three=STATES.running)
    monkeypatch.setattr(sessions, "TELL_S", -1)
    with pytest.raises(DomainError):
        session.wait(tasks, 0)
    assert set(told) == {"one: power on and 2 more: vCenter is working on it"}


def reading(monkeypatch, *answers: Any) -> tuple[VCenter, Callable[[], Any]]:
    """Return a vCenter that gives or raises ``answers`` in turn, and a read of its hosts' references."""
    left = list(answers)

    def retrieve() -> list[Any]:
        answer = left.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return [answered(answer)]

    vcenter = VCenter(monkeypatch, retrieve)
    return vcenter, lambda: [row[0] for row in vcenter.session.read({"HostSystem": ["name"]})["HostSystem"]]


HOST = vim.HostSystem("host-1")


def test_a_read_is_repeated_with_growing_pauses(monkeypatch):
    vcenter, read = reading(monkeypatch, *[ConnectionError("lost")] * 5, HOST)
    assert read() == [HOST]
    assert (vcenter.pauses, vcenter.logins) == ([1, 2, 4, 8, 15], 1)
    assert vcenter.told == ["vCenter vc: lost; reading again"] * 5


def test_a_read_that_never_succeeds_is_an_error(monkeypatch):
    vcenter, read = reading(monkeypatch, *[ConnectionError("lost")] * 6)
    with raises(DomainError, "vCenter vc", "reachable", "lost"):
        read()
    assert vcenter.clock.now == 30


def test_a_read_after_an_expired_session_logs_in_again(monkeypatch):
    vcenter, read = reading(monkeypatch, vim.fault.NotAuthenticated(msg="expired"), HOST)
    assert read() == [HOST]
    assert vcenter.logins == 2
    assert vcenter.told == [
        "vCenter vc: expired (NotAuthenticated); reading again",
        "the session with vCenter vc has expired; logging in again",
    ]


def test_a_change_over_a_lost_connection_is_not_repeated(monkeypatch):
    vcenter = VCenter(monkeypatch)
    requests: list[str] = []

    def request() -> None:
        requests.append("create")
        raise ConnectionError("lost")

    with raises(DomainError, "train: create", "vc", "lost") as caught:
        vcenter.session.call("train: create", request, "train")
    assert (caught.value.domain, vcenter.logins, vcenter.pauses, requests) == ("train", 1, [], ["create"])


def test_objects_are_read_by_kind_in_the_order_of_their_references(monkeypatch):
    objects = [
        answered(vim.HostSystem("host-10"), name="b"),
        answered(vim.HostSystem("host-9"), name="a"),
        answered(vim.dvs.DistributedVirtualPortgroup("dvportgroup-1"), name="rails"),
        answered(vim.Network("network-2"), name="flat"),
    ]

    vcenter = VCenter(monkeypatch, lambda: objects)
    kinds = {"HostSystem": ["name"], "Network": ["name"], "DistributedVirtualSwitch": ["uuid"]}
    rows = vcenter.session.read(kinds)
    assert [(kind, [(row[0]._moId, row[1]) for row in of_kind]) for kind, of_kind in rows.items()] == [
        ("HostSystem", [("host-9", {"name": "a"}), ("host-10", {"name": "b"})]),
        # A distributed port group is a network, unless it is vcenter.views for by itself.
        ("Network", [("network-2", {"name": "flat"}), ("dvportgroup-1", {"name": "rails"})]),
        ("DistributedVirtualSwitch", []),
    ]
    assert vcenter.views == [("everything", [vim.HostSystem, vim.Network, vim.DistributedVirtualSwitch], True)]
    rows = vcenter.session.read({"DistributedVirtualPortgroup": ["name"], **kinds}, "folder")
    assert [row[0]._moId for row in rows["DistributedVirtualPortgroup"]] == ["dvportgroup-1"]
    assert [row[0]._moId for row in rows["Network"]] == ["network-2"]
    assert vcenter.views[1][0] == "folder"
    assert vcenter.views[1][1][0] is vim.dvs.DistributedVirtualPortgroup
