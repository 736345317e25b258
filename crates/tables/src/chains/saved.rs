//! Superseded chains that are too many for a checkpoint to list one by one, because of an old
//! snapshot or a large transaction. They are saved to lists beside the log, and a checkpoint names
//! the lists (RFC 16).
//!
//! Life of a list: the checkpointer writes and syncs the oldest entries, which then leave memory ->
//! each checkpoint names the list -> nothing needs its chains: the list is read and they are freed
//! -> that is durable: the list's space is freed.
//!
//! Invariants: an entry is in memory, or in a durable list, or in both (freeing is idempotent).
//! Entries of committed transactions have lists of their own: their commits lie before the
//! checkpoint that names the list, so after a crash they stand, and no snapshot needs the chains. A
//! list of other entries names their transactions, whose outcome and dead operations stay known
//! until the list is done (A5): the rollback of an operation does not search lists.

use super::{BEAT_CHAINS, Book, Chains, Superseded, key};
use crate::store::Store;
use evenkeel_base::sync::Mutex;
use evenkeel_base::{CommitTable, Kind, Lsn, Result, Stamp, TreeId, TxnId, TxnState, UndoNo};
use evenkeel_format::overflow::{ChainEdit, OVERFLOW_REF_BYTES};
use evenkeel_format::{Reader, put_varint};
use evenkeel_tree::OverflowRef;
use evenkeel_txn::{SideLists, Txns};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Chains of a list, about half a MiB.
const LIST_CHAINS: usize = 16 << 10;

struct List {
    at: SideLists,
    chains: usize,
    /// Transactions that had not committed when it was written, ascending.
    txns: Vec<TxnId>,
    /// The newest commit of the others.
    newest: Lsn,
}

/// The list that is being freed.
struct Work {
    list: Arc<List>,
    /// The chain at the end is freed first; `None` until the list is read.
    left: Option<Vec<Superseded>>,
}

/// The lists of one database, oldest first.
#[derive(Default)]
pub(super) struct Lists {
    all: Vec<Arc<List>>,
    work: Option<Work>,
    /// A thread has taken the work.
    is_taken: bool,
    /// Finished lists, each with the log position whose durability makes it final.
    done: Vec<(Lsn, Arc<List>)>,
}

impl Lists {
    pub(super) fn chains(&self) -> usize {
        self.all.iter().map(|list| list.chains).sum()
    }
}

/// Transactions that lists name, and in how many lists. Read while the commit table is locked; no
/// other lock is taken under it.
#[derive(Default)]
pub(super) struct Needed(Mutex<BTreeMap<TxnId, usize>>);

impl Needed {
    fn add(&self, txn: TxnId) {
        *self.0.lock().entry(txn).or_default() += 1;
    }

    fn remove(&self, txn: TxnId) {
        let mut needed = self.0.lock();
        if let Some(count) = needed.get_mut(&txn) {
            *count -= 1;
            if *count == 0 {
                needed.remove(&txn);
            }
        }
    }
}

/// Entries on their way to a list.
#[derive(Default)]
struct Taken {
    duties: Vec<Superseded>,
    txns: Vec<TxnId>,
    newest: Lsn,
}

impl Taken {
    fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.duties.len() * 32);
        self.duties.iter().for_each(|duty| duty.encode(&mut out));
        out
    }
}

impl Superseded {
    /// `txn varint, undo_no varint, tree varint, reference`.
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        put_varint(out, self.by.txn.0);
        put_varint(out, u64::from(self.by.undo_no.0));
        put_varint(out, u64::from(self.tree.0));
        self.chain.encode(out);
    }

    /// # Errors
    /// `BadEncoding`.
    pub(super) fn decode(r: &mut Reader<'_>) -> Result<Superseded> {
        let by = Stamp { txn: TxnId(r.varint()?), undo_no: UndoNo(r.varint32()?) };
        let tree = TreeId(r.varint32()?);
        Ok(Superseded { by, tree, chain: OverflowRef::decode(r.take(OVERFLOW_REF_BYTES)?)? })
    }
}

fn read(txns: &Txns, list: &List) -> Result<Vec<Superseded>> {
    // A list without a file was done; the crash came before a checkpoint that recorded it.
    let bytes = txns.read_side_lists(&list.at)?.unwrap_or_default();
    let mut r = Reader::new(&bytes, "list of overflow chains");
    let mut duties = Vec::with_capacity(list.chains.min(LIST_CHAINS));
    while !r.is_empty() {
        duties.push(Superseded::decode(&mut r)?);
    }
    Ok(duties)
}

