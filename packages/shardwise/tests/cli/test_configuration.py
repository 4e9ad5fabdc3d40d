"""``[tool.shardwise]``, ignore comments, chosen codes, severities and the baseline, on tiny projects."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import pytest
from click.testing import CliRunner

from shardwise.cli.main import main
from shardwise.configuration.reading import KEYS, settings_of

from .conftest import TYPED

TWO_MISTAKES = """
with set_current_mesh(mesh):
    x = assert_type(torch.randn(6, 16), {"dp": V, "tp": P})
    y = torch.relu(x)
    z = torch.sigmoid(x * 2)
"""


@pytest.fixture
def broken(project):
    project.write(TWO_MISTAKES, typed=True)
    return project


def configure(project, text, name="pyproject.toml"):
    project.write(f'[project]\nname = "x"\n\n[tool.shardwise]\n{text}\n', name)


def codes(result):
    return [line.partition(" ")[0] for line in result.stdout.splitlines() if line.startswith("SW")]


def report(project, *options):
    return json.loads(project.check("train.py", "--format", "json", *options).stdout)


def test_the_command_line_stands_above_the_file(project):
    project.write("import os\nprint('ranks', os.environ['WORLD_SIZE'])\n")
    configure(project, 'mesh = "dp=2,tp=2"')
    assert "ranks 4" in project.check("train.py").stderr
    assert "ranks 6" in project.check("train.py", "--mesh", "dp=6").stderr
    assert "ranks 3" in project.check("train.py", "--world-size", "3").stderr
    assert "ranks 8" in project.check("train.py", "--no-config").stderr
    configure(project, "world-size = 5", "other.toml")
    assert "ranks 5" in project.check("train.py", "--config", "other.toml").stderr


def test_the_file_is_found_from_the_scripts_folder_upwards(project):
    project.write("import os\nprint('ranks', os.environ['WORLD_SIZE'])\n", "deep/below/train.py")
    configure(project, "world-size = 3")
    assert "ranks 3" in project.check("deep/below/train.py").stderr
    project.write("[tool.other]\n", "deep/below/pyproject.toml")
    assert "ranks 3" in project.check("deep/below/train.py").stderr
    configure(project, "world-size = 2", "deep/pyproject.toml")
    assert "ranks 2" in project.check("deep/below/train.py").stderr


@pytest.mark.parametrize(
    ("text", "line", "said"),
    [
        ("meshs = 'dp=2'", 5, "unknown key 'meshs' in [tool.shardwise]; did you mean mesh?"),
        ("mesh = 'dp'", 5, "mesh: 'dp' is not an axis with its size"),
        ("\nstrict = 'yes'", 6, "strict: true or false is expected, not 'yes'"),
        ("world-size = true", 5, "world-size: a whole number is expected, not true"),
        ("mesh = 'dp=2'\nworld-size = 4", 6, "mesh dp=2 has 2 ranks, and world-size is 4"),
        ("docs = 'here'", 5, "docs: an address like https://docs.example.org/shardwise is expected, not 'here'"),
        ("types = 'globl'", 5, "types: 'local' or 'global' is expected, not 'globl'"),
        ("ranks = 'some'", 5, "ranks: 'some' is no choice of ranks"),
        ("select = 'SW1'", 5, "select: a list is expected, not 'SW1': write [\"SW1\"]"),
        ("mode = 'strict'", 5, "unknown key 'mode' in [tool.shardwise]; did you mean strict, types or partials?"),
        ("local = true", 5, "unknown key 'local' in [tool.shardwise]; did you mean types?"),
        ("mesh = 4", 5, 'mesh: a string is expected, not 4: write "dp=2,tp=4"'),
        ("mesh = {dp = 2, tp = 3}", 5, 'mesh: a string is expected, not a table: write "dp=2,tp=3"'),
        ("world-size = '8'", 5, "world-size: a whole number is expected, not '8': write 8"),
        ("strict = 'true'", 5, "strict: true or false is expected, not 'true': write true"),
        ("ranks = true", 5, 'ranks: a string is expected, not true: write "all"'),
        ("ignore = [112]", 5, 'ignore: a string is expected, not 112: write "SW112"'),
        ("ignore = 112", 5, 'ignore: a list is expected, not 112: write ["SW112"]'),
        ("severity = 'note'", 5, "severity: a table is expected, not 'note': write {SW113 = \"warning\"}"),
        ("per-file-ignores = ['SW1']", 5, 'a table is expected, not a list: write {"tests/*.py" = ["SW113"]}'),
        ("contracts = [1]", 5, 'contracts: a string is expected, not 1: write "package.module:function"'),
        ("mesh = ''", 5, "mesh: '' is not an axis with its size"),
        ("ignore = [\n'SW112',\n'term-aded-per-rank']", 7, "did you mean SW113 (term-added-per-rank)?"),
        ("ignore = ['SW910']", 5, "SW910 says how the run ended"),
        ("severity = {SW112 = 'warn'}", 5, "severity: 'error' or 'warning' or 'note' is expected, not 'warn'"),
        ("[tool.shardwise.severity]\nSW1xx = 'note'", 6, "'SW1xx' is no code"),
        ("per-file-ignores = {'a.py' = ['SWX']}", 5, "'SWX' is no code"),
        ("trusted = ['a.b']", 5, "'a.b' names no attribute: write it like package.module:function"),
        ("rules = {'my.kernel' = {parms = 'x'}}", 5, "unknown key 'parms' for my.kernel; did you mean params?"),
        ("rules = {'my.kernel' = {linear = 'x'}}", 5, "my.kernel lacks its parameters"),
    ],
)
def test_what_is_not_understood_is_an_error_with_its_line(broken, text, line, said):
    configure(broken, text)
    result = broken.check("train.py")
    assert result.exit_code == 2
    assert f"pyproject.toml:{line}: " in result.stderr
    assert said in result.stderr


@pytest.mark.parametrize("name", ["tool.shardwse", "tool.shard-wise", "tool.Shardwise.severity", "shardwise"])
def test_a_table_whose_name_is_nearly_right_is_an_error_with_its_line(broken, name):
    broken.write(f"[tool.other]\nx = 1\n[{name}]\nmesh = 'dp=2'\n", "pyproject.toml")
    result = broken.check("train.py")
    assert result.exit_code == 2
    table = name.removesuffix(".severity")
    assert f"pyproject.toml:3: unknown table [{table}]; did you mean [tool.shardwise]?" in result.stderr


def test_tables_of_others_are_none_of_ours(broken):
    broken.write("[tool.hardware]\n[sharding]\n[tool.wise.shardwise]\n[tool.pytest.ini_options]\n", "pyproject.toml")
    assert broken.check("train.py").exit_code == 1


def test_a_declared_rule_that_is_none_is_an_error_of_the_file(broken):
    configure(broken, "rules = {'my.kernel' = {params = 'x', linear = 'y'}}")
    result = broken.check("train.py")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "pyproject.toml declares a rule that is none: rule 'my.kernel': the law 'y' names" in result.stderr


@pytest.mark.parametrize("module", ["train", "__main__"])
def test_a_declared_name_of_the_script_itself_is_an_error(broken, module):
    configure(broken, f"trusted = ['{module}:act']")
    result = broken.check("train.py")
    assert (result.exit_code, result.stdout) == (2, "")
    assert f"names {module}:act, and {module} is the script itself" in result.stderr


def test_what_does_not_fit_the_world_is_said_of_the_file_where_that_says_it(project):
    project.write("print('never run')\n")
    configure(project, "ranks = '0,99'\nworld-size = 8")
    result = project.check("train.py")
    said = "rank 99 is not in a world of 8: ranks go from 0 to 7"
    assert (result.exit_code, f"pyproject.toml: ranks: {said}" in result.stderr) == (2, True)
    result = project.check("train.py", "--ranks", "0,99")
    assert (result.exit_code, f"Error: --ranks: {said}" in result.stderr) == (2, True)


def test_the_example_of_the_guide_is_understood():
    text = (Path(__file__).parents[4] / "docs/guide/configuration.md").read_text()
    example = text.partition("```toml\n")[2].partition("```")[0]
    settings = settings_of(example, Path("pyproject.toml"))
    assert (settings.mesh.ranks, settings.local, settings.rules[0].linear) == (8, False, "x weight")
    assert set(tomllib.loads(example)["tool"]["shardwise"]) == set(KEYS) - {"world-size"}


def test_a_file_that_is_not_toml_is_an_error(broken):
    broken.write("[tool.shardwise]\nmesh = \n", "pyproject.toml")
    result = broken.check("train.py")
    assert (result.exit_code, "is not TOML" in result.stderr) == (2, True)
    assert broken.check("train.py", "--no-config").exit_code == 1


def test_codes_are_selected_and_ignored_by_number_beginning_and_name(broken):
    for word in ("SW112", "SW1", "partial-sum-in-nonlinear-op", "SW3,SW112"):
        result = broken.check("train.py", "--ignore", word)
        assert (result.exit_code, codes(result)) == (0, [])
        assert "held back: 2 findings by the choice of codes" in result.stdout
        assert result.stdout.rstrip().endswith("2 findings held back")
    assert broken.check("train.py", "--select", "SW3").exit_code == 0
    assert broken.check("train.py", "--select", "SW1").exit_code == 1
    configure(broken, "select = ['SW3']")
    assert broken.check("train.py").exit_code == 0
    assert broken.check("train.py", "--select", "SW112").exit_code == 1
    result = broken.check("train.py", "--ignore", "SW11X")
    assert (result.exit_code, "'SW11X' is no code; did you mean SW110" in result.stderr) == (2, True)


def test_codes_are_ignored_by_file(broken):
    broken.write("import torch\ndef act(x):\n    return torch.relu(x)\n", "lib/act.py")
    broken.write(TWO_MISTAKES + "    from lib.act import act\n    act(x)\n", typed=True)
    configure(broken, "per-file-ignores = {'lib/*' = ['SW112']}")
    found = report(broken)
    assert len(found["findings"]) == 2
    assert [(one["by"], one["reason"]) for one in found["held_back"]] == [("per-file-ignores", "lib/*")]


def test_only_errors_decide_the_exit_code(broken):
    configure(broken, "severity = {SW112 = 'warning'}")
    result = broken.check("train.py")
    assert result.exit_code == 0
    assert "clean, 2 warnings in 2 lines; 3 operations checked, severity as configured" in result.stdout
    configure(broken, "severity = {SW1 = 'note'}")
    assert "clean, 2 notes in 2 lines" in broken.check("train.py").stdout
    assert broken.check("train.py", "--format", "github").stdout.count("::notice ") == 2
    sarif = json.loads(broken.check("train.py", "--format", "sarif").stdout)
    assert [one["level"] for one in sarif["runs"][0]["results"]] == ["note", "note"]


def test_a_comment_on_any_line_of_the_statement_holds_its_code_back(project):
    project.write(
        TWO_MISTAKES.replace("torch.relu(x)", "torch.relu(x)  # shardwise: ignore[SW112] known since May").replace(
            "torch.sigmoid(x * 2)",
            "torch.sigmoid(\n        x * 2,\n    )  # shardwise: ignore[partial-sum-in-nonlinear-op]",
        ),
        typed=True,
    )
    found = report(project)
    assert (found["exit_code"], found["findings"]) == (0, [])
    assert [(one["by"], one["reason"]) for one in found["held_back"]] == [
        ("comment", "known since May"),
        ("comment", ""),
    ]
    shown = project.check("train.py", "--show", "held-back").stdout
    assert "relu needs complete values, but x is still a partial sum over tp (by comments: known since May)" in shown
    sarif = json.loads(project.check("train.py", "--format", "sarif").stdout)
    assert [one["suppressions"][0]["kind"] for one in sarif["runs"][0]["results"]] == ["inSource", "inSource"]


@pytest.mark.parametrize(
    "comment", ["#shardwise:ignore[SW112]", "# Shardwise : Ignore [sw112]", "#  shardwise:  ignore[SW1]"]
)
def test_blanks_and_capitals_of_a_comment_do_not_matter(project, comment):
    project.write(TWO_MISTAKES.replace("torch.relu(x)", f"torch.relu(x)  {comment}"), typed=True)
    found = report(project)
    assert [one["code"] for one in found["findings"]] == ["SW112"]
    assert [(one["by"], one["finding"]["code"]) for one in found["held_back"]] == [("comment", "SW112")]


@pytest.mark.parametrize("verb", ["igonre", "noqa", "disable"])
def test_a_comment_with_another_word_than_ignore_holds_nothing_back_and_is_told(project, verb):
    project.write(TWO_MISTAKES.replace("torch.relu(x)", f"torch.relu(x)  # shardwise: {verb}[SW112]"), typed=True)
    result = project.check("train.py")
    assert codes(result) == ["SW112", "SW112", "SW921"]
    assert f"bad-ignore: shardwise knows no comment '{verb}', so nothing is held back; did you mean ignore?" in (
        result.stdout
    )
    assert "= help: # shardwise: ignore[SW112] and why" in result.stdout


def test_a_comment_for_another_code_holds_nothing_back_and_is_told(project):
    project.write(TWO_MISTAKES.replace("torch.relu(x)", "torch.relu(x)  # shardwise: ignore[SW113]"), typed=True)
    result = project.check("train.py")
    assert result.exit_code == 1
    assert codes(result) == ["SW112", "SW112", "SW920"]
    assert "SW920 unneeded-ignore: nothing on this line is SW113: the ignore comment is not needed" in result.stdout


CLEAN_WITH = """
with set_current_mesh(mesh):
    x = assert_type(torch.randn(6, 16), {"dp": V, "tp": R}) + 1
    if x.shape[0] > 100:
        x = x + 1  # shardwise: ignore[SW112]
    %s
