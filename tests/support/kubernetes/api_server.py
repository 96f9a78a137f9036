# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A simulated API server of Kubernetes: no package of PyPI or Debian has a real one.

It serves the requests of kubernetes.core's modules: discovery, objects by name, lists by label, creation, merge
patches, deletion and dry runs, for the kinds that it is given, and those of kubectl's cordon, patch and drain: pods of
a node, who has set a field of a node's spec, evictions. It stores what it gets and checks nothing, but that a
PodDisruptionBudget of a pod's labels allows its eviction (``status.disruptionsAllowed``, which nothing computes here).
"""

from __future__ import annotations

import copy
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlparse

import yaml

# Kinds without a namespace.
OF_THE_CLUSTER = (
    *("Node", "ClusterRoleBinding", "DeviceClass", "Topology", "ResourceFlavor", "ClusterPolicy", "MultiNicNetwork"),
)


class ApiServer:
    """The stored objects by path, the kinds that are served, and the requests that changed something."""

    def __init__(self, kinds: set[tuple[str, str]]) -> None:
        self.kinds = kinds  # (apiVersion, kind)
        self.objects: dict[str, dict[str, Any]] = {}
        self.writes: list[str] = []
        self.refused: set[str] = set()  # names of collections that the client may not list

    def add(self, path: str, item: dict[str, Any]) -> None:
        """Store an object as another client would."""
        self.objects[path] = copy.deepcopy(item)

    def by_kind(self, kind: str) -> dict[str, dict[str, Any]]:
        """Return the objects of a kind by name."""
        return {item["metadata"]["name"]: item for item in self.objects.values() if item["kind"] == kind}

    def get(self, path: str, query: dict[str, list[str]]) -> tuple[int, dict[str, Any]]:
        """Answer discovery, an object or a list."""
        parts = path.strip("/").split("/")
        versions = sorted({version for version, _kind in self.kinds})
        if path == "/version":
            return 200, {"major": "1", "minor": "34", "gitVersion": "v1.34.0"}
        if path == "/api":
            return 200, {"kind": "APIVersions", "versions": ["v1"]}
        if path == "/apis":
            groups: dict[str, list[dict[str, str]]] = {}
            for version in versions:
                if "/" in version:
                    group, _slash, number = version.partition("/")
                    groups.setdefault(group, []).append({"groupVersion": version, "version": number})
            named = [{"name": name, "versions": of, "preferredVersion": of[0]} for name, of in groups.items()]
            return 200, {"kind": "APIGroupList", "groups": named}
        version = "/".join(parts[1:3]) if parts[0] == "apis" else parts[1]
        if len(parts) == (3 if parts[0] == "apis" else 2):
            return 200, {"kind": "APIResourceList", "groupVersion": version, "resources": self._resources(version)}
        if path in self.objects:
            return 200, self.objects[path]
        if parts[-1] in self.refused:
            return 403, {
                "kind": "Status",
                "status": "Failure",
                "reason": "Forbidden",
                "code": 403,
                "message": "forbidden",
            }
        listed = [item for where, item in self.objects.items() if self._is_of(path, where)]
        kinds = {plural(kind): kind for served, kind in self.kinds if served == version}
        if parts[-1] not in kinds:
            return 404, {"kind": "Status", "status": "Failure", "reason": "NotFound", "code": 404}
        label, _equal, value = query.get("labelSelector", [""])[0].partition("=")
        chosen = [item for item in listed if not label or item["metadata"].get("labels", {}).get(label) == value]
        field, _equal, value = query.get("fieldSelector", [""])[0].partition("=")
        if field == "spec.nodeName":
            chosen = [item for item in chosen if item["spec"].get("nodeName") == value]
        return 200, {"kind": f"{kinds[parts[-1]]}List", "apiVersion": version, "metadata": {}, "items": chosen}

    @staticmethod
    def _is_of(collection: str, path: str) -> bool:
        """Return True for an object of a collection, which may be that of all namespaces."""
        base, kind = collection.rsplit("/", 1)
        folder = path.rsplit("/", 1)[0]
        return folder == collection or (folder.startswith(f"{base}/namespaces/") and folder.endswith(f"/{kind}"))

    def _resources(self, version: str) -> list[dict[str, Any]]:
        evictions = {
            "name": "pods/eviction",
            "namespaced": True,
            "group": "policy",
            "version": "v1",
            "verbs": ["create"],
        }
        served_pods = version == "v1" and ("v1", "Pod") in self.kinds
        return [{**evictions, "singularName": "", "kind": "Eviction"}] * served_pods + [
            {
                "name": plural(kind),
                "singularName": kind.lower(),
                "namespaced": kind not in OF_THE_CLUSTER,
                "kind": kind,
                "verbs": ["create", "delete", "get", "list", "patch"],
            }
            for served, kind in sorted(self.kinds)
            if served == version
        ]

    def evict(self, path: str) -> tuple[int, dict[str, Any]]:
        """End a pod, unless a disruption budget of its labels and namespace allows no disruption."""
        pod = self.objects.get(path)
        if pod is None:
            return 404, {"kind": "Status", "status": "Failure", "reason": "NotFound", "code": 404}
        folder = path.partition("/namespaces/")[2].partition("/")[0]
        labels = pod["metadata"].get("labels", {}).items()
        for where, budget in self.objects.items():
            is_of = budget["kind"] == "PodDisruptionBudget" and f"/namespaces/{folder}/" in where
            if is_of and budget["spec"]["selector"]["matchLabels"].items() <= labels:
                if budget["status"]["disruptionsAllowed"] < 1:
                    message = "Cannot evict pod as it would violate the pod's disruption budget."
                    refusal = {"kind": "Status", "status": "Failure", "reason": "TooManyRequests", "code": 429}
                    return 429, {**refusal, "message": message}
                budget["status"]["disruptionsAllowed"] -= 1
        self.writes.append(f"EVICT {path}")
        del self.objects[path]
        return 201, {"kind": "Status", "apiVersion": "v1", "status": "Success"}

    def write(
        self, method: str, path: str, body: Any, dry: bool, manager: str = "kubectl"
    ) -> tuple[int, dict[str, Any]]:
        """Create, patch or delete; a dry run changes nothing. ``manager``: who has changed the spec of a node."""
        if method == "POST" and path.endswith("/eviction"):
            return self.evict(path.rpartition("/")[0])
        if method == "POST":
            path = f"{path}/{body['metadata']['name']}"
        elif path not in self.objects:
            return 404, {"kind": "Status", "status": "Failure", "reason": "NotFound", "code": 404}
        item = body if method == "POST" else self.objects[path]
        if method == "PATCH":
            old, item = item, merged(item, body)
            if item["kind"] == "Node" and item.get("spec") != old.get("spec"):
                fields = {"f:spec": {f"f:{name}": {} for name in item.get("spec", {})}}
                item["metadata"] = {**item["metadata"], "managedFields": [{"manager": manager, "fieldsV1": fields}]}
        if not dry:
            self.writes.append(f"{method} {path}")
            if method == "DELETE":
                del self.objects[path]
            else:
                self.objects[path] = copy.deepcopy(item)
        return 201 if method == "POST" else 200, item


def merged(target: Any, patch: Any) -> Any:
    """Return a target with a JSON merge patch (RFC 7386)."""
    if not isinstance(patch, dict):
        return patch
    result = dict(target) if isinstance(target, dict) else {}
    for name, value in patch.items():
        if value is None:
            result.pop(name, None)
        else:
            result[name] = merged(result.get(name), value)
    return result


def plural(kind: str) -> str:
    """Return the name of a kind's collection."""
    name = kind.lower()
    if name.endswith("y"):
        return f"{name[:-1]}ies"
    return f"{name}es" if name.endswith("s") else f"{name}s"


