"""Driving Chromium over its DevTools protocol: open a page, ask it, type, look, read its log.

Tests are not asynchronous, so the browser has a loop of its own in a thread.
"""

import asyncio
import base64
import contextlib
import os
import re
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Coroutine, Iterator, Mapping
from pathlib import Path
from time import monotonic, sleep
from typing import Any, Final, TypeVar

import aiohttp

from slicewise_testbed.chromium import Chromium, ensure_chromium
from slicewise_testbed.errors import TestbedError

T = TypeVar("T")
_FLAGS: Final = (
    "--headless=shell",
    "--no-sandbox",
    "--no-zygote",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-extensions",
    "--hide-scrollbars",
    "--force-device-scale-factor=1",
    "--no-first-run",
    "--remote-debugging-port=0",
)
_SECONDS: Final = 60.0
_PAUSE: Final = 0.02
_KEYS: Final = {
    "ArrowUp": 38,
    "ArrowDown": 40,
    "ArrowLeft": 37,
    "ArrowRight": 39,
    "PageDown": 34,
    "PageUp": 33,
    "Home": 36,
    "End": 35,
    "Enter": 13,
    "Escape": 27,
    "Tab": 9,
}


class Browser:
    """One Chromium with one connection to it; use it with `with`."""

    def __init__(self, chromium: Chromium | None = None) -> None:
        self._chromium = chromium or ensure_chromium()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="browser", daemon=True)
        self._folder = tempfile.mkdtemp(prefix="slicewise-browser-")
        self._process: subprocess.Popen[str] | None = None
        self._session: aiohttp.ClientSession | None = None
        self._socket: aiohttp.ClientWebSocketResponse | None = None
        self._listening: asyncio.Task[None] | None = None
        self._answers: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._pages: dict[str, Page] = {}
        self._number = 0

    def __enter__(self) -> "Browser":
        """Start the browser and connect to it."""
        self._thread.start()
        try:
            self.run(self._connect(self._launch()))
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        """End the browser."""
        self.close()

    def close(self) -> None:
        """Leave nothing behind."""
        with contextlib.suppress(Exception):
            self.run(self._disconnect())
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            assert self._process.stderr is not None
            self._process.stderr.close()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def open(self, url: str, *, width: int = 1366, height: int = 768, dark: bool = False) -> "Page":
        """A new page of this size at this address; returns once the address was asked for."""
        page = self.run(self._open(width, height))
        page.call("Emulation.setEmulatedMedia", features=_scheme(dark))
        page.go(url)
        return page

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """What the work returns, done on the browser's loop."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(_SECONDS)

    async def send(
        self, method: str, params: Mapping[str, Any], session: str | None = None
    ) -> dict[str, Any]:
        """The result of one command."""
        assert self._socket is not None
        self._number += 1
        number = self._number
        answer: asyncio.Future[dict[str, Any]] = self._loop.create_future()
        self._answers[number] = answer
        message: dict[str, Any] = {"id": number, "method": method, "params": params}
        if session is not None:
            message["sessionId"] = session
        await self._socket.send_json(message)
        try:
            return await answer
        finally:
            self._answers.pop(number, None)

    def _launch(self) -> str:
        """Start the process; the address at which it takes commands."""
        command = [str(self._chromium.path), *_FLAGS, f"--user-data-dir={self._folder}/profile"]
        environment = {**os.environ, **self._chromium.environment}
        self._process = subprocess.Popen(
            [*command, "about:blank"],
            env=environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self._process.stderr is not None
        said = []
        for line in self._process.stderr:
            found = re.search(r"DevTools listening on (ws://\S+)", line)
            if found:
                threading.Thread(target=_drain, args=(self._process,), daemon=True).start()
                return found[1]
            said.append(line)
        raise TestbedError(f"Chromium did not start: {''.join(said)[-2000:]}")

    async def _connect(self, address: str) -> None:
        self._session = aiohttp.ClientSession()
        self._socket = await self._session.ws_connect(address, max_msg_size=0)
        self._listening = asyncio.create_task(self._listen(self._socket))

    async def _listen(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        async for message in socket:
            if message.type is not aiohttp.WSMsgType.TEXT:
                continue
            told = message.json()
            if "id" in told:
                waiting = self._answers.get(told["id"])
                if waiting is not None and not waiting.done():
                    waiting.set_result(told)
            elif told.get("sessionId") in self._pages:
                self._pages[told["sessionId"]].hear(told["method"], told["params"])

    async def _disconnect(self) -> None:
        if self._socket is not None:
            await self._socket.close()
        if self._listening is not None:
            await self._listening
        if self._session is not None:
            await self._session.close()

    async def _open(self, width: int, height: int) -> "Page":
        facts = {"url": "about:blank", "width": width, "height": height}
        target = (await self.send("Target.createTarget", facts))["result"]["targetId"]
        attach = {"targetId": target, "flatten": True}
        answer = await self.send("Target.attachToTarget", attach)
        session = answer["result"]["sessionId"]
        page = self._pages[session] = Page(self, session, target)
        for domain in ("Page", "Runtime", "Network", "Log"):
            await self.send(f"{domain}.enable", {}, session)
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        await self.send("Emulation.setDeviceMetricsOverride", size, session)
        return page


class Page:
    """One page: what it shows, what it asked the network for, what it complained about."""

    def __init__(self, browser: Browser, session: str, target: str) -> None:
        self._browser = browser
        self._session = session
        self._target = target
        self.requests: list[str] = []
        """Every address the page asked for, in order."""
        self.complaints: list[str] = []
        """Exceptions nobody caught, and errors in the console."""

    def hear(self, method: str, params: Mapping[str, Any]) -> None:
        """Note one event of the browser."""
        if method == "Network.requestWillBeSent":
            self.requests.append(params["request"]["url"])
        elif method == "Runtime.exceptionThrown":
            details = params["exceptionDetails"]
            found = details.get("exception", {}).get("description", details["text"])
            self.complaints.append(found)
        elif method == "Log.entryAdded" and params["entry"]["level"] == "error":
            self.complaints.append(f"{params['entry']['text']} {params['entry'].get('url', '')}")

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        """The result of a command to this page."""
        answer = self._browser.run(self._browser.send(method, params, self._session))
        if "error" in answer:
            raise TestbedError(f"{method}: {answer['error']['message']}")
        result: dict[str, Any] = answer["result"]
        return result

    def go(self, url: str) -> None:
        """Ask for an address."""
        self.call("Page.navigate", url=url)

    def ask(self, expression: str) -> Any:
        """The value of an expression, or of the promise it is."""
        found = self.call(
            "Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True
        )
        if "exceptionDetails" in found:
            details = found["exceptionDetails"]
            raise TestbedError(details.get("exception", {}).get("description", details["text"]))
        return found["result"].get("value")

    def wait(self, expression: str, seconds: float = _SECONDS) -> Any:
        """The value of an expression as soon as it is true; while it fails it is not."""
        end = monotonic() + seconds
        while True:
            try:
                value, failure = self.ask(expression), None
            except TestbedError as error:
                # A page that is still being loaded lacks what the expression looks at.
                value, failure = None, error
            if value:
                return value
            if monotonic() > end:
                shown = str(self.ask("document.body?.innerText"))[:2000]
                raise TestbedError(f"never true: {expression}; page: {shown}") from failure
            sleep(_PAUSE)

    def press(self, *keys: str) -> None:
        """Press these keys, one after the other."""
        for key in keys:
            facts: dict[str, Any] = {"key": key, "code": key}
            if key in _KEYS:
                facts["windowsVirtualKeyCode"] = _KEYS[key]
            else:
                facts["text"] = key
            if key == "Enter":
                # A form is sent by the character, not by the key.
                facts["text"] = "\r"
            self.call("Input.dispatchKeyEvent", type="keyDown", **facts)
            self.call("Input.dispatchKeyEvent", type="keyUp", **facts)

    def type(self, text: str) -> None:
        """Put a text where the cursor is."""
        self.call("Input.insertText", text=text)

    def click(self, selector: str) -> None:
        """Press the mouse in the middle of an element."""
        box = self.ask(
            f"(() => {{const r = document.querySelector({selector!r}).getBoundingClientRect();"
            "return [r.x + r.width / 2, r.y + r.height / 2]})()"
        )
        for kind in ("mousePressed", "mouseReleased"):
            place = {"x": box[0], "y": box[1], "button": "left", "clickCount": 1}
            self.call("Input.dispatchMouseEvent", type=kind, **place)

    def shoot(self, path: Path) -> None:
        """A picture of what is in sight."""
        data = self.call("Page.captureScreenshot", format="png")["data"]
        path.write_bytes(base64.b64decode(data))

    def close(self) -> None:
        """Close the page."""
        self._browser.run(self._browser.send("Target.closeTarget", {"targetId": self._target}))


@contextlib.contextmanager
def browsing() -> Iterator[Browser]:
    """A browser for as long as it is used."""
    with Browser() as browser:
        yield browser


def _scheme(dark: bool) -> list[dict[str, str]]:
    return [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]


def _drain(process: subprocess.Popen[str]) -> None:
    """Read what the browser complains of, so that it never waits for a reader."""
    assert process.stderr is not None
    with contextlib.suppress(ValueError):
        for _ in process.stderr:
            pass
