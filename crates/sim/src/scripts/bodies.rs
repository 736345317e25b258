//! The work of the scripts. Any error ends a script. Each records in the model which of its changes
//! were acknowledged, so that the survivors can be compared at any moment.

use super::common::{NUMBERED, T, rest};
use crate::actor::Actor;
use crate::verify::{Trouble, check_recovered};
use evenkeel::{Access, Error, Isolation, Metric, Result, Txn};
use evenkeel_io::SimEnv;
use std::ops::Range;

/// Number of rows that a loser has changed.
pub(super) const LOST: i64 = 40;

/// The script finds what a killed process wrote; a checkpoint discards the log of it; more is
/// written.
pub(super) fn killed(sim: &SimEnv, a: &mut Actor<'_>) -> Result<()> {
    // The present state is permanent.
    let mut model = a.model.lock().clone();
    match check_recovered(&a.db, &mut model) {
        Ok(_) => *a.model.lock() = model,
        Err(Trouble::Error(error)) => return Err(error),
        Err(Trouble::Differs(what)) => return Err(Error::internal(what)),
    }
    a.db.checkpoint()?;
    a.put(T, 1, 1, 60, Some(1))?;
    a.commit()?;
    rest(sim, 20);
    a.db.checkpoint()
}

/// The crash leaves a transaction without an outcome, whose undo a checkpoint has saved in part,
/// and a prepared one.
pub(super) fn lose(_: &SimEnv, a: &mut Actor<'_>, loser: &mut Actor<'_>, rows: i64) -> Result<()> {
    for id in 0..LOST {
        loser.put(T, id, 8, 700, Some(rows + id))?;
        if id == LOST / 2 {
            a.db.checkpoint()?;
        }
    }
    a.put(T, rows - 1, 8, 30, Some(7_777))?;
    a.delete(T, rows - 2)?;
    // The prepare is durable, and so is everything before it.
    a.prepare("base")
}

/// Rows become longer. Pages are written by checkpoints and because frames are needed.
pub(super) fn rewrite(
    _: &SimEnv,
    a: &mut Actor<'_>,
    loser: &mut Actor<'_>,
    rows: i64,
) -> Result<()> {
    for round in 1..=2 {
        for n in 0..rows {
            // The rows are spread over the table, so that redo has more pages than the pool holds.
            let id = n * 37 % rows;
            a.put(T, id, round, 150 * round as usize, Some(10_000 * round + id))?;
            if n % 20 == 19 {
                a.commit()?;
            }
        }
        a.commit()?;
        loser.put(T, rows + round, 1, 30, None)?;
        a.db.checkpoint()?;
    }
    Ok(())
}

pub(super) fn inserts(_: &SimEnv, a: &mut Actor<'_>) -> Result<()> {
    for id in 100..112 {
        a.put(T, id, 1, 50, Some(id))?;
        a.commit()?;
    }
    Ok(())
}

pub(super) fn bulk(_: &SimEnv, a: &mut Actor<'_>) -> Result<()> {
    a.load(T, 100..400, 100)?;
    a.commit()?;
    for id in 400..500 {
        a.put(T, id, id, 100, Some(id))?;
    }
    a.commit()
}

/// Long values, written with their rows and as streams, that are replaced, rolled back and deleted.
pub(super) fn chains(sim: &SimEnv, a: &mut Actor<'_>) -> Result<()> {
    a.put(T, 1, 1, 30_000, Some(1))?;
    a.put(T, 2, 1, 9_000, Some(2))?;
    a.commit()?;
    a.stream(T, 1, 50_000)?;
    a.commit()?;
    a.savepoint()?;
    a.stream(T, 2, 20_000)?;
    a.put(T, 3, 1, 12_000, Some(3))?;
    a.back()?;
    a.put(T, 4, 4, 7_000, None)?;
    a.commit()?;
    a.db.checkpoint()?;
    a.delete(T, 1)?;
    a.stream(T, 4, 15_000)?;
    a.rollback()?;
    a.delete(T, 1)?;
    a.put(T, 2, 2, 5, None)?;
    a.commit()?;
    rest(sim, 50);
    Ok(())
}

