# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Errors of a blueprint."""

from __future__ import annotations

from ansible_collections.sailloft.fleet.plugins.module_utils.site.errors import SiteError


def test_an_error_message_starts_with_its_place():
    error = SiteError("count is missing", "add it", subject="blocks.rack", where="site.yml:7")
    assert str(error) == "site.yml:7: blocks.rack: count is missing; add it"
    assert (
        str(SiteError("count is missing", "add it", subject="blocks.rack")) == "blocks.rack: count is missing; add it"
    )
