# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The paths of collections and roles are read from the output of Ansible's tools."""

from __future__ import annotations

import functools
import json
import subprocess
from pathlib import Path

import pytest
from messages import raises

from ansible_collections.sailloft.fleet.plugins.module_utils.image.common import ansible_paths
from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.errors import ImageError

SETTINGS = [
    {"name": "COLLECTIONS_PATHS", "value": ["/root/.ansible/collections", "/srv/100%/collections"]},
    {"name": "DEFAULT_ROLES_PATH", "value": ["/etc/ansible/roles", "/srv/50%/roles"]},
    {"GALAXY_SERVERS": []},
]
WARNING = "[WARNING]: Collection x.y does not support this version\n"


@pytest.fixture(autouse=True)
def empty_caches(monkeypatch):
    """Give each test its own caches; those of other tests stay as they are."""
    for name in ("collections", "ansible_settings"):
        monkeypatch.setattr(ansible_paths, name, functools.cache(getattr(ansible_paths, name).__wrapped__))


@pytest.fixture
def answered(monkeypatch):
    """Replace Ansible's tools: each prints the given output. Returns the calls: (command, environment)."""

    def answer(output):
        calls = []

        def run(argv, env):
            calls.append((argv, env))
            return subprocess.CompletedProcess(argv, 0, output)

        monkeypatch.setattr(ansible_paths, "run", run)
        return calls

    return answer


def test_the_first_place_of_a_collection_counts(answered, monkeypatch):
    monkeypatch.setenv("ANSIBLE_COLLECTIONS_PATH", "/one:/two")
    monkeypatch.setenv("ANSIBLE_NOCOLOR", "false")
    calls = answered(json.dumps({"/one": {"a.b": {}, "c.d": {}}, "/two": {"a.b": {}, "e.f": {}}}))
    expected = {"a.b": Path("/one/a/b"), "c.d": Path("/one/c/d"), "e.f": Path("/two/e/f")}
    assert ansible_paths.collections() == expected
    assert ansible_paths.collections() == expected
    # Ansible is slow, so it is asked once. The variables that change the output are replaced, others are passed on.
    ((argv, env),) = calls
    assert argv == ["ansible-galaxy", "collection", "list", "--format", "json"]
    assert (env["ANSIBLE_NOCOLOR"], env["ANSIBLE_DEPRECATION_WARNINGS"]) == ("true", "false")
    assert env["ANSIBLE_COLLECTIONS_PATH"] == "/one:/two"


def test_directories_of_roles_are_listed_in_search_order(answered):
    calls = answered(json.dumps(SETTINGS))
    assert ansible_paths.roles() == [Path("/etc/ansible/roles"), Path("/srv/50%/roles")]
    assert [argv for argv, _env in calls] == [["ansible-config", "dump", "--format", "json"]]


def test_the_configuration_has_both_search_paths_with_escaped_percent_signs(answered):
    calls = answered(json.dumps(SETTINGS))
    assert ansible_paths.configuration() == (
        "[defaults]\n"
        "collections_path = /root/.ansible/collections:/srv/100%%/collections\n"
        "roles_path = /etc/ansible/roles:/srv/50%%/roles\n"
    )
    ansible_paths.roles()
    assert len(calls) == 1


@pytest.mark.parametrize("before", ["", WARNING, WARNING + "[DEPRECATION WARNING]: old\n\n"])
@pytest.mark.parametrize("indent", [None, 4])
def test_warnings_before_an_object_are_skipped(answered, before, indent):
    answered(before + json.dumps({"/one": {"a.b": {}}}, indent=indent) + "\n")
    assert ansible_paths.collections() == {"a.b": Path("/one/a/b")}


@pytest.mark.parametrize("begin", ["[\n{", "[{\n"])
def test_warnings_before_a_list_are_skipped(answered, begin):
    answered(f'{WARNING}{begin}"name": "DEFAULT_ROLES_PATH",\n"value": ["/roles"]}}]\n')
    assert ansible_paths.roles() == [Path("/roles")]


@pytest.mark.parametrize("output", ["  ERROR! no such option\n", "{", "x" * 301])
def test_output_that_is_not_json_is_refused_with_its_beginning(answered, output):
    answered(output)
    with raises(ImageError, "ansible-galaxy", output.strip()[:300]):
        ansible_paths.collections()
