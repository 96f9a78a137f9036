# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

import pytest

from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.architecture import (
    architecture,
    unsupported_reason,
)
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.model import Cpu


@pytest.mark.parametrize(
    ("cpu", "wanted"),
    [
        (Cpu("x86_64", "GenuineIntel"), "x86_64"),
        (Cpu("x86_64"), "x86_64"),
        (Cpu(None, "AuthenticAMD"), "x86_64"),
        (Cpu(None, "HygonGenuine"), "x86_64"),
        (Cpu("ppc64le"), "ppc64le"),
        (Cpu("aarch64", "GenuineIntel"), "aarch64"),
        (Cpu(None, "IBM/S390"), None),
        (Cpu(), None),
    ],
)
def test_the_architecture_is_as_read_or_inferred_from_an_x86_vendor(cpu: Cpu, wanted: str | None) -> None:
    assert architecture(cpu) == wanted


@pytest.mark.parametrize("name", ["ppc64le", "ppc64", "aarch64", "i686", "riscv64"])
def test_an_unsupported_architecture_is_refused_by_name(name: str) -> None:
    assert unsupported_reason(Cpu(name)) == (
        f"the processor of this host is {name}, but GPU virtual machines are supported on x86_64 only"
    )


def test_x86_64_and_unknown_architectures_are_not_refused() -> None:
    assert unsupported_reason(Cpu("x86_64")) is None
    assert unsupported_reason(Cpu()) is None
