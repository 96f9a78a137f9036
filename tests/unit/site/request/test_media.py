# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The known types of cables."""

from __future__ import annotations

from ansible_collections.sailloft.fleet.plugins.module_utils.site.request.media import MEDIA


def test_lengths_that_are_sold_reach_no_further_than_the_medium():
    for medium in MEDIA.values():
        assert list(medium.stock_m) == sorted(set(medium.stock_m))
        assert medium.stock_m[-1] <= max(medium.most_m.values()), medium.name
        assert medium.limit_m(1600) is None
