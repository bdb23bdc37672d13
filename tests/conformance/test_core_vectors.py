"""Every vector through the public functions of ptoa-core."""

from __future__ import annotations

import math
import warnings

import pytest

from ptoa_core import errors, files, frames, jsontext, link, runs, spec, tensors
from ptoa_core.validate import check, validate

FRAMES = {"health": frames.HealthFrame, "trace": frames.TraceFrame, "hello": frames.BridgeHello}

# Which error belongs to which stage. The first four are one family: the text is no link.
ERRORS = {
    "payload": errors.LinkError,
    "base64": errors.LinkError,
    "inflate": errors.LinkError,
    "size": errors.LinkError,
    "json": errors.JsonError,
    "object": errors.LinkError,
    "spec": errors.SpecError,
    "tensor": errors.TensorError,
    "frame": (errors.FrameError, errors.TensorError),
    "file": errors.FileError,
}


def load_checked(data: bytes) -> spec.ModelSpec:
    return check(spec.ModelSpec.from_dict(jsontext.loads(data)))


def refuse(case, read, *args):
    """`read` refuses with the error of the stage, and says so in one line."""
    with pytest.raises(ERRORS[case.expect]) as caught:
        read(*args)
    assert caught.type in (errors.JsonError, *subclasses(ERRORS[case.expect]))
    message = str(caught.value)
    assert message
    assert "\n" not in message
    assert len(message) < 600


def subclasses(kinds):
    return kinds if isinstance(kinds, tuple) else (kinds,)


class TestSpecs:
    @pytest.mark.vectors("spec", "ok")
    def test_valid_spec_round_trips_exactly(self, case):
        got = load_checked(case.data)
        assert got.to_dict() == case.result["spec"]
        assert spec.ModelSpec.from_json(got.to_json()) == got

    @pytest.mark.vectors("spec", "ok")
    def test_valid_spec_is_written_as_the_format_writes_it(self, case):
        assert jsontext.dumps(load_checked(case.data)) == case.result["canonical"]

    @pytest.mark.vectors("spec", "json")
    def test_bad_json_is_refused_as_json(self, case):
        refuse(case, jsontext.loads, case.data)

    @pytest.mark.vectors("spec", "json")
    def test_from_json_refuses_bad_json(self, case):
        with pytest.raises(errors.JsonError):
            spec.ModelSpec.from_json(case.data)

    @pytest.mark.vectors("spec", "spec")
    def test_bad_spec_is_good_json_and_refused_as_a_spec(self, case):
        jsontext.loads(case.data)
        refuse(case, load_checked, case.data)

    @pytest.mark.vectors("spec", "spec")
    def test_validate_names_the_problem_of_a_bad_spec(self, case):
        problems = validate(jsontext.loads(case.data))
        assert [problem for problem in problems if problem.severity == "error"]

    @pytest.mark.vectors("spec", "ok")
    def test_validate_finds_no_error_in_a_valid_spec(self, case):
        problems = validate(jsontext.loads(case.data))
        assert [problem for problem in problems if problem.severity == "error"] == []


class TestLinks:
    @pytest.mark.vectors("link", "ok")
    def test_valid_link_decodes(self, case):
        assert link.from_url(case.input["text"]).to_dict() == case.result["spec"]

    @pytest.mark.vectors("link", "ok")
    def test_valid_link_round_trips(self, case):
        decoded = link.from_url(case.input["text"])
        assert link.from_url(link.to_url(decoded)) == decoded

    @pytest.mark.vectors("link", "payload", "base64", "inflate", "size", "json", "object", "spec")
    def test_bad_link_is_refused_at_its_stage(self, case):
        refuse(case, link.from_url, case.input["text"])

    @pytest.mark.vectors("link", "payload")
    def test_payload_is_not_found(self, case):
        with pytest.raises(errors.LinkError):
            link.payload_to_dict(link.extract_payload(case.input["text"]))

    @pytest.mark.vectors("link", "inflate", "size", "json", "object")
    def test_payload_is_found_before_the_content_is_refused(self, case):
        payload = link.extract_payload(case.input["text"])
        assert payload in case.input["text"]
        with pytest.raises(ERRORS[case.expect]):
            link.payload_to_dict(payload)

    @pytest.mark.vectors("link", "spec")
    def test_content_is_read_before_the_spec_is_refused(self, case):
        payload = link.extract_payload(case.input["text"])
        assert isinstance(link.payload_to_dict(payload), dict)
        with pytest.raises(errors.SpecError):
            link.payload_to_spec(payload)

    @pytest.mark.vectors("spec", "ok")
    def test_every_valid_spec_goes_into_a_link_and_back(self, case):
        known = load_checked(case.data)
        assert link.from_url(link.to_url(known)).to_dict() == case.result["spec"]


