# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A host of a subnet manager: files below a directory, and a systemd that is simulated; opensm may be the real one."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.system import System

UNIT = "sailloft-opensm-compute.service"
OTHER = "opensm.service"


class ManagerHost(System):
    """The host. ``enabled`` and ``active`` have the names of units, ``changes`` the calls that change them."""

    def __init__(
        self, root: Path, start: Callable[[], None], stop: Callable[[], None], hup: Callable[[], None]
    ) -> None:
        super().__init__(str(root))
        self.start, self.stop, self.hup = start, stop, hup
        self.enabled: set[str] = set()
        self.active: set[str] = set()
        self.changes: list[str] = []
        self.loaded: dict[str, str] = {}  # the units as systemd has them
        (root / "run/systemd/system").mkdir(parents=True)

    def path(self, path: str) -> str:
        """Return the path below the root, also of a path that is below it already."""
        return path if path.startswith(self.root) else super().path(path)

    def run(self, argv: list[str], stdin: str | None = None, timeout_s: float | None = None) -> str:
        """Simulate systemctl."""
        program, verb, *_options, name = (*argv, "") if len(argv) == 2 else tuple(argv)
        assert program == "systemctl"
        if verb == "show":
            states = "active" if name in self.active else "inactive", "enabled" if name in self.enabled else "disabled"
            differs = "yes" if name in self.loaded and self.loaded[name] != self._unit(name) else "no"
            return "ActiveState={}\nUnitFileState={}\nNeedDaemonReload={}\n".format(*states, differs)
        self.changes.append(" ".join(argv[1:]))
        if name:
            self.loaded.setdefault(name, self._unit(name))
        else:
            self.loaded = {each: self._unit(each) for each in self.loaded}
        if verb == "enable":
            self.enabled.add(name)
        elif verb == "mask":
            self.enabled.discard(name)
            self.active.discard(name)
        elif verb in ("start", "restart"):
            if name in self.active:
                self.stop()
            run = Path(self.path(f"/run/{name.removesuffix('.service')}"))
            run.mkdir(exist_ok=True)
            (copied,) = (line for line in self.loaded[name].splitlines() if line.startswith("ExecStartPre=/bin/cp "))
            for file in copied.replace("%n", name).split()[1:-1]:
                shutil.copy(self.path(file), run)
            self.active.add(name)
            self.start()
        elif verb == "reload":
            self.hup()
        return ""

    def _unit(self, name: str) -> str:
        """Return the text of a unit's file, "" of one that has none here."""
        path = Path(self.path(f"/etc/systemd/system/{name}"))
        return path.read_text(encoding="utf-8") if path.exists() else ""
