"""The answers for real logs: each case of the sample script has the problem, chain or verdict it was made for."""

from __future__ import annotations

import pytest

from tracewise.find.answers import Answers, find_answers
from tracewise.find.break_text import parse_break, user_place
from tracewise.find.caches import key_differences
from tracewise.find.costs import phase_of_name
from tracewise.find.export import expression_tree
from tracewise.find.graph_text import fingerprint, graph_nodes, kernel_lines
from tracewise.find.problems import problem_id
from tracewise.find.provenance import find_provenance
from tracewise.find.recompiles import REMEDIES, make_link
from tracewise.model.entities import Compilation, Expression, Frame
from tracewise.model.ids import CompileId, parse_compile_id
from tracewise.model.runs import find_runs, load_run
from tracewise.read.source import open_sources

from .golden import golden
from .reports import rank_logs
from .writing import Writer, artifact, ids


@pytest.fixture(scope="module")
def answers_of(tmp_path_factory):
    """The answers for golden logs, found once."""
    found: dict[str, Answers] = {}

    def answers(name: str) -> Answers:
        if name not in found:
            folder = tmp_path_factory.mktemp(name)
            logs = rank_logs(name.removeprefix("ranks-")) if name.startswith("ranks-") else {"a.log": golden(name)}
            for file, data in logs.items():
                (folder / file).write_bytes(data)
            with open_sources([folder]) as sources:
                found[name] = find_answers(load_run(find_runs(sources)[0]))
        return found[name]

    return answers


PROBLEMS = {
    "basic-simple": [],
    "basic-infer": [],
    "basic-break": [
        ("graph-break", "Failed to trace builtin operator", "basic.py:27", 1),
        ("graph-break", "Call to `torch._dynamo.graph_break()`", "basic.py:29", 1),
    ],
    "basic-restart": [("graph-break", "Data-dependent branching", "basic.py:36", 2)],
    "basic-limit": [("recompile-limit", "Dynamo recompile limit exceeded", "basic.py:58", 1)],
    "basic-specialize": [("specialization", "L['x'].size()[0] became the constant 8", "basic.py:80", 1)],
    "basic-fail": [
        ("failure", "Failed to trace builtin operator", "basic.py:99", 1),
        ("failure", "TorchRuntimeError: RuntimeError when making fake tensor call", "basic.py:112", 1),
        (
            "failure",
            "BackendCompilerFailed: backend='backend' raised: RuntimeError: backend <b>failed</b> & 'quoted'",
            "basic.py:119",
            1,
        ),
    ],
    "export-draft": [("data-dependent", "u0 > 3 was assumed from the example data", "export.py:19", 1)],
    "export-kernels": [
        (
            "mismatched-fake-kernel",
            "the fake kernel of twexport.badfake.default differs: mismatch between fake value 4 and real value 1",
            "",
            1,
        ),
        ("missing-fake-kernel", "twexport.nofake.default has no fake kernel", "", 1),
    ],
    "ranks-shape": [
        ("graph-break", "Attempted to call function marked as skipped", "ranks.py:36", 4),
        ("graph-break", "Unsupported method call", "ranks.py:36", 2),
        ("cache-bypass", "aotautograd: FX graph cache is not enabled", "", 5),
        ("empty-graph", "the graph has no operation", "ranks.py:36", 2),
    ],
}


@pytest.mark.parametrize("name", PROBLEMS)
def test_each_case_has_its_problems(answers_of, name):
    found = [
        (p.kind, p.headline, p.site.place.rpartition("gen_")[2] if p.site else "", len(p.occurrences))
        for p in answers_of(name).problems
    ]
    assert sorted(found) == sorted(PROBLEMS[name])


def test_a_break_costs_what_was_thrown_away_and_what_comes_after(answers_of):
    first, second = answers_of("basic-break").problems
    by_id = {str(unit.id): unit for unit in answers_of("basic-break").run.compilations}
    thrown = [by_id[id].metrics["dynamo_compile_time_before_restart_us"] for id in ("[0/0]", "[1/0]")]
    assert first.cost_us == thrown[0] + by_id["[1/0]"].duration_us
    assert second.cost_us == thrown[1] + by_id["[2/0]"].duration_us


