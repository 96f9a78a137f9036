# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

import pytest

from ansible_collections.sailloft.fleet.plugins.module_utils.pci.vpd import keywords

NAME = b"\x82\x0b\x00SMDL=SW_MNG"
AREA = b"\x90\x12\x00SN\x03123VA\x04MLX:RV\x02\x00\x00"


def test_the_keywords_of_the_read_only_area_are_read_between_other_resources():
    # A small resource (09: length 1) and the area that can be written are passed over.
    data = NAME + b"\x09\x00" + AREA + b"\x91\x05\x00VB\x02xx" + b"\x78" + b"rest"
    assert keywords(data) == {"SN": b"123", "VA": b"MLX:", "RV": b"\0\0"}
    assert keywords(b"\x78") == {}


def test_what_is_cut_off_before_its_end_is_not_known():
    assert [length for length in range(len(NAME + AREA) + 1) if keywords((NAME + AREA)[:length]) is not None] == []


@pytest.mark.parametrize("area", [b"VA", b"VA\x05MLX:", b"SN\x01xV"])
def test_a_keyword_that_does_not_fit_its_area_is_not_known(area):
    assert keywords(b"\x90" + len(area).to_bytes(2, "little") + area + b"\x78") is None


def test_unreadable_data_is_not_known():
    assert keywords(b"\xff" * 256) is None
