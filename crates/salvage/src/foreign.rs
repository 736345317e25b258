//! Foreign keys of a new database. When all its tables are complete, each key is added whose rows
//! all keep it. Rows that refer to a lost row are reported, and their key is left out.

use crate::catalog::Known;
use crate::definition::{Definition, ForeignKey};
use crate::report::{Orphans, Report};
use crate::{foreign_sql, sql};
use evenkeel::{
    Access, BuildProgress, Code, Database, Direction, Error, ForeignKeySpec, Isolation, Range,
    Result, Row, TableDef, Value, ValueRef,
};
use evenkeel_base::fault_injection::{self, Fault};
use evenkeel_format::catalog::{IndexState, PartEntry};
use evenkeel_format::text::plain;

/// Rows of one key that the report names, at most.
const ROWS_NAMED: usize = 10_000;
const NAMES_LOST: &str = "the catalog has lost its parent or a column";

/// Adds the foreign keys of all tables that were saved.
///
/// # Errors
/// Those of the database.
pub fn carry_over(db: &Database, tables: &[Known], report: &mut Report) -> Result<()> {
    for Known { def, .. } in tables {
        let saved = report.tables.iter_mut().find(|saved| saved.name == def.name);
        let Some(saved) = saved.filter(|saved| saved.is_made) else { continue };
        for key in &def.foreign_keys {
            let (orphans, added) = add(db, def, key)?;
            if let Err(why) = added {
                saved.notes.push(format!(
                    "foreign key {} is left out: {why}; in SQL it is {}",
                    key.name,
                    sql::foreign_key(def, key)
                ));
            }
            saved.orphans.extend(orphans);
        }
    }
    Ok(())
}

/// The statements that add the keys of the tables that were saved.
pub fn as_sql(tables: &[Known], report: &Report) -> String {
    let is_read = report.log.is_some_and(|(.., lost)| lost.is_none());
    let written = tables.iter().filter_map(|Known { def, .. }| {
        let saved = report.tables.iter().find(|saved| saved.name == def.name && saved.is_made)?;
        Some((def, is_read && saved.lost.is_empty() && saved.aside.is_empty()))
    });
    foreign_sql::statements(&written.collect::<Vec<_>>())
}

/// Adds a key, or says why it is left out, with the rows that do not keep it.
fn add(
    db: &Database,
    def: &Definition,
    key: &ForeignKey,
) -> Result<(Option<Orphans>, std::result::Result<(), String>)> {
    if !key.is_known() {
        return Ok((None, Err(NAMES_LOST.to_string())));
    }
    let orphans = match orphans(db, def, key) {
        Ok(orphans) if !fault_injection::is(Fault::OrphansOverlooked) => orphans,
        Ok(_) => None,
        Err(error) if is_reason(&error) => return Ok((None, Err(error.to_string()))),
        Err(error) => return Err(error.with("foreign_key", &key.name)),
    };
    if let Some(orphans) = orphans {
        let why = format!("{} rows refer to rows that {} does not have", orphans.count, key.parent);
        return Ok((Some(orphans), Err(why)));
    }
    let spec = ForeignKeySpec {
        name: key.name.clone(),
        columns: key.columns.clone(),
        parent: key.parent.clone(),
        parent_columns: key.parent_columns.clone(),
        on_delete: key.on_delete,
        on_update: key.on_update,
        may_await: key.awaits,
    };
    let is_proved = !key.awaits && !fault_injection::is(Fault::OrphansOverlooked);
    match db.add_foreign_keys(&def.name, &[spec], is_proved, &BuildProgress::default()) {
        Err(error) if is_reason(&error) => Ok((None, Err(error.to_string()))),
        added => added.map(|()| (None, Ok(()))),
    }
}

/// True if the tables that were saved lack what the key needs.
fn is_reason(error: &Error) -> bool {
    use Code::*;
    matches!(
        error.code(),
        ForeignKeyInvalid | TableMissing | ColumnMissing | ParentRowMissing | CollationMissing
    )
}

