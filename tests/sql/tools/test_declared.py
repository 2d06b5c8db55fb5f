"""Tools as governance.yaml declares them: strict, with the place of what is wrong, and `policies check` about their examples."""

import re

import pytest

from router.policy import load_policies
from router.policy.load import inspect_files
from router.policy.strict import Faults
from router.review.check import check_policies
from tests.sql.tools.tool_world import HERE

RAW = {path.name: path.read_bytes() for path in (HERE / "policies").iterdir()}
TEXT = RAW["governance.yaml"].decode()


def faults(old, new, text=TEXT):
    assert old in text
    changed = text.replace(old, new, 1)
    found = inspect_files(RAW | {"governance.yaml": changed.encode()}, Faults())[1]
    return [(fault, changed.splitlines()[fault.line - 1]) for fault in found]


@pytest.mark.parametrize(
    ("old", "new", "message", "place"),
    [
        ("  stock_check:", "  Stock Check:", "`tools.Stock Check` is no name for a tool", "description"),
        ("    description: The open claims", "    descriptoin: The open claims", "unknown key `descriptoin`", "descriptoin"),
        ("answer: count", "answer: number", "needs `answer`, one or several of list, value, yesno, count", "answer: number"),
        ("type: enum, field: claims.region", "type: choice, field: claims.region", "has the type `choice`", "choice"),
        (", values: [North, South, East, West]", "", "needs `values`, a list of strings", "region:"),
        ("type: ref, field: claims.customer", "type: ref", "needs `field`, whose stored values it takes", "customer:"),
        ("field: claims.customer }\n    form", "field: customer }\n    form", "has the field `customer`", "customer:"),
        (", min: 1, max: 99, cue: [depot]", "", "is a number without `cue`", "depot:"),
        ("min: 1, max: 99", "min: one, max: 99", "needs `min`, a whole number", "min: one"),
        ("type: date, field: claims.opened_on,", "type: date, min: 1999, field: claims.opened_on,", "needs `min`, a day", "min: 1999"),
        ("values: [North, South", "min: 3, values: [North, South", "has `min`, which means nothing for enum", "min: 3"),
        (r"'PN-\d{5}'", r"'PN-(\d{5}'", "has a pattern that is no regular expression", "pattern"),
        (r"'PN-\d{5}'", r"'(P+)+'", "has a pattern that repeats what repeats", "pattern"),
        ('"{region}" }', "North }", "does not use the parameter `region`", "params:"),
        ('value: "{claim}"', 'value: "{clam}"', "has `{clam}` in its form, which is no parameter", "form:"),
        ("from: technicians", 'from: "{depot}"', "has `{depot}` where no value stands", "form:"),
        ("[parts.part, parts.depot,", "[parts.prat, parts.depot,", "(E_NAME_NOT_FOUND): there is no field `parts.prat`", "form:"),
        ("field: parts.part, pattern", "field: parts.prat, pattern", "(E_NAME_NOT_FOUND): there is no field `parts.prat`", "form:"),
        ("measures: [{ agg: count", "measures: [{ agg: mean", "has a form that is none (form_invalid)", "form:"),
        ('"open claims {region}"', '"open claims North"', "without `{region}`", "examples:"),
        ('"open claims {region}"', '"open claims {area}"', "has `{area}` in an example", "examples:"),
        ('"open claims {region}"', '"open claims {region} {region}"', "with a value twice", "examples:"),
        ('"open claims {region}"', '"claims not open {region}"', "which denies", "examples:"),
        ('"open claims {region}"', '"Why are claims open in {region}?"', "asks for nothing that a tool answers", "examples:"),
        ('"open claims {region}"', '"How many claims are open in {region}?"', "which asks for count", "examples:"),
        ('above {amount} euro"', 'of {amount} euro"', "that no cue stands before", "examples:"),
        ("values: true }", "values: false }", "takes stored values of `claims.customer`, which are not open", "params:"),
        ("max: 99, cue: [depot]", 'max: 99, cue: ["?"]', "has a cue without a word", "cue"),
        ('op: "=", value: open', 'op: "=", value: 5.5.5', "", ""),
    ],
)  # fmt: skip
def test_faults_name_the_place(old, new, message, place):
    found = faults(old, new)
    if not message:
        assert found == []
        return
    fault, line = found[0]
    assert message in fault.message
    assert fault.file == "governance.yaml"
    assert place in line
    assert "`tools" in fault.message
    assert re.search(r"/(work|root|tmp)/", fault.message + fault.hint) is None


def test_three_examples():
    few = re.sub(r'      - "open claims \{region\}"\n      - "Show me the claims[^\n]*\n', "", TEXT)
    assert "has fewer than 3 examples" in faults("tools:", "tools:", few)[0][0].message


def test_an_optional_parameter_stands_by_itself():
    text = TEXT.replace("max: 99, cue: [depot] }", "max: 99, cue: [depot], required: false }", 1)
    assert faults("tools:", "tools:", text) == []
    deep = text.replace(
        '{ field: parts.depot, op: "=", value: "{depot}" }',
        '{ any: [{ field: parts.depot, op: "=", value: "{depot}" }, { field: parts.part, op: "=", value: "{part}" }] }',
        1,
    )
    assert "deep in its form" in faults("tools:", "tools:", deep)[0][0].message


def test_tools_need_a_catalogue():
    raw = {name: content for name, content in RAW.items() if name != "catalog.yaml"}
    assert "asks of a catalogue, and there is none" in inspect_files(raw, Faults())[1][0].message


def test_without_tools_there_are_none():
    text = TEXT[: TEXT.index("tools:")]
    policies, found = inspect_files(RAW | {"governance.yaml": text.encode()}, Faults())
    assert found == []
    assert policies.tools == ()


def test_a_tool_changes_the_policy_version():
    policies, _ = inspect_files(
        RAW | {"governance.yaml": TEXT.replace("The open claims of a region", "Open claims").encode()}, Faults()
    )
    assert policies.version != load_policies(HERE / "policies").version


def check(tmp_path, text):
    for name, content in RAW.items():
        (tmp_path / name).write_bytes(text.encode() if name == "governance.yaml" else content)
    return [finding for finding in check_policies(tmp_path) if finding.file == "governance.yaml"]


def test_check_is_quiet_about_good_tools(tmp_path):
    assert check(tmp_path, TEXT) == []


def test_check_tells_of_examples_that_fit_another_tool(tmp_path):
    text = TEXT.replace(
        '      - "technicians based at depot {depot}"',
        '      - "technicians based at depot {depot}"\n      - "Which parts are low at depot {depot}?"',
    )
    found = {text.splitlines()[one.line - 1].strip(): one for one in check(tmp_path, text)}
    mine = found["description: The technicians who work at a depot"]
    assert mine.level == "warning"
    assert mine.message == (
        "the example `Which parts are low at depot {depot}?` of the tool `technicians_of_depot` fits `low_stock`, too"
    )
