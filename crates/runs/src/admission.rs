//! Reserving memtable bytes (G1): hand-over, delays, waits for memtable space and compaction
//! credit.
//!
//! Rate limit of compactions: while compactions of an index with `RUNS_PACED` runs or more are
//! under way, ingest is limited to their rate (`pace`).
//! Memory: there are at most three generations. While two sealed ones wait, ingest is limited to
//! the rate of a flush: an operation waits as long as flushes took for as many bytes. (Before the
//! first flush it is delayed by 1 ms at most.) Beyond a part of the active generation it waits
//! until as much of the oldest one is flushed.
//! Debt: once an index has `RUNS_TRIGGER` runs, ingest spends credit, which compactions of such
//! indexes issue as they proceed. A compaction that removes k runs pays for 0.9 k generations;
//! credit that had no room earlier is paid with its remaining bytes. So a wait lasts as long as the
//! compaction of the operation's own share, and the work of a long compaction counts when it is
//! needed. Credit never exceeds the room below the limit before any compaction has ended. When debt
//! begins some credit is advanced; otherwise all inserts would stop until the first beat of a
//! compaction.

pub(crate) mod pace;

use crate::Runs;
use crate::memtable::Memtable;
use crate::state::{Index, RunsState};
use evenkeel_base::journal::Law;
use evenkeel_base::{Cause, Code, Error, Generation, IndexId, Lsn, Result, metrics::Metric};
use evenkeel_format::run::ENTRY_BYTES_MAX;
use evenkeel_io::{Cancellation, Event};
use evenkeel_sched::laws::depths::{RUNS_HELP, RUNS_TRIGGER};
use evenkeel_sched::laws::ingest::{self, ADVANCE_PART, Generations, Room, room_bytes};
use evenkeel_sched::{Admission, Tried};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// The queues for space, and their notifications.
#[derive(Default)]
pub(crate) struct SpaceQueues {
    /// Space or credit became available, or memory that index builds wait for.
    pub event: Arc<Event>,
    /// The queue for bytes of the active generation.
    pub room: Admission,
    pub credit: Admission,
}

impl SpaceQueues {
    /// Something became available.
    pub(crate) fn notify(&self) {
        self.event.notify();
        self.room.wake_first();
        self.credit.wake_first();
    }
}

/// Reserved memtable bytes; the unused rest is returned when this is dropped.
pub struct MemReserved {
    pub(crate) runs: Arc<Runs>,
    pub(crate) bytes: u64,
    wanted: u64,
    /// Its bytes are reserved in the active generation.
    has_room: bool,
    /// The price paid for it: credit, and time of the rate limiters of compactions and of flushes.
    credit: u64,
    line_ns: u64,
    flush_line_ns: u64,
}

impl MemReserved {
    /// Bytes still reserved.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }
}

impl Drop for MemReserved {
    fn drop(&mut self) {
        if self.bytes == 0 {
            return;
        }
        if self.has_room {
            self.runs.reserved.fetch_sub(self.bytes, Ordering::SeqCst);
        }
        let part =
            |paid: u64| (u128::from(paid) * u128::from(self.bytes)) / u128::from(self.wanted);
        self.runs.flush_line.give_back(part(self.flush_line_ns) as u64);
        self.runs.give_back(part(self.credit) as u64, part(self.line_ns) as u64);
    }
}

impl Runs {
    /// Reserves memtable bytes (sum of [`crate::entry_bytes`]). May delay or wait (G1), so the
    /// caller holds no latch.
    ///
    /// # Errors
    /// `WritesStopped` after a failed write; `EntryTooLong` beyond the size of a generation;
    /// `DiskFull` if flushes or compactions find no space.
    pub fn reserve(self: &Arc<Self>, bytes: usize) -> Result<MemReserved> {
        self.reserve_with(bytes, None)
    }

    /// As `reserve`, for a statement: a cancellation ends its waits.
    ///
    /// # Errors
    /// As `reserve`; `StatementCancelled`.
    pub fn reserve_cancellable(
        self: &Arc<Self>,
        bytes: usize,
        cancellation: &Cancellation,
    ) -> Result<MemReserved> {
        self.reserve_with(bytes, Some(cancellation))
    }

