//! Full verification: tables and indexes against the model, both ways, at a snapshot; and which of
//! the commits whose fate a crash left open are there.

use crate::model::{Key, Model, Phase};
use crate::values::{COLUMNS, Row, UNIQUE, V, id_of, index_columns, padded, short};
use evenkeel::{Access, Code, Database, Direction, Error, Isolation, Range, TableDef, Txn};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Why a verification ended: an error of the engine, or a difference.
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

/// Rows of a table in the order they were read.
pub type InOrder = Vec<(i64, Row)>;

fn row_values(row: &evenkeel::Row) -> Result<(i64, Row), Error> {
    let id = id_of(&V::from_engine(row.value(0)?));
    let values = (1..row.len()).map(|i| Ok(V::from_engine(row.value(i)?)));
    Ok((id, values.collect::<Result<Row, Error>>()?))
}

/// Reads rows of a range in one direction, in the order they come.
///
/// # Errors
/// Of the engine.
pub fn read_table(
    txn: &mut Txn,
    name: &str,
    range: Range<'_>,
    direction: Direction,
) -> Result<Vec<(i64, Row)>, Error> {
    let mut scan = txn.table(name)?.scan(range, direction)?;
    let mut row = evenkeel::Row::new();
    let mut rows = Vec::new();
    while scan.next(&mut row)? {
        rows.push(row_values(&row)?);
    }
    Ok(rows)
}

/// Reads an index in one direction: the values of `columns` (positions in the row).
///
/// # Errors
/// Of the engine.
pub fn read_index(
    txn: &mut Txn,
    name: &str,
    index: (&str, &[usize]),
    direction: Direction,
    keys_only: bool,
) -> Result<Vec<(Vec<V>, i64)>, Error> {
    let mut index_ref = txn.table(name)?.index(index.0)?;
    if keys_only {
        index_ref = index_ref.keys_only();
    }
    let mut scan = index_ref.scan(Range::ALL, direction)?;
    let mut row = evenkeel::Row::new();
    let mut entries = Vec::new();
    while scan.next(&mut row)? {
        let values = index.1.iter().map(|c| Ok(V::from_engine(row.value(*c)?)));
        let values = values.collect::<Result<Vec<V>, Error>>()?;
        entries.push((values, id_of(&V::from_engine(row.value(0)?))));
    }
    Ok(entries)
}

/// The first difference between rows read and rows expected.
pub fn difference(
    read: &[(i64, Row)],
    expected: &BTreeMap<i64, &Row>,
    def: &TableDef,
) -> Option<String> {
    let found: BTreeMap<i64, &Row> = read.iter().map(|(id, row)| (*id, row)).collect();
    if found.len() != read.len() {
        return Some(format!("{} rows have {} keys", read.len(), found.len()));
    }
    let ids: BTreeSet<i64> = found.keys().chain(expected.keys()).copied().collect();
    for id in ids {
        let (have, want) = (found.get(&id), expected.get(&id));
        let (mut have, mut want) = (have.map(|r| padded(r, def)), want.map(|r| padded(r, def)));
        // A column may have been added since the definition was looked up.
        if let (Some(have), Some(want)) = (&mut have, &mut want) {
            have.truncate(want.len());
            want.truncate(have.len());
        }
        if have != want {
            let (have, want) = (short(have.as_ref()), short(want.as_ref()));
            return Some(format!("row {id}: read {have}, expected {want}"));
        }
    }
    (!read.is_sorted_by_key(|(id, _)| *id)).then(|| "order".to_string())
}

/// Checks one table and its indexes in a transaction whose snapshot is `at`.
///
/// # Errors
/// A difference, or what the engine returned.
pub fn check_table(
    txn: &mut Txn,
    name: &str,
    def: &TableDef,
    expected: &BTreeMap<i64, &Row>,
    strict: bool,
) -> Result<(), Trouble> {
    let differs = |what: String| Trouble::Differs(format!("table {name}: {what}"));
    let forward = read_table(txn, name, Range::ALL, Direction::Forward)?;
    if let Some(what) = difference(&forward, expected, def) {
        return Err(differs(what));
    }
    let mut backward = read_table(txn, name, Range::ALL, Direction::Backward)?;
    backward.reverse();
    if forward != backward {
        let (f, b) = (forward.len(), backward.len());
        return Err(differs(format!("{f} rows forward, {b} backward, or others")));
    }
    for index in &def.indexes {
        check_index(txn, name, def, &index.name, expected, strict)?;
    }
    Ok(())
}

