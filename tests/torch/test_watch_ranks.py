"""Two real processes train together: the first shows the run, and none waits for another because of it."""

from __future__ import annotations

import json
import math
import subprocess
import sys

import pytest
import torch
from torch import nn

from ptoa_torch import ranks

SECONDS = 120

# What both processes run, case after case: the loop that anyone would write, and a report of what was seen.
WORKER = '''
import contextlib, json, sys
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn

from ptoa_torch import watch

rank, folder, cases = int(sys.argv[1]), Path(sys.argv[2]), json.loads(sys.argv[3])
torch.set_num_threads(1)
dist.init_process_group("gloo", init_method=(folder / "meet").as_uri(), rank=rank, world_size=2)


class Meeting(nn.Module):
    """Its forward waits for the other process."""

    def forward(self, x):
        total = x.detach().sum()
        dist.all_reduce(total)
        return x + 0 * total


def net():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 7), nn.Tanh(), nn.Linear(7, 5), nn.Tanh(), nn.Linear(5, 1))


def sharded(model):
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    mesh = init_device_mesh("cpu", (2,))
    for layer in model:
        if isinstance(layer, nn.Linear):
            fully_shard(layer, mesh=mesh)
    return fully_shard(model, mesh=mesh)


DDP = nn.parallel.DistributedDataParallel
WRAP = {
    "ddp": DDP,
    "fsdp": sharded,
    "meeting": lambda model: DDP(model.append(Meeting())),
}


def whole(parameter):
    return parameter.full_tensor() if hasattr(parameter, "full_tensor") else parameter


def local(model, wait):
    """Whether gradients of this batch stay in their process: each wrapper's own way to accumulate."""
    if case["wrap"] == "fsdp":
        model.set_requires_gradient_sync(not wait)
    return model.no_sync() if wait and case["wrap"] == "ddp" else contextlib.nullcontext()


def run(case, place):
    plain, watching = net(), None
    batches = case["accumulate"]
    options = {"every": 1, "open": False, "run_file": str(place / f"{rank}.pta"), **case["options"]}
    watches = rank in case["ranks"]
    if watches and case["early"]:
        watching = watch(plain, None, **options)
    model = WRAP[case["wrap"]](plain)
    if case["compiled"]:
        model.compile(backend="eager")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    if watches and not case["early"]:
        watching = watch(model, optimizer, **options)
    losses = []
    for step in range(4):
        optimizer.zero_grad()
        torch.manual_seed(10 * step + rank)
        for batch in range(batches):
            amp = torch.autocast("cpu", torch.bfloat16, enabled=case["amp"])
            with local(model, batch + 1 < batches), amp:
                loss = model(torch.randn(5, 4)).float().pow(2).mean()
                (loss / batches).backward()
        if case["clip"]:
            nn.utils.clip_grad_norm_(model.parameters(), case["clip"])
        optimizer.step()
        losses.append(loss.item())
        if watching:
            watching.step(loss)
        if case["evaluate"]:
            model.eval()
            with torch.no_grad():
                model(torch.full((2, 4), 9.0))
            model.train()
    weights = [whole(parameter).tolist() for parameter in model.parameters()]
    report = {"losses": losses, "weights": weights}
    if watching:
        report["hooked"] = "forward" in vars(plain) or len(optimizer._optimizer_step_post_hooks)
        watching.close()
        report["frames"] = [frame.to_dict() for frame in watching.frames]
        report.update(url=watching.url, files=sorted(path.name for path in place.glob("*.pta")))
    (place / f"{rank}.json").write_text(json.dumps(report))


for name, case in cases.items():
    (folder / name).mkdir(exist_ok=True)
    run(case, folder / name)
    dist.barrier()
dist.destroy_process_group()
'''


HABITS = {"early": False, "accumulate": 1, "amp": False, "clip": None, "compiled": False, "evaluate": False}


def case(wrap, ranks=(0, 1), options=(), **habits):
    return {"wrap": wrap, "ranks": list(ranks), "options": dict(options), **HABITS, **habits}


def habits_of(wrap):
    """What training does beside the plain loop."""
    reduce = {"reduce": wrap == "fsdp"}  # so that the norms are the whole model's
    return {
        f"{wrap}-accumulated": case(wrap, accumulate=3, options=reduce),
        f"{wrap}-amp": case(wrap, amp=True, options=reduce),
        f"{wrap}-clipped": case(wrap, clip=0.5, options=reduce),
        f"{wrap}-compiled": case(wrap, compiled=True, options=reduce),
        f"{wrap}-evaluated": case(wrap, evaluate=True, options=reduce),
        f"{wrap}-resumed": case(wrap, options={**reduce, "start_step": 7}),
    }


