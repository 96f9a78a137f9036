# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Apply the role gpu_node as an image layer does, in an overlay whose lower layer is this machine's root.

``inside.py ROOT`` runs in a mount namespace in which ROOT is mounted, and reads the role's variables as JSON from
standard input. It prints Ansible's output and exits with Ansible's status.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from ansible_collections.sailloft.fleet.plugins.module_utils.image.build import roles_in
from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.errors import ImageError
from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.model import Role
from ansible_collections.sailloft.fleet.plugins.module_utils.image.common.process import run


def shown(argv: list[str], env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """Run a command, print what it printed, and return it."""
    if check:
        argv = [*argv, "--check", "--diff"]
    done = run(argv, env=env)
    sys.stdout.write(done.stdout)
    return done


given = json.load(sys.stdin)
check = given.pop("check", False)
try:
    roles_in.apply(Path(sys.argv[1]), [Role("sailloft.fleet.gpu_node", given)], run=shown, layer="gpu")
except ImageError as error:
    sys.exit(f"REFUSED: {error}")