impl Chains {
    /// True while the outcome of this transaction must stay known (A5).
    pub fn is_needed(&self, txn: TxnId) -> bool {
        self.needed.0.lock().contains_key(&txn)
    }

    /// Before a checkpoint: if more than `listed_max` superseded chains are in memory, which the
    /// checkpoint would list, moves them to lists. Returns their number.
    ///
    /// # Errors
    /// `DiskFull`, if there are far more of them; any other failure stops writes.
    pub fn save_beyond(&self, listed_max: usize, txns: &Txns) -> Result<u64> {
        let mut saved = 0;
        loop {
            let held = self.book.lock().held;
            if held <= listed_max {
                return Ok(saved);
            }
            match self.save_some(txns) {
                // The log has room for some more.
                Err(e) if e.code().is_shortage() && held / 16 <= listed_max => {
                    return Ok(saved);
                }
                more => saved += more?,
            }
        }
    }

    fn save_some(&self, txns: &Txns) -> Result<u64> {
        let mut taken = self.take_oldest(txns);
        taken.retain(|taken| !taken.duties.is_empty());
        let places = txns.keep_side_lists(taken.iter().map(Taken::encode).collect());
        if places.is_err() {
            taken.iter().flat_map(|t| &t.txns).for_each(|txn| self.needed.remove(*txn));
        }
        let (mut saved, mut book) = (0, self.book.lock());
        for (Taken { duties, txns, newest }, at) in taken.into_iter().zip(places?) {
            duties.iter().for_each(|duty| book.forget(key(duty.by)));
            let chains = duties.len();
            book.lists.all.push(Arc::new(List { at, chains, txns, newest }));
            saved += chains as u64;
        }
        Ok(saved)
    }

    /// Copies the oldest entries: those of committed transactions, and the others.
    ///
    /// An entry in memory whose transaction is found committed was not rolled back before, because
    /// a rollback would have removed it. The others are marked as needed before their transactions
    /// are found undecided.
    fn take_oldest(&self, txns: &Txns) -> Vec<Taken> {
        let (mut committed, mut others) = (Taken::default(), Taken::default());
        let book = self.book.lock();
        let mut last = (TxnId::ZERO, TxnState::Active);
        for ((txn, undo_no), chains) in &book.superseded {
            if committed.duties.len() + others.duties.len() >= LIST_CHAINS {
                break;
            }
            if last.0 != *txn {
                last = (*txn, self.outcome(*txn, txns));
                match last.1 {
                    TxnState::Committed(cts) => committed.newest = committed.newest.max(cts),
                    _ => others.txns.push(*txn),
                }
            }
            let is_committed = matches!(last.1, TxnState::Committed(_));
            let taken = if is_committed { &mut committed } else { &mut others };
            let by = Stamp { txn: *txn, undo_no: *undo_no };
            let duty = |&(tree, chain): &_| Superseded { by, tree, chain };
            taken.duties.extend(chains.iter().map(duty));
        }
        vec![committed, others]
    }

    /// The state of a transaction; from then on the transaction is needed unless it has committed.
    fn outcome(&self, txn: TxnId, txns: &Txns) -> TxnState {
        let state = txns.state(txn);
        if matches!(state, TxnState::Committed(_)) {
            return state;
        }
        self.needed.add(txn);
        let state = txns.state(txn);
        if matches!(state, TxnState::Committed(_)) {
            self.needed.remove(txn);
        }
        state
    }

    /// The checkpoint's section of lists; empty if there are none. It is taken after the section of
    /// the transactions: it names no list that was done then, and so no transaction that has left
    /// (A5).
    pub fn lists_blob(&self) -> Vec<u8> {
        let book = self.book.lock();
        let mut out = Vec::new();
        for list in &book.lists.all {
            list.at.encode(&mut out);
            put_varint(&mut out, list.chains as u64);
            put_varint(&mut out, list.txns.len() as u64);
            list.txns.iter().for_each(|txn| put_varint(&mut out, txn.0));
        }
        out
    }

