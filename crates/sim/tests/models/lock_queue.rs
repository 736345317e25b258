//! (g) The queue of a row: locking reads, writers, waiters for a stamp, a range over the row, a
//! waiter that gives up, upgrades. No wake-up is lost, no two transactions hold conflicting locks,
//! requests are granted in order of arrival, and one transaction of a deadlock gives up. The lock
//! table is the engine's (`txn/src/lock_table.rs`); the steps around it are those of
//! `tables/src/locker.rs`, `tables/src/row_op.rs` and `tables/src/locked_scan.rs`.

use crate::growing::NextRow;
use crate::intervals::KeySpan;
use crate::owner::Mode::{self, Exclusive, Shared};
use crate::owner::Owner;
use crate::parties::{Locks, Party, Waited};
use crate::row_queue::Keep;
use crate::sync::Mutex;
use crate::{model, start};
use evenkeel_sim::interleave::{Thread, step};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

#[derive(Clone, Copy, PartialEq)]
enum Planted {
    Nothing,
    /// A locking reader does not read the row again after its wait.
    NoSecondLook,
    /// A writer stamps the row without checking for locks.
    LocksIgnored,
    /// A waiter searches for a deadlock before other transactions can see its wait.
    SearchedTooEarly,
}

const SPACE: [u8; 5] = [1, 0, 0, 0, 1];
const KEY: [u8; 6] = [1, 0, 0, 0, 1, 7];
const OTHER: [u8; 6] = [1, 0, 0, 0, 1, 8];
/// The count of a writer; a reader counts one.
const WRITER: u64 = 1 << 32;

struct Engine {
    locks: Locks,
    /// The transaction whose undecided stamp is on the row; guarded by the leaf latch.
    stamp: Mutex<Option<Arc<Party>>>,
    /// Counts the transactions that rely on the row. No scheduling point.
    uses: AtomicU64,
    victims: AtomicU64,
    planted: Planted,
}

impl Engine {
    fn reads(&self) {
        assert!(self.uses.fetch_add(1, SeqCst) < WRITER, "read while it is written");
        step();
    }

    fn writes(&self, own: u64) {
        let others = self.uses.fetch_add(WRITER, SeqCst) - own;
        assert_eq!(others, 0, "written while others rely on it");
        step();
    }

    /// Decides `t`: removes its stamp, then releases its locks.
    fn end(&self, t: &Arc<Party>, used: u64) {
        self.uses.fetch_sub(used, SeqCst);
        {
            let mut stamp = self.stamp.lock();
            if stamp.as_ref().is_some_and(|by| by.id() == t.id()) {
                *stamp = None;
            }
        }
        self.locks.table.release_all(t);
    }

    fn gives_up(&self, t: &Arc<Party>, used: u64) {
        self.victims.fetch_add(1, SeqCst);
        self.end(t, used);
    }

    /// A locking read. True once the lock is held and the row was read under it.
    fn lock(&self, t: &Arc<Party>, mode: Mode) -> bool {
        loop {
            let waited = {
                let stamp = self.stamp.lock();
                match &*stamp {
                    Some(by) if by.id() != t.id() => {
                        let by = by.clone();
                        drop(stamp);
                        self.locks.queue_for(t, &KEY, (mode, Keep::Asked), Some(&by))
                    }
                    _ if self.locks.table.try_point(t, &KEY, mode, true).is_ok() => return true,
                    _ => {
                        drop(stamp);
                        self.locks.queue_for(t, &KEY, (mode, Keep::Asked), None)
                    }
                }
            };
            match waited {
                Waited::Victim => return false,
                _ if self.planted == Planted::NoSecondLook => return true,
                _ => {}
            }
        }
    }

