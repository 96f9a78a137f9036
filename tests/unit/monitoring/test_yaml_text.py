# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What is written is read as it was."""

from __future__ import annotations

import yaml
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.sailloft.fleet.plugins.module_utils.monitoring.yaml_text import to_yaml

TEXTS = st.text(
    st.characters(min_codepoint=32, max_codepoint=126) | st.sampled_from("\n'é"), max_size=12
) | st.sampled_from(
    ["yes", "Null", "1e3", "0x1", "-", "", " a", "a:", "~", "<<", "=", ".5", "1_000", "12:30:45", "2020-01-01"]
)
VALUES = st.recursive(
    TEXTS | st.booleans() | st.integers(-9, 9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(TEXTS, VALUES, min_size=1, max_size=3))
def test_yaml_is_read_as_it_was_written(data):
    assert yaml.safe_load(to_yaml(data)) == data
