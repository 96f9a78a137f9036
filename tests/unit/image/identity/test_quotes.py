# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The reading of a quote that a node gives; tests/identity verifies quotes of software TPMs."""

from __future__ import annotations

import base64

import pytest
from messages import raises

from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.errors import ImageError
from ansible_collections.sailloft.fleet.plugins.module_utils.image.identity import quotes
from ansible_collections.sailloft.fleet.plugins.module_utils.image.node.measurements import PCRS


def encoded(data: bytes) -> str:
    return base64.b64encode(data).decode()


RESULT = {
    "message": encoded(b"message"),
    "signature": encoded(b"signature"),
    "pcrs": encoded(b"".join(bytes([number]) * 32 for number in range(len(PCRS)))),
    "log": ["11", "22"],
}


def test_the_values_of_a_quote_are_those_of_its_registers_in_their_order():
    quote = quotes.Quote.of_result(RESULT, "node bm01")
    assert (quote.message, quote.signature) == (b"message", b"signature")
    assert quote.seen.pcrs == {pcr: f"{number:02x}" * 32 for number, pcr in enumerate(PCRS)}


@pytest.mark.parametrize("change", [{"message": "%"}, {"signature": None}, {"pcrs": 7}])
def test_what_is_no_quote_is_refused_with_the_node(change):
    with raises(ImageError, "node bm01"):
        quotes.Quote.of_result({**RESULT, **change}, "node bm01")
