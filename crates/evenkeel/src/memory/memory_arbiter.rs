//! The actor that moves memory between page frames, run blocks and memtables as the law of
//! [`crate::memory_law`] says. It sleeps until a cache is full or has missed enough recently
//! evicted entries, a generation becomes full, or a build borrows or gives back: an idle database
//! has no wake-ups.
//!
//! Invariants: a part gives memory up before another gets it, so together they never use more than
//! `memory_size`. A pool in use shrinks as its frames become free, and the freed memory is passed
//! on step by step. A new `memory_size` is divided in the present proportions, so memory
//! that is lent stays lent.

use crate::memory::memory_budget::{self, MemoryBudget};
use crate::memory::memory_law::{Division, Lendable, NAMES_PER_WAKE, Seen};
use evenkeel_base::{Beat, Result, metrics::Metric, sync::Mutex};
use evenkeel_io::{Event, Runtime};
use evenkeel_pages::Pages;
use evenkeel_runs::{Runs, RunsOptions};
use std::sync::Arc;
use std::time::Duration;

/// While a pool gives frames back, their memory is passed on at this interval.
const SHRINK_REST: Duration = Duration::from_millis(10);
/// With more memory than this the heap is not trimmed: its free part matters less there, and
/// trimming would take longer.
const TRIM_BYTES_MAX: u64 = 512 << 20;
/// Memory that a run block takes, about; the number of ghost names is derived from it.
const BLOCK_BYTES: u64 = 8 << 10;

/// Moves memory. One per open database.
pub(crate) struct MemoryArbiter {
    rt: Arc<Runtime>,
    pages: Arc<Pages>,
    runs: Arc<Runs>,
    event: Arc<Event>,
    state: Mutex<State>,
    /// Shares may be lent; else they stay as they are.
    lends: bool,
}

struct State {
    lendable: Lendable,
    target: Division,
    /// The size that the pool was last told, bytes of pages.
    pool_bytes: u64,
    /// The target is reached: no frame holds memory that is meant for others.
    is_reached: bool,
    /// Observations not acted on yet.
    seen: Seen,
    full_generations: u64,
    lent_to_builds: u64,
    /// Pages evicted since blocks last wanted room; the maximum if blocks never wanted any.
    idle_pages: u64,
    /// A cache wanted more memory than there is, since `take_wants`.
    wants: bool,
}

impl MemoryArbiter {
    /// Watches misses if the shares may be lent. The shares are in force already, divided as
    /// `division` says.
    ///
    /// # Errors
    /// `PoolTooSmall`.
    pub(crate) fn new(
        rt: &Arc<Runtime>,
        pages: &Arc<Pages>,
        runs: &Arc<Runs>,
        shares: &MemoryBudget,
        division: Division,
    ) -> Result<Arc<MemoryArbiter>> {
        let lendable = shares.lendable(pages.bytes_min() as u64);
        let state = State {
            lendable,
            target: division,
            pool_bytes: memory_budget::pool_bytes(division.frames),
            is_reached: true,
            seen: Seen::default(),
            full_generations: runs.full_generations(),
            lent_to_builds: 0,
            idle_pages: u64::MAX,
            wants: false,
        };
        let lending = Arc::new(MemoryArbiter {
            rt: rt.clone(),
            pages: pages.clone(),
            runs: runs.clone(),
            event: Arc::new(Event::new()),
            state: Mutex::new(state),
            lends: shares.lends,
        });
        lending.watch();
        lending.bring_about(&mut lending.state.lock())?;
        Ok(lending)
    }

    fn watch(&self) {
        if !self.lends {
            return;
        }
        let lendable = self.state.lock().lendable;
        let page = self.pages.page_size() as u64;
        let frames_most = (lendable.total / page) as usize;
        let hits = lendable.step / page / NAMES_PER_WAKE;
        self.pages.ghosts().watch(frames_most, hits, self.event.clone());
        let blocks_most = (lendable.total / BLOCK_BYTES) as usize;
        self.runs.ghosts().watch(blocks_most, hits, self.event.clone());
        self.state.lock().seen.hits_per_step = hits;
    }

    /// Divides memory after a change of `memory_size`.
    ///
    /// # Errors
    /// `PoolTooSmall`.
    pub(crate) fn set(&self, shares: &MemoryBudget) -> Result<()> {
        self.runs.set_resident_bytes(shares.resident_bytes);
        {
            let mut state = self.state.lock();
            state.lendable = shares.lendable(self.pages.bytes_min() as u64);
            state.target = match self.lends {
                true => state.lendable.in_proportion(state.target),
                false => state.lendable.base,
            };
            state.seen = Seen::default();
            self.bring_about(&mut state)?;
        }
        self.watch();
        self.event.notify();
        Ok(())
    }

