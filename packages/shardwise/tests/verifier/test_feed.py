"""Are ranks that draw batches of their own compared with one rank that gets all of them, and is a bug in them found?"""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest
import torch
from torch.utils.data import DataLoader

from shardwise.diagnostics.errors import SpmdValueError
from shardwise.diagnostics.result import ExitCode
from shardwise.host.program import Program
from shardwise.verifier.records.batches import Batches, is_shared, merged
from shardwise.verifier.records.options import VerifyOptions
from shardwise.verifier.records.subject import Script
from shardwise.verifier.run import verify_subject
from shardwise.verifier.runs.loading import Loading
from shardwise.verifier.text import Verdict

TRAIN = """
    import torch
    import torch.distributed as dist
    import torch.nn as nn
    from torch.nn.parallel import DistributedDataParallel as DDP
    from torch.utils.data import DataLoader, Dataset, DistributedSampler

    class Augmented(Dataset):
        def __init__(self):
            self.x = torch.randn(16, 4, generator=torch.Generator().manual_seed(3))

        def __len__(self):
            return len(self.x)

        def __getitem__(self, at):
            return self.x[at] + 0.1 * torch.randn(4), at % 2

    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = nn.Linear(4, 2)
    ddp = {wrapped}
    torch.manual_seed(1 + dist.get_rank())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    data = Augmented()
    loader = DataLoader(data, batch_size=4, sampler=DistributedSampler(data, shuffle=True, seed=2))
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, total_iters=len(loader))
    for x, y in loader:
        optimizer.zero_grad()
        nn.functional.cross_entropy(ddp(x), y).backward()
        optimizer.step()
        schedule.step()
"""


def verdict_on(folder: Path, *, wrapped: str = "DDP(model)", feed: bool | None = True) -> Verdict:
    script = folder / "script.py"
    script.write_text(textwrap.dedent(TRAIN.replace("{wrapped}", wrapped)))
    options = VerifyOptions(strict=False, timeout_s=60.0, narrow=False, feed=feed)
    return verify_subject(Script(Program(path=str(script))), {"dp": 2}, options)


@pytest.mark.processes
def test_batches_of_the_ranks_own_are_compared(tmp_path):
    verdict = verdict_on(tmp_path)
    assert verdict.exit_code is ExitCode.CLEAN, str(verdict)
    assert verdict.numbers.gradients == 4
    assert "one rank was given what all ranks drew together: 2 batches" in str(verdict)


@pytest.mark.processes
def test_without_feeding_the_runs_part(tmp_path):
    assert verdict_on(tmp_path, feed=False).exit_code is ExitCode.INCONCLUSIVE


@pytest.mark.processes
def test_where_the_runs_part_the_one_rank_is_fed_without_being_told(tmp_path):
    verdict = verdict_on(tmp_path, feed=None)
    assert verdict.exit_code is ExitCode.CLEAN, str(verdict)
    assert "one rank was given what all ranks drew together: 2 batches" in str(verdict)


@pytest.mark.processes
def test_a_forgotten_wrapper_is_found(tmp_path):
    verdict = verdict_on(tmp_path, wrapped="model")
    assert verdict.exit_code is ExitCode.FINDINGS
    assert verdict.numbers.disagreements[0].key.kind == "gradient", str(verdict)


@pytest.mark.processes
def test_replicas_that_all_read_the_same_are_no_green(tmp_path):
    (tmp_path / "script.py").write_text(
        textwrap.dedent(TRAIN.replace("{wrapped}", "DDP(model)"))
        .replace("shuffle=True", "shuffle=True, rank=0")
        .replace("torch.manual_seed(1 + dist.get_rank())", "torch.manual_seed(1)")
    )
    options = VerifyOptions(strict=False, timeout_s=60.0, narrow=False, feed=True)
    verdict = verify_subject(Script(Program(path=str(tmp_path / "script.py"))), {"dp": 2}, options)
    assert verdict.exit_code is ExitCode.INCONCLUSIVE, str(verdict)
    assert "all ranks hold the same parameters and drew the same batches" in str(verdict)


SAME = "the model's wrapper shares out the data, and every rank trains on the same"
PLAIN = """
    import torch
    import torch.distributed as dist
    import torch.nn as nn
    from torch.nn.parallel import DistributedDataParallel as DDP
    from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

    dist.init_process_group("gloo")
    torch.manual_seed(0)
    data = TensorDataset(torch.randn(16, 4), torch.randn(16, 2))
    model = DDP(nn.Linear(4, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for x, y in DataLoader(data, batch_size=8 // dist.get_world_size(), sampler=DistributedSampler(data)):
        optimizer.zero_grad()
        (model(x) - y).square().mean().backward()
        optimizer.step()
"""
IMPORT = "from torch.distributed.fsdp import fully_shard\n"
SHARDED = """fully_shard(model)
    ddp = model"""


