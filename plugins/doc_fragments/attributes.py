# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Documentation that most modules share: the author, and the support of check and diff mode."""

from __future__ import annotations


class ModuleDocFragment:
    """The attributes of modules that change something, with full support; READS is for modules that only read."""

    DOCUMENTATION = r"""
attributes:
  check_mode:
    description: Can run in check mode and return changed status prediction without modifying target.
    support: full
  diff_mode:
    description: Will return details on what has changed (or possibly needs changing in check mode), when in diff mode.
    support: full
author:
  - The Sailloft maintainers (@sailloft)
"""

    READS = r"""
attributes:
  check_mode:
    description: The module only reads.
    support: full
  diff_mode:
    description: The module changes nothing, so there is nothing to show.
    support: none
author:
  - The Sailloft maintainers (@sailloft)
"""
