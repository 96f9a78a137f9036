# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The digest of a role depends on everything that the role may run, and on nothing else in its collection."""

from __future__ import annotations

import re

import pytest
from messages import raises

from ansible_collections.sailloft.fleet.plugins.module_utils.image.build import role_digest
from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.errors import ImageError

FILES = {
    "roles/gpu/tasks/main.yml": "- acme.site.tune:\n- include_role: {name: common}\n- debug: {msg: '{{ x|shape }}'}\n",
    "roles/gpu/files/tool": "a program, no other\n",
    "roles/common/tasks/main.yml": "- include_role: {name: gpu}\n",
    "roles/other/tasks/main.yml": "- debug:\n",
    "plugins/modules/tune.py": (
        "from __future__ import annotations\nimport json\n"
        "import ansible_collections.acme.site.plugins.module_utils.whole\n"
        "from ansible_collections.acme.site.plugins.module_utils.part import one\n"
        "from ..module_utils import near\n"
    ),
    "plugins/modules/other.py": "",
    "plugins/filter/shape.py": "from ..module_utils.deep.er import two\n",
    "plugins/filter/broken.py": "def (\n",
    "plugins/module_utils/whole.py": "",
    "plugins/module_utils/part/__init__.py": "from . import one\n",
    "plugins/module_utils/part/one.py": "from .. import near\n",
    "plugins/module_utils/near.py": "",
    "plugins/module_utils/deep/__init__.py": "",
    "plugins/module_utils/deep/er.py": "",
    "plugins/module_utils/tune.py": "",
    "plugins/module_utils/unused.py": "",
}
# The files that the role runs: its own, those of the role that it includes, its plugins, and all that they import.
OF_THE_ROLE = {
    *("roles/gpu/tasks/main.yml", "roles/gpu/files/tool", "roles/common/tasks/main.yml"),
    *("plugins/modules/tune.py", "plugins/filter/shape.py", "plugins/module_utils/whole.py"),
    *("plugins/module_utils/part/__init__.py", "plugins/module_utils/part/one.py", "plugins/module_utils/near.py"),
    "plugins/module_utils/deep/er.py",
}


@pytest.fixture
def collection(tmp_path, monkeypatch):
    """Return the directory of the collection acme.site; roles outside of collections are in "roles" and "more"."""
    folder = tmp_path / "acme/site"
    for path, text in FILES.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)
    monkeypatch.setattr(role_digest.ansible_paths, "collections", lambda: {"acme.site": folder})
    monkeypatch.setattr(role_digest.ansible_paths, "roles", lambda: [tmp_path / "roles", tmp_path / "more"])
    return folder


def test_the_digest_depends_only_on_files_that_the_role_may_run(collection):
    first = role_digest.content_digest("acme.site.gpu")
    assert re.fullmatch("[0-9a-f]{64}", first)
    changing = set()
    for path, text in FILES.items():
        (collection / path).write_text(f"{text}\n# changed\n")
        if role_digest.content_digest("acme.site.gpu") != first:
            changing.add(path)
        (collection / path).write_text(text)
    assert role_digest.content_digest("acme.site.gpu") == first
    assert changing == OF_THE_ROLE


def test_the_digest_excludes_unrelated_files_and_includes_modes_and_links(collection):
    role = collection / "roles/gpu"
    first = role_digest.content_digest("acme.site.gpu")
    for path in ("molecule/x.yml", "tasks/__pycache__/x", "files/x.pyc", ".git/x"):
        (role / path).parent.mkdir(exist_ok=True)
        (role / path).touch()
    assert role_digest.content_digest("acme.site.gpu") == first
    (role / "files/tool").chmod(0o755)
    program = role_digest.content_digest("acme.site.gpu")
    (role / "files/link").symlink_to("tool")
    linked = role_digest.content_digest("acme.site.gpu")
    (role / "files/folder").symlink_to("/etc")
    assert len({first, program, linked, role_digest.content_digest("acme.site.gpu")}) == 4


def test_roles_are_found_by_the_roles_path_or_by_their_folder(collection, tmp_path):
    for name, text in (("gpu", "- include_role: {name: base}\n"), ("base", "- debug:\n")):
        (tmp_path / "more" / name / "tasks").mkdir(parents=True)
        (tmp_path / "more" / name / "tasks/main.yml").write_text(text)
    first = role_digest.content_digest("gpu")
    assert re.fullmatch("[0-9a-f]{64}", role_digest.content_digest(str(tmp_path / "more/gpu")))
    (tmp_path / "more/base/tasks/main.yml").write_text("- debug: {}\n")
    assert role_digest.content_digest("gpu") != first


@pytest.mark.parametrize(
    ("name", "where"),
    [
        ("acme.site.none", r" \(/.*/acme/site/roles\)"),
        ("acme.none.gpu", r" \(there is no collection acme.none\)"),
        ("none", r" \(/.*/roles, /.*/more\)"),
        ("/nowhere/gpu", r" \(/.*/roles, /.*/more\)"),
    ],
)
def test_a_missing_role_is_refused_with_the_searched_paths(collection, name, where):
    what = f"^role {name}: Ansible does not find it{where}; install it on the build host"
    with pytest.raises(ImageError, match=what):
        role_digest.content_digest(name)


def test_an_empty_roles_path_is_reported(collection, monkeypatch):
    monkeypatch.setattr(role_digest.ansible_paths, "roles", list)
    with raises(ImageError, "role none", "roles path", "empty"):
        role_digest.content_digest("none")


def test_the_digest_depends_on_content_of_the_same_length(collection):
    first = role_digest.content_digest("acme.site.gpu")
    (collection / "roles/gpu/files/tool").write_text("a PROGRAM, no other\n")
    assert role_digest.content_digest("acme.site.gpu") != first


def test_a_link_to_a_directory_is_not_read_as_a_playbook(collection):
    (collection / "roles/gpu/tasks/folder.yml").symlink_to("/etc")
    assert re.fullmatch("[0-9a-f]{64}", role_digest.content_digest("acme.site.gpu"))


def test_files_of_two_collections_with_equal_names_all_count(collection, tmp_path, monkeypatch):
    more = tmp_path / "acme/more"
    for path, text in (("roles/gpu/tasks/main.yml", "- tune:\n"), ("plugins/modules/tune.py", "")):
        (more / path).parent.mkdir(parents=True)
        (more / path).write_text(text)
    (collection / "roles/gpu/tasks/main.yml").write_text("- tune:\n- include_role: {name: acme.more.gpu}\n")
    folders = {"acme.site": collection, "acme.more": more}
    monkeypatch.setattr(role_digest.ansible_paths, "collections", lambda: folders)
    digests = {role_digest.content_digest("acme.site.gpu")}
    for folder in (collection, more):
        for path in ("roles/gpu/tasks/main.yml", "plugins/modules/tune.py"):
            (folder / path).write_text(f"{(folder / path).read_text()}# changed\n")
            digests.add(role_digest.content_digest("acme.site.gpu"))
    assert len(digests) == 5


def test_a_role_given_by_its_path_needs_no_roles_path(collection, tmp_path, monkeypatch):
    monkeypatch.setattr(role_digest.ansible_paths, "roles", list)
    assert re.fullmatch("[0-9a-f]{64}", role_digest.content_digest(str(tmp_path / "acme/site/roles/gpu")))