@pytest.mark.processes
@pytest.mark.parametrize("same", [True, False], ids=["same", "own"])
def test_shards_that_are_all_trained_on_the_same_are_no_green(tmp_path, same):
    text = textwrap.dedent(TRAIN.replace("{wrapped}", SHARDED))
    text = text.replace("import torch.nn as nn\n", "import torch.nn as nn\n" + IMPORT, 1)
    if same:
        text = text.replace("shuffle=True", "shuffle=True, rank=0")
    (tmp_path / "script.py").write_text(text.replace(" + 0.1 * torch.randn(4)", ""))
    options = VerifyOptions(strict=False, timeout_s=60.0, narrow=False, feed=True)
    verdict = verify_subject(Script(Program(path=str(tmp_path / "script.py"))), {"dp": 2}, options)
    assert verdict.exit_code is (ExitCode.INCONCLUSIVE if same else ExitCode.CLEAN), str(verdict)
    assert (SAME in str(verdict)) == same


@pytest.mark.processes
@pytest.mark.parametrize("sampled", [False, True], ids=["no sampler", "a sampler"])
def test_a_sampler_that_is_left_out_is_no_green(tmp_path, sampled):
    text = textwrap.dedent(PLAIN)
    if not sampled:
        text = text.replace(", sampler=DistributedSampler(data)", "").replace("8 // dist.get_world_size()", "8")
    (tmp_path / "script.py").write_text(text)
    options = VerifyOptions(strict=False, timeout_s=60.0)
    verdict = verify_subject(Script(Program(path=str(tmp_path / "script.py"))), {"dp": 2}, options)
    assert verdict.exit_code is (ExitCode.CLEAN if sampled else ExitCode.INCONCLUSIVE), str(verdict)
    assert (SAME in str(verdict)) != sampled


@pytest.mark.processes
def test_what_ranks_read_alike_of_one_batch_is_found_and_not_fed(tmp_path):
    (tmp_path / "script.py").write_text(
        textwrap.dedent(TRAIN.replace("{wrapped}", "DDP(model)"))
        .replace("shuffle=True", "shuffle=True, rank=0")
        .replace("batch_size=4", "batch_size=8 // dist.get_world_size()")
        .replace(" + 0.1 * torch.randn(4)", "")
    )
    options = VerifyOptions(strict=False, timeout_s=60.0, narrow=False)
    verdict = verify_subject(Script(Program(path=str(tmp_path / "script.py"))), {"dp": 2}, options)
    assert verdict.exit_code is ExitCode.FINDINGS, str(verdict)
    assert "is piece 0 of 2 of the run on one rank on rank 1 as on rank 0" in str(verdict)


def rank(*batches: torch.Tensor) -> Batches:
    return Batches({(0, 0): [{"x": batch, "name": "a"} for batch in batches]}, {0: len(batches)})


def test_a_global_batch_has_every_batch_once():
    one, other = torch.tensor([1, 2]), torch.tensor([3, 4])
    whole = merged([rank(one), rank(other), rank(one), rank(other)])
    ((batch,),) = whole.drawn.values()
    assert batch["x"].tolist() == [1, 2, 3, 4]
    assert batch["name"] == "a"
    assert is_shared([rank(one), rank(one)])
    assert not is_shared([rank(one), rank(other)])


def test_batches_that_make_no_global_batch_are_refused():
    with pytest.raises(SpmdValueError, match="DataLoader number 1 make no global batch: "):
        merged([rank(torch.ones(2, 3)), rank(torch.ones(2, 4))])


def test_ranks_that_draw_fewer_batches_have_no_part_in_the_last_ones():
    one, other, last = torch.tensor([1, 2]), torch.tensor([3, 4]), torch.tensor([5])
    for ranks in ([rank(one, last), rank(other), Batches()], [Batches(), rank(one), rank(other, last)]):
        whole = merged(ranks)
        assert [batch["x"].tolist() for batch in whole.drawn[0, 0]] == [[1, 2, 3, 4], [5]]
        assert whole.lengths == {0: 2}
    assert not is_shared([rank(one), rank(one, last)])
    assert not is_shared([rank(one, last), rank(one)])


UNEVEN = """
    import torch
    import torch.distributed as dist
    import torch.nn as nn
    from torch.distributed.algorithms.join import Join
    from torch.nn.parallel import DistributedDataParallel as DDP
    from torch.utils.data import DataLoader, Subset, TensorDataset

    dist.init_process_group("gloo")
    torch.manual_seed(0)
    data = TensorDataset(torch.randn(9, 6), torch.randint(0, 3, (9,)))
    own = Subset(data, range(dist.get_rank(), 9, dist.get_world_size()))
    model = DDP(nn.Linear(6, 3))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with Join([model], divide_by_initial_world_size=INITIAL):
        for x, y in DataLoader(own, batch_size=4):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x), y).backward()
            optimizer.step()
"""


