# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Templates of names."""

from __future__ import annotations

import pytest

from ansible_collections.sailloft.fleet.plugins.module_utils.site.request.names import template


def test_numbers_in_names_have_the_given_width():
    assert template("gpu-{n:03}-r{rack}", ("n", "rack"))({"n": 7, "rack": 12}) == "gpu-007-r12"
    assert template("gpu{n:2}.example.com", ("n",))({"n": 7}) == "gpu07.example.com"


@pytest.mark.parametrize(
    "text", ["gpu{m}", "gpu{n.__class__}", "gpu{n!r}", "GPU{n}", "gpu_{n}", "gpu {n}", "-{n}", "{n}-"]
)
def test_an_invalid_name_template_is_refused(text):
    with pytest.raises(ValueError, match=r"not a known number|not make a valid host name"):
        template(text, ("n",))
