//! A close on a device so slow that it leaves dirty pages to the next open. It is crashed at each
//! of its changes of the disk; then the next open must recover its files.

use super::common::T;
use super::seen::Seen;
use crate::actor::{Actor, SMALL};
use evenkeel::{Error, Geometry, Metric, Result};
use evenkeel_io::SimEnv;
use std::sync::Arc;

/// The files that a close changes.
pub const FILES: &[&str] =
    &["copies of pages", "pages", "log", "copy of the checkpoint", "superblock", "hot pages"];
/// Number of rows on a page, with the text below.
const PER_PAGE: usize = 4;
pub const ROWS: i64 = 390;
pub const TEXT: usize = 3_900;
/// Pages are so large that the close writes few of them: one batch, which is written however long
/// it takes, and before it the pages that the cleaner begins to write while other threads end.
pub const PAGE: u32 = 16 << 10;
const BATCH: u64 = 64;
/// Bytes per second: one batch takes more than the three seconds of a close, also without copies.
const SLOW: u64 = 250_000;

/// So few pages are dirty that none is written before the close.
pub const GEOMETRY: Geometry =
    Geometry { pool_bytes: Some(16 << 20), log_bytes: Some(8 << 20), ..SMALL };

/// Changes a row of each page; one transaction stays open, another is prepared.
fn dirty(a: &mut Actor<'_>, open: &mut Actor<'_>) -> Result<()> {
    for (n, id) in (0..ROWS).step_by(PER_PAGE).enumerate() {
        a.put(T, id, 9, TEXT, Some(50_000 + id))?;
        if n % 20 == 19 {
            a.commit()?;
        }
    }
    a.delete(T, 1)?;
    a.commit()?;
    a.put(T, 2, 3, 30, Some(90_002))?;
    a.prepare("at the close")?;
    for id in (3..ROWS).step_by(60) {
        open.put(T, id, 4, 40, Some(90_000 + id))?;
    }
    Ok(())
}

/// Ends a life with a slow device and a close that does not wait for it.
pub fn slowly(sim: &SimEnv, a: &mut Actor<'_>, open: &mut Actor<'_>) -> Result<()> {
    dirty(a, open)?;
    let before = written(a);
    sim.set_device(SLOW);
    let closed = a.db.clone().close();
    sim.set_device(0);
    closed?;
    a.model.lock().closed();
    has_left(a, before);
    Ok(())
}

/// Number of pages written.
fn written(a: &Actor<'_>) -> u64 {
    a.db.stats().get(Metric::FlushDone)
}

/// Checks that a close has left dirty pages; `before` is the number of pages written when they were
/// changed.
fn has_left(a: &Actor<'_>, before: u64) {
    let (written, changed) = (written(a) - before, ROWS as u64 / PER_PAGE as u64);
    assert!(written < changed && BATCH < changed, "{written} pages of {changed} are written");
}

/// The close; it is crashed at each of its changes.
pub fn leaving(sim: &SimEnv, a: &mut Actor<'_>, seen: &Arc<Seen>) -> Result<()> {
    let mut open = Actor::new(a.db.clone(), a.model);
    let before = written(a);
    dirty(a, &mut open)?;
    let seen = seen.clone();
    sim.disk().at_crash(move |error| seen.note(file(error)));
    sim.set_device(SLOW);
    a.db.clone().close()?;
    if !sim.is_crashed() {
        a.model.lock().closed();
        // If a call fails, time passes, and pages are written before the close.
        if !sim.disk().is_disturbed() {
            has_left(a, before);
        }
    }
    Ok(())
}

fn file(error: &Error) -> &'static str {
    let path = error.context("file").unwrap_or_default();
    match path {
        _ if path.ends_with("dw") => "copies of pages",
        _ if path.contains("pages/") => "pages",
        _ if path.contains("wal/") => "log",
        _ if path.contains("evenkeel.super") => "superblock",
        _ if path.contains("evenkeel.checkpoint") => "copy of the checkpoint",
        _ if path.contains("evenkeel.warm") => "hot pages",
        _ => "another",
    }
}

/// The open that recovers those files and decides the prepared transaction.
pub fn found(sim: &SimEnv, a: &mut Actor<'_>) -> Result<()> {
    let report = a.db.recovery();
    assert!(!report.clean && report.losers == 1, "{report:?}");
    super::rest(sim, 20);
    a.put(T, 5, 1, 60, None)?;
    a.commit()?;
    a.decide("at the close", true)?;
    a.db.checkpoint()
}
