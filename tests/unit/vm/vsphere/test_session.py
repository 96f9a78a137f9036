# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Requests to vCenter. Those that reach the simulated one are in test_converge.py; test_session_login.py has logins."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from clock import Clock
from messages import Mentions, raises
from pyVmomi import vim

from ansible_collections.sailloft.fleet.plugins.module_utils.vm.common.errors import DomainError
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.vsphere import session as sessions
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.vsphere.session import Login, Session

STATES = vim.TaskInfo.State


def test_a_session_that_is_refused_after_a_new_login_is_an_error():
    """A vCenter that refuses every session must not be called forever."""
    asked, logins = [], []
    session = Session.__new__(Session)
    session._connect = lambda: logins.append(1)

    def request():
        asked.append(1)
        raise vim.fault.NotAuthenticated()

    with raises(DomainError, "power on gpu01", "session has expired"):
        session.call("power on gpu01", request, "gpu01")
    assert (len(asked), len(logins)) == (2, 1)


def waiting(monkeypatch, **states: str) -> tuple[Session, dict[str, tuple[str, Any]], list[str]]:
    """Return a session whose tasks stay in these states, its tasks, and the lines that it prints."""
    told: list[str] = []
    infos = {
        name: SimpleNamespace(
            state=state, progress=None, result=name, error=SimpleNamespace(msg=f"no {name}", faultMessage=[])
        )
        for name, state in states.items()
    }
    session = Session.__new__(Session)
    session.tell = told.append
    session._infos = lambda _tasks: infos
    monkeypatch.setattr(sessions, "POLL_S", (0,))
    return session, {name: (f"{name}: power on", SimpleNamespace(_moId=name)) for name in states}, told


def test_each_failed_task_is_reported(monkeypatch):
    session, tasks, _told = waiting(monkeypatch, one=STATES.error, two=STATES.success, three=STATES.error)
    with raises(DomainError, "one: power on: no one", "three: power on: no three") as error:
        session.wait(tasks, 10)
    assert "two" not in str(error.value)


def test_the_session_waits_for_tasks_only_up_to_the_limit(monkeypatch):
    session, tasks, _told = waiting(monkeypatch, one=STATES.running, two=STATES.success, three=STATES.queued)
    with raises(DomainError, "one", "three", "0 s"):
        session.wait(tasks, 0)


def test_tasks_without_progress_are_reported_as_running(monkeypatch):
    session, tasks, told = waiting(monkeypatch, one=STATES.running, two=STATES.running)
    monkeypatch.setattr(sessions, "TELL_S", -1)
    with pytest.raises(DomainError):
        session.wait(tasks, 0)
    assert told == ["one: power on and 1 more: vCenter is working on it"]


def test_all_pages_of_an_answer_are_read():
    """The simulator answers with one page, regardless of the number of objects, so the pages are made up here."""
    pages = {"": ([1, 2], "a"), "a": ([3, 4], "b"), "b": ([5], "")}

    def page(token: str) -> SimpleNamespace:
        return SimpleNamespace(objects=pages[token][0], token=pages[token][1])

    collector = SimpleNamespace(
        RetrievePropertiesEx=lambda _specs, _options: page(""), ContinueRetrievePropertiesEx=page
    )
    session = Session.__new__(Session)
    session._instance = SimpleNamespace(content=SimpleNamespace(propertyCollector=collector))
    assert session._pages([]) == [1, 2, 3, 4, 5]


def polled(monkeypatch, answers: Any, limit_s: int = 100) -> tuple[dict[str, Any], list[str], Clock]:
    """Wait for a task ``one`` whose state is the next of ``answers`` at each poll; return results, lines and clock."""
    clock, told, left = Clock(), [], list(answers)
    monkeypatch.setattr(sessions, "time", clock)
    session = Session.__new__(Session)
    session.tell = lambda line: told.append((clock.now, line))

    def infos(_tasks: Any) -> dict[str, Any]:
        state, progress = left.pop(0) if len(left) > 1 else left[0]
        return {"one": SimpleNamespace(state=state, progress=progress, result="made", error=None)} if state else {}

    session._infos = infos
    found = session.wait({"key": ("one: create", SimpleNamespace(_moId="one"))}, limit_s)
    return found, told, clock


