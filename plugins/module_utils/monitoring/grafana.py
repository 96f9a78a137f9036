# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Grafana's dashboards, which are files of the collection."""

from __future__ import annotations

from pathlib import Path

# Written by docs/site/dashboards.py, from the tables of alerts and of GPU metrics.
FOLDER = Path(__file__).with_name("dashboards")


def dashboards() -> dict[str, str]:
    """Return the dashboards as JSON, by name of the file."""
    return {path.name: path.read_text(encoding="utf-8") for path in sorted(FOLDER.glob("*.json"))}
