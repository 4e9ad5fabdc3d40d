// Starts `shardwise lsp` for Python files, and says in the status bar how the last run has ended.

import * as vscode from "vscode";
import { LanguageClient, LanguageClientOptions, ServerOptions } from "vscode-languageclient/node";

interface Finished {
  verdict: string;
  exitCode: number;
  findings: number;
}

let client: LanguageClient | undefined;
let status: vscode.StatusBarItem;

async function start(): Promise<void> {
  const settings = vscode.workspace.getConfiguration("shardwise");
  const python = settings.get<string>("python", "python");
  const script = settings.get<string[]>("script", []);
  const options = settings.get<string[]>("options", []);
  const server: ServerOptions = { command: python, args: ["-m", "shardwise", "lsp"] };
  const said: LanguageClientOptions = {
    documentSelector: [{ scheme: "file", language: "python" }],
    initializationOptions: { python, ...(script.length ? { script } : {}), ...(options.length ? { options } : {}) },
  };
  client = new LanguageClient("shardwise", "shardwise", server, said);
  client.onNotification("shardwise/finished", (run: Finished) => {
    status.text = run.findings ? `shardwise: ${run.findings} findings` : `shardwise: ${run.verdict}`;
    status.show();
  });
  await client.start();
}

async function check(...uris: string[]): Promise<void> {
  status.text = "shardwise: running";
  status.show();
  await client?.sendRequest("workspace/executeCommand", { command: "shardwise.check", arguments: uris });
}

export async function activate(context: vscode.ExtensionContext): Promise<void> {
  status = vscode.window.createStatusBarItem(vscode.StatusBarAlignment.Left);
  context.subscriptions.push(
    status,
    vscode.commands.registerCommand("shardwise.checkProject", () => check()),
    vscode.commands.registerCommand("shardwise.checkFile", () => {
      const editor = vscode.window.activeTextEditor;
      return editor === undefined ? undefined : check(editor.document.uri.toString());
    }),
    vscode.commands.registerCommand("shardwise.restart", async () => {
      await client?.stop();
      await start();
    }),
  );
  await start();
}

export async function deactivate(): Promise<void> {
  await client?.stop();
}
