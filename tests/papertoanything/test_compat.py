"""What scripts written for 0.1.0 call: names, paths, signatures, results."""

from __future__ import annotations

import importlib
import inspect
import json
import subprocess
import sys

import pytest

import papertoanything as ptoa

NAMES = {
    "papertoanything": (
        "__version__ show save load as_spec watch from_module capture to_url from_url serve "
        "ModelSpec TraceFrame HealthFrame BlockHealth TensorStats BridgeHello"
    ),
    "papertoanything.spec": (
        "SPEC_VERSION BLOCK_KINDS BlockParams Block DatasetRef TrainConfig Origin ModelSpec FrameTensor "
        "TraceFrame BridgeHello TensorStats HeadPattern BlockHealth HealthFrame Diagnosis encode_f32 "
        "decode_f32 dumps"
    ),
    "papertoanything.link": (
        "LAB_URL lab_url encode decode to_url from_url spec_to_payload payload_to_spec payload_to_dict "
        "extract_payload"
    ),
    "papertoanything.frames": "clip_shape encode_tensor frame_tensor_from_values",
    "papertoanything.server": "LocalServer",
    "papertoanything.show": "show save load as_spec",
    "papertoanything.cli": "main",
}
NAMES_WITH_TORCH = {
    "papertoanything.torch": "from_module capture analyze Inputs TraceWatch watch_trace classify_module",
    "papertoanything.health": "Watch watch tensor_stats RunFile",
}

# Parameters in their order; * begins those given by name only. A default follows its name.
SIGNATURES = {
    "papertoanything:show": (
        "model_or_spec example_input=None mode='auto' * open_browser=True path=None lab_url=None"
    ),
    "papertoanything:save": "model_or_spec path example_input=None trace=None",
    "papertoanything:load": "path",
    "papertoanything:as_spec": "obj example_input=None",
    "papertoanything:from_module": "model example_input=None * strategy='auto' name=None",
    "papertoanything:capture": (
        "model example_input max_elems=65536 * spec=None step=0 loss=None max_frame_elems=4000000"
    ),
    "papertoanything:watch": "model optimizer=None every=10 val_loss=None open=True **options",
    "papertoanything:serve": "spec=None port=0 lab_url=None",
    "papertoanything:to_url": "spec base=None",
    "papertoanything:from_url": "url_or_fragment",
    "papertoanything.server:LocalServer": (
        "spec=None lab_url=None host='127.0.0.1' port=0 token=None name=None"
    ),
    "papertoanything.server:LocalServer.health_since": "self since",
    "papertoanything.server:LocalServer.push": "self frame",
    "papertoanything.server:LocalServer.push_health": "self frame",
    "papertoanything.server:LocalServer.set_spec": "self spec",
    "papertoanything.server:LocalServer.watch": "self model optimizer=None every=10 **options",
    "papertoanything.server:LocalServer.watch_trace": "self model example_input every=10",
    "papertoanything.spec:ModelSpec": ("name blocks output origin v dataset train bindings"),
    "papertoanything.spec:ModelSpec.to_json": "self indent=None",
    "papertoanything.spec:Block": "id kind params inputs label group at",
    "papertoanything.spec:HealthFrame": "step t loss blocks valLoss lr gradNorm timing memory",
    "papertoanything.spec:TraceFrame": "step tensors loss uncaptured",
    "papertoanything.spec:FrameTensor": "key shape b64 clipped dataShape",
    "papertoanything.spec:BlockHealth": (
        "id act grad weightNorm weightGradNorm updateRatio headEntropy headPattern hidden"
    ),
    "papertoanything.frames:clip_shape": "shape max_elems",
    "papertoanything.frames:encode_tensor": "key t max_elems=65536",
    "papertoanything.frames:frame_tensor_from_values": "key shape flat max_elems=65536",
    "papertoanything.cli:main": "argv=None",
}
SIGNATURES_WITH_TORCH = {
    "papertoanything.torch:from_module": "model example_input=None * strategy='auto' name=None",
    "papertoanything.torch:analyze": "model example_input=None * strategy='auto' name=None",
    "papertoanything.torch:watch_trace": "model example_input push every=10 spec=None",
    "papertoanything.torch:Inputs": "args=() kwargs",
    "papertoanything.health:tensor_stats": "t hist=True sat=None",
}


