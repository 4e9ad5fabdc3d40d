"""Edits of a file: what they change, in the file's own spelling, and what they refuse to change."""

from __future__ import annotations

import pytest

from shardwise.diagnostics.fix import Argument, Insert, Leave, Remove, Replace, Rewrite, Within, Wrap
from shardwise.diagnostics.source_location import SourceLocation
from shardwise.rewriting.editing import edited

HEAD = "import torch.distributed as td\n\nimport shardwise as spmd\n"
STEP = ("all_gather", '"tp"', "S(0)", "R")


def at(source: str, text: str) -> SourceLocation:
    """Where ``text`` stands first, columns in bytes."""
    start = source.index(text)
    line, last = source.count("\n", 0, start) + 1, source.count("\n", 0, start + len(text)) + 1
    column = len(source[source.rfind("\n", 0, start) + 1 : start].encode())
    end = start + len(text)
    return SourceLocation("a.py", line, last, column, len(source[source.rfind("\n", 0, end) + 1 : end].encode()))


def replaced(line: str, call: str, operand: str, *step: str) -> str | None:
    source = HEAD + line
    where = at(source, call)
    inner = at(call, operand)
    assert inner.column is not None
    assert where.column is not None
    span = SourceLocation("a.py", where.line, where.line, where.column + inner.column)
    end = span.column + len(operand.encode()) if span.column is not None else None
    done = edited(source, [Replace(where, SourceLocation("a.py", where.line, where.line, span.column, end), *step)])
    return None if done is None else done.removeprefix(HEAD)


def test_of_the_same_transition_the_wrong_keyword_alone_changes():
    call = "spmd.all_gather(y, mesh_axis, src=spmd.S(1), dst=spmd.R, out_dtype=None)"
    assert replaced(f"z = {call}  # ä\n", call, "y", *STEP) == f"z = {call.replace('S(1)', 'S(0)')}  # ä\n"


def test_another_transition_keeps_the_axis_as_the_program_writes_it():
    done = replaced("z = spmd.convert(y, tp, src=spmd.I, dst=spmd.R)\n", *_call("convert", "tp"), *STEP)
    assert done == "z = spmd.all_gather(y, tp, src=spmd.S(0), dst=spmd.R)\n"


def _call(op: str, axis: str) -> tuple[str, str]:
    return f"spmd.{op}(y, {axis}, src=spmd.I, dst=spmd.R)", "y"


def test_an_operand_in_the_place_of_its_call_keeps_its_meaning():
    call = "spmd.all_reduce(é + b, tp, src=spmd.P, dst=spmd.R)"
    assert replaced(f"z = 2 * {call}\n", call, "é + b") == "z = 2 * (é + b)\n"


def test_an_assignment_to_itself_is_left_out():
    call = "spmd.all_reduce(y, tp, src=spmd.P, dst=spmd.R)"
    assert replaced(f"y = {call}\nz = y\n", call, "y") == "z = y\n"


@pytest.mark.parametrize(
    ("call", "operand"),
    [
        ("layer(y, tp)", "y"),  # a function that does more than the collective in it
        ("spmd.convert(tp, y, src=spmd.I, dst=spmd.R)", "y"),
        ("spmd.convert(y, tp, src=spmd.I, dst=spmd.V, dim=1)", "y"),  # all_gather takes no dim
    ],
)
def test_what_may_mean_more_is_not_replaced(call, operand):
    assert replaced(f"z = {call}\n", call, operand, *STEP) is None


def test_edits_inside_of_each_other_are_made_together():
    source = HEAD + "z = spmd.convert(y + b, tp, src=spmd.I, dst=spmd.R)\n"
    call = at(source, "spmd.convert(y + b, tp, src=spmd.I, dst=spmd.R)")
    edits = [Replace(call, at(source, "y + b"), *STEP), Wrap(at(source, "b,"), "convert", '"tp"', "R", "P")]
    edits[1] = Wrap(SourceLocation("a.py", 4, 4, 21, 22), "convert", '"tp"', "R", "P")
    inner = 'y + spmd.convert(b, "tp", src=spmd.R, dst=spmd.P)'
    assert edited(source, edits) == HEAD + f"z = spmd.all_gather({inner}, tp, src=spmd.S(0), dst=spmd.R)\n"


