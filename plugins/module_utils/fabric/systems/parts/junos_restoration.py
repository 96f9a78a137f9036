# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Compute the lines that change a Junos configuration back to a backup. Sources: ``systems.junos``."""

from __future__ import annotations

import re

from ansible_collections.sailloft.fleet.plugins.module_utils.fabric.running.junos_lines import (
    COS,
    HASH,
    Line,
    in_other_order,
    set_lines,
    without,
    written,
)

PLAIN = re.compile(r'[^\s\[\]"#;{}]+')  # a word that needs no quotes


def restoration(backup: str, running: str, name: str) -> str:
    """Return the lines that change ``running`` back to ``backup`` in all that a policy can change; "" if equal.

    An object that ``backup`` lacks is deleted whole, because deleting its statements would leave it, empty. The
    partitions of the buffer stay as they are, because no policy changes them.
    """
    former, formerly_inactive = set_lines(written(backup), name)
    lines, inactive = set_lines(written(running), name)
    wanted, existing = dict.fromkeys(filter(_is_of_policy, former)), dict.fromkeys(filter(_is_of_policy, lines))
    reordered = in_other_order(existing, wanted)
    existing = dict.fromkeys(without(existing, reordered))
    unwanted = [line for line in existing if line not in wanted]
    kept_paths = {
        line[:length] for line in (*lines, *inactive) if line not in unwanted for length in range(1, len(line) + 1)
    }
    deleted = dict.fromkeys(reordered)
    deleted.update(
        dict.fromkeys(
            next((line[:length] for length in range(1, len(line)) if line[:length] not in kept_paths), line)
            for line in unwanted
        )
    )
    changes = [
        *(("activate", path) for path in inactive if _is_of_policy(path) and path not in formerly_inactive),
        *(("delete", path) for path in deleted),
        *(("set", line) for line in wanted if line not in existing),
        *(("deactivate", path) for path in formerly_inactive if _is_of_policy(path) and path not in inactive),
    ]
    return "".join(f"{verb} {' '.join(map(_quoted, path))}\n" for verb, path in changes)


def _is_of_policy(line: Line) -> bool:
    """Return true for a line of a kind that a policy can change: classes of service, the hash, a port's MTU."""
    if line[:1] == COS:
        return line[1:2] != ("shared-buffer",)
    return line[:2] == HASH or (line[:1] == ("interfaces",) and "mtu" in line[2:3] + line[-2:-1])


def _quoted(word: str) -> str:
    return word if PLAIN.fullmatch(word) else f'"{word}"'