def spelt(function, wanted):
    """The signature as `SIGNATURES` writes it, cut to the parameters that are promised."""
    parameters = list(inspect.signature(function).parameters.values())
    words, keyword_only = [], False
    for p in parameters:
        if p.kind is p.KEYWORD_ONLY and not keyword_only:
            words.append("*")
            keyword_only = True
        name = f"**{p.name}" if p.kind is p.VAR_KEYWORD else p.name
        plain = p.default is p.empty or not isinstance(p.default, (str, int, float, tuple, type(None)))
        words.append(name if plain else f"{name}={p.default!r}")
    keep = len(wanted.split())
    simple = "=" not in wanted
    return " ".join(word.partition("=")[0] if simple else word for word in words[:keep])


def named(path):
    module, _, name = path.partition(":")
    found = importlib.import_module(module)
    for part in name.split("."):
        found = getattr(found, part)
    return found


@pytest.mark.parametrize("module", NAMES)
def test_every_promised_name_is_there(module):
    found = importlib.import_module(module)
    assert [name for name in NAMES[module].split() if not hasattr(found, name)] == []


@pytest.mark.parametrize("module", NAMES_WITH_TORCH)
def test_every_promised_name_is_there_with_torch(module):
    pytest.importorskip("torch")
    found = importlib.import_module(module)
    assert [name for name in NAMES_WITH_TORCH[module].split() if not hasattr(found, name)] == []


@pytest.mark.parametrize("path", SIGNATURES)
def test_signature_is_as_promised(path):
    assert spelt(named(path), SIGNATURES[path]) == SIGNATURES[path]


@pytest.mark.parametrize("path", SIGNATURES_WITH_TORCH)
def test_signature_is_as_promised_with_torch(path):
    pytest.importorskip("torch")
    assert spelt(named(path), SIGNATURES_WITH_TORCH[path]) == SIGNATURES_WITH_TORCH[path]


@pytest.mark.parametrize(
    ("method", "wanted"), [("step", "loss=None"), ("log", "loss=None val_loss=None"), ("push", "frame")]
)
def test_methods_of_a_watch_are_as_promised(folder, method, wanted):
    torch = pytest.importorskip("torch")
    health = importlib.import_module("papertoanything.health")
    with health.Watch(torch.nn.Linear(2, 2), open=False, run_file=False) as watch:
        assert spelt(getattr(watch, method), wanted) == wanted


def test_a_watch_has_the_promised_attributes(folder):
    torch = pytest.importorskip("torch")
    net = torch.nn.Linear(2, 1)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    options = {"example_input": torch.ones(1, 2), "run_file": "run.pta", "sinks": [[].append], "val_every": 3}
    with ptoa.watch(net, optimizer, 1, 0.5, False, **options) as watch:
        net(torch.ones(1, 2)).sum().backward()
        optimizer.step()
        watch.step(1.5)
        assert (watch.model, watch.optimizer, watch.every, watch.step_count) == (net, optimizer, 1, 1)
        assert watch.server.token in watch.url
        assert [frame.loss for frame in watch.frames] == [1.5]
        assert watch.run_file.path == "run.pta"
        assert watch.spec.output
        assert not watch.closed
    assert watch.closed
    assert [
        frame.step for frame in importlib.import_module("papertoanything.health").RunFile.read("run.pta")[1]
    ] == [0]


def test_reading_a_run_file_imports_no_torch():
    code = "import sys, papertoanything.health, papertoanything.torch; print('torch' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.strip() == "False"