    fn reserve_with(
        self: &Arc<Self>,
        bytes: usize,
        cancellation: Option<&Cancellation>,
    ) -> Result<MemReserved> {
        let wanted = bytes as u64;
        if bytes > 64 * ENTRY_BYTES_MAX {
            return Err(Error::new(Code::EntryTooLong).with("bytes", bytes));
        }
        self.rt.check_write()?;
        let mut reserved = MemReserved {
            runs: self.clone(),
            bytes: wanted,
            wanted,
            has_room: false,
            credit: 0,
            line_ns: 0,
            flush_line_ns: 0,
        };
        reserved.line_ns = self.pace.line.pass(&self.rt, wanted, Cause::CompactionDebt);
        if self.in_debt.load(Ordering::Relaxed) {
            self.take_in_turn(Cause::CompactionDebt, wanted, cancellation, || {
                let spent = self.spend_credit(wanted);
                reserved.credit = spent.unwrap_or(0);
                spent.is_some()
            })?;
        }
        let mut room = Room::Full;
        self.take_in_turn(Cause::MemtableFull, wanted, cancellation, || {
            room = self.take_room(wanted);
            room != Room::Full
        })?;
        reserved.has_room = true;
        match room {
            Room::Tight(ns) => self.rt.delay(Duration::from_nanos(ns), Cause::MemtableFull),
            Room::RateLimiter => {
                let cause = Cause::MemtableFull;
                reserved.flush_line_ns = self.flush_line.pass(&self.rt, wanted, cause);
            }
            _ => {}
        }
        Ok(reserved)
    }

    /// Waits for flushes or compactions until `take` succeeds, unless nothing can help; first come,
    /// first served.
    fn take_in_turn(
        &self,
        cause: Cause,
        wanted: u64,
        cancellation: Option<&Cancellation>,
        mut take: impl FnMut() -> bool,
    ) -> Result<()> {
        let is_debt = cause == Cause::CompactionDebt;
        let queue = if is_debt { &self.space.credit } else { &self.space.room };
        let attempt = |is_first: bool| {
            if is_first && take() {
                return Ok(Tried::Admitted);
            }
            self.rt.check_wait()?;
            match self.compact_full.lock().clone() {
                Some((error, _)) if is_debt => Err(error),
                _ => Ok(Tried::Wait),
            }
        };
        queue.admit(wanted, attempt, |event, seen| {
            self.rt.wait_cancellable(event, seen, cause, cancellation)
        })
    }

    fn take_room(&self, wanted: u64) -> Room {
        let before = self.reserved.fetch_add(wanted, Ordering::SeqCst);
        let (active, count) = {
            let state = self.state.read();
            (state.memtables[0].clone(), state.memtables.len())
        };
        let seen = Generations {
            wanted,
            active: active.bytes(),
            reserved: before,
            count: count as u64,
            limit: self.generation_bytes(),
            flushed_permille: self.flushed_permille.load(Ordering::SeqCst),
            flush_ns_per_kib: self.flush_line.ns_per_kib(),
            ..Generations::default()
        };
        let room = ingest::room(&seen);
        match room {
            Room::Full => {
                self.reserved.fetch_sub(wanted, Ordering::SeqCst);
            }
            Room::HandOver if self.hand_over(&active) => {
                self.handovers.fetch_add(1, Ordering::Relaxed);
                self.ghosts().wake();
            }
            _ => {}
        }
        self.note_room(&seen, room);
        room
    }

    /// Hand-overs are all recorded, waits and delays only now and then.
    fn note_room(&self, seen: &Generations, room: Room) {
        let what = || (seen.numbers(), room.numbers());
        match room {
            Room::Taken => {}
            Room::HandOver | Room::HandOverForLog => {
                self.rt.journal.note(Law::Handover, self.now_ns(), what);
            }
            _ => self.rt.journal.note_some(Law::Handover, || self.now_ns(), what),
        }
    }

