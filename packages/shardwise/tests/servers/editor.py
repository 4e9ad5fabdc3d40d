"""An editor, as far as a language server sees it: messages over standard input and output."""

from __future__ import annotations

import json
import os
import queue
import subprocess
import sys
import threading

WAIT_S = 120.0


class Editor:
    """The server as a process. ``ask`` sends a request and gives its result; notifications are kept by method."""

    def __init__(self, folder, **options):
        self.folder = folder
        self.process = subprocess.Popen(
            [sys.executable, "-m", "shardwise", "lsp"],
            cwd=folder,
            env=os.environ | {"XDG_CACHE_HOME": str(folder / ".cache")},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        self._number = 0
        self._heard: queue.Queue = queue.Queue()
        self.kept = []
        threading.Thread(target=self._listen, daemon=True).start()
        capabilities = {"workspace": {"inlayHint": {"refreshSupport": True}}}
        self.capabilities = self.ask(
            "initialize",
            processId=None,
            rootUri=folder.as_uri(),
            capabilities=capabilities,
            initializationOptions=options or None,
        )["capabilities"]
        self.tell("initialized")

    def _listen(self):
        out = self.process.stdout
        while True:
            length = 0
            while (line := out.readline().strip()) or not length:
                if line.lower().startswith(b"content-length:"):
                    length = int(line.split(b":")[1])
                elif not line:
                    self._heard.put(None)
                    return
            self._heard.put(json.loads(out.read(length)))

    def _send(self, **message):
        data = json.dumps({"jsonrpc": "2.0", **message}).encode()
        self.process.stdin.write(b"Content-Length: %d\r\n\r\n" % len(data) + data)
        self.process.stdin.flush()

    def tell(self, method, **params):
        self._send(method=method, params=params)

    def _next(self):
        message = self._heard.get(timeout=WAIT_S)
        assert message is not None, "the server has ended"
        if "id" in message and "method" in message:
            self._send(id=message["id"], result=None)  # a request of the server: to draw again what is shown
        return message

    def ask(self, method, **params):
        self._number += 1
        self._send(id=self._number, method=method, params=params)
        while True:
            message = self._next()
            if message.get("id") == self._number and "method" not in message:
                assert "error" not in message, message
                return message["result"]
            self.kept.append(message)

    def until(self, method):
        """The parameters of the next notification ``method``."""
        for at, message in enumerate(self.kept):
            if message.get("method") == method:
                return self.kept.pop(at)["params"]
        while True:
            message = self._next()
            if message.get("method") == method:
                return message["params"]
            self.kept.append(message)

    def diagnostics(self, name):
        """What was published last for a file."""
        uri = (self.folder / name).as_uri()
        found = [
            message["params"]["diagnostics"]
            for message in self.kept
            if message.get("method") == "textDocument/publishDiagnostics" and message["params"]["uri"] == uri
        ]
        return found[-1] if found else None

    def open(self, name):
        text = (self.folder / name).read_text("utf-8")
        document = {"uri": (self.folder / name).as_uri(), "languageId": "python", "version": 1, "text": text}
        self.tell("textDocument/didOpen", textDocument=document)

    def save(self, name, text):
        (self.folder / name).write_text(text, "utf-8")
        document = {"uri": (self.folder / name).as_uri()}
        self.tell("textDocument/didChange", textDocument={**document, "version": 2}, contentChanges=[{"text": text}])
        self.tell("textDocument/didSave", textDocument=document)

    def ask_at(self, method, name, line, character, **more):
        document = {"uri": (self.folder / name).as_uri()}
        return self.ask(
            f"textDocument/{method}", textDocument=document, position={"line": line, "character": character}, **more
        )

    def end(self):
        self.ask("shutdown")
        self.tell("exit")
        return self.process.wait(timeout=WAIT_S)
