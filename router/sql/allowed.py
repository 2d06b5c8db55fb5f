"""What a governed statement may be made of: data, with a comment each. What stands in none of these lists is refused.

Two parsers look at every text, so there are two families of lists: classes of sqlglot's tree (what the rewriter understands)
and types, keys and functions of DuckDB's own tree of the generated text (what the engine will run). Both are pinned to the
versions below, because a new version may give an old name a new meaning.

INVARIANT: no function that reads a file, a setting, the catalogue, statistics, a clock or a generator of randomness, or that
builds a string of a length its argument names, is in these lists (tests/sql/test_allowed.py::test_nothing_dangerous_is_allowed).
"""

from __future__ import annotations

DUCKDB_VERSION = "2.0."
SQLGLOT_VERSION = "30.30."


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# --- sqlglot: what the rewriter understands ---------------------------------------------------------------------------

NODES = (
    # queries and their parts
    _words(
        "Select Union Intersect Except Subquery With CTE Values Tuple From Join Lateral Where Group Having Qualify Order Ordered"
    )
    | _words("Limit LimitOptions Offset Fetch Distinct Table TableAlias Alias Star Identifier Column Window WindowSpec Filter")
    # grouping and reshaping
    | _words("GroupingSets Rollup Cube Pivot PivotAlias PivotAny UnpivotColumns Unnest Columns")
    # literals and types
    | _words(
        "Literal RawString ByteString Boolean Null Var Cast TryCast DataType DataTypeParam ColumnDef Interval IntervalSpan Placeholder"
    )
    # operators
    | _words("And Or Not Paren EQ NEQ LT LTE GT GTE Is Between In Like ILike Escape NullSafeEQ NullSafeNEQ Any All Exists")
    | _words("Add Sub Mul Div IntDiv Mod Pow Neg DPipe Case If Bracket Slice Dot Array Struct PropertyEQ Kwarg")
    | _words("ToMap Map Lambda Comprehension Coalesce")
    # functions: the dialect keeps every call by the name that the text gives it; these have a grammar of their own
    | _words("Anonymous Extract Substring Trim StrPosition CurrentDate WithinGroup IgnoreNulls RespectNulls")
)
"""Classes of sqlglot's tree. Not here: Into, Lock, TableSample, Hint, Describe, Show, Command, Insert, Parameter, Semicolon,
HistoricalData (AT), Collate, PositionalColumn, RegexpLike and the like."""

SELECT_ARGS = _words(
    "with_ expressions from_ joins where group having qualify order limit offset distinct windows laterals operation_modifiers"
)
"""Parts of a SELECT. Not here: into, locks, sample, hint, kind, distribute, sort, cluster, prewhere, connect, match, settings."""

TABLE_ARGS = _words("this db alias pivots joins")
"""Parts of a table reference. Not here: catalog, when (AT), sample, hints, ordinality, only, rows_from, partition."""

JOIN_ARGS = _words("this on using method side kind")

SETOP_ARGS = _words("with_ this expression distinct by_name order limit offset side kind")

WITH_HOLDERS = _words("Select Union Intersect Except Subquery Values Pivot")
"""Classes that may carry a WITH."""

# --- DuckDB: what the engine is given ---------------------------------------------------------------------------------

TYPES = (
    # query nodes and modifiers; RECURSIVE_CTE_NODE is ended by the limits of time and memory
    _words("SELECT_NODE SET_OPERATION_NODE RECURSIVE_CTE_NODE")
    | _words("ORDER_MODIFIER LIMIT_MODIFIER DISTINCT_MODIFIER ORDER_DEFAULT ASCENDING DESCENDING")
    # table references; TABLE_FUNCTION and BASE_TABLE are looked at closer
    | _words("BASE_TABLE JOIN SUBQUERY PIVOT EMPTY EXPRESSION_LIST TABLE_FUNCTION")
    # expressions
    | _words("COLUMN_REF VALUE_CONSTANT FUNCTION STAR LAMBDA TYPE CASE_EXPR OPERATOR_CAST CONJUNCTION_AND CONJUNCTION_OR")
    | _words("COMPARE_EQUAL COMPARE_NOTEQUAL COMPARE_LESSTHAN COMPARE_GREATERTHAN COMPARE_LESSTHANOREQUALTO")
    | _words(
        "COMPARE_GREATERTHANOREQUALTO COMPARE_DISTINCT_FROM COMPARE_NOT_DISTINCT_FROM COMPARE_BETWEEN COMPARE_IN COMPARE_NOT_IN"
    )
    | _words("OPERATOR_NOT OPERATOR_IS_NULL OPERATOR_IS_NOT_NULL OPERATOR_COALESCE OPERATOR_NULLIF")
    | _words("ARRAY_CONSTRUCTOR ARRAY_EXTRACT ARRAY_SLICE STRUCT_EXTRACT GROUPING_FUNCTION")
    # window functions
    | _words(
        "WINDOW_AGGREGATE WINDOW_ROW_NUMBER WINDOW_RANK WINDOW_RANK_DENSE WINDOW_DENSE_RANK WINDOW_PERCENT_RANK WINDOW_CUME_DIST"
    )
    | _words("WINDOW_NTILE WINDOW_LAG WINDOW_LEAD WINDOW_FIRST_VALUE WINDOW_LAST_VALUE WINDOW_NTH_VALUE")
)
"""Types of DuckDB's tree. Not here: SHOW_REF (DESCRIBE, SUMMARIZE), VALUE_PARAMETER, VALUE_DEFAULT, COLLATE, OPERATOR_TRY,
POSITIONAL_REFERENCE, WINDOW_FILL, INSERT/UPDATE/DELETE/MERGE query nodes, COLUMN_DATA, DELIM_GET, BOUND anything."""

