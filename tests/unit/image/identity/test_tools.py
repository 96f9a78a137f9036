# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Missing tools for identities are reported with their packages."""

from __future__ import annotations

import pytest
from messages import raises

from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.errors import ImageError
from ansible_collections.sailloft.fleet.plugins.module_utils.image.identity import tools


@pytest.mark.parametrize(
    ("use", "tool"),
    [
        (lambda: tools.wrap(b"key", b"ek", "000b", "bm01"), "tpm2_makecredential"),
        (lambda: tools.encrypt(b"data", b"key", "bm01"), "openssl"),
        (lambda: tools.verify(b"certificate", []), "openssl"),
        (lambda: tools.require("minisign"), "minisign"),
    ],
)
def test_a_missing_tool_is_named_with_its_package(monkeypatch, tmp_path, use, tool):
    monkeypatch.setattr(tools, "search_path", lambda: str(tmp_path))
    with raises(ImageError, tool, tools.PACKAGES[tool]):
        use()
