//! Compaction of runs (D3): jobs in beats of at most 1 MiB, one job per range of neighbouring runs.
//! A job installs its output in pieces of one file: one manifest record names the file and trims
//! the inputs to what lies above it. A crash keeps the finished pieces, and a compaction needs the
//! space of one piece only. A file without a record is an orphan, which a restart removes.

pub(crate) mod candidates;
mod install;
mod job;
mod jobs;
mod together;
mod trivial_move;
pub(crate) mod version_filter;

pub(crate) use job::{CompactionJob, READ_AHEAD};
pub use jobs::CompactionFigures;
pub(crate) use jobs::{CompactionJobs, Owing};
pub(crate) use together::Together;

use crate::Runs;
use crate::compaction::version_filter::Rules;
use crate::run::damage::READ_TRIES;
use crate::run::file::Run;
use crate::state::{Index, READ, RunsState};
use evenkeel_base::journal::Law;
use evenkeel_base::{Beat, Code, Error, Generation, IndexId, Kind, Lsn, Result, metrics::Metric};
use evenkeel_sched::Class;
use evenkeel_sched::laws::compaction::{
    CompactionTurn, FREES_NOTHING, Facts, Rest, Spare, bytes_per_run, choose, next_rest, numbers,
    spare_beside, turn_numbers,
};
use evenkeel_sched::laws::depths::TIER_RUNS_SHORT;
use job::{JobStep, Order};
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use together::SLICES_MAX;

/// A run is cut into files of about this size, or of a few generations if those are small.
pub(crate) const SEGMENT_BYTES: u64 = 48 << 20;
const SEGMENT_GENERATIONS: u64 = 4;
const SEGMENT_BYTES_LEAST: u64 = 64 << 10;
/// Bounds of a piece on a full disk, 1/16 of a generation.
const PIECE_BYTES_FULL: (u64, u64) = (32 << 10, 1 << 20);
/// The rate of ingest is measured over at least this time.
const INGEST_WINDOW_NS: u64 = 1_000_000_000;
/// A compaction at rest waits this long for a seat before it looks whether a required one exists.
const SEAT_WAIT: Duration = Duration::from_millis(1);
/// The least charge of an entry in a memtable.
const ENTRY_BYTES_LEAST: u64 = 32;
/// How often in one beat others are chosen instead of those that snapshots hold back.
const HELD_ROUNDS: usize = 16;

/// How much may be compacted beyond the needs of ingest.
#[derive(Clone, Copy, PartialEq)]
pub(crate) struct CompactionMode {
    spare: Spare,
    /// Space is short: compactions at rest wait until there is space.
    is_short: bool,
    /// A compaction has found the disk full.
    is_full: bool,
}

impl CompactionMode {
    /// What the picker is asked for, in this order.
    fn rests(self, index: &Index) -> &'static [Rest] {
        let may_rest = match self.spare {
            Spare::None => false,
            Spare::Read => index.is(READ),
            Spare::All => true,
        };
        match (self.is_short, may_rest, self.is_full) {
            (true, ..) => &[Rest::Freeing],
            (_, false, _) => &[Rest::No],
            (_, _, true) => &[Rest::Freeing, Rest::Yes, Rest::Dead],
            _ => &[Rest::Yes, Rest::Dead],
        }
    }

    /// A run of the index is left in its file, and the picker may choose the index.
    fn wants_cold(self, index: &Index) -> bool {
        let rests = self.rests(index);
        index.cold.is_some()
            && match index.count() {
                1 => rests.contains(&Rest::Freeing),
                runs => *rests != [Rest::No] || runs >= TIER_RUNS_SHORT,
            }
    }
}

/// A compaction at rest that is wanted.
struct Wish {
    turn: CompactionTurn,
    id: IndexId,
    range: Range<usize>,
    rest: Rest,
}

/// The rate at which entries arrive.
#[derive(Default)]
pub(crate) struct Ingest {
    entries: u64,
    at_ns: u64,
    spare: Option<Spare>,
}

