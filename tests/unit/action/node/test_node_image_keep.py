# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The module gets the images that nodes run and those that the inventory pins for them, and the contents of stores."""

from __future__ import annotations

from ansible_collections.sailloft.fleet.plugins.action import node_image_keep


def arguments(make, monkeypatch, hostvars, **given):
    """Return the arguments with which the action runs the module."""
    action = make(node_image_keep, **given)
    monkeypatch.setattr(action, "_execute_module", lambda module_args, task_vars: module_args)
    return action.run(task_vars={"hostvars": hostvars})


def test_each_node_has_its_report_or_the_reason_why_it_has_none(make, monkeypatch):
    hostvars = {
        "bm01": {"node_boot_image": {"channel": "stable"}},
        "bm02": {"node_boot_image": {"digest": "b" * 64}},
        "bm03": {},
        "bm04": {},
        "bm05": {"node_boot_image": None},
    }
    rows = {
        "bm01": {"answers": True, "running": "a" * 64, "why": "it is not proven"},
        "bm02": {"answers": True, "running": ""},
        "bm03": {"answers": False, "why": "bm03 does not answer"},
        "bm05": {"answers": False, "why": ""},
    }
    names = ["bm02", "bm01", "bm03", "bm04", "bm05"]
    assert arguments(make, monkeypatch, hostvars, nodes=names, rows=rows, stores=[])["nodes"] == [
        {"name": "bm02", "running": "", "silence": "", "pinned": "b" * 64},
        {"name": "bm01", "running": "a" * 64, "silence": "", "pinned": ""},
        {"name": "bm03", "running": "", "silence": "bm03 does not answer", "pinned": ""},
        {"name": "bm04", "running": "", "silence": "it was not asked", "pinned": ""},
        {"name": "bm05", "running": "", "silence": "it was not asked", "pinned": ""},
    ]


def test_results_of_a_loop_over_stores_are_stores_with_their_hosts(make, monkeypatch):
    results = [
        {"item": {"host": "boot01", "path": "/srv"}, "images": [1], "missing": [], "channels": [2], "changed": False},
        {"item": {"host": "boot02", "path": "/srv"}, "images": [], "missing": [3], "channels": [], "changed": False},
    ]
    stores = [{"host": "boot01", "images": [1], "missing": []}, {"host": "boot02", "images": [], "missing": [3]}]
    for given in (results, stores):
        assert arguments(make, monkeypatch, {}, nodes=[], stores=given)["stores"] == stores


def test_rows_of_nodes_are_passed_as_they_are(make, monkeypatch):
    nodes = [{"name": "bm01", "running": "a" * 64}]
    assert arguments(make, monkeypatch, {}, nodes=nodes, stores=[])["nodes"] == nodes
