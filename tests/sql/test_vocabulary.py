"""What a caller's words can stand for holds granted things only, and stored values under the caller's own filter."""

from router.catalog import Catalog, Dataset, DatasetField
from router.domain import ColumnGrant, Table, TableColumn, TableGrant
from router.errors import SourceError
from router.filters import ALWAYS, Eq
from router.sql.planner import reads_as_question
from router.sql.vocabulary import MAX_VALUES, build_vocabulary, vocabulary_key

CATALOG = Catalog(
    "world",
    (
        Dataset(
            "claims",
            "main.claims",
            (
                DatasetField("claim_id", "claim_id", datatype="Integer"),
                DatasetField("status", "status", datatype="String"),
                DatasetField("claimant", "claimant", datatype="String"),
                DatasetField("secret", "secret", datatype="String"),
                DatasetField("loud", "upper(status)", datatype="String"),
            ),
            primary_key=("claim_id",),
        ),
    ),
)
OPEN = frozenset({("claims", "status"), ("claims", "claimant"), ("claims", "secret"), ("claims", "claim_id")})


def grant(f=ALWAYS, *, min_group=None):
    columns = (ColumnGrant("claim_id"), ColumnGrant("status"), ColumnGrant("claimant", "'***'"))
    return TableGrant("claims", "main.claims", columns, f, (), min_group, ("p",))


def built(values, grants=None, **options):
    asked = []

    def run(text):
        asked.append(text)
        if isinstance(values, Exception):
            raise values
        return Table((TableColumn("status", "VARCHAR", False),), tuple((value,) for value in values), False, text, "")

    return build_vocabulary(CATALOG, grants or (grant(),), (), options.get("open_values", OPEN), run), asked


def test_only_open_granted_unmasked_text_is_read():
    vocabulary, asked = built(["open", "closed", None])
    assert [(one.dataset, one.field, one.values) for one in vocabulary.values] == [
        ("claims", "status", ("open", "closed")),
        ("claims", "loud", ("open", "closed")),
    ]
    assert not any(name in text for text in asked for name in ("claimant", "secret"))
    assert {field.name for field in vocabulary.catalog.datasets[0].fields} == {"claim_id", "status", "loud"}


def test_masks_are_shown_and_nothing_else():
    """A field that is one masked column is in the index, marked; one that is computed of it is nowhere."""
    loud = DatasetField("shouted", "upper(claimant)", datatype="String")
    claims = CATALOG.datasets[0]
    catalog = Catalog("world", (Dataset("claims", "main.claims", (*claims.fields, loud), primary_key=("claim_id",)),))
    vocabulary = build_vocabulary(catalog, (grant(),), (), OPEN, lambda _: Table((), (), False, "", ""))
    assert vocabulary.index.masks.shown == {("claims", "claimant")}
    assert not vocabulary.index.masks.findable
    assert {field.name for field in vocabulary.index.catalog.datasets[0].fields} == {"claim_id", "status", "claimant", "loud"}
    assert {field.name for field in vocabulary.catalog.datasets[0].fields} == {"claim_id", "status", "loud"}


def test_values_that_nobody_opened_are_not_read():
    assert built(["open"], open_values=frozenset())[1] == []


def test_too_many_values_are_no_category():
    assert built([f"v{at}" for at in range(MAX_VALUES + 1)])[0].values == ()


def test_small_groups_give_no_values():
    _, asked = built(["open"], (grant(min_group=5),))
    assert all("HAVING" in text for text in asked)


def test_values_that_cannot_be_read_are_said_to_be_missing():
    vocabulary, _ = built(SourceError("sql_busy", "busy"))
    assert (vocabulary.values, vocabulary.missing) == ((), ("claims.status", "claims.loud"))


def test_the_key_tells_one_from_true():
    def key(value):
        return vocabulary_key("p", "t", "v", (grant(Eq("flag", value)),))

    assert key(1) != key(True)
    assert key(1) == key(1)


def test_values_that_read_like_a_question_are_no_values_of_tools():
    assert reads_as_question("by status", built(["open"])[0].index)
    assert not reads_as_question("Harbour Foods", built(["open"])[0].index)
