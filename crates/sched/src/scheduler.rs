//! What background work of one database asks before it reads, writes or computes. The laws are in
//! `governor`, `foreground_limit` and `cpu`; here threads wait as long as the laws say.
//!
//! Called by background threads, and by users' threads that build an index. No caller holds a
//! latch.

use crate::cpu::Seats;
use crate::governor::{Class, Governor, PriorityGovernor};
use evenkeel_base::Cause;
use evenkeel_io::{Event, ExcludedWaits, Runtime, Stop, device_wait};
use std::cell::{Cell, RefCell};
use std::{sync::Arc, time::Duration};

/// Shared by all components of one database that do background work.
pub struct Scheduler {
    /// Grants background I/O.
    pub governor: Box<dyn Governor>,
    pub(crate) rt: Arc<Runtime>,
    pub(crate) never: Arc<Event>,
    pub(crate) seats: Seats,
}

thread_local! {
    /// The index build that this thread works for, until that is asked to stop.
    static BUILDING: RefCell<Option<Arc<Stop>>> = const { RefCell::new(None) };
    /// The governor let it wait, and nobody has asked for that yet.
    static WAS_PAUSED: Cell<bool> = const { Cell::new(false) };
}

/// This thread works for an index build until this is dropped: its waits are not of users whom
/// index builds are to let go first.
pub struct Building {
    before: Option<Arc<Stop>>,
    _waits: ExcludedWaits,
}

impl Drop for Building {
    fn drop(&mut self) {
        BUILDING.set(self.before.take());
    }
}

impl Scheduler {
    /// Schedules the background work of the database of this runtime.
    pub fn new(rt: Arc<Runtime>) -> Arc<Scheduler> {
        let governor = PriorityGovernor::new(rt.stalls.clone(), rt.journal.clone());
        Arc::new(Scheduler {
            governor: Box::new(governor),
            rt,
            never: Arc::default(),
            seats: Seats::default(),
        })
    }

    /// What every component of the database shares.
    pub fn runtime(&self) -> &Arc<Runtime> {
        &self.rt
    }

    /// Asks the governor for background I/O and waits as long as it says, or until the index build
    /// that this thread works for is asked to stop; hold no latch. `required`: it keeps a resource
    /// inside its limit (G2).
    pub fn ask(&self, class: Class, bytes: u64, required: bool) {
        let (asked, granted) = class.metrics();
        self.rt.metrics.add(asked, bytes);
        self.pause(self.governor.grant(class, bytes, required, self.rt.env.now_ns()));
        self.rt.metrics.add(granted, bytes);
    }

    /// The same for surplus reads of pages, after the fact: all that this thread did since it last
    /// told of them.
    pub fn ask_for_reads(&self, class: Class, bytes: u64) {
        self.pause(self.note_pages(class, bytes, device_wait::take_page_read_ns()));
    }

    /// Tells the governor of surplus reads or writes of pages that are done and took so long; the
    /// nanoseconds to wait before more of them.
    pub fn note_pages(&self, class: Class, bytes: u64, took_ns: u64) -> u64 {
        let (asked, granted) = class.metrics();
        self.rt.metrics.add(asked, bytes);
        self.rt.metrics.add(granted, bytes);
        self.governor.grant_pages(class, bytes, took_ns, self.rt.env.now_ns())
    }

    /// Users wait for the device (`Governor::users_wait`).
    pub fn users_wait(&self) -> bool {
        self.governor.users_wait(self.rt.env.now_ns())
    }

    /// As long as the governor says.
    fn pause(&self, ns: u64) {
        let time = Duration::from_nanos(ns);
        match BUILDING.try_with(|stop| stop.borrow().clone()).ok().flatten() {
            _ if time.is_zero() => {}
            Some(stop) => stop.pause(&self.rt, time, Cause::Governor),
            None => {
                WAS_PAUSED.set(true);
                self.rt.delay(time, Cause::Governor);
            }
        }
    }

    /// The governor has let this thread wait since this was last asked.
    pub fn take_paused(&self) -> bool {
        WAS_PAUSED.take()
    }

    /// Of so many bytes, what one read or write of a class moves; ask for it then.
    pub fn at_once(&self, class: Class, bytes: u64, required: bool) -> u64 {
        bytes.min(self.governor.at_once(class, required))
    }

    /// This thread works for an index build until the result is dropped; `stop` ends its pauses.
    pub fn building(&self, stop: Arc<Stop>) -> Building {
        device_wait::take_page_read_ns();
        let waits = self.rt.exclude_waits();
        Building { before: BUILDING.replace(Some(stop)), _waits: waits }
    }
}
