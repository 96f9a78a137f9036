# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The play that applies roles, as ansible-playbook reads it, and the messages of its failures.

tests/image runs such plays in a real root.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
import yaml
from messages import raises

from ansible_collections.sailloft.fleet.plugins.module_utils.image.build import roles_in
from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.errors import ImageError
from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.model import Role
from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.tools import command_in

SECRET = "a {{ secret }} with 'quotes' and \U0001f512"


class Loader(yaml.SafeLoader):
    """YAML with Ansible's tag on values that are not templated."""


Loader.add_constructor("!unsafe", lambda loader, node: ("unsafe", loader.construct_scalar(node)))


@pytest.fixture
def root(tmp_path):
    """An image with Python; the builder checks nothing else before it runs a play."""
    python = tmp_path / "root/usr/bin/python3"
    python.parent.mkdir(parents=True)
    python.touch()
    return tmp_path / "root"


@pytest.fixture(autouse=True)
def no_other_paths(monkeypatch):
    """Ansible is not asked for its paths, which takes seconds."""
    monkeypatch.setattr(roles_in.ansible_paths, "needed", lambda: [Path("/opt/ansible")])
    monkeypatch.setattr(roles_in.ansible_paths, "configuration", lambda: "[defaults]\n")


def applied(root, roles, output="", status=0, **settings):
    """Apply roles with an ansible-playbook that prints ``output``; return its inventory, play and (argv, env)."""
    got = []

    def run(argv, env):
        got.extend([yaml.load(Path(path).read_text(), Loader) for path in argv[-2:]])
        got.append((argv, env))
        return subprocess.CompletedProcess(argv, status, output, "")

    roles_in.apply(root, roles, run, "gpu", **settings)
    return got


def test_the_play_has_the_roles_in_order_with_values_that_are_not_templated_again(root):
    roles = [Role("a.b.c", {"text": SECRET, "number": 3, "list": [True, {"x": None}, "y"]}), Role("d")]
    inventory, (play,), (argv, _env) = applied(root, roles)
    assert inventory == {
        "all": {
            "hosts": {
                "gpu": {
                    "ansible_connection": "community.general.chroot",
                    "ansible_host": str(root),
                    "ansible_python_interpreter": "/usr/bin/python3",
                    "ansible_remote_tmp": "/run/ansible",
                    "ansible_async_dir": "/run/ansible-async",
                }
            }
        }
    }
    assert (play["name"], play["hosts"], play["gather_facts"]) == ("Layer gpu", "gpu", True)
    assert play["gather_subset"][:2] == ["!all", "!min"]
    assert play["environment"]["debian_chroot"] == "gpu"
    assert play["roles"] == [
        {
            "role": "a.b.c",
            "vars": {"text": ("unsafe", SECRET), "number": 3, "list": [True, {"x": None}, ("unsafe", "y")]},
        },
        {"role": "d", "vars": {}},
    ]
    assert command_in(argv)[:2] == ["ansible-playbook", "--inventory"]
    assert not Path(argv[-1]).exists()


def lent(argv) -> set[tuple[str, str]]:
    """Return the option and the path of each directory or file of the build host that the room has."""
    return {(option, path) for option, path in zip(argv, argv[2:]) if option in ("--bind", "--ro-bind")}


def test_the_room_has_the_files_that_variables_name_and_the_network_only_if_it_is_requested(root, tmp_path):
    (tmp_path / "key").touch()
    roles = [Role("d", {"key": str(tmp_path / "key"), "other": str(tmp_path), "same": ["/nonexistent"]})]
    _inventory, _play, (argv, _env) = applied(root, roles)
    assert ("--ro-bind", str(tmp_path / "key")) in lent(argv)
    writable = {path for option, path in lent(argv) if option == "--bind"}
    assert str(root) in writable
    assert str(tmp_path) not in {path for _option, path in lent(argv)}
    assert ("--ro-bind", "/opt/ansible") in lent(argv)
    assert "--unshare-net" in argv
    assert "--unshare-net" not in applied(root, roles, network=True)[2][0]