    /// A change of the row. False if its transaction was a deadlock's victim.
    fn write(&self, t: &Arc<Party>, own: u64) -> bool {
        loop {
            let by = {
                let mut stamp = self.stamp.lock();
                let by = stamp.clone().filter(|by| by.id() != t.id());
                let is_free = self.planted == Planted::LocksIgnored
                    || !self.locks.table.may_be_against(&SPACE, &KEY[5..])
                    || self.locks.table.against_write(t, &KEY, false).is_empty();
                if by.is_none() && is_free {
                    *stamp = Some(t.clone());
                    self.writes(own);
                    break;
                }
                by
            };
            let ask = (Exclusive, Keep::Writes);
            if self.locks.queue_for(t, &KEY, ask, by.as_ref()) == Waited::Victim {
                return false;
            }
        }
        self.locks.table.written(t, &KEY);
        true
    }
}

type Script = fn(&Engine, &Arc<Party>);

fn reader(e: &Engine, t: &Arc<Party>) {
    if !e.lock(t, Shared) {
        return e.gives_up(t, 0);
    }
    e.reads();
    e.end(t, 1);
}

fn locker(e: &Engine, t: &Arc<Party>) {
    if !e.lock(t, Exclusive) {
        return e.gives_up(t, 0);
    }
    e.writes(0);
    e.end(t, WRITER);
}

fn writer(e: &Engine, t: &Arc<Party>) {
    match e.write(t, 0) {
        true => e.end(t, WRITER),
        false => e.gives_up(t, 0),
    }
}

/// Writes, then rolls back to a savepoint before the write: the stamp is removed, then the hold.
fn undoer(e: &Engine, t: &Arc<Party>) {
    if !e.write(t, 0) {
        return e.gives_up(t, 0);
    }
    e.uses.fetch_sub(WRITER, SeqCst);
    *e.stamp.lock() = None;
    e.locks.table.unwritten(t, &KEY);
    e.end(t, 0);
}

fn upgrader(e: &Engine, t: &Arc<Party>) {
    if !e.lock(t, Shared) {
        return e.gives_up(t, 0);
    }
    e.reads();
    match e.write(t, 1) {
        true => e.end(t, WRITER + 1),
        false => e.gives_up(t, 1),
    }
}

fn ranger(e: &Engine, t: &Arc<Party>) {
    if e.locks.lock_range(t, SPACE, Shared) == Waited::Victim {
        return e.gives_up(t, 0);
    }
    // A locking scan waits for stamps under its range and does not lock the rows.
    while let Some(by) = { e.stamp.lock().clone() } {
        if e.locks.queue_for(t, &KEY, (Shared, Keep::Nothing), Some(&by)) == Waited::Victim {
            return e.gives_up(t, 0);
        }
    }
    e.reads();
    e.end(t, 1);
}

/// Locks the row and others, and escalates: the locks become a range where no other transaction
/// holds or waits for a lock.
fn escalates(e: &Engine, t: &Arc<Party>, mode: Mode) {
    if !e.lock(t, mode) {
        return e.gives_up(t, 0);
    }
    let used = if mode == Shared { 1 } else { WRITER };
    match mode {
        Shared => e.reads(),
        Exclusive => e.writes(0),
    }
    let around = |n: u8| [&KEY[..5], &[n]].concat();
    // Other transactions may have requested all of them meanwhile.
    let takes = |n| e.locks.table.try_point(t, &around(n), mode, true).is_ok();
    let taken = [4, 5, 6, 8, 9].into_iter().filter(|n| takes(*n)).count();
    e.locks.table.escalate(t);
    let left = t.held().lock().points();
    assert!(left == 0 || left == taken + 1 || left == 3, "{left} of {taken}");
    step();
    // It still holds the row and requests nothing more.
    assert!(e.locks.table.try_point(t, &KEY, mode, true).is_ok());
    step();
    e.end(t, used);
}

fn escalator(e: &Engine, t: &Arc<Party>) {
    escalates(e, t, Exclusive);
}

fn sharing_escalator(e: &Engine, t: &Arc<Party>) {
    escalates(e, t, Shared);
}

