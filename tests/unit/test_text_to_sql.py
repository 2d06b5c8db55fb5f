"""`eval text-to-sql`: schemas, made-up rows, gold, the judge, and a run from end to end over a tiny set."""

from __future__ import annotations

import codecs
import json
from datetime import date

import pytest

from router.errors import UsageError
from router.evals.text_to_sql.catalogs import build_catalog, grants_over, with_synonyms
from router.evals.text_to_sql.court import courts
from router.evals.text_to_sql.golds import Gold, classes_of, gold_texts, parse, read_gold, read_uses
from router.evals.text_to_sql.judge import asks_order, judge, run_gold
from router.evals.text_to_sql.rows import make_rows, open_workshop
from router.evals.text_to_sql.run import CURVE, parse_options, run_text_to_sql
from router.evals.text_to_sql.schemas import load_questions, load_schemas, split_statements
from router.sql.check import narrow
from router.sql.form import Aggregated, Compare, Form, Ref, Value
from router.sql.planner import DERIVED
from tests.bench.judging import judge_the_judge
from tests.world import ROOT

DAY = date(2026, 11, 30)
TABLES = {
    "db_id": "shows",
    "table_names_original": ["Singer", "Concert", "Singer_in_Concert"],
    "table_names": ["singer", "concert", "singer in concert"],
    "column_names_original": [
        [-1, "*"], [0, "Singer_ID"], [0, "Name"], [0, "Ctry"], [0, "Age"], [1, "Concert_ID"], [1, "Title"], [1, "Held_On"], [1, "Price"],
        [2, "Concert_ID"], [2, "Singer_ID"],
    ],
    "column_names": [
        [-1, "*"], [0, "singer id"], [0, "name"], [0, "country"], [0, "age"], [1, "concert id"], [1, "title"], [1, "held on"],
        [1, "price"], [2, "concert id"], [2, "singer id"],
    ],
    "column_types": ["text", "number", "text", "text", "number", "number", "text", "time", "number", "number", "number"],
    "primary_keys": [1, 5, 9],
    "foreign_keys": [[9, 5], [10, 1]],
}  # fmt: skip
QUESTIONS = [
    ("How many singers are there?", "SELECT count(*) FROM Singer"),
    ("How many singers are from France?", "SELECT count(*) FROM Singer WHERE Ctry = 'France'"),
    ("What is the average age of all singers?", "SELECT avg(Age) FROM Singer"),
    ("Show the name of each singer by age in descending order.", "SELECT Name FROM Singer ORDER BY Age DESC"),
    ("What are the titles of the 3 dearest concerts?", "SELECT Title FROM Concert ORDER BY Price DESC LIMIT 3"),
    ("Which singers are older than 40?", "SELECT Name FROM Singer WHERE Age > 40"),
    ("How many concerts were held in 2019?", "SELECT count(*) FROM Concert WHERE Held_On BETWEEN '2019-01-01' AND '2019-12-31'"),
    (
        "Which singers sang in more than 2 concerts?",
        "SELECT T1.Name FROM Singer AS T1 JOIN Singer_in_Concert AS T2 ON T1.Singer_ID = T2.Singer_ID GROUP BY T1.Singer_ID HAVING count(*) > 2",
    ),
    ("Which singers never sang?", "SELECT Name FROM Singer WHERE Singer_ID NOT IN (SELECT Singer_ID FROM Singer_in_Concert)"),
    ("How many singers are there in each country?", "SELECT Ctry, count(*) FROM Singer GROUP BY Ctry"),
]


@pytest.fixture
def folder(tmp_path):
    return write(tmp_path / "set", QUESTIONS)


def write(folder, questions, tables=TABLES, database="shows"):
    folder.mkdir()
    (folder / "dev.jsonl").write_text(
        "\n".join(json.dumps({"db_id": database, "question": text, "query": gold}) for text, gold in questions)
    )
    (folder / "tables.json").write_text(json.dumps([tables]))
    return folder


def court_of(folder, dialect="sqlite", seeds=3):
    ((_, opened),) = courts(load_schemas(folder), load_questions(folder), dialect, seeds, DAY)
    return opened()


# --- schemas ----------------------------------------------------------------------------------------------------------


