# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Templates of names."""

from __future__ import annotations

import pytest

from ansible_collections.sailloft.fleet.plugins.module_utils.site.request.names import HOST_NAME, template


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("gpu-{n:03}-r{rack}", "gpu-007-r12"),
        ("gpu{n:2}.example.com", "gpu07.example.com"),
        ("gpu{n}", "gpu7"),
        ("{rack:1}", "12"),
        ("store", "store"),
    ],
)
def test_numbers_in_names_have_the_given_width(text, name):
    assert template(text, ("n", "rack"))({"n": 7, "rack": 12}) == name


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("gpu{m}", "{m} is not a known number; valid numbers: n, i"),
        *(
            (text, f"{text!r} does not make a valid host name (lower case letters, digits, hyphens and dots)")
            for text in ("gpu{n.__class__}", "gpu{n!r}", "GPU{n}", "gpu_{n}", "gpu {n}", "-{n}", "{n}-", "a..b", "")
        ),
    ],
)
def test_an_invalid_name_template_is_refused(text, told):
    with pytest.raises(ValueError, match="not") as caught:
        template(text, ("n", "i"))
    assert str(caught.value) == told


def test_a_label_of_a_host_name_has_up_to_63_characters():
    assert HOST_NAME.fullmatch("a" * 63 + "." + "b" * 63)
    assert not HOST_NAME.fullmatch("a" * 64)
    assert not HOST_NAME.fullmatch("a." + "b" * 64)
