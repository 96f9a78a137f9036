# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A session with vCenter or ESXi: bulk reads with the property collector, tasks, always a logout. Needs pyVmomi.

No other file connects. The password is in no message: neither vSphere's faults nor this file repeat it.
"""

from __future__ import annotations

import http.client
import ssl
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from ansible_collections.sailloft.fleet.plugins.module_utils.vm.common.errors import DomainError

try:
    from pyVim.connect import Disconnect, SmartConnect
    from pyVmomi import vim, vmodl
except ImportError:
    SmartConnect = None  # type: ignore[assignment]

# Pauses before the attempts to read again over a lost connection, 30 s in total. A vCenter that restarts its service
# takes longer: the task then fails.
RETRY_S = (1, 2, 4, 8, 15)
# Tasks are read again after these pauses, the last one repeated: one request for all of them.
POLL_S = (0.1, 0.2, 0.5, 1.0, 2.0)
# After this time without progress of a task, a line says that it still runs.
TELL_S = 10
# The most objects of one answer: vCenter pages larger answers (RetrieveOptions.maxObjects).
PAGE_OBJECTS = 200
# The exceptions that pyVmomi raises for a lost connection.
LOST = (http.client.HTTPException, ConnectionError, TimeoutError, ssl.SSLError, OSError)


@dataclass
class Login:
    """The address and account of a vCenter. ``ca_path``: certificates trusted instead of the system's."""

    hostname: str
    username: str
    password: str = field(repr=False)
    port: int = 443
    validate_certs: bool = True
    ca_path: str | None = None
    timeout_s: int = 60

    @classmethod
    def of(cls, params: dict[str, Any]) -> Login:
        """Return the login of a module's options (options.LOGIN)."""
        return cls(
            params["hostname"] or "",
            params["username"] or "",
            params["password"] or "",
            params["port"],
            params["validate_certs"],
            params["ca_path"],
        )

    @property
    def name(self) -> str:
        """Return the name of the server for messages."""
        return f"vCenter {self.hostname}" + (f":{self.port}" if self.port != 443 else "")


