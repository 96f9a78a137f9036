# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The types of cables that a blueprint may name without describing them."""

from __future__ import annotations

from ansible_collections.sailloft.fleet.plugins.module_utils.site.request.spec import Medium

# The lengths in metres that vendors sell; a cable of a type without such lengths is cut to whole metres.
_SHORT = (0.5, 1, 1.5, 2, 2.5, 3, 4, 5)
_LONG = (1, 2, 3, 5, 7, 10, 15, 20, 25, 30, 40, 50, 70, 100)

# The greatest lengths, in metres by Gbit/s.
MEDIA = {
    medium.name: medium
    for medium in (
        # IEEE 802.3: clauses 85 (40GBASE-CR4, 7 m), 92 (100GBASE-CR4, 5 m), 110 (25GBASE-CR), 136 (50, 100 and
        # 200GBASE-CR, 3 m), 162 (400GBASE-CR4, 2 m); SFF-8431 (10 Gbit/s, 7 m).
        Medium("dac", _SHORT, {10: 7, 25: 5, 40: 7, 50: 3, 100: 5, 200: 3, 400: 2, 800: 2}),
        # NVIDIA, LinkX User Guide for 400Gbps 100G-PAM4, product line overview: passive copper 3 m, active copper 5 m,
        # multimode 50 m.
        Medium("ndr-dac", (0.5, 1, 1.5, 2, 2.5, 3), {400: 3}),
        Medium("ndr-acc", (3, 4, 5), {400: 5}),
        Medium("ndr-mmf", (3, 5, 7, 10, 15, 20, 25, 30, 35, 40, 50), {400: 50}),
        # Active optical cables with their plugs; the longest that is sold has 100 m.
        Medium("aoc", _LONG, {10: 100, 25: 100, 40: 100, 100: 100, 200: 100, 400: 100}),
        # OM4 fibre and two transceivers: IEEE 802.3 clauses 52 (10GBASE-SR, 400 m), 112 (25GBASE-SR), 86
        # (40GBASE-SR4), 95 (100GBASE-SR4), 138 (200GBASE-SR4, 400GBASE-SR8), 167 (800GBASE-SR8, 100 m).
        Medium("mmf", _LONG, {10: 400, 25: 100, 40: 150, 100: 100, 200: 100, 400: 100, 800: 100}),
        # IEEE 802.3 clauses 140 (100GBASE-DR), 121 (200GBASE-DR4), 124 (400GBASE-DR4, 800GBASE-DR8): 500 m.
        Medium("smf", (*_LONG, 150, 200, 300, 500), {100: 500, 200: 500, 400: 500, 800: 500}),
        # IEEE 802.3 clauses 40 (1000BASE-T) and 55 (10GBASE-T, category 6A).
        Medium("cat6a", (0.5, 1, 1.5, 2, 3, 5, 7, 10, 15, 20, 30, 50, 100), {0.1: 100, 1: 100, 2.5: 100, 10: 100}),
    )
}
