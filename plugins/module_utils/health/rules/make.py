# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Make rules of the kinds that the tables have most of. Pure."""

from __future__ import annotations

from collections.abc import Callable

from ansible_collections.sailloft.fleet.plugins.module_utils.health.model import (
    EVENT,
    HARDWARE,
    INCREASE_AT_MOST,
    NOT_TRUE,
    Expected,
    Place,
    Rule,
)

# What is expected at a place; None: nothing.
Limit = Callable[[Expected, Place], "float | str | None"]


def flag(
    check: str,
    title: str,
    action: str,
    source: str,
    runbook: str,
    layer: str = HARDWARE,
    is_occasional: bool = False,
    expected: Limit | None = None,
) -> Rule:
    """Return the rule of a check that must not be true."""
    return Rule(check, title, layer, NOT_TRUE, action, source, runbook, is_occasional=is_occasional, expected=expected)


def increase(
    check: str,
    title: str,
    action: str,
    source: str,
    runbook: str,
    limit: float,
    window_s: int,
    layer: str = HARDWARE,
    is_occasional: bool = False,
    unit: str = "",
) -> Rule:
    """Return the rule of a counter, which may increase by ``limit`` in ``window_s`` seconds."""
    return Rule(
        check,
        title,
        layer,
        INCREASE_AT_MOST,
        action,
        source,
        runbook,
        limit,
        unit,
        window_s,
        is_occasional=is_occasional,
    )


def event(check: str, title: str, action: str, source: str, runbook: str, layer: str = HARDWARE) -> Rule:
    """Return the rule of a line of a log, each of which is a fault."""
    return Rule(check, title, layer, EVENT, action, source, runbook)