impl Runs {
    /// One step of compaction.
    ///
    /// # Errors
    /// Of reading and writing; a failed write latches `health`, a full disk does not.
    pub fn compaction_beat(&self) -> Result<Beat> {
        if self.rt.health.is_failed() {
            return Ok(Beat::Idle);
        }
        self.remove_doomed();
        self.compaction_step(self.spare())
    }

    /// Compacts every index to rest, whatever else is going on.
    ///
    /// # Errors
    /// As `compaction_beat`.
    pub fn compact_to_rest(&self) -> Result<()> {
        while self.compaction_step(Spare::All)? == Beat::More {
            self.rt.step();
        }
        self.remove_doomed();
        Ok(())
    }

    /// How long an idle compaction thread may wait for its event before the next beat; `None`:
    /// forever.
    pub fn next_compaction_in(&self) -> Option<Duration> {
        let doomed = |state: &RunsState| !state.doomed.is_empty() || !state.doomed_bytes.is_empty();
        let waits = |state: &RunsState| doomed(state) || state.due.has_held();
        let more = waits(&self.state.read()) || self.is_rest_wanted();
        more.then_some(Duration::from_nanos(INGEST_WINDOW_NS))
    }

    /// True if some index is not at rest and none of its runs is being compacted.
    fn is_rest_wanted(&self) -> bool {
        let state = self.state.read();
        let is_free = |id: &IndexId| !state.merging.contains_key(id) && !state.due.is_held(*id);
        state.due.unrest.iter().any(is_free)
    }

    /// How much may be compacted beyond the needs of ingest, by the ingest of the last second.
    fn spare(&self) -> Spare {
        let now = self.now_ns();
        let entries = self.rt.metrics.get(Metric::MemtableEntries);
        let mut ingest = self.ingest.lock();
        let ns = now.saturating_sub(ingest.at_ns);
        if ns >= INGEST_WINDOW_NS {
            let new = entries - ingest.entries;
            let average = {
                let active = self.state.read().memtables[0].clone();
                (active.bytes() / active.entries().max(1)).max(ENTRY_BYTES_LEAST)
            };
            let rate = u128::from(new * average) * 1_000_000_000 / u128::from(ns);
            ingest.spare = Some(spare_beside(rate as u64, self.generation_bytes()));
            (ingest.entries, ingest.at_ns) = (entries, now);
        }
        ingest.spare.unwrap_or(Spare::None)
    }

    pub(crate) fn compaction_step(&self, spare: Spare) -> Result<Beat> {
        let mut seat = self.sched.try_seat();
        // Runs of a compaction that waits for a seat would be missing where ingest needs one.
        if !self.are_together_waiting() {
            self.begin_compactions(if seat.is_some() { spare } else { Spare::None });
        }
        if self.together_beat(seat.is_some())? {
            return Ok(Beat::More);
        }
        let owing = self.state.read().owing();
        let told = |jobs: &[CompactionTurn], at| self.note_turn(jobs, seat.is_none(), at);
        let job = self.compaction_jobs.lock().take(seat.is_none(), &owing, told);
        let must_wait = match &job {
            Some(job) => !job.purpose.required,
            None => self.are_together_waiting() || (spare != Spare::None && self.is_rest_wanted()),
        };
        if must_wait && seat.is_none() {
            if let Some(job) = job {
                self.put_back(job);
            }
            // If it comes in time it is let go again: the beat begins anew.
            drop(self.sched.seat_for(SEAT_WAIT));
            return Ok(Beat::More);
        }
        let Some(job) = job else { return Ok(Beat::Idle) };
        if job.purpose.required {
            seat = None;
        }
        let _seat = seat;
        self.job_beat(job).0
    }

    /// True if compactions that ingest needs are under way, in any thread.
    pub fn are_compactions_needed(&self) -> bool {
        self.compaction_jobs.lock().is_needed()
    }

