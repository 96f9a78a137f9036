# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The end of a module: its result, or the failure that an error of the library becomes."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.sailloft.fleet.plugins.module_utils.common.error import SailloftError
from ansible_collections.sailloft.fleet.plugins.module_utils.common.finish import finish
from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.model.errors import FabricError
from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.errors import HostError
from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.errors import ImageError
from ansible_collections.sailloft.fleet.plugins.module_utils.pci.config import PciError
from ansible_collections.sailloft.fleet.plugins.module_utils.proof.claims import ProofError
from ansible_collections.sailloft.fleet.plugins.module_utils.topology.model.errors import TopologyError
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.common.errors import DomainError
from ansible_collections.sailloft.fleet.plugins.module_utils.vm.preflight.findings import Finding, RefusedError


class Module:
    """A module that records how it ended."""

    def exit_json(self, **result: Any) -> None:
        self.exited = result
        raise SystemExit(0)

    def fail_json(self, msg: str, **result: Any) -> None:
        self.failed = {"msg": msg, **result}
        raise SystemExit(1)


def ended(work: Any, subject: str = "") -> Module:
    module = Module()
    with pytest.raises(SystemExit):
        finish(module, work, subject)
    return module


def failing(error: Exception) -> Any:
    def work() -> dict[str, Any]:
        raise error

    return work


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (SailloftError("it is full", "empty it", subject="disk sda"), "disk sda: it is full; empty it"),
        (SailloftError("disk sda is full"), "disk sda is full"),
        (SailloftError("it is full", subject="disk sda"), "disk sda: it is full"),
        (
            FabricError("it has no ports", "name its ports", subject="switch sw01"),
            "switch sw01: it has no ports; name its ports",
        ),
        (ImageError("it has no layer", "name one", subject="image web"), "image web: it has no layer; name one"),
        (
            DomainError("no GPU is free", "ask for less", domain="vm01"),
            "virtual machine vm01: no GPU is free; ask for less",
        ),
        (HostError("cannot read /proc/1"), "cannot read /proc/1"),
        (TopologyError("not JSON"), "not JSON; read or record the host again"),
        (PciError("truncated"), "truncated; read it again, as root"),
        (ProofError("not a claim"), "not a claim"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else "",
)
def test_an_error_of_any_package_becomes_the_failure_message(error, message):
    assert ended(failing(error)).failed == {"msg": message}
    assert ended(failing(error), "gpu01").failed == {"msg": f"gpu01: {message}"}


def test_an_unexpected_exception_is_not_caught():
    with pytest.raises(KeyError):
        finish(Module(), failing(KeyError("x")))


def test_a_refusal_returns_its_findings():
    finding = Finding("vm01", "GPU 0000:01:00.0", "it is in use", "release it")
    assert ended(failing(RefusedError([finding]))).failed["findings"] == [finding.to_dict()]


def test_a_result_is_returned_with_the_key_changed():
    assert ended(lambda: {"names": ["a"]}).exited == {"changed": False, "names": ["a"]}
    assert ended(lambda: {"changed": True}).exited == {"changed": True}


def test_a_failed_result_is_returned_completely():
    result = {"failed": True, "msg": "1 claim fails", "changed": True}
    assert ended(lambda: result).failed == result
