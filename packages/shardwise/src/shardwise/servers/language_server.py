"""The language server: diagnostics, fixes, inlay types and hovers of the last run, which goes on in the background.

The program is run when the editor starts, when one of its files is saved, and on the command ``shardwise.check``. A run
that is outdated is ended; until a run has finished what the last one said stays, also that of an earlier session, and
its types and fixes stay while the program does not come to its first operation. Nothing here waits for a run.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import uuid
from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import unquote, urlparse

from lsprotocol import types
from pygls.lsp.server import LanguageServer

from shardwise.configuration.reading import find_settings
from shardwise.diagnostics.errors import SpmdTypeError
from shardwise.diagnostics.printing.limits import counted
from shardwise.diagnostics.result import RunResult

from .last_run import keep, last_run
from .program_run import Answer, WhatRuns, run_check
from .run_content import RunContent

CHECK = "shardwise.check"
"""The command of a client: check the configured script now, or the file that is its argument."""
FINISHED = "shardwise/finished"
"""The notification that a run has ended: ``verdict``, ``exitCode``, ``findings``."""
SETTLE_S = 0.15
"""An editor that saves all files sends several messages."""
RECORDING = ("--annotate",)


class Server(LanguageServer):
    """One workspace: what is run, the run that goes on, and what the last one said."""

    def __init__(self, version: str) -> None:
        super().__init__("shardwise", version)
        self.runs: WhatRuns | None = None
        self.content: RunContent | None = None
        self._task: asyncio.Task[None] | None = None
        self._content_of: tuple[str, ...] = ()
        self._published: set[Path] = set()
        self._script: tuple[str, ...] = ()
        self._folder = Path.cwd()
        self._said: object = None

    def configure(self, params: types.InitializeParams) -> None:
        """What runs, as the client and the project say."""
        root = params.root_uri or (params.workspace_folders or [None])[0]  # type: ignore[list-item]
        uri = root if isinstance(root, str) else getattr(root, "uri", None)
        self._folder = (None if uri is None else path_of(uri)) or Path.cwd()
        self._said = params.initialization_options
        self.read_settings()

    def read_settings(self) -> None:
        """What the client has said and what the project says now. A mistake is shown, and nothing is run."""
        try:
            self.runs = WhatRuns.of(self._folder, self._said, find_settings(self._folder))
        except (SpmdTypeError, ValueError) as error:
            self.runs = None
            self.say(f"shardwise: {getattr(error, 'message', error)}", types.MessageType.Error)

    def say(self, text: str, kind: types.MessageType = types.MessageType.Warning) -> None:
        """Show a message to the person."""
        self.window_show_message(types.ShowMessageParams(kind, text))

    def start(self, script: tuple[str, ...] = ()) -> None:
        """Run ``script``, else what is configured, else what was run last. A run that goes on is ended."""
        if self.runs is None:
            return
        chosen = script or self.runs.script or self._script
        if not chosen:
            self.say(
                "shardwise: nothing says which script to run: write script = 'train.py' under [tool.shardwise] in "
                "pyproject.toml, or say it in the options of initialisation, or run the command on a file"
            )
            return
        self._script = chosen
        if self._task is not None:
            self._task.cancel()
        self._task = asyncio.ensure_future(self._run(self.runs, chosen))

    async def _run(self, runs: WhatRuns, script: tuple[str, ...]) -> None:
        command = runs.command(script, *RECORDING)
        if self.content is None and (known := last_run(command, runs.folder)) is not None:
            self._publish(known, runs, script)
        await asyncio.sleep(SETTLE_S)
        async with self._progress(" ".join(script)):
            answer = await run_check(command, runs.folder)
        if answer.result is not None:
            keep(answer.text, command, runs.folder)
        self._show(answer, runs, script)

    @contextlib.asynccontextmanager
    async def _progress(self, what: str) -> AsyncIterator[None]:
        """Show, where the client can, that a run goes on."""
        window = self.client_capabilities.window
        if window is None or not window.work_done_progress:
            yield
            return
        token = str(uuid.uuid4())
        await self.work_done_progress.create_async(token)
        self.work_done_progress.begin(token, types.WorkDoneProgressBegin("shardwise", message=f"checks {what}"))
        try:
            yield
        finally:
            self.work_done_progress.end(token, types.WorkDoneProgressEnd())

    def _show(self, answer: Answer, runs: WhatRuns, script: tuple[str, ...]) -> None:
        result = answer.result
        if result is None:
            self.say(f"shardwise: {answer.failure}", types.MessageType.Error)
            self.protocol.notify(FINISHED, {"verdict": "failed", "exitCode": 2, "findings": 0})
            return
        self._publish(result, runs, script)
        said = f"{result.verdict}: {counted(len(result.findings), 'finding')}, {result.checked_ops} operations checked"
        self.window_log_message(types.LogMessageParams(types.MessageType.Info, f"{' '.join(script)}: {said}"))
        finished = {"verdict": result.verdict, "exitCode": int(result.exit_code), "findings": len(result.findings)}
        self.protocol.notify(FINISHED, finished)

    def _publish(self, result: RunResult, runs: WhatRuns, script: tuple[str, ...]) -> None:
        content = RunContent(result, runs.folder)
        found = content.diagnostics((runs.folder / script[0]).resolve())
        if self.content is None or self._content_of != script or result.stopped is None or result.checked_ops:
            self.content, self._content_of = content, script
            outdated = self._published - found.keys()
        else:  # a line is half written: what was found elsewhere, and all types, are still the best that there is
            outdated = set()
        for path in outdated | found.keys():
            uri = path.as_uri()
            self.text_document_publish_diagnostics(types.PublishDiagnosticsParams(uri, found.get(path, [])))
        self._published = self._published - outdated | found.keys()
        capabilities = self.client_capabilities.workspace
        if capabilities is not None and capabilities.inlay_hint is not None:
            self.workspace_inlay_hint_refresh(None)

    def document(self, uri: str) -> tuple[RunContent, Path, str] | None:
        """What the last run said, a file, and its text as the editor has it; None if it is none or cannot be read."""
        path = path_of(uri)
        if self.content is None or path is None:
            return None
        try:
            return self.content, path, self.workspace.get_text_document(uri).source
        except (OSError, ValueError):  # it is gone, or is no text
            return None

    def stop(self) -> None:
        """End the run that goes on."""
        if self._task is not None:
            self._task.cancel()


def path_of(uri: str) -> Path | None:
    """The file that a URI, or a path, names; None for what is none, as a text that was never saved."""
    try:
        parts = urlparse(uri)
        return Path(unquote(parts.path)).resolve() if parts.scheme in ("", "file") and parts.path else None
    except (OSError, ValueError):
        return None


def make_server(version: str) -> Server:
    """The server, with everything that it answers; ``version`` is ours."""
    server = Server(version)

    @server.feature(types.INITIALIZE)
    def initialize(params: types.InitializeParams) -> None:
        server.configure(params)

    @server.feature(types.INITIALIZED)
    async def initialized(params: types.InitializedParams) -> None:
        if server.runs is not None and server.runs.script:
            server.start()

    @server.feature(types.TEXT_DOCUMENT_DID_SAVE)
    async def saved(params: types.DidSaveTextDocumentParams) -> None:
        path = path_of(params.text_document.uri)
        if path is not None and path.suffix == ".toml":
            server.read_settings()
        if path is not None and path.suffix in (".py", ".toml"):
            server.start()

    @server.feature(types.TEXT_DOCUMENT_DID_OPEN)
    async def opened(params: types.DidOpenTextDocumentParams) -> None:
        """Known to the server so that it has the text; what the last run said is published already."""

    @server.command(CHECK)
    async def check(*uris: str) -> None:
        path = path_of(uris[0]) if uris and uris[0] else None
        server.start(() if path is None else (str(path),))

    @server.feature(
        types.TEXT_DOCUMENT_CODE_ACTION, types.CodeActionOptions(code_action_kinds=[types.CodeActionKind.QuickFix])
    )
    def actions(params: types.CodeActionParams) -> list[types.CodeAction]:
        asked = server.document(params.text_document.uri)
        if asked is None or importlib.util.find_spec("libcst") is None:
            return []
        content, path, text = asked
        return content.actions(path, params.range, text)

    @server.feature(types.TEXT_DOCUMENT_INLAY_HINT)
    def hints(params: types.InlayHintParams) -> list[types.InlayHint]:
        asked = server.document(params.text_document.uri)
        if asked is None:
            return []
        content, path, text = asked
        return content.hints(path, params.range, text)

    @server.feature(types.TEXT_DOCUMENT_HOVER)
    def hover(params: types.HoverParams) -> types.Hover | None:
        asked = server.document(params.text_document.uri)
        if asked is None:
            return None
        content, path, text = asked
        return content.hover(path, params.position, text)

    @server.feature(types.TEXT_DOCUMENT_DEFINITION)
    def definition(params: types.DefinitionParams) -> list[types.Location]:
        asked = server.document(params.text_document.uri)
        if asked is None:
            return []
        content, path, text = asked
        return content.definition(path, params.position, text)

    @server.feature(types.SHUTDOWN)
    def shutdown(params: None) -> None:
        server.stop()

    return server
