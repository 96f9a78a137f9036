# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

import pytest
from ansible.errors import AnsibleFilterError

from ansible_collections.sailloft.fleet.plugins.filter.roce_nccl import FilterModule

roce_nccl = FilterModule().filters()["roce_nccl"]


def test_the_settings_of_the_policy_are_added_to_the_given_settings():
    assert roce_nccl({"NCCL_DEBUG": "WARN"}, {}) == {"NCCL_DEBUG": "WARN", "NCCL_IB_TC": 106}
    assert roce_nccl({}, {}, {"gid_index": 3}) == {"NCCL_IB_GID_INDEX": 3, "NCCL_IB_TC": 106}


@pytest.mark.parametrize("choices", [{"gid_index": "three"}, {"rdma_class": "storage"}, {"speed": 1}])
def test_invalid_choices_are_refused(choices):
    with pytest.raises(AnsibleFilterError):
        roce_nccl({}, {}, choices)
