# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Schemas of Kubernetes' own objects, from kubernetes-validate, and of the operators', from their definitions."""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
import kubernetes_validate
import yaml

ORIGINALS = os.environ.get("SAILLOFT_RECORDINGS")
VERSION = kubernetes_validate.latest_version()


@cache
def definitions() -> dict[tuple[str, str], dict[str, Any]]:
    """Return the closed schema of each custom resource by apiVersion and kind."""
    schemas = {}
    for file in sorted((Path(str(ORIGINALS)) / "kubernetes").glob("*.yaml")):
        definition = yaml.safe_load(file.read_text(encoding="utf-8"))["spec"]
        for version in definition["versions"]:
            schema = closed(version["schema"]["openAPIV3Schema"])
            # Kubernetes itself describes metadata.
            schema["properties"]["metadata"] = {"type": "object"}
            schemas[f"{definition['group']}/{version['name']}", definition["names"]["kind"]] = schema
    return schemas


def closed(schema: dict[str, Any]) -> dict[str, Any]:
    """Return the schema with no other properties than those that it names: Kubernetes would drop them in silence."""
    made = dict(schema)
    if made.pop("x-kubernetes-int-or-string", False):
        made["type"] = ["integer", "string"]
    if "properties" in made:
        made["properties"] = {name: closed(part) for name, part in made["properties"].items()}
        made.setdefault("additionalProperties", bool(made.get("x-kubernetes-preserve-unknown-fields")))
    for name in ("items", "additionalProperties"):
        if isinstance(made.get(name), dict):
            made[name] = closed(made[name])
    return made


def check(item: dict[str, Any]) -> bool:
    """Check an object against its schema; return False where there is none. Raises an error of the validator."""
    group = item["apiVersion"].rpartition("/")[0]
    if "." not in group or group.endswith(".k8s.io"):
        kubernetes_validate.validate(item, VERSION, strict=True)
        return True
    schema = definitions().get((item["apiVersion"], item["kind"])) if ORIGINALS else None
    if schema is not None:
        jsonschema.validate(item, schema)
    return schema is not None