CASES = {
    "ddp": case("ddp"),
    "ddp-plain": case("ddp", ranks=()),
    "ddp-first": case("ddp", ranks=[0]),
    "ddp-reduced": case("ddp", options={"reduce": True}),
    "meeting-first": case("meeting", ranks=[0]),
    "fsdp": case("fsdp"),
    "fsdp-plain": case("fsdp", ranks=()),
    "fsdp-first": case("fsdp", ranks=[0]),
    "fsdp-reduced": case("fsdp", options={"reduce": True}),
    "fsdp-early": case("fsdp", early=True),
    **habits_of("ddp"),
    **habits_of("fsdp"),
}


def has_fully_shard():
    try:
        from torch.distributed.fsdp import fully_shard
    except ImportError:
        return False
    return callable(fully_shard)


def is_possible(case):
    """Whether this torch has what a case needs."""
    compiles = not case["compiled"] or hasattr(nn.Module, "compile")
    return compiles and (case["wrap"] != "fsdp" or has_fully_shard())


@pytest.fixture(scope="module")
def reports(tmp_path_factory):
    """Every case in one pair of processes, with a deadline; for each case what both ranks saw."""
    folder = tmp_path_factory.mktemp("ranks")
    script = folder / "worker.py"
    script.write_text(WORKER, encoding="utf-8")
    cases = {name: case for name, case in CASES.items() if is_possible(case)}
    arguments = (str(folder), json.dumps(cases))
    commands = [[sys.executable, str(script), str(rank), *arguments] for rank in range(2)]
    running = [subprocess.Popen(command, stderr=subprocess.PIPE, text=True) for command in commands]
    try:
        for process in running:
            errors = process.communicate(timeout=SECONDS)[1]
            assert process.returncode == 0, errors
    finally:
        for process in running:
            process.kill()
    seen = {name: [folder / name / f"{rank}.json" for rank in range(2)] for name in cases}
    return {name: [json.loads(path.read_text()) for path in paths] for name, paths in seen.items()}


@pytest.fixture
def both(reports):
    """What both ranks saw in a case."""

    def find(name):
        if name not in reports:
            pytest.skip("this torch has no fully_shard, or no Module.compile")
        return reports[name]

    return find


