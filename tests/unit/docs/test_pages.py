"""Pages as scripts: which blocks there are, what is run, what must be printed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.e2e.pages import blocks, fits, follow, translated

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
        ("a ... c", "a\nb\nc\n", True),
        ("a ... c", "a b\n", False),
        ("a.c", "abc", False),
        ("a", "a b", False),
    ],
)
def test_what_is_printed(expected: str, printed: str, good: bool) -> None:
    assert fits(expected, printed) is good


def test_addresses_are_replaced_whole() -> None:
    known = {"127.0.0.1:9092": "127.0.0.1:41"}
    assert translated("127.0.0.1:9092, 127.0.0.1:90921", known) == "127.0.0.1:41, 127.0.0.1:90921"
    assert translated("/dev/tcp/127.0.0.1/9092; x", known) == "/dev/tcp/127.0.0.1/41; x"


def followed(tmp_path: Path, text: str, timeout_s: float = 60) -> None:
    page = tmp_path / "page.md"
    page.write_text(text)
    folder = tmp_path / "at"
    folder.mkdir()
    follow(page, folder, env=os.environ, addresses={}, timeout_s=timeout_s)


def test_a_page_that_does_what_it_says(tmp_path: Path) -> None:
    followed(tmp_path, PAGE)


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
