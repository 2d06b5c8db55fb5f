"""Source code: each language gives its definitions whole, and every line once."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from router.ingest.blocks import Block
from router.ingest.code import read_code

SAMPLES = {
    "python": (
        ('import os\n\nLIMIT = 3\n\n\n@cache\n# why\ndef load(path):\n    """Doc."""\n    return os.stat(path)\n\n\n'
        "class Gate:\n    limit = 1\n\n    async def open(self):\n        return 1\n\n    @property\n    def name(self):\n        return 2\n"),
        {"load", "Gate", "Gate.open", "Gate.name"},
    ),
    "javascript": (
        ("import x from 'y';\n// says hello\nexport function hello(a) {\n  return a;\n}\nconst twice = (a) => {\n  return a * 2;\n};\n"
        "class Lamp {\n  on() {\n    return 1;\n  }\n  off() {\n    return 0;\n  }\n}\n"),
        {"hello", "twice", "Lamp", "Lamp.on", "Lamp.off"},
    ),
    "typescript": (
        ("export interface Lane {\n  id: string;\n}\nexport type Lamp = 'red' | 'green';\nexport class Window2 {\n  push(a: number): void {\n"
        "    this.a = a;\n  }\n"
        "  pop(): number {\n    return 1;\n  }\n}\nenum Color {\n  Red,\n  Green,\n}\n"),
        {"Lane", "Lamp", "Window2", "Window2.push", "Window2.pop", "Color"},
    ),
    "tsx": ("export function Panel(props: P) {\n  return <div>{props.text}</div>;\n}\n", {"Panel"}),
    "java": (
        ("package a.b;\nimport java.util.List;\n/** Doc. */\npublic class Claim {\n  private int n;\n  public Claim(int n) {\n    this.n = n;\n  }\n"
        "  @Override\n  public String toString() {\n    return \"x\";\n  }\n}\ninterface Store {\n  void put(int a);\n}\n"),
        {"Claim", "Claim.Claim", "Claim.toString", "Store", "Store.put"},
    ),
    "go": (
        ('package main\n\nimport "fmt"\n\n// Reader reads.\ntype Reader struct {\n\tn int\n}\n\nfunc (r *Reader) Read(p []byte) int {\n\treturn r.n\n}\n\n'
        "func main() {\n\tfmt.Println(1)\n}\n"),
        {"Reader", "Reader.Read", "main"},
    ),
    "rust": (
        ("use std::fmt;\n\n/// Doc.\n#[derive(Debug)]\npub struct Gate {\n    n: u32,\n}\n\nimpl Gate {\n    pub fn open(&self) -> u32 {\n"
        "        self.n\n    }\n\n"
        "    fn close(&self) {}\n}\n\nfn main() {\n    println!();\n}\n"),
        {"Gate", "Gate.open", "Gate.close", "main"},
    ),
    "c": (
        "#include <stdio.h>\n#ifndef A\nstruct point {\n  int x;\n};\n\n/* adds */\nstatic int *add(int a, int b) {\n  return 0;\n}\n#endif\n",
        {"point", "add"},
    ),
    "cpp": (
        ("#include <vector>\nnamespace depot {\nclass Bin {\n public:\n  int size() const {\n    return 1;\n  }\n  void clear() {\n  }\n};\n"
        "template <typename T>\nT twice(T a) {\n  return a + a;\n}\n}\nint Bin2::far(int a) {\n  return a;\n}\n"),
        {"depot", "depot.Bin", "depot.Bin.size", "depot.Bin.clear", "depot.twice", "Bin2::far"},
    ),
    "sql": (
        "CREATE TABLE claims (\n  id INTEGER PRIMARY KEY\n);\n\n-- of the west\nCREATE VIEW west AS\nSELECT * FROM claims;\n",
        {"claims", "west"},
    ),
}  # fmt: skip


def names(blocks: tuple[Block, ...]) -> Iterator[str]:
    for block in blocks:
        yield ".".join(name for name in (block.scope, block.name) if name)
        yield from names(block.parts)


@pytest.mark.parametrize("language", SAMPLES)
def test_definitions_are_found(language: str) -> None:
    text, expected = SAMPLES[language]
    assert set(names(read_code(text, language).blocks)) - {""} == expected


@pytest.mark.parametrize("language", SAMPLES)
def test_every_line_once(language: str) -> None:
    text, _ = SAMPLES[language]
    check_lines(text, read_code(text, language).blocks)


def check_lines(text: str, blocks: tuple[Block, ...]) -> None:
    """Blocks join to the text's lines that are not blank, in order; so do the parts of a block."""
    lines = [line for line in text.split("\n") if line.strip()]
    assert [line for block in blocks for line in block.text.split("\n") if line.strip()] == lines
    for block in blocks:
        assert block.span.lines is not None
        first, last = block.span.lines
        assert block.text == "\n".join(text.split("\n")[first - 1 : last])
        if block.parts:
            inner = [line for line in block.text.split("\n") if line.strip()]
            assert [line for part in block.parts for line in part.text.split("\n") if line.strip()] == inner


@settings(deadline=None, max_examples=60)
@given(st.sampled_from(sorted(SAMPLES)), st.data())
def test_broken_code_loses_no_line(language: str, data: st.DataObject) -> None:
    """Lines of a program in any order, cut anywhere."""
    text, _ = SAMPLES[language]
    lines = data.draw(st.lists(st.sampled_from([*text.split("\n"), "}", "{", "(", '"""', "é = 1", "/*"]), max_size=30))
    broken = "\n".join(lines)
    check_lines(broken, read_code(broken, language).blocks)


def test_comments_and_decorators_stay_with_their_definition() -> None:
    text, _ = SAMPLES["python"]
    (load,) = [block for block in read_code(text, "python").blocks if block.name == "load"]
    assert load.text.startswith("@cache\n# why\ndef load")
    text, _ = SAMPLES["rust"]
    (gate,) = [block for block in read_code(text, "rust").blocks if block.name == "Gate" and "struct" in block.text]
    assert gate.text.startswith("/// Doc.\n#[derive(Debug)]\npub struct Gate")


def test_imports_are_known() -> None:
    assert read_code(SAMPLES["go"][0], "go").meta["imports"] == 'package main; import "fmt"'
    assert read_code(SAMPLES["c"][0], "c").meta["imports"] == "#include <stdio.h>"
