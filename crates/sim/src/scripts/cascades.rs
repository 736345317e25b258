//! Rows that refer to each other by foreign keys: deletes and changed keys of parents cascade, are
//! committed, rolled back and prepared, and a key is dropped and added again to the rows. After a
//! crash each cascade is there as a whole or not at all, and no row refers to nothing.

use super::common::{T, rest};
use crate::actor::{Actor, Effect};
use crate::values::{U, V, index_spec, table_spec};
use evenkeel::ValueRef::Int;
use evenkeel::{Database, ForeignKeySpec, ReferenceAction, Result, TableSpec};
use evenkeel_io::SimEnv;
use std::ops::Range;

/// Its rows are deleted with the parent's, and get its new key.
const CHILD: &str = "num1";
/// Its rows refer to nothing when the parent's row is deleted.
const FREED: &str = "num2";
/// Its rows refer to rows of `CHILD`.
const GRANDCHILD: &str = "num3";

fn key(parent: &str, on_delete: ReferenceAction) -> ForeignKeySpec {
    let key = ForeignKeySpec::new("up", &["u"], parent, &["id"]);
    key.on_delete(on_delete).on_update(ReferenceAction::Cascade)
}

fn spec(name: &str, key: ForeignKeySpec) -> TableSpec {
    let mut spec = table_spec(name);
    // Several rows refer to one.
    spec.indexes = vec![index_spec("by_a"), index_spec("by_ba"), index_spec("by_u")];
    spec.foreign_key(key)
}

fn create(a: &mut Actor<'_>, name: &str, key: ForeignKeySpec) -> Result<()> {
    a.schema(name, |db| db.create_table(name, &spec(name, key)))
}

/// Two rows of each table that refer to each of these parents.
fn put_families(a: &mut Actor<'_>, parents: Range<i64>) -> Result<()> {
    for parent in parents {
        for n in [0, 1_000] {
            let id = parent + n;
            a.put(CHILD, id, 1, 40, Some(parent))?;
            a.put(FREED, id, 2, 700 * (parent as usize % 4), Some(parent))?;
            a.put(GRANDCHILD, id, 3, 40, Some(id))?;
        }
    }
    Ok(())
}

/// The rows of a table that refer to a row.
fn refer(a: &mut Actor<'_>, name: &str, to: i64) -> Result<Vec<Effect>> {
    let rows = a.rows(name)?.into_iter().filter(|(_, row)| row[U] == V::Int(to));
    Ok(rows.map(|(id, row)| (name.to_string(), id, Some(row))).collect())
}

/// Deletes a parent row.
fn delete(a: &mut Actor<'_>, parent: i64) -> Result<()> {
    let mut effects = vec![(T.to_string(), parent, None)];
    for (child, id, _) in refer(a, CHILD, parent)? {
        let below = refer(a, GRANDCHILD, id)?;
        effects.extend(below.into_iter().map(|(name, id, _)| (name, id, None)));
        effects.push((child, id, None));
    }
    for (name, id, row) in refer(a, FREED, parent)? {
        let row = row.map(|mut row| {
            row[U] = V::Null;
            row
        });
        effects.push((name, id, row));
    }
    a.cascade(|txn| txn.table(T)?.delete(&[Int(parent)]).map(drop), &effects)
}

/// Gives a parent row another key.
fn change(a: &mut Actor<'_>, parent: i64, to: i64) -> Result<()> {
    let row = a.rows(T)?.remove(&parent);
    let mut effects = vec![(T.to_string(), parent, None), (T.to_string(), to, row)];
    for name in [CHILD, FREED] {
        for (name, id, row) in refer(a, name, parent)? {
            let row = row.map(|mut row| {
                row[U] = V::Int(to);
                row
            });
            effects.push((name, id, row));
        }
    }
    let update = |txn: &mut evenkeel::Txn| {
        txn.table(T)?.update(&[Int(parent)], &[("id", Int(to))]).map(drop)
    };
    a.cascade(update, &effects)
}

pub(super) fn script(sim: &SimEnv, a: &mut Actor<'_>) -> Result<()> {
    create(a, CHILD, key(T, ReferenceAction::Cascade))?;
    create(a, FREED, key(T, ReferenceAction::SetNull))?;
    create(a, GRANDCHILD, key(CHILD, ReferenceAction::Cascade))?;
    put_families(a, 0..8)?;
    a.commit()?;
    delete(a, 0)?;
    a.commit()?;
    change(a, 1, 101)?;
    a.savepoint()?;
    delete(a, 101)?;
    delete(a, 2)?;
    a.back()?;
    a.commit()?;
    a.db.checkpoint()?;
    delete(a, 3)?;
    change(a, 4, 104)?;
    a.rollback()?;
    rest(sim, 20);
    delete(a, 4)?;
    a.prepare("x")?;
    a.schema(FREED, |db| db.drop_foreign_key(FREED, "up"))?;
    a.put(FREED, 5, 2, 10, Some(5))?;
    a.commit()?;
    a.decide("x", true)?;
    a.schema(FREED, |db| db.add_foreign_key(FREED, &key(T, ReferenceAction::SetNull)))?;
    delete(a, 5)?;
    change(a, 6, 106)?;
    a.prepare("left")
}

/// No row refers to nothing.
pub(super) fn check(db: &Database) -> std::result::Result<(), String> {
    let problems = db.check().map_err(|error| error.to_string())?.problems;
    if problems.is_empty() { Ok(()) } else { Err(format!("{problems:?}")) }
}
