# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Write the files of a plan on the controller: only those that differ, with their differences."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from ansible_collections.sailloft.fleet.plugins.module_utils.proof import files


def write_changed(folder: str, texts: Mapping[str, str], check_mode: bool) -> list[dict[str, str]]:
    """Write the texts (by path in the folder) that differ, each atomically, and return the differences.

    Raises ProofError if the system refuses.
    """
    changes = []
    for name, text in texts.items():
        path = os.path.join(folder, name)
        before = files.read(path)
        if before != text:
            changes.append({"before_header": path, "after_header": path, "before": before or "", "after": text})
            if not check_mode:
                files.write(path, text)
    return changes


def write_plan(folder: str | None, texts: Mapping[str, str], check_mode: bool) -> dict[str, Any]:
    """Write the files of a plan, if a folder is given; return their part of the task's result. Raises ProofError."""
    changes = write_changed(folder, texts, check_mode) if folder else []
    return {"written": [change["after_header"] for change in changes], "diff": changes, "changed": bool(changes)}
