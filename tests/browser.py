"""A headless Chromium, told what to do over a pipe (its --remote-debugging-pipe), for the tests of pages."""

import base64
import json
import os
import shutil
import subprocess
import threading
from pathlib import Path

BROWSERS = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")


def find_browser():
    return next((path for path in map(shutil.which, BROWSERS) if path), None)


class Page:
    """One tab. `events` is everything that the browser reported of it."""

    def __init__(self, profile: Path):
        ours, theirs = os.pipe(), os.pipe()  # of each, what is read and what is written

        def connect():  # the browser reads from 3 and writes to 4
            read, write = os.dup(ours[0]), os.dup(theirs[1])
            os.dup2(read, 3)
            os.dup2(write, 4)

        command = [find_browser(), "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
                   "--no-first-run", "--disable-background-networking", f"--user-data-dir={profile}",
                   "--remote-debugging-pipe"]
        self.process = subprocess.Popen(command, preexec_fn=connect, close_fds=False, stdout=subprocess.DEVNULL,
                                        stderr=subprocess.DEVNULL)
        os.close(ours[0])
        os.close(theirs[1])
        self.writer, self.reader = os.fdopen(ours[1], "wb", 0), os.fdopen(theirs[0], "rb")
        # A browser that hangs must not hang the tests: its end closes the pipe.
        self.watchdog = threading.Timer(300, self.process.kill)
        self.watchdog.start()
        self.number, self.session, self.events, self.pending = 0, None, [], b""
        target = self.tell("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.tell("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.tell(f"{domain}.enable")

    def message(self):
        while b"\0" not in self.pending:
            more = os.read(self.reader.fileno(), 1 << 16)
            assert more, "the browser has ended"
            self.pending += more
        text, self.pending = self.pending.split(b"\0", 1)
        return json.loads(text)

    def tell(self, method, **params):
        self.number += 1
        command = {"id": self.number, "method": method, "params": params}
        if self.session:
            command["sessionId"] = self.session
        self.writer.write(json.dumps(command).encode() + b"\0")
        while True:
            message = self.message()
            if message.get("id") == self.number:
                assert "error" not in message, (method, message)
                return message["result"]
            self.events.append(message)

    def open(self, path: Path):
        seen = len(self.events)
        self.tell("Page.navigate", url=path.resolve().as_uri())
        while not any(event.get("method") == "Page.loadEventFired" for event in self.events[seen:]):
            self.events.append(self.message())

    def js(self, expression):
        result = self.tell("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in result, result
        return result["result"].get("value")

    def look(self, width=1280, height=900, dark=False):
        self.tell("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1,
                  mobile=width < 600)
        self.tell("Emulation.setEmulatedMedia", features=[
            {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}])
        self.js("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")

    def screenshot(self, path: Path, whole=True):
        data = self.tell("Page.captureScreenshot", captureBeyondViewport=whole)["data"]
        path.write_bytes(base64.b64decode(data))

    def said(self):
        """Console messages, exceptions and complaints of the browser."""
        return [event["params"] for event in self.events
                if event.get("method") in ("Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Log.entryAdded")]

    def fetched(self):
        return [event["params"]["request"]["url"] for event in self.events
                if event.get("method") == "Network.requestWillBeSent"]

    def close(self):
        self.watchdog.cancel()
        self.process.kill()
        self.process.wait()
        self.writer.close()
        self.reader.close()
