#!/usr/bin/env python3
# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Print a state of node_health, as it is now: health_state.py EXAMPLE HOST [CHECK], with a fault of the check."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

example, host, *checks = sys.argv[1:]
state = json.loads(Path(example).read_text(encoding="utf-8"))
boot_id = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="utf-8").strip()
now = {"unix_s": time.time(), "boot_id": boot_id, "boot_s": time.clock_gettime(time.CLOCK_BOOTTIME)}
fault = state["condition"]["faults"][0]
state["host"] = host
state["round"].update(ended=now, errors={}, notes=[], period_s=86400.0)
state["condition"] = {"faults": [{**fault, "check": check} for check in checks]}
print(json.dumps(state))
