# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A host of the monitoring: files below a directory, a simulated systemd; promtool and amtool are the real ones."""

from __future__ import annotations

import os
from pathlib import Path

from ansible_collections.sailloft.fleet.plugins.module_utils.host.common.system import System

CHECKERS = ("/usr/bin/promtool", "/usr/bin/amtool", "/usr/bin/prometheus-blackbox-exporter")


class MonitoringHost(System):
    """The host. ``changes``: the calls of systemctl that change something. ``killed_at``: that which kills the run."""

    def __init__(self, root: Path) -> None:
        super().__init__(str(root))
        self.changes: list[str] = []
        self.active: dict[str, int] = {}
        self.killed_at = ""
        (root / "run/systemd/system").mkdir(parents=True)

    def path(self, path: str) -> str:
        """Return the path below the root, also of a path that is below it already."""
        return path if path.startswith(self.root) else super().path(path)

    def exists(self, path: str) -> bool:
        """Return True for what is below the root, and for programs of this machine."""
        return os.path.lexists(path) if path.startswith("/usr/bin/") else super().exists(path)

    def run(self, argv: list[str], stdin: str | None = None, timeout_s: float | None = None) -> str:
        """Simulate systemctl, and run the programs that check files."""
        if argv[0] in CHECKERS:
            return super().run(argv, stdin, timeout_s)
        assert argv[0] == "systemctl"
        verb, unit = argv[1] if argv[1] != "--root=/" else argv[2], argv[-1]
        if verb == "show":
            pid = self.active.get(unit, 0)
            return f"ActiveState={'active' if pid else 'inactive'}\nMainPID={pid}\nNeedDaemonReload=no\n"
        call = " ".join(argv[1:])
        if call == self.killed_at:
            raise KeyboardInterrupt
        self.changes.append(call)
        if verb == "enable":
            kind = "timers" if unit.endswith(".timer") else "multi-user"
            wants = Path(self.path(f"/etc/systemd/system/{kind}.target.wants/{unit}"))
            wants.parent.mkdir(parents=True, exist_ok=True)
            wants.touch()
        elif verb == "restart":
            self._start(unit)
        return ""

    def _start(self, unit: str) -> None:
        """Give the unit a process with the command line of its files."""
        self.active[unit] = pid = 1000 + len(self.active)
        folder = Path(self.path("/etc/systemd/system"))
        texts = [file.read_text() for file in (folder / f"{unit}.d/sailloft.conf", folder / unit) if file.is_file()]
        lines = [line for text in texts for line in text.splitlines() if line.startswith("ExecStart=/")]
        process = Path(self.path(f"/proc/{pid}"))
        process.mkdir(parents=True, exist_ok=True)
        words = (
            lines[0].partition("=")[2].replace("$$", "$").replace("${SAILLOFT_ADDRESS}", "10.0.0.7") if lines else ""
        )
        (process / "cmdline").write_text("".join(f"{word}\0" for word in words.split()))