@contextmanager
def serving(server: ApiServer, folder: Path) -> Iterator[Path]:
    """Serve on a port of the loopback interface, and yield the path of a kubeconfig."""

    class Handler(BaseHTTPRequestHandler):
        def _answer(self) -> None:
            url = urlparse(self.path)
            query = parse_qs(url.query)
            length = int(self.headers.get("Content-Length") or 0)
            body = json.loads(self.rfile.read(length) or "null")
            if self.command == "GET":
                status, data = server.get(url.path, query)
            else:
                status, data = server.write(
                    self.command, url.path, body, "dryRun" in query, query.get("fieldManager", ["kubectl"])[0]
                )
            text = json.dumps(data).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        do_GET = do_POST = do_PATCH = do_DELETE = _answer  # noqa: N815

        def log_message(self, *_arguments: Any) -> None:
            """Print nothing."""

    http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=http.serve_forever, daemon=True)
    thread.start()
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "a",
        "clusters": [{"name": "a", "cluster": {"server": f"http://127.0.0.1:{http.server_port}"}}],
        "users": [{"name": "a", "user": {}}],
        "contexts": [{"name": "a", "context": {"cluster": "a", "user": "a"}}],
    }
    path = folder / "kubeconfig"
    path.write_text(yaml.safe_dump(config), encoding="utf-8")
    try:
        yield path
    finally:
        http.shutdown()
        http.server_close()
        thread.join()
