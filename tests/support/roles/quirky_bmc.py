# Copyright: the Sailloft maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A BMC on the loopback with the faults that public reports describe: a real HTTPS server, without a real machine."""

from __future__ import annotations

import json
import ssl
import subprocess
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

ROOT = "/redfish/v1"
SYSTEM = f"{ROOT}/Systems/Self"
SETTINGS = f"{SYSTEM}/SD"


def certificate(folder):
    """Make a self-signed certificate for 127.0.0.1 in the directory; return (certificate, key) as file names."""
    pair = str(folder / "certificate.pem"), str(folder / "key.pem")
    openssl = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=bmc"
    openssl += f" -addext subjectAltName=IP:127.0.0.1 -keyout {pair[1]} -out {pair[0]}"
    subprocess.run(openssl.split(), check=True, capture_output=True)
    return pair


class QuirkyBmc:
    """A BMC with one system.

    ``targets`` are the boot targets that it offers, ``maker`` its Manufacturer. ``faults``: "read_only_mode" refuses a
    boot mode, "settings_only" takes the override in the settings resource alone, "forgets" accepts an override and
    shows none, "mode_needed" resets a mode that is not sent, "hides" shows no override at all, "slow_off" still shows
    On once after ForceOff, "stays_on" always; On has no effect until it is off. "busy" answers a reset that it
    makes with 503, "breaks_off" with nothing at all, "refuses" makes none and answers 400, "hangs" answers no request.
    """

    def __init__(self, folder, faults=(), targets=("None", "Pxe", "Hdd"), maker="", mode="UEFI", resets=None):
        folder.mkdir(exist_ok=True)
        self.ca, key = certificate(folder)
        self.faults = faults
        self.power = "On"
        self.switches_off = False
        self.changes = []
        self.boot = {"BootSourceOverrideEnabled": "Disabled", "BootSourceOverrideTarget": "None"}
        self.boot["BootSourceOverrideMode"] = mode
        self.boot["BootSourceOverrideTarget@Redfish.AllowableValues"] = list(targets)
        self.maker = maker
        self.resets = resets or ["On", "ForceOff", "ForceRestart"]
        self.released = threading.Event()
        owner = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):
                if "hangs" in owner.faults:
                    owner.released.wait(60)
                body = owner.resource(self.path.rstrip("/"))
                self.answer(200 if body else 404, body or {"error": {"message": "no such resource"}})

            def do_PATCH(self):
                self.answer(*owner.patch(self.path, self.body()["Boot"]))

            def do_POST(self):
                owner.changes.append(self.body()["ResetType"])
                if "refuses" in owner.faults:
                    self.answer(400, {"error": {"message": "not now"}})
                    return
                owner.set_power(owner.changes[-1])
                if "breaks_off" in owner.faults:
                    self.close_connection = True
                elif "busy" in owner.faults:
                    self.answer(503, {"error": {"message": "busy"}})
                else:
                    self.answer(200, {})

            def body(self):
                return json.loads(self.rfile.read(int(self.headers["Content-Length"])))

            def answer(self, status, body):
                content = json.dumps(body).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, *arguments):
                """Print no line for each request."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.ca, key)
        self.server.socket = context.wrap_socket(self.server.socket, server_side=True)
        self.address = f"127.0.0.1:{self.server.server_address[1]}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def stop(self):
        self.server.shutdown()
        self.server.server_close()

    def set_power(self, command):
        """Do what a ResetType says."""
        self.switches_off = command == "ForceOff" or (self.switches_off and self.power == "On")
        if not self.switches_off:
            self.power = "On"
        elif "slow_off" not in self.faults and "stays_on" not in self.faults:
            self.power = "Off"

    def resource(self, path):
        """Return the body of a resource, or None."""
        reset = {"target": f"{SYSTEM}/Actions/ComputerSystem.Reset", "ResetType@Redfish.AllowableValues": self.resets}
        allowed = {name: value for name, value in self.boot.items() if "@" in name}
        boot = allowed if "hides" in self.faults else self.boot
        system = {
            "@odata.id": SYSTEM,
            "Id": "Self",
            "Name": "System",
            "Manufacturer": self.maker,
            "Model": "A1",
            "PowerState": self.power,
            "Boot": allowed if "settings_only" in self.faults else boot,
            "Actions": {"#ComputerSystem.Reset": reset},
        }
        if self.switches_off and path == SYSTEM and "stays_on" not in self.faults:
            self.power = "Off"
        settings = None
        if "settings_only" in self.faults:
            system["@Redfish.Settings"] = {"SettingsObject": {"@odata.id": SETTINGS}}
            settings = {"@odata.id": SETTINGS, "Id": "SD", "Name": "Settings", "Boot": self.boot}
        collection = {"Name": "Systems", "Members": [{"@odata.id": SYSTEM}], "Members@odata.count": 1}
        root = {"Id": "RootService", "Name": "Root", "Systems": {"@odata.id": f"{ROOT}/Systems"}}
        return {ROOT: root, f"{ROOT}/Systems": collection, SYSTEM: system, SETTINGS: settings}.get(path)

    def patch(self, path, boot):
        """Change the property Boot; return (status, body)."""
        if "settings_only" in self.faults and path == SYSTEM:
            return 400, {
                "error": {"message": "Support of this Operation for Boot Properties is moved to FutureState URI"}
            }
        if "read_only_mode" in self.faults and "BootSourceOverrideMode" in boot:
            return 400, {"error": {"message": "BootSourceOverrideMode is read-only"}}
        self.changes.append(dict(boot))
        if "mode_needed" in self.faults and "BootSourceOverrideMode" not in boot:
            self.boot["BootSourceOverrideMode"] = "Legacy"
        if "forgets" not in self.faults:
            self.boot.update(boot)
        return 200, {}
