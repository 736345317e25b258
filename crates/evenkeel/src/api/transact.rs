//! Transactions that are repeated when others got in their way.

use crate::api::database::Database;
use crate::api::txn::Txn;
use evenkeel_base::{Cause, Kind, Result};
use evenkeel_io::Rng;
use evenkeel_tables::{Access, Isolation};
use std::time::Duration;

/// The longest wait before the first repetition; it doubles with each.
const FIRST_WAIT: Duration = Duration::from_micros(50);
/// Doublings of it: about 50 ms.
const DOUBLINGS: u32 = 10;

impl Database {
    /// Runs `body` in a transaction and commits it. If it ends in a conflict or a deadlock, the
    /// transaction is rolled back, and `body` runs again in a new one after a random wait, longer
    /// each time; so `body` must have no effects but those on the database. Once
    /// `lock_wait_timeout` has passed, the error of the last try is returned. An error of another
    /// kind rolls back and is returned at once.
    ///
    /// ```
    #[doc = include_str!("people.md")]
    /// let moved = db.transact(|txn| {
    ///     let people = txn.table("people")?;
    ///     people.update(1, &[("town", "Bergen")])
    /// })?;
    /// assert!(moved);
    /// # Ok::<(), evenkeel::Error>(())
    /// ```
    ///
    /// # Errors
    /// What `body` returns; as `begin` and `Txn::commit`.
    pub fn transact<R>(&self, body: impl FnMut(&Txn) -> Result<R>) -> Result<R> {
        self.transact_with(Isolation::default(), body)
    }

    /// The same at a given level. At SERIALIZABLE a repetition locks the rows that it gets by their
    /// keys as `get_for_update` does: two that both read a row in order to change it then wait for
    /// each other instead of ending in the same deadlock again.
    ///
    /// # Errors
    /// As `transact`.
    pub fn transact_with<R>(
        &self,
        isolation: Isolation,
        mut body: impl FnMut(&Txn) -> Result<R>,
    ) -> Result<R> {
        let rt = &self.engine.rt;
        let begun_ns = rt.env.now_ns();
        let mut tries = 0;
        loop {
            let mut txn = self.begin(isolation, Access::ReadWrite)?;
            if tries > 0 {
                txn.set_gets_exclusive();
            }
            let error = match body(&txn) {
                Ok(result) => {
                    txn.commit()?;
                    return Ok(result);
                }
                Err(error) => error,
            };
            drop(txn);
            let waited = Duration::from_nanos(rt.env.now_ns().saturating_sub(begun_ns));
            let is_repeated = matches!(error.kind(), Kind::Conflict | Kind::Deadlock);
            if !is_repeated || waited > self.engine.store.lock_wait() {
                return Err(error);
            }
            rt.delay(pause(tries, rt.env.now_ns()), Cause::RowLock);
            tries += 1;
        }
    }
}

/// How long to wait before the next try: evenly distributed, so that those who met do not meet
/// again.
fn pause(tries: u32, seed: u64) -> Duration {
    let most = FIRST_WAIT * (1 << tries.min(DOUBLINGS));
    Duration::from_nanos(Rng::new(seed).below(most.as_nanos() as u64))
}