def test_tasks_are_polled_with_growing_pauses_until_they_end(monkeypatch):
    running = (STATES.running, None)
    found, told, clock = polled(monkeypatch, [running] * 7 + [(STATES.success, None)])
    assert found == {"key": "made"}
    assert clock.pauses == [0.1, 0.2, 0.5, 1.0, 2.0, 2.0, 2.0]
    assert told == []


def test_a_task_that_vcenter_does_not_report_yet_is_polled_again(monkeypatch):
    found, _told, clock = polled(monkeypatch, [(None, None), (STATES.success, None)])
    assert (found, clock.pauses) == ({"key": "made"}, [0.1])


def test_no_task_ends_at_once(monkeypatch):
    monkeypatch.setattr(sessions, "time", Clock())
    assert Session.__new__(Session).wait({}, 0) == {}


def test_progress_is_told_once_for_each_value(monkeypatch):
    steps = [(STATES.running, value) for value in (0, 0, 50, None, 50, 70)]
    _found, told, _clock = polled(monkeypatch, [*steps, (STATES.success, 100)])
    assert [line for _at, line in told] == ["one: create: 0 %", "one: create: 50 %", "one: create: 70 %"]


def test_a_task_without_progress_is_told_after_ten_seconds(monkeypatch):
    # The polls are 0, 0.1, 0.3, 0.8, 1.8, 3.8, ... seconds after the start.
    _found, told, _clock = polled(monkeypatch, [(STATES.running, None)] * 16 + [(STATES.success, None)])
    assert [(round(at, 1), line) for at, line in told] == [
        (11.8, "one: create: vCenter is working on it"),
        (23.8, "one: create: vCenter is working on it"),
    ]


def test_progress_begins_the_ten_seconds_again(monkeypatch):
    steps = [(STATES.running, None)] * 6 + [(STATES.running, 10)] * 7 + [(STATES.success, None)]
    _found, told, _clock = polled(monkeypatch, steps)
    assert [(round(at, 1), line) for at, line in told] == [
        (5.8, "one: create: 10 %"),
        (17.8, "one: create: vCenter is working on it"),
    ]


@pytest.mark.parametrize(("pause", "lines"), [(10, 0), (10.5, 1)])
def test_exactly_ten_seconds_are_not_told(monkeypatch, pause, lines):
    monkeypatch.setattr(sessions, "POLL_S", (pause,))
    _found, told, clock = polled(monkeypatch, [(STATES.running, None)] * 2 + [(STATES.success, None)])
    # The second poll is as long after the line as the first after the start.
    assert (len(told), clock.now) == (lines, 2 * pause)


@pytest.mark.parametrize(("limit_s", "pauses"), [(9, 1), (10, 2), (11, 2)])
def test_a_task_may_run_as_long_as_the_limit(monkeypatch, limit_s, pauses):
    monkeypatch.setattr(sessions, "POLL_S", (10,))
    clock = Clock()
    with pytest.raises(DomainError) as caught:
        polled(monkeypatch, [(STATES.running, None)], limit_s)
    clock = sessions.time
    assert len(clock.pauses) == pauses
    assert str(caught.value) == Mentions("one", limit_s)


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
    assert told == ["one: power on and 2 more: vCenter is working on it"]


def reading(monkeypatch, *answers: Any) -> tuple[Session, Any, list[str], list[str], Clock]:
    """Return a session, a read that gives or raises ``answers`` in turn, its lines, its logins and its clock."""
    clock, told, logins, left = Clock(), [], [], list(answers)
    monkeypatch.setattr(sessions, "time", clock)
    session = Session.__new__(Session)
    session.login, session.tell = Login("vc", "u", "p"), told.append
    session._connect = lambda: logins.append("login")

    def read() -> Any:
        answer = left.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    return session, read, told, logins, clock


