# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A role's tags stand in the description of its main entry point, "Tags: C(nccl), C(packages).", and nowhere else."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

ROLES = Path(__file__).parents[3] / "roles"


def tags(tasks):
    """The tags of tasks and of those in their blocks."""
    for task in tasks or []:
        given = task.get("tags", [])
        yield from [given] if isinstance(given, str) else given
        for part in ("block", "rescue", "always"):
            yield from tags(task.get(part))


@pytest.mark.parametrize("role", sorted(path.name for path in ROLES.iterdir() if (path / "meta").is_dir()))
def test_the_tags_of_a_role_are_documented(role):
    files = (ROLES / role / "tasks").rglob("*.yml")
    used = {tag for file in files for tag in tags(yaml.safe_load(file.read_text()))}
    specs = yaml.safe_load((ROLES / role / "meta/argument_specs.yml").read_text())["argument_specs"]
    described = specs.get("main", {}).get("description", [])
    lines = [described] if isinstance(described, str) else described
    told = {tag for line in lines if line.startswith("Tags: ") for tag in re.findall(r"C\((\w+)\)", line)}
    assert used - {"always", "never"} == told
