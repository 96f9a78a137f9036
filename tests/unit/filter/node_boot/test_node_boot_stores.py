# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The contents of stores, with their hosts."""

from __future__ import annotations

from ansible_collections.sailloft.fleet.plugins.filter.node_boot_stores import node_boot_stores


def test_each_store_has_its_host_and_the_named_parts():
    results = [
        {"item": {"host": "boot01", "path": "/srv"}, "images": [1], "missing": [], "channels": [2], "changed": False},
        {"item": {"host": "boot02", "path": "/srv"}, "images": [], "missing": [3], "channels": [], "changed": False},
    ]
    assert node_boot_stores(results, "images", "missing") == [
        {"host": "boot01", "images": [1], "missing": []},
        {"host": "boot02", "images": [], "missing": [3]},
    ]
    assert node_boot_stores(results, "channels") == [
        {"host": "boot01", "channels": [2]},
        {"host": "boot02", "channels": []},
    ]
