"""Random SELECTs over the fixture's views, each one deterministic: what it answers does not depend on an order left open.

A small grammar with types, so that nearly every text runs: joins of every kind, CTEs (nested, recursive, materialised), set
operations, windows, grouping sets, PIVOT and UNPIVOT, lists, structs, maps, lambdas, star forms, correlated sub-queries.
One number gives one text, on every machine.
"""

from __future__ import annotations

import random

N, D, S, T, L, C, P, M = "int", "dec", "str", "time", "list", "struct", "place", "map"

VIEWS: dict[str, dict[str, str]] = {
    "claims_v": {
        "tenant_id": N, "claim_id": N, "policy_id": N, "product": S, "region": S, "depot_id": N, "claim_type": S, "status": S, "severity": N,
        "amount": D, "reserve": D, "reported_at": T, "closed_at": T, "claimant_name": S, "claimant_email": S, "tags": L, "loss": C,
    },
    "approvals_v": {
        "tenant_id": N, "approval_id": N, "claim_id": N, "decision": S, "limit_amount": D, "decided_at": T, "approval_level": N,
        "approver_title": S, "approver_email": S,
    },
    "inventory_v": {
        "tenant_id": N, "item_id": N, "depot_id": N, "sku": S, "category": S, "qty_on_hand": N, "qty_reserved": N, "unit_cost": D,
        "reorder_point": N, "attrs": M,
    },
    "depots_v": {"tenant_id": N, "depot_id": N, "code": S, "city": S, "region": S, "capacity_pallets": N, "tags": L, "location": P},
}  # fmt: skip
KEYS = {"claims_v": "claim_id", "approvals_v": "approval_id", "inventory_v": "item_id", "depots_v": "depot_id"}
VALUES = {
    S: ["'open'", "'north'", "'T1-D01'", "'motor'", "'it''s'", "'%a%'", "'SKU-101'", "''", "$$x$$"],
    N: ["0", "1", "2", "3", "17", "100", "-1"],
    D: ["100", "2500.50", "0.01", "987654.32", "1e3"],
    T: ["TIMESTAMP '2023-06-01 00:00:00'", "DATE '2024-01-01'", "CAST('2023-09-09 09:09:09' AS TIMESTAMP)"],
}
Scope = list[tuple[str, dict[str, str]]]


