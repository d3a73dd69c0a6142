"""Statements of PostgreSQL: how a staged table is made, and how its rows are applied."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from psycopg import sql

from penstock.runtime.io.connectors.sql.database import DELETES, ROW, Stage, TableInfo

#: Columns of a table.
COLUMNS: Final = """
SELECT a.attname, format_type(a.atttypid, a.atttypmod), t.typname, a.atttypmod, a.attnotnull,
    a.atthasdef OR a.attidentity <> '', a.attgenerated <> '' OR a.attidentity = 'a',
    coalesce(c.collisdeterministic, true),
    CASE WHEN a.attcollation <> t.typcollation
        THEN (SELECT quote_ident(nspname) FROM pg_namespace WHERE oid = c.collnamespace)
            || '.' || quote_ident(c.collname)
        ELSE '' END,
    t.typtype <> 'd'
FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid LEFT JOIN pg_collation c ON c.oid = a.attcollation
WHERE a.attrelid = %s AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum
"""

#: `CHECK` constraints, except those that refer to the whole row, which no other table can have.
CHECKS: Final = """
SELECT pg_get_expr(c.conbin, c.conrelid), ARRAY(SELECT attname::text FROM pg_attribute
    WHERE attrelid = c.conrelid AND attnum = ANY(c.conkey))
FROM pg_constraint c WHERE c.conrelid = %s AND c.contype = 'c' AND 0 < ALL (c.conkey)
"""


def merge_statements(table: TableInfo, stage: Stage) -> list[sql.Composed]:
    """The statements that apply a stage: the deletes, and then the inserts."""
    target, columns = target_of(table), name_list(stage.columns)
    staged: sql.Composable = table_named(table, stage.name)
    if not stage.key:
        return [statement("INSERT INTO {} ({}) SELECT {} FROM {}").format(target, columns, columns, staged)]
    key = name_list(stage.key)
    if not stage.is_distinct:
        staged = statement("(SELECT DISTINCT ON ({}) * FROM {} ORDER BY {}, {} DESC)").format(
            key, staged, key, sql.Identifier(ROW)
        )
    rest = [name for name in stage.columns if name not in stage.key]
    changed = statement(", ").join(
        statement("{} = excluded.{}").format(sql.Identifier(name), sql.Identifier(name)) for name in rest
    )
    then = statement("UPDATE SET {}").format(changed) if rest else sql.SQL("NOTHING")
    kept = statement(" WHERE NOT s.{}").format(sql.Identifier(DELETES)) if stage.has_deletes else sql.SQL("")
    statements = []
    if stage.has_deletes:
        same = statement(" AND ").join(
            statement("t.{} = s.{}").format(sql.Identifier(name), sql.Identifier(name)) for name in stage.key
        )
        delete = statement("DELETE FROM {} AS t USING {} AS s WHERE s.{} AND {}")
        statements.append(delete.format(target, staged, sql.Identifier(DELETES), same))
    merge = statement("INSERT INTO {} ({}) SELECT {} FROM {} AS s{} ON CONFLICT ({}) DO {}")
    return [*statements, merge.format(target, columns, columns, staged, kept, key, then)]


def stage_ddl(table: TableInfo, stage: Stage) -> sql.Composed:
    """A staged table with the types and constraints of its table, so that it refuses the same rows."""
    parts: list[sql.Composable] = []
    unless_deleted = statement("{} OR ").format(sql.Identifier(DELETES)) if stage.has_deletes else sql.SQL("")
    for name in stage.columns:
        column = table.columns[name]
        collation = f" COLLATE {column.collation}" if column.collation else ""
        parts.append(statement("{} {}").format(sql.Identifier(name), statement(column.kind + collation)))
        if column.is_required or name in stage.key:
            unless = sql.SQL("") if name in stage.key else unless_deleted
            parts.append(statement("CHECK ({}{} IS NOT NULL)").format(unless, sql.Identifier(name)))
    parts += [
        statement("CHECK ({}({}))").format(unless_deleted, statement(text))
        for names, text in table.checks
        if set(names) <= set(stage.columns)
    ]
    if stage.has_deletes:
        parts.append(statement("{} boolean NOT NULL").format(sql.Identifier(DELETES)))
    if stage.key and not stage.is_distinct:
        parts.append(statement("{} bigint NOT NULL").format(sql.Identifier(ROW)))
    make = statement("CREATE TABLE {} ({}) WITH (autovacuum_enabled = false)")
    return make.format(table_named(table, stage.name), statement(", ").join(parts))


def target_of(table: TableInfo) -> sql.Identifier:
    return sql.Identifier(table.schema, table.name)


def table_named(table: TableInfo, name: str) -> sql.Identifier:
    return sql.Identifier(table.schema, name)


def name_list(names: Sequence[str]) -> sql.Composed:
    return statement(", ").join(map(sql.Identifier, names))


def literals(values: Sequence[Any]) -> sql.Composed:
    return statement(", ").join(map(sql.Literal, values))


def as_query(query: str) -> sql.SQL:
    return statement(query.strip().rstrip(";") + "\n")  # it may end with a comment


def statement(text: str) -> sql.SQL:
    return sql.SQL(text)
