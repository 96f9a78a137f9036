# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Tools of a build that do not run: their arguments are recorded, and a test provides their output."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.tools import Run, command_in


@dataclass(frozen=True)
class Tools(Run):
    """Recorded tools: ``answer`` returns the output of a command, or (its exit status, the output)."""

    subject: str = "layer site"
    progress: Callable[[str], object] = lambda text: None
    answer: Callable[[list[str]], Any] = lambda argv: ""
    ran: list[list[str]] = field(default_factory=list)
    environments: list[dict[str, str]] = field(default_factory=list)

    @property
    def commands(self) -> list[list[str]]:
        """The commands, without what makes their rooms."""
        return [list(command_in(argv)) for argv in self.ran]

    def process(self, argv, env=None, show=None, fault=None):
        self.ran.append(argv)
        self.environments.append(dict(env or {}))
        answer = self.answer(argv)
        status, output = answer if isinstance(answer, tuple) else (0, answer)
        return subprocess.CompletedProcess(argv, status, output)
