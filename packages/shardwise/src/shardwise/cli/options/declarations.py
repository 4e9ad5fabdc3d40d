"""What a project declares before its programs run: rules of operators, trusted functions, contracts that are loaded."""

from __future__ import annotations

import functools
import importlib
import importlib.util
import os
import sys
from dataclasses import dataclass
from typing import Any

from shardwise.configuration.settings import DeclaredRule, Settings
from shardwise.diagnostics.errors import SpmdValueError
from shardwise.host.no_run import NoProgram


@dataclass(frozen=True)
class Declarations:
    """The declarations of a ``[tool.shardwise]``; calling it makes them, on every rank for itself."""

    where: str
    rules: tuple[DeclaredRule, ...]
    trusted: tuple[str, ...]
    contracts: tuple[str, ...]

    def __call__(self) -> None:
        """Make them. Errors: NoProgram for a name that there is not or a rule that is none, SW905 of what is called."""
        from shardwise.collectives.regions import register_no_typecheck
        from shardwise.interop.running.session import this_thread
        from shardwise.op_rules.custom_rules import register_rule

        for rule in self.rules:
            try:
                register_rule(rule.op, rule.params, rule.linear, law=f"declared in {self.where}")
            except SpmdValueError as error:
                raise NoProgram(f"{self.where} declares a rule that is none: {error.message}") from None
        for name in self.trusted:
            register_no_typecheck(self._found(name))
            session = this_thread()
            if session is not None:
                session.trust(f"{name}, which {self.where} trusts", None)
        for name in self.contracts:
            contract = self._found(name)
            if callable(contract):
                contract()

    def _found(self, name: str) -> Any:
        module, _, attribute = name.partition(":")
        if _is_script(module):
            said = f"{module} is the script itself, of which there is nothing before it runs"
            move = f"decorate {attribute} there with shardwise.no_typecheck, or move it into a module"
            raise NoProgram(f"{self.where} names {name}, and {said}: {move}")
        try:
            return functools.reduce(getattr, attribute.split("."), importlib.import_module(module))
        except ModuleNotFoundError as error:
            if error.name is None or not f"{module}.".startswith(f"{error.name}."):
                raise
            said = f"there is no module {error.name}: it is looked for where the program's own imports are"
        except AttributeError:
            said = f"{module} has no {attribute}"
        raise NoProgram(f"{self.where} names {name}, and {said}")


def _is_script(module: str) -> bool:
    """Whether the module is the program that is about to run: to import it would be to run it twice."""
    if module == "__main__":
        return True
    try:
        spec = importlib.util.find_spec(module)
    except (ImportError, ValueError):
        return False
    return (
        spec is not None and bool(spec.origin) and os.path.realpath(spec.origin or "") == os.path.realpath(sys.argv[0])
    )


def declarations_of(settings: Settings) -> Declarations | None:
    """What the settings declare; None if that is nothing."""
    if not (settings.rules or settings.trusted or settings.contracts):
        return None
    where = "the configuration" if settings.file is None else settings.file.name
    return Declarations(where, settings.rules, settings.trusted, settings.contracts)
