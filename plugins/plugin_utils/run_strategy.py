# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The strategies that keep Ansible's order: each task on all hosts of a batch before the next task."""

from __future__ import annotations

ORDERED = ("linear", "mitogen_linear")


def forbidden_reason(strategy: str, whose: str) -> str | None:
    """Return the reason why a run with this strategy cannot keep what ``whose`` (playbook, role) promises, or None."""
    if strategy.rpartition(".")[2] in ORDERED:
        return None
    return (
        f"{whose} does not run with the strategy {strategy}, under which hosts do not wait for each other, so that "
        "batches, stages, holds and failure limits have no effect; set the strategy to ansible.builtin.linear"
    )
