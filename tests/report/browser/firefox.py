"""Headless Firefox by WebDriver BiDi (https://w3c.github.io/webdriver-bidi): standard library only."""

import base64
import json
import os
import re
import shutil
import socket
import struct
import subprocess
import tempfile
import time

import chromium


# The keys as WebDriver writes them.
KEYS = {"Tab": "\ue004", "Enter": "\ue007", "End": "\ue010", "Home": "\ue011", "ArrowLeft": "\ue012", "ArrowUp": "\ue013", "ArrowRight": "\ue014", "ArrowDown": "\ue015"}


def find():
    return os.environ.get("FIREFOX") or shutil.which("firefox-esr") or shutil.which("firefox")


class WebSocket:
    """A client of texts (RFC 6455)."""

    def __init__(self, host, port, path):
        self.socket = socket.create_connection((host, port), 60)
        key = base64.b64encode(os.urandom(16)).decode()
        self.socket.sendall(f"GET {path} HTTP/1.1\r\nHost: {host}:{port}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
                            f"Sec-WebSocket-Key: {key}\r\nSec-WebSocket-Version: 13\r\n\r\n".encode())
        self.rest = b""
        while b"\r\n\r\n" not in self.rest:
            self.rest += self.more()
        head, self.rest = self.rest.split(b"\r\n\r\n", 1)
        assert b" 101 " in head.split(b"\r\n")[0], head

    def more(self):
        data = self.socket.recv(1 << 20)
        if not data:
            raise RuntimeError("Firefox ended")
        return data

    def take(self, count):
        while len(self.rest) < count:
            self.rest += self.more()
        taken, self.rest = self.rest[:count], self.rest[count:]
        return taken

    def send(self, text, opcode=1):
        data, mask = text.encode(), os.urandom(4)
        size = len(data)
        length = struct.pack("!B", 128 | size) if size < 126 else struct.pack("!BH", 254, size) if size < 65536 else struct.pack("!BQ", 255, size)
        self.socket.sendall(bytes([128 | opcode]) + length + mask + bytes(b ^ mask[i % 4] for i, b in enumerate(data)))

    def receive(self, timeout):
        """The next text, of all its frames."""
        self.socket.settimeout(timeout)
        text = b""
        while True:
            first, length = self.take(2)
            length = {126: lambda: struct.unpack("!H", self.take(2))[0], 127: lambda: struct.unpack("!Q", self.take(8))[0]}.get(length, lambda: length)()
            data = self.take(length)
            if first & 15 == 9:
                self.send(data.decode(), 10)
            elif first & 15 in (0, 1):
                text += data
                if first & 128:
                    return text.decode()


class Firefox:
    """A browser of its own, with an empty profile; gone at the end of the `with` block."""

    def __init__(self, program):
        self.profile = tempfile.mkdtemp(prefix="attn-firefox-")
        with open(os.path.join(self.profile, "user.js"), "w", encoding="utf-8") as settings:
            for name, value in (("browser.shell.checkDefaultBrowser", False), ("app.update.enabled", False), ("datareporting.policy.dataSubmissionEnabled", False)):
                settings.write(f'user_pref("{name}", {json.dumps(value)});\n')
        self.process = subprocess.Popen([program, "--headless", "--no-remote", "--profile", self.profile, "--remote-debugging-port", "0"],
                                        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        port = next(found.group(1) for line in self.process.stderr if (found := re.search(r"BiDi listening on ws://127\.0\.0\.1:(\d+)", line)))
        self.socket = WebSocket("127.0.0.1", int(port), "/session")
        self.count, self.events = 0, []
        self.send("session.new", {"capabilities": {}})
        self.send("session.subscribe", {"events": ["log.entryAdded", "network.beforeRequestSent"]})

    def __enter__(self):
        return self

    def __exit__(self, *_):
        try:
            self.send("browser.close", timeout=10)
        except Exception:  # it may be gone already
            pass
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.process.stderr.close()
        shutil.rmtree(self.profile, ignore_errors=True)

    def send(self, method, params=None, timeout=120):
        self.count += 1
        self.socket.send(json.dumps({"id": self.count, "method": method, "params": params or {}}))
        deadline = time.monotonic() + timeout
        while True:
            message = json.loads(self.socket.receive(max(0.01, deadline - time.monotonic())))
            if message.get("id") == self.count:
                break
            self.events.append(message)
        if message["type"] == "error":
            raise RuntimeError(f"{method}: {message['error']}: {message['message']}")
        return message["result"]

    def page(self, url, width=1200, height=900):
        return Page(self, url, width, height)


def value_of(told):
    """A JavaScript value, of which each part is told with its type."""
    value = told.get("value")
    if told["type"] == "array":
        return [value_of(one) for one in value]
    if told["type"] == "object":
        return {name: value_of(one) for name, one in value}
    return float(value) if told["type"] == "number" and isinstance(value, str) else value


class Page(chromium.Page):
    """As Chromium's, as far as these tests need it."""

    def __init__(self, browser, url, width, height):
        self.browser, self.url = browser, url
        self.context = browser.send("browsingContext.create", {"type": "tab"})["context"]
        browser.send("browsingContext.setViewport", {"context": self.context, "viewport": {"width": width, "height": height}})
        browser.send("browsingContext.navigate", {"context": self.context, "url": url, "wait": "complete"})

    def run(self, script):
        self.evaluate("typeof below === 'object' ? below.drawn : undefined")
        return self.evaluate(script)

    def evaluate(self, script):
        found = self.browser.send("script.evaluate", {"expression": script, "awaitPromise": True, "target": {"context": self.context}, "userActivation": True})
        if found["type"] == "exception":
            raise AssertionError(f"{script}: {found['exceptionDetails']['text']}")
        return value_of(found["result"])

    def actions(self, *sources):
        self.browser.send("input.performActions", {"context": self.context, "actions": list(sources)})

    def click(self, selector):
        x, y = self.box(selector)
        self.actions({"type": "pointer", "id": "mouse", "actions": [{"type": "pointerMove", "x": round(x), "y": round(y)}, {"type": "pointerDown", "button": 0}, {"type": "pointerUp", "button": 0}]})

    def type(self, text):
        self.actions({"type": "key", "id": "keys", "actions": [{"type": kind, "value": one} for one in text for kind in ("keyDown", "keyUp")]})

    def key(self, key, modifiers=0):
        assert not modifiers
        self.type(KEYS.get(key, key))

    def choose(self, selector, *files):
        """Files from this computer, by the page's own field."""
        node = self.browser.send("browsingContext.locateNodes", {"context": self.context, "locator": {"type": "css", "value": selector}})["nodes"][0]
        self.browser.send("input.setFiles", {"context": self.context, "element": {"sharedId": node["sharedId"]}, "files": [str(file) for file in files]})

    def complaints(self):
        """Requests other than the page itself, errors and warnings."""
        self.run("new Promise((done) => setTimeout(done, 50))")
        found = []
        for event in self.browser.events:
            method, params = event["method"], event["params"]
            if method == "network.beforeRequestSent" and params.get("context") == self.context:
                url = params["request"]["url"]
                if url.split("#")[0] != self.url.split("#")[0] and not url.startswith(("data:", "blob:", "about:")):
                    found.append(f"request: {url[:200]}")
            if method == "log.entryAdded" and params["source"].get("context") == self.context and params["level"] in ("error", "warn"):
                found.append(f"log: {params['text']}")
        return found

    def close(self):
        self.browser.send("browsingContext.close", {"context": self.context})
