# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A virtual machine runs on the server that its file names, and on no other."""

from __future__ import annotations

import pytest
from messages import raises

from ansible_collections.sailloft.fleet.plugins.module_utils.vm.common.errors import DomainError
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.preflight.place import VmPlace, check, dump

PATH = "vms/train-01.json"


def test_the_server_that_runs_it_may_and_another_learns_where_it_is_and_how_it_comes_back():
    written = dump(VmPlace("train-01", "gpu5"))
    check("train-01", "gpu5", written, PATH)
    with raises(DomainError, "train-01", "gpu5", "gpu_vm_domains", "undefine", PATH):
        check("train-01", "gpu1", written, PATH)


@pytest.mark.parametrize(
    "content",
    ["", "{", "[]", "[" * 100000, '{"format": "sailloft-vm-place/2", "vm": "train-01", "server": "gpu1"}'],
    ids=lambda content: content[:30],
)
def test_a_file_that_cannot_be_read_is_not_taken_for_leave(content):
    with raises(DomainError, PATH):
        check("train-01", "gpu1", content, PATH)
