//! What transactions do and hold at one moment, for people who look. Nothing here is consistent
//! across transactions: each mutex is taken for itself.

use crate::locks::{LockSpace, Mode};
use crate::txn::Phase;
use crate::txns::Txns;
use evenkeel_base::TxnId;

/// A transaction that has changed or locked something.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TxnInfo {
    /// Its id.
    pub id: TxnId,
    /// What its owner calls it; 0 if nothing.
    pub tag: u64,
    /// Where it stands.
    pub phase: Phase,
    /// Row operations so far.
    pub operations: u32,
    /// Its id in two-phase commit, once it is prepared.
    pub xid: Vec<u8>,
    /// Transactions it waits for now.
    pub waits_for: Vec<TxnId>,
}

/// A lock that is held or asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LockInfo {
    /// Who.
    pub txn: TxnId,
    /// Whose keys.
    pub space: LockSpace,
    /// Shared or exclusive.
    pub mode: Mode,
    /// False while it is waited for.
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
