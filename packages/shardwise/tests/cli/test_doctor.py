"""``shardwise doctor``: what the installed torch lacks, and what that means."""

import pytest
import torch
from click.testing import CliRunner

from shardwise.cli.main import main
from shardwise.interop.torch_compat import registry
from shardwise.interop.torch_compat.registry import PrivateName


def doctor():
    result = CliRunner().invoke(main, ["doctor"])
    return result.exit_code, result.stdout.splitlines()


def test_a_tested_torch_has_everything():
    code, (versions, tested, names) = doctor()
    assert code == 0
    assert versions.endswith(f"torch {torch.__version__}")
    assert tested == f"tested with torch {' to '.join(registry.TESTED)}"
    count = len(registry.registered())
    assert names == f"{count} of {count} private names of torch are there"


@pytest.mark.parametrize(
    ("tier", "code", "said"),
    [(1, 2, "is missing: no check: types of gradients"), (2, 0, "is missing: no support for: types of gradients")],
)
def test_what_is_missing_is_listed_with_what_is_lost(tier, code, said, monkeypatch):
    gone = PrivateName("torch._gone", "what for", "types of gradients", tier)
    monkeypatch.setattr(registry, "_registry", {gone.name: gone})
    assert doctor()[0] == code
    assert doctor()[1][-1] == f"  torch._gone {said}"


@pytest.mark.parametrize(("version", "stands", "lost"), [("2.11.0+cu130", "older", 1), ("9.0.1", "newer", 0)])
def test_an_untested_torch_is_called_so_and_lacks_what_it_lacks(version, stands, lost, monkeypatch):
    last = registry.TESTED[1]
    gone = PrivateName("torch._gone", "what for", "types of gradients", until=last if stands == "newer" else "")
    monkeypatch.setattr(registry, "_registry", {gone.name: gone})
    monkeypatch.setattr(torch, "__version__", version)
    code, (_, tested, names, *listed) = doctor()
    assert tested.endswith(f"to {last}; this one is {stands}, untested")
    assert names == f"{1 - lost} of 1 private names of torch are there"
    assert (code, len(listed)) == (2 * lost, lost)