def test_a_statement_stands_before_another_at_its_depth_in_the_words_of_the_file():
    source = HEAD + "if True:\n\tprint(1)\n\topt.step()  # now\n"
    lines = ("for p in ps:", "    dist.all_reduce(p.grad, group=dist.group.WORLD)")
    done = edited(source, [Insert(at(source, "opt.step()"), lines)])
    assert done == source.replace("\topt", "\tfor p in ps:\n\t    td.all_reduce(p.grad, group=td.group.WORLD)\n\topt")


@pytest.mark.parametrize(
    ("head", "dot"),
    [("import shardwise as spmd\n", "spmd."), ("from shardwise import R, S, all_gather\n", "")],
    ids=["module", "names"],
)
def test_a_file_that_has_the_names_is_not_searched_for_imports(head, dot, monkeypatch):
    monkeypatch.delattr("shardwise.rewriting.spelling.AddImportsVisitor")
    call = f"{dot}all_gather(y, 'tp', src={dot}{{}}, dst={dot}R)"
    source = head + f"z = {call.format('S(1)')}\n"
    where = at(source, call.format("S(1)"))
    done = edited(source, [Replace(where, at(source, "y"), "all_gather", "'tp'", "S(0)", "R")])
    assert done == head + f"z = {call.format('S(0)')}\n"


def test_a_module_that_a_statement_needs_is_imported():
    source = "import shardwise as spmd\n\nopt.step()\n"
    done = edited(source, [Insert(at(source, "opt.step()"), ("dist.all_reduce(g)",))])
    assert done is not None
    assert "import torch.distributed as dist\n" in done
    assert "\ndist.all_reduce(g)\nopt.step()\n" in done


@pytest.mark.parametrize("line", ["while opt.step():\n    pass\n", "x = go and opt.step()\n"])
def test_no_statement_is_put_where_it_would_not_run_before_the_call(line):
    source = HEAD + line
    assert edited(source, [Insert(at(source, "opt.step()"), ("dist.barrier()",))]) is None


@pytest.mark.parametrize(
    ("line", "left"),
    [
        ("td.all_reduce(y)  # once more\nz = y\n", "z = y\n"),
        ("for g in gs:\n    td.all_reduce(y)\n", "for g in gs:\n    pass\n"),
        ("handle = td.all_reduce(y)\n", "handle = td.all_reduce(y)\n"),
    ],
)
def test_a_call_is_left_out_where_it_is_a_statement(line, left):
    source = HEAD + line
    done = edited(source, [Remove(at(source, "td.all_reduce(y)"))])
    assert done == (None if line == left else HEAD + left)


@pytest.mark.parametrize(
    ("call", "argument", "after"),
    [
        ("td.all_reduce(y, async_op=True)", ("async_op", ""), "td.all_reduce(y)"),
        ("td.all_reduce(y, async_op=True, group=g)", ("async_op", ""), "td.all_reduce(y, group=g)"),
        ("td.all_reduce(y, td.ReduceOp.SUM, tp)", ("group", "dp", 2), "td.all_reduce(y, td.ReduceOp.SUM, dp)"),
        ("td.all_reduce(y, group=tp)", ("group", "dp", 2), "td.all_reduce(y, group=dp)"),
        ("td.all_reduce(y)", ("op", "dist.ReduceOp.AVG", 1), "td.all_reduce(y, op=td.ReduceOp.AVG)"),
        ("td.all_reduce(y, td.ReduceOp.AVG, tp)", ("op", "", 1), None),  # the group is the third one
        ("td.all_reduce(*ys)", ("group", "dp", 2), None),
        ("spmd.all_reduce(y, tp, src=P, dst=R)", ("dst", "spmd.I"), "spmd.all_reduce(y, tp, src=P, dst=spmd.I)"),
    ],
)
def test_one_argument_of_a_call_changes(call, argument, after):
    source = f"{HEAD}{call}  # ä\n"
    done = edited(source, [Argument(at(source, call), *argument)])
    assert done == (None if after is None else source.replace(call, after))


@pytest.mark.parametrize(
    ("line", "place", "text", "after"),
    [
        ("f(a + b)\n", "a + b", "{}.detach()", "f((a + b).detach())\n"),
        ("f(a).backward()\n", "f(a)", "({} / dist.get_world_size())", "(f(a) / td.get_world_size()).backward()\n"),
        ("td.all_reduce(y)\n", "td.all_reduce(y)", "y = spmd.f(y)", "y = spmd.f(y)\n"),
        ("h = td.all_reduce(y)\n", "td.all_reduce(y)", "y = spmd.f(y)", None),
    ],
)
def test_an_expression_becomes_another_one(line, place, text, after):
    source = HEAD + line
    done = edited(source, [Rewrite(at(source, place), text)])
    assert done == (None if after is None else HEAD + after)


