//! (c) Hand-over of memtable generations beside a checkpoint (B3). Operations pin a generation,
//! take their log position and insert. A flush seals the generation, waits for the pins, and
//! replaces the generation by a run. A checkpoint is followed by a crash. Pins are the engine's
//! (`runs/src/memtable/pins.rs`).

use crate::event::Event;
use crate::pins::Pins;
use crate::sync::Mutex;
use crate::{model, start, wait_until};
use evenkeel_sim::interleave::Thread;
use std::sync::Arc;

#[derive(Clone, Copy, PartialEq)]
enum Planted {
    Nothing,
    /// The operation takes its log position before it pins.
    PinTooLate,
    /// The flush does not wait for pins.
    PinsIgnored,
    /// The checkpoint looks at the generations before it reads the log end.
    EndReadLast,
}

struct Generation {
    number: u64,
    pins: Pins,
    entries: Mutex<Vec<u64>>,
}

impl Generation {
    fn new(number: u64) -> Arc<Generation> {
        Arc::new(Generation { number, pins: Pins::default(), entries: Mutex::default() })
    }
}

struct State {
    /// Newest first.
    generations: Vec<Arc<Generation>>,
    flushed: u64,
    in_runs: Vec<u64>,
}

struct Engine {
    /// The generation of each record, by log position. The length is the log's end.
    log: Mutex<Vec<u64>>,
    state: Mutex<State>,
    unpinned: Event,
    planted: Planted,
}

impl Engine {
    fn end(&self) -> u64 {
        self.log.lock().len() as u64
    }

    fn pin(&self) -> Arc<Generation> {
        let end = self.end();
        let state = self.state.lock();
        state.generations[0].pins.pin(end);
        state.generations[0].clone()
    }

    fn append(&self, generation: u64) -> u64 {
        let mut log = self.log.lock();
        log.push(generation);
        log.len() as u64 - 1
    }

    fn operation(&self) {
        let (generation, lsn) = if self.planted == Planted::PinTooLate {
            let number = self.state.lock().generations[0].number;
            let lsn = self.append(number);
            (self.pin(), lsn)
        } else {
            let generation = self.pin();
            let lsn = self.append(generation.number);
            (generation, lsn)
        };
        generation.entries.lock().push(lsn);
        if generation.pins.unpin() {
            self.unpinned.notify();
        }
    }

    fn flush(&self) {
        let old = {
            let mut state = self.state.lock();
            let old = state.generations[0].clone();
            old.pins.seal();
            state.generations.insert(0, Generation::new(old.number + 1));
            old
        };
        if self.planted != Planted::PinsIgnored {
            wait_until(&self.unpinned, || !old.pins.is_pinned());
        }
        let entries = old.entries.lock().clone();
        let mut state = self.state.lock();
        state.generations.retain(|g| !Arc::ptr_eq(g, &old));
        state.in_runs.extend(entries);
        state.flushed = old.number;
    }

    fn low(&self) -> Option<u64> {
        self.state.lock().generations.iter().filter_map(|g| g.pins.low()).min()
    }

    /// Takes a checkpoint, crashes and recovers. The entry of every record must exist exactly once.
    fn checkpoint_and_crash(&self) {
        let redo = if self.planted == Planted::EndReadLast {
            let low = self.low();
            low.unwrap_or(u64::MAX).min(self.end())
        } else {
            let end = self.end();
            self.low().unwrap_or(u64::MAX).min(end)
        };
        let (flushed, in_runs) = {
            let state = self.state.lock();
            (state.flushed, state.in_runs.clone())
        };
        let log = self.log.lock().clone();
        for (lsn, generation) in (0..).zip(&log) {
            let replayed = lsn >= redo && *generation > flushed;
            let found = usize::from(replayed) + in_runs.iter().filter(|l| **l == lsn).count();
            assert_eq!(found, 1, "the entry of record {lsn} of {log:?} is there {found} times");
        }
    }
}

/// The greatest number of generations in the model.
const ALL: &[fn(&Engine)] =
    &[Engine::operation, Engine::operation, Engine::flush, Engine::checkpoint_and_crash];

fn run(planted: Planted, threads: &'static [fn(&Engine)]) {
    model("hand-over", threads.len(), || {
        let first = Generation::new(1);
        let state = State { generations: vec![first], flushed: 0, in_runs: Vec::new() };
        let (log, state) = (Mutex::default(), Mutex::new(state));
        let engine = Arc::new(Engine { log, state, unpinned: Event::new(), planted });
        let all: Vec<Thread> = threads.iter().map(|f| start(&engine, f)).collect();
        all.into_iter().for_each(Thread::join);
        // A checkpoint at the end as well, when no thread runs.
        Engine::checkpoint_and_crash(&engine);
    });
}

#[test]
fn recovery_finds_each_entry_once_beside_flush_and_checkpoint() {
    run(Planted::Nothing, ALL);
}

#[test]
fn every_pair_of_operation_flush_and_checkpoint_is_safe() {
    run(Planted::Nothing, &[Engine::operation, Engine::flush]);
    run(Planted::Nothing, &[Engine::operation, Engine::checkpoint_and_crash]);
    run(Planted::Nothing, &[Engine::flush, Engine::checkpoint_and_crash]);
}

#[test]
#[should_panic(expected = "is there")]
fn a_pin_after_the_log_position_is_found() {
    run(Planted::PinTooLate, ALL);
}

#[test]
#[should_panic(expected = "is there")]
fn a_flush_that_ignores_pins_is_found() {
    run(Planted::PinsIgnored, ALL);
}

#[test]
#[should_panic(expected = "is there")]
fn a_checkpoint_that_reads_the_log_end_last_is_found() {
    run(Planted::EndReadLast, ALL);
}
