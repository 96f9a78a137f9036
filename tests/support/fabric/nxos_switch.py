# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The effect of QoS lines on an NX-OS switch, for tests, by hier-config."""

from __future__ import annotations

import pytest


def apply(running: str, lines: str) -> str:
    """``running`` after ``lines``, by hier-config, told of what else NX-OS has one of in a place."""
    hier_config = pytest.importorskip("hier_config")
    driver = told(hier_config)
    before = hier_config.get_hconfig(driver, running)
    sent = hier_config.get_hconfig(driver, lines)
    after = before.future(sent)
    after.set_order_weight()
    return "\n".join(line.cisco_style_text() for line in after.all_children_sorted()) + "\n"


def told(hier_config):
    from hier_config.models import IdempotentCommandsRule, MatchRule, OrderingRule, PerLineSubRule

    driver = hier_config.get_hconfig_driver(hier_config.Platform.CISCO_NXOS)
    for head, line in [
        ("system qos", "service-policy type queuing output"),
        ("system qos", "service-policy type network-qos"),
        ("interface", "priority-flow-control mode"),
        ("interface", "priority-flow-control watch-dog-interval"),
    ]:
        rule = IdempotentCommandsRule(match_rules=(MatchRule(startswith=head), MatchRule(startswith=line)))
        driver.rules.idempotent_commands.append(rule)
    for line in [
        "priority-flow-control watch-dog-interval",
        "priority-flow-control watch-dog interval",
        "priority-flow-control watch-dog shutdown-multiplier",
        "priority-flow-control auto-restore multiplier",
        "ip load-sharing address",
    ]:
        driver.rules.idempotent_commands.append(IdempotentCommandsRule(match_rules=(MatchRule(startswith=line),)))
    for line in ["set qos-group", "mtu", "pause", "bandwidth", "priority", "random-detect"]:
        rule = IdempotentCommandsRule(
            match_rules=(MatchRule(startswith="policy-map"), MatchRule(startswith="class"), MatchRule(startswith=line))
        )
        driver.rules.idempotent_commands.append(rule)
    last = (MatchRule(startswith="policy-map"), MatchRule(endswith=" class-default"))
    driver.rules.ordering.append(OrderingRule(match_rules=last, weight=900))
    driver.rules.per_line_sub.append(PerLineSubRule(search=r"^banner .*|^\^$", replace=""))
    return driver
