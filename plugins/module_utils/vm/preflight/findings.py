# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The findings of preflight, each with its cause and its remedy, and all of them as one error. Pure."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from ansible_collections.sailloft.fleet.plugins.module_utils.vm.common.errors import DomainError

REFUSE, WARN = "refuse", "warn"


@dataclass
class Finding:
    """``what`` is wrong with virtual machine ``domain``, ``why`` that matters, and its ``remedy``.

    ``severity`` is REFUSE (nothing is touched) or WARN (it works, but not as well as it could).
    """

    domain: str
    what: str
    why: str
    remedy: str
    severity: str = REFUSE

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON-ready form."""
        return asdict(self)

    def __str__(self) -> str:
        subject = f"virtual machine {self.domain}: " if self.domain else ""
        return f"{subject}{self.what}: {self.why}; {self.remedy}"


def warnings(findings: list[dict[str, Any]], host_name: str) -> list[str]:
    """Return the findings (JSON-ready) that only warn, each as a sentence that names the host."""
    messages = (f"{host_name}: {Finding(**item)}" for item in findings if item["severity"] == WARN)
    return list(dict.fromkeys(messages))


class RefusedError(DomainError):
    """All findings of preflight, with at least one that refuses. The message numbers those that refuse, a line each."""

    def __init__(self, findings: list[Finding]) -> None:
        self.findings = findings
        lines = [str(item) for item in findings if item.severity == REFUSE]
        problems = "1 problem" if len(lines) == 1 else f"{len(lines)} problems"
        super().__init__(
            "\n".join(
                [f"nothing was touched: {problems}", *(f"{number}. {line}" for number, line in enumerate(lines, 1))]
            )
        )

    def result(self) -> dict[str, Any]:
        return {"findings": [item.to_dict() for item in self.findings]}


def unplannable(error: DomainError) -> Finding:
    """Return the planner's refusal as a finding; ``domain`` is "" if only the host is concerned."""
    remedy = error.remedy or "correct the cause named, or request less"
    return Finding(error.domain, "it cannot be planned on this host", error.cause, remedy)
