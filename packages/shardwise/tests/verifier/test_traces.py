"""What a rank tells of its tensors is enough: where they lie, their bits, and what has to be asked for."""

from __future__ import annotations

import os

import pytest
import torch

from shardwise.diagnostics.errors import SpmdValueError
from shardwise.diagnostics.source_location import SourceLocation
from shardwise.interop.running.recording import Draw, HeldElements, Key, Record, Recorder, StepSettings
from shardwise.types.tensor_type import UNTYPED
from shardwise.verifier.comparison import traces
from shardwise.verifier.comparison.compare import compare
from shardwise.verifier.comparison.traces import Told, TracingRecorder, rebuilt
from shardwise.verifier.layouts.places import Place, place_of, taken
from shardwise.verifier.records.options import VerifyOptions
from shardwise.verifier.records.record import RankRun
from shardwise.verifier.records.references import References, load, save


def numbered(*shape: int) -> torch.Tensor:
    return (torch.arange(torch.Size(shape).numel(), dtype=torch.float64) * 0.7).sin().view(shape)


WHOLE = numbered(12, 8)
PIECES = {
    "all of it": WHOLE,
    "rows": WHOLE[4:8],
    "columns": WHOLE[:, 6:],
    "a block": WHOLE[6:, :4],
    "every third row": WHOLE[1::3],
    "a part of each of two": torch.cat([WHOLE[0:3], WHOLE[6:9]]),
    "a part of query, key and value": torch.cat([WHOLE[2:4], WHOLE[6:8], WHOLE[10:12]]),
    "the shorter last one": WHOLE[10:],
    "a transposed view of its memory": WHOLE.t().contiguous().t()[3:6],
}


@pytest.mark.parametrize("piece", PIECES.values(), ids=PIECES)
@pytest.mark.parametrize("rounding", [0.0, 1e-12])
def test_a_piece_is_found_where_it_lies(piece, rounding):
    place = place_of(piece + rounding, WHOLE, 1e-9)
    assert place is not None
    assert torch.equal(taken(WHOLE, place), piece)
    assert place_of(piece + rounding, WHOLE, 1e-9, first=place) == place


@pytest.mark.parametrize(
    "piece", [WHOLE * 3, WHOLE[:4] + WHOLE[4:8], WHOLE[0], WHOLE[:4].float(), numbered(13, 8), WHOLE[:0], WHOLE.flip(0)]
)
def test_what_is_no_piece_has_no_place(piece):
    assert place_of(piece, WHOLE, 1e-9) is None


def test_a_place_that_does_not_fit_is_not_believed():
    far: Place = (((100, 4, 1),), ((0, 8, 1),))
    assert place_of(WHOLE[:4], WHOLE, 0.0, first=far) == (((0, 4, 1),), ((0, 8, 1),))


def recorded(recorder: Recorder, values: dict[tuple[str, str], torch.Tensor]) -> RankRun:
    for (kind, name), value in values.items():
        recorder.add(kind, name, value, UNTYPED, None)
    return RankRun(entries=recorder.entries)


WEIGHT, BIG = numbered(64, 32), numbered(128, 32) + 2
ALONE = {
    ("parameter", "w"): WEIGHT,
    ("gradient", "w"): WEIGHT / 3,
    ("trained", "w"): BIG[:64],
    ("loss", ""): BIG.mean(),
}


def piece_of_rank(rank: int) -> dict[tuple[str, str], torch.Tensor]:
    return {key: value.chunk(2)[rank].clone() if value.ndim else value for key, value in ALONE.items()}


def verdict(ranks: list[dict[tuple[str, str], torch.Tensor]]) -> tuple[object, int]:
    """What the comparison says of ranks that tell only traces, and how much had to be asked for."""
    alone = recorded(Recorder(), ALONE)
    recorders = [TracingRecorder(alone.entries, None) for _ in ranks]
    told = [Told(recorded(one, values), one.traces) for one, values in zip(recorders, ranks, strict=True)]
    for one in told:
        assert all(entry.value is None for entry in one.run.entries if isinstance(entry, Record))
    made = rebuilt(told, alone.entries, lambda rank, at: recorders[rank].kept[at])
    whole = compare([recorded(Recorder(), values) for values in ranks], alone, mesh={"tp": len(ranks)})
    traced = compare(made.runs, alone, mesh={"tp": len(ranks)})
    said = [(one.key, one.said, one.rank, one.index) for one in traced.disagreements]
    assert said == [(one.key, one.said, one.rank, one.index) for one in whole.disagreements]
    assert (traced.equal, traced.replicas, traced.parting) == (whole.equal, whole.replicas, whole.parting)
    return said, made.asked_bytes


def test_pieces_of_a_right_run_need_not_be_asked_for():
    said, asked = verdict([piece_of_rank(0), piece_of_rank(1)])
    assert (said, asked) == ([], 0)


