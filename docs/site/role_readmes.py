#!/usr/bin/env python3
# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Write roles/*/README.md from the roles' argument specifications: role_readmes.py [--check]

Galaxy asks for a README a role. What `ansible-doc -t role` says must not be written twice by hand.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[2]
# The page of each role in docs/how-to; the lab's is not a role for users.
PAGES = {
    "boot_server": "boot-servers",
    "gpu_guest": "gpu-guests",
    "gpu_host": "gpu-hosts",
    "gpu_node": "gpu-nodes",
    "gpu_vm": "gpu-vms",
    "ib_fabric": "infiniband",
    "ib_host": "infiniband-hosts",
    "monitoring": "monitoring",
    "monitoring_node": "monitoring",
    "node_boot": "boot-nodes",
    "node_crash_dump": "crash-dumps",
    "node_health": "health",
    "node_identity": "node-secrets",
    "node_image": "node-images",
    "node_logs": "logs",
    "node_repair": "repair",
    "roce_host": "roce-hosts",
    "roce_switch": "roce-fabric",
    "scheduler": "scheduler",
    "storage_client": "storage",
}
MARKUP = re.compile(r"\b([CVOPMIBRU])\(([^)]*)\)")


def plain(text: str | list[str]) -> str:
    """Return a description in Markdown: Ansible's markup becomes code, paragraphs become one line."""
    joined = " ".join(text) if isinstance(text, list) else text
    return MARKUP.sub(lambda found: f"`{found.group(2).split('#')[0]}`", joined).replace("|", "\\|").strip()


def default(option: dict[str, Any]) -> str:
    """Return an option's default for a table."""
    if option.get("required"):
        return "required"
    if "default" not in option:
        return ""
    value = option["default"]
    shown = str(value).lower() if isinstance(value, bool) else str(value)
    if not shown:
        return "empty"
    return f"`{shown}`" if len(shown) <= 40 and "|" not in shown else "see `defaults/main.yml`"


def readme(name: str) -> str:
    """Return the README of a role as text."""
    specs = yaml.safe_load((ROOT / "roles" / name / "meta" / "argument_specs.yml").read_text())["argument_specs"]
    page = f"how-to/{PAGES[name]}" if name in PAGES else "background/lab"
    example = specs["main"].get("examples", "")
    lines = [
        "<!-- Written by docs/site/role_readmes.py; change meta/argument_specs.yml instead. -->",
        f"# {name}",
        "",
        f"{specs['main']['short_description']}. How to use it: [docs/{page}.md](../../docs/{page}.md).",
        "",
        *(["```yaml", example.strip(), "```", ""] if example else []),
    ]
    for entry, spec in specs.items():
        if entry != "main":
            lines += [f"## tasks_from: {entry}", "", f"{spec['short_description']}.", ""]
        if spec.get("description"):
            described = spec["description"] if isinstance(spec["description"], list) else [spec["description"]]
            lines += [f"{plain(item)}\n" for item in described]
        options = spec.get("options") or {}
        if entry != "main":
            shared = specs["main"].get("options") or {}
            options = {key: option for key, option in options.items() if key not in shared}
        if options:
            lines += ["| variable | type | default | description |", "| --- | --- | --- | --- |"]
            for key, option in options.items():
                kind = option.get("type", "str") + (f" of {option['elements']}" if option.get("elements") else "")
                lines.append(f"| `{key}` | {kind} | {default(option)} | {plain(option['description'])} |")
            lines.append("")
    return "\n".join(lines).rstrip() + "\n"


def main() -> int:
    """Write all, or with --check say which are not current; the exit status is 1 then."""
    stale = []
    for spec in sorted(ROOT.glob("roles/*/meta/argument_specs.yml")):
        role = spec.parents[1]
        target, text = role / "README.md", readme(role.name)
        if not target.exists() or target.read_text() != text:
            stale.append(target.relative_to(ROOT))
            if "--check" not in sys.argv[1:]:
                target.write_text(text)
    if stale and "--check" in sys.argv[1:]:
        print(f"not current: {', '.join(map(str, stale))}; run docs/site/role_readmes.py", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
