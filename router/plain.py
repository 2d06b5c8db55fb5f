"""YAML from strangers, as plain values: front matter, labels, sidecars. One strict reader, so that no place forgets a rule.

INVARIANT: aliases and anchors are refused (a few lines could unfold to gigabytes), as are repeated keys (readers disagree
which one counts) and deep nesting (tests/faults/test_documents.py::test_yaml_aliases).
"""

from __future__ import annotations

from typing import Any

MAX_DEPTH = 20
MAX_CHARS = 4_000_000


class NotPlain(ValueError):  # noqa: N818 (says what the text is)
    """The text is not YAML that this reader takes; the message says why, without quoting the text."""


def parse_yaml(text: str) -> Any:
    """Plain values of one YAML document: mappings with text keys, lists, text, numbers, booleans, dates, None."""
    import yaml

    if len(text) > MAX_CHARS:
        raise NotPlain(f"longer than {MAX_CHARS} characters")
    loader = _strict_loader()
    try:
        _check_events(yaml.parse(text, Loader=loader))
        return yaml.load(text, Loader=loader)  # noqa: S506 (a subclass of the safe loader)
    except yaml.MarkedYAMLError as error:
        place = f" in line {error.problem_mark.line + 1}" if error.problem_mark else ""
        raise NotPlain(f"not valid YAML{place}") from None
    except NotPlain:
        raise
    except (yaml.YAMLError, ValueError, RecursionError, OverflowError):
        raise NotPlain("not valid YAML") from None


def _check_events(events: Any) -> None:
    import yaml

    depth = 0
    for event in events:
        if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None) is not None:
            raise NotPlain("aliases and anchors are not allowed")
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > MAX_DEPTH:
            raise NotPlain(f"nested deeper than {MAX_DEPTH} levels")


def _strict_loader() -> Any:
    """The safe loader (in C where it was built) that also refuses keys that are no text or come twice."""
    import yaml

    base: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

    class StrictLoader(base):  # type: ignore[misc]
        def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
            seen: set[str] = set()
            for key_node, _ in node.value:
                key = self.construct_object(key_node, deep=True)
                if not isinstance(key, str):
                    raise NotPlain(f"a key in line {key_node.start_mark.line + 1} is no text")
                if key in seen:
                    raise NotPlain(f"a key comes twice in line {key_node.start_mark.line + 1}")
                seen.add(key)
            return dict(super().construct_mapping(node, deep=deep))

    return StrictLoader
