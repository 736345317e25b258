//! Full verification: compares tables and indexes with the model, in both directions, at a
//! snapshot. After a crash it also determines which of the commits in doubt have survived.

use crate::kind::Kind;
use crate::model::{Key, Model, describe};
use crate::read::{How, InOrder, difference, entries_differ, entries_of, read_index, read_table};
use crate::values::{N, Row, U, UNIQUE, V, index_parts};
use evenkeel::{Access, Code, Database, Direction, Error, Isolation, Range, TableDef, Txn};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Why a verification failed: an error of the engine, or a difference.
#[derive(Debug)]
pub enum Trouble {
    /// The engine returned an error.
    Error(Error),
    /// The engine and the model differ.
    Differs(String),
}

impl From<Error> for Trouble {
    fn from(error: Error) -> Trouble {
        Trouble::Error(error)
    }
}

/// Checks one table and its indexes in a transaction whose snapshot is at `at`.
///
/// # Errors
/// A difference, or the engine's error.
pub fn check_table(
    txn: &mut Txn,
    def: &TableDef,
    expected: &BTreeMap<i64, &Row>,
    strict: bool,
) -> Result<(), Trouble> {
    let differs = |what: String| Trouble::Differs(format!("table {}: {what}", def.name));
    for direction in [Direction::Forward, Direction::Backward] {
        let mut rows = read_table(txn, def, Range::ALL, direction)?;
        if direction == Direction::Backward {
            rows.reverse();
        }
        if let Some(what) = difference(&rows, expected, def) {
            return Err(differs(format!("{direction:?}: {what}")));
        }
    }
    for index in &def.indexes {
        check_index(txn, def, &index.name, expected, strict)?;
    }
    Ok(())
}

fn check_index(
    txn: &mut Txn,
    def: &TableDef,
    index: &str,
    expected: &BTreeMap<i64, &Row>,
    strict: bool,
) -> Result<(), Trouble> {
    let parts = index_parts(def, index);
    let want = entries_of(def, &parts, expected);
    for (direction, keys_only) in [
        (Direction::Forward, true),
        (Direction::Backward, true),
        (Direction::Forward, false),
        (Direction::Backward, false),
    ] {
        let how = How { index, parts: &parts, range: Range::ALL, direction, keys_only };
        let read = match read_index(txn, def, how, &mut || {}) {
            Err(error) if error.code() == Code::IndexTooNew => return Ok(()),
            // A schema change is in progress.
            Err(error) if error.code() == Code::IndexMissing && !strict => return Ok(()),
            other => other?,
        };
        if let Some(what) = entries_differ(def, &parts, direction, read, &want) {
            let how = format!("index {}.{index}, {direction:?}, keys only {keys_only}", def.name);
            return Err(Trouble::Differs(format!("{how}: {what}")));
        }
    }
    Ok(())
}

/// Checks every table of the model as of a timestamp, in a transaction with that snapshot.
///
/// # Errors
/// As those of `check_table`.
pub fn check_at(
    txn: &mut Txn,
    db: &Database,
    model: &Model,
    at: u64,
    strict: bool,
) -> Result<(), Trouble> {
    for name in modelled(db) {
        // From here on the transaction uses the table, so its tree and indexes stay.
        let entered = txn.table(&name).and_then(|t| t.first());
        match entered {
            Err(error) if !strict && is_of_schema(&error) => continue,
            other => other?,
        };
        let def = db.definition(&name)?;
        let expected = model.table_at(u64::from(def.entry.tree.0), at);
        check_table(txn, &def, &expected, strict)?;
    }
    Ok(())
}

fn is_of_schema(error: &Error) -> bool {
    matches!(error.code(), Code::TableMissing | Code::TableBusy | Code::TableTooNew)
}

/// The tables that the model describes: all but temporary tables, whose names a server keeps for
/// itself.
pub fn modelled(db: &Database) -> Vec<String> {
    db.tables().into_iter().filter(|name| !name.starts_with('#')).collect()
}

