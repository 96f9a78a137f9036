# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""An Alertmanager that does not answer, or a login that is not there, is a warning, and the run goes on."""

from __future__ import annotations

import pytest

from ansible_collections.sailloft.fleet.plugins.action import monitoring_silence

NOWHERE = {"urls": ["http://127.0.0.1:1"]}


@pytest.mark.parametrize(
    ("place", "cause"),
    [
        (NOWHERE, "127.0.0.1:1"),
        ({"urls": ["ftp://a"]}, "ftp://a"),
        ({"urls": ["https://127.0.0.1:1"], "credentials_file": "/nowhere/login"}, "/nowhere/login"),
    ],
)
def test_what_cannot_be_silenced_is_a_warning(make, place, cause):
    result = make(monitoring_silence, alertmanagers=place, hosts=["n1"]).run(task_vars={})
    (warning,) = result["warnings"]
    assert ("n1" in warning, cause in warning, result["id"], "failed" in result) == (True, True, "", False)


def test_check_mode_asks_nobody(make):
    result = make(monitoring_silence, True, alertmanagers=NOWHERE, hosts=["n1"]).run(task_vars={})
    assert (result["skipped"], result["id"]) == (True, "")


def test_a_run_without_a_silence_ends_none(make):
    result = make(monitoring_silence, alertmanagers=NOWHERE, hosts=["n1"], state="absent").run(task_vars={})
    assert "warnings" not in result
