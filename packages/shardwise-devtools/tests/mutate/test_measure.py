"""Are mutants judged by what running them shows? Each one runs on two real processes and on one."""

from __future__ import annotations

from pathlib import Path

import pytest

from shardwise.host.program import Program
from shardwise_devtools.mutate.files import files_of
from shardwise_devtools.mutate.judge import Fate, Judged, Said
from shardwise_devtools.mutate.measure import Bench, Unfit, judge_all
from shardwise_devtools.mutate.mutants import mutants_in

pytestmark = [pytest.mark.processes, pytest.mark.xdist_group("mutate")]

LAYER = """\
import shardwise as spmd
from shardwise import I, P, R, S, V

def leave(y):
    return spmd.all_reduce(y, "tp", src=P, dst=I)

HEADS = int("4")  # such a file is compiled anew, for numbers to carry their types
"""
TRAIN = """\
import torch
import torch.distributed as dist
from layer import leave
from torch.distributed.device_mesh import init_device_mesh
import shardwise as spmd
from shardwise import I, P, R, S, V

torch.set_default_dtype(torch.float64)
mesh = init_device_mesh("cpu", (dist.get_world_size(),), mesh_dim_names=("tp",))

def whole(*shape):
    return torch.randn(shape, generator=torch.Generator().manual_seed(len(shape)))

with spmd.set_current_mesh(mesh):
    piece = whole(6, 4).chunk(mesh.size())[mesh.get_local_rank()]
    weight = spmd.assert_type(torch.nn.Parameter(piece), {"tp": S(0)})
    x = spmd.assert_type(whole(4), {"tp": I})
    h = weight @ spmd.convert(x, "tp", src=I, dst=R)
    total = leave(spmd.sum(h * h, 0, out_partial_axes="tp"))
    loss = total.sqrt() / 24
    loss.backward()
    torch.optim.SGD([weight], lr=0.1).step()
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("program")
    (folder / "layer.py").write_text(LAYER)
    (folder / "train.py").write_text(TRAIN)
    return folder


def program(folder: Path) -> Program:
    return Program(path=str(folder / "train.py"))


@pytest.fixture(scope="module")
def judged(folder: Path) -> list[Judged]:
    mutants = mutants_in(folder / "train.py", ("tp",), ("drop", "double", "kind", "order", "denominator"))
    return list(judge_all(Bench.of(program(folder), {"tp": 2}), mutants, 2))


def fates(judged: list[Judged], after: str) -> set[tuple[str, Fate]]:
    return {(one.mutant.place, one.fate) for one in judged if after in one.mutant.after}


@pytest.mark.slow
def test_a_forgotten_sum_is_wrong_and_rejected(judged: list[Judged]) -> None:
    """Mutated in the file that is imported, and where it is called."""
    dropped = [one for one in judged if one.mutant.operator == "drop" and "convert" not in one.mutant.before]
    places = {"train.py:19", "layer.py:5"}
    assert {(one.mutant.place, one.fate) for one in dropped} == {(place, Fate.KILLED) for place in places}
    for one in dropped:
        assert "differs" in one.measured.detail
        assert [bool(said.findings) for said in one.said] == [True]  # one mode is enough


@pytest.mark.slow
def test_one_imagined_rank_is_asked_before_all_real_ones(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench.of(program(folder), {"tp": 2})
    assert bench.imagined == ("local", "global")
    dropped = next(one for one in mutants_in(folder / "train.py", ("tp",), ("drop",)) if "sum" in one.before)
    monkeypatch.setattr(Bench, "findings", lambda *_: pytest.fail("a verdict of one rank is enough"))
    assert bench.judge(dropped)[1] == (Said("local", ("SW112 at train.py:20",)),)


@pytest.mark.slow
def test_what_one_rank_cannot_know_is_asked_of_all(tmp_path: Path) -> None:
    """A program that raises where the values of the other rank are imagined."""
    (tmp_path / "layer.py").write_text(LAYER)
    known = TRAIN.replace("    loss.backward()", "    assert 3.25 < total < 3.26\n    loss.backward()")
    (tmp_path / "train.py").write_text(known)
    bench = Bench.of(program(tmp_path), {"tp": 2})
    assert bench.imagined == ()


def test_a_number_that_depends_on_the_mesh_is_left_to_verify(judged: list[Judged]) -> None:
    assert fates(judged, "get_world_size") == {("train.py:20", Fate.VERIFIED)}


def test_a_change_that_is_the_same_on_one_device_is_harmless(judged: list[Judged]) -> None:
    found = [one for one in judged if one.mutant.operator == "denominator" and "world" not in one.mutant.after]
    assert {one.fate for one in found} == {Fate.HARMLESS}
    assert not any(one.measured.unchanged for one in found)


def test_a_coercion_without_a_gradient_is_harmless(judged: list[Judged]) -> None:
    """``x`` needs no gradient, so nothing depends on its conversion."""
    found = [one for one in judged if one.mutant.before == 'spmd.convert(x, "tp", src=I, dst=R)']
    fates = {one.mutant.operator: one.fate for one in found}
    assert fates == {"drop": Fate.HARMLESS, "double": Fate.HARMLESS, "kind": Fate.LOUD}
    assert all(one.measured.unchanged for one in found if one.fate is not Fate.LOUD)


def test_nothing_on_disk_is_changed(folder: Path, judged: list[Judged]) -> None:
    assert judged
    assert (folder / "train.py").read_text() == TRAIN
    assert (folder / "layer.py").read_text() == LAYER


@pytest.mark.slow_but_one_in(4)
@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("leave(spmd.sum", "(spmd.sum", "the checker rejects it with local types: SW112 at train.py:20"),
        ("/ 24", "/ 24 / dist.get_world_size()", "its numbers are wrong: loss: differs from the run on one rank"),
        ("loss.backward()", "raise ValueError('no data')", "raised ValueError: no data"),
        (TRAIN[TRAIN.index("    piece") :], "    pass", "nothing in it can be compared"),
    ],
)
def test_a_program_that_does_not_pass_itself_is_refused(tmp_path: Path, old: str, new: str, said: str) -> None:
    (tmp_path / "layer.py").write_text(LAYER)
    (tmp_path / "train.py").write_text(TRAIN.replace(old, new))
    with pytest.raises(Unfit, match=said):
        Bench.of(program(tmp_path), {"tp": 2})


def test_the_program_is_its_script_and_the_neighbours_it_imports(folder: Path, tmp_path: Path) -> None:
    assert [source.path.name for source in files_of(folder / "train.py")] == ["train.py", "layer.py"]
    (tmp_path / "package" / "inner").mkdir(parents=True)
    for name, text in {
        "main.py": "import package.inner.deep\nfrom package import other",
        "package/__init__.py": "",
        "package/other.py": "from .inner import deep, absent",
        "package/inner/__init__.py": "",
        "package/inner/deep.py": "import json",
        "unused.py": "",
    }.items():
        (tmp_path / name).write_text(text)
    found = {str(source.path.relative_to(tmp_path.resolve())) for source in files_of(tmp_path / "main.py")}
    assert found == {
        "main.py",
        "package/__init__.py",
        "package/inner/__init__.py",
        "package/inner/deep.py",
        "package/other.py",
    }
