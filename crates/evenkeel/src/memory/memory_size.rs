//! The present `memory_size`, and its changes: those that `Database::set` asks for, and those of
//! the automatic size.
//!
//! Invariant: one change at a time; the shares of all parts belong to the present size.

use crate::api::options::Geometry;
use crate::memory::automatic_size::{AutomaticSize, Following, LOOK};
use crate::memory::memory_arbiter::MemoryArbiter;
use crate::memory::memory_budget::MemoryBudget;
use evenkeel_base::{Beat, Result, metrics::Metric, sync::Mutex};
use evenkeel_io::{Event, Runtime};
use evenkeel_tables::Store;
use evenkeel_txn::Txns;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// However often caches want memory, the machine's is read no more often than this.
const LOOK_MIN: Duration = Duration::from_millis(50);

/// The size of one open database.
pub(crate) struct MemorySize {
    rt: Arc<Runtime>,
    lending: Arc<MemoryArbiter>,
    txns: Arc<Txns>,
    store: Arc<Store>,
    geometry: Geometry,
    bytes: AtomicU64,
    automatic: Mutex<Automatic>,
}

/// Held while the size changes.
#[derive(Default)]
struct Automatic {
    following: Option<Following>,
    looked_ns: u64,
}

impl MemorySize {
    /// The size with which the parts have been made.
    pub(crate) fn new(
        bytes: u64,
        lending: &Arc<MemoryArbiter>,
        txns: &Arc<Txns>,
        store: &Arc<Store>,
        rt: &Arc<Runtime>,
        geometry: Geometry,
    ) -> MemorySize {
        rt.metrics.set(Metric::MemorySize, bytes);
        MemorySize {
            rt: rt.clone(),
            lending: lending.clone(),
            txns: txns.clone(),
            store: store.clone(),
            geometry,
            bytes: AtomicU64::new(bytes),
            automatic: Mutex::default(),
        }
    }

    pub(crate) fn get(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Fixes the size.
    ///
    /// # Errors
    /// `PoolTooSmall`.
    pub(crate) fn fix(&self, bytes: u64) -> Result<()> {
        let mut automatic = self.automatic.lock();
        automatic.following = None;
        self.divide(bytes)
    }

    /// From now on the size follows the machine, beginning with the present one. Where the memory
    /// of the machine is not known, the size is fixed at the first one.
    ///
    /// # Errors
    /// `PoolTooSmall`.
    pub(crate) fn follow(&self, bounds: AutomaticSize) -> Result<()> {
        let mut automatic = self.automatic.lock();
        automatic.following = (bounds.most > bounds.first).then(|| Following::new(bounds));
        let now = self.get();
        match now.clamp(bounds.first, bounds.most) {
            bytes if bytes != now => self.divide(bytes),
            _ => Ok(()),
        }
    }

    /// Moves memory between caches, then changes an automatic size.
    ///
    /// # Errors
    /// `PoolTooSmall`.
    pub(crate) fn beat(&self) -> Result<Beat> {
        let beat = self.lending.beat()?;
        self.look()?;
        Ok(beat)
    }

    fn look(&self) -> Result<()> {
        let mut automatic = self.automatic.lock();
        let automatic = &mut *automatic;
        let Some(following) = &mut automatic.following else { return Ok(()) };
        let now_ns = self.rt.env.now_ns();
        if now_ns.saturating_sub(automatic.looked_ns) < LOOK_MIN.as_nanos() as u64 {
            return Ok(());
        }
        let wants = self.lending.take_wants();
        let now = self.get();
        if !wants && now <= following.bounds().first {
            return Ok(());
        }
        automatic.looked_ns = now_ns;
        let Some(available) = self.available_bytes() else { return Ok(()) };
        let next = following.next(now, wants, available, now_ns);
        if next == now { Ok(()) } else { self.divide(next) }
    }

    fn available_bytes(&self) -> Option<u64> {
        match self.geometry.available_bytes {
            Some(given) => Some(given.load(Ordering::Relaxed)),
            None => evenkeel_io::real::memory_available_bytes(),
        }
    }

    /// The event that wakes the actor.
    pub(crate) fn event(&self) -> Arc<Event> {
        self.lending.event()
    }

    /// The actor sleeps at most this long.
    pub(crate) fn rest(&self) -> Option<Duration> {
        let grown = match &self.automatic.lock().following {
            Some(following) => self.get() > following.bounds().first,
            None => false,
        };
        [self.lending.rest(), grown.then_some(LOOK)].into_iter().flatten().min()
    }

    /// Divides memory anew. Parts that grew may be used at once. Parts that shrank give memory back
    /// in the background: no caller waits while frames are emptied and undo is spilled.
    fn divide(&self, bytes: u64) -> Result<()> {
        let shares = MemoryBudget::of(bytes).with(&self.geometry);
        self.lending.set(&shares)?;
        self.txns.set_memory(shares.undo_bytes as usize, shares.lock_bytes as usize);
        self.store.set_build_arena(shares.build_bytes as usize);
        self.bytes.store(bytes, Ordering::Relaxed);
        self.rt.metrics.set(Metric::MemorySize, bytes);
        Ok(())
    }
}