/// A flush and then a checkpoint: the log that remains does not record which values were given up
/// before.
fn forget(sim: &SimEnv, a: &Actor<'_>, round: i64) -> Result<()> {
    let mut other = a.beside();
    for id in 0..30 {
        other.put(T, id % 20, round, 10, Some((round + 1) * 100_000 + id))?;
    }
    other.commit()?;
    rest(sim, 10);
    a.db.checkpoint()
}

fn put_all(a: &mut Actor<'_>, mut ids: Range<i64>, len: usize) -> Result<()> {
    ids.try_for_each(|id| a.put(T, id, id, len, None))
}

/// Gives up long values while a snapshot is open, in a list that a checkpoint records.
pub(super) fn give_up_some(sim: &SimEnv, a: &mut Actor<'_>) -> Result<Txn> {
    put_all(a, 100..112, 1_500)?;
    a.commit()?;
    let old = a.db.begin(Isolation::RepeatableRead, Access::ReadOnly)?;
    old.take_snapshot()?;
    put_all(a, 100..104, 1_700)?;
    a.commit()?;
    forget(sim, a, 1)?;
    Ok(old)
}

/// Open, rolled-back and prepared transactions give up long values.
pub(super) fn give_up(sim: &SimEnv, a: &mut Actor<'_>) -> Result<()> {
    let _old = give_up_some(sim, a)?;
    put_all(a, 104..106, 5)?;
    a.savepoint()?;
    put_all(a, 106..108, 1_600)?;
    a.delete(T, 108)?;
    forget(sim, a, 2)?;
    a.back()?;
    put_all(a, 107..108, 1_800)?;
    a.commit()?;
    put_all(a, 103..106, 1_900)?;
    a.delete(T, 109)?;
    forget(sim, a, 3)?;
    a.rollback()?;
    put_all(a, 110..112, 7)?;
    a.delete(T, 100)?;
    a.prepare("x")?;
    forget(sim, a, 4)?;
    let saved = a.db.stats().get(Metric::OverflowChainsSaved);
    assert!(sim.disk().is_disturbed() || saved > 12, "{saved} chains in lists");
    Ok(())
}

pub(super) fn chain_lists(sim: &SimEnv, a: &mut Actor<'_>) -> Result<()> {
    give_up(sim, a)?;
    a.decide("x", true)?;
    rest(sim, 1_100);
    forget(sim, a, 5)
}

/// An open finds such lists; then the transaction ends that some of the lists wait for.
pub(super) fn chain_lists_found(sim: &SimEnv, a: &mut Actor<'_>) -> Result<()> {
    a.decide("x", false)?;
    chains_freed(sim, a)
}

/// The file of a list is deleted while no transaction commits.
pub(super) fn chains_freed(sim: &SimEnv, a: &mut Actor<'_>) -> Result<()> {
    rest(sim, 3_300);
    a.put(T, 1, 1, 5, None)?;
    a.commit()
}

pub(super) fn updates_and_deletes(_: &SimEnv, a: &mut Actor<'_>) -> Result<()> {
    for id in 0..20 {
        a.put(T, id, 9, 120, Some(1000 + id))?;
        a.delete(T, 20 + id)?;
        a.commit()?;
    }
    a.put(T, 3, 3, 3, None)?;
    a.rollback()
}

pub(super) fn checkpoints(_: &SimEnv, a: &mut Actor<'_>) -> Result<()> {
    for round in 0..3 {
        for id in 0..20 {
            a.put(T, id * 5, round, 200, Some(10_000 + 100 * round + id))?;
        }
        a.commit()?;
        a.db.checkpoint()?;
    }
    Ok(())
}

pub(super) fn growing(_: &SimEnv, a: &mut Actor<'_>) -> Result<()> {
    for batch in 0..30 {
        for n in 0..8 {
            let id = 100 + (batch * 8 + n) * 37 % 1_000;
            a.put(T, id, batch, 2_000, Some(50_000 + batch * 8 + n))?;
        }
        a.savepoint()?;
        a.put(T, 2_000 + batch, batch, 9_000 * (batch as usize % 4), None)?;
        a.put(T, batch, batch, 1_500, None)?;
        a.delete(T, 100 + (batch * 8 + 3) * 37 % 1_000)?;
        match batch % 5 {
            1 => a.back()?,
            3 => a.rollback()?,
            _ => {}
        }
        a.commit()?;
    }
    a.create("num1")?;
    a.load("num1", 0..600, 900)?;
    a.commit()
}