def test_hints_explain_and_torchs_page_is_named(answers_of):
    problem = answers_of("basic-break").problems[0]
    assert problem.explanation.startswith("Dynamo does not know how to trace builtin operator `print`")
    assert problem.hints[0].startswith("Avoid calling builtin `print`")
    assert len(problem.hints) == len(set(problem.hints))
    assert problem.url.endswith("/gb/gb0059.html")


def test_chains_say_what_changed_and_what_to_do(answers_of):
    (chain,) = answers_of("basic-recompile").chains
    assert [str(unit.id) for unit in chain.units] == [f"[0/{n}]" for n in range(6)]
    assert chain.guards == [("n", 3), ("x.size()[0]", 2)]
    assert chain.changes == [("n", ["1", "2", "3"]), ("x.size()[0]", ["5", "6", "7"])]
    assert "mark_dynamic" in chain.advice[1]
    assert not chain.hits_limit
    (limited,) = answers_of("basic-limit").chains
    assert limited.limit == 3
    assert limited.hits_limit


@pytest.mark.parametrize(
    ("guard", "remedy"),
    [
        ("tensor 'x' size mismatch at index 0. expected 5, actual 6", "size"),
        ("tensor 'x' rank mismatch. expected 1, actual 2", "ndim"),
        ("tensor 'x' dtype mismatch. expected Float, actual Double", "dtype"),
        ("tensor 'x' requires_grad mismatch. expected requires_grad=0", "requires_grad"),
        ("GLOBAL_STATE changed: grad_mode", "global state"),
        ("___check_type_id(L['f'], 94)", "identity"),
        ("len(L['xs']) == 2", "length"),
        ("n == 3", "value"),
        ("something else", "other"),
    ],
)
def test_a_guard_has_its_remedy(guard, remedy):
    unit = Compilation(CompileId(frame=0, compile=1), None, 0, recompile_reasons=[f"0/0: {guard}  # f(x)  # a.py:1"])
    assert make_link(CompileId(frame=0, compile=0), unit).remedy.name == remedy
    assert remedy in {row.name for row in REMEDIES}


def test_phases_add_up_to_the_time_of_their_compilations(answers_of):
    for name in ("basic-break", "basic-recompile"):
        answers = answers_of(name)
        roots = sum(s.dur_us for s in answers.run.ranks[0].spans if s.parent is None and not s.id.is_empty)
        assert answers.costs.total_us == pytest.approx(roots, rel=1e-6)
        assert answers.costs.by_phase["kernels"] > answers.costs.by_phase["dynamo"] > 0


def test_every_phase_of_a_real_log_is_placed(answers_of):
    placed = {cost.name: phase_of_name(cost.name) for cost in answers_of("basic-simple").costs.by_name}
    assert placed["Scheduler.codegen"] == "code generation"
    assert placed["inductor_compile"] == "inductor"
    assert placed["create_aot_dispatcher_function"] == "AOTAutograd"
    costs = answers_of("basic-simple").costs
    assert costs.by_phase["other"] < costs.total_us / 1000


def test_symbols_know_where_they_were_born_and_what_was_asked(answers_of):
    facts = {f.symbol.name: f for f in answers_of("basic-dynamic").symbols if str(f.unit.id) == "[0/0]"}
    assert facts["s77"].symbol.sources[0] == "L['x'].size()[0]"
    assert facts["s77"].guards[0].expression == "s77 > 4"
    assert answers_of("basic-specialize").symbols[0].specialization is not None


def test_the_same_problem_in_another_run_has_the_same_id():
    site = Frame("train.py", 3, "f", "x")
    assert problem_id("failure", "size 3 of 0x7f", site) == problem_id("failure", "size 4 of 0x8e", site)
    assert problem_id("failure", "size 3", site) != problem_id("failure", "size 3", site._replace(line=4))


@pytest.mark.parametrize("text", ["", "\n\n", "Graph Break Reason:", "x" * 10_000, "  Hint: \n  Explanation:"])
def test_any_text_can_be_taken_apart(text):
    info = parse_break(text)
    assert len(info.headline) <= 500
    assert user_place(text) is None