    /// A beat of a compaction that ingest needs and that no other thread works on. The thread of
    /// `compaction_beat` begins compactions, and any number of threads may help it. `Idle`: none
    /// waits.
    ///
    /// # Errors
    /// As `compaction_beat`.
    pub fn compaction_help_beat(&self) -> Result<Beat> {
        if self.rt.health.is_failed() {
            return Ok(Beat::Idle);
        }
        // On a full disk one thread is enough, and only that thread knows when there is space
        // again.
        let is_wanted = self.is_help_wanted.load(Ordering::SeqCst) && !self.is_full();
        let taken = {
            let owing = self.state.read().owing();
            let mut jobs = self.compaction_jobs.lock();
            match is_wanted {
                true => jobs
                    .take_required(&owing, |jobs, at| self.note_turn(jobs, true, at))
                    .ok_or(false),
                false => Err(jobs.is_one_needed_waiting()),
            }
        };
        match taken {
            Ok(job) => {
                let (index, (done, has_ended)) = (job.index, self.job_beat(job));
                if has_ended {
                    // The thread that begins compactions may have looked while this one counted as
                    // under way.
                    self.state.write().due.ask(index);
                    self.compaction_event.notify();
                }
                done
            }
            Err(waits) => {
                // The other thread may sleep because this one had the job.
                if waits {
                    self.compaction_event.notify();
                }
                Ok(Beat::Idle)
            }
        }
    }

    fn note_turn(&self, jobs: &[CompactionTurn], only_required: bool, at: usize) {
        let what = || (turn_numbers(jobs, only_required), vec![at as u64]);
        self.rt.journal.note_some(Law::CompactionTurn, || self.now_ns(), what);
    }

    /// The compactions under way, except those of small indexes that are compacted together.
    pub fn compactions_under_way(&self) -> Vec<CompactionFigures> {
        self.compaction_jobs.lock().figures()
    }

    fn put_back(&self, job: CompactionJob) {
        let mut jobs = self.compaction_jobs.lock();
        jobs.rested(job.start.run);
        jobs.put(job);
    }

    /// Runs a beat of a waiting compaction, and returns whether it has ended.
    fn job_beat(&self, job: CompactionJob) -> (Result<Beat>, bool) {
        let run = job.start.run;
        let (done, has_ended) = self.job_step(job);
        self.beat_over(run, has_ended);
        (done, has_ended)
    }

    /// After the job was put back another thread may work on it, so this thread no longer owns its
    /// entry.
    pub(crate) fn beat_over(&self, run: u64, has_ended: bool) {
        if !has_ended {
            return;
        }
        {
            let mut jobs = self.compaction_jobs.lock();
            jobs.rested(run);
            if !jobs.is_needed() {
                self.pace.rests();
            }
        }
        self.set_pace(&self.state.read());
    }

    /// Runs a step and puts the job back unless it has ended; returns whether it has.
    pub(crate) fn job_step(&self, mut job: CompactionJob) -> (Result<Beat>, bool) {
        if self.is_gone(&job) || self.takes_space(&job) {
            self.give_up(job);
            return (Ok(Beat::More), true);
        }
        let before = job.left;
        let (index, unpaid) = (job.index, job.unpaid);
        let (is_required, start) = (job.purpose.required, self.now_ns());
        self.sched.take_paused();
        let done = self.compact_on(&mut job);
        if is_required {
            let is_done = matches!(done, Ok(Beat::Idle)) && !self.is_gone(&job);
            let bytes = if is_done { before } else { before - job.left };
            let at_once = self.sched.at_once(Class::Compaction, READ_AHEAD as u64, true);
            let is_held = self.sched.take_paused() || at_once < READ_AHEAD as u64;
            if self.pace.merged(bytes, start, self.now_ns(), is_held) {
                self.set_pace(&self.state.read());
            }
        }
        match done {
            Ok(Beat::More) if job.is_barren() => {
                self.barren.lock().insert(index);
                self.give_up(job);
            }
            Ok(Beat::More) => {
                job.unpaid = self.issue_credit(index, unpaid, before - job.left, before);
                self.put_back(job);
                return (Ok(Beat::More), false);
            }
            Ok(Beat::Idle) => {
                self.read_failures.lock().remove(&index);
                self.issue_credit(index, unpaid, before, before);
                self.found_space();
            }
            Err(error) => return (self.compaction_failed(job, error), true),
        }
        (Ok(Beat::More), true)
    }

