//! Duties that have become too many for checkpoints to list, under an old snapshot or in a large
//! transaction: they go to lists beside the log, and a checkpoint names the lists (RFC 16).
//!
//! Life of a list: the checkpointer takes the oldest duties, writes and syncs them, and then they
//! leave memory -> each checkpoint names the list -> nobody needs its chains: it is read, they are
//! freed -> that is durable: its place is given back.
//!
//! Invariants: a duty is in memory, or in a list that is durable, or in both (freeing is
//! idempotent). Duties of committed transactions have lists of their own: their commits lie before
//! the checkpoint that names the list, so after a crash they stand, and no snapshot needs them. A
//! list of others names their transactions, whose outcome and dead operations stay known until
//! it is done (A5): who reverts an operation looks for it in no list.

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

/// Chains of a list: about half a MiB.
const LIST_CHAINS: usize = 16 << 10;

struct List {
    at: SideLists,
    chains: usize,
    /// Those that had not committed when it was written, ascending.
    txns: Vec<TxnId>,
    /// The youngest commit of the others.
    newest: Lsn,
}

/// The list that is being freed.
struct Work {
    list: Arc<List>,
    /// The last is freed first; none before it is read.
    left: Option<Vec<Superseded>>,
}

/// The lists of one database, oldest first.
#[derive(Default)]
pub(super) struct Lists {
    all: Vec<Arc<List>>,
    work: Option<Work>,
    /// Somebody has taken the work along.
    is_taken: bool,
    /// Freed; the log is durable up to here when that is durable.
    done: Vec<(Lsn, Arc<List>)>,
}

impl Lists {
    pub(super) fn chains(&self) -> usize {
        self.all.iter().map(|list| list.chains).sum()
    }
}

/// Transactions that lists name, and how many do. Asked while the commit table is locked: nothing
/// else is locked under it.
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

/// Duties on their way to a list.
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
    // Without its file it was done, and the crash came before a checkpoint that said so.
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

    /// Before a checkpoint: if more than `listed_max` superseded chains are in memory, which it
    /// would list, they go to lists. How many went.
    ///
    /// # Errors
    /// `DiskFull`, if they are far more; any other failure stops writes.
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

    /// Copies the oldest duties: those of committed transactions, and the others.
    ///
    /// A duty that is in memory when its transaction is found committed was not reverted before:
    /// that would have taken it out. The others are needed before they are found undecided.
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

    /// The state of a transaction, which is needed from then on unless it has committed.
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

    /// The checkpoint's section of lists; empty if there are none. Taken after that of the
    /// transactions: it names no list that was done then, and so no transaction that left (A5).
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

    /// Takes the section of lists. Before the transactions are restored, which removes the files
    /// that nobody has named.
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

    /// `end` is where the log ends now.
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
            // It cannot be read now: the others first.
            lists.all.push(work.list);
            return;
        }
        work.list.txns.iter().for_each(|txn| self.needed.remove(*txn));
        lists.done.push((end, work.list));
    }
}

impl Store {
    /// Frees chains of lists that nobody needs; how many.
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
        // To have read it is a step as well.
        let mut done = 1;
        while let Some(duty) = left.last().copied().filter(|_| done < BEAT_CHAINS) {
            // What was reverted is the row's again.
            let may_be_dead = work.list.txns.binary_search(&duty.by.txn).is_ok();
            if !(may_be_dead && self.txns.is_dead(duty.by)) {
                if let Err(error) = self.free_chain(duty.tree, &duty.chain) {
                    // Tried again from memory: the others do not wait for it.
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