def test_the_play_gets_only_selected_environment_variables_of_the_build_host(root, monkeypatch):
    monkeypatch.setenv("ANSIBLE_LOG_PATH", "/var/log/site.log")
    monkeypatch.setenv("https_proxy", "http://proxy:3128")
    _inventory, _play, (_argv, env) = applied(root, [Role("d")])
    assert "ANSIBLE_LOG_PATH" not in env
    assert env["https_proxy"] == "http://proxy:3128"
    assert env["ANSIBLE_HOME"] == env["ANSIBLE_LOCAL_TEMP"]


def test_the_configuration_has_only_the_search_paths_of_the_build_host(root, monkeypatch):
    monkeypatch.setattr(roles_in.ansible_paths, "configuration", lambda: "[defaults]\nroles_path = /roles\n")
    texts = []

    def run(argv, env):
        texts.append(Path(env["ANSIBLE_CONFIG"]).read_text())
        return subprocess.CompletedProcess(argv, 0, "", "")

    roles_in.apply(root, [Role("d")], run, "gpu")
    assert texts == ["[defaults]\nroles_path = /roles\n"]


def test_nothing_runs_without_roles_and_an_image_without_python_is_refused(root):
    assert applied(root, []) == []
    (root / "usr/bin/python3").unlink()
    with raises(ImageError, "gpu", "/usr/bin/python3", "a, b", "python3-apt"):
        applied(root, [Role("a"), Role("b")])


TASK = "TASK [d : Install it] ****\n"


@pytest.mark.parametrize(
    ("output", "why"),
    [
        (
            TASK + 'fatal: [gpu]: FAILED! => {"msg": "no\\n archive", "argument_errors": ["a", "b"]}\n',
            '"d : Install it" failed: no archive; a; b; fix the role or its variables',
        ),
        (
            TASK + 'fatal: [gpu]: FAILED! => {"msg": "Failed to update apt cache: E:The method driver '
            '/usr/lib/apt/methods/http could not be found."}\n',
            '"d : Install it" failed: Failed to update apt cache: E:The method driver /usr/lib/apt/methods/http could '
            "not be found.; add apt to the packages of a layer",
        ),
        (
            TASK + 'fatal: [gpu]: FAILED! => {"msg": "non-zero return code", "rc": 4, "stderr": "one\\nno disk\\n"}\n',
            '"d : Install it" failed: non-zero return code; one / no disk; fix the role or its variables',
        ),
        (
            "RUNNING HANDLER [d : Start it] ***\nfatal: [gpu]: UNREACHABLE! => {}\n",
            '"d : Start it" failed: it gave no reason; fix the role or its variables',
        ),
        (
            TASK + f"fatal: [gpu]: FAILED! => {json.dumps({'censored': 'no_log', 'msg': 'x'})}\n",
            '"d : Install it" failed: no_log; fix the role or its variables',
        ),
        (
            TASK + "fatal: [gpu]: FAILED! => {" + "x" * 700,
            f'"d : Install it" failed: {{{"x" * 599}; fix the role or its variables',
        ),
        (TASK + "fatal: [gpu]: FAILED! => {cut", '"d : Install it" failed: {cut; fix the role or its variables'),
        (
            "[ERROR]: the role 'd' was not found in /roles\n",
            "Ansible does not find one of the roles d; install it on the build host, or correct its name",
        ),
        (
            "[WARNING]: old\n[ERROR]: the file x was not found\n",
            "ansible-playbook for d failed: [ERROR]: the file x was not found; fix the role or its variables",
        ),
        (
            "the role stopped\n",
            "ansible-playbook for d failed: the role stopped; fix the role or its variables",
        ),
        (
            "[ERROR]: " + "x" * 600,
            f"ansible-playbook for d failed: [ERROR]: {'x' * 591}; fix the role or its variables",
        ),
        (
            "y" + "x" * 600,
            f"ansible-playbook for d failed: {'x' * 600}; fix the role or its variables",
        ),
        ("", "ansible-playbook for d failed: no output; fix the role or its variables"),
    ],
)
def test_a_failure_names_the_task_and_its_reason(root, output, why):
    with raises(ImageError, "gpu", why):
        applied(root, [Role("d")], output, 2)
