"""Pages as scripts: which blocks there are, what is run, what must be printed."""

from __future__ import annotations

import os
import sys
from collections.abc import Collection
from pathlib import Path

import pytest

from tests.e2e.pages import Block, blocks, fits, follow, translated

PAGE = """# A page

```sh
echo "one    two"
```

```text
one ...
```

A file, and its use:

```python title="add.py"
print(1 + 1)
```

```sh
python3 add.py
```

<!-- not run: it is not for here -->
```sh
false
```

```text
a picture
```
"""


def test_the_blocks_of_a_page() -> None:
    found = blocks(PAGE)
    assert [(block.kind, block.is_run) for block in found] == [
        ("sh", True),
        ("python", True),
        ("sh", True),
        ("sh", False),
        ("text", False),
    ]
    assert found[0].expected == "one ...\n"
    assert found[1].title == "add.py"
    assert found[3].why == "it is not for here"
    assert PAGE.splitlines()[found[0].line] == 'echo "one    two"'


@pytest.mark.parametrize(
    ("expected", "printed", "good"),
    [
        ("a  b\n", "a b", True),
        ("a.c", "abc", False),
        ("a", "a b", False),
        ("a\n\nb", "  a\nb\n\n", True),
        ("a b", "a\nb\n", False),
        # within a line
        ("a ... c", "a b c\n", True),
        ("a ... c", "a b b c\n", True),
        ("a ... c", "a\nb\nc\n", False),
        ("a ... c", "a b\n", False),
        ("a ... c", "a c\n", False),
        ("... 10 records", "110 records", False),
        ("... 10 records", "at once 10 records", True),
        ("generation ...", "generation 3", True),
        ("0 ...", "01 2", False),
        ("stored ... 1", "stored 7 11", False),
        # beside what belongs to no word
        ("orders (...)", "orders (4f1a)", True),
        ("orders (...)", "orders ()", False),
        ('{"offset": ..., "key": 1}', '{"offset": 12, "key": 1}', True),
        ('{"offset": ..., "key": 1}', '{"offset": 12, "key": 11}', False),
        ("broker-0...", "broker-0,peer", True),
        ("broker-0...", "broker-01", False),
        ("...=broker-0", "advertised=broker-0", True),
        ("...broker-0", "://broker-0", True),
        ("...broker-0", "a_broker-0", False),
        # lines
        ("...\nb", "a a\na\nb", True),
        ("...\nb", "b", True),
        ("...\nb", "a b", False),
        ("a\n...\nc", "a\nb\nc", True),
        ("a\n...", "a\nb\nc", True),
        ("a\n...\nc", "a\nb\nd", False),
        ("a \N{HORIZONTAL ELLIPSIS}", "a b", True),
    ],
)
def test_what_is_printed(expected: str, printed: str, good: bool) -> None:
    assert fits(expected, printed) is good


def test_addresses_are_replaced_whole() -> None:
    known = {"127.0.0.1:9092": "127.0.0.1:41"}
    assert translated("127.0.0.1:9092, 127.0.0.1:90921", known) == "127.0.0.1:41, 127.0.0.1:90921"
    assert translated("/dev/tcp/127.0.0.1/9092; x", known) == "/dev/tcp/127.0.0.1/41; x"


def followed(
    tmp_path: Path, text: str, timeout_s: float = 60, lacking: Collection[str] = ()
) -> list[Block]:
    tmp_path.mkdir(exist_ok=True)
    page = tmp_path / "page.md"
    page.write_text(text)
    folder = tmp_path / "at"
    folder.mkdir()
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    env = {**os.environ, "PATH": path}
    return follow(page, folder, env=env, addresses={}, lacking=lacking, timeout_s=timeout_s)


def test_a_page_that_does_what_it_says(tmp_path: Path) -> None:
    assert followed(tmp_path, PAGE) == []


def test_only_what_needs_a_module_is_left_out_where_it_lacks(tmp_path: Path) -> None:
    text = (
        "```sh\ntouch before\n```\n\n"
        "```python\nimport no_such_client\n```\n\n"
        "```text\nits output\n```\n\n"
        "```sh\necho no_such_client\ntouch behind\n```\n"
    )
    with pytest.raises(AssertionError, match="No module named 'no_such_client'"):
        followed(tmp_path / "there", text)
    [left_out] = followed(tmp_path / "lacking", text, lacking=["no_such_client", "trio"])
    assert left_out.text == "import no_such_client\n"
    assert {path.name for path in (tmp_path / "lacking" / "at").iterdir()} == {"before", "behind"}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("```sh\ntrue\n```\n\n```sh\necho before\nfalse\n```\n", "page.md:5: exit code 1\nbefore"),
        ("```sh\nfalse | true\n```\n", "exit code 1"),
        ("```sh\ntail -f /dev/null\n```\n", "no end within 1 s"),
        ("```sh\nexit 0\n```\n\n```sh\ntrue\n```\n", "ended after line 1"),
        ("```sh\necho a\n```\n\n```text\nb\n```\n", "page.md:1 printed\na"),
    ],
)
def test_a_page_that_does_not(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(AssertionError) as raised:
        followed(tmp_path, text, 1 if "tail" in text else 60)
    assert said in str(raised.value)