KEYS = (
    _words("class type alias query_location query_location_length")
    | _words(
        "node query_node modifiers cte_map map key value aliases materialized cte_name union_all left right setop_type setop_all children"
    )
    | _words("select_list from_table where_clause group_expressions group_sets aggregate_handling having qualify")
    | _words("limit offset limit_type orders order_bys null_order expression distinct_on_targets")
    | _words("table_name schema_name catalog_name column_name_alias qualified_name path condition join_type ref_type is_implicit")
    | _words(
        "using_columns subquery function with_ordinality values source aggregates pivots pivot_expressions entries star_expr groups"
    )
    | _words(
        "unpivot_names include_nulls subquery_type comparison_type child lhs syntax_type expr column_names literal kind text"
    )
    | _words(
        "function_name arguments is_operator distinct filter name ignore_nulls has_ignore_nulls partitions start end start_expr end_expr"
    )
    | _words(
        "offset_expr default_expr filter_expr exclude_clause arg_orders columns relation_name exclude_list replace_list rename_list column"
    )
    | _words("case_checks when_expr then_expr else_expr type_expr type_name try_cast input lower upper")
)
"""Keys of DuckDB's tree. Not here: sample, at_clause, show_type, schema and catalog (of a function), export_state, identifier
(a parameter), collation, key_targets, returning_list, index, pivot_enum, query."""

MATERIALIZED = _words("CTE_MATERIALIZE_DEFAULT CTE_MATERIALIZE_ALWAYS CTE_MATERIALIZE_NEVER")

JOINS = _words("REGULAR CROSS NATURAL ASOF POSITIONAL")
"""`ref_type` of a join. Not here: DEPENDENT, NEAREST."""

CONSTANTS = _words("INTEGER NUMERIC STRING BOOLEAN NULL_LITERAL")
"""Kinds of literals. Not here: HEX and BIT (sqlglot reads them otherwise)."""

TYPE_NAMES = (
    _words("boolean bool logical tinyint int1 smallint int2 short integer int int4 signed bigint int8 long hugeint int128")
    | _words(
        "utinyint usmallint uinteger ubigint uhugeint uint8 uint16 uint32 uint64 float float4 real double float8 decimal numeric dec"
    )
    | _words(
        "varchar text string char bpchar date time timestamp datetime timestamp_s timestamp_ms timestamp_ns timestamp_us interval"
    )
    | _words("list array struct row map")
)
"""Types that a text may cast to. Not here: enum, blob, bit, json, uuid, variant, union, reg* and every user type; and timestamp
with time zone, whose text depends on a setting."""

OPERATORS = (
    _words("+ - * / // % || ^ ** pow")  # arithmetic and joining
    | _words(
        "~~ !~~ ~~* !~~* like_escape not_like_escape ilike_escape not_ilike_escape"
    )  # LIKE and ILIKE as the engine names them
    | _words("list_value struct_pack row map array_extract array_slice struct_extract list_transform list_filter list_apply")
)

