"""What ptoa-torch makes of a model encodes and decodes as every other reader expects."""

from __future__ import annotations

import json

import pytest

from ptoa_core import files, frames, jsontext, link, tensors
from ptoa_core.validate import validate

torch = pytest.importorskip("torch")
ptoa_torch = pytest.importorskip("ptoa_torch")


class Attend(torch.nn.Module):
    """Attention with a residual, an MLP and a tied head: most kinds of block in little."""

    def __init__(self):
        super().__init__()
        self.embed = torch.nn.Embedding(11, 8)
        self.norm = torch.nn.LayerNorm(8)
        self.attn = torch.nn.MultiheadAttention(8, 2, batch_first=True)
        self.mlp = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.GELU(), torch.nn.Linear(16, 8))
        self.head = torch.nn.Linear(8, 11, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, ids):
        x = self.embed(ids)
        h = self.norm(x)
        x = x + self.attn(h, h, h)[0]
        return self.head(x + self.mlp(x))


MODELS = {
    "mlp": (lambda: torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU()), lambda: torch.ones(2, 4)),
    "conv": (lambda: torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3)), lambda: torch.ones(1, 3, 5, 5)),
    "attention": (Attend, lambda: torch.arange(6).reshape(1, 6)),
}


@pytest.fixture(params=MODELS)
def model_and_input(request):
    make, example = MODELS[request.param]
    torch.manual_seed(0)
    return make(), example()


def test_spec_of_a_model_is_valid_and_travels(model_and_input):
    model, example = model_and_input
    spec = ptoa_torch.from_module(model, example)
    assert [problem for problem in validate(spec) if problem.severity == "error"] == []
    assert link.from_url(link.to_url(spec)).output == spec.output
    assert type(spec).from_json(spec.to_json()).to_dict() == spec.to_dict()


def test_trace_of_a_model_travels(model_and_input, tmp_path):
    model, example = model_and_input
    trace = ptoa_torch.capture(model, example)
    spec = ptoa_torch.from_module(model, example)
    assert frames.TraceFrame.from_dict(json.loads(jsontext.dumps(trace))).to_dict() == trace.to_dict()
    _, again = files.load(files.save(spec, str(tmp_path / "m.pta"), trace=trace))
    assert again.to_dict() == trace.to_dict()


def test_output_of_a_model_decodes_to_its_values(model_and_input):
    model, example = model_and_input
    trace = ptoa_torch.capture(model, example)
    spec = ptoa_torch.from_module(model, example)
    with torch.no_grad():
        want = model.eval()(example).flatten()
    got = torch.tensor(trace.tensor(f"{spec.output}:out").values())
    torch.testing.assert_close(got, want, rtol=1e-5, atol=1e-6)


@pytest.mark.vectors("tensor", "ok", op="encode")
def test_torch_tensor_encodes_as_the_vector_says(case):
    given = torch.tensor(case.input["values"], dtype=torch.float32)
    got = tensors.encode_tensor(case.input["key"], given, max_elems=case.input["maxElems"])
    assert got.to_dict() == case.result["tensor"]
