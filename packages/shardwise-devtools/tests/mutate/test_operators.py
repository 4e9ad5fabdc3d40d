"""Does each operator of mutation make the mistakes it is named after, and nothing but them?"""

from __future__ import annotations

import ast
import textwrap
from pathlib import Path

import pytest

from shardwise_devtools.mutate.between_ranks import WORLD
from shardwise_devtools.mutate.idioms import messengers, wrappers
from shardwise_devtools.mutate.operators import OPERATORS, Mutant, mutants_of
from shardwise_devtools.mutate.scene import Scene
from shardwise_devtools.mutate.source import Edit, Source

HEAD = "import shardwise as spmd\nfrom shardwise import I, P, R, S, V\n"


def mutants(code: str, *operators: str) -> list[Mutant]:
    source = Source(Path("program.py"), textwrap.dedent(code))
    return list(mutants_of(Scene(source, ("dp", "tp"), wrappers([source]), messengers([source])), operators))


def made(code: str, operator: str) -> list[str]:
    """What stands in the place of the marked text, for every mutant of one operator."""
    return [mutant.after for mutant in mutants(HEAD + code, operator)]


CASES = {
    "drop takes the operand": ("drop", 'y = spmd.all_reduce(x, "tp", src=P, dst=R)', ["x"]),
    "drop keeps what is computed together": ("drop", 'y = spmd.all_reduce(a + b, "tp", dst=R) * 2', ["(a + b)"]),
    "drop of a statement leaves none": ("drop", "for p in ps:\n    dist.all_reduce(p.grad)", ["pass"]),
    "double nests": (
        "double",
        'y = spmd.all_reduce(x, "tp", dst=R)',
        ['spmd.all_reduce(spmd.all_reduce(x, "tp", dst=R), "tp", dst=R)'],
    ),
    "double repeats a statement": ("double", "dist.all_reduce(g)", ["dist.all_reduce(g); dist.all_reduce(g)"]),
    "axis names every other one": (
        "axis",
        'y = spmd.all_reduce(x, "tp", dst=R)',
        ['spmd.all_reduce(x, "dp", dst=R)'],
    ),
    "axis reaches into a group": (
        "axis",
        'dist.all_reduce(g, group=mesh.get_group("dp"))',
        ['dist.all_reduce(g, group=mesh.get_group("tp"))'],
    ),
    "dim counts up and down, not below 0": (
        "dim",
        'y = spmd.all_gather(x, "tp", src=S(0), dst=R)',
        ['spmd.all_gather(x, "tp", src=S(1), dst=R)'],
    ),
    "transition names the other placements": (
        "transition",
        'y = spmd.all_reduce(x, "tp", dst=I)',
        [f'spmd.all_reduce(x, "tp", dst={letter})' for letter in "RVP"],
    ),
    "transition of a mean": (
        "transition",
        'y = spmd.mean(x, "tp", src=S(0), dst=P)',
        [
            *(f'spmd.mean(x, "tp", src={letter}, dst=P)' for letter in "RIVP"),
            *(f'spmd.mean(x, "tp", src=S(0), dst={letter})' for letter in "RIV"),
        ],
    ),
    "kind swaps keeping bits and keeping the value": (
        "kind",
        'y = spmd.convert(x, "tp", src=I, dst=R)',
        ['spmd.reinterpret(x, "tp", src=I, dst=R)'],
    ),
    "bias goes under the sum": (
        "bias",
        'y = spmd.all_reduce(x, "tp", dst=R) + b',
        ['spmd.all_reduce(x + b, "tp", dst=R)'],
    ),
    "bias comes out of the sum": (
        "bias",
        'y = spmd.all_reduce(x + b, "tp", dst=R)',
        ['(spmd.all_reduce(x, "tp", dst=R) + b)'],
    ),
    "bias on the left of it": (
        "bias",
        'y = b + spmd.all_reduce(x, "tp", dst=R)',
        ['spmd.all_reduce(b + x, "tp", dst=R)'],
    ),
    "order swaps with a function": (
        "order",
        'y = F.gelu(spmd.all_reduce(x, "tp", dst=R), approximate="tanh")',
        ['spmd.all_reduce(F.gelu(x, approximate="tanh"), "tp", dst=R)'],
    ),
    "order swaps with a method": (
        "order",
        'y = spmd.all_reduce(x.exp(), "tp", dst=R)',
        ['spmd.all_reduce(x, "tp", dst=R).exp()'],
    ),
    "late moves the call down a line": (
        "late",
        'def f(x):\n    y = spmd.all_reduce(x, "tp", dst=R)\n    return y.exp()',
        ['x return spmd.all_reduce(y.exp(), "tp", dst=R)'],
    ),
    "denominator is dropped, or counts the ranks too": (
        "denominator",
        'loss = spmd.all_reduce(x, "dp", dst=R) / n\ny = x / n',
        [
            'spmd.all_reduce(x, "dp", dst=R)',
            "(spmd.all_reduce(x, \"dp\", dst=R) / n / __import__('torch').distributed.get_world_size())",
        ],
    ),
    "a mean is a sum": ("denominator", "def loss_of(x):\n    return x.mean()", ["x.sum()"]),
    "apart means over the own piece": (
        "apart",
        'y = spmd.mean(a - b, "tp", src=S(0), dst=P)\nz = spmd.mean(x, (0, 1), out_partial_axes=("dp", "tp"))',
        ["(a - b).mean()", "x.mean((0, 1))"],
    ),
    "neighbour turns round, and goes one further": (
        "neighbour",
        "box.send(y, rank + 1, TAG)\nx = box.receive(y, rank - 1, TAG)",
        [
            *("box.send(y, rank - 1, TAG)", "box.send(y, rank + 1 + 1, TAG)"),
            *("box.receive(y, rank + 1, TAG)", "box.receive(y, rank - 1 - 1, TAG)"),
        ],
    ),
    "neighbour of a shift of the program": (
        "neighbour",
        "def turned(x, by):\n    got = like(x)\n    dist.recv(got, by)\n    return got\ny = turned(x, -1)",
        ["turned(x, 1)", "turned(x, -2)"],
    ),
    "unsent leaves what was there": (
        "unsent",
        "def turned(x, by):\n    got = like(x)\n    dist.recv(got, by)\n    return got\ny = turned(x, 1)",
        ["x", "pass"],
    ),
    "unsent through an autograd function": (
        "unsent",
        "class Turn(Function):\n    def forward(ctx, x):\n        dist.recv(got, 1)\n        return got\n"
        "def passed(x):\n    y = Turn.apply(x)\n    return y\nz = passed(a + b)",
        ["(a + b)", "pass"],
    ),
    "tag names the other kind": (
        "tag",
        "box.send(y, 1, TAG)\nbox.send(g, 0, OTHER)",
        ["box.send(y, 1, OTHER)", "box.send(g, 0, TAG)"],
    ),
    "group of another axis, but not that of a collective": (
        "group",
        'g = mesh.get_group("dp")\nn = mesh["tp"].size()\ndist.all_reduce(x, group=mesh.get_group("dp"))',
        ['mesh.get_group("tp")', 'mesh["dp"]'],
    ),
    "blocks are exchanged in a type and where they are joined": (
        "blocks",
        'w = weight("w", "f64[8@(dp,tp), 4]")\ny = torch.cat([a, b], 1)',
        ['"f64[8@(tp,dp), 4]"', "torch.cat(list([a, b])[::-1], 1)"],
    ),
    "letter of a type": (
        "letter",
        'w = weight("w", "f64[8, 4] {dp: R, tp: I}")',
        [f'"f64[8, 4] {{{kind}}}"' for kind in ("dp: I, tp: I", "dp: V, tp: I", "dp: R, tp: R", "dp: R, tp: V")],
    ),
    "scale makes a mean of a sum": (
        "scale",
        'y = spmd.all_reduce(x, "tp", src=P, dst=R)\ndist.all_reduce(g)\nz = spmd.all_gather(y, "tp", src=S(0), dst=R)',
        [
            f'(spmd.all_reduce(x, "tp", src=P, dst=R) / {WORLD})',
            f"dist.all_reduce(g); g.div_({WORLD})",
        ],
    ),
    "slice takes the piece of another rank": (
        "slice",
        "y = x.chunk(n)[rank]\nz = x[2]",
        ["x.chunk(n)[0]", "x.chunk(n)[rank - 1]"],
    ),
    "reduction averages": (
        "reduction",
        "dist.all_reduce(g, op=dist.ReduceOp.SUM)",
        ["dist.all_reduce(g, op=dist.ReduceOp.AVG)", "dist.all_reduce(g, op=dist.ReduceOp.MAX)"],
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_an_operator_makes_its_mistakes(name: str) -> None:
    operator, code, expected = CASES[name]
    assert made(code, operator) == expected


def test_every_operator_has_a_case() -> None:
    assert {operator for operator, _, _ in CASES.values()} == set(OPERATORS)


def test_a_function_around_a_collective_is_forgotten_like_one() -> None:
    code = """
        class Layer:
            def leave(self, x):
                return spmd.all_reduce(x, "tp", dst=R)

            def forward(self, x):
                return self.leave(x @ self.weight)
        """
    dropped = [mutant.after for mutant in mutants(code, "drop")]
    assert dropped == ["x", "(x @ self.weight)"]


@pytest.mark.parametrize(
    "code",
    [
        'spmd.assert_type(x, {"tp": S(0), "dp": P})',
        '@spmd.local_map(in_types=({"tp": S(0)},), out_types={"tp": P})\ndef f(x):\n    return x',
        "y = torch.sum(x) + F.linear(a, b)",
        "y = group.convert(x)",
    ],
)
def test_what_only_promises_or_computes_is_left_alone(code: str) -> None:
    assert mutants(HEAD + code) == []


def test_a_placement_is_written_as_the_file_can_read_it() -> None:
    code = 'import shardwise as sw\nfrom shardwise import R\ny = sw.all_reduce(x, "tp", dst=R)'
    assert next(one.after for one in mutants(code, "transition")) == 'sw.all_reduce(x, "tp", dst=sw.I)'
    code = 'import shardwise\ny = shardwise.all_reduce(x, "tp", dst=shardwise.R)'
    assert next(one.after for one in mutants(code, "transition")).endswith("dst=shardwise.I)")


def test_a_mutant_differs_in_nothing_but_the_mistake() -> None:
    code = HEAD + '# größer\ny = "µ", spmd.all_reduce(x, "tp", dst=R)  # kept\nz = 1\n'
    (mutant,) = mutants(code, "drop")
    assert mutant.text == code.replace('spmd.all_reduce(x, "tp", dst=R)', "x")
    assert (mutant.line, mutant.place) == (4, "program.py:4")


@pytest.mark.slow
def test_all_mutants_of_the_example_parse_and_differ() -> None:
    folder = Path(__file__).parents[4] / "examples/gpt"
    sources = [Source(path, path.read_text()) for path in sorted(folder.glob("*.py"))]
    names = wrappers(sources)
    assert names == {"enter", "leave", "at_use"}
    found = [mutant for source in sources for mutant in mutants_of(Scene(source, ("dp", "tp"), names))]
    assert len(found) > 100
    forms = {(mutant.source.path, ast.dump(ast.parse(mutant.text))) for mutant in found}
    assert len(forms) == len(found)


def test_edits_that_overlap_are_refused() -> None:
    with pytest.raises(AssertionError, match="overlap"):
        Source(Path("a.py"), "abcdef").edited([Edit(0, 3, ""), Edit(2, 4, "")])