def alone(accumulate=1, clip=math.inf):
    """The same training in one process on both batches, in float64: its norms, step by step."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 7), nn.Tanh(), nn.Linear(7, 5), nn.Tanh(), nn.Linear(5, 1)).double()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    seen = []
    for step in range(4):
        before = [parameter.detach().clone() for parameter in model.parameters()]
        optimizer.zero_grad()
        for rank in range(2):
            torch.manual_seed(10 * step + rank)
            for _ in range(accumulate):
                (model(torch.randn(5, 4).double()).pow(2).mean() / accumulate / 2).backward()
        nn.utils.clip_grad_norm_(model.parameters(), clip)
        optimizer.step()
        moved = [after - was for after, was in zip(model.parameters(), before, strict=True)]
        first = slice(0, 2)  # the weight and bias of the first linear
        seen.append(
            {
                "gradNorm": norm(parameter.grad for parameter in model.parameters()),
                "weightNorm": norm(before[first]),
                "updateRatio": norm(moved[first]) / norm(before[first]),
            }
        )
    return seen


def norm(tensors):
    return math.sqrt(sum(tensor.detach().square().sum().item() for tensor in tensors))


def row_of(frame):
    return next(block for block in frame["blocks"] if block["id"] == "l0")


@pytest.mark.parametrize("wrap", ["ddp", "fsdp"])
def test_watched_on_every_rank_the_first_one_shows_and_the_others_are_silent(wrap, both):
    first, second = both(wrap)
    assert [frame["step"] for frame in first["frames"]] == [0, 1, 2, 3]
    assert (second["frames"], second["url"], second["hooked"]) == ([], None, 0)
    assert second["files"] in ([], ["0.pta"])


@pytest.mark.parametrize("wrap", ["ddp", "fsdp"])
def test_watched_and_unwatched_runs_are_bit_equal_on_both_ranks(wrap, both):
    for watched, plain in zip(both(wrap), both(f"{wrap}-plain"), strict=True):
        assert (watched["losses"], watched["weights"]) == (plain["losses"], plain["weights"])


@pytest.mark.parametrize("wrap", ["ddp", "fsdp", "meeting"])
def test_a_watch_on_the_first_rank_alone_keeps_no_one_waiting(wrap, both):
    first, _ = both(f"{wrap}-first")
    assert len(first["frames"]) == 4
    assert first["frames"][1]["blocks"]


def test_gradients_under_ddp_are_the_averaged_ones(both):
    wanted = [step["gradNorm"] for step in alone()]
    assert [frame["gradNorm"] for frame in both("ddp")[0]["frames"]] == pytest.approx(wanted, rel=1e-5)


def test_numbers_of_a_shard_are_labelled_and_are_that_shards(both):
    frames = both("fsdp")[0]["frames"]
    assert [frame["shard"] for frame in frames] == [{"rank": 0, "of": 2}] * 4
    # The first process holds rows 0 to 3 of the seven of the first linear.
    torch.manual_seed(0)
    linear = nn.Linear(4, 7)
    held = norm([linear.weight[:4].double(), linear.bias[:4].double()])
    assert row_of(frames[0])["weightNorm"] == pytest.approx(held, rel=1e-5)


@pytest.mark.parametrize("wrap", ["ddp", "fsdp"])
def test_reduced_norms_are_those_of_the_whole_model(wrap, both):
    first, second = both(f"{wrap}-reduced")
    assert (second["frames"], second["url"]) == ([], None)
    for frame, wanted in zip(first["frames"], alone(), strict=True):
        assert frame["reduced"] == 2
        assert frame["gradNorm"] == pytest.approx(wanted["gradNorm"], rel=1e-5)
        row = row_of(frame)
        assert row["weightNorm"] == pytest.approx(wanted["weightNorm"], rel=1e-5)
        assert row["updateRatio"] == pytest.approx(wanted["updateRatio"], rel=1e-3)


def grad_norms(reports):
    return [frame["gradNorm"] for frame in reports[0]["frames"]]


def wanted_norms(**habits):
    return pytest.approx([step["gradNorm"] for step in alone(**habits)], rel=1e-4)


@pytest.mark.parametrize("wrap", ["ddp", "fsdp"])
def test_accumulated_gradients_are_those_of_all_batches_of_all_ranks(wrap, both):
    assert grad_norms(both(f"{wrap}-accumulated")) == wanted_norms(accumulate=3)


@pytest.mark.parametrize("wrap", ["ddp", "fsdp"])
def test_clipped_gradients_are_the_ones_shown(wrap, both):
    unclipped = grad_norms(both(f"{wrap}-reduced"))
    assert min(unclipped) < 0.5 < max(unclipped)
    assert grad_norms(both(f"{wrap}-clipped")) == wanted_norms(clip=0.5)


@pytest.mark.parametrize("wrap", ["ddp", "fsdp"])
def test_under_autocast_gradients_stay_near_the_exact_ones(wrap, both):
    wanted = [step["gradNorm"] for step in alone()]
    assert grad_norms(both(f"{wrap}-amp")) == pytest.approx(wanted, rel=0.05)


@pytest.mark.parametrize("wrap", ["ddp", "fsdp"])
def test_a_compiled_model_has_the_same_gradients(wrap, both):
    assert grad_norms(both(f"{wrap}-compiled")) == wanted_norms()


@pytest.mark.parametrize("wrap", ["ddp", "fsdp"])
def test_an_evaluation_between_leaves_no_trace(wrap, both):
    def activations(name):
        return [[row.get("act") for row in frame["blocks"]] for frame in both(name)[0]["frames"]]

    assert activations(f"{wrap}-evaluated") == activations(f"{wrap}-reduced")


@pytest.mark.parametrize("wrap", ["ddp", "fsdp"])
def test_a_resumed_run_numbers_its_steps_on(wrap, both):
    assert [frame["step"] for frame in both(f"{wrap}-resumed")[0]["frames"]] == [7, 8, 9, 10]


def test_parameters_that_are_sharded_after_the_watch_began_are_found_again(both):
    last = both("fsdp-early")[0]["frames"][-1]
    assert row_of(last)["weightNorm"] > 0
    assert row_of(last)["weightGradNorm"] > 0
    assert last["shard"] == {"rank": 0, "of": 2}


class Shard:
    def __init__(self, cut):
        self.cut = cut

    def is_shard(self):
        return self.cut


class Mesh:
    def size(self, dimension):
        return (2, 4)[dimension]


@pytest.mark.parametrize(
    ("cuts", "share"),
    [((False, False), 1 / 8), ((False, True), 4 / 8), ((True, False), 2 / 8), ((True, True), 1.0)],
    ids=["replicated", "inner", "outer", "both"],
)
def test_copies_of_one_value_count_once_in_a_sum(cuts, share):
    """On a mesh of two by four processes."""
    tensor = torch.zeros(1)
    tensor.device_mesh, tensor.placements = Mesh(), tuple(map(Shard, cuts))
    assert ranks.share_of(tensor, 8) == share


def test_a_whole_tensor_counts_once_in_a_sum():
    assert ranks.share_of(torch.zeros(1), 4) == 0.25


def test_one_process_is_the_only_one():
    assert ranks.place() == ranks.Place(0, 1)


def test_a_pass_that_would_wait_for_others_is_refused(tmp_path):
    torch.distributed.init_process_group(
        "gloo", init_method=(tmp_path / "meet").as_uri(), rank=0, world_size=1
    )
    try:
        with pytest.raises(ranks.CollectiveError, match="waits for"), ranks.WithoutCollectives():
            torch.distributed.all_reduce(torch.zeros(1))
    finally:
        torch.distributed.destroy_process_group()
