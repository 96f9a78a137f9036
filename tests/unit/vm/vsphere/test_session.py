# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Requests to vCenter. Those that reach the simulated one are in test_converge.py."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from pyVmomi import vim

from ansible_collections.sailloft.fleet.plugins.module_utils.vm.common.errors import DomainError
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.vsphere import session as sessions
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.vsphere.session import Session

STATES = vim.TaskInfo.State


def test_a_session_that_is_refused_after_a_new_login_is_an_error():
    """A vCenter that refuses every session must not be called forever."""
    asked, logins = [], []
    session = Session.__new__(Session)
    session._connect = lambda: logins.append(1)

    def request():
        asked.append(1)
        raise vim.fault.NotAuthenticated()

    with pytest.raises(DomainError, match="power on gpu01: ") as error:
        session.call("power on gpu01", request, "gpu01")
    assert "the session has expired" in str(error.value) + str(error.value.__dict__)
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
    with pytest.raises(DomainError) as error:
        session.wait(tasks, 10)
    assert "one: power on: no one" in str(error.value)
    assert "three: power on: no three" in str(error.value)
    assert "two" not in str(error.value)


def test_the_session_waits_for_tasks_only_up_to_the_limit(monkeypatch):
    session, tasks, _told = waiting(monkeypatch, one=STATES.running, two=STATES.success, three=STATES.queued)
    with pytest.raises(DomainError, match=r"^one: power on, three: power on: vCenter is still working on it after 0 s"):
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