class Grammar:
    """One text; `select` gives it with the types of its columns."""

    def __init__(self, seed: int) -> None:
        self.r = random.Random(seed)
        self.names = 0
        self.ctes: list[tuple[str, dict[str, str]]] = []

    def name(self, prefix: str = "t") -> str:
        self.names += 1
        return self.r.choice(
            [f"{prefix}{self.names}", f"{prefix}{self.names}", f'"{prefix.upper()} {self.names}"', f"employees{self.names}"]
        )

    def maybe(self, share: float) -> bool:
        return self.r.random() < share

    # scalars

    def column(self, scope: Scope, kind: str) -> str | None:
        found = [(alias, name) for alias, columns in scope for name, of in columns.items() if of == kind]
        if not found:
            return None
        alias, name = self.r.choice(found)
        spelled = name if self.maybe(0.85) else self.r.choice([name.upper(), f'"{name}"']) if name.islower() else name
        return f"{alias}.{spelled}"

    def value(self, scope: Scope, kind: str, depth: int = 2) -> str:
        column = self.column(scope, kind)
        if depth <= 0 or self.maybe(0.45):
            return column if column and self.maybe(0.85) else self.r.choice(VALUES[kind])
        return getattr(self, f"_{kind}")(scope, depth - 1)

    def _int(self, scope: Scope, depth: int) -> str:
        v = lambda kind: self.value(scope, kind, depth)  # noqa: E731
        options = [
            lambda: f"({v(N)} {self.r.choice('+-*')} {v(N)})",
            lambda: f"{v(N)} % 7",
            lambda: f"length({v(S)})",
            lambda: f"coalesce({v(N)}, 0)",
            lambda: f"CASE WHEN {self.predicate(scope, depth)} THEN {v(N)} ELSE {v(N)} END",
            lambda: f"CAST(round({v(D)}) AS BIGINT)",
            lambda: f"year({v(T)})",
            lambda: f"EXTRACT(month FROM {v(T)})",
            lambda: f"date_diff('day', {v(T)}, {v(T)})",
            lambda: f"abs({v(N)})",
            lambda: f"greatest({v(N)}, {v(N)}, 1)",
            lambda: f"if({self.predicate(scope, depth)}, 1, 2)",
            lambda: f"nullif({v(N)}, 2)",
        ]
        lists, structs = self.column(scope, L), self.column(scope, C)
        if lists:
            options += [lambda: f"len({lists})", lambda: f"{lists}.len()", lambda: f"list_position({lists}, 'urgent')"]
            options.append(lambda: f"list_sum(list_transform({lists}, LAMBDA e : length(e)))")
        if structs:
            options += [lambda: f"{structs}.items", lambda: f"{structs}['items']", lambda: f"struct_extract({structs}, 'items')"]
        return self.r.choice(options)()

    def _dec(self, scope: Scope, depth: int) -> str:
        v = lambda kind: self.value(scope, kind, depth)  # noqa: E731
        options = [
            lambda: f"({v(D)} + {v(N)})",
            lambda: f"({v(D)} - {v(D)})",
            lambda: f"round({v(D)}, 1)",
            lambda: f"{v(D)} * 0.5",
            lambda: f"CAST({v(N)} AS DECIMAL(12,2))",
            lambda: f"coalesce({v(D)}, 0)",
            lambda: f"CASE {v(N)} WHEN 1 THEN {v(D)} ELSE 0 END",
        ]
        place = self.column(scope, P)
        if place:
            options.append(lambda: f"{place}.lat")
        return self.r.choice(options)()

    def _str(self, scope: Scope, depth: int) -> str:
        v = lambda kind: self.value(scope, kind, depth)  # noqa: E731
        options = [
            lambda: f"upper({v(S)})",
            lambda: f"({v(S)} || '-' || {v(S)})",
            lambda: f"substr({v(S)}, 1, 3)",
            lambda: f"left({v(S)}, 2)",
            lambda: f"replace({v(S)}, 'o', '0')",
            lambda: f"concat_ws('/', {v(S)}, {v(S)})",
            lambda: f"CAST({v(N)} AS VARCHAR)",
            lambda: f"split_part({v(S)}, '-', 1)",
            lambda: f"CASE WHEN {self.predicate(scope, depth)} THEN 'a' ELSE {v(S)} END",
            lambda: f"strftime({v(T)}, '%Y-%m')",
            lambda: f"trim({v(S)})",
            lambda: f"regexp_replace({v(S)}, '[aeiou]', '_')",
            lambda: f"monthname({v(T)})",
            lambda: f"TRY_CAST({v(S)} AS INTEGER)::VARCHAR",
        ]
        lists, structs, maps = self.column(scope, L), self.column(scope, C), self.column(scope, M)
        if lists:
            options += [
                lambda: f"array_to_string({lists}, ',')",
                lambda: f"{lists}[1]",
                lambda: f"list_aggregate({lists}, 'max')",
            ]
            options.append(lambda: f"CAST(list_filter({lists}, LAMBDA e : e > 'm') AS VARCHAR)")
            options.append(lambda: f"CAST([upper(e) FOR e IN {lists} IF e <> 'dry'] AS VARCHAR)")
            options.append(lambda: f"CAST({lists}[1:2] AS VARCHAR)")
        if structs:
            options.append(lambda: f"{structs}.cause")
            options.append(lambda: f"CAST({{'c': {structs}.cause, 'n': 1}} AS VARCHAR)")
        if maps:
            options += [lambda: f"{maps}['color']", lambda: f"array_to_string(list_sort(map_keys({maps})), ',')"]
        return self.r.choice(options)()

    def _time(self, scope: Scope, depth: int) -> str:
        v = self.value(scope, T, depth)
        return self.r.choice([
            f"date_trunc('month', {v})", f"({v} + INTERVAL 3 DAYS)", f"({v} - INTERVAL '1' MONTH)", f"CAST({v} AS TIMESTAMP)", f"last_day({v})",
            f"({v} + INTERVAL '2 weeks')", f"time_bucket(INTERVAL '7 days', {v})",
        ])  # fmt: skip

    def predicate(self, scope: Scope, depth: int = 2) -> str:
        v = lambda kind: self.value(scope, kind, depth - 1)  # noqa: E731
        if depth > 0 and self.maybe(0.3):
            left, right = self.predicate(scope, depth - 1), self.predicate(scope, depth - 1)
            return self.r.choice([f"({left} AND {right})", f"({left} OR {right})", f"NOT {left}", f"({left}) IS NOT TRUE"])
        options = [
            lambda: f"{v(N)} {self.r.choice(['=', '<>', '<', '<=', '>', '>='])} {v(N)}",
            lambda: f"{v(D)} BETWEEN {v(D)} AND {v(D)}",
            lambda: f"{v(S)} IN ({v(S)}, {v(S)})",
            lambda: f"{v(S)} NOT IN ('x', {self.r.choice(VALUES[S])})",
            lambda: f"{v(S)} {self.r.choice(['LIKE', 'NOT LIKE', 'ILIKE'])} {self.r.choice(['$$%o%$$', '$$a_%$$', '$$%$$'])}",
            lambda: f"{v(self.r.choice([N, D, S, T]))} IS {self.r.choice(['NULL', 'NOT NULL'])}",
            lambda: f"{v(N)} IS {self.r.choice(['', 'NOT '])}DISTINCT FROM {v(N)}",
            lambda: f"{v(T)} {self.r.choice('<>')} {v(T)}",
            lambda: f"starts_with({v(S)}, 'a')",
        ]
        lists = self.column(scope, L)
        if lists:
            options.append(lambda: f"list_contains({lists}, {self.r.choice(VALUES[S])})")
        if depth > 0:
            options += [lambda: self.exists(scope), lambda: self.membership(scope), lambda: self.against_scalar(scope)]
        return self.r.choice(options)()

    def exists(self, scope: Scope) -> str:
        view, alias = self.r.choice(list(VIEWS)), self.name()
        inner: Scope = [(alias, VIEWS[view])]
        link = f"{self.column(inner, N)} = {self.column(scope, N) or '1'}"
        body = self.r.choice([f"SELECT 1 FROM {view} {alias} WHERE {link}", f"FROM {view} AS {alias} WHERE {link}"])
        return f"{self.r.choice(['', 'NOT '])}EXISTS ({body})"

    def membership(self, scope: Scope) -> str:
        view, alias = self.r.choice(list(VIEWS)), self.name()
        inner = self.column([(alias, VIEWS[view])], N)
        return f"{self.value(scope, N, 0)} {self.r.choice(['IN', 'NOT IN', '= ANY'])} (SELECT {inner} FROM {view} {alias})"

    def against_scalar(self, scope: Scope) -> str:
        view, alias = self.r.choice(list(VIEWS)), self.name()
        inner: Scope = [(alias, VIEWS[view])]
        return f"{self.value(scope, D, 0)} > (SELECT {self.r.choice(['avg', 'max', 'min'])}({self.value(inner, D, 0)}) FROM {view} {alias})"

    # sources

    def view(self) -> tuple[str, Scope]:
        view = self.r.choice(list(VIEWS))
        spelled = self.r.choice([view, view, view, f"main.{view}", view.upper(), f'"{view}"'])
        if self.maybe(0.3):
            return spelled, [(view, VIEWS[view])]
        alias = self.name()
        return f"{spelled} {self.r.choice(['', 'AS '])}{alias}", [(alias, VIEWS[view])]

    def source(self, depth: int) -> tuple[str, Scope]:
        if self.ctes and self.maybe(0.4):
            name, columns = self.r.choice(self.ctes)
            alias = self.name()
            return f"{name} AS {alias}", [(alias, columns)]
        if depth > 0 and self.maybe(0.3):
            text, columns = self.select(depth - 1)
            alias = self.name("s")
            return f"({text}) AS {alias}", [(alias, columns)]
        if self.maybe(0.06):
            alias = self.name("v")
            return f"(VALUES (1, 'open'), (2, 'north'), (NULL, 'x')) AS {alias}(a, b)", [(alias, {"a": N, "b": S})]
        if self.maybe(0.05):
            alias = self.name("g")
            return f"{self.r.choice(['range(1, 6)', 'generate_series(1, 5)', 'unnest([3, 1, 2])'])} AS {alias}(n)", [
                (alias, {"n": N})
            ]
        return self.view()

    def sources(self, depth: int) -> tuple[str, Scope]:
        text, scope = self.source(depth)
        if self.maybe(0.45):
            other, added = self.source(depth - 1)
            if {alias for alias, _ in added} & {alias for alias, _ in scope}:
                return text, scope
            left, right = self.column(scope, N), self.column(added, N)
            if left is None or right is None:
                return f"{text} CROSS JOIN ({'SELECT 1 AS one'}) AS {self.name('o')}", scope
            condition = f"{left} = {right}"
            kind = self.r.choice(["JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN", "INNER JOIN", "SEMI JOIN", "ANTI JOIN", ","])
            if kind == ",":
                return f"{text}, {other}", [*scope, *added, ("WHERE", {condition: "condition"})]
            if self.maybe(0.4):
                condition += f" AND {self.predicate([*scope, *added], 0)}"
            joined = f"{text} {kind} {other} ON {condition}"
            return joined, scope if kind in {"SEMI JOIN", "ANTI JOIN"} else [*scope, *added]
        if self.maybe(0.15) and (lists := self.column(scope, L)):
            alias = self.name("u")
            return f"{text}{self.r.choice([',', ' CROSS JOIN'])} UNNEST({lists}) AS {alias}(e)", [*scope, (alias, {"e": S})]
        if self.maybe(0.1) and (number := self.column(scope, N)):
            view, alias, inner = self.r.choice(list(VIEWS)), self.name("l"), self.name("i")
            body = f"SELECT count(*) AS n FROM {view} {inner} WHERE {self.column([(inner, VIEWS[view])], N)} = {number}"
            return f"{text}, LATERAL ({body}) AS {alias}", [*scope, (alias, {"n": N})]
        return text, scope

    # selects

    def select(self, depth: int = 2) -> tuple[str, dict[str, str]]:
        kinds = [self.plain] * 4 + [self.grouped] * 4 + [self.windowed] * 2 + [self.pivoted, self.unpivoted, self.starred]
        if depth > 0:
            kinds += [self.combined] * 2 + [self.with_ctes] * 3 + [self.limited]
        return self.r.choice(kinds)(depth)

    def parts(self, depth: int) -> tuple[str, str, Scope]:
        text, scope = self.sources(depth)
        conditions = [condition for alias, columns in scope if alias == "WHERE" for condition in columns]
        scope = [entry for entry in scope if entry[0] != "WHERE"]
        if self.maybe(0.6):
            conditions.append(self.predicate(scope))
        return text, f" WHERE {' AND '.join(conditions)}" if conditions else "", scope

    def plain(self, depth: int) -> tuple[str, dict[str, str]]:
        text, where, scope = self.parts(depth)
        columns = {f"c{at}": self.r.choice([N, S, D, T]) for at in range(self.r.randint(1, 4))}
        items = ", ".join(f"{self.value(scope, kind)} AS {name}" for name, kind in columns.items())
        distinct = self.r.choice(["", "", "", "DISTINCT "])
        if self.maybe(0.15):
            return f"FROM {text} SELECT {distinct}{items}{where}", columns
        return f"SELECT {distinct}{items} FROM {text}{where}", columns

    def aggregate(self, scope: Scope) -> tuple[str, str]:
        v = lambda kind: self.value(scope, kind, 1)  # noqa: E731
        call, kind = self.r.choice([
            (lambda: "count(*)", N), (lambda: f"count(DISTINCT {v(S)})", N), (lambda: f"sum({v(N)})", N), (lambda: f"sum({v(D)})", D),
            (lambda: f"min({v(S)})", S), (lambda: f"max({v(T)})", T), (lambda: f"round(avg({v(D)}), 2)", D),
            (lambda: f"CAST(list({(x := v(S))} ORDER BY {x}) AS VARCHAR)", S), (lambda: f"count_if({self.predicate(scope, 0)})", N),
            (lambda: f"median({v(N)})", D), (lambda: f"quantile_cont({v(D)}, 0.9)", D), (lambda: f"bool_or({self.predicate(scope, 0)})::INT", N),
            (lambda: f"string_agg({(x := v(S))}, ';' ORDER BY {x} DESC NULLS LAST)", S), (lambda: f"stddev_pop({v(N)})", D),
            (lambda: f"len(array_agg(DISTINCT {v(N)}))", N), (lambda: f"approx_count_distinct({v(N)})", N),
            (lambda: f"percentile_cont(0.5) WITHIN GROUP (ORDER BY {v(N)})", D), (lambda: f"arg_max({(x := v(N))}, {x})", N),
        ])  # fmt: skip
        text = call()
        if self.maybe(0.2) and text.endswith(")") and text.startswith(("count(", "sum(", "min(", "max(")):
            text += f" FILTER (WHERE {self.predicate(scope, 0)})"
        return text, kind

    def grouped(self, depth: int) -> tuple[str, dict[str, str]]:
        text, where, scope = self.parts(depth)
        keys = [(self.value(scope, kind, 1), kind) for kind in self.r.choices([S, N, T], k=self.r.randint(0, 2))]
        totals = [self.aggregate(scope) for _ in range(self.r.randint(1, 3))]
        columns = {f"k{at}": kind for at, (_, kind) in enumerate(keys)} | {f"a{at}": kind for at, (_, kind) in enumerate(totals)}
        items = ", ".join(
            [f"{key} AS k{at}" for at, (key, _) in enumerate(keys)]
            + [f"{total} AS a{at}" for at, (total, _) in enumerate(totals)]
        )
        group = ""
        if keys:
            spelled = ", ".join(key for key, _ in keys)
            positions = ", ".join(str(at + 1) for at in range(len(keys)))
            choices = ["GROUP BY ALL", f"GROUP BY {positions}"]
            if not any(key.lstrip("-").replace(".", "").isdigit() for key, _ in keys):
                choices += [f"GROUP BY {spelled}", f"GROUP BY ROLLUP ({spelled})", f"GROUP BY CUBE ({spelled})"]
                choices.append(f"GROUP BY GROUPING SETS (({spelled}), ())")
            group = f" {self.r.choice(choices)}"
        having = f" HAVING count(*) > {self.r.randint(0, 5)}" if keys and self.maybe(0.3) else ""
        return f"SELECT {items} FROM {text}{where}{group}{having}", columns

    def windowed(self, _: int) -> tuple[str, dict[str, str]]:
        view = self.r.choice(list(VIEWS))
        alias = self.name("w")
        scope: Scope = [(alias, VIEWS[view])]
        key = f"{alias}.{KEYS[view]}"
        frame = self.r.choice([
            "", "", " ROWS BETWEEN 2 PRECEDING AND CURRENT ROW", " ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING",
            " RANGE BETWEEN 5 PRECEDING AND 5 FOLLOWING", " GROUPS BETWEEN 1 PRECEDING AND CURRENT ROW EXCLUDE TIES",
        ])  # fmt: skip
        over = f"PARTITION BY {self.column(scope, S)} ORDER BY {key}"
        if self.maybe(0.2):
            over = f"ORDER BY {key} DESC"
        calls = [
            ("row_number()", N, ""), ("rank()", N, ""), (f"lag({self.value(scope, N, 0)}, 1, 0)", N, ""), ("ntile(3)", N, ""),
            (f"sum({self.value(scope, N, 1)})", N, frame), (f"count(*) FILTER (WHERE {self.predicate(scope, 0)})", N, frame),
            (f"first_value({self.column(scope, N)} IGNORE NULLS)", N, frame), (f"lead({self.column(scope, S)})", S, ""),
            (f"max({self.value(scope, D, 0)})", D, frame), ("dense_rank()", N, ""),
        ]  # fmt: skip
        call, kind, framed = self.r.choice(calls)
        columns = {"k": N, "x": kind}
        where = f" WHERE {self.predicate(scope, 1)}" if self.maybe(0.4) else ""
        if self.maybe(0.3):
            text = f"SELECT {key} AS k, {call} OVER win AS x FROM {view} {alias}{where} WINDOW win AS ({over}{framed})"
        else:
            text = f"SELECT {key} AS k, {call} OVER ({over}{framed}) AS x FROM {view} {alias}{where}"
            if self.maybe(0.3):
                text += f" QUALIFY row_number() OVER ({over}) <= 3"
        return text, columns

    def pivoted(self, _: int) -> tuple[str, dict[str, str]]:
        alias = self.name("p")
        where = self.predicate([(alias, VIEWS["claims_v"])], 1)
        inner = f"(SELECT {alias}.status, {alias}.region, {alias}.amount FROM claims_v AS {alias} WHERE {where})"
        columns = {"region": S}
        return self.r.choice([
            f"SELECT region FROM (PIVOT {inner} ON status IN ('open', 'closed') USING sum(amount) GROUP BY region)",
            f"SELECT * FROM {inner} PIVOT (sum(amount) AS s, count(*) AS n FOR status IN ('open', 'denied') GROUP BY region)",
            "FROM claims_v PIVOT (count(*) FOR severity IN (1, 2, 3) GROUP BY region)",
            f"PIVOT {inner} ON status IN ('open') USING max(amount) GROUP BY region ORDER BY region",
        ]), columns  # fmt: skip

    def unpivoted(self, _: int) -> tuple[str, dict[str, str]]:
        alias = self.name("q")
        where = self.predicate([(alias, VIEWS["inventory_v"])], 1)
        inner = f"(SELECT {alias}.item_id, {alias}.qty_on_hand, {alias}.qty_reserved FROM inventory_v {alias} WHERE {where})"
        columns = {"item_id": N}
        return self.r.choice([
            f"SELECT item_id, n, v FROM {inner} UNPIVOT (v FOR n IN (qty_on_hand, qty_reserved))",
            f"UNPIVOT {inner} ON qty_on_hand, qty_reserved INTO NAME n VALUE v",
            f"SELECT item_id FROM {inner} UNPIVOT INCLUDE NULLS (v FOR n IN (qty_on_hand AS 'a', qty_reserved AS 'b'))",
        ]), columns  # fmt: skip

    def starred(self, _: int) -> tuple[str, dict[str, str]]:
        view = self.r.choice(list(VIEWS))
        text = self.r.choice([
            f"SELECT * FROM {view}", f"FROM {view}", f"TABLE {view}", f"SELECT t.* FROM {view} t", f"SELECT * EXCLUDE ({KEYS[view]}) FROM {view}",
            f"SELECT * REPLACE (tenant_id + 1 AS tenant_id) FROM {view}", f"SELECT COLUMNS('.*_id') FROM {view}",
            f"SELECT COLUMNS(LAMBDA c : c LIKE '%e%') FROM {view}", f"SELECT max(COLUMNS('.*_id$')) FROM {view}", f"SELECT t FROM {view} t",
            f"SELECT * RENAME (tenant_id AS who) FROM {view}",
        ])  # fmt: skip
        return text, {}

    def flat(self, depth: int) -> tuple[str, dict[str, str]]:
        """A select with columns to name."""
        for _ in range(8):
            text, columns = self.r.choice([self.plain, self.grouped, self.windowed])(depth)
            if columns:
                return text, columns
        return "SELECT 1 AS c0", {"c0": N}

    def combined(self, depth: int) -> tuple[str, dict[str, str]]:
        kinds = [self.r.choice([N, S]) for _ in range(self.r.randint(1, 2))]

        def side() -> str:
            text, where, scope = self.parts(depth - 1)
            return (
                f"SELECT {', '.join(f'{self.value(scope, kind)} AS c{at}' for at, kind in enumerate(kinds))} FROM {text}{where}"
            )

        joint = self.r.choice(["UNION", "UNION ALL", "INTERSECT", "EXCEPT", "UNION ALL BY NAME", "EXCEPT ALL"])
        text = f"{side()} {joint} {side()}"
        if self.maybe(0.2):
            text = f"({text}) UNION ALL ({side()})"
        return text, {f"c{at}": kind for at, kind in enumerate(kinds)}

    def with_ctes(self, depth: int) -> tuple[str, dict[str, str]]:
        held, parts = list(self.ctes), []
        recursive = self.maybe(0.15)
        for _ in range(self.r.randint(1, 2)):
            body, columns = self.flat(depth - 1)
            name = self.r.choice(["employees", "claims", "tenants", "x", "depots", "a b"]) if self.maybe(0.4) else self.name("e")
            name = f'"{name}"' if " " in name and not name.startswith('"') else name
            if name in {cte for cte, _ in self.ctes}:
                continue
            hint = self.r.choice(["", "", "", "MATERIALIZED ", "NOT MATERIALIZED "])
            parts.append(f"{name} AS {hint}({body})")
            self.ctes.append((name, columns))
        if recursive:
            name = self.name("r")
            parts.append(f"{name}(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM {name} WHERE n < 6)")
            self.ctes.append((name, {"n": N}))
        text, columns = self.select(depth - 1)
        self.ctes = held
        if not parts:
            return text, columns
        if text.startswith(("WITH", "(")):
            text = f"SELECT * FROM ({text}) AS {self.name('o')}"
        return f"WITH {'RECURSIVE ' if recursive else ''}{', '.join(parts)} {text}", columns

    def limited(self, depth: int) -> tuple[str, dict[str, str]]:
        """LIMIT cuts the same rows only under a total order."""
        text, columns = self.flat(depth - 1)
        order = ", ".join(f"{name} {self.r.choice(['', 'DESC', 'ASC NULLS FIRST', 'DESC NULLS LAST'])}" for name in columns)
        return (
            f"SELECT * FROM ({text}) AS {self.name('o')} ORDER BY {order} LIMIT {self.r.randint(1, 20)} OFFSET {self.r.randint(0, 3)}",
            columns,
        )


def text_of(seed: int) -> str:
    return Grammar(seed).select()[0]
