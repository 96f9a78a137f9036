# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Limits of groups, and alerts that are left out."""

from __future__ import annotations

from ansible_collections.sailloft.fleet.plugins.module_utils.monitoring.rules import rules


def expressions(limits, disabled=()):
    return {
        rule["alert"]: rule["expr"]
        for group in rules(limits, disabled)["groups"]
        for rule in group["rules"]
        if "alert" in rule
    }


def test_a_limit_is_the_default_that_of_the_site_or_that_of_the_first_group_of_a_host():
    assert expressions({})["GpuHot"] == 'DCGM_FI_DEV_GPU_TEMP{job="dcgm"} > 90'
    assert expressions({"gpu_temperature_celsius": {"all": 85}})["GpuHot"] == 'DCGM_FI_DEV_GPU_TEMP{job="dcgm"} > 85'
    by_group = expressions({"gpu_temperature_celsius": {"hot": 95, "cold": 70}})["GpuHot"]
    assert by_group.split(" or ") == [
        '(DCGM_FI_DEV_GPU_TEMP{job="dcgm",limits!~".*,hot,.*",limits!~".*,cold,.*"} > 90)',
        '(DCGM_FI_DEV_GPU_TEMP{job="dcgm",limits=~".*,hot,.*"} > 95)',
        '(DCGM_FI_DEV_GPU_TEMP{job="dcgm",limits=~".*,cold,.*",limits!~".*,hot,.*"} > 70)',
    ]


def test_a_disabled_alert_is_left_out():
    assert set(expressions({})) - set(expressions({}, ["HostDown", "PortDown"])) == {"HostDown", "PortDown"}
