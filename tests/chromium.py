"""Chromium, driven as a person would: mouse, keys and fingers, through the pipe of its DevTools protocol."""

import base64
import json
import os
import subprocess
import time
from pathlib import Path

from tests.browser import QUIET, find_browser

KEYS = {" ": "Space", "Delete": "Delete", "Tab": "Tab", "ArrowRight": "ArrowRight"}


class Chromium:
    """A browser with one tab; `errors` collects what a page complains of."""

    def __init__(self, profile, *flags):
        browser = find_browser()
        read, self._write = os.pipe()
        self._read, write = os.pipe()
        command = [browser, *QUIET.split(), *flags, "--remote-debugging-pipe", f"--user-data-dir={profile}"]
        redirected = ["bash", "-c", f'exec "$@" 3<&{read} 4>&{write}', "bash", *command, "about:blank"]
        self._process = subprocess.Popen(redirected, pass_fds=(read, write), stderr=subprocess.DEVNULL)
        os.close(read)
        os.close(write)
        self._buffer, self._number, self._session, self.errors = b"", 0, None, []
        while not (pages := [t for t in self.call("Target.getTargets")["targetInfos"] if t["type"] == "page"]):
            time.sleep(0.02)
        attached = self.call("Target.attachToTarget", targetId=pages[0]["targetId"], flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Runtime", "Page", "Log"):
            self.call(f"{domain}.enable")

    def close(self):
        """End the browser, and wait until it has."""
        os.close(self._write)
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        os.close(self._read)

    def call(self, method, **parameters):
        """What a method of the protocol returns."""
        return self._answer(self._send(method, parameters))

    def processor_time(self):
        """Seconds that all processes of the browser have computed for."""
        found = self._answer(self._send("SystemInfo.getProcessInfo", {}, in_tab=False))
        return sum(process["cpuTime"] for process in found["processInfo"])

    def _send(self, method, parameters, in_tab=True):
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if self._session and in_tab:
            message["sessionId"] = self._session
        data = json.dumps(message).encode() + b"\0"
        while data:
            data = data[os.write(self._write, data) :]
        return self._number

    def _answer(self, number):
        while (answer := self._receive()).get("id") != number:
            if "method" in answer:
                self._note(answer)
        assert "error" not in answer, answer["error"]
        return answer["result"]

    def _receive(self):
        while b"\0" not in self._buffer:
            data = os.read(self._read, 1 << 20)
            assert data, "the browser has ended"
            self._buffer += data
        text, self._buffer = self._buffer.split(b"\0", 1)
        return json.loads(text)

    def _note(self, event):
        parameters = event.get("params", {})
        if event["method"] == "Runtime.exceptionThrown":
            details = parameters["exceptionDetails"]
            self.errors.append(details.get("exception", {}).get("description") or details["text"])
        elif event["method"] == "Runtime.consoleAPICalled" and parameters["type"] in ("error", "warning", "assert"):
            self.errors.append(str(parameters["args"]))
        elif event["method"] == "Log.entryAdded" and parameters["entry"]["level"] in ("error", "warning"):
            self.errors.append(parameters["entry"]["text"])

    def open(self, path, width=1400, height=900, touch=False, dark=False):
        """Open a file, or what an address names, in a window of so many pixels."""
        metrics = {"width": width, "height": height, "deviceScaleFactor": 2 if touch else 1, "mobile": touch}
        self.call("Emulation.setDeviceMetricsOverride", **metrics)
        self.call("Emulation.setTouchEmulationEnabled", enabled=touch)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])
        self.call("Page.navigate", url=path if "://" in str(path) else Path(path).resolve().as_uri())
        self.until("document.readyState === 'complete'")

    def run(self, code):
        """What an expression of JavaScript gives, once a promise of it is kept."""
        found = self.call("Runtime.evaluate", expression=code, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    def until(self, code, seconds=20):
        """Wait until an expression is true."""
        end = time.monotonic() + seconds
        while not self.run(f"Boolean({code})"):
            assert time.monotonic() < end, f"not within {seconds} s: {code}"
            time.sleep(0.02)

    def place(self, selector):
        """The middle of an element, scrolled into view if it is not; once it has stood still for three frames."""
        code = f"""(async () => {{
          const node = document.querySelector({json.dumps(selector)});
          node.scrollIntoView({{ block: "nearest" }});
          const middle = ({{ x, y, width, height }}) => [x + width / 2, y + height / 2];
          let place = middle(node.getBoundingClientRect());
          for (let still = 0, frames = 0; still < 3 && frames < 100; frames++) {{
            await new Promise(requestAnimationFrame);
            const [x, y] = middle(node.getBoundingClientRect());
            still = x === place[0] && y === place[1] ? still + 1 : 0;
            place = [x, y];
          }}
          return place;
        }})()"""
        return self.run(code)

    def mouse(self, kind, x, y, button="left"):
        """Move, press or release the mouse."""
        held = {"button": "none" if kind == "Moved" and button is None else "left", "clickCount": 1}
        self.call("Input.dispatchMouseEvent", type=f"mouse{kind}", x=x, y=y, **held)

    def click(self, where):
        """Click in the middle of an element, or at a place."""
        x, y = self.place(where) if isinstance(where, str) else where
        self.mouse("Pressed", x, y)
        self.mouse("Released", x, y)

    def drag(self, start, end):
        """Press at one place, move to another and let go."""
        self.mouse("Pressed", *start)
        for share in (0.25, 0.5, 0.75, 1.0):
            self.mouse("Moved", *(a + share * (b - a) for a, b in zip(start, end, strict=True)))
        self.mouse("Released", *end)

    def touch(self, *points):
        """Put a finger down at the first point, lead it through the others and lift it.

        Nothing waits in between: a finger that stays for half a second is no tap.
        """
        time.sleep(0.2)  # at once after another touch it would be none either
        touches = [("touchMove" if at else "touchStart", [{"x": x, "y": y}]) for at, (x, y) in enumerate(points)]
        for kind, fingers in [*touches, ("touchEnd", [])]:
            last = self._send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": fingers})
        self._answer(last)

    def press(self, key):
        """Press a key and let go."""
        names = {"key": key, "code": KEYS.get(key, f"Key{key.upper()}"), **({"text": key} if len(key) == 1 else {})}
        self.call("Input.dispatchKeyEvent", type="keyDown", **names)
        self.call("Input.dispatchKeyEvent", type="keyUp", **{k: v for k, v in names.items() if k != "text"})

    def screenshot(self, path):
        """Write what the window shows as a PNG file."""
        Path(path).write_bytes(base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"]))
