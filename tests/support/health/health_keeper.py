# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The program of the boot servers that keeps copies of nodes' health: its file, and the same as a module."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

KEEPER = Path(__file__).parents[3] / "roles/boot_server/files/sailloft-health-keeper"


def load() -> ModuleType:
    """Return the program as a module. An import would leave bytecode in the role."""
    module = ModuleType("sailloft_health_keeper")
    exec(compile(KEEPER.read_text(encoding="utf-8"), str(KEEPER), "exec"), vars(module))
    return module