    /// A compaction has ended, so there is space. Helping threads sleep while there is none.
    fn found_space(&self) {
        if self.compact_full.lock().take().is_some() {
            self.help_event.notify();
        }
    }

    fn compaction_failed(&self, job: CompactionJob, error: Error) -> Result<Beat> {
        if error.code().is_shortage() || error.code() == Code::LogFull {
            let needed = job.purpose.required || job.frees;
            self.give_up(job);
            // Ingest must not wait for a compaction that finds no space.
            *self.compact_full.lock() = Some((error.clone(), needed));
            self.space.notify();
            return Err(error);
        }
        if error.kind() == Kind::Corrupt {
            // A damaged input: the installed pieces stay, and others continue.
            self.ruin(job.index, &error);
            self.give_up(job);
            return Ok(Beat::More);
        }
        if error.code() == Code::ReadFailed && self.may_read_again(job.index) {
            log::warn!("index {} is merged anew: {error}", job.index);
            self.give_up(job);
            return Ok(Beat::More);
        }
        if !job.is_read() && !job.purpose.required {
            // Nothing is written yet and nothing waits for the job.
            self.give_up(job);
            return Err(error);
        }
        self.forgive_debt();
        let error = self.write_failed(error);
        // A record that names the files may be durable although its sync failed.
        if !self.rt.health.is_failed() {
            self.remove_files(job.abandon());
        }
        Err(error)
    }

    /// A read of its compactions has failed: a single failure of a device must not stop writes for
    /// good.
    fn may_read_again(&self, index: IndexId) -> bool {
        let mut failures = self.read_failures.lock();
        let failures = failures.entry(index).or_default();
        *failures += 1;
        *failures < READ_TRIES
    }

    /// Compacts for a beat and installs a piece that ends with it; `Idle` at the end of the job.
    fn compact_on(&self, job: &mut CompactionJob) -> Result<Beat> {
        let to = match self.compact_some(job)? {
            JobStep::More => return Ok(Beat::More),
            JobStep::Piece(to) => Some(to),
            JobStep::End => None,
        };
        let is_there = self.install_piece(job, to.as_deref())?;
        match to.filter(|_| is_there) {
            Some(to) => self.go_on_at(job, &to).map(|()| Beat::More),
            None => Ok(Beat::Idle),
        }
    }

    fn is_gone(&self, job: &CompactionJob) -> bool {
        !self.state.read().indexes.contains_key(&job.index)
    }

    /// True if space is short and nothing needs the compaction.
    fn takes_space(&self, job: &CompactionJob) -> bool {
        self.is_short.load(Ordering::SeqCst) && !job.purpose.required && !job.frees
    }

    fn give_up(&self, job: CompactionJob) {
        self.rt.metrics.add(Metric::CompactionsAbandoned, 1);
        let (index, numbers) = (job.index, job.numbers.clone());
        self.remove_files(job.abandon());
        let mut state = self.state.write();
        state.end_merging(index, &numbers);
        self.changed(&state);
    }

    pub(crate) fn remove_files(&self, numbers: Vec<u64>) {
        for number in numbers {
            let path = crate::run::file::path(number);
            if let Err(error) = self.rt.remove_file(&path) {
                log::warn!("{path}: cannot be removed, goes at the next start: {error}");
            }
        }
    }

