"""What the README shows is what happens."""

import re
from pathlib import Path

import koncord

README = (Path(__file__).parent.parent / "README.md").read_text(encoding="utf-8")


def test_the_python_example_prints_what_its_comment_says(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (code,) = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    exec(compile(code, "README.md", "exec"), {})
    (said,) = re.findall(r"local_counts_\)  # (.*)", code)
    assert capsys.readouterr().out.strip() == said
    assert (tmp_path / "model.koncord").exists()


def test_every_name_in_the_readme_exists():
    table = README[README.index("| phase 1 |") : README.index("## What leaves a site")]
    for name in re.findall(r"`([A-Z][A-Za-z]+)", table):
        assert name in koncord.__all__


def test_every_link_leads_somewhere():
    for target in re.findall(r"\]\(([^)#]+)\)", README):
        assert (Path(__file__).parent.parent / target).exists(), target


def test_every_make_target_in_the_readme_is_in_the_makefile():
    makefile = (Path(__file__).parent.parent / "Makefile").read_text(encoding="utf-8")
    for target in re.findall(r"make ([a-z][a-z0-9-]+)", README):
        if target not in ("are",):
            assert re.search(rf"^{target}\b.*:|^[a-z0-9 -]*\b{target}\b.*:", makefile, re.MULTILINE), target