    /// What wakes the actor.
    pub(crate) fn event(&self) -> Arc<Event> {
        self.event.clone()
    }

    /// The actor sleeps at most this long while a pool gives frames back.
    pub(crate) fn rest(&self) -> Option<Duration> {
        (!self.state.lock().is_reached).then_some(SHRINK_REST)
    }

    /// Whether a cache wanted more memory than there is, since the last call.
    pub(crate) fn take_wants(&self) -> bool {
        std::mem::take(&mut self.state.lock().wants)
    }

    /// Evaluates the misses and moves memory once.
    ///
    /// # Errors
    /// `PoolTooSmall`.
    pub(crate) fn beat(&self) -> Result<Beat> {
        let mut state = self.state.lock();
        let state = &mut *state;
        let full = self.runs.full_generations();
        let lent = self.runs.lent_to_builds();
        let lent_before = std::mem::replace(&mut state.lent_to_builds, lent);
        let seen = &mut state.seen;
        seen.frame_hits += self.pages.ghosts().take_hits();
        seen.block_hits += self.runs.ghosts().take_hits();
        let left = self.pages.ghosts().take_wants();
        seen.frames_are_full = left > 0;
        seen.blocks_want = self.runs.ghosts().take_wants() > 0;
        state.idle_pages = match seen.blocks_want {
            true => 0,
            false => state.idle_pages.saturating_add(left),
        };
        let frames = state.pool_bytes / self.pages.page_size() as u64;
        seen.blocks_are_idle = state.idle_pages >= frames;
        seen.blocks_unused = self.runs.block_bytes_unused();
        seen.memtable_bytes = self.runs.memory().0;
        seen.lent_to_builds = lent;
        seen.lent_to_memtables = self.runs.lent_to_memtables();
        seen.full_generations += full - state.full_generations;
        state.full_generations = full;
        let next = match self.lends {
            true => state.lendable.next(state.target, &state.seen),
            false => state.target,
        };
        let moves = next != state.target;
        let seen = &state.seen;
        let missed = seen.frame_hits.max(seen.block_hits) >= seen.hits_per_step.max(1);
        state.wants |= !moves && (seen.frames_are_full || seen.blocks_want || missed);
        if moves || state.seen.is_old() {
            state.seen = Seen { hits_per_step: state.seen.hits_per_step, ..Seen::default() };
        }
        if moves {
            state.target = next;
            self.rt.metrics.add(Metric::MemoryMoves, 1);
        }
        if moves || !state.is_reached {
            self.bring_about(state)?;
        }
        let gave_back = lent_before > state.lent_to_builds;
        if (moves || gave_back) && state.lendable.total <= TRIM_BYTES_MAX {
            evenkeel_io::trim_heap();
        }
        Ok(Beat::Idle)
    }

    /// Approaches the target as far as the frames that hold memory allow.
    fn bring_about(&self, state: &mut State) -> Result<()> {
        let (target, lendable) = (state.target, &state.lendable);
        let pool_bytes = memory_budget::pool_bytes(target.frames);
        if pool_bytes < state.pool_bytes {
            self.pages.resize(pool_bytes as usize)?;
            state.pool_bytes = pool_bytes;
        }
        let page = self.pages.page_size() as u64;
        let with_memory = self.pages.frames_with_memory() as u64;
        state.is_reached = with_memory <= pool_bytes / page;
        let frames = match state.is_reached {
            true => target.frames,
            false => memory_budget::frames_bytes(with_memory * page),
        };
        let left = lendable.total.saturating_sub(frames);
        let for_generations = left.saturating_sub(lendable.blocks_min) / 2;
        let generation_bytes = for_generations.clamp(lendable.generation_min, target.generation);
        let cache_bytes = left.saturating_sub(2 * generation_bytes);
        self.runs.set_memory(RunsOptions { generation_bytes, cache_bytes });
        if pool_bytes > state.pool_bytes {
            self.pages.resize(pool_bytes as usize)?;
            state.pool_bytes = pool_bytes;
        }
        let metrics = &self.rt.metrics;
        metrics.set(Metric::MemoryGeneration, generation_bytes);
        metrics.set(Metric::MemoryBlocks, cache_bytes);
        metrics.set(Metric::MemoryFrames, frames);
        Ok(())
    }
}