    /// The picker's choices, marked as being compacted: all that ingest needs, and of compactions
    /// at rest the first (D4) if it precedes those under way, together with others if its index is
    /// small. Only indexes that have changed are examined (`due`). With `warms`, indexes of which a
    /// run has to be read first are returned instead, as many as are compacted together; without
    /// it, they are examined later.
    fn choose_orders(&self, spare: Spare, horizon: Lsn, warms: bool) -> (Vec<Order>, Vec<IndexId>) {
        let now = self.now_ns();
        let (under_way, jobs) = {
            let jobs = self.compaction_jobs.lock();
            (jobs.freeing(), jobs.turns())
        };
        let (mut chosen, mut to_rest) = (Vec::new(), Vec::new());
        let (mode, small_bytes) = (self.mode(spare), self.small_bytes());
        let mut state = self.state.write();
        let RunsState { indexes, merging, due, .. } = &mut *state;
        std::mem::take(&mut *self.read_lately.lock()).into_iter().for_each(|id| due.ask(id));
        let rests = jobs.iter().any(|job| !job.required);
        let ids = due.take(mode, horizon, rests);
        // Next to a compaction at rest others wait for room; compactions that ingest may need do
        // not.
        let has_room = !rests || self.filter_cache.has_room_for_slices();
        let is_read = |i: &Index| mode.wants_cold(i) && (has_room || i.count() >= TIER_RUNS_SHORT);
        let is_cold = |id: &&IndexId| warms && indexes.get(id).is_some_and(is_read);
        let cold: Vec<IndexId> = ids.iter().filter(is_cold).take(SLICES_MAX).copied().collect();
        if !cold.is_empty() {
            // These are examined when their runs are in memory, together with the others.
            due.ask_all(ids);
            return (Vec::new(), cold);
        }
        let mut later = Vec::new();
        for id in ids {
            #[cfg(test)]
            self.asked.fetch_add(1, Ordering::Relaxed);
            let Some(index) = indexes.get(&id).filter(|_| !self.is_barren(id)) else { continue };
            if index.cold.is_some() {
                later.extend(mode.wants_cold(index).then_some(id));
                continue;
            }
            let modes = mode.rests(index);
            let mut busy = merging.remove(&id).unwrap_or_default();
            let mut freeing = under_way.get(&id).copied().unwrap_or(FREES_NOTHING);
            loop {
                let runs = facts(index, &busy);
                let choose = |mode: &Rest| choose(&runs, *mode, freeing).map(|c| (c, *mode));
                let Some(((range, required), rest)) = modes.iter().find_map(choose) else { break };
                if !required {
                    due.want(id);
                    let turn = turn_to_rest(&index.runs[range.clone()], rest);
                    to_rest.push(Wish { turn, id, range, rest });
                    break;
                }
                // Choices under ingest keep the number of runs inside the limit (G2).
                self.note_choice(now, &runs, rest, freeing, &range, true);
                let bytes = runs[range.clone()].iter().map(|r| r.bytes).sum();
                freeing = freeing.min(bytes_per_run(bytes, range.len()));
                let order = order(id, index, range, small_bytes);
                busy.extend(order.numbers());
                chosen.push(order);
            }
            if !busy.is_empty() {
                merging.insert(id, busy);
            }
        }
        due.ask_all(later);
        let first = next_rest(to_rest.iter().map(|wish| wish.turn), jobs.into_iter());
        chosen.extend(self.choose_rests(&mut state, to_rest, first, (now, &under_way)));
        for order in &chosen {
            if let Some(index) = state.indexes.get(&order.index) {
                index.take(READ);
            }
        }
        (chosen, Vec::new())
    }