    /// Seals `active` and activates a new generation, unless another thread did so: true if it did.
    fn hand_over(&self, active: &Arc<Memtable>) -> bool {
        {
            let mut state = self.state.write();
            let state: &mut RunsState = &mut state;
            if !Arc::ptr_eq(&state.memtables[0], active) {
                return false;
            }
            active.seal();
            let number = Generation(active.number().0 + 1);
            let new = Arc::new(Memtable::new(number, self.flush_event.clone()));
            Arc::make_mut(&mut state.memtables).insert(0, new);
            self.changed(state);
        }
        self.fill.lock().handed_over(self.now_ns());
        self.flush_event.notify();
        true
    }

    /// Hands over a generation whose low LSN holds half of the log (B3). The checkpointer calls
    /// this as the log grows, so the hand-over happens also after the last insert.
    pub fn hand_over_old(&self) {
        let Some(log) = self.log.get() else { return };
        self.hand_over_before(Lsn(log.end().0.saturating_sub(log.capacity() / 2)));
    }

    /// Hands over the active generation if its low LSN is below a position that the checkpoint must
    /// reach. Sealed generations are being flushed; if there are as many as allowed, this one is
    /// handed over when one of them is done.
    pub fn hand_over_below(&self, lsn: Lsn) {
        if self.needed_lsn.fetch_max(lsn.0, Ordering::SeqCst) < lsn.0 {
            // A flush that rests may hold the checkpoint up.
            self.flush_event.notify();
        }
        self.hand_over_before(lsn);
    }

    /// Hands over the active generation if its low LSN is below a position that nothing waits for:
    /// its flush is not urgent. Not while another one is sealed, so that a new burst of inserts
    /// finds room.
    pub fn hand_over_at_rest(&self, lsn: Lsn) {
        if self.state.read().memtables.len() == 1 {
            self.hand_over_before(lsn);
        }
    }

    fn hand_over_before(&self, lsn: Lsn) {
        let (active, count) = {
            let state = self.state.read();
            (state.memtables[0].clone(), state.memtables.len())
        };
        let Some(low) = active.low_lsn() else { return };
        let seen = Generations {
            active: active.bytes(),
            count: count as u64,
            limit: self.generation_bytes(),
            low_lsn: low.0,
            needed_lsn: lsn.0,
            ..Generations::default()
        };
        if ingest::room(&seen) == Room::HandOverForLog {
            if self.hand_over(&active) {
                // This may be a third generation, in memory next to what is lent to a build.
                self.ghosts().wake();
            }
            self.note_room(&seen, Room::HandOverForLog);
        }
    }

    /// Hands over the active generation if it has entries: before a clean shutdown, and in tests.
    pub fn seal_active(&self) {
        let active = self.state.read().memtables[0].clone();
        if active.entries() > 0 {
            self.hand_over(&active);
        }
    }

    /// The credit spent, zero without debt; none if there is too little.
    fn spend_credit(&self, bytes: u64) -> Option<u64> {
        if !self.in_debt.load(Ordering::SeqCst) {
            return Some(0);
        }
        let spend = |credit: u64| ingest::spend(credit, bytes);
        let spent = self.credit.fetch_update(Ordering::SeqCst, Ordering::SeqCst, spend);
        let (Ok(before) | Err(before)) = spent;
        self.rt.journal.note_some(
            Law::Debt,
            || self.now_ns(),
            || {
                let left = ingest::spend(before, bytes);
                (vec![before, bytes], vec![u64::from(left.is_some()), left.unwrap_or(before)])
            },
        );
        spent.is_ok().then_some(bytes)
    }

    /// Credit at most while the deepest index has so many runs.
    fn credit_room(&self, state: &RunsState, runs: usize) -> u64 {
        let (sealed, active) = (state.memtables.len() - 1, state.memtables[0].bytes());
        room_bytes(runs, sealed, active, self.generation_bytes())
    }

    /// Returns the price of bytes that were not written, within the present room.
    fn give_back(&self, credit: u64, line_ns: u64) {
        self.pace.line.give_back(line_ns);
        if credit == 0 {
            return;
        }
        let more = {
            // Held across the change, because credit ends with the debt.
            let state = self.state.read();
            let Some(deepest) = state.deepest() else { return };
            let room = self.credit_room(&state, deepest);
            let more = |has: u64| (has < room).then(|| has.saturating_add(credit).min(room));
            self.credit.fetch_update(Ordering::SeqCst, Ordering::SeqCst, more)
        };
        if more.is_ok() {
            self.space.notify();
        }
    }