"""


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("y = x + 1  # shardwise: ignore[SW112]", ["SW920"]),
        ("y = x + 1  # shardwise: ignore[SW401]", []),  # a run with local types does not look for it
        ("y = x + 1  # shardwise: ignore[SW102]", []),  # nor a permissive one for this
        ("y = x + 1  # shardwise: ignore[SW503]", []),  # nor one of one rank for that
        ("y = x + 1  # shardwise: ignore[SW9999]", ["SW921"]),
        ("y = x + 1  # shardwise: ignore", ["SW921"]),
        ("y = x + 1  # shardwise ignores nothing here", []),
        ("y = 'shardwise: ignore[SW112]'", []),
        ("# shardwise: ignore[SW112]\n    y = x", ["SW921"]),
        ("if x.shape[0]:  # shardwise: ignore[SW112]\n        pass", ["SW920"]),
        ("while False:\n        x.add_(1)  # shardwise: ignore[SW112]", []),
        ("def f():\n        return x  # shardwise: ignore[SW112]", []),
        ("y = [\n        x + 1  # shardwise: ignore[SW112]\n        for _ in range(1)]", ["SW920"]),
    ],
)
def test_a_comment_is_told_if_its_line_ran_and_it_was_not_needed(project, line, found):
    result = project.check_source(CLEAN_WITH % line)
    assert codes(result) == found
    assert result.exit_code == 0


@pytest.mark.parametrize("comment", ["ignore", "ignore[SW68]", "ignore[sum-in-op]"])
def test_a_comment_that_names_no_code_is_told_what_was_found_on_its_line(project, comment):
    program = CLEAN_WITH % f'y = torch.relu(assert_type(torch.ones(4), {{"dp": R, "tp": P}}))  # shardwise: {comment}'
    result = project.check_source(program)
    assert codes(result) == ["SW112", "SW921"]
    assert "= help: # shardwise: ignore[SW112] and why" in result.stdout


def test_a_comment_that_does_not_close_its_bracket_is_told_so(project):
    result = project.check_source(CLEAN_WITH % "y = x + 1  # shardwise: ignore[SW113, the bias is zero")
    assert codes(result) == ["SW921"]
    assert "bad-ignore: this ignore comment does not close its bracket, so it names no code" in result.stdout
    assert "= help: # shardwise: ignore[SW113] and why" in result.stdout


def test_comments_in_imported_files_count_too(project):
    project.write("def f(x):\n    return x + 1  # shardwise: ignore[SW112]\n", "helper.py")
    result = project.check_source(CLEAN_WITH % "import helper; helper.f(x)")
    assert codes(result) == ["SW920"]
    assert " --> helper.py:2:19" in result.stdout


def test_no_comment_is_judged_in_a_run_that_did_not_come_to_its_end(project):
    result = project.check_source(CLEAN_WITH % "y = x + 1  # shardwise: ignore[SW112]\n    raise ValueError")
    assert codes(result) == ["SW910"]


def test_a_baseline_holds_back_what_is_known_wherever_it_has_moved(broken):
    result = broken.check("train.py", "--baseline", "known.json", "--write-baseline")
    assert (result.exit_code, "2 findings written into known.json as known" in result.stderr) == (0, True)
    moved = "\n# a line\n" + TWO_MISTAKES.replace("y = torch.relu(x)", "y  =  torch.relu(x)")
    broken.write(moved + "    w = torch.tanh(x)\n", typed=True)
    found = report(broken, "--baseline", "known.json")
    assert [one["message"].split()[0] for one in found["findings"]] == ["tanh"]
    assert [one["by"] for one in found["held_back"]] == ["baseline", "baseline"]
    assert (found["exit_code"], found["gone"]) == (1, [])


def test_what_is_gone_from_a_baseline_is_said(broken):
    broken.check("train.py", "--baseline", "known.json", "--write-baseline")
    configure(broken, "baseline = 'known.json'")
    broken.write(TWO_MISTAKES.replace("torch.relu(x)", "x"), typed=True)
    result = broken.check("train.py")
    assert result.exit_code == 0
    assert "gone: 1 finding of the baseline not found again\n  SW112 in train.py: y = torch.relu(x)\n" in result.stdout
    result = broken.check("train.py", "--write-baseline")
    assert "1 finding written into" in result.stderr


def test_one_mistake_more_of_a_known_kind_is_new(broken):
    broken.check("train.py", "--baseline", "known.json", "--write-baseline")
    broken.write(TWO_MISTAKES + "    y = torch.relu(x)\n", typed=True)
    assert broken.check("train.py", "--baseline", "known.json").exit_code == 1


@pytest.mark.parametrize(
    ("text", "said"), [(None, "no such file"), ("[", "not JSON"), ("[" * 100_000, "not JSON"), ("{}", "is no baseline")]
)
def test_a_baseline_that_cannot_be_read_is_an_error(broken, text, said):
    if text is not None:
        broken.write(text, "known.json")
    result = broken.check("train.py", "--baseline", "known.json")
    assert (result.exit_code, said in result.stderr) == (2, True)


def test_statistics_count_per_code(broken):
    result = broken.check("train.py", "--statistics")
    assert result.exit_code == 1
    assert result.stdout.splitlines()[0].split() == ["2", "SW112", "error", "partial-sum-in-nonlinear-op"]
    (line,) = broken.check("train.py", "--statistics", "--format", "json").stdout.splitlines()
    counts = json.loads(line)
    assert (counts["codes"], counts["errors"], counts["held_back"]) == ({"SW112": 2}, 2, 0)


def test_statistics_count_findings_that_are_told_as_one(project):
    program = """