/// After an open: determines which commits in doubt have survived, cuts the model to them, and
/// checks everything. Returns the number of commits that the crash lost.
///
/// # Errors
/// A difference from every state that would be correct, or the engine's error.
pub fn check_recovered(db: &Database, model: &mut Model) -> Result<u64, Trouble> {
    check_schema(db, model)?;
    let mut txn = db.begin(Isolation::RepeatableRead, Access::ReadOnly)?;
    txn.take_snapshot()?;
    let mut read: Vec<(Arc<TableDef>, InOrder)> = Vec::new();
    for name in modelled(db) {
        let def = db.definition(&name)?;
        let rows = read_table(&mut txn, &def, Range::ALL, Direction::Forward)?;
        read.push((def, rows));
    }
    let mut first = None;
    let candidates = model.candidates();
    let prepared = db.prepared();
    let found = prepared.iter().cloned().collect();
    for cts in &candidates {
        let wrong = read.iter().find_map(|(def, rows)| {
            let expected = model.table_at(u64::from(def.entry.tree.0), *cts);
            difference(rows, &expected, def).map(|d| format!("table {}: {d}", def.name))
        });
        let wrong = wrong.or_else(|| model.prepared_differ(&found, *cts));
        let Some(wrong) = wrong else {
            let lost = candidates.iter().take_while(|c| *c != cts).count() as u64;
            model.cut(*cts);
            model.keep_prepared(&prepared);
            check_unique(model, db)?;
            check_numbers(&read, model)?;
            check_at(&mut txn, db, model, 0, true)?;
            return Ok(lost);
        };
        first.get_or_insert(wrong);
    }
    let what = first.unwrap_or_default();
    let (acked, n) = (model.kept(), candidates.len());
    Err(Trouble::Differs(format!(
        "no state fits, of {n} from commit {acked} (durable) on; in the newest: {what}"
    )))
}

fn check_schema(db: &Database, model: &mut Model) -> Result<(), Trouble> {
    for name in &modelled(db) {
        if !model.tables.contains_key(name) {
            return Err(Trouble::Differs(format!("table {name} was never made")));
        }
    }
    for (name, table) in &mut model.tables {
        let found = describe(db, name);
        table.is_busy = false;
        if !table.in_doubt && found != *table {
            let what = format!("table {name}: found {found:?}, expected {table:?}");
            return Err(Trouble::Differs(what));
        }
        *table = found;
    }
    Ok(())
}

/// Checks that no two rows of a table with a unique index have the same key.
fn check_unique(model: &Model, db: &Database) -> Result<(), Trouble> {
    for name in modelled(db) {
        let def = db.definition(&name)?;
        if def.index(UNIQUE).is_err() {
            continue;
        }
        let mut seen: BTreeMap<i64, i64> = BTreeMap::new();
        for (id, row) in model.table_at(u64::from(def.entry.tree.0), 0) {
            if let Some(V::Int(u)) = row.get(U)
                && let Some(other) = seen.insert(*u, id)
            {
                let what = format!("table {name}: rows {other} and {id} have u = {u}");
                return Err(Trouble::Differs(what));
            }
        }
    }
    Ok(())
}

/// Checks that no two rows have the same number. The next numbers must exceed those of all rows,
/// also of rows in prepared transactions.
fn check_numbers(read: &[(Arc<TableDef>, InOrder)], model: &mut Model) -> Result<(), Trouble> {
    model.given.clear();
    let number = |row: &Row| match row.get(N) {
        Some(V::Int(n)) => Some(n.unsigned_abs()),
        _ => None,
    };
    for (def, rows) in read.iter().filter(|(def, _)| Kind::of(&def.name).is_numbered()) {
        let tree = key_of(def, 0).0;
        let effects = model.prepared.values().flat_map(|p| &p.effects);
        let waiting = effects.filter(|(key, _)| key.0 == tree).filter_map(|(_, row)| row.as_ref());
        let rows = rows.iter().map(|(_, row)| row).chain(waiting);
        let mut numbers: Vec<u64> = rows.filter_map(number).collect();
        numbers.sort_unstable();
        if let Some(twice) = numbers.windows(2).find(|two| two[0] == two[1]) {
            let what = format!("table {}: two rows have n = {}", def.name, twice[0]);
            return Err(Trouble::Differs(what));
        }
        model.given.insert(tree, numbers.last().copied().unwrap_or(0));
    }
    Ok(())
}

/// The key of a row in the model.
pub fn key_of(def: &TableDef, id: i64) -> Key {
    (u64::from(def.entry.tree.0), id)
}
