# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The place of a setting in its file."""

from __future__ import annotations

import pytest

from ansible_collections.sailloft.fleet.plugins.module_utils.site.request.settings import Source


@pytest.mark.parametrize(
    ("path", "where"),
    [
        ((), "site.yml:1"),
        (("blocks",), "site.yml:4"),
        (("blocks", "rack"), "site.yml:6"),
        (("blocks", "rack", "count"), "site.yml:6"),
        (("blocks", "row"), "site.yml:4"),
        (("floor", "racks_per_row"), "site.yml:1"),
    ],
)
def test_an_error_names_the_line_of_the_nearest_setting_around_it(path, where):
    assert Source("site.yml", {(): 1, ("blocks",): 4, ("blocks", "rack"): 6}).where(path) == where


def test_an_unknown_line_or_file_is_omitted_from_the_place():
    assert Source("site.yml").where(("blocks",)) == "site.yml"
    assert Source().where(("blocks",)) == ""
