"""Files for hosts of repositories and for tools: valid, and what they run exists."""

from __future__ import annotations

import re
import stat
import tomllib
from pathlib import Path

import pytest
import yaml
from tests.lowest_versions import lowest, requirements

ROOT = Path(__file__).parents[1]
MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
DOCUMENTS = sorted(
    path
    for folder in (".", "docs", "benchmarks", "drivers", "examples/*", "paper", ".github")
    for path in ROOT.glob(f"{folder}/*.md")
)


def load(path: Path):
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def is_target(name: str) -> bool:
    rules = re.findall(r"^([\w.%-]+(?: [\w.%-]+)*):(?!=)", MAKEFILE, re.MULTILINE)
    known = [target for rule in rules for target in rule.split()]
    return any(re.fullmatch(re.escape(target).replace("%", ".+"), name) for target in known)


FILES = {
    "CITATION.cff": "citation-file-format",
    ".github/dependabot.yml": "dependabot",
    ".github/ISSUE_TEMPLATE/bug.yml": "github-issue-forms",
    ".github/ISSUE_TEMPLATE/config.yml": "github-issue-config",
    ".github/ISSUE_TEMPLATE/idea.yml": "github-issue-forms",
    ".github/workflows/ci.yml": "github-workflows",
}


@pytest.mark.parametrize("name", FILES)
def test_it_follows_its_schema(name, capsys):
    check = pytest.importorskip("check_jsonschema")
    with pytest.raises(SystemExit) as end:
        check.main(["--builtin-schema", f"vendor.{FILES[name]}", str(ROOT / name)])
    assert end.value.code == 0, capsys.readouterr().out


def test_every_such_file_is_checked():
    found = (ROOT / ".github").rglob("*.y*ml")
    assert {path.relative_to(ROOT).as_posix() for path in found} | {"CITATION.cff"} == set(FILES)


def steps(workflow):
    """Each line that a workflow runs, once for each value of its matrix."""
    for job in workflow["jobs"].values():
        matrix = job.get("strategy", {}).get("matrix", {})
        for step in job["steps"]:
            for line in step.get("run", "").splitlines():
                names = re.findall(r"\$\{\{ matrix\.(\w+) \}\}", line)
                values = matrix[names[0]] if names else [""]
                for value in values:
                    yield re.sub(r"\$\{\{ matrix\.\w+ \}\}", str(value), line)


def test_workflows_run_what_exists():
    lines = [line for path in WORKFLOWS for line in steps(load(path))]
    assert ".ci/run" in lines
    for line in lines:
        program, *words = line.split()
        if program == "make":
            assert words, line
            assert all(is_target(word) for word in words), line
        else:
            assert (ROOT / program).stat().st_mode & stat.S_IXUSR, line


def test_workflows_run_every_python_that_is_declared():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    declared = re.findall(r"Python :: (3\.\d+)", "\n".join(project["classifiers"]))
    assert load(WORKFLOWS[0])["jobs"]["pythons"]["strategy"]["matrix"]["python"] == declared
    assert project["requires-python"] == f">={declared[0]}"


def test_the_build_runs_what_exists():
    lines = (ROOT / ".ci" / "run").read_text(encoding="utf-8").splitlines()
    targets = [line.split()[1] for line in lines if line.startswith("make ")]
    assert "check" in targets
    assert all(is_target(target) for target in targets), targets


def test_documents_name_targets_that_exist():
    named: set[tuple[str, str]] = set()
    for path in DOCUMENTS:
        text = path.read_text(encoding="utf-8")
        for line in re.findall(r"`make ([a-z][^`]*)`|^ {4}make ([^#\n]*)", text, re.MULTILINE):
            targets = re.sub(r"\w+=(\"[^\"]*\"|\S*)", "", "".join(line)).split()
            named.update((path.name, target) for target in targets)
    assert len(named) > 20
    assert [pair for pair in named if not is_target(pair[1])] == []


def test_hooks_are_the_checks():
    config = load(ROOT / ".pre-commit-config.yaml")
    (local,) = config["repos"]
    assert local["repo"] == "local"
    recipe = MAKEFILE.partition("\ncheck:")[2].partition("\n\n")[0]
    checked = {line.split()[0] for line in re.findall(r"\$\(VENV\)/bin/(.*)", recipe)}
    hooked = set()
    for hook in local["hooks"]:
        assert {"id", "name", "entry", "language"} <= set(hook)
        assert hook["language"] == "system"
        program = hook["entry"].split()[0]
        assert program.startswith(".venv/bin/")
        hooked.add(program.removeprefix(".venv/bin/"))
    assert hooked == checked


def test_lowest_versions_are_told_for_every_requirement():
    """One without a lowest version would be tested with its newest only."""
    named = {re.split(r"[\[<>=; ]", line)[0] for line in requirements()}
    tools = {"hypothesis", "opentelemetry-sdk", "rich", "scipy", "zeus-energy", "amdsmi"}
    assert {name for name in named if not name.startswith("pytest")} - tools <= set(lowest())


def test_documents_tell_how_to_install_without_an_index():
    """From a clone; by name, what is installed already gets an extra."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    for path in DOCUMENTS:
        text = path.read_text(encoding="utf-8")
        for place, extras in re.findall(r"pip install [^`\n]*?'([^'\[]*)\[([\w,-]+)\]'", text):
            assert set(extras.split(",")) <= set(project["optional-dependencies"]), path
            if place == "zeus-energy":
                assert path.name == "commands.md"  # which says when
            else:
                folder = path.parent if path.parent.parent.name == "examples" else ROOT
                assert (folder / place).resolve() == ROOT, path
        assert not re.search(r"pip install [^`\n]*zeus-energy(?!\[)", text), path