    /// Issues credit for a beat of a compaction of this index: `done` of the bytes that it had
    /// `left`, and `unpaid` for all of them. Returns the new unpaid amount.
    pub(crate) fn issue_credit(&self, index: IndexId, unpaid: u64, done: u64, left: u64) -> u64 {
        let debtors = self.debtors.load(Ordering::SeqCst);
        if debtors == 0 {
            return unpaid;
        }
        // Held until the credit is issued: it fits the room in the present view, and none is left
        // over once no index is in debt.
        let state = self.state.read();
        let depth = state.indexes.get(&index).map_or(0, Index::depth);
        if depth < RUNS_TRIGGER {
            return unpaid;
        }
        let room = self.credit_room(&state, state.deepest().unwrap_or(depth));
        let pays = |before| ingest::credit(unpaid, done, left, debtors, room, before);
        let new = |before: u64| Some(before + pays(before).credit);
        // Several threads compact; the sum of their credit also stays below the limit.
        let issued = self.credit.fetch_update(Ordering::SeqCst, Ordering::SeqCst, new);
        let (Ok(before) | Err(before)) = issued;
        drop(state);
        let paid = pays(before);
        self.rt.journal.note(Law::Credit, self.now_ns(), || {
            (vec![unpaid, done, left, debtors, room, before], vec![paid.credit, paid.unpaid])
        });
        self.space.notify();
        paid.unpaid
    }

    /// Debt begins (state lock held): advances credit until the first beats of compactions pay,
    /// which may take a while if many indexes are in debt.
    fn advance_credit(&self, state: &RunsState, debtors: u64) {
        let room = self.credit_room(state, state.deepest().unwrap_or(0));
        let advance = self.generation_bytes() / ADVANCE_PART * debtors;
        let paid = ingest::credit(advance, 1, 1, debtors, room, 0);
        self.rt.journal.note(Law::Credit, self.now_ns(), || {
            (vec![advance, 1, 1, debtors, room, 0], vec![paid.credit, paid.unpaid])
        });
        // Credit issued while no index was in debt is not added to.
        self.credit.fetch_max(paid.credit, Ordering::SeqCst);
    }

    /// The view changed (state lock held): a new version, which no idle cursor view keeps back
    /// (D6). Also determines whether ingest needs credit.
    pub(crate) fn changed(&self, state: &RunsState) {
        self.version.fetch_add(1, Ordering::SeqCst);
        self.rt.metrics.add(Metric::IdleCursorViewsTaken, self.parked.clear());
        // Two generations are the memtables' own share; a third uses memory of run blocks.
        let beyond = state.memtables.len().saturating_sub(2) as u64 * self.generation_bytes();
        self.lent_memtables.store(beyond, Ordering::Relaxed);
        self.set_cache();
        self.filter_cache.set_slices(state.warm_bytes);
        let debtors = state.deep.len() as u64;
        self.debtors.store(debtors, Ordering::SeqCst);
        if debtors == 0 {
            self.credit.store(0, Ordering::SeqCst);
        }
        if debtors > 0 && !self.in_debt.load(Ordering::SeqCst) {
            self.advance_credit(state, debtors);
        }
        self.in_debt.store(debtors > 0, Ordering::SeqCst);
        let depths = state.high.iter().filter_map(|id| state.indexes.get(id)).map(Index::depth);
        let is_high = depths.max().unwrap_or(0) >= RUNS_HELP;
        if !self.is_help_wanted.swap(is_high, Ordering::SeqCst) && is_high {
            self.help_event.notify();
        }
        self.set_pace(state);
    }

    /// A compaction cannot continue (a damaged run): ingest must not wait for it.
    pub(crate) fn forgive_debt(&self) {
        self.credit.store(u64::MAX / 2, Ordering::SeqCst);
        self.space.notify();
    }
}
