# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The kernel arguments of gpu_host for an image."""

from __future__ import annotations

import pytest
from ansible.errors import AnsibleFilterError
from messages import Mentions

from ansible_collections.sailloft.fleet.plugins.filter.gpu_host_kernel_arguments import gpu_host_kernel_arguments

PAGES = [{"node": 0, "size_mib": 1024, "count": 2}, {"node": 0, "size_mib": 2, "count": 128}]
OF_PAGES = "default_hugepagesz=1G hugepagesz=1G hugepages=0:2 hugepagesz=2M hugepages=0:128"


@pytest.mark.parametrize(
    ("variables", "arguments"),
    [
        ({}, "intel_iommu=on iommu=pt"),
        ({"gpu_host_iommu": "translated"}, "intel_iommu=on iommu=nopt"),
        ({"gpu_host_iommu": "unchanged", "gpu_host_vfio": ["gpu"], "gpu_host_keep_drivers_off": "no"}, ""),
        ({"gpu_host_iommu": "unchanged", "gpu_host_vfio": ["nvme"]}, ""),
        (
            {"gpu_host_iommu": "unchanged", "gpu_host_vfio": ["gpu"]},
            "module_blacklist=amdgpu,habanalabs,i915,nouveau,nova_core,nvidia,nvidiafb,radeon,xe",
        ),
        (
            {"gpu_host_iommu": "unchanged", "gpu_host_vfio": ["10de:2330"]},
            "module_blacklist=nouveau,nova_core,nvidia,nvidiafb",
        ),
        ({"gpu_host_hugepages": PAGES}, f"intel_iommu=on iommu=pt {OF_PAGES}"),
        ({"gpu_host_kernel_arguments": ["pci=realloc"]}, "intel_iommu=on iommu=pt pci=realloc"),
    ],
)
def test_variables_give_their_kernel_arguments(variables, arguments):
    assert gpu_host_kernel_arguments(variables) == arguments.split()


@pytest.mark.parametrize(
    ("variables", "message"),
    [
        ([], Mentions("gpu_host's")),
        ({"gpu_host_iommu": "on"}, Mentions("iommu", "on")),
        ({"gpu_host_kernel_arguments": ["a b"]}, Mentions("argument")),
        ({"gpu_host_kernel_arguments": ["iommu=off"]}, Mentions("iommu=pt", "iommu=off")),
        ({"gpu_host_hugepages": [{"node": 0}]}, Mentions("size_mib")),
        ({"gpu_host_kernel_arguments_removed": ["quiet"]}, Mentions("arguments")),
    ],
)
def test_invalid_variables_are_refused(variables, message):
    with pytest.raises(AnsibleFilterError) as error:
        gpu_host_kernel_arguments(variables)
    assert str(error.value) == message