@pytest.mark.parametrize(
    ("line", "after"),
    [
        ("loss.backward(); opt.step(); opt.zero()  # ä\n", "loss.backward()\nfirst()\nopt.step(); opt.zero()  # ä\n"),
        ("for b in bs: opt.step(); opt.zero()\n", "for b in bs:\n    first()\n    opt.step(); opt.zero()\n"),
        ("if x: loss(x) ; opt.step()\nz = 1\n", "if x:\n    loss(x)\n    first()\n    opt.step()\nz = 1\n"),
        (
            "if x:\n\ttry: opt.step()\n\tfinally: pass\n",
            "if x:\n\ttry:\n\t\tfirst()\n\t\topt.step()\n\tfinally: pass\n",
        ),
        ("f({1: 2}); z = {3: opt.step()}\n", "f({1: 2})\nfirst()\nz = {3: opt.step()}\n"),
        ("if (x and\n    y): opt.step()\n", None),
        ("y = lambda: opt.step(); z = y()\n", None),
    ],
)
def test_a_line_is_put_before_a_statement_that_shares_its_line(line, after):
    source = HEAD + line
    done = edited(source, [Insert(at(source, "opt.step()"), ("first()",))])
    assert done == (None if after is None else HEAD + after)


LOOP = "for b in bs:\n    loss(b).backward()\n    for p in ps:\n        td.all_reduce(p.grad)\nopt.step()\n"


def test_a_string_of_several_lines_stays_where_its_indentation_is():
    source = HEAD + LOOP.replace("td.all_reduce(p.grad)", 'td.all_reduce(p.grad, """\n        of it""")')
    edit = Leave(at(source, 'td.all_reduce(p.grad, """\n        of it""")'), at(source, "loss(b).backward()"))
    assert edited(source, [edit]) is None


def test_a_statement_moves_behind_the_loop_around_it():
    source = HEAD + LOOP
    done = edited(source, [Leave(at(source, "td.all_reduce(p.grad)"), at(source, "loss(b).backward()"))])
    moved = "for p in ps:\n    td.all_reduce(p.grad)\n"
    assert done == HEAD + f"for b in bs:\n    loss(b).backward()\n{moved}opt.step()\n"


def test_a_statement_that_stands_behind_the_loop_already_is_left_out_of_it():
    source = HEAD + LOOP.replace("opt.step", "for p in ps: td.all_reduce(p.grad)  # the sum\nopt.step")
    done = edited(source, [Leave(at(source, "td.all_reduce(p.grad)"), at(source, "loss(b).backward()"))])
    kept = "for p in ps: td.all_reduce(p.grad)  # the sum\n"
    assert done == HEAD + f"for b in bs:\n    loss(b).backward()\n{kept}opt.step()\n"


def test_a_statement_that_is_all_of_a_loop_stays():
    source = HEAD + "for p in ps:\n    td.all_reduce(p.grad)\nloss.backward()\n"
    assert edited(source, [Leave(at(source, "td.all_reduce(p.grad)"), at(source, "loss.backward()"))]) is None


def test_a_statement_that_divides_is_left_out():
    source = HEAD + "for p in ps:\n    p.grad /= world\n"
    assert edited(source, [Remove(at(source, "p.grad /= world"))]) == HEAD + "for p in ps:\n    pass\n"


def test_a_statement_runs_in_a_block():
    source = HEAD + "def f(x):\n    y = (\n        draw(x)\n    )  # noise\n\n    return y\n"
    done = edited(source, [Within(at(source, "draw(x)"), 'spmd.synchronised_rng("tp")')])
    block = '    with spmd.synchronised_rng("tp"):\n        y = (\n            draw(x)\n        )  # noise\n'
    assert done == HEAD + f"def f(x):\n{block}\n    return y\n"


def test_what_is_inserted_before_a_statement_stands_before_its_block():
    source = HEAD + "y = draw(x)\n"
    where = at(source, "draw(x)")
    for edits in ([Within(where, "c()"), Insert(where, ("x = 1",))], [Insert(where, ("x = 1",)), Within(where, "c()")]):
        assert edited(source, edits) == HEAD + "x = 1\nwith c():\n    y = draw(x)\n"