fn check_index(
    txn: &mut Txn,
    name: &str,
    def: &TableDef,
    index: &str,
    expected: &BTreeMap<i64, &Row>,
    strict: bool,
) -> Result<(), Trouble> {
    let columns = index_columns(def, index);
    let entry = |id: i64, row: &Row| -> (Vec<V>, i64) {
        (columns.iter().map(|c| row[c - 1].clone()).collect(), id)
    };
    let mut want: Vec<_> = expected.iter().map(|(id, row)| entry(*id, row)).collect();
    want.sort();
    let mut first: Option<Vec<(Vec<V>, i64)>> = None;
    for (direction, keys_only) in [
        (Direction::Forward, true),
        (Direction::Backward, true),
        (Direction::Forward, false),
        (Direction::Backward, false),
    ] {
        let read = read_index(txn, name, (index, &columns), direction, keys_only);
        let mut read = match read {
            Err(error) if error.code() == Code::IndexTooYoung => return Ok(()),
            // A schema change goes on.
            Err(error) if error.code() == Code::IndexMissing && !strict => return Ok(()),
            other => other?,
        };
        if direction == Direction::Backward {
            read.reverse();
        }
        let how = format!("index {name}.{index}, {direction:?}, keys only {keys_only}");
        let mut sorted = read.clone();
        sorted.sort();
        if sorted != want {
            return Err(Trouble::Differs(format!("{how}: {}", entries_differ(&sorted, &want))));
        }
        if first.as_ref().is_some_and(|f| *f != read) {
            return Err(Trouble::Differs(format!("{how}: another order than forward")));
        }
        first.get_or_insert(read);
    }
    Ok(())
}

fn entries_differ(read: &[(Vec<V>, i64)], want: &[(Vec<V>, i64)]) -> String {
    let show = |e: Option<&(Vec<V>, i64)>| match e {
        Some((values, id)) => format!("({}) -> {id}", short(Some(values))),
        None => "end".to_string(),
    };
    let at = read.iter().zip(want).position(|(r, w)| r != w);
    let at = at.unwrap_or(read.len().min(want.len()));
    let (r, w) = (show(read.get(at)), show(want.get(at)));
    format!("{} entries, expected {}; entry {at} is {r}, expected {w}", read.len(), want.len())
}

/// Checks every table of the model at a fixed timestamp in a transaction with that snapshot.
///
/// # Errors
/// As `check_table`.
pub fn check_at(
    txn: &mut Txn,
    db: &Database,
    model: &Model,
    at: u64,
    strict: bool,
) -> Result<(), Trouble> {
    for name in db.tables() {
        // The table is in use from here on, so that its tree and indexes stay.
        let entered = txn.table(&name).and_then(|mut t| t.first());
        match entered {
            Err(error) if !strict && is_of_schema(&error) => continue,
            other => other?,
        };
        let def = db.definition(&name)?;
        let expected = model.table_at(u64::from(def.entry.tree.0), at);
        let padded: BTreeMap<i64, Row> =
            expected.iter().map(|(id, row)| (*id, crate::values::padded(row, &def))).collect();
        let expected = padded.iter().map(|(id, row)| (*id, row)).collect();
        check_table(txn, &name, &def, &expected, strict)?;
    }
    Ok(())
}

fn is_of_schema(error: &Error) -> bool {
    matches!(error.code(), Code::TableMissing | Code::TableBusy)
}

