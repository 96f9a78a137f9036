# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The images that nodes run and those that the inventory pins for them."""

from __future__ import annotations

from messages import Mentions

from ansible_collections.sailloft.fleet.plugins.filter.node_boot_reports import node_boot_reports


def test_each_node_has_its_report_or_the_reason_why_it_has_none():
    hostvars = {
        "bm01": {"__node_boot_before": {"boot_id": "1", "image": "a" * 64}, "node_boot_image": {"channel": "stable"}},
        "bm02": {"__node_boot_before": {"boot_id": "2", "image": None}, "node_boot_image": {"digest": "b" * 64}},
        "bm03": {"__node_boot_before": {"msg": " bm03 does not answer\n", "unreachable": True}},
        "bm04": {},
        "bm05": {"__node_boot_before": {"msg": " "}, "node_boot_image": None},
    }
    assert node_boot_reports(["bm02", "bm01", "bm03", "bm04", "bm05"], hostvars) == [
        {"name": "bm02", "running": "", "silence": "", "pinned": "b" * 64},
        {"name": "bm01", "running": "a" * 64, "silence": "", "pinned": ""},
        {"name": "bm03", "running": "", "silence": "bm03 does not answer", "pinned": ""},
        {"name": "bm04", "running": "", "silence": Mentions("asked"), "pinned": ""},
        {"name": "bm05", "running": "", "silence": Mentions("asked"), "pinned": ""},
    ]