def test_watch_is_one_class_wherever_it_is_imported_from(folder):
    torch = pytest.importorskip("torch")
    health = importlib.import_module("papertoanything.health")
    with ptoa.watch(torch.nn.Linear(2, 2), open=False, run_file=False) as watch:
        assert isinstance(watch, health.Watch)
    assert isinstance(health.Watch, type)
    assert importlib.import_module("ptoa_torch").Watch is health.Watch


def test_watch_stays_the_function_after_its_module_is_imported():
    package = importlib.import_module("ptoa_torch")
    module = importlib.import_module("ptoa_torch.watch")
    assert package.watch is module.watch
    assert callable(package.watch)


def test_watch_works_when_the_module_of_that_name_was_imported_first(folder):
    torch = pytest.importorskip("torch")
    importlib.import_module("ptoa_torch.watch")
    with ptoa.watch(torch.nn.Linear(2, 2), open=False, run_file=False) as watch:
        assert watch.step_count == 0


@pytest.mark.parametrize("name", ["papertoanything", "papertoanything.spec", "papertoanything.link"])
def test_all_names_what_is_there_and_nothing_twice(name):
    module = importlib.import_module(name)
    assert len(set(module.__all__)) == len(module.__all__)
    assert all(hasattr(module, public) for public in module.__all__)


@pytest.mark.parametrize("name", ["spec", "link", "frames", "show", "server", "api", "model_file"])
def test_module_has_no_lazy_attributes(name):
    assert not hasattr(importlib.import_module(f"papertoanything.{name}"), "__getattr__")


IMPORT_ORDERS = [
    "import papertoanything as p; import papertoanything.show",
    "import papertoanything.show; import papertoanything as p",
    "from papertoanything.show import show; import papertoanything as p; import papertoanything.show",
    "import papertoanything.server; import papertoanything as p; __import__('papertoanything.show')",
]


@pytest.mark.parametrize("imports", IMPORT_ORDERS, ids=range(len(IMPORT_ORDERS)))
def test_show_stays_the_function_after_any_order_of_imports(imports, spec):
    code = f"{imports}\nfor _ in range(2): p.show({spec()!r}, open_browser=False)\nassert callable(p.show)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.split()) == 2