class Session:
    """One session. Use it as a context manager: it logs out at the end, also after a failure."""

    def __init__(self, login: Login, progress: Callable[[str], None] | None = None) -> None:
        if SmartConnect is None:
            raise DomainError("the Python package pyVmomi is missing where the module runs", "install pyvmomi there")
        self.login = login
        self.tell = progress or (lambda _line: None)
        self._instance: Any = None

    def __enter__(self) -> Session:
        self._connect()
        return self

    def __exit__(self, *_exception: Any) -> None:
        if self._instance is not None:
            try:
                Disconnect(self._instance)
            except (vmodl.MethodFault, *LOST):
                # The session has ended already, or ends by itself when it is idle.
                pass
            self._instance = None

    def _connect(self) -> None:
        login = self.login
        if not (login.hostname and login.username and login.password):
            raise DomainError(
                "hostname, username or password of vCenter is missing",
                "set them from a vault, or VMWARE_HOST, VMWARE_USER and VMWARE_PASSWORD in the environment",
            )
        try:
            context = ssl.create_default_context(cafile=login.ca_path)
        except (OSError, ssl.SSLError) as error:
            raise DomainError(f"ca_path {login.ca_path} cannot be read ({error})", "specify a PEM file") from error
        if not login.validate_certs:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        try:
            self._instance = SmartConnect(
                host=login.hostname,
                port=login.port,
                user=login.username,
                pwd=login.password,
                sslContext=context,
                httpConnectionTimeout=login.timeout_s,
            )
        except vim.fault.InvalidLogin as error:
            raise DomainError(
                f"{login.name} refuses user {login.username} or the password", "check both; nothing was changed"
            ) from error
        except vmodl.MethodFault as error:
            raise DomainError(f"{login.name} refuses the login: {words(error)}") from error
        except ssl.SSLCertVerificationError as error:
            raise DomainError(
                f"the certificate of {login.name} is not trusted ({error.verify_message})",
                "set ca_path to the certificate of its authority (vCenter offers it at /certs/download.zip)",
            ) from error
        except LOST as error:
            raise DomainError(f"{login.name} cannot be reached ({error})", "check name, port and network") from error

    @property
    def content(self) -> Any:
        """Return the ServiceContent."""
        return self._instance.content

    @property
    def api_version(self) -> tuple[int, ...]:
        """Return the version that this connection speaks: the lower one of vCenter's and pyVmomi's."""
        # The text is like urn:vim25/8.0.3.0; pyVmomi keeps the quotes of the SOAP header.
        text = str(self._instance._stub.versionId).strip('"').rpartition("/")[2]
        return tuple(int(part) for part in text.split(".") if part.isdecimal())

    def _again(self, read: Callable[[], Any]) -> Any:
        """Return the result of ``read``; retry it after a lost connection or an expired session."""
        last_error: Exception = ConnectionError()
        for pause in (0, *RETRY_S):
            time.sleep(pause)
            try:
                if isinstance(last_error, vim.fault.NotAuthenticated):
                    self.tell(f"the session with {self.login.name} has expired; logging in again")
                    self._connect()
                return read()
            except (vim.fault.NotAuthenticated, *LOST) as error:
                last_error = error
                self.tell(f"{self.login.name}: {words(error)}; reading again")
        raise DomainError(
            f"{self.login.name} is no longer reachable ({words(last_error)})", "run the play again"
        ) from last_error

    def read(self, kinds: dict[str, list[str]], root: Any = None) -> dict[str, list[tuple[Any, dict[str, Any]]]]:
        """Return every object of the ``kinds`` (type name -> properties) below ``root`` with these properties.

        This takes one request, and one more for each further page. ``root`` None is the whole inventory. A property
        that an object does not have is left out. Objects are in the order of their reference.
        """

        def request() -> list[Any]:
            content = self.content
            view = content.viewManager.CreateContainerView(
                root or content.rootFolder, [_kind(name) for name in kinds], True
            )
            collector = vmodl.query.PropertyCollector
            spec = collector.FilterSpec(
                objectSet=[
                    collector.ObjectSpec(
                        obj=view,
                        skip=True,
                        selectSet=[
                            collector.TraversalSpec(name="view", path="view", skip=False, type=vim.view.ContainerView)
                        ],
                    )
                ],
                propSet=[collector.PropertySpec(type=_kind(name), pathSet=paths) for name, paths in kinds.items()],
            )
            return self._pages([spec])

        rows: dict[str, list[tuple[Any, dict[str, Any]]]] = {name: [] for name in kinds}
        for item_with_properties in self._again(request):
            name = item_with_properties.obj.__class__.__name__.rpartition(".")[2]
            # A kind can be a base class of the found object, as Network is of DistributedVirtualPortgroup.
            name = (
                name
                if name in rows
                else next(item for item in kinds if isinstance(item_with_properties.obj, _kind(item)))
            )
            rows[name].append(
                (item_with_properties.obj, {item.name: item.val for item in item_with_properties.propSet})
            )
        for items in rows.values():
            items.sort(key=lambda row: (len(row[0]._moId), row[0]._moId))
        return rows

    def _pages(self, specs: list[Any]) -> list[Any]:
        collector = self.content.propertyCollector
        page = collector.RetrievePropertiesEx(
            specs, vmodl.query.PropertyCollector.RetrieveOptions(maxObjects=PAGE_OBJECTS)
        )
        objects: list[Any] = []
        while page is not None:
            objects += page.objects
            page = collector.ContinueRetrievePropertiesEx(page.token) if page.token else None
        return objects

    def call(self, label: str, request: Callable[[], Any], domain: str = "") -> Any:
        """Send a request that changes something, and return its result. vCenter never executes it twice.

        ``request`` gets its objects from ``bound``. Raises DomainError with vCenter's message. After a lost connection
        it is unknown whether vCenter executed the request, and the error says so.
        """
        try:
            try:
                return request()
            except vim.fault.NotAuthenticated:
                # vCenter refused the request because the session had expired, so it was not executed. If vCenter also
                # refuses the new session, that is an error like any other.
                self._connect()
                return request()
        except vmodl.MethodFault as error:
            raise DomainError(f"{label}: {words(error)}", hint(error), domain=domain) from error
        except LOST as error:
            raise DomainError(
                f"{label}: the connection to {self.login.name} was lost ({error}); it is not known whether "
                "vCenter did it",
                "run the play again: it compares the current state",
                domain=domain,
            ) from error

    def wait(self, tasks: dict[str, tuple[str, Any]], limit_s: int) -> dict[str, Any]:
        """Wait until all ``tasks`` (key -> what it does, task) have ended; return key -> result.

        Each poll reads all of them with one request. A lost connection or an expired session does not end the tasks,
        which run in vCenter. Raises DomainError with the faults of all failed tasks, or with the names of those that
        run longer than ``limit_s``.
        """
        ended: dict[str, Any] = {}
        faults: list[DomainError] = []
        shown: dict[str, Any] = {}
        start, polls = time.monotonic(), 0
        reported_at_s = start
        while len(ended) < len(tasks):
            open_tasks = {key: row for key, row in tasks.items() if key not in ended}
            infos = self._infos([task for _what, task in open_tasks.values()])
            for key, (label, task) in open_tasks.items():
                info = infos.get(task._moId)
                if info is None:
                    continue
                if info.state == vim.TaskInfo.State.success:
                    ended[key] = info.result
                elif info.state == vim.TaskInfo.State.error:
                    ended[key] = None
                    faults.append(DomainError(f"{label}: {words(info.error)}", hint(info.error), domain=key))
                elif info.progress is not None and info.progress != shown.get(key):
                    shown[key] = info.progress
                    self.tell(f"{label}: {info.progress} %")
                    reported_at_s = time.monotonic()
            if len(ended) < len(tasks):
                if time.monotonic() - reported_at_s > TELL_S:
                    reported_at_s = time.monotonic()
                    unfinished = [label for key, (label, _task) in tasks.items() if key not in ended]
                    self.tell(
                        f"{unfinished[0]}{f' and {len(unfinished) - 1} more' if unfinished[1:] else ''}: vCenter is "
                        "working on it"
                    )
                if time.monotonic() - start > limit_s:
                    names = ", ".join(label for key, (label, _task) in tasks.items() if key not in ended)
                    raise DomainError(
                        f"{names}: vCenter is still working on it after {limit_s} s",
                        "check its tasks, then run the play again",
                    )
                time.sleep(POLL_S[min(polls, len(POLL_S) - 1)])
                polls += 1
        if len(faults) == 1:
            raise faults[0]
        if faults:
            raise DomainError("\n".join(str(fault) for fault in faults))
        return ended

    def _infos(self, tasks: list[Any]) -> dict[str, Any]:
        return self._again(lambda: self._task_infos(tasks))

    def _task_infos(self, tasks: list[Any]) -> dict[str, Any]:
        collector = vmodl.query.PropertyCollector
        # After a new login the old ids still identify the tasks, on the new connection.
        current = [vim.Task(task._moId, self._instance._stub) for task in tasks]
        spec = collector.FilterSpec(
            objectSet=[collector.ObjectSpec(obj=task) for task in current],
            propSet=[collector.PropertySpec(type=vim.Task, pathSet=["info"])],
        )
        return {task_row.obj._moId: task_row.propSet[0].val for task_row in self._pages([spec])}

    def bound(self, reference: Any) -> Any:
        """Return a managed object on the current connection, which is a new one after another login."""
        return type(reference)(reference._moId, self._instance._stub)


