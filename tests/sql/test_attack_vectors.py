"""Every vector of the threat table, by name: the text is refused, nothing is written, and nobody's secret stands in the answer.

What a vector must not reach is any base table (`employees`, `claims`, `tenants`…), any hidden column, any unmasked value, any
row of another tenant, the catalogue, settings, statistics, files and the clock.
"""

from __future__ import annotations

import hashlib
import os

import pytest

from connectors.duckdb_tables import DuckTables
from router.domain import SqlLimits
from router.errors import Refused
from tests.sql.oracle import GATE, TENANTS, leaks, make_database, oracle, run, same

LIMITS = SqlLimits(timeout_s=1.0)

VECTORS = {
    "base_table_anywhere": [
        "SELECT * FROM claims_v JOIN employees USING (tenant_id)",
        "SELECT (SELECT max(ssn) FROM employees)",
        "SELECT UNNEST((SELECT list(ssn) FROM employees))",
        "SELECT 1 FROM claims_v LIMIT (SELECT count(*) FROM employees)",
        "SELECT 1 FROM claims_v OFFSET (SELECT count(*) FROM employees)",
        "SELECT sum(amount) FILTER (WHERE EXISTS (FROM employees)) FROM claims_v",
        "SELECT * REPLACE ((SELECT min(ssn) FROM employees) AS status) FROM claims_v",
        "SELECT * FROM (VALUES ((SELECT min(ssn) FROM employees))) AS v(a)",
        "PIVOT employees ON title IN ('clerk') USING sum(salary)",
        "UNPIVOT employees ON salary INTO NAME n VALUE v",
        "SELECT * FROM employees PIVOT (sum(salary) FOR title IN ('clerk'))",
        "SELECT rank() OVER (ORDER BY (SELECT max(salary) FROM employees)) FROM claims_v",
        "SELECT rank() OVER (PARTITION BY (SELECT 1 FROM employees)) FROM claims_v",
        "SELECT 1 FROM claims_v GROUP BY (SELECT max(ssn) FROM employees)",
        "SELECT 1 FROM claims_v ORDER BY (SELECT max(ssn) FROM employees)",
        "SELECT 1 FROM claims_v HAVING (SELECT true FROM employees LIMIT 1)",
        "SELECT 1 FROM claims_v QUALIFY row_number() OVER () > (SELECT count(*) FROM employees)",
        "SELECT DISTINCT ON ((SELECT max(ssn) FROM employees)) 1 FROM claims_v",
        "SELECT count(*) FROM claims_v WINDOW w AS (ORDER BY (SELECT max(ssn) FROM employees))",
        "SELECT list_transform(tags, LAMBDA t : (SELECT max(ssn) FROM employees)) FROM claims_v",
        "SELECT [(SELECT max(ssn) FROM employees) FOR x IN tags] FROM claims_v",
        "SELECT {'a': (SELECT max(ssn) FROM employees)}",
        "SELECT MAP {'a': (SELECT max(ssn) FROM employees)}",
        "SELECT CASE WHEN true THEN (SELECT max(ssn) FROM employees) END",
        "SELECT tags[(SELECT count(*) FROM employees):] FROM claims_v",
        "SELECT ARRAY(SELECT ssn FROM employees)",
        "SELECT * FROM claims_v, LATERAL (SELECT ssn FROM employees) AS l",
        "SELECT * FROM claims_v JOIN depots_v ON (SELECT true FROM employees LIMIT 1)",
        "SELECT 1 UNION SELECT ssn FROM employees",
        "SELECT 1 FROM claims_v WHERE claim_id = ANY (SELECT employee_id FROM employees)",
        "SELECT 1 FROM claims_v WHERE (claim_id, 1) IN (SELECT employee_id, 1 FROM employees)",
        "FROM (FROM employees)",
        "TABLE employees",
        "SELECT * FROM (claims_v JOIN employees ON true)",
        "SELECT * FROM claims_v ASOF JOIN employees e ON claims_v.claim_id >= e.employee_id",
        "SELECT * FROM claims_v POSITIONAL JOIN employees",
        "SELECT 1 FROM range((SELECT count(*) FROM employees))",
    ],
    "cte_scope_tricks": [
        "WITH employees AS (SELECT * FROM employees) SELECT ssn FROM employees",
        "WITH a AS (SELECT * FROM employees), employees AS (SELECT 1 AS x) SELECT ssn FROM a",
        "WITH RECURSIVE employees AS (SELECT * FROM employees) SELECT ssn FROM employees",
        "WITH RECURSIVE a AS (SELECT ssn FROM b UNION SELECT ssn FROM a), b AS (SELECT 1) SELECT * FROM a",
        "WITH employees AS (SELECT 1 AS x) SELECT ssn FROM main.employees",
        "SELECT (WITH employees AS (SELECT 1 AS x) SELECT x FROM employees), (SELECT max(ssn) FROM employees)",
        "SELECT * FROM (WITH employees AS (SELECT 1 AS x) SELECT * FROM employees) q, employees",
        "(WITH employees AS (SELECT 1 AS ssn) SELECT ssn FROM employees) UNION ALL SELECT ssn FROM employees",
        "SELECT ssn FROM employees UNION ALL (WITH employees AS (SELECT 1 AS ssn) SELECT ssn FROM employees)",
        "WITH RECURSIVE employees(ssn) AS (SELECT ssn FROM employees UNION SELECT ssn FROM employees) SELECT * FROM employees",
        "SELECT * FROM pointsman_cte_0",
        "WITH a AS (SELECT 1) SELECT * FROM pointsman_cte_0",
        "WITH x AS (SELECT 1), x AS (SELECT ssn FROM employees) SELECT * FROM x",
        "WITH RECURSIVE t USING KEY (a) AS (SELECT 1 AS a UNION SELECT a FROM recurring.t) SELECT * FROM t",
    ],
    "view_name_shadowed": [
        "WITH claims_v AS (SELECT * FROM claims) SELECT * FROM claims_v",
        "WITH claims_v AS (SELECT 1 AS x) SELECT * FROM claims_v",
        'WITH "CLAIMS_V" AS (SELECT * FROM claims) SELECT * FROM claims_v',
        "CREATE OR REPLACE TEMP VIEW claims_v AS SELECT * FROM claims",
        "CREATE TEMP TABLE claims_v AS SELECT * FROM claims",
        "SELECT claims_v.ssn FROM employees AS claims_v",
    ],
    "hidden_column": [
        "SELECT claimant_phone FROM claims_v",
        "SELECT 1 FROM claims_v WHERE claimant_phone LIKE '+44%'",
        "SELECT 1 FROM claims_v JOIN (SELECT '+44-777-0013' AS claimant_phone) USING (claimant_phone)",
        "SELECT 1 FROM claims_v ORDER BY claimant_phone",
        "SELECT c['claimant_phone'] FROM claims_v c",
        "SELECT c.claimant_phone FROM claims_v c",
        "SELECT struct_extract(c, 'claimant_phone') FROM claims_v c",
        "SELECT COLUMNS('claimant_phone') FROM claims_v",
        "SELECT COLUMNS(LAMBDA c : c LIKE '%phone') FROM claims_v",
        "SELECT * REPLACE (claimant_phone AS status) FROM claims_v",
        "SELECT * EXCLUDE (claimant_phone) FROM claims_v",
        "SELECT claimant_phone.lower() FROM claims_v",
        "SELECT max(claimant_phone) OVER () FROM claims_v",
        "SELECT main.claims_v.claimant_phone FROM main.claims_v",
        "SELECT internal_note FROM claims_v",
        "SELECT rowid FROM claims_v",
    ],
    "sql_in_strings": [
        "SELECT * FROM query('SELECT ssn FROM employees')",
        "SELECT * FROM query_table('employees')",
        "SELECT * FROM query_table('empl' || 'oyees')",
        "FROM json_execute_serialized_sql(json_serialize_sql('SELECT ssn FROM employees'))",
        "SELECT json_serialize_sql('SELECT 1')",
        "SELECT * FROM summary((SELECT * FROM claims_v))",
        "SELECT list_aggregate([1], 'write_log')",
        "SELECT list_aggregate(tags, (SELECT 'min')) FROM claims_v",
    ],
    "files": [
        "SELECT * FROM read_csv('/etc/passwd')",
        "SELECT * FROM read_text('/etc/hostname')",
        "SELECT * FROM read_blob('tables.duckdb')",
        "SELECT * FROM read_parquet('x.parquet')",
        "SELECT * FROM read_duckdb('tables.duckdb', table_name = 'employees')",
        "SELECT * FROM glob('/etc/*')",
        "SELECT * FROM sniff_csv('/etc/passwd')",
        "SELECT * FROM parquet_metadata('x')",
        "SELECT * FROM '/etc/passwd'",
        "SELECT * FROM 'x.csv'",
        'SELECT * FROM "x.parquet"',
        "SELECT * FROM 'https://example.com/x.csv'",
        "SELECT * FROM 's3://x/y.parquet'",
    ],
    "catalogue": [
        "SELECT * FROM information_schema.tables",
        "SELECT * FROM pg_catalog.pg_class",
        "SELECT * FROM pg_class",
        "SELECT * FROM sqlite_master",
        "SELECT * FROM duckdb_tables",
        "SELECT * FROM duckdb_columns()",
        "SELECT * FROM duckdb_settings()",
        "SELECT * FROM duckdb_views()",
        "SELECT * FROM duckdb_databases()",
        "SELECT * FROM pragma_storage_info('claims')",
        "SELECT * FROM pragma_table_info('claims')",
        "SHOW TABLES",
        "SHOW ALL TABLES",
        "SELECT * FROM (SHOW TABLES)",
        "DESCRIBE claims_v",
        "SELECT * FROM (DESCRIBE claims_v)",
        "SUMMARIZE claims_v",
        "FROM (SUMMARIZE claims_v)",
        "SELECT * FROM temp.main.claims_v",
        "SELECT * FROM served.main.claims_v",
        "SELECT * FROM memory.main.claims_v",
        "SELECT * FROM temp.claims_v",
        "SELECT * FROM served.claims",
    ],
    "session_and_settings": [
        "SELECT current_setting('memory_limit')",
        "SELECT current_query()",
        "SELECT getvariable('tenant')",
        "SELECT version()",
        "SELECT current_user",
        'SELECT "current_user"',
        "SELECT current_schema()",
        "SELECT current_database()",
        "SELECT txid_current()",
        "SELECT getenv('HOME')",
        "SELECT now()",
        "SELECT current_timestamp",
        "SELECT localtimestamp",
        "SELECT get_current_timestamp()",
    ],
    "statistics": [
        "SELECT stats(amount) FROM claims_v",
        "SELECT stats(amount) FROM (SELECT * FROM claims_v WHERE tenant_id = 1)",
        "SELECT vector_type(amount) FROM claims_v",
        "SELECT amount.stats() FROM claims_v",
        "PRAGMA storage_info('claims')",
    ],
    "macros_and_qualified_functions": [
        "SELECT staff_count(2)",
        "SELECT * FROM staff_of(3)",
        "SELECT main.staff_count(2)",
        "SELECT main.lower('A')",
        "SELECT system.main.lower('A')",
        "CREATE TEMP MACRO lower(x) AS 1",
        'SELECT "main"."staff_count"(2)',
    ],
    "writes": [
        "INSERT INTO tenants VALUES (4, 'a', 'b', 'c', 'd', 'e')",
        "UPDATE tenants SET name = 'x'",
        "DELETE FROM tenants",
        "DROP VIEW claims_v",
        "TRUNCATE tenants",
        "CREATE TABLE x (a INT)",
        "ALTER TABLE tenants ADD COLUMN x INT",
        "MERGE INTO tenants USING claims_v ON false WHEN NOT MATCHED THEN INSERT VALUES (1)",
        "WITH x AS (DELETE FROM tenants RETURNING *) SELECT * FROM x",
        "WITH x AS (INSERT INTO tenants SELECT * FROM tenants RETURNING *) SELECT * FROM x",
        "SELECT claim_id INTO x FROM claims_v",
        "SELECT claim_id INTO TEMP x FROM claims_v",
        "SELECT nextval('ticket_seq')",
    ],
    "copy_attach_load": [
        "COPY (SELECT 1) TO 'x.csv'",
        "COPY claims_v TO 'x.csv'",
        "EXPORT DATABASE 'x'",
        "ATTACH ':memory:' AS side",
        "INSTALL httpfs",
        "LOAD httpfs",
        "CREATE SECRET (TYPE s3)",
        "IMPORT DATABASE 'x'",
    ],
    "session_statements": [
        "SET memory_limit = '8GB'",
        "RESET memory_limit",
        "SET VARIABLE tenant = 2",
        "USE served",
        "PRAGMA version",
        "CALL duckdb_tables()",
        "PREPARE p AS SELECT 1",
        "EXECUTE p",
        "DEALLOCATE p",
        "BEGIN",
        "COMMIT",
        "CHECKPOINT",
        "VACUUM",
        "ANALYZE",
    ],
    "explain": ["EXPLAIN SELECT * FROM claims_v", "EXPLAIN ANALYZE SELECT * FROM claims_v", "SELECT * FROM (EXPLAIN SELECT 1)"],
    "multi_statements": [
        "SELECT 1; SELECT 2",
        "SELECT 1; DROP VIEW claims_v",
        "SELECT 1 /* ; */ ; -- x\nSELECT ssn FROM employees",
        ";",
        "SELECT 1;; SELECT 2",
    ],
    "dynamic_pivot": ["PIVOT claims_v ON status USING sum(amount)", "SELECT * FROM (PIVOT claims_v ON status USING sum(amount))"],
    "not_reproducible": [
        "SELECT * FROM claims_v USING SAMPLE 5",
        "SELECT * FROM claims_v TABLESAMPLE 10%",
        "SELECT random()",
        "SELECT uuid()",
        "SELECT gen_random_uuid()",
        "SELECT * FROM claims_v AT (VERSION => 1)",
        "SELECT * FROM claims_v AT (TIMESTAMP => TIMESTAMP '2023-01-01')",
    ],
    "placeholders": [
        "SELECT $1",
        "SELECT ?",
        "SELECT $tenant",
        "SELECT 1 FROM claims_v LIMIT ?",
        "SELECT tags[:n] FROM claims_v",
    ],
    "growing_functions": [
        "SELECT length(repeat('a', 1000000000))",
        "SELECT lpad('a', 2000000000, 'b')",
        "SELECT format('{:>1000000000}', 'a')",
        "SELECT printf('%1000000000s', 'a')",
        "SELECT list_resize([1], 1000000000)",
        "SELECT damerau_levenshtein('a', 'b')",
        "SELECT sleep_ms(60000)",
        "SELECT pg_sleep(60)",
        "SELECT bar(1, 0, 1, 1000000000)",
    ],
    "parser_bombs": [
        "SELECT a" + "[1]" * 2500 + " FROM claims_v",
        "SELECT " + "(" * 300 + "1" + ")" * 300,
        "SELECT " + "[" * 300 + "1" + "]" * 300,
        "SELECT " + "NOT " * 1900 + "true FROM employees",
        "SELECT " + "CASE WHEN true THEN " * 300 + "1" + " END" * 300,
    ],
    "characters": [
        "\ufeffSELECT 1 FROM claims_v",
        "SELECT\u00a01 FROM claims_v",
        "SELECT \u20281",
        "SELECT `ssn` FROM `employees`",
        "SELECT 1\x00",
        "U&'\\0061'",
    ],
    "names_in_other_spellings": [
        'SELECT ssn FROM "EMPLOYEES"',
        "SELECT ssn FROM 'employees'",
        "SELECT ssn FROM $$employees$$",
        "SELECT ssn FROM main.main.employees",
        'SELECT ssn FROM "main"."employees"',
        "SELECT ssn FROM /* claims_v */ employees",
        "SELECT ssn FROM claims_v AS employees, LATERAL (SELECT * FROM employees)",
        "SELECT ssn FROM employees.employees",
    ],
}