def test_a_wrong_tensor_is_asked_for_and_told_as_if_all_had_travelled():
    wrong = [{**piece_of_rank(rank), ("gradient", "w"): piece_of_rank(rank)["gradient", "w"] * 2} for rank in (0, 1)]
    said, asked = verdict(wrong)
    assert len(said) == 1
    assert asked == 2 * wrong[0]["gradient", "w"].nbytes


def test_a_rank_with_the_piece_of_another_is_told():
    _, asked = verdict([piece_of_rank(0), piece_of_rank(0)])
    assert asked == 0


def test_replicas_with_other_last_bits_are_asked_for():
    near = {key: value + 1e-14 if key[0] == "gradient" else value for key, value in ALONE.items()}
    said, asked = verdict([ALONE, near])
    assert len(said) == 1
    assert asked == near["gradient", "w"].nbytes


def test_ranks_may_call_a_layer_otherwise():
    alone = recorded(Recorder(), {("parameter", "layers.2.w"): WEIGHT, ("parameter", "layers.3.w"): BIG})
    recorder = TracingRecorder(alone.entries, None)
    recorded(recorder, {("parameter", "layers.0.w"): BIG[64:]})
    (trace,) = recorder.traces.values()
    assert trace.there is not None
    assert (trace.there.name, trace.exact, recorder.kept) == ("layers.3.w", True, {})


def test_what_exceeds_the_limits_is_listed_and_not_kept(monkeypatch):
    monkeypatch.setattr(traces, "KEPT_BYTES", WEIGHT.nbytes)
    alone = recorded(Recorder(), {("parameter", "w"): WEIGHT, ("gradient", "w"): WEIGHT / 3})
    recorder = TracingRecorder(alone.entries, None)
    run = recorded(recorder, {("parameter", "w"): WEIGHT * 2, ("gradient", "w"): WEIGHT * 2})
    assert recorder.kept_bytes == WEIGHT.nbytes
    made = rebuilt([Told(run, recorder.traces)], alone.entries, lambda rank, at: recorder.kept[at])
    first, second = (entry for entry in made.runs[0].entries if isinstance(entry, Record))
    assert first.value is not None
    assert (second.value, second.missing) == (None, traces.NOT_KEPT)
    monkeypatch.setattr(traces, "ASKED_BYTES", 1)
    first.value = None
    made = rebuilt([Told(run, recorder.traces)], alone.entries, lambda rank, at: recorder.kept[at])
    assert (first.value, first.missing, made.asked) == (None, traces.NOT_ASKED, 0)


def test_references_that_are_written_into_a_pipe_leave_it_a_pipe(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reading = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        save(References("train.py", {}, recorded(Recorder(), {("parameter", "w"): torch.ones(2)})), str(pipe))
        assert os.read(reading, 4)
    finally:
        os.close(reading)
    assert pipe.is_fifo()
    assert [path.name for path in tmp_path.iterdir()] == ["pipe"]


def test_references_are_read_as_they_were_written(tmp_path):
    alone = recorded(Recorder(), ALONE)
    alone.entries.append(Draw(Key("drawn", "randn", None), b"\x01\x02", (3, 4), False))
    held = HeldElements((2, 3), ((1, 2), (4, 6)))
    alone.entries.append(Record(Key("gradient", "w", None), UNTYPED, "", torch.ones(3), held=held))
    alone.dtypes, alone.steps = {torch.float64, torch.bfloat16}, [1, 4]
    alone.settings = [StepSettings(0, 1, SourceLocation("train.py", 9), ({"lr": 0.1}, {"lr": 0.2, "eps": 1e-8}))]
    file = str(tmp_path / "references")
    save(References("train.py", {"every": True}, alone), file)
    read = load(file)
    assert (read.program, read.options, read.run.dtypes) == ("train.py", {"every": True}, alone.dtypes)
    assert read.run.steps == alone.steps
    assert read.run.settings == alone.settings
    for one, other in zip(read.run.entries, alone.entries, strict=True):
        assert one.key == other.key
        if isinstance(one, Draw):
            assert one == other
        else:
            assert isinstance(other, Record)
            assert one.value is not None
            assert other.value is not None
            assert torch.equal(one.value, other.value)
            assert one.held == other.held
    read.require(VerifyOptions(every=True))
    with pytest.raises(SpmdValueError, match="recorded with --every"):
        read.require(VerifyOptions())


@pytest.mark.parametrize("content", [None, b"", b"not a file of tensors"])
def test_what_is_no_file_of_references_is_refused(tmp_path, content):
    file = tmp_path / "references"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(SpmdValueError, match="references"):
        load(str(file))
    torch.save({"schema": "something else"}, file)
    with pytest.raises(SpmdValueError, match="does not say that it is"):
        load(str(file))
