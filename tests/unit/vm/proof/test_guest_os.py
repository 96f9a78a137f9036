# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Claims on the NCCL files of a guest."""

from __future__ import annotations

from ansible_collections.sailloft.fleet.plugins.module_utils.vm.proof import guest_os


def test_settings_of_nccl_are_read_without_comments_and_may_contain_equals_signs():
    asked = {"NCCL_IB_HCA": "=mlx5_0:1", "NCCL_DEBUG": "INFO"}
    text = "# NCCL_DEBUG=WARN\n\n  NCCL_IB_HCA==mlx5_0:1  \nNCCL_DEBUG=INFO\nNCCL_P2P\n"
    claim = guest_os.settings_of_nccl(asked, text)
    settings = {"NCCL_DEBUG": "INFO", "NCCL_IB_HCA": "=mlx5_0:1"}
    assert (claim.wanted, claim.seen, claim.holds) == (settings, settings, True)


def test_a_different_nccl_topology_file_is_shown_by_its_changed_lines():
    claim = guest_os.file_of_nccl("<system>\n<cpu/>\n<gpu/>\n</system>\n", "<system>\n<cpu/>\n<nic/>\n</system>\n")
    assert claim.holds is False
    assert claim.seen == ["--- the plan's", "+++ the guest's", "-<gpu/>", "+<nic/>"]
