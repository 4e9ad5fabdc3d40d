"""What a script sees while it is checked: a job like any other, itself as ``__main__``, and its own arguments."""

from __future__ import annotations

import sys

import torch

TYPED_CALL = """
with set_current_mesh(mesh):
    torch.relu(assert_type(torch.ones(2), {"dp": R, "tp": R}))
"""


def said(result):
    """What the script printed, line by line."""
    return result.stderr.splitlines()


def test_the_script_is_main_with_its_own_arguments_and_folder(project):
    project.write("ANSWER = 42\n", "sub/neighbour.py")
    project.write(
        """
        import os, sys
        import neighbour
        if __name__ == "__main__":
            found = sys.modules["__main__"].__file__ == __file__
            print(os.path.basename(__file__), sys.argv[1:], neighbour.ANSWER, found)
        """,
        "sub/entry.py",
    )
    before = list(sys.path), sys.argv, sys.modules["__main__"]
    result = project.check("sub/entry.py", "--", "--lr", "3", "-m")
    assert said(result)[0] == "entry.py ['--lr', '3', '-m'] 42 True"
    assert (list(sys.path), sys.argv, sys.modules["__main__"]) == before


def test_a_module_is_run_like_python_dash_m(project):
    project.write("", "pack/__init__.py")
    project.write("import sys\nfrom . import part\nprint(__name__, part.HERE, sys.argv[1:])\n", "pack/__main__.py")
    project.write("HERE = True\n", "pack/part.py")
    assert said(project.check("-m", "pack", "--", "--lr", "3"))[0] == "__main__ True ['--lr', '3']"


def test_a_torchrun_script_for_gpus_runs_unchanged(project):
    result = project.check_source(
        """
        import os
        import torch
        import torch.distributed as dist
        dist.init_process_group("nccl", init_method="env://")
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
        model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 2).cuda(), device_ids=[0])
        model(torch.ones(2, 2, device="cuda")).sum().backward()
        dist.barrier()
        print(dist.get_rank(), dist.get_world_size(), os.environ["WORLD_SIZE"])
        dist.destroy_process_group()
        """,
        "--world-size",
        "4",
        "--rank",
        "3",
        typed=False,
    )
    assert "3 4 4" in said(result)
    assert "nothing-checked" not in result.stderr


def test_without_options_the_world_is_one_host(project):
    result = project.check_source("import os\nprint(os.environ['WORLD_SIZE'])\n", typed=False)
    assert said(result)[0] == "8"


def test_the_mesh_option_sets_the_world_size_and_the_current_mesh(project):
    result = project.check_source(
        """
        import torch, torch.distributed as dist
        from shardwise import P, R, V, assert_type, current_mesh_names
        dist.init_process_group("nccl")
        print(sorted(current_mesh_names()), dist.get_world_size())
        torch.relu(assert_type(torch.ones(2), {"dp": V, "tp": P}))
        """,
        "--mesh",
        "dp=2,tp=4",
        typed=False,
    )
    assert said(result)[0] == "['dp', 'tp'] 8"
    assert result.exit_code == 1
    assert result.stdout.splitlines()[-1].endswith("on mesh dp=2, tp=4")


def test_a_mesh_of_the_script_takes_the_place_of_the_mesh_option(project):
    result = project.check_source(
        """
        from shardwise import current_mesh
        print(sorted(map(str, current_mesh())))
        with set_current_mesh(mesh["tp"]):
            torch.relu(assert_type(torch.ones(2), {"tp": R}))
        torch.randn(2) + 1
        """,
        "--mesh",
        "all=8",
    )
    assert said(result)[0] == "['dp', 'tp']"
    assert result.exit_code == 0, result.stdout


def test_the_one_mesh_of_the_script_is_current_without_being_told(project):
    source = """
    x = assert_type(torch.randn(4, 8), {"dp": V, "tp": P})
    torch.relu(x)
    """
    result = project.check_source(source)
    assert result.exit_code == 1
    assert 'all_reduce(x, "tp", src=P, dst=R) before relu' in result.stdout


def test_of_two_meshes_of_the_script_none_is_current(project):
    source = """
    from shardwise import current_mesh
    experts = init_device_mesh("cuda", (4, 2), mesh_dim_names=("edp", "ep"))
    print(current_mesh())
    """
    result = project.check_source(source, "--mesh", "all=8")
    assert said(result)[0] == "None"


def test_fake_tensors_allocate_nothing(project):
    source = """
    with set_current_mesh(mesh):
        x = assert_type(torch.empty(1 << 20, 1 << 20, device="cuda"), {"dp": V, "tp": P})
        print(f"loss {(x @ x).sum().item()}")
    """
    for option in (["--fake"], ["--device", "meta"]):
        result = project.check_source(source, *option)
        assert "SW111 product-of-partials" in result.stdout
        assert "loss 1.0" in said(result)


def test_a_made_up_value_is_listed_as_trusted(project):
    result = project.check_source(
        """
        with set_current_mesh(mesh):
            print(assert_type(torch.ones(4), {"dp": R, "tp": R}).sum().item())
        """,
        "--fake",
    )
    assert result.exit_code == 0
    assert "the value of a tensor without storage was read as 1.0 (train.py:8:11)" in result.stdout


def test_handlers_for_the_end_of_the_script_run_in_its_world(project):
    result = project.check_source(
        """
        import atexit
        import torch.distributed as dist

        @atexit.register
        def leave():
            print("rank", dist.get_rank())
            dist.destroy_process_group()
        """
    )
    assert "rank 0" in said(result)


def test_threads_of_the_script_may_run(project):
    source = (
        TYPED_CALL
        + "import threading\nt = threading.Thread(target=print, args=('in a thread',))\nt.start()\nt.join()\n"
    )
    result = project.check_source(source)
    assert result.exit_code == 0
    assert "in a thread" in said(result)


def test_two_runs_in_one_process_do_not_meet(project):
    project.write(TYPED_CALL, typed=True)
    assert [project.check("train.py").exit_code for _ in range(2)] == [0, 0]
    assert not torch.distributed.is_initialized()


def test_a_mesh_that_cuts_the_axis_of_another_leaves_none_current(project):
    project.write(
        """
        import torch
        from torch.distributed.device_mesh import init_device_mesh
        from shardwise import current_mesh
        world = init_device_mesh("cuda", (4,), mesh_dim_names=("world",))
        assert len(current_mesh()) == 1
        world._unflatten(0, (2, 2), ("dp", "tp"))
        print("current:", current_mesh())
        """
    )
    assert "current: None" in said(project.check("train.py", "--world-size", "4"))


def test_the_package_of_a_module_sees_the_arguments_of_the_module(project):
    project.write("import sys\nSEEN = sys.argv[1:]\n", "package/__init__.py")
    project.write("from package import SEEN\nprint(SEEN)\n", "package/train.py")
    assert "['--lr', '3']" in said(project.check("-m", "package.train", "--", "--lr", "3"))