    /// The `first` of the wanted compactions at rest and, if its index is small, others.
    fn choose_rests(
        &self,
        state: &mut RunsState,
        mut wishes: Vec<Wish>,
        first: Option<usize>,
        (now, under_way): (u64, &BTreeMap<IndexId, u64>),
    ) -> Vec<Order> {
        let small_bytes = self.small_bytes();
        let RunsState { indexes, merging, .. } = state;
        let mut begun: Vec<Wish> = first.map(|i| wishes.swap_remove(i)).into_iter().collect();
        let is_small = |wish: &Wish| indexes.get(&wish.id).is_some_and(|i| i.bytes() < small_bytes);
        if begun.first().is_some_and(is_small) {
            wishes.retain(is_small);
            wishes.sort_by(|a, b| a.turn.order(&b.turn));
            begun.extend(wishes.drain(..wishes.len().min(SLICES_MAX - 1)));
        }
        let mut chosen = Vec::new();
        for Wish { turn, id, range, rest } in begun {
            let Some(index) = indexes.get(&id) else { continue };
            let freeing = under_way.get(&id).copied().unwrap_or(FREES_NOTHING);
            self.note_choice(now, &facts(index, &[]), rest, freeing, &range, false);
            let (gain, frees) = (turn.gain, rest == Rest::Freeing);
            let order = order(id, index, range, small_bytes);
            let order = Order { required: false, gain, frees, ..order };
            merging.insert(id, order.numbers());
            chosen.push(order);
        }
        chosen
    }

    /// How much may be compacted now.
    fn mode(&self, spare: Spare) -> CompactionMode {
        let is_short = self.is_short.load(Ordering::SeqCst);
        CompactionMode { spare, is_short, is_full: self.compact_full.lock().is_some() }
    }

    /// True if the order would compact a single run and free nothing, because its garbage may still
    /// be needed. Called without the lock of the state: a thread that forgets outcomes calls
    /// `is_pending`.
    fn is_held(&self, order: &Order) -> bool {
        let [run] = &order.inputs[..] else { return false };
        let mut pending = run.segments.iter().flat_map(|s| &s.info.pending);
        self.commits().snapshot_between(Lsn::ZERO, run.settled)
            || pending.any(|txn| self.commits().state(*txn).is_undecided())
    }

    /// These orders wait until their garbage is no longer needed.
    fn hold(&self, orders: Vec<Order>) {
        if orders.is_empty() {
            return;
        }
        let mut state = self.state.write();
        for order in orders {
            state.end_merging(order.index, &order.numbers());
            state.due.hold(order.index);
            if let Some(index) = state.indexes.get(&order.index) {
                index.set(READ);
            }
        }
    }

    /// True if compacting it frees nothing: it is left alone while space is short.
    fn is_barren(&self, index: IndexId) -> bool {
        self.is_short.load(Ordering::SeqCst) && self.barren.lock().contains(&index)
    }

    fn note_choice(
        &self,
        now: u64,
        runs: &[Facts],
        mode: Rest,
        freeing: u64,
        range: &Range<usize>,
        required: bool,
    ) {
        let said = [range.start as u64, range.end as u64, u64::from(required)];
        self.rt
            .journal
            .note(Law::Compaction, now, || (numbers(runs, mode, freeing), said.to_vec()));
    }

    /// Starts jobs where the picker wants one.
    fn begin_compactions(&self, spare: Spare) {
        // Read once: while it advances, indexes that it holds back would be examined without end.
        let horizon = self.commits().horizon();
        let (mut orders, cold) = self.choose_orders(spare, horizon, true);
        let has_warmed = !cold.is_empty();
        if has_warmed {
            self.warm_all(cold);
            (orders, _) = self.choose_orders(spare, horizon, false);
        }
        let mut rounds = HELD_ROUNDS;
        let orders = loop {
            let (free, held): (Vec<Order>, Vec<Order>) =
                orders.into_iter().partition(|order| !self.is_held(order));
            let is_done = held.is_empty() || !free.is_empty() || rounds == 0;
            self.hold(held);
            if is_done {
                break free;
            }
            rounds -= 1;
            (orders, _) = self.choose_orders(spare, horizon, false);
        };
        self.begin_jobs(self.take_together(orders));
        if has_warmed {
            self.cool_down();
        }
    }

    /// Starts the jobs of the chosen compactions.
    fn begin_jobs(&self, orders: Vec<Order>) {
        let is_needed = orders.iter().any(|order| order.required);
        orders.into_iter().for_each(|order| self.begin_job(order));
        if is_needed {
            // The runs for which they are needed existed before, so no other event updates the rate
            // limit.
            self.set_pace(&self.state.read());
        }
    }