_NUMBERS = _words(
    "abs ceil ceiling floor round trunc sign sqrt cbrt ln log log2 log10 exp pow power mod fmod greatest least isfinite isnan isinf"
)
_STRINGS = _words(
    """lower upper lcase ucase length len strlen left right substr substring trim ltrim rtrim replace concat concat_ws split_part
    string_split str_split starts_with prefix ends_with suffix contains strpos instr position reverse translate initcap
    regexp_matches regexp_full_match regexp_extract regexp_replace"""
)
# `repeat`, `lpad`, `rpad`, `format`, `printf`, `bar`: a short text makes a long value. `damerau_levenshtein` and its like: time.
_TIMES = _words(
    """date_trunc datetrunc date_part datepart date_diff datediff date_sub datesub date_add extract year quarter month week weekofyear
    day dayofmonth dayofweek isodow dayofyear dayname monthname hour minute second last_day strftime make_date make_timestamp epoch age
    time_bucket to_days to_hours to_minutes to_seconds to_months to_years to_weeks to_quarters to_decades to_centuries to_millennia
    to_milliseconds to_microseconds today"""
)
# `now`, `current_timestamp` and the like read a clock; `today` and `current_date` become a literal before this list is asked.
_CHOICES = _words("coalesce ifnull nullif if typeof")
_LISTS = _words(
    """list_value list_pack list_contains list_has array_contains array_has list_has_any array_has_any list_has_all array_has_all
    list_position array_position list_indexof list_transform array_transform list_apply list_filter array_filter list_sort array_sort
    list_reverse_sort array_reverse_sort list_distinct array_distinct list_unique list_sum list_avg list_min list_max list_count list_first
    list_last list_aggregate array_aggregate list_string_agg array_to_string array_length flatten list_slice array_slice list_extract
    array_extract list_element list_concat array_concat list_zip list_intersect array_intersect unnest range generate_series"""
)
_STRUCTS = _words(
    """struct_pack struct_extract struct_extract_at row map map_keys map_values map_extract map_extract_value map_contains map_entries
    element_at cardinality"""
)

AGGREGATES = _words(
    """count count_star count_if countif sum avg mean min max median mode quantile quantile_cont quantile_disc percentile_cont
    percentile_disc stddev stddev_samp stddev_pop variance var_samp var_pop corr covar_pop covar_samp regr_slope regr_intercept regr_r2
    regr_count string_agg group_concat listagg list array_agg arg_max arg_min max_by min_by first last any_value bool_and bool_or product
    histogram approx_count_distinct approx_quantile entropy skewness kurtosis geomean geometric_mean mad fsum favg weighted_avg wavg
    grouping grouping_id"""
)
"""Aggregates; also the only names that `list_aggregate(x, 'name')` may be given."""

WINDOWS = _words("row_number rank dense_rank percent_rank cume_dist ntile lag lead first_value last_value nth_value")

FUNCTIONS = _NUMBERS | _STRINGS | _TIMES | _CHOICES | _LISTS | _STRUCTS | AGGREGATES | WINDOWS

NAMED_IN_STRINGS = _words("list_aggregate array_aggregate list_aggr array_aggr aggregate")
"""Functions whose second argument names a function."""

SERIES = _words("range generate_series")
"""As table functions and as scalars: bounds are literals, and few."""

TABLE_FUNCTIONS = SERIES | {"unnest"}

BARE_NAMES = _words(
    """current_catalog current_date current_role current_schema current_time current_timestamp current_user localtime localtimestamp
    session_user user"""
)
"""Names that DuckDB reads as functions where no column has them, quoted or not."""

SCHEMAS = _words("main temp memory system pg_catalog information_schema served")
"""What stands before a dot in the name of a function only to qualify it, never as a column."""

_UNITS = _words("YEAR MONTH DAY HOUR MINUTE SECOND MILLISECOND MICROSECOND WEEK QUARTER DECADE CENTURY MILLENNIUM")
INTERVAL_UNITS = _UNITS | {f"{unit}S" for unit in _UNITS} | {"CENTURIES", "MILLENNIA"}
"""What may follow the number of an interval."""

# --- what is equal in both texts of the comparison --------------------------------------------------------------------

SAME_FUNCTION = {
    "strpos": "position", "instr": "position",
    "substr": "substring",
    "^": "pow", "**": "pow", "power": "pow",
    "list_pack": "list_value",
}  # fmt: skip
"""Names that sqlglot exchanges and DuckDB knows as one function."""

SAME_TYPE = {
    "int": "integer", "int4": "integer", "signed": "integer", "int8": "bigint", "long": "bigint", "int2": "smallint", "short": "smallint",
    "int1": "tinyint", "int128": "hugeint", "bool": "boolean", "logical": "boolean", "text": "varchar", "string": "varchar", "char": "varchar",
    "bpchar": "varchar", "real": "float", "float4": "float", "float8": "double", "numeric": "decimal", "dec": "decimal",
    "datetime": "timestamp", "timestamp_us": "timestamp", "row": "struct", "uint8": "utinyint", "uint16": "usmallint",
    "uint32": "uinteger", "uint64": "ubigint",
}  # fmt: skip