@pytest.mark.processes
@pytest.mark.parametrize("initial", [False, True], ids=["by those left", "by all"])
def test_a_last_batch_that_one_rank_alone_has_is_fed(tmp_path, initial):
    (tmp_path / "script.py").write_text(textwrap.dedent(UNEVEN.replace("INITIAL", str(initial))))
    options = VerifyOptions(strict=False, timeout_s=60.0, narrow=False, feed=True)
    verdict = verify_subject(Script(Program(path=str(tmp_path / "script.py"))), {"dp": 2}, options)
    assert verdict.exit_code is (ExitCode.FINDINGS if initial else ExitCode.CLEAN), str(verdict)
    assert "one rank was given what all ranks drew together: 2 batches" in str(verdict)
    assert ("gradient of weight in step 2" in str(verdict)) == initial


OWN_LOADER = """
    class Own(DataLoader):
        def __init__(self, data, size, sampler):  # as torchdata's, which never calls that of DataLoader
            self.inner = DataLoader(data, batch_size=size, sampler=sampler)

        def __setattr__(self, name, value):
            object.__setattr__(self, name, value)

        def __iter__(self):
            yield from self.inner

        def __len__(self):
            return len(self.inner)

    class Counting(DataLoader):
        def __iter__(self):
            for batch in super().__iter__():
                yield batch

        def __len__(self):
            return super().__len__()

    dist.init_process_group("gloo")
"""


@pytest.mark.processes
@pytest.mark.parametrize("made", ["Own(data, 4, sampler)", "Counting(data, batch_size=4, sampler=sampler)"])
def test_loaders_that_iterate_in_their_own_way_are_fed(made, tmp_path):
    program = TRAIN.replace('\n    dist.init_process_group("gloo")\n', OWN_LOADER).replace(
        "DataLoader(data, batch_size=4, sampler=", f"(lambda sampler: {made})("
    )
    script = tmp_path / "script.py"
    script.write_text(textwrap.dedent(program.replace("{wrapped}", "DDP(model)")))
    assert made in script.read_text()
    options = VerifyOptions(strict=False, timeout_s=60.0, narrow=False, feed=True)
    verdict = verify_subject(Script(Program(path=str(script))), {"dp": 2}, options)
    assert verdict.exit_code is ExitCode.CLEAN, str(verdict)


def test_classes_of_loaders_are_as_before_afterwards():
    class Own(DataLoader):
        def __iter__(self):
            return iter([1])

    before = dict(vars(Own)), DataLoader.__iter__, "__init_subclass__" in vars(DataLoader)
    with Loading(None, keeps=True).watching():
        assert vars(Own)["__iter__"] is not before[0]["__iter__"]
    assert (dict(vars(Own)), DataLoader.__iter__, "__init_subclass__" in vars(DataLoader)) == before


STREAM = """
    import os
    import torch
    import torch.distributed as dist
    import torch.nn as nn
    from torch.nn.parallel import DistributedDataParallel as DDP
    from torch.utils.data import DataLoader, IterableDataset

    class Stream(IterableDataset):
        def __init__(self, rank, size, seed):
            self.rows = torch.randn(32, 4, generator=torch.Generator().manual_seed(seed))[rank::size]

        def __iter__(self):
            yield from self.rows.view(-1, 4, 4)[:2]

    dist.init_process_group("gloo")
    seed = [3]
    torch.manual_seed(0)
    model = DDP(nn.Linear(4, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for x in DataLoader(Stream(dist.get_rank(), dist.get_world_size(), seed[0]), batch_size=None):
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()
"""
DRAWN = """seed = [int.from_bytes(os.urandom(4), "big")]
dist.broadcast_object_list(seed)"""
BY_SIZE = "is the same on every rank, and other data than one rank reads"


@pytest.mark.slow_but_one_in(4)
@pytest.mark.processes
@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, ExitCode.CLEAN),
        ({"Stream(dist.get_rank(),": "Stream(0,"}, ExitCode.FINDINGS),
        ({"Stream(dist.get_rank(), dist.get_world_size(),": "Stream(0, 1,"}, ExitCode.INCONCLUSIVE),
        ({"Stream(dist.get_rank(),": "Stream(0,", "seed = [3]": DRAWN}, ExitCode.INCONCLUSIVE),
    ],
    ids=["a part of its own", "the first part everywhere", "the whole everywhere", "in no run the same"],
)
def test_data_that_is_cut_for_the_ranks_of_which_all_read_one_part_is_found(tmp_path, changes, expected):
    text = textwrap.dedent(STREAM)
    for old, new in changes.items():
        assert old in text
        text = text.replace(old, new)
    (tmp_path / "script.py").write_text(text)
    options = VerifyOptions(strict=False, timeout_s=60.0, narrow=False)
    verdict = verify_subject(Script(Program(path=str(tmp_path / "script.py"))), {"dp": 2}, options)
    assert verdict.exit_code is expected, str(verdict)
    assert (BY_SIZE in str(verdict)) == (expected is ExitCode.FINDINGS)