/// A scan that has locked the rows before this one, and grows its range to it: the range that did,
/// or none if it locked the row by itself. Nothing if it gave up.
fn scans(e: &Engine, t: &Arc<Party>, mode: Mode, crosses: bool) -> Option<Option<u64>> {
    let at = |n: u8| [&SPACE[..], &[n]].concat();
    // Another transaction may have asked for all of them.
    let is_mine = |n: u8| e.locks.table.try_point(t, &at(n), mode, true).is_ok();
    let rows = [3, 4, 5, 6].into_iter().filter(|n| is_mine(*n)).count();
    let span = KeySpan { low: at(3), high: at(7) };
    let ticket = e.locks.table.range_of_keys(t, &SPACE, &span, (&at(6), mode), rows);
    let grown = {
        let stamp = e.stamp.lock();
        let next = NextRow { full: &KEY, mode, crosses };
        ticket.filter(|ticket| stamp.is_none() && e.locks.table.grow(t, &SPACE, *ticket, next))
    };
    (grown.is_some() || e.lock(t, mode)).then_some(grown)
}

fn scanner(e: &Engine, t: &Arc<Party>) {
    if scans(e, t, Exclusive, false).is_none() {
        return e.gives_up(t, 0);
    }
    e.writes(0);
    assert!(e.locks.table.try_point(t, &KEY, Exclusive, true).is_ok());
    e.end(t, WRITER);
}

fn sharing_scanner(e: &Engine, t: &Arc<Party>) {
    if scans(e, t, Shared, true).is_none() {
        return e.gives_up(t, 0);
    }
    e.reads();
    e.end(t, 1);
}

/// Does not want the row, but those before it.
fn skipping_scanner(e: &Engine, t: &Arc<Party>) {
    let Some(grown) = scans(e, t, Exclusive, true) else { return e.gives_up(t, 0) };
    e.writes(0);
    e.uses.fetch_sub(WRITER, SeqCst);
    match grown {
        Some(ticket) => e.locks.table.shrink(t, &SPACE, ticket, &KEY, false),
        None => e.locks.table.unlock(t, &KEY, Exclusive, false),
    }
    step();
    e.end(t, 0);
}

/// Changes the row, whose stamp then takes the place of the lock.
fn changing_scanner(e: &Engine, t: &Arc<Party>) {
    let Some(grown) = scans(e, t, Exclusive, false) else { return e.gives_up(t, 0) };
    if !e.write(t, 0) {
        return e.gives_up(t, 0);
    }
    match grown {
        Some(ticket) => e.locks.table.shrink(t, &SPACE, ticket, &KEY, true),
        None => e.locks.table.unlock(t, &KEY, Exclusive, true),
    }
    step();
    e.end(t, WRITER);
}

fn impatient(e: &Engine, t: &Arc<Party>) {
    e.locks.give_up(t, &KEY, Exclusive);
    e.end(t, 0);
}

/// Locks the row, then another key.
fn forth(e: &Engine, t: &Arc<Party>) {
    if !e.lock(t, Exclusive) {
        return e.gives_up(t, 0);
    }
    match e.locks.queue_for(t, &OTHER, (Exclusive, Keep::Asked), None) {
        Waited::Victim => e.gives_up(t, 0),
        _ => e.end(t, 0),
    }
}

/// Locks the two keys in the opposite order.
fn back(e: &Engine, t: &Arc<Party>) {
    if e.locks.queue_for(t, &OTHER, (Exclusive, Keep::Asked), None) == Waited::Victim {
        return e.gives_up(t, 0);
    }
    match e.lock(t, Exclusive) {
        true => e.end(t, 0),
        false => e.gives_up(t, 0),
    }
}

