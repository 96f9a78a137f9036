# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The effect of configuration lines on a Junos switch, for tests."""

from __future__ import annotations

SINGLE = ("mtu", "scheduler-map", "congestion-notification-profile", "queue-num", "pfc-priority", "queue-buffer-bytes")


def commit(running: str, lines: str) -> str:
    """Return the configuration after the lines: delete takes a path and all below, set replaces a single value."""
    found = [line.split() for line in running.splitlines() if line.strip()]
    for line in lines.splitlines():
        verb, *path = line.split()
        if verb == "delete":
            assert any(each[1 : len(path) + 1] == path for each in found), f"nothing to delete: {line}"
            found = [each for each in found if each[0] != "set" or each[1 : len(path) + 1] != path]
        elif verb == "activate":
            found.remove(["deactivate", *path])
        elif verb == "set":
            if path[-2] in SINGLE or path[-3:-1] == ["classifiers", "dscp"]:
                found = [each for each in found if each[1:-1] != path[:-1]]
            found.append(["set", *path])
    return "\n".join(" ".join(each) for each in found) + "\n"
