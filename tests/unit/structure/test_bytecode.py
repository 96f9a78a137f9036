# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The caches of tests/support/bytecode never hide a change."""

from __future__ import annotations

import json
import sys

import pytest
from playing import ansible_playbook

MODULE = """
from ansible.module_utils.basic import AnsibleModule
from ansible_collections.site.things.plugins.module_utils import word

AnsibleModule({}).exit_json(word=word.WORD)
"""


@pytest.mark.long
@pytest.mark.fleet  # runs a playbook
def test_a_changed_file_that_a_module_imports_is_sent(tmp_path):
    plugins = tmp_path / "ansible_collections/site/things/plugins"
    for folder in ("modules", "module_utils"):
        (plugins / folder).mkdir(parents=True)
    (plugins / "modules/tell.py").write_text(MODULE)
    tasks = [{"site.things.tell": {}, "register": "told"}, {"ansible.builtin.debug": {"msg": "it is {{ told.word }}"}}]
    play = tmp_path / "play.yml"
    play.write_text(json.dumps([{"hosts": "localhost", "gather_facts": False, "tasks": tasks}]))
    local = ["-i", "localhost,", "-c", "local", "-e", f"ansible_python_interpreter={sys.executable}"]
    # The second run has the archive of the first one; the third one has a change that keeps the file's size.
    for words in (["first", "first"], ["other"]):
        (plugins / "module_utils/word.py").write_text(f'WORD = "{words[0]}"\n')
        for word in words:
            status, output = ansible_playbook(*local, str(play), ANSIBLE_COLLECTIONS_PATH=str(tmp_path))
            assert status == 0, output
            assert f"it is {word}" in output