def test_a_key_of_several_columns_is_made_whole(folder):
    """Spider's layout gives the first column of a bridge's key only; taken as it stands, a concert would have one singer."""
    schema = load_schemas(folder)["shows"]
    assert [table.primary_key for table in schema.tables] == [("Singer_ID",), ("Concert_ID",), ("Concert_ID", "Singer_ID")]


def test_readable_names_are_synonyms_where_they_say_more(folder):
    catalog = build_catalog(load_schemas(folder)["shows"])
    singer = catalog.dataset("singer")
    assert singer.field("ctry").synonyms == ("country",)
    assert singer.field("singer_id").synonyms == singer.synonyms == ()


def test_scripts_give_tables_keys_and_rows(tmp_path):
    (tmp_path / "set" / "db").mkdir(parents=True)
    (tmp_path / "set" / "db" / "shop.sql").write_text(
        "CREATE SCHEMA a; CREATE TABLE a.orders (id SERIAL PRIMARY KEY, item_id int REFERENCES a.items(id), at timestamp, -- no; split\n"
        " note text);\nCREATE TABLE a.items (id int, name varchar(20) UNIQUE, CONSTRAINT k PRIMARY KEY (id));\n"
        "INSERT INTO a.items VALUES (1, 'nut; bolt'), (2, 'screw');\n"
        "INSERT INTO a.orders (item_id, at, note) VALUES (1, NOW() - INTERVAL '5 min', 'x'), (2, CURRENT_DATE, no_such_function(3));"
    )
    (tmp_path / "set" / "q.jsonl").write_text(
        json.dumps({"db_name": "shop", "question": "How many orders?", "query": "SELECT count(*) FROM a.orders"})
    )
    court = court_of(tmp_path / "set", "postgres")
    orders = court.schema.table("orders")
    assert orders.links[0].table == "items"
    assert court.schema.table("items").unique_keys == (("name",),)
    assert [row[0] for row in court.rows[0]["orders"]] == [1]
    assert len(court.rows[0]["items"]) == 2
    assert len(court.skipped) == 1
    assert "no_such_function" in court.skipped[0].lower()
    court.close()


def test_semicolons_part_statements_outside_quotes_and_comments():
    assert split_statements("a 'x;y' -- ;\n; b \"c;d\" /* ; */; -- only\n") == ["a 'x;y' -- ;\n", ' b "c;d" /* ; */']


@pytest.mark.parametrize(
    ("name", "text", "code"),
    [
        ("dev.jsonl", '{"question": 1, "query": "x", "db_id": "shows"}', "questions_malformed"),
        ("dev.jsonl", "[1]", "questions_malformed"),
        ("dev.jsonl", "", "questions_missing"),
        ("dev.jsonl", '{"question": "x", "query": "x", "db_id": "other"}', "schemas_missing"),
        ("tables.json", "{", "schemas_malformed"),
        ("tables.json", '[{"db_id": "shows"}]', "schemas_malformed"),
    ],
)
def test_what_is_wrong_with_a_folder_is_said(folder, name, text, code):
    (folder / name).write_text(text)
    with pytest.raises(UsageError) as caught:
        run_text_to_sql(parse_options(folder, "sqlite", None, 2, None, DAY))
    assert caught.value.code == code


def test_byte_order_marks_are_no_part_of_a_folder(folder):
    questions, schemas = load_questions(folder), load_schemas(folder)
    for path in folder.iterdir():
        path.write_bytes(codecs.BOM_UTF8 + path.read_bytes())
    assert (load_questions(folder), load_schemas(folder)) == (questions, schemas)


# --- rows -------------------------------------------------------------------------------------------------------------


def workshop_of(folder):
    schema = load_schemas(folder)["shows"]
    trees = [parse(gold, "sqlite", schema, DAY) for _, gold in QUESTIONS]
    return open_workshop(schema, read_uses(schema, trees))


def test_rows_repeat(folder):
    assert make_rows(workshop_of(folder), 3) == make_rows(workshop_of(folder), 3)
    assert make_rows(workshop_of(folder), 3) != make_rows(workshop_of(folder), 4)


def test_literals_are_planted(folder):
    workshop = workshop_of(folder)
    for seed in range(5):
        rows = make_rows(workshop, seed)
        assert "France" in {row[2] for row in rows["Singer"]}
        assert {row[3] > 40 for row in rows["Singer"]} == {True, False}
        assert date(2019, 1, 1) in {row[2] for row in rows["Concert"]}