def spelt(value: float) -> object:
    """A float as the vectors write it."""
    if math.isfinite(value):
        return "-0" if value == 0 and math.copysign(1, value) < 0 else value
    return "nan" if math.isnan(value) else ("inf" if value > 0 else "-inf")


class TestTensors:
    @pytest.mark.vectors("tensor", "ok", op="decode")
    def test_tensor_decodes(self, case):
        tensor = frames.FrameTensor.from_dict(case.input["tensor"])
        assert list(map(spelt, tensor.values())) == case.result["values"]
        assert tensor.to_dict() == case.input["tensor"]

    @pytest.mark.vectors("tensor", "ok", op="encode")
    def test_values_encode(self, case):
        given = case.input
        got = tensors.encode_tensor(given["key"], given["values"], max_elems=given["maxElems"])
        assert got.to_dict() == case.result["tensor"]

    @pytest.mark.vectors("tensor", "ok", op="clip")
    def test_shape_is_cut(self, case):
        cut = tensors.clip_shape(case.input["shape"], case.input["maxElems"])
        assert list(cut) == case.result["dataShape"]

    @pytest.mark.vectors("tensor", "tensor")
    def test_bad_tensor_is_refused(self, case):
        def read():
            frames.FrameTensor.from_dict(case.input["tensor"]).values()

        with pytest.raises((errors.TensorError, errors.FrameError)):
            read()


class TestFrames:
    @pytest.mark.vectors("frame", "ok")
    def test_valid_frame_round_trips_exactly(self, case):
        kind = FRAMES[case.input["kind"]]
        assert kind.from_dict(jsontext.loads(case.data)).to_dict() == case.result["frame"]

    @pytest.mark.vectors("frame", "json", "frame")
    def test_bad_frame_is_refused_at_its_stage(self, case):
        def read():
            FRAMES[case.input["kind"]].from_dict(jsontext.loads(case.data))

        refuse(case, read)


class TestFiles:
    @pytest.mark.vectors("pta", "ok")
    def test_valid_file_loads(self, case, content):
        model, trace = files.load(str(content))
        assert model.to_dict() == case.result["spec"]
        assert (trace and trace.to_dict()) == case.result["trace"]

    @pytest.mark.vectors("pta", "ok")
    def test_valid_file_is_saved_and_loads_equal(self, case, content, tmp_path):
        model, trace = files.load(str(content))
        saved = files.save(model, str(tmp_path / "again.pta"), trace=trace)
        assert files.load(saved) == (model, trace)

    @pytest.mark.vectors("pta", "json", "file", "spec", "frame")
    def test_bad_file_is_refused_at_its_stage(self, case, content):
        refuse(case, files.load, str(content))


class TestRuns:
    @pytest.mark.vectors("run", "ok")
    def test_valid_run_reads(self, case, content):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            header, found = runs.RunFile.read(str(content))
        assert header == case.result["spec"]
        steps = [(frame.step, frame.loss) for frame in found]
        assert steps == list(zip(case.result["steps"], case.result["losses"], strict=True))
        assert bool(caught) == case.result["warns"]

    @pytest.mark.vectors("run", "ok")
    @pytest.mark.filterwarnings("ignore::ptoa_core.errors.PtoaWarning")
    def test_load_takes_a_run_by_its_content(self, case, content):
        model, trace = files.load(str(content))
        assert model.to_dict() == case.result["spec"]
        assert trace is None

    @pytest.mark.vectors("run", "json", "file", "spec", "frame")
    def test_bad_run_is_refused_at_its_stage(self, case, content):
        refuse(case, runs.RunFile.read, str(content))