from shardwise import reinterpret
with set_current_mesh(mesh):
    w = assert_type(torch.ones(4), {"dp": R, "tp": I}).requires_grad_()
    optimizer = torch.optim.SGD([w], lr=0.1)
    loss = (w * assert_type(torch.ones(4), {"dp": V, "tp": I})).sum()
    reinterpret(loss, "dp", src=V, dst=P).backward()
    w.grad.norm()
    optimizer.step()
"""
    result = project.check_source(program, "--statistics")
    assert [line.split()[:3] for line in result.stdout.splitlines()[:-1]] == [
        ["1", "SW112", "error"],
        ["1", "SW608", "error"],
    ]


def test_what_is_checked_is_the_files_script_where_nobody_says_what(project, monkeypatch):
    project.write("import os, sys\nprint('ran', os.environ['WORLD_SIZE'], sys.argv[1:])\n", "src/train.py")
    configure(project, 'mesh = "dp=2"\nscript = ["src/train.py", "--steps", "2"]')
    assert "ran 2 ['--steps', '2']" in project.check().stderr
    assert "ran 4 ['--steps', '2']" in project.check("--world-size", "4").stderr
    assert "ran 2 ['--steps', '3']" in project.check("src/train.py", "--", "--steps", "3").stderr
    monkeypatch.chdir("src")
    assert "ran 2 ['--steps', '2']" in project.check().stderr
    assert "script = [...] in [tool.shardwise]" in project.check("--no-config").stderr
    configure(project, 'script = ["-m", "src.train", "x"]')
    monkeypatch.chdir("..")
    assert "ran 8 ['x']" in project.check().stderr


def test_trusted_functions_rules_and_contracts_are_declared_before_the_program_runs(project):
    project.write("import torch\ndef act(x):\n    return torch.relu(x)\n", "trusted_act.py")
    project.write("print('loaded')\ndef load():\n    print('called')\n", "contract_of_it.py")
    project.write("from trusted_act import act\n" + TYPED + TWO_MISTAKES.replace("torch.relu", "act"))
    assert len(report(project)["findings"]) == 2
    configure(project, "trusted = ['trusted_act:act']\ncontracts = ['contract_of_it:load']")
    result = project.check("train.py")
    assert "loaded\ncalled\n" in result.stderr
    assert codes(result) == ["SW112"]
    assert "trusted_act:act, which pyproject.toml trusts" in result.stdout


@pytest.mark.parametrize(
    ("name", "said"), [("nowhere:f", "there is no module nowhere"), ("json:nothing", "json has no nothing")]
)
def test_a_declared_name_that_there_is_not_is_an_error(broken, name, said):
    configure(broken, f"contracts = ['{name}']")
    result = broken.check("train.py")
    assert (result.exit_code, said in result.stderr) == (2, True)


@pytest.mark.processes
def test_verify_holds_back_what_check_holds_back(project):
    project.write("""
        import torch
        from torch.distributed.device_mesh import init_device_mesh
        from shardwise import P, R, all_reduce, assert_type, checkpoint_value
        mesh = init_device_mesh("cpu", (2,), mesh_dim_names=("tp",))
        x = assert_type(torch.zeros(4), {"tp": P})
        checkpoint_value("y", torch.relu(x))
    """)
    configure(project, "mesh = 'tp=2'")

    def verify(*options):
        return CliRunner().invoke(main, ["verify", "train.py", "--format", "json", *options])

    assert json.loads(verify().stdout)["types"]["errors"] == 1
    held = json.loads(verify("--ignore", "SW112").stdout)["types"]
    assert (held["errors"], [one["by"] for one in held["held_back"]]) == (0, ["ignore"])


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["chek", "train.py"], "no such command 'chek'; did you mean check?"),
        (["train.py", "--mesh", "dp=2"], "train.py is no command; to check it: "),
        (["check", "train.py", "--mehs", "dp=2"], "has no option --mehs; did you mean --mesh?"),
        (["check", "train.py", "--ignore", "partial-sum"], "did you mean SW112 (partial-sum-in-nonlinear-op)?"),
        (
            ["check", "train.py", "--lr", "3", "--mesh", "dp=2", "--wide=1"],
            "Options of the script go after --: shardwise check train.py --mesh dp=2 -- --lr 3 --wide=1",
        ),
    ],
)
def test_slips_of_the_pen_are_answered(broken, words, said):
    result = CliRunner().invoke(main, words, prog_name="shardwise")
    assert (result.exit_code, said in " ".join(result.stderr.split())) == (2, True)


def test_options_after_the_script_are_the_commands(project):
    project.write("import os, sys\nprint('ranks', os.environ['WORLD_SIZE'], sys.argv[1:])\n")
    assert "ranks 2 ['--lr', '3']" in project.check("train.py", "--mesh", "dp=2", "--", "--lr", "3").stderr
