# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The rules of settings of GPUs."""

from __future__ import annotations

from ansible_collections.sailloft.fleet.plugins.module_utils.health.model import CONFIGURATION
from ansible_collections.sailloft.fleet.plugins.module_utils.health.rules.table import RULES


def test_settings_are_faults_of_the_configuration():
    for check in ("gpu_persistence_mode", "gpu_ecc_mode", "gpu_mig_mode", "dcgm_diag_configuration", "version_kernel"):
        assert (RULES[check].layer, RULES[check].action) == (CONFIGURATION, "configure")
