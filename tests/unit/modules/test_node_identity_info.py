# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The report about its secrets that a node's unit writes, as node_identity_info reads it."""

from __future__ import annotations

import pytest

from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.errors import ImageError
from ansible_collections.sailloft.fleet.plugins.modules import node_identity_info


@pytest.fixture
def report(tmp_path, monkeypatch):
    """The path of the report."""
    place = tmp_path / "identity.json"
    monkeypatch.setattr(node_identity_info, "REPORT", str(place))
    return place


@pytest.mark.parametrize(
    ("text", "read"),
    [
        (None, {"opened": None, "digest": None, "reason": None}),
        ('{"opened": true, "digest": "d1", "reason": ""}', {"opened": True, "digest": "d1", "reason": None}),
        ('{"opened": false, "digest": "d1", "reason": "no"}', {"opened": False, "digest": None, "reason": "no"}),
    ],
)
def test_the_report_is_read(report, text, read):
    if text is not None:
        report.write_text(text)
    assert node_identity_info.read_report() == read


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "Expecting value: line 1 column 1 (char 0)"),
        ('{"opened": true}', "'digest'"),
        ("[]", "list indices must be integers or slices, not str"),
    ],
)
def test_a_damaged_report_is_refused(report, text, why):
    report.write_text(text)
    with pytest.raises(ImageError) as refused:
        node_identity_info.read_report()
    assert str(refused.value) == (
        f"{report}: cannot be read, {why}; systemctl restart sailloft-identity writes it again"
    )
