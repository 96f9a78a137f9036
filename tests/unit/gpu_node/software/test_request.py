# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

import pytest
from gpu_nodes import ARCHIVE, KEY

from ansible_collections.sailloft.fleet.plugins.module_utils.gpu_node.software import request


@pytest.mark.parametrize("key", [KEY, KEY.rstrip("\n")])
def test_an_archives_key_ends_with_a_newline(key):
    (archive,) = request.read({"repositories": [{**ARCHIVE, "key": key}]}).repositories
    assert archive.key == KEY.rstrip("\n") + "\n"