/// After an open: finds out which unsure commits survived, cuts the model to them, and checks
/// everything. Returns how many commits the crash lost.
///
/// # Errors
/// A difference to every state that would be right, or what the engine returned.
pub fn check_recovered(db: &Database, model: &mut Model) -> Result<u64, Trouble> {
    check_schema(db, model)?;
    let mut txn = db.begin(Isolation::RepeatableRead, Access::ReadOnly)?;
    txn.take_snapshot()?;
    let mut read: Vec<(Arc<TableDef>, InOrder)> = Vec::new();
    for name in db.tables() {
        let rows = read_table(&mut txn, &name, Range::ALL, Direction::Forward)?;
        read.push((db.definition(&name)?, rows));
    }
    let mut first = None;
    let candidates = model.candidates();
    for cts in &candidates {
        let wrong = read.iter().find_map(|(def, rows)| {
            let expected = model.table_at(u64::from(def.entry.tree.0), *cts);
            difference(rows, &expected, def).map(|d| format!("table {}: {d}", def.name))
        });
        let wrong = wrong.or_else(|| prepared_differ(db, model, *cts));
        let Some(wrong) = wrong else {
            let lost = candidates.iter().take_while(|c| *c != cts).count() as u64;
            model.cut(*cts);
            keep_prepared(db, model);
            check_unique(model, db)?;
            check_at(&mut txn, db, model, 0, true)?;
            return Ok(lost);
        };
        first.get_or_insert(wrong);
    }
    let what = first.unwrap_or_default();
    let (acked, n) = (model.acked, candidates.len());
    Err(Trouble::Differs(format!(
        "no state fits, of {n} from commit {acked} (durable) on; in the newest: {what}"
    )))
}

fn check_schema(db: &Database, model: &mut Model) -> Result<(), Trouble> {
    let names: BTreeSet<String> = db.tables().into_iter().collect();
    for name in &names {
        if !model.tables.contains_key(name) {
            return Err(Trouble::Differs(format!("table {name} was never made")));
        }
    }
    for (name, table) in &mut model.tables {
        let mut found = crate::model::Table::default();
        if names.contains(name) {
            let def = db.definition(name)?;
            found.tree = u64::from(def.entry.tree.0);
            found.indexes = def.indexes.iter().map(|i| i.name.clone()).collect();
        }
        table.is_busy = false;
        if !table.in_doubt && found != *table {
            let what = format!("table {name}: found {found:?}, expected {table:?}");
            return Err(Trouble::Differs(what));
        }
        *table = found;
    }
    Ok(())
}

/// What is wrong with the prepared transactions if commits up to `cts` have survived.
fn prepared_differ(db: &Database, model: &Model, cts: u64) -> Option<String> {
    let found: BTreeSet<Vec<u8>> = db.prepared().into_iter().collect();
    let name = |xid: &[u8]| String::from_utf8_lossy(xid).into_owned();
    for xid in &found {
        let phase = model.prepared.get(xid).map(|p| p.phase.clone());
        let wrong = match phase {
            None => true,
            Some(Phase::Committed(at)) => at <= cts,
            Some(_) => false,
        };
        if wrong {
            return Some(format!("transaction {} is prepared, expected {phase:?}", name(xid)));
        }
    }
    let lost = model.prepared.iter().find(|(xid, prepared)| {
        let must = match prepared.phase {
            Phase::Sure => true,
            Phase::Committed(at) => at > cts,
            Phase::Asked | Phase::RolledBack => false,
        };
        must && !found.contains(*xid)
    });
    lost.map(|(xid, _)| format!("transaction {} is not prepared any more", name(xid)))
}

fn keep_prepared(db: &Database, model: &mut Model) {
    let found = db.prepared();
    model.prepared.retain(|xid, _| found.contains(xid));
    for prepared in model.prepared.values_mut() {
        prepared.phase = Phase::Sure;
    }
}

/// No two rows of a table with a unique index have one key.
fn check_unique(model: &Model, db: &Database) -> Result<(), Trouble> {
    for name in db.tables() {
        let def = db.definition(&name)?;
        if def.index(UNIQUE).is_err() {
            continue;
        }
        let mut seen: BTreeMap<i64, i64> = BTreeMap::new();
        for (id, row) in model.table_at(u64::from(def.entry.tree.0), 0) {
            if let Some(V::Int(u)) = row.get(COLUMNS - 2)
                && let Some(other) = seen.insert(*u, id)
            {
                let what = format!("table {name}: rows {other} and {id} have u = {u}");
                return Err(Trouble::Differs(what));
            }
        }
    }
    Ok(())
}

/// The key of a row in the model.
pub fn key_of(def: &TableDef, id: i64) -> Key {
    (u64::from(def.entry.tree.0), id)
}
