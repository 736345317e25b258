//! Transactions that are prepared or committed without waiting for the sync of the log. A crash may
//! lose them, each as a whole, the last ones first. Everything synced survives a crash, and
//! everything written survives a kill of the process.

use super::common::{T, rest};
use super::seen::Seen;
use crate::actor::Actor;
use crate::model::{Model, Phase};
use crate::verify::{Trouble, check_recovered};
use evenkeel::{Database, Durability, Result};
use evenkeel_base::sync::Mutex;
use evenkeel_io::SimEnv;
use std::sync::Arc;

/// The outcomes that crashes must have.
pub const LEFT: &[&str] = &["lost", "kept", "one kept and a later one lost", "all lost"];
const ROUNDS: i64 = 9;

fn xid(round: i64) -> String {
    format!("x{round}")
}

/// Prepares take three durabilities in turn, commits take them in another order.
pub fn script(sim: &SimEnv, a: &mut Actor<'_>) -> Result<()> {
    use Durability::{Lazy, Sync, Write};
    for round in 0..ROUNDS {
        // Rows on several pages, one with a long value, which a crash could leave in part.
        a.put(T, round, 8, 80, Some(8_000 + round))?;
        a.delete(T, 99 - round)?;
        a.put(T, 200 + round, 8, 3_000, None)?;
        let durability = [Lazy, Write, Lazy, Sync][round as usize % 4];
        a.prepare_with(&xid(round), durability)?;
        a.put(T, 40 + round, 1, 1, None)?;
        a.commit_with([Write, Lazy, Lazy][round as usize % 3])?;
        match round {
            2 => a.db.checkpoint()?,
            // Without its prepare record the transaction has neither outcome.
            4 => a.decide(&xid(3), true)?,
            5 => a.decide(&xid(4), false)?,
            7 => rest(sim, 1_200),
            _ => {}
        }
    }
    Ok(())
}

/// Transactions prepared without a sync that certainly existed before the crash.
pub fn loose(model: &Model) -> Vec<Vec<u8>> {
    let all = model.prepared.iter();
    let loose = all.filter(|(_, p)| p.phase == Phase::Sure && !model.keeps(p));
    loose.map(|(xid, _)| xid.clone()).collect()
}

/// Decides the transactions that were found: each must be complete.
pub fn check(
    seen: &Arc<Seen>,
    db: &Database,
    loose: &[Vec<u8>],
    model: &mut Model,
) -> std::result::Result<(), String> {
    let found = db.prepared();
    let is_lost: Vec<bool> = loose.iter().map(|xid| !found.contains(xid)).collect();
    for lost in &is_lost {
        seen.note(if *lost { "lost" } else { "kept" });
    }
    match (is_lost.contains(&true), is_lost.contains(&false)) {
        (true, true) => seen.note("one kept and a later one lost"),
        (true, false) => seen.note("all lost"),
        _ => {}
    }
    let known = Mutex::new(std::mem::take(model));
    let mut actor = Actor::new(db.clone(), &known);
    for (n, xid) in found.iter().enumerate() {
        let xid = String::from_utf8_lossy(xid);
        actor.decide(&xid, n % 3 != 2).map_err(|e| e.to_string())?;
    }
    drop(actor);
    *model = known.into_inner();
    match check_recovered(db, model) {
        Ok(_) => Ok(()),
        Err(Trouble::Error(error)) => Err(error.to_string()),
        Err(Trouble::Differs(what)) => Err(format!("when all is decided: {what}")),
    }
}