    fn begin_job(&self, order: Order) {
        let job = self.begin_compaction(order);
        {
            let mut state = self.state.write();
            if let Some(merging) = state.merging.get_mut(&job.index) {
                merging.push(job.start.run);
            }
        }
        let are_several = {
            let mut jobs = self.compaction_jobs.lock();
            jobs.put(job);
            jobs.are_several_needed()
        };
        if are_several && self.is_help_wanted.load(Ordering::SeqCst) && !self.is_full() {
            self.help_event.notify();
        }
    }

    /// Sets whether space is so short that the ballast was released: compactions at rest then wait
    /// until it is back, except those that free space (G4).
    pub fn set_short(&self, is_short: bool) {
        self.is_short.store(is_short, Ordering::SeqCst);
        if !is_short {
            self.barren.lock().clear();
        }
        self.compaction_event.notify();
        self.help_event.notify();
    }

    /// True if a compaction that ingest needs, or one that frees space, has found the disk full: it
    /// may use the ballast (G4).
    pub fn needs_space(&self) -> bool {
        self.compact_full.lock().as_ref().is_some_and(|(_, required)| *required)
    }

    /// Bytes of a piece: on a full disk small ones, several of which fit the ballast.
    pub(crate) fn piece_bytes(&self) -> u64 {
        let small = (self.generation_bytes() / 16).clamp(PIECE_BYTES_FULL.0, PIECE_BYTES_FULL.1);
        self.segment_bytes().min(if self.is_full() { small } else { u64::MAX })
    }

    /// Bytes of a file of a compacted run.
    pub(crate) fn segment_bytes(&self) -> u64 {
        #[cfg(test)]
        if let set @ 1.. = self.segment_bytes_set.load(Ordering::Relaxed) {
            return set;
        }
        let generations = self.generation_bytes().saturating_mul(SEGMENT_GENERATIONS);
        generations.clamp(SEGMENT_BYTES_LEAST, SEGMENT_BYTES)
    }
}

/// The turn of a compaction at rest of these runs.
fn turn_to_rest(runs: &[Arc<Run>], mode: Rest) -> CompactionTurn {
    let gain = |run: &Arc<Run>| match mode {
        Rest::Freeing => run.garbage(),
        _ => run.skipped(),
    };
    let left = runs.iter().map(|run| run.bytes).sum();
    CompactionTurn { left, gain: runs.iter().map(gain).sum(), ..CompactionTurn::default() }
}

/// The order of a compaction that ingest needs, for some runs of an index.
fn order(id: IndexId, index: &Index, range: Range<usize>, small_bytes: u64) -> Order {
    let rules = Rules {
        building: index.building,
        valid_from: index.valid_from,
        bottom: range.end == index.runs.len(),
        horizon: Lsn::ZERO,
    };
    let (inputs, unique_key) = (index.runs[range].to_vec(), index.unique_key);
    let gain = inputs.iter().map(|run| run.skipped()).sum();
    let small = index.bytes() < small_bytes;
    Order { index: id, inputs, rules, unique_key, required: true, gain, frees: false, small }
}

/// The picker's input for the runs of an index.
fn facts(index: &Index, merging: &[u64]) -> Vec<Facts> {
    let mut facts: Vec<Facts> = Vec::with_capacity(index.runs.len());
    // The output of an interrupted compaction has the ages of all its inputs.
    let mut cut = Generation(1)..=Generation::ZERO;
    for run in &*index.runs {
        // Runs of a build have no age.
        let low = run.age_low.max(Generation(1));
        let is_left = cut.contains(&run.age_high) && cut.contains(&low);
        if !is_left {
            cut = low..=run.age_high;
        }
        facts.push(Facts {
            bytes: run.bytes,
            garbage: run.garbage(),
            busy: merging.contains(&run.number),
            growing: run.growing,
            left: is_left,
        });
    }
    facts
}
