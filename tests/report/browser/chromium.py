"""Headless Chromium by its DevTools protocol over a pipe: standard library only.

A Page fails on what a report must never do: ask the network for anything, log an error, throw, break its policy.
"""

import base64
import json
import os
import select
import shutil
import subprocess
import tempfile
import time
import zlib

# Windows' numbers of keys, by which the browser knows them.
KEYS = {"Tab": 9, "Enter": 13, " ": 32, "End": 35, "Home": 36, "ArrowLeft": 37, "ArrowUp": 38, "ArrowRight": 39, "ArrowDown": 40}
NAMES = ["chromium", "chromium-browser", "google-chrome", "google-chrome-stable"]


def find():
    return os.environ.get("CHROMIUM") or next((path for name in NAMES if (path := shutil.which(name))), None)


class Chromium:
    """A browser of its own, with an empty profile; gone at the end of the `with` block."""

    def __init__(self, program, width=1200, height=900):
        self.profile = tempfile.mkdtemp(prefix="attn-chromium-")
        to_browser, self.write_end = os.pipe()
        self.read_end, from_browser = os.pipe()
        ends = [os.dup(to_browser), os.dup(from_browser)]  # above 3 and 4, so that neither is overwritten by the other
        os.set_inheritable(ends[0], True), os.set_inheritable(ends[1], True)
        # Timers of a page behind another one would wait for whole seconds.
        # The protocol is spoken on descriptors 3 (in) and 4 (out). bash: dash knows no descriptor above 9.
        command = [program, "--headless=new", "--remote-debugging-pipe", f"--user-data-dir={self.profile}", "--no-sandbox",
                   "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run", "--disable-background-networking",
                   "--disable-component-update", "--disable-sync", "--disable-extensions", "--mute-audio",
                   "--force-color-profile=srgb", "--disable-background-timer-throttling",
                   f"--window-size={width},{height}", "about:blank"]
        self.process = subprocess.Popen(
            ["bash", "-c", f'exec "$@" 3<&{ends[0]} 4>&{ends[1]}', "bash", *command], pass_fds=ends,
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        for end in (to_browser, from_browser, *ends):
            os.close(end)
        self.pending, self.events, self.count, self.rest = {}, [], 0, b""

    def __enter__(self):
        return self

    def __exit__(self, *_):
        try:
            self.send("Browser.close", timeout=5)
        except Exception:  # it may be gone already
            pass
        os.close(self.write_end)
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        os.close(self.read_end)
        shutil.rmtree(self.profile, ignore_errors=True)

    def send(self, method, params=None, session=None, timeout=60):
        self.count += 1
        message = {"id": self.count, "method": method, "params": params or {}}
        if session:
            message["sessionId"] = session
        data, wanted = json.dumps(message).encode() + b"\0", self.count
        while data:
            data = data[os.write(self.write_end, data) :]
        deadline = time.monotonic() + timeout
        while wanted not in self.pending:
            self.read(deadline, method)
        answer = self.pending.pop(wanted)
        if "error" in answer:
            raise RuntimeError(f"{method}: {answer['error']['message']}")
        return answer["result"]

    def read(self, deadline, what="an event"):
        ready, _, _ = select.select([self.read_end], [], [], max(0, deadline - time.monotonic()))
        if not ready:
            raise TimeoutError(f"Chromium did not answer: {what}")
        chunk = os.read(self.read_end, 1 << 20)
        if not chunk:
            raise RuntimeError("Chromium ended")
        *whole, self.rest = (self.rest + chunk).split(b"\0")
        for text in whole:
            message = json.loads(text)
            if "id" in message:
                self.pending[message["id"]] = message
            else:
                self.events.append(message)

    def page(self, url, width=1200, height=900, dark=False, scripts=True):
        return Page(self, url, width, height, dark, scripts)


class Page:
    def __init__(self, browser, url, width, height, dark, scripts):
        self.browser, self.url, self.scripts = browser, url, scripts
        target = browser.send("Target.createTarget", {"url": "about:blank"})["targetId"]
        self.target = target
        self.session = browser.send("Target.attachToTarget", {"targetId": target, "flatten": True})["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.send(f"{domain}.enable")
        self.send("Emulation.setDeviceMetricsOverride", {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False})
        self.send("Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]})
        if not scripts:
            self.send("Emulation.setScriptExecutionDisabled", {"value": True})
        self.send("Page.navigate", {"url": url})
        self.wait_event("Page.loadEventFired")

    def send(self, method, params=None, timeout=60):
        return self.browser.send(method, params, self.session, timeout)

    def wait_event(self, name, timeout=60):
        deadline = time.monotonic() + timeout
        while not any(e["method"] == name and e.get("sessionId") == self.session for e in self.browser.events):
            self.browser.read(deadline, name)

    def run(self, script):
        """The value of a JavaScript expression, promises awaited, once what stands below is drawn, too. Not bound by the
        page's policy."""
        self.evaluate("typeof below === 'object' ? below.drawn : undefined")
        return self.evaluate(script)

    def evaluate(self, script):
        answer = self.send("Runtime.evaluate", {"expression": script, "awaitPromise": True, "returnByValue": True})
        if "exceptionDetails" in answer:
            details = answer["exceptionDetails"]
            raise AssertionError(f"{script}: {details.get('exception', {}).get('description', details['text'])}")
        return answer["result"].get("value")

    def text(self, selector):
        return self.run(f"document.querySelector({json.dumps(selector)}).innerText")

    def attribute(self, selector, name):
        return self.run(f"document.querySelector({json.dumps(selector)}).getAttribute({json.dumps(name)})")

    def box(self, selector):
        """Centre of an element, scrolled into view."""
        found = self.run(f"(() => {{ const e = document.querySelector({json.dumps(selector)}); if (!e) return null; "
                         "e.scrollIntoView({ block: 'center', inline: 'center', behavior: 'instant' }); const b = e.getBoundingClientRect(); "
                         "return [b.left + b.width / 2, b.top + b.height / 2]; })()")
        assert found, f"no element {selector}"
        return found

    def mouse(self, kind, x, y, buttons=0):
        self.send("Input.dispatchMouseEvent", {"type": kind, "x": x, "y": y, "button": "left" if kind != "mouseMoved" or buttons else "none",
                                               "buttons": buttons, "clickCount": 0 if kind == "mouseMoved" else 1})

    def click(self, selector):
        """At the element's centre; where the page moved it away meanwhile, as what is drawn late does, once more."""
        for _ in range(3 if self.scripts else 1):
            # Until it is clicked, the element may be made anew, or what is drawn above may move it away.
            self.run(f"document.addEventListener('click', ({{ target }}) => {{ window.wasHit = Boolean(document.querySelector({json.dumps(selector)})?.contains(target)); }},"
                     " { once: true, capture: true }); window.wasHit = false")
            x, y = self.box(selector)
            self.mouse("mousePressed", x, y, 1)
            self.mouse("mouseReleased", x, y)
            if self.run("window.wasHit !== false"):
                return

    def drag(self, selector, by_x, by_y):
        x, y = self.box(selector)
        self.mouse("mousePressed", x, y, 1)
        for step in range(1, 6):
            self.mouse("mouseMoved", x + by_x * step / 5, y + by_y * step / 5, 1)
        self.mouse("mouseReleased", x + by_x, y + by_y)

    def key(self, key, modifiers=0):
        """A key that is pressed and let go, with what the browser itself does then. modifiers: 1 Alt, 2 Ctrl, 8 Shift."""
        more = {"windowsVirtualKeyCode": KEYS[key]} if key in KEYS else {}
        text = {"text": "\r"} if key == "Enter" else {"text": key} if len(key) == 1 else {}
        self.send("Input.dispatchKeyEvent", {"type": "keyDown", "key": key, "code": key, "modifiers": modifiers, **more, **text})
        self.send("Input.dispatchKeyEvent", {"type": "keyUp", "key": key, "code": key, "modifiers": modifiers, **more})

    def type(self, text):
        self.send("Input.insertText", {"text": text})

    def choose(self, selector, *files):
        """Files from this computer, by the page's own field."""
        root = self.send("DOM.getDocument")["root"]["nodeId"]
        node = self.send("DOM.querySelector", {"nodeId": root, "selector": selector})["nodeId"]
        self.send("DOM.setFileInputFiles", {"files": [str(file) for file in files], "nodeId": node})

    def set(self, selector, value):
        """Sets a field as a user would: the value, then its events."""
        self.run(f"(() => {{ const e = document.querySelector({json.dumps(selector)}); "
                 f"if (e.type === 'checkbox') e.checked = {json.dumps(value)}; else e.value = {json.dumps(value)}; "
                 "e.dispatchEvent(new Event('input', { bubbles: true })); e.dispatchEvent(new Event('change', { bubbles: true })); })()")

    def picture(self, path, full=False, clip=None):
        params = {"format": "png", "captureBeyondViewport": full or bool(clip)}
        if full:
            size = self.send("Page.getLayoutMetrics")["cssContentSize"]
            clip = (0, 0, size["width"], size["height"])
        if clip:
            params["clip"] = dict(zip(("x", "y", "width", "height"), clip), scale=1)
        with open(path, "wb") as out:
            out.write(base64.b64decode(self.send("Page.captureScreenshot", params)["data"]))

    def pixels(self, clip):
        """[row][column] (red, green, blue) of what is shown of the page at (x, y, width, height)."""
        params = {"format": "png", "clip": dict(zip(("x", "y", "width", "height"), clip), scale=1), "captureBeyondViewport": True}
        return png_rows(base64.b64decode(self.send("Page.captureScreenshot", params)["data"]))

    def complaints(self):
        """Requests other than the page itself (and its own data: and blob: pictures), errors, warnings."""
        self.run("new Promise((done) => setTimeout(done, 50))")
        found = []
        for event in self.browser.events:
            if event.get("sessionId") != self.session:
                continue
            method, params = event["method"], event["params"]
            if method == "Network.requestWillBeSent":
                url = params["request"]["url"]
                if url.split("#")[0] != self.url.split("#")[0] and not url.startswith(("data:", "blob:", "about:")):
                    found.append(f"request: {url[:200]}")
            elif method == "Runtime.exceptionThrown":
                details = params["exceptionDetails"]
                found.append("exception: " + details.get("exception", {}).get("description", details["text"]))
            elif method == "Log.entryAdded" and params["entry"]["level"] in ("error", "warning"):
                found.append("log: " + params["entry"]["text"])
            elif method == "Runtime.consoleAPICalled" and params["type"] in ("error", "warning", "assert"):
                found.append("console: " + " ".join(str(a.get("value", a.get("description"))) for a in params["args"]))
        return found

    def close(self):
        self.browser.send("Target.closeTarget", {"targetId": self.target})


def png_rows(data):
    """Rows of (red, green, blue) of an 8-bit PNG without interlacing (PNG, third edition, section 9)."""
    width, height, channels = int.from_bytes(data[16:20], "big"), int.from_bytes(data[20:24], "big"), {2: 3, 6: 4}[data[25]]
    packed, at = b"", 8
    while at < len(data):
        length, kind = int.from_bytes(data[at : at + 4], "big"), data[at + 4 : at + 8]
        packed += data[at + 8 : at + 8 + length] if kind == b"IDAT" else b""
        at += 12 + length
    raw, above, rows = zlib.decompress(packed), bytearray(width * channels), []
    for start in range(0, height * (width * channels + 1), width * channels + 1):
        line = bytearray(raw[start + 1 : start + 1 + width * channels])
        for i in range(len(line)):
            left, up, corner = (line[i - channels], above[i], above[i - channels]) if i >= channels else (0, above[i], 0)
            near = min((left, up, corner), key=lambda x: abs(left + up - corner - x))
            line[i] = (line[i] + (0, left, up, (left + up) // 2, near)[raw[start]]) & 255
        rows.append([tuple(line[i : i + 3]) for i in range(0, len(line), channels)])
        above = line
    return rows