def test_a_read_is_repeated_with_growing_pauses(monkeypatch):
    lost = [ConnectionError("lost")] * 5
    session, read, told, logins, clock = reading(monkeypatch, *lost, "answer")
    assert session._again(read) == "answer"
    assert (clock.pauses, logins) == ([0, 1, 2, 4, 8, 15], [])
    assert told == ["vCenter vc: lost; reading again"] * 5


def test_a_read_that_never_succeeds_is_an_error(monkeypatch):
    session, read, _told, _logins, clock = reading(monkeypatch, *[ConnectionError("lost")] * 6)
    with raises(DomainError, "vCenter vc", "reachable", "lost"):
        session._again(read)
    assert clock.now == 30


def test_a_read_after_an_expired_session_logs_in_again(monkeypatch):
    session, read, told, logins, _clock = reading(monkeypatch, vim.fault.NotAuthenticated(msg="expired"), "answer")
    assert session._again(read) == "answer"
    assert logins == ["login"]
    assert told == [
        "vCenter vc: expired (NotAuthenticated); reading again",
        "the session with vCenter vc has expired; logging in again",
    ]


def test_a_change_over_a_lost_connection_is_not_repeated(monkeypatch):
    session, request, _told, logins, clock = reading(monkeypatch, ConnectionError("lost"))
    with raises(DomainError, "train: create", "vc", "lost") as caught:
        session.call("train: create", request, "train")
    assert (caught.value.domain, logins, clock.pauses) == ("train", [], [])


def test_an_answer_has_at_most_200_objects_a_page():
    asked: list[Any] = []

    def retrieve(specs: Any, options: Any) -> None:
        asked.append((specs, options.maxObjects))

    session = Session.__new__(Session)
    collector = SimpleNamespace(RetrievePropertiesEx=retrieve)
    session._instance = SimpleNamespace(content=SimpleNamespace(propertyCollector=collector))
    assert session._pages(["spec"]) == []
    assert asked == [(["spec"], 200)]


def found(reference: Any, **properties: Any) -> SimpleNamespace:
    values = [SimpleNamespace(name=name, val=value) for name, value in properties.items()]
    return SimpleNamespace(obj=reference, propSet=values)


def test_objects_are_read_by_kind_in_the_order_of_their_references():
    asked: list[Any] = []
    objects = [
        found(vim.HostSystem("host-10"), name="b"),
        found(vim.HostSystem("host-9"), name="a"),
        found(vim.dvs.DistributedVirtualPortgroup("dvportgroup-1"), name="rails"),
        found(vim.Network("network-2"), name="flat"),
    ]

    def view(root: Any, kinds: Any, below: bool) -> Any:
        asked.append((root, kinds, below))
        return vim.view.ContainerView("view")

    session = Session.__new__(Session)
    manager, collector = SimpleNamespace(CreateContainerView=view), SimpleNamespace()
    collector.RetrievePropertiesEx = lambda _specs, _options: SimpleNamespace(objects=objects, token="")
    content = SimpleNamespace(viewManager=manager, propertyCollector=collector, rootFolder="everything")
    session._instance = SimpleNamespace(content=content)
    kinds = {"HostSystem": ["name"], "Network": ["name"], "DistributedVirtualSwitch": ["uuid"]}
    rows = session.read(kinds)
    assert [(kind, [(row[0]._moId, row[1]) for row in of_kind]) for kind, of_kind in rows.items()] == [
        ("HostSystem", [("host-9", {"name": "a"}), ("host-10", {"name": "b"})]),
        # A distributed port group is a network, unless it is asked for by itself.
        ("Network", [("network-2", {"name": "flat"}), ("dvportgroup-1", {"name": "rails"})]),
        ("DistributedVirtualSwitch", []),
    ]
    assert asked == [("everything", [vim.HostSystem, vim.Network, vim.DistributedVirtualSwitch], True)]
    rows = session.read({"DistributedVirtualPortgroup": ["name"], **kinds}, "folder")
    assert [row[0]._moId for row in rows["DistributedVirtualPortgroup"]] == ["dvportgroup-1"]
    assert [row[0]._moId for row in rows["Network"]] == ["network-2"]
    assert asked[1][0] == "folder"
    assert asked[1][1][0] is vim.dvs.DistributedVirtualPortgroup
