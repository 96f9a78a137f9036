# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Write the three files of a proof and return the result of a module."""

from __future__ import annotations

import os
from typing import Any

from ansible_collections.sailloft.fleet.plugins.module_utils.proof import files
from ansible_collections.sailloft.fleet.plugins.module_utils.proof.proof import Proof
from ansible_collections.sailloft.fleet.plugins.module_utils.proof.table import first_failure, table


def written(proof: Proof, page: str, folder: str, check_mode: bool) -> dict[str, Any]:
    """Write those of NAME.json, NAME.html (``page``) and NAME.txt that differ, and return the module's result.

    Its keys are changed, diff, holds, counts, table, files, and for a proof that does not hold failed and msg. In check
    mode nothing is written. Raises ProofError.
    """
    lines = table(proof, f"{proof.name}.html")
    texts = {"json": proof.to_json(), "html": page, "txt": "\n".join(lines) + "\n"}
    wanted = {os.path.join(folder, f"{proof.name}.{kind}"): text for kind, text in texts.items()}
    old_texts = {path: files.read(path) for path in wanted}
    differing = [path for path, text in wanted.items() if old_texts[path] != text]
    if not check_mode:
        for path in differing:
            files.write(path, wanted[path])
        if not differing:  # its time is that of the last proof, also of one with the same claims
            files.touch(next(path for path in wanted if path.endswith(".json")))
    page_file = next(path for path in wanted if path.endswith(".html"))
    failure = {} if proof.holds else {"failed": True, "msg": f"{first_failure(proof)}; see {page_file}"}
    return {
        **failure,
        "changed": bool(differing),
        "diff": [
            {"before_header": path, "after_header": path, "before": old_texts[path] or "", "after": wanted[path]}
            for path in differing
            if path.endswith(".json")
        ],
        "holds": proof.holds,
        "counts": proof.counts.to_dict(),
        "table": lines,
        "files": list(wanted),
    }