def test_import_loads_neither_torch_nor_the_server():
    code = (
        "import sys, papertoanything\n"
        "heavy = {'torch', 'numpy', 'asyncio', 'socket', 'http', 'ptoa_bridge', 'ptoa_torch', 'argparse'}\n"
        "print(sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.strip() == "[]"


def test_as_spec_takes_every_form(folder, spec):
    forms = [spec(), json.dumps(spec()), "spec.json", folder / "spec.json", ptoa.ModelSpec.from_dict(spec())]
    assert [ptoa.as_spec(form).to_dict() for form in forms] == [spec()] * len(forms)


def test_as_spec_gives_a_spec_back_itself(spec):
    given = ptoa.ModelSpec.from_dict(spec())
    assert ptoa.as_spec(given) is given


@pytest.mark.parametrize("bad", [5, None, [1], b"{}", object()], ids=lambda v: type(v).__name__)
def test_as_spec_refuses_what_is_no_model_and_says_what_is(bad):
    with pytest.raises(ValueError, match="give a PyTorch module, a ModelSpec"):
        ptoa.as_spec(bad)


@pytest.mark.parametrize("text", ["{", '{"a": 1}', '{"v": 1}', " {}"])
def test_as_spec_refuses_json_that_is_no_spec(text):
    with pytest.raises(ValueError, match=r"\S"):
        ptoa.as_spec(text)


def test_as_spec_of_json_with_a_byte_order_mark_says_so():
    with pytest.raises(ValueError, match="byte order mark"):
        ptoa.as_spec("\ufeff" + "{}" * 1000)


def test_as_spec_of_a_path_that_is_not_there_names_it(folder):
    with pytest.raises(FileNotFoundError, match="nothing-here"):
        ptoa.as_spec("nothing-here.pta")


def test_save_returns_the_path_and_load_gives_the_spec_back(folder, spec):
    assert ptoa.save(spec(), "x.pta") == "x.pta"
    loaded, trace = ptoa.load("x.pta")
    assert loaded.to_dict() == spec()
    assert trace is None


def test_save_takes_a_trace_and_load_gives_it_back(folder, spec):
    from papertoanything.frames import frame_tensor_from_values

    trace = ptoa.TraceFrame(3, [frame_tensor_from_values("l0:out", [2], [1.0, 2.0])])
    ptoa.save(spec(), "x.pta", trace=trace)
    assert ptoa.load("x.pta")[1].tensor("l0:out").values() == [1.0, 2.0]


def test_load_reads_a_run_file(folder, spec, run_text):
    (folder / "run.pta").write_text(run_text())
    assert ptoa.load("run.pta")[0].to_dict() == spec()


def test_run_file_reads_back_what_was_written(folder, spec):
    health = importlib.import_module("papertoanything.health")
    run = health.RunFile("r.pta", ptoa.as_spec(spec()))
    run.write("health", {"step": 0, "t": 0.0, "loss": 0.5, "blocks": []})
    run.close()
    read, frames = health.RunFile.read("r.pta")
    assert read == spec()
    assert [frame.loss for frame in frames] == [0.5]


def test_serve_gives_a_running_server_and_prints_nothing(folder, spec, capsys):
    with ptoa.serve(spec()) as server:
        assert server.port > 0
        assert server.token in server.url
        assert server.origin == f"http://127.0.0.1:{server.port}"
        assert server.spec.to_dict() == spec()
    assert capsys.readouterr().out == ""


def test_local_server_refuses_a_host_that_is_not_loopback():
    from papertoanything.server import LocalServer

    with pytest.raises(ValueError, match=r"0\.0\.0\.0"):
        LocalServer(host="0.0.0.0")


def test_local_server_takes_dicts_where_it_takes_frames(spec):
    from papertoanything.server import LocalServer

    with LocalServer(ptoa.as_spec(spec())) as server:
        server.push({"step": 0, "tensors": []})
        server.push_health({"step": 0, "t": 0.0, "loss": 0.5, "blocks": []})
        assert server.hello().spec.name == "s"


def test_links_of_dicts_and_specs_are_the_same(spec):
    assert ptoa.to_url(spec()) == ptoa.to_url(ptoa.as_spec(spec()))
    assert ptoa.from_url(ptoa.to_url(spec())).to_dict() == spec()


def test_block_params_spell_in_as_in_():
    from papertoanything.spec import BlockParams

    params = BlockParams.from_dict({"in": 4, "mine": [1]})
    assert params.in_ == 4
    assert params.extra == {"mine": [1]}
    assert params.to_dict() == {"in": 4, "mine": [1]}


TORCH_CALLS = {
    "from_module": "p.from_module(object())",
    "capture": "p.capture(object(), 1)",
    "watch": "p.watch(object())",
    "torch.analyze": "import papertoanything.torch as t; t.analyze(object())",
    "LocalServer.watch": "p.serve().watch(object())",
    "LocalServer.watch_trace": "p.serve().watch_trace(object(), None)",
    "health.watch": "import papertoanything.health as h; h.watch(object())",
    "health.Watch": "import papertoanything.health as h; h.Watch(object())",
    "health.tensor_stats": "import papertoanything.health as h; h.tensor_stats(None)",
    "integrations.hf": "import papertoanything.integrations.hf",
    "integrations.lightning": "import papertoanything.integrations.lightning",
}


WITHOUT_EXTRAS = """
import sys
for name in ("torch", "transformers", "lightning", "pytorch_lightning"):
    sys.modules[name] = None
import papertoanything as p
try:
    {call}
except ImportError as error:
    print(error)
"""


@pytest.mark.parametrize("call", TORCH_CALLS)
def test_without_torch_a_call_names_the_extra(call):
    """The modules are hidden from a child process, so the test means the same wherever it runs."""
    code = WITHOUT_EXTRAS.format(call=TORCH_CALLS[call])
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert 'pip install "papertoanything[' in done.stdout, done.stderr
