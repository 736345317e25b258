//! Temporary tables next to other tables. No session waits for a sync if it changed only temporary
//! tables. A transaction that also changes another table survives as a whole or not at all. The
//! next start drops the temporary tables that a crash leaves.

use super::common::{T, rest};
use crate::actor::Actor;
use evenkeel::{
    Access, ColumnSpec, ColumnType, Database, Error, IndexSpec, Isolation, Result, TableSpec, Txn,
    ValueRef,
};
use evenkeel_io::SimEnv;
use std::ops::Range;

/// Prefix of the names of a server's temporary tables.
const PREFIX: &str = "#sql";
/// Number of temporary tables, created one after the other. The last ones are left.
const ROUNDS: i64 = 6;
const DROPPED: i64 = 4;

fn insert(txn: &mut Txn, name: &str, mut ids: Range<i64>) -> Result<()> {
    let table = txn.table(name)?;
    ids.try_for_each(|id| {
        let text = "t".repeat(id as usize % 50);
        table.insert(&[ValueRef::Int(id), ValueRef::Text(&text)]).map(drop)
    })
}

pub fn script(sim: &SimEnv, a: &mut Actor<'_>) -> Result<()> {
    let spec = TableSpec::new()
        .column(ColumnSpec::new("id", ColumnType::Int64))
        .column(ColumnSpec::new("b", ColumnType::Text { max: 60 }))
        .primary_key(&["id"])
        .index(IndexSpec::new("by_b", &["b"]));
    for round in 0..ROUNDS {
        let name = format!("{PREFIX}-{round}");
        a.db.create_temporary_table(&name, &spec)?;
        let mut alone = a.db.begin(Isolation::ReadCommitted, Access::ReadWrite)?;
        insert(&mut alone, &name, 0..20)?;
        alone.savepoint("s")?;
        insert(&mut alone, &name, 20..40)?;
        alone.rollback_to("s")?;
        match round % 3 {
            0 => alone.rollback()?,
            _ => _ = alone.commit()?,
        }
        a.put(T, round, 9, 30, Some(9_000 + round))?;
        a.in_same(|txn| insert(txn, &name, 100..110))?;
        match round % 2 {
            0 => a.commit()?,
            _ => a.rollback()?,
        }
        match round {
            1 => a.db.truncate(&name)?,
            2 => a.db.checkpoint()?,
            3 => rest(sim, 1_200),
            _ => {}
        }
        if round < DROPPED {
            a.db.drop_table(&name)?;
        }
    }
    Ok(())
}

/// Drops the tables that are left; each must be complete.
pub fn drop_left(db: &Database) -> std::result::Result<(), String> {
    let told = |error: Error| error.to_string();
    for name in db.tables().iter().filter(|name| name.starts_with(PREFIX)) {
        let problems = db.check().map_err(told)?.problems;
        if !problems.is_empty() {
            return Err(format!("{name} is left: {problems:?}"));
        }
        db.drop_table(name).map_err(told)?;
    }
    Ok(())
}