def _kind(name: str) -> Any:
    return vim.dvs.DistributedVirtualPortgroup if name == "DistributedVirtualPortgroup" else getattr(vim, name)


def words(error: Any) -> str:
    """Return a fault in vCenter's words: its message, or else its name."""
    message = getattr(error, "localizedMessage", None) or getattr(error, "msg", None)
    details = [item.message for item in getattr(error, "faultMessage", None) or [] if item.message]
    name = error.__class__.__name__.rpartition(".")[2]
    text = "; ".join(
        [message, *details] if message and name not in message else [*([message] if message else []), *details]
    )
    return f"{text} ({name})" if text and name not in text else text or str(error) or name


# The remedies for faults, by the last part of their name.
HINTS = {
    "NoPermission": "the account lacks a privilege; docs/how-to/vsphere.md lists the privileges that it needs",
    "InsufficientResourcesFault": (
        "the reservation is above the free resources of the host; give it less memory or fewer vCPUs"
    ),
    "InsufficientMemoryResourcesFault": "the reservation is above the memory that the host has free",
    "InsufficientCpuResourcesFault": "the reservation is above the CPU time that the host has free",
    "InvalidPowerState": "its power state has been changed meanwhile; run the play again",
    "DuplicateName": "another virtual machine has this name, or another play is creating it; run the play again",
    "ConcurrentAccess": "it has been changed meanwhile; run the play again",
    "TaskInProgress": "another task is working on it; run the play again",
    "ResourceInUse": "a running virtual machine has the device; stop it first",
    "HostConfigFault": (
        "the host does not support that for the device; vsphere_host_topology_info shows what it supports"
    ),
    "GenericVmConfigFault": "vCenter cannot start it with these settings; check the devices and the host's passthrough",
    "NotAuthenticated": "the session has expired; run the play again",
}


def hint(error: Any) -> str:
    """Return the remedy for a fault, or ""."""
    return HINTS.get(error.__class__.__name__.rpartition(".")[2], "")
