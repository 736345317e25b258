//! Whether the transaction of a scan goes on. A scan that outlives it would read a table that may
//! be dropped meanwhile; it answers `TransactionEnded` instead.

use evenkeel_base::{Code, Error, Result};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Held by a transaction and its scans.
#[derive(Clone, Debug, Default)]
pub struct Liveness(Arc<AtomicBool>);

impl Liveness {
    /// The transaction has ended.
    pub(crate) fn end(&self) {
        self.0.store(true, Ordering::Release);
    }

    /// # Errors
    /// `TransactionEnded`.
    #[inline]
    pub fn check(&self) -> Result<()> {
        match self.0.load(Ordering::Acquire) {
            true => Err(Error::new(Code::TransactionEnded)),
            false => Ok(()),
        }
    }
}