def test_keys_hold(folder):
    rows = make_rows(workshop_of(folder), 0)
    singers = [row[0] for row in rows["Singer"]]
    assert len(set(singers)) == len(singers)
    assert len(set(rows["Singer_in_Concert"])) == len(rows["Singer_in_Concert"])
    sang = {row[1] for row in rows["Singer_in_Concert"]}
    assert sang < set(singers), "every singer sang, so that nothing tells an inner join from an outer one"


def test_literals_of_a_foreign_key_stand_where_it_points_to(tmp_path):
    folder = write(tmp_path / "set", [("x", "SELECT count(*) FROM Singer_in_Concert WHERE Singer_ID = 7 AND Concert_ID = 9")])
    court = court_of(folder)
    for rows in court.rows:
        assert 7 in {row[0] for row in rows["Singer"]}
        assert (9, 7) in rows["Singer_in_Concert"]
        assert {row[1] for row in rows["Singer_in_Concert"]} <= {row[0] for row in rows["Singer"]}
    court.close()


def test_a_year_is_a_number_and_a_day_is_a_date(folder):
    kinds = {column.name: column.kind for table in workshop_of(folder).schema.tables for column in table.columns}
    assert kinds == {
        "Singer_ID": "integer", "Name": "text", "Ctry": "text", "Age": "integer", "Concert_ID": "integer", "Title": "text",
        "Held_On": "date", "Price": "float",
    }  # fmt: skip


# --- gold -------------------------------------------------------------------------------------------------------------


def test_braces_and_semicolons_are_variants():
    text = "SELECT {a.id, a.name}, count(*) FROM a GROUP BY {};SELECT b FROM a;"
    assert gold_texts(text) == [
        "SELECT a.id, count(*) FROM a GROUP BY a.id", "SELECT a.name, count(*) FROM a GROUP BY a.name", "SELECT b FROM a",
    ]  # fmt: skip


def test_text_in_double_quotes_is_text_for_sqlite(folder):
    schema = load_schemas(folder)["shows"]
    tree = parse('SELECT "Name" FROM Singer WHERE Ctry = "France"', "sqlite", schema, DAY)
    assert tree.sql() == "SELECT \"Name\" FROM Singer WHERE Ctry = 'France'"


def test_today_is_written_in(folder):
    tree = parse("SELECT 1 FROM t WHERE a > CURRENT_DATE - 3", "postgres", load_schemas(folder)["shows"], DAY)
    assert "2026-11-30" in tree.sql()


def test_classes(folder):
    schema = load_schemas(folder)["shows"]

    def of(text):
        return set(classes_of(schema, parse(text, "sqlite", schema, DAY)))

    assert of(QUESTIONS[0][1]) == {"no join", "count"}
    assert of(QUESTIONS[4][1]) == {"no join", "top-n, superlative"}
    assert of(QUESTIONS[6][1]) == {"no join", "count", "filter by comparison", "date range"}
    assert of(QUESTIONS[7][1]) == {"1 join", "group-by", "count", "having"}
    assert of(QUESTIONS[8][1]) == {"no join", "nested, set"}
    assert classes_of(schema, None) == ["unread"]


# --- the judge --------------------------------------------------------------------------------------------------------


def wanted_of(rows, gold):
    return run_gold(gold, lambda text: rows[text])


def verdict(gold_rows, plan_rows, **gold):
    return judge(wanted_of({"g": gold_rows, "k": gold.pop("keyed_rows", [])}, Gold("g", **gold)), plan_rows, ordered=True)


def test_columns_of_gold_are_found_among_those_of_the_plan():
    assert verdict([(1, "a"), (2, "b")], [("a", 9, 1), ("b", 9, 2)], plain_list=False) == "right"
    assert verdict([(1, "a"), (2, "b")], [("a", 9, 2), ("b", 9, 1)], plain_list=False) == "wrong"
    assert verdict([(1, 1)], [(1,)], plain_list=False) == "wrong"
    assert verdict([(1,)], [(2, 3)], plain_list=False) == "wrong"


