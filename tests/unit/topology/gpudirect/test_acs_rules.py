# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

import pytest

from ansible_collections.sailloft.fleet.plugins.module_utils.topology.gpudirect.acs_rules import (
    BY_ROLE,
    KERNEL_DEFAULT,
    RULES,
    Mask,
)


def test_a_mask_defines_which_bits_are_set_cleared_and_unchanged():
    mask = Mask("1x111x0")
    assert (mask.on, mask.off) == (0x5C, 0x01)
    assert mask.applied(0x03, 0x7F) == 0x5E
    assert mask.holds(0x5E, 0x7F)
    assert not mask.holds(0x5F, 0x7F)
    # A bit that the port does not have is neither set nor counted as wrong, but it is reported.
    assert mask.applied(0x00, 0x1F) == 0x1C
    assert mask.lacking(0x1F) == 0x40


def test_masks_give_the_published_value_and_the_kernel_default():
    assert Mask("1x11101").applied(0, 0x7F) == 0x5D
    assert KERNEL_DEFAULT.applied(0, 0x7F) == 0x1D


@pytest.mark.parametrize("text", ["", "111111", "11111111", "1x111y1", "0x5d"])
def test_invalid_mask_text_is_refused(text):
    with pytest.raises(ValueError, match="is not a mask of seven ACS bits"):
        Mask(text)


def test_each_role_has_one_rule():
    assert len(BY_ROLE) == len(RULES)


def test_translation_blocking_is_off_where_translated_requests_go_straight_and_egress_control_is_left():
    """Bit 6 lets translated requests go straight, bit 1 blocks them; bit 5 is egress control."""
    for rule in RULES:
        for mask in (rule.virtual_machines, rule.bare_metal):
            assert (mask.text[5], mask.text[1]) == ("0" if mask.text[0] == "1" else "x", "x")
