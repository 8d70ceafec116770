"""The package of integrations: light, complete, and clear about what is missing."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from tests.integrations.support import DOCUMENT

import zeus
import zeus.integrations


def run(script: str, *options: str) -> str:
    done = subprocess.run(
        [sys.executable, *options, "-W", "error", "-c", "import sys\n" + script],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_it_lists_its_modules():
    folder = Path(zeus.integrations.__file__).parent
    modules = {path.stem for path in folder.glob("*.py") if not path.stem.startswith("_")}
    assert set(zeus.integrations.__all__) == modules
    assert modules <= set(dir(zeus.integrations))


def test_unknown_names_are_attribute_errors():
    with pytest.raises(AttributeError, match="no attribute 'tensorflow'"):
        zeus.integrations.tensorflow  # noqa: B018


def test_importing_it_loads_no_module_of_it():
    assert (
        run(
            "import zeus.integrations\n"
            "print([name for name in sys.modules if name.startswith('zeus.integrations.')])"
        )
        == "[]"
    )


def test_the_plain_loop_loads_no_framework():
    assert (
        run(
            "import zeus.integrations\n"
            "zeus.integrations.loop.epochs\n"
            "heavy = {'torch', 'numpy', 'transformers', 'lightning', 'accelerate', 'keras'}\n"
            "print(heavy & set(sys.modules))"
        )
        == "set()"
    )


@pytest.mark.parametrize(
    "framework",
    [
        "accelerate",
        "keras",
        "lightning",
        "mlflow",
        "tensorboard",
        "trackio",
        "transformers",
        "wandb",
    ],
)
def test_a_missing_framework_is_told_with_the_cure(framework, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(Path(zeus.__file__).parents[1]))
    told = run(
        "from zeus.errors import MissingExtraError\n"
        "try:\n"
        f"    import zeus.integrations.{framework}\n"
        "except MissingExtraError as error:\n"
        "    print(error)",
        "-S",  # without anything that was installed
    )
    assert told.startswith(f"zeus.integrations.{framework} needs the extra `{framework}`: ")
    # Zeus is not installed there, either.
    assert told.endswith(f" --editable '{Path(zeus.__file__).parents[2]}[{framework}]'")


def test_something_else_that_is_missing_is_not_taken_for_the_framework(tmp_path, monkeypatch):
    (tmp_path / "keras").mkdir()
    (tmp_path / "keras" / "__init__.py").write_text("import a_back_end_that_is_not_there")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    told = run(
        "try:\n"
        "    import zeus.integrations.keras\n"
        "except ModuleNotFoundError as error:\n"
        "    print(error.name)"
    )
    assert told == "a_back_end_that_is_not_there"


def test_every_module_is_in_the_document():
    documents = (DOCUMENT, DOCUMENT.with_name("trackers.md"))
    text = "".join(document.read_text(encoding="utf-8") for document in documents)
    for name in set(zeus.integrations.__all__) - {"pytorch"}:
        assert f"from zeus.integrations.{name} import" in text