    /// Restores the section of lists. Called before the transactions are restored, which removes
    /// files that no section names.
    ///
    /// # Errors
    /// `BadEncoding`; those of the environment.
    pub fn restore_lists(&self, blob: &[u8], txns: &Txns) -> Result<()> {
        let mut r = Reader::new(blob, "lists of overflow chains");
        while !r.is_empty() {
            let at = txns.restore_side_lists(&mut r)?;
            let chains = r.varint32()? as usize;
            let mut named = Vec::new();
            for _ in 0..r.varint()? {
                named.push(TxnId(r.varint()?));
            }
            named.iter().for_each(|txn| self.needed.add(*txn));
            let list = List { at, chains, txns: named, newest: Lsn::ZERO };
            self.book.lock().lists.all.push(Arc::new(list));
        }
        Ok(())
    }

    fn take_work(&self, ready: &dyn Fn(&List) -> bool) -> Option<Work> {
        let mut book = self.book.lock();
        let Book { lists, .. } = &mut *book;
        if lists.is_taken {
            return None;
        }
        let found = || lists.all.iter().find(|list| ready(list)).cloned();
        let begin = |list| Work { list, left: None };
        let work = lists.work.take().or_else(|| found().map(begin));
        lists.is_taken = work.is_some();
        work
    }

    /// `end` is the present end of the log.
    fn put_work(&self, work: Work, end: Lsn) {
        let mut book = self.book.lock();
        let Book { lists, .. } = &mut *book;
        lists.is_taken = false;
        if work.left.as_ref().is_some_and(|left| !left.is_empty()) {
            lists.work = Some(work);
            return;
        }
        lists.all.retain(|list| !Arc::ptr_eq(list, &work.list));
        if work.left.is_none() {
            // The list cannot be read now: work on the others first.
            lists.all.push(work.list);
            return;
        }
        work.list.txns.iter().for_each(|txn| self.needed.remove(*txn));
        lists.done.push((end, work.list));
    }
}

impl Store {
    /// Frees chains of lists that nothing needs; returns their number.
    pub(super) fn free_saved(&self) -> Result<usize> {
        let durable = self.log.durable();
        self.chains.book.lock().lists.done.retain(|(end, _)| *end > durable);
        let horizon = self.txns.horizon();
        let over = |txn: &TxnId| match self.txns.state(*txn) {
            TxnState::Committed(cts) => cts <= horizon,
            state => state == TxnState::Aborted,
        };
        let ready = |list: &List| list.newest <= horizon && list.txns.iter().all(over);
        let Some(mut work) = self.chains.take_work(&ready) else { return Ok(0) };
        let freed = self.free_some(&mut work);
        self.chains.put_work(work, self.log.end());
        freed
    }

    fn free_some(&self, work: &mut Work) -> Result<usize> {
        if work.left.is_none() {
            work.left = Some(match read(&self.txns, &work.list) {
                Err(error) if error.kind() == Kind::Corrupt => {
                    log::warn!("overflow chains that a damaged list names stay: {error}");
                    Vec::new()
                }
                read => read?,
            });
        }
        let left = work.left.get_or_insert_default();
        // Reading the list is a step as well.
        let mut done = 1;
        while let Some(duty) = left.last().copied().filter(|_| done < BEAT_CHAINS) {
            // Chains of an undone operation belong to the row again.
            let may_be_dead = work.list.txns.binary_search(&duty.by.txn).is_ok();
            if !(may_be_dead && self.txns.is_dead(duty.by)) {
                if let Err(error) = self.free_chain(duty.tree, &duty.chain) {
                    // Put it back in memory for another attempt, so that the others need not wait.
                    let again = ChainEdit::Superseded(duty.chain);
                    self.chains.logged(duty.by, duty.tree, &[again]);
                    left.pop();
                    return Err(error);
                }
                done += 1;
            }
            left.pop();
        }
        Ok(done)
    }

    /// The chains of a tree that are begun or superseded.
    ///
    /// # Errors
    /// Of the files of lists.
    pub(crate) fn chains_of_tree(&self, tree: TreeId) -> Result<Vec<OverflowRef>> {
        let (mut chains, lists) = {
            let book = self.chains.book.lock();
            (book.of_tree(tree), book.lists.all.clone())
        };
        for list in lists {
            let duties = read(&self.txns, &list)?;
            chains.extend(duties.iter().filter(|duty| duty.tree == tree).map(|duty| duty.chain));
        }
        Ok(chains)
    }
}