def test_plain_lists_are_sets_and_groups_are_not():
    assert verdict([("a",), ("a",), ("b",)], [("a",), ("b",)], plain_list=True) == "right"
    assert verdict([("a",), ("a",), ("b",)], [("a",), ("b",)], plain_list=False) == "wrong"


def test_values_are_compared_by_what_they_mean():
    from datetime import datetime
    from decimal import Decimal

    same = [(1, "2020-01-02", 0.1 + 0.2, "x ", 1, "7")]
    plan = [(Decimal("1.0"), datetime.fromisoformat("2020-01-02T00:00:00"), 0.3, "x", True, 7)]
    assert verdict(same, plan, plain_list=False) == "right"
    assert verdict([("007",)], [(7,)], plain_list=False) == "wrong"
    assert verdict([(1.001,)], [(1.002,)], plain_list=False) == "wrong"


def test_order_counts_and_ties_are_free():
    keyed = [("a", 3), ("b", 2), ("c", 2), ("d", 1)]
    gold = {"plain_list": True, "ordered": True, "keyed": "k", "width": 1, "keyed_rows": keyed}
    rows = [(name,) for name, _ in keyed]
    assert verdict(rows, [("a",), ("c",), ("b",), ("d",)], **dict(gold)) == "right"
    assert verdict(rows, [("b",), ("a",), ("c",), ("d",)], **dict(gold)) == "wrong"
    twice = wanted_of({"g": [*rows, ("a",)], "k": [*keyed, ("a", 0)]}, Gold("g", True, None, 0, True, "k", 1))
    assert judge(twice, [("a",), ("b",), ("c",), ("d",)], ordered=True) == "right"
    assert judge(twice, [("d",), ("b",), ("c",), ("a",)], ordered=True) == "wrong"
    assert judge(twice, [("d",), ("b",), ("c",), ("a",)], ordered=False) == "right"


def test_a_tie_at_the_cut_says_nothing():
    keyed = [("a", 3), ("b", 2), ("c", 2)]
    gold = {"plain_list": False, "limit": 2, "ordered": True, "keyed": "k", "width": 1, "keyed_rows": keyed}
    assert verdict([("a",), ("b",)], [("x",)], **dict(gold)) == "tied"
    assert verdict([("a",)], [("a",)], **dict(gold | {"limit": 1})) == "right"
    assert verdict([("a",)], [("b",)], **dict(gold | {"limit": 1})) == "wrong"
    assert verdict([("a",), ("b",)], [("a",), ("b",)], **dict(gold | {"keyed_rows": [("a", 3), ("b", 2), ("b", 2)]})) == "right"


def test_a_cut_without_order_is_any_of_the_rows():
    rows = {"SELECT a LIMIT 2": [(1,), (2,)], "SELECT a": [(1,), (2,), (3,)]}
    wanted = run_gold(Gold("SELECT a LIMIT 2", False, 2), lambda text: rows[text.strip()])
    assert judge(wanted, [(3,), (1,)], ordered=False) == "right"
    assert judge(wanted, [(3,), (4,)], ordered=False) == "wrong"
    assert judge(wanted, [(3,)], ordered=False) == "wrong"


def test_an_order_is_asked_for_in_words():
    assert asks_order("List names in alphabetical order")
    assert asks_order("from the oldest to the youngest")
    assert not asks_order("What is the total population in cities by country?")


def test_keyed_gold_shows_what_it_orders_by(folder):
    schema = load_schemas(folder)["shows"]
    text = "SELECT Name AS n, Age FROM Singer ORDER BY n DESC, 2 LIMIT 3"
    gold = read_gold(text, parse(text, "sqlite", schema, DAY), "sqlite", "sqlite")
    assert gold.keyed == "SELECT Name AS n, Age, Name AS order_key_0, Age AS order_key_1 FROM Singer ORDER BY n DESC, 2"
    assert (gold.width, gold.limit, gold.ordered, gold.plain_list) == (2, 3, True, False)
    text = "SELECT DISTINCT Ctry FROM Singer ORDER BY Age"
    assert read_gold(text, parse(text, "sqlite", schema, DAY), "sqlite", "sqlite").keyed is None


def test_gold_is_right(folder):
    gold, missed, _, _ = judge_the_judge(folder, "sqlite", 5, DAY)
    assert not missed
    assert gold["right"] == gold["judged"] >= 9


