# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A whole plan and its guest as JSON: a change shows as a diff of files. SAILLOFT_WRITE_PLAN=1 writes it again."""

from __future__ import annotations

import json
import os
from pathlib import Path

from plans import one_node

from ansible_collections.sailloft.fleet.plugins.module_utils.vm.plan.predicted_guest import predict

FILE = Path(__file__).parent / "one-node.json"


def test_the_plan_and_its_guest_equal_the_stored_file():
    plan = one_node()
    text = json.dumps({"plan": plan.to_dict(), "guest": predict(plan).to_dict()}, indent=1) + "\n"
    if os.environ.get("SAILLOFT_WRITE_PLAN"):
        FILE.write_text(text, encoding="utf-8")
    assert text == FILE.read_text(encoding="utf-8")
