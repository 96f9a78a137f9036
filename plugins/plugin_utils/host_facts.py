# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Facts as variables: Ansible's default, by which any result of a host may override the inventory's variables."""

from __future__ import annotations

from ansible import constants

# The roles that decide about hosts of which it is not known what they run: which commands run on the controller for
# them, by which BMC they are restarted, and to whose key secrets are encrypted.
ROLES = frozenset({"node_boot", "node_identity"})


def overriding_reason(whose: str) -> str | None:
    """Return the reason why hosts could decide about themselves in ``whose`` (playbook, role), or None."""
    # Ansible plans to remove this setting: then facts are no variables.
    if not getattr(constants, "INJECT_FACTS_AS_VARS", False):
        return None
    return (
        f"{whose} decides about hosts that could override its variables, because Ansible takes the facts that hosts "
        "return as variables; write inject_facts_as_vars = false in [defaults] of ansible.cfg"
    )
