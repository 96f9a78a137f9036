# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

import pickle

import pytest

from ansible_collections.sailloft.fleet.plugins.module_utils.given.error import SailloftError


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (SailloftError("it is down"), "it is down"),
        (SailloftError("it is down", "plug it in"), "it is down; plug it in"),
        (SailloftError("it is down", subject="port 1"), "port 1: it is down"),
        (SailloftError(cause="it is down", remedy="plug it in", subject="port 1"), "port 1: it is down; plug it in"),
    ],
)
def test_an_error_has_the_same_text_after_pickling(error, text):
    assert str(error) == text
    assert str(pickle.loads(pickle.dumps(error))) == text
