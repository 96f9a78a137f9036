# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Names of images, layers, channels and nodes, and digests: the longest valid ones and each kind of invalid one."""

from __future__ import annotations

import pytest
from image_samples import refused
from messages import Mentions

from ansible_collections.sailloft.fleet.plugins.module_utils.image.common import names


@pytest.mark.parametrize("name", ["a", "0", "gpu-node_1.2", "a" * 63])
def test_a_valid_name_is_returned(name):
    assert names.checked_name(name, "image") == name


@pytest.mark.parametrize("name", ["", ".a", "-a", "_a", "A", "a/b", "a b", "a\n", "a" * 64, 7, None])
def test_an_invalid_name_is_refused(name):
    assert refused(lambda: names.checked_name(name, "channel")) == Mentions("channel", repr(name), "63")


@pytest.mark.parametrize("name", ["a", "0", "bm01.lab-2", "a" * 63])
def test_a_valid_node_is_returned(name):
    assert names.checked_node(name) == name


@pytest.mark.parametrize("name", ["", "-a", "a-", "a.", "a_b", "A", "a\n", "a" * 64, 7])
def test_an_invalid_node_is_refused(name):
    assert refused(lambda: names.checked_node(name)) == Mentions("node", repr(name))


def test_a_digest_of_64_lower_case_hexadecimal_digits_is_returned():
    assert names.checked_digest("0123456789abcdef" * 4, "x") == "0123456789abcdef" * 4


@pytest.mark.parametrize("digest", ["a" * 63, "a" * 65, "A" * 64, "g" * 64, "sha256:" + "a" * 64, 7, None])
def test_an_invalid_digest_is_refused(digest):
    assert refused(lambda: names.checked_digest(digest, "node bm01")) == Mentions("bm01", repr(digest), "64")


def test_the_first_20_names_are_listed():
    nodes = [f"bm{at:02}" for at in range(1, 23)]
    assert names.listed(nodes[:1]) == "bm01"
    assert names.listed(nodes[:20]) == ", ".join(nodes[:20])
    assert names.listed(nodes) == ", ".join(nodes[:20]) + " and 2 more"
