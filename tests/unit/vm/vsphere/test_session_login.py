# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Logins and logouts, and vCenter's words for a fault."""

from __future__ import annotations

import ssl
from types import SimpleNamespace
from typing import Any

import pytest
from messages import raises
from pyVmomi import vim

from ansible_collections.sailloft.fleet.plugins.module_utils.vm.common.errors import DomainError
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.vsphere import session as sessions
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.vsphere.session import Login, Session


def given(**more: Any) -> dict[str, Any]:
    login = {"hostname": "vc", "username": "u", "password": "p", "port": 443, "validate_certs": True, "ca_path": None}
    return {**login, **more}


def test_a_login_is_read_from_the_options():
    login = Login.of(given(validate_certs=False, ca_path="/ca.pem", port=8443))
    assert login == Login("vc", "u", "p", 8443, False, "/ca.pem", 60)
    assert Login("vc", "u", "p") == Login("vc", "u", "p", 443, True, None, 60)
    assert "'p'" not in repr(login)
    assert (login.name, Login.of(given()).name) == ("vCenter vc:8443", "vCenter vc")


@pytest.mark.parametrize("missing", ["hostname", "username", "password"])
def test_an_incomplete_login_is_refused(missing):
    with (
        raises(DomainError, "hostname", "VMWARE_HOST", "VMWARE_USER", "VMWARE_PASSWORD"),
        Session(Login.of(given(**{missing: None}))),
    ):
        pass


def test_a_certificate_file_that_cannot_be_read_is_refused(tmp_path):
    path = str(tmp_path / "missing.pem")
    with raises(DomainError, "ca_path", path, "No such file or directory"), Session(Login.of(given(ca_path=path))):
        pass


def connected(monkeypatch, **more: Any) -> dict[str, Any]:
    """Return the arguments with which a login is made."""
    seen: dict[str, Any] = {}
    monkeypatch.setattr(sessions, "SmartConnect", lambda **arguments: seen.update(arguments))
    with Session(Login.of(given(**more))):
        pass
    return seen


def test_certificates_are_checked_unless_that_is_turned_off(monkeypatch):
    seen = connected(monkeypatch)
    context = seen.pop("sslContext")
    assert (context.check_hostname, context.verify_mode) == (True, ssl.CERT_REQUIRED)
    assert seen == {"host": "vc", "port": 443, "user": "u", "pwd": "p", "httpConnectionTimeout": 60}
    context = connected(monkeypatch, validate_certs=False)["sslContext"]
    assert (context.check_hostname, context.verify_mode) == (False, ssl.CERT_NONE)


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (
            vim.fault.InvalidLogin(),
            "vCenter vc refuses user u or the password; check both; nothing was changed",
        ),
        (vim.fault.NoPermission(msg="No."), "vCenter vc refuses the login: No. (NoPermission)"),
        (
            ConnectionRefusedError("refused"),
            "vCenter vc cannot be reached (refused); check name, port and network",
        ),
    ],
)
def test_a_login_that_fails_has_its_reason(monkeypatch, error, message):
    def connect(**_arguments: Any) -> None:
        raise error

    monkeypatch.setattr(sessions, "SmartConnect", connect)
    with pytest.raises(DomainError) as caught, Session(Login.of(given())):
        pass
    assert str(caught.value) == message


def test_a_missing_pyvmomi_is_an_error(monkeypatch):
    monkeypatch.setattr(sessions, "SmartConnect", None)
    with raises(DomainError, "pyVmomi", "pyvmomi"):
        Session(Login.of(given()))


@pytest.mark.parametrize("error", [vim.fault.NotAuthenticated(), ConnectionError("lost")])
def test_a_logout_that_fails_is_no_error(monkeypatch, error):
    ended: list[Any] = []

    def disconnect(instance: Any) -> None:
        ended.append(instance)
        raise error

    monkeypatch.setattr(sessions, "SmartConnect", lambda **_arguments: "instance")
    monkeypatch.setattr(sessions, "Disconnect", disconnect)
    with Session(Login.of(given())):
        assert ended == []
    assert ended == ["instance"]


@pytest.mark.parametrize(
    ("text", "version"),
    [("urn:vim25/8.0.3.0", (8, 0, 3, 0)), ('"urn:vim25/7.0"', (7, 0)), ("vim25/6.7.x", (6, 7))],
)
def test_the_version_of_the_connection_is_read(monkeypatch, text, version):
    instance = SimpleNamespace(_stub=SimpleNamespace(versionId=text))
    monkeypatch.setattr(sessions, "SmartConnect", lambda **_arguments: instance)
    monkeypatch.setattr(sessions, "Disconnect", lambda _instance: None)
    with Session(Login.of(given())) as session:
        assert session.api_version == version


def fault(name: str, **more: Any) -> Any:
    return type(f"vim.fault.{name}", (), more)()


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (fault("DuplicateName", msg="The name 'a' already exists."), "The name 'a' already exists. (DuplicateName)"),
        (fault("DuplicateName", localizedMessage="In words", msg="x"), "In words (DuplicateName)"),
        (fault("DuplicateName", localizedMessage=None, msg="vim.fault.DuplicateName"), "vim.fault.DuplicateName"),
        (
            fault("Other", msg="", faultMessage=[SimpleNamespace(message="One."), SimpleNamespace(message=None)]),
            "One. (Other)",
        ),
        (
            fault(
                "Other",
                msg="What.",
                faultMessage=[SimpleNamespace(message="Why."), SimpleNamespace(message="And why.")],
            ),
            "What.; Why.; And why. (Other)",
        ),
        (
            fault("Other", msg="Fault Other", faultMessage=[SimpleNamespace(message="Why.")]),
            "Fault Other; Why.",
        ),
        (ConnectionError("reset by peer"), "reset by peer"),
        (ConnectionError(), "ConnectionError"),
    ],
)
def test_a_fault_is_told_in_vcenters_words(error, told):
    assert sessions.words(error) == told


def test_known_faults_have_a_remedy():
    assert sessions.hint(fault("TaskInProgress")) == "another task is working on it; run the play again"
    assert sessions.hint(fault("Unknown")) == ""
    assert sessions.hint(vim.fault.NotAuthenticated()) == "the session has expired; run the play again"