def test_mutants_are_wrong(folder):
    _, _, by, undetected = judge_the_judge(folder, "sqlite", 5, DAY)
    assert sum(part[1] for part in by.values()) >= 15
    assert not undetected


def test_gold_that_is_empty_or_does_not_run_is_left_out(tmp_path):
    folder = write(
        tmp_path / "set",
        [
            ("none", "SELECT Name FROM Singer WHERE Age > 40 AND Age < 3"),
            ("fails", "SELECT no_such FROM Singer"),
            ("tied", "SELECT Name FROM Singer ORDER BY 1 - 1 LIMIT 1"),
            ("fine", "SELECT count(*) FROM Singer"),
        ],
    )
    court = court_of(folder)
    assert [court.fitness(question) for question in court.questions] == ["empty", "gold_failed", "tied", ""]
    court.close()


def test_a_plan_that_does_not_run_is_wrong(folder):
    court = court_of(folder)
    answered = court.judge(court.questions[0], "SELECT nothing FROM nowhere")
    assert not answered.right
    assert answered.why.startswith("it does not run on seed 0")
    court.close()


# --- synonyms ---------------------------------------------------------------------------------------------------------


def synonyms(folder, text):
    (folder / "shows.yaml").write_text(text)
    return with_synonyms(build_catalog(load_schemas(folder)["shows"]), folder, "shows")


def test_synonyms_are_added(folder):
    catalog, unused = synonyms(
        folder,
        """
        datasets:
          Singer: {synonyms: [artist], label: Name, fields: {Age: [years old]}}
          Concert: {time: Held_On, key: [Concert_ID]}
        relationships:
          Singer_in_Concert.Singer_ID: [performer]
          sung_at: {from: Singer.Age, to: Concert.Concert_ID, synonyms: [stage]}
          Concert.Price: [nobody]
        metrics: {takings: {expression: sum(concert.price), synonyms: [revenue], description: what was taken}}
        """,
    )
    singer = catalog.dataset("singer")
    assert (singer.synonyms, singer.label, singer.field("age").synonyms) == (("artist",), "name", ("years old",))
    assert catalog.dataset("concert").time == "held_on"
    assert {one.name: one.synonyms for one in catalog.relationships} == {
        "singer_in_concert_concert_id": (), "singer_in_concert_singer_id": ("performer",), "sung_at": ("stage",),
    }  # fmt: skip
    assert catalog.metric("takings").synonyms == ("revenue",)
    assert unused == ["`shows.yaml`, `relationships.Concert.Price`: the column is no declared foreign key"]


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("datasets: {Nobody: {}}", "datasets.Nobody"),
        ("datasets: {Singer: {label: nothing}}", "datasets.Singer.label"),
        ("datasets: {Singer: {fields: {nothing: [a]}}}", "datasets.Singer.fields.nothing"),
        ("datasets: {Singer: {synonyms: artist}}", "datasets.Singer.synonyms"),
        ("datasets: {Singer: {names: [artist]}}", "datasets.Singer.names"),
        ("relationships: {Singer.nothing: [a]}", "relationships.Singer.nothing"),
        ("metrics: {takings: {synonyms: [revenue]}}", "metrics.takings"),
        ("tables: {}", "tables"),
    ],
)
def test_what_no_table_has_is_an_error(folder, text, key):
    with pytest.raises(UsageError) as caught:
        synonyms(folder, text)
    assert caught.value.code == "synonyms_malformed"
    assert f"`shows.yaml`, `{key}`" in caught.value.message


def test_a_folder_without_a_file_for_any_database_is_an_error(folder, tmp_path):
    (tmp_path / "shwos.yaml").write_text("{}")
    with pytest.raises(UsageError) as caught:
        run_text_to_sql(parse_options(folder, "sqlite", tmp_path, 1, None, DAY))
    assert caught.value.code == "synonyms_missing"
    assert "shows.yaml" in caught.value.hint


def test_everything_is_granted_and_nothing_masked(folder):
    schema = load_schemas(folder)["shows"]
    catalog = build_catalog(schema)
    assert narrow(catalog, grants_over(catalog, schema)) == catalog


# --- the run ----------------------------------------------------------------------------------------------------------


def planned(monkeypatch, plan):
    """The run with a planner of our own."""
    from router.evals.text_to_sql import run

    monkeypatch.setattr(run, "planner", lambda court, catalog, today: plan)


