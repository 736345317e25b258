//! The state and the locks of transactions at one moment, for users who look at them. Nothing here
//! is consistent across transactions: each mutex is taken separately.

use crate::locks::{LockSpace, Mode};
use crate::txn::Phase;
use crate::txns::Txns;
use evenkeel_base::TxnId;

/// A transaction that has changed or locked something.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TxnInfo {
    /// Its id.
    pub id: TxnId,
    /// The tag that its owner set; 0 if none.
    pub tag: u64,
    /// Its phase.
    pub phase: Phase,
    /// Row operations so far.
    pub operations: u32,
    /// Its id in two-phase commit, once it is prepared.
    pub xid: Vec<u8>,
    /// Transactions it waits for now.
    pub waits_for: Vec<TxnId>,
}

/// A lock that is held or requested.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LockInfo {
    /// The transaction.
    pub txn: TxnId,
    /// The space of the key.
    pub space: LockSpace,
    /// Shared or exclusive.
    pub mode: Mode,
    /// False while the transaction waits for it.
    pub granted: bool,
    /// A range of keys, not one.
    pub range: bool,
    /// The key, or the lower bound of the range.
    pub key: Vec<u8>,
}

impl Txns {
    /// Every undecided transaction that has an id, by id.
    pub fn inspect(&self) -> Vec<TxnInfo> {
        let mut found: Vec<TxnInfo> = self
            .all_active()
            .into_iter()
            .map(|t| TxnInfo {
                id: t.id(),
                tag: t.tag(),
                phase: t.phase(),
                operations: t.undo_count(),
                xid: t.xid.get().cloned().unwrap_or_default(),
                waits_for: self.waits_of(&t),
            })
            .collect();
        found.sort_by_key(|t| t.id);
        found
    }
}
