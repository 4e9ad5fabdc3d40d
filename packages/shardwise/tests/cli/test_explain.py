"""``shardwise explain``: a page per code, the list of codes, and help with a typing mistake."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from shardwise.cli.main import main
from shardwise.diagnostics.codes import CODES


def explain(*arguments):
    return CliRunner().invoke(main, ["explain", *arguments])


@pytest.mark.parametrize("query", ["SW112", "sw112", "112", "partial-sum-in-nonlinear-op"])
def test_a_code_is_found_by_number_or_name(query):
    result = explain(query)
    assert result.exit_code == 0
    assert result.stdout.startswith("# SW112 partial-sum-in-nonlinear-op\n")


def test_several_codes_are_so_many_pages():
    pages = explain("SW112", "402").stdout
    assert [line for line in pages.splitlines() if line.startswith("# SW")] == [
        "# SW112 partial-sum-in-nonlinear-op",
        "# SW402 whole-meets-shard",
    ]
    assert "no diagnostic code 'SW999'" in explain("SW112", "SW999").stderr


def test_without_a_code_every_code_is_listed():
    result = explain()
    assert [line.split()[0] for line in result.stdout.splitlines()] == list(CODES)


def test_an_unknown_code_is_a_usage_error_that_names_neighbours():
    result = explain("SW119")
    assert result.exit_code == 2
    assert "no diagnostic code 'SW119'" in result.stderr
    assert "did you mean SW110 (partial-meets-varying)," in " ".join(result.stderr.split())


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["bias", "added", "on", "every", "rank"], "SW113"),
        (["softmax over a sharded dim"], "SW405"),
        (["gradient", "clipping", "norm"], "SW609"),
        (["dropout", "random", "differs"], "SW121"),
        (["forgot", "to", "wait"], "SW222"),
        (["deadlock", "send", "receive"], "SW506"),
        (["deadlock"], "SW504"),
        (["baseline ignore comment"], "SW920"),
        (["gradients not summed before optimizer"], "SW608"),
    ],
)
def test_a_code_is_found_by_words(words, code):
    result = explain(*words)
    assert result.exit_code == 0
    assert code in [line.split()[0] for line in result.stdout.splitlines()[:3]]


def test_words_that_are_about_no_code_are_refused():
    result = explain("zebra", "unicorn")
    assert result.exit_code == 2
    assert "shardwise explain lists all codes" in result.stderr