fn fill(sim: &SimEnv, a: &mut Actor<'_>, batches: i64) -> Result<()> {
    for batch in 0..batches {
        for id in 0..30 {
            a.put(T, (batch * 37 + id * 13) % 700, batch, 10, Some((batch + 1) * 100_000 + id))?;
        }
        a.commit()?;
        rest(sim, 5);
    }
    Ok(())
}

pub(super) fn flush(sim: &SimEnv, a: &mut Actor<'_>) -> Result<()> {
    fill(sim, a, 8)
}

pub(super) fn compaction(sim: &SimEnv, a: &mut Actor<'_>) -> Result<()> {
    fill(sim, a, 24)?;
    rest(sim, 500);
    Ok(())
}

pub(super) fn rotation(_: &SimEnv, a: &mut Actor<'_>) -> Result<()> {
    for id in 0..300 {
        a.put(T, id, 1, 900, None)?;
        a.commit()?;
    }
    // Long values: one operation writes more log than any of the limits reserves in advance.
    for id in 0..40 {
        a.put(T, id, 1, 12_000, None)?;
        a.commit()?;
    }
    Ok(())
}

pub(super) fn drops(sim: &SimEnv, a: &mut Actor<'_>) -> Result<()> {
    a.schema(T, |db| db.drop_index(T, "by_a"))?;
    a.create("num1")?;
    a.put("num1", 1, 1, 10, Some(1))?;
    a.commit()?;
    a.schema(T, |db| db.truncate(T))?;
    a.put(T, 1, 1, 10, Some(1))?;
    a.commit()?;
    a.schema("num1", |db| db.drop_table("num1"))?;
    rest(sim, 20);
    a.schema(T, |db| db.drop_table(T))
}

/// Assigns more numbers than one advance of the catalog's mark covers.
pub(super) fn numbers(_: &SimEnv, a: &mut Actor<'_>) -> Result<()> {
    a.create(NUMBERED)?;
    for batch in 0..9 {
        for id in 0..25 {
            a.insert(NUMBERED, batch * 25 + id)?;
        }
        match batch % 3 {
            0 => a.rollback()?,
            _ => a.commit()?,
        }
        if batch == 5 {
            a.db.checkpoint()?;
        }
    }
    Ok(())
}

pub(super) fn large_transaction(_: &SimEnv, a: &mut Actor<'_>) -> Result<()> {
    for id in 0..60 {
        a.put(T, id, 4, 900, Some(id))?;
    }
    a.savepoint()?;
    for id in 0..30 {
        a.put(T, id, 5, 30, Some(5_000 + id))?;
        a.delete(T, 60 + id)?;
    }
    a.back()?;
    a.put(T, 99, 6, 6, None)?;
    a.commit()?;
    for id in 0..60 {
        a.put(T, id, 7, 700, Some(id))?;
    }
    a.rollback()
}

pub(super) fn two_phases(_: &SimEnv, a: &mut Actor<'_>) -> Result<()> {
    for (round, commit) in [(0, true), (1, false), (2, true)] {
        let xid = format!("x{round}");
        a.put(T, round, 8, 80, Some(8_000 + round))?;
        a.delete(T, 50 + round)?;
        a.prepare(&xid)?;
        a.put(T, 80 + round, 1, 1, None)?;
        a.commit()?;
        if round == 1 {
            a.db.checkpoint()?;
        }
        a.decide(&xid, commit)?;
    }
    a.put(T, 10, 8, 80, Some(9_999))?;
    a.prepare("left")
}

/// Recovery rolls back the loser; the prepared transaction still exists and is decided.
pub(super) fn recovery(sim: &SimEnv, a: &mut Actor<'_>) -> Result<()> {
    let report = a.db.recovery();
    assert!(report.losers == 1 && report.rows > 0 && !report.clean, "{report:?}");
    rest(sim, 20);
    a.decide("base", true)
}