/// The key of the parent that has the columns of a foreign key.
enum ParentKey {
    Primary,
    Index(String),
}

/// Finds the parent's key, and the position in the foreign key of each of its columns.
fn parent_key(parent: &TableDef, key: &ForeignKey) -> Option<(ParentKey, Vec<usize>)> {
    let order = |parts: &[PartEntry]| {
        let position = |part: &PartEntry| {
            let column = parent.column_by_id(part.column)?;
            key.parent_columns.iter().position(|name| *name == column.name)
        };
        let order: Option<Vec<usize>> = parts.iter().map(position).collect();
        order.filter(|order| order.len() == key.parent_columns.len())
    };
    if !parent.entry.hidden_key
        && let Some(order) = order(&parent.entry.primary)
    {
        return Some((ParentKey::Primary, order));
    }
    parent.indexes.iter().find_map(|index| {
        let is_valid = matches!(index.entry.state, IndexState::Valid(_)) && index.entry.unique;
        let order = order(&index.entry.parts).filter(|_| is_valid)?;
        Some((ParentKey::Index(index.name.clone()), order))
    })
}

/// The rows that refer to no row; none if all keep the key.
fn orphans(db: &Database, def: &Definition, key: &ForeignKey) -> Result<Option<Orphans>> {
    if key.awaits {
        return Ok(None);
    }
    let parent = db.definition(&key.parent)?;
    let (parent_key, order) = parent_key(&parent, key).ok_or_else(|| {
        let why = "the parent has no unique key of these columns any more";
        Error::new(Code::ForeignKeyInvalid).with("constraint", &key.name).with("why", why)
    })?;
    let txn = db.begin(Isolation::RepeatableRead, Access::ReadOnly)?;
    let parents = txn.table(&key.parent)?;
    let is_there = |values: &[Value]| {
        let values: Vec<ValueRef<'_>> = order.iter().map(|at| values[*at].as_ref()).collect();
        match &parent_key {
            ParentKey::Primary => parents.get(&values[..]).map(|row| row.is_some()),
            ParentKey::Index(name) => {
                let found = parents.index(name)?.keys_only().first(Range::prefix(&values))?;
                Ok(found.is_some())
            }
        }
    };
    let mut found = Orphans { key: key.name.clone(), ..Orphans::default() };
    let mut scan = txn.table(&def.name)?.scan(Range::ALL, Direction::Forward)?;
    let mut row = Row::new();
    while scan.next(&mut row)? {
        let values = key.columns.iter().map(|name| Ok(row.value(name.as_str())?.to_owned()));
        let values = values.collect::<Result<Vec<Value>>>()?;
        if values.contains(&Value::Null) || is_there(&values)? {
            continue;
        }
        found.count += 1;
        if found.rows.len() < ROWS_NAMED {
            found.rows.push(row_text(def, &row, key, &values)?);
        }
    }
    Ok((found.count > 0).then_some(found))
}

/// A row by its primary key, and the values that it refers to.
fn row_text(def: &Definition, row: &Row, key: &ForeignKey, values: &[Value]) -> Result<String> {
    let pairs = |names: &mut dyn Iterator<Item = (&str, String)>| {
        names.map(|(name, value)| format!("{name} = {value}")).collect::<Vec<_>>().join(", ")
    };
    let own = def.primary().iter().map(|part| {
        let name = def.column_name(part.column);
        Ok((name, plain(&row.value(name)?.to_owned())))
    });
    let own = own.collect::<Result<Vec<_>>>()?;
    let named = key.parent_columns.iter().map(String::as_str);
    let of_parent = pairs(&mut named.zip(values.iter().map(plain)));
    let own = match own.is_empty() {
        true => "a row without a primary key".to_string(),
        false => format!("({})", pairs(&mut own.into_iter())),
    };
    Ok(format!("{own} refers to ({of_parent}) of {}", key.parent))
}
