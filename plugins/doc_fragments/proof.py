# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Documentation that the modules that write a proof share."""

from __future__ import annotations


class ModuleDocFragment:
    """The options for the proof's files."""

    DOCUMENTATION = r"""
options:
  path:
    description:
      - Directory of the proofs, created if it is missing.
      - C(NAME.json), C(NAME.html) and C(NAME.txt), the short table, are written there, each as a whole or not at all.
    type: path
    required: true
attributes:
  check_mode:
    description: Can run in check mode and return changed status prediction without modifying target.
    support: full
  diff_mode:
    description: Will return details on what has changed (or possibly needs changing in check mode), when in diff mode.
    support: full
author:
  - The Sailloft maintainers (@sailloft)
notes:
  - The files contain no time and no random order. The same observations give the same bytes and no change.
  - If the proof does not hold, the module writes it and then fails.
"""
