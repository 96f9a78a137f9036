# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The boot service is installed and removed with only the systemd commands that this needs."""

from __future__ import annotations

import pytest

from ansible_collections.sailloft.fleet.plugins.module_utils.host.at_boot import persistence, unit

ALL = [*persistence.files({}, ""), f"{persistence.UNIT} enabled"]


def ensure(server, settings, **more):
    return persistence.ensure(server, settings, python="/usr/bin/python3", **more)


def commands(server):
    """Return the commands since the last call."""
    found = [*server.commands]
    server.commands.clear()
    return found


def test_a_new_service_is_enabled_and_changed_files_cause_a_daemon_reload(server):
    assert sorted(ensure(server, {}, check=True).after) == sorted(ALL)
    assert commands(server) == []
    assert sorted(ensure(server, {}).after) == sorted(ALL)
    assert commands(server) == [f"systemctl enable {persistence.UNIT}"]
    assert not ensure(server, {}).changed
    assert commands(server) == []
    assert list(ensure(server, {"hugepages": {}}).after) == [persistence.SETTINGS]
    assert commands(server) == ["systemctl daemon-reload"]


def test_removal_deletes_all_files_and_runs_only_the_needed_commands(server):
    assert not unit.remove(server, persistence.SERVICE).changed
    assert commands(server) == []
    ensure(server, {})
    commands(server)
    predicted = unit.remove(server, persistence.SERVICE, check=True)
    assert sorted(predicted.before) == sorted(ALL)
    assert commands(server) == []
    assert server.exists(persistence.SETTINGS)
    done = unit.remove(server, persistence.SERVICE)
    assert (predicted.before, predicted.after) == (done.before, done.after)
    assert commands(server) == [f"systemctl disable {persistence.UNIT}", "systemctl daemon-reload"]
    assert not any(server.exists(path) for path in (*persistence.files({}, ""), persistence.WANTS))


@pytest.mark.parametrize(
    ("content", "found"), [(None, None), ("{", None), ("[]", None), ("{}", {}), ('{"a": 1}', {"a": 1})]
)
def test_unreadable_saved_settings_are_read_as_none(server, content, found):
    if content is not None:
        server.put(persistence.SETTINGS, content)
    assert persistence.saved(server) == found