/// Runs the scripts; at most this many transactions may become victims.
fn run(planted: Planted, scripts: &'static [Script], victims: u64) {
    model("turns", scripts.len(), || {
        let locks = Locks::new(planted == Planted::SearchedTooEarly);
        let (stamp, uses) = (Mutex::new(None), AtomicU64::new(0));
        let engine = Arc::new(Engine { locks, stamp, uses, victims: AtomicU64::new(0), planted });
        let threads: Vec<Thread> = (1..)
            .zip(scripts)
            .map(|(id, script)| {
                let party = Party::new(id, 0);
                start(&engine, move |engine: &Engine| script(engine, &party))
            })
            .collect();
        threads.into_iter().for_each(Thread::join);
        let found = engine.victims.load(SeqCst);
        assert!(found <= victims, "{found} gave up");
        let mut left = 0;
        engine.locks.table.each_point(&mut |_, _| {
            left += 1;
            true
        });
        engine.locks.table.ranges().each(usize::MAX, &mut |_| left += 1);
        assert_eq!((left, engine.locks.table.bytes()), (0, 0), "something is left");
    });
}

#[test]
fn two_transactions_at_one_row_both_get_it() {
    let scripts: &[&'static [Script]] = &[
        &[reader, writer],
        &[locker, writer],
        &[writer, writer],
        &[undoer, writer],
        &[undoer, locker],
        &[upgrader, writer],
        &[impatient, writer],
        &[ranger, writer],
        &[ranger, locker],
        &[ranger, undoer],
        &[escalator, writer],
        &[escalator, locker],
        &[escalator, ranger],
        &[escalator, impatient],
        &[sharing_escalator, reader],
        &[sharing_escalator, undoer],
        &[scanner, writer],
        &[scanner, locker],
        &[scanner, impatient],
        &[sharing_scanner, reader],
        &[sharing_scanner, undoer],
        &[skipping_scanner, writer],
        &[skipping_scanner, locker],
        &[changing_scanner, writer],
        &[changing_scanner, locker],
    ];
    scripts.iter().for_each(|scripts| run(Planted::Nothing, scripts, 0));
}

#[test]
fn three_transactions_at_one_row_all_get_it() {
    let scripts: &[&'static [Script]] = &[
        &[reader, writer, reader],
        &[reader, impatient, reader],
        &[writer, writer, locker],
        &[undoer, locker, reader],
        &[upgrader, writer, reader],
        &[ranger, writer, reader],
        &[escalator, writer, reader],
        &[sharing_escalator, writer, reader],
        &[sharing_escalator, impatient, locker],
        &[scanner, writer, reader],
        &[sharing_scanner, writer, reader],
        &[skipping_scanner, writer, locker],
        &[changing_scanner, reader, locker],
    ];
    scripts.iter().for_each(|scripts| run(Planted::Nothing, scripts, 0));
}

/// A request for a range that begins to wait between an upgrade and its row may deadlock with the
/// upgrade: one of the two gives up.
#[test]
fn deadlocks_are_broken() {
    run(Planted::Nothing, &[upgrader, upgrader], 1);
    run(Planted::Nothing, &[upgrader, upgrader, writer], 1);
    run(Planted::Nothing, &[upgrader, upgrader, upgrader], 2);
    run(Planted::Nothing, &[forth, back], 1);
    run(Planted::Nothing, &[forth, back, writer], 1);
    run(Planted::Nothing, &[ranger, upgrader], 1);
    // A range waits for the rows that were locked, and the scan for the range.
    run(Planted::Nothing, &[scanner, ranger], 1);
    run(Planted::Nothing, &[skipping_scanner, ranger], 1);
    run(Planted::Nothing, &[changing_scanner, ranger], 1);
}

#[test]
#[should_panic(expected = " while ")]
fn a_lock_without_rereading_the_row_is_found() {
    run(Planted::NoSecondLook, &[reader, writer, writer], 0);
}

#[test]
#[should_panic(expected = "while others rely on it")]
fn a_writer_that_ignores_locks_is_found() {
    run(Planted::LocksIgnored, &[reader, writer], 0);
}

#[test]
#[should_panic(expected = "nobody can go on")]
fn a_deadlock_search_before_the_wait_is_published_is_found() {
    run(Planted::SearchedTooEarly, &[forth, back], 1);
}