def test_answers_are_counted(folder, monkeypatch):
    count = Aggregated("count", Ref("singer", "*"))
    forms = {
        QUESTIONS[0][0]: Form("singer", measures=(count,), confidence=0.9),
        QUESTIONS[1][0]: Form("singer", measures=(count,), confidence=0.9),
        QUESTIONS[2][0]: Form("singer", measures=(Aggregated("avg", Ref("singer", "age")),), confidence=0.7),
        QUESTIONS[5][0]: Form("singer", (Ref("singer", "name"),), where=(Compare(Ref("singer", "age"), ">", (Value(40),)),)),
    }
    planned(monkeypatch, lambda text: forms.get(text, "planner_unknown"))
    report = run_text_to_sql(parse_options(folder, "sqlite", None, 3, None, DAY)).as_json()
    assert (report["questions"], report["judged"], report["answered"], report["right"]) == (10, 10, 3, 2)
    assert (report["coverage"], report["precision"], report["confidence"]) == (30.0, 66.67, DERIVED)
    assert report["abstentions"] == {"planner_unknown": 6, "below_confidence": 1}
    assert [one["confidence"] for one in report["curve"]] == list(CURVE)
    assert (report["curve"][0]["answered"], report["curve"][-1]["answered"]) == (4, 1)
    (wrong,) = report["wrong"]
    assert wrong["question"] == QUESTIONS[1][0]
    assert "count" in wrong["sql"].lower()
    assert wrong["gold"] == QUESTIONS[1][1]
    assert "singer" in wrong["reading"]
    assert wrong["why"]
    assert report["by_database"]["shows"]["answered"] == 3
    json.dumps(report)


def test_a_planner_that_raises_is_told(folder, monkeypatch):
    planned(monkeypatch, lambda text: 1 / 0)
    report = run_text_to_sql(parse_options(folder, "sqlite", None, 1, 0.0, DAY)).as_json()
    assert report["abstentions"] == {"fault": 10}
    assert "ZeroDivisionError" in report["faults"][0]
    assert QUESTIONS[0][0] in report["faults"][0]


def test_refused_plans_are_no_answers(folder, monkeypatch):
    """The compiler refuses one, the gate the other, which is too long."""
    wide = Compare(Ref("singer", "name"), "=", (Value("a" * 9_000),))
    forms = {
        QUESTIONS[0][0]: Form("singer", (Ref("singer", "nothing"),)),
        QUESTIONS[1][0]: Form("singer", (Ref("singer", "name"),), where=(wide,)),
    }
    planned(monkeypatch, lambda text: forms.get(text, "planner_unknown"))
    report = run_text_to_sql(parse_options(folder, "sqlite", None, 1, 0.0, DAY)).as_json()
    assert report["answered"] == 0
    assert report["abstentions"] == {"planner_unknown": 8, "E_NAME_NOT_FOUND": 1, "sql_too_large": 1}


def test_the_planner_itself_answers(folder):
    report = run_text_to_sql(parse_options(folder, "sqlite", None, 2, 0.0, DAY)).as_json()
    assert report["answered"] >= 4
    assert not report["wrong"], report["wrong"]


def test_format_is_documented():
    text = (ROOT / "deploy" / "text-to-sql.md").read_text()
    for word in ("tables.json", "db_name", "relationships", "synonyms", "label", "time", "metrics", "{a, b}", "--seeds"):
        assert word in text


def test_command_prints_one_document(folder, capsys, monkeypatch):
    from router.doors import cli

    monkeypatch.setattr(
        "sys.argv", ["pointsman", "eval", "text-to-sql", str(folder), "--seeds", "1", "--now", "2026-11-30", "--json"]
    )
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == 0
    report = json.loads(capsys.readouterr().out)
    assert {
        "questions",
        "answered",
        "right",
        "wrong",
        "abstained",
        "precision",
        "coverage",
        "by_database",
        "by_type",
        "ties_skipped",
    } <= set(report)
    monkeypatch.setattr("sys.argv", ["pointsman", "eval", "text-to-sql", str(folder), "--gold", "oracle", "--json"])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == 2
    assert json.loads(capsys.readouterr().out)["error"]["code"] == "usage"