def test_a_failure_without_a_reason_is_a_problem(tmp_path):
    (tmp_path / "a.log").write_bytes(Writer().compilation("f", fail_type="ValueError").data)
    with open_sources([tmp_path]) as sources:
        (problem,) = find_answers(load_run(find_runs(sources)[0])).problems
    assert problem.headline == "ValueError: ValueError without a reason"


def test_equal_parts_of_a_key_are_no_difference():
    before = {"components": ["[aa] gm: f()", "[bb] inputs[0]: 3"]}
    after = {"components": ["[aa] gm: f()", "[cc] inputs[0]: 4", "[dd] inputs[1]: 5"]}
    found = [(part.name, part.before, part.after) for part in key_differences(before, after)]
    assert found == [("inputs[0]", "3", "4"), ("inputs[1]", "", "5")]
    assert key_differences(None, {"components": 3}) == []


def test_the_tree_of_an_expression_ends_though_its_ids_form_a_circle():
    steps = {n: Expression(f"e{n}", n, "add", ["a"], [(n + 1) % 3], ()) for n in range(3)}
    assert [depth for depth, _ in expression_tree(steps, 0)] == [0, 1, 2]


PRE = """class GraphModule(torch.nn.Module):
    def forward(self, x):
        # File: train.py:24 in f, code: z = y.cos()
        cos: "f32[4][1]cpu" = x.cos()
        return (cos,)"""
POST = PRE.replace("cos:", "cos_1:").replace("z = y.cos()", "z = y.cos()").replace("return (cos,", "return (cos_1,")
CODE = """cpp_fused_cos_0 = async_compile.cpp_pybinding('x')
def call(args):
    # [Provenance debug handles] cpp_fused_cos_0:1
    cpp_fused_cos_0(arg0, buf0)
    return buf0"""


def test_a_line_leads_to_its_nodes_and_its_kernel():
    mappings = {"postToPre": {"cos_1": ["cos"]}, "postToCppCode": {"cos_1": ["cpp_fused_cos_0:1"]}, "version": 2.0}
    provenance = find_provenance(mappings, PRE, POST, CODE)
    (family,) = provenance.families
    assert provenance.user == [("train.py:24", "z = y.cos()")]
    assert (family.user, family.pre, family.post, family.code) == ([1], [4], [4], [4])
    assert find_provenance({"version": 2.0}, PRE, POST, CODE).families[0].code == []


def test_real_graphs_are_read():
    assert list(graph_nodes(PRE)) == ["cos"]
    assert kernel_lines(CODE) == {"cpp_fused_cos_0:1": [4]}
    assert fingerprint(PRE) == fingerprint(PRE.replace(":24 in", ":31 in"))
    assert fingerprint(PRE) != fingerprint(PRE.replace("cos()", "sin()"))


@pytest.mark.parametrize("text", ["[0/0]", "[0/2_1]", "[!0/-/-]", "[!0/1/0]", "[-/-]", "[0/0 #2]", "[3/4_5 #6]"])
def test_compile_ids_are_written_as_torch_writes_them(text):
    assert str(parse_compile_id(text)) == text
    assert str(parse_compile_id(text.strip("[]"))) == text


@pytest.mark.parametrize("text", ["", "x", "0", "0/x", "9" * 30 + "/0"])
def test_what_is_no_compile_id_is_none(text):
    assert parse_compile_id(text) is None


def test_a_bypassed_cache_is_told_with_its_reason(tmp_path):
    payload = '{"cache_bypass_reason": "custom op", "key": null}'
    inside = (artifact("aotautograd_cache_bypass", payload, "json", **ids(), second=0.5),)
    (tmp_path / "a.log").write_bytes(Writer().compilation("f", inside=inside).data)
    with open_sources([tmp_path]) as sources:
        answers = find_answers(load_run(find_runs(sources)[0]))
    assert [problem.headline for problem in answers.problems] == ["aotautograd: custom op"]
    assert answers.is_clean