@pytest.fixture(scope="module")
def database(tmp_path_factory):
    return make_database(tmp_path_factory.mktemp("vectors"))


@pytest.fixture(scope="module")
def engine(database):
    with DuckTables(GATE, database, workers=1, limits=LIMITS) as engine:
        yield engine


@pytest.mark.parametrize("vector", sorted(VECTORS))
def test_vector(engine, database, vector, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    before = hashlib.sha256(database.read_bytes()).hexdigest()
    for text in VECTORS[vector]:
        with pytest.raises(Refused) as refusal:
            run(engine, text, 1, limits=LIMITS)
        shown = str(refusal.value.as_json())
        assert not leaks(1, shown), text
        assert "employees" not in shown, text
    assert hashlib.sha256(database.read_bytes()).hexdigest() == before
    assert os.listdir(tmp_path) == []


SAFE = {
    "alias_captures_tenant_predicate": [
        "SELECT x.tenant_id, count(*) FROM (SELECT 2 AS tenant_id) x CROSS JOIN claims_v c GROUP BY x.tenant_id",
        "SELECT claim_id AS tenant_id FROM claims_v ORDER BY tenant_id",
        "SELECT count(*) FROM claims_v WHERE tenant_id = 2 OR 1 = 1",
        "SELECT count(*) FROM claims_v WHERE tenant_id <> 1",
        "SELECT count(*) FROM claims_v NATURAL JOIN (SELECT 2 AS tenant_id)",
        "SELECT max(amount), min(amount) FROM claims_v",
    ],
    "mask_bypass": [
        "SELECT count(*) FROM claims_v WHERE claimant_name LIKE '%Adler%'",
        "SELECT count(*) FROM claims_v WHERE claimant_email = 'c1@acme.example'",
        "SELECT count(*) FROM claims_v a JOIN (SELECT 'c1@acme.example' AS claimant_email) b USING (claimant_email)",
        "SELECT DISTINCT length(claimant_name) FROM claims_v",
        "SELECT claimant_name FROM claims_v GROUP BY claimant_name ORDER BY claimant_name",
        "SELECT CAST(c AS VARCHAR) FROM claims_v c ORDER BY claim_id LIMIT 3",
    ],
    "cte_named_like_a_base_table": [
        "WITH employees AS (SELECT claim_id AS ssn FROM claims_v) SELECT count(ssn) FROM employees",
        "WITH claims AS (SELECT * FROM claims_v) SELECT count(*) FROM claims",
        "SELECT (WITH claims AS (SELECT 1 AS x) SELECT x FROM claims)",
        "WITH a AS (WITH claims AS (SELECT amount FROM claims_v) SELECT sum(amount) AS s FROM claims) SELECT s FROM a",
    ],
    "everything_of_a_row": [
        "SELECT c FROM claims_v c ORDER BY claim_id",
        "SELECT c.* FROM claims_v AS c",
        "SELECT COLUMNS(*) FROM depots_v",
    ],
    "dangerous_words_in_literals": [
        "SELECT count(*) FROM claims_v WHERE status <> 'x; DROP TABLE claims; --' AND product <> $$/* it's */$$",
        "SELECT 'read_csv(''/etc/passwd'')' AS a, $$SELECT ssn FROM employees$$ AS b",
    ],
}


@pytest.mark.parametrize("vector", sorted(SAFE))
def test_vector_that_answers_safely(engine, vector):
    """These run, and see nothing but what physical copies hold."""
    for text in SAFE[vector]:
        for tenant in TENANTS:
            assert same(run(engine, text, tenant).rows, oracle(tenant).run(text)), (tenant, text)