@pytest.mark.parametrize("line", ["if draw(x):\n    pass\n", "a = 1; y = draw(x)\n", 'y = draw(x), """\n"""\n'])
def test_what_does_not_stand_alone_gets_no_block(line: str):
    source = HEAD + line
    assert edited(source, [Within(at(source, "draw(x)"), "c()")]) is None


@pytest.mark.parametrize("quotes", ['"', "'", '"""'])
def test_in_an_f_string_other_quotes_are_used(quotes: str):
    line = f"print(f{quotes}loss {{loss.item():.3f}} of {{n}}{quotes})\n"
    start = line.index("loss.item")
    wrap = Wrap(SourceLocation("p.py", 2, 2, start, start + 4), "all_reduce", '"dp"', "P", "R")
    text = edited("import shardwise as spmd\n" + line, [wrap])
    axis = "'dp'" if quotes == '"' else '"dp"'
    assert text is not None
    assert f"{{spmd.all_reduce(loss, {axis}, src=spmd.P, dst=spmd.R).item():.3f}}" in text


def test_a_step_may_have_further_arguments():
    source = HEAD + "g(y + x)\n"
    done = edited(source, [Wrap(at(source, "y + x"), "all_reduce", '"tp"', "P", "R", 'op="avg"')])
    assert done == HEAD + 'g(spmd.all_reduce(y + x, "tp", src=spmd.P, dst=spmd.R, op="avg"))\n'


def wrapped(source: str, text: str) -> str | None:
    return edited(source, [Wrap(at(source, text), "all_reduce", '"tp"', "P", "R")])


def test_a_file_that_declares_another_encoding_may_have_names_in_it():
    source = "# -*- coding: latin-1 -*-\n" + HEAD + "yé = g(é)\n"
    assert wrapped(source, "é") is None  # it is a target, which no call can stand for
    source = source.replace("yé", "y")
    assert wrapped(source, "é") == source.replace("g(é)", 'g(spmd.all_reduce(é, "tp", src=spmd.P, dst=spmd.R))')


@pytest.mark.parametrize("end", ["\r", "\r\n", "\n", ""])
def test_line_ends_stay(end: str):
    source = (HEAD + "z = g(y)").replace("\n", end or "\n") + end
    done = edited(source, [Wrap(SourceLocation("a.py", 4, 4, 6, 7), "all_reduce", '"tp"', "P", "R")])
    assert done == source.replace("g(y)", 'g(spmd.all_reduce(y, "tp", src=spmd.P, dst=spmd.R))')


@pytest.mark.parametrize(
    ("head", "call"),
    [
        # what one function imports, the others do not have
        (HEAD + "def f():\n    import shardwise as sw\n", "spmd.all_reduce(y, 'tp', src=spmd.P, dst=spmd.R)"),
        # a name that is bound again may be anything
        (HEAD + "from shardwise import P, R\nR = 3\n", "spmd.all_reduce(y, 'tp', src=P, dst=spmd.R)"),
        (HEAD + "spmd = None\n", "all_reduce(y, 'tp', src=P, dst=R)"),
        (HEAD + "def f(spmd, P):\n    pass\n", "shardwise.all_reduce(y, 'tp', src=shardwise.P, dst=shardwise.R)"),
    ],
    ids=["function", "variable", "alias", "parameter"],
)
def test_our_names_are_said_where_they_mean_ours(head: str, call: str):
    done = edited(head + "z = g(y)\n", [Wrap(at(head + "z = g(y)\n", "g(y)"), "all_reduce", "'tp'", "P", "R")])
    assert done is not None
    assert f"z = {call.replace('(y,', '(g(y),')}\n" in done


@pytest.mark.parametrize("line", ["z = 1; td.all_reduce(y); x = 2\n", "if go: td.all_reduce(y)\n"])
def test_a_call_that_shares_its_line_is_left_out(line: str):
    source = HEAD + line
    assert edited(source, [Remove(at(source, "td.all_reduce(y)"))]) == source.replace("td.all_reduce(y)", "pass")


def test_a_source_that_only_python_reads_is_left():
    source = "if True:\n    if True:\n\t    y = relu(p)\n"
    compile(source, "a.py", "exec")
    call = at(source, "relu(p)")
    operand = at(source, "p)")
    assert edited(source, [Wrap(operand, *STEP)]) is None
    assert edited(source, [Rewrite(call, "p")]) is None
