//! The second pass of recovery over the log (B6). The caller's thread reads the log in stretches
//! and distributes their records to helpers, each of which redoes the pages of its own part. Then
//! the caller gives the records to transactions, chains and memtable itself, in log order.
//!
//! A record goes to every helper that has one of its pages, and to no other. Each helper gets its
//! records in log order, so each page gets its changes in log order; pages of different parts do
//! not depend on each other. Records below the page redo position go to no helper: the pages have
//! them already. Only `recovery` may call this.

use crate::open::recovery::Recovery;
use evenkeel_base::sync::Mutex;
use evenkeel_base::{Cause, Error, Lsn, PageNo, Result};
use evenkeel_format::record::RecordKind;
use evenkeel_io::{Event, Runtime, Task};
use evenkeel_log::{Replay, replay};
use evenkeel_pages::{
    Changes, PageLives, PageRedo, REDO_BLOCK_PAGES, REDO_THREADS, each_page, hint,
};
use evenkeel_tables::Replayer;
use evenkeel_tree::TreeRedo;
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

/// Helpers that redo pages: more than cores, because they wait for reads.
const PARTS: usize = REDO_THREADS;
/// Neighbouring pages that belong to one helper, which can read them together.
const PART_PAGES: u64 = REDO_BLOCK_PAGES;
/// Bytes of records in one stretch, at least and at most: in a longer stretch more changes of one
/// page come together.
const STRETCH_BYTES: (usize, usize) = (128 << 10, 8 << 20);
/// The part of the memory that a stretch may take.
const STRETCHES_PER_MEMORY: u64 = 128;
/// The memory of a record is prefetched this many records ahead.
const RECORDS_AHEAD: usize = 8;
/// Stretches waiting for a helper, at most: an eighth of the memory. The first stretches make
/// helpers read nearly all pages; while they wait for the device the caller continues its own work.
const WAITING_MAX: usize = 16;

/// The helper that a page belongs to.
fn part_of(page: PageNo) -> usize {
    (page.0 / PART_PAGES % PARTS as u64) as usize
}

/// Records, copied from the log.
#[derive(Default)]
struct Stretch {
    /// Where page redo begins.
    page_redo: Lsn,
    bytes: Vec<u8>,
    /// LSN, kind and range in `bytes`.
    records: Vec<(Lsn, RecordKind, Range<usize>)>,
    /// The records of each helper, by their index in `records`.
    dealt: [Vec<u32>; PARTS],
}

impl Stretch {
    fn push(&mut self, lsn: Lsn, kind: RecordKind, body: &[u8]) -> Result<()> {
        let (start, number) = (self.bytes.len(), self.records.len() as u32);
        self.bytes.extend_from_slice(body);
        self.records.push((lsn, kind, start..self.bytes.len()));
        if lsn < self.page_redo {
            return Ok(());
        }
        each_page(kind, body, |page| {
            let own = &mut self.dealt[part_of(page)];
            if own.last() != Some(&number) {
                own.push(number);
            }
        })
    }

    /// Empties the stretch and keeps its memory.
    fn clear(&mut self) {
        self.bytes.clear();
        self.records.clear();
        self.dealt.iter_mut().for_each(Vec::clear);
    }

    fn all(&self) -> impl Iterator<Item = (Lsn, RecordKind, &[u8])> {
        self.records.iter().map(|(lsn, kind, at)| (*lsn, *kind, &self.bytes[at.clone()]))
    }

    /// The records of a helper. They lie apart, so each is prefetched a little before.
    fn of(&self, part: usize) -> impl Iterator<Item = (Lsn, RecordKind, &[u8])> {
        let dealt = &self.dealt[part];
        let record = |number: u32| {
            let (lsn, kind, at) = &self.records[number as usize];
            (*lsn, *kind, &self.bytes[at.clone()])
        };
        dealt.iter().enumerate().map(move |(n, number)| {
            if let Some(ahead) = dealt.get(n + RECORDS_AHEAD) {
                hint::bytes(record(*ahead).2, 1);
            }
            record(*number)
        })
    }
}

#[derive(Default)]
struct Queue {
    waiting: VecDeque<Arc<Stretch>>,
    /// Empty stretches, to be filled again.
    spare: Vec<Stretch>,
    /// Number of the first waiting stretch.
    first: usize,
    /// Number of the stretch that each helper takes next.
    next: [usize; PARTS],
    ended: bool,
    error: Option<Error>,
}

/// The stretches between the reader and the helpers.
struct Line {
    rt: Arc<Runtime>,
    page_redo: Lsn,
    queue: Mutex<Queue>,
    changed: Arc<Event>,
}

impl Line {
    /// Passes a stretch on; waits while too many are waiting. False if a helper has failed.
    fn push(&self, stretch: Arc<Stretch>) -> bool {
        let ready = || {
            let queue = self.queue.lock();
            queue.waiting.len() < WAITING_MAX || queue.error.is_some()
        };
        self.rt.wait_until(&self.changed, Cause::Idle, ready);
        let mut queue = self.queue.lock();
        queue.waiting.push_back(stretch);
        let goes_on = queue.error.is_none();
        drop(queue);
        self.changed.notify();
        goes_on
    }

    /// The next stretch for a helper; `None` at the end or after an error.
    fn take(&self, part: usize) -> Option<Arc<Stretch>> {
        let ready = || {
            let queue = self.queue.lock();
            queue.ended || queue.next[part] < queue.first + queue.waiting.len()
        };
        self.rt.wait_until(&self.changed, Cause::Idle, ready);
        let mut queue = self.queue.lock();
        if queue.error.is_some() {
            return None;
        }
        let stretch = queue.waiting.get(queue.next[part] - queue.first)?.clone();
        queue.next[part] += 1;
        if queue.next.iter().all(|next| *next > queue.first) {
            queue.waiting.pop_front();
            queue.first += 1;
        }
        drop(queue);
        self.changed.notify();
        Some(stretch)
    }

    /// An empty stretch.
    fn spare(&self) -> Stretch {
        let new = || Stretch { page_redo: self.page_redo, ..Stretch::default() };
        self.queue.lock().spare.pop().unwrap_or_else(new)
    }

    /// The last helper that is done with a stretch returns its memory.
    fn done_with(&self, stretch: Arc<Stretch>) {
        if let Some(mut stretch) = Arc::into_inner(stretch) {
            stretch.clear();
            self.queue.lock().spare.push(stretch);
        }
    }

    fn end(&self, error: Option<Error>) {
        let mut queue = self.queue.lock();
        queue.ended = true;
        if let Some(error) = error {
            queue.error.get_or_insert(error);
        }
        drop(queue);
        self.changed.notify();
    }

    /// A helper's work.
    fn redo(&self, redo: &PageRedo<'_>, part: usize) -> Result<()> {
        let _leaving = Leaving(self);
        while let Some(stretch) = self.take(part) {
            let mut changes = Changes::with_capacity(stretch.dealt[part].len());
            for (lsn, kind, body) in stretch.of(part) {
                changes.add(lsn, kind, body, |page| part_of(page) == part)?;
            }
            redo.apply_all(changes)?;
            self.done_with(stretch);
            self.rt.step();
        }
        Ok(())
    }
}

/// A helper or reader that panics ends the pass, so that no thread waits for it.
struct Leaving<'a>(&'a Line);

impl Drop for Leaving<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.end(Some(Error::internal("a thread of page redo has panicked")));
        }
    }
}

/// The reader.
struct Reader<'a> {
    line: &'a Line,
    stretch: Stretch,
    stretch_bytes: usize,
    replayer: Replayer<'a>,
}

impl Replay for Reader<'_> {
    fn record(&mut self, lsn: Lsn, kind: RecordKind, body: &[u8]) -> Result<()> {
        self.stretch.push(lsn, kind, body)?;
        if self.stretch.bytes.len() >= self.stretch_bytes { self.hand_on() } else { Ok(()) }
    }
}

impl Reader<'_> {
    fn hand_on(&mut self) -> Result<()> {
        let stretch = Arc::new(std::mem::replace(&mut self.stretch, self.line.spare()));
        if !self.line.push(stretch.clone()) {
            // Not reported: the error of the helper is.
            return Err(Error::internal("page redo has failed"));
        }
        for (lsn, kind, body) in stretch.all() {
            self.replayer.record(lsn, kind, body)?;
        }
        self.line.done_with(stretch);
        Ok(())
    }
}

/// Runs the pass over the log from `from` until `until`; returns the number of row operations.
///
/// # Errors
/// Those of the log, pages, runs and transactions; `ThreadSpawn`.
pub(crate) fn run(of: &Recovery<'_>, from: Lsn, until: Lsn, lives: &Arc<PageLives>) -> Result<u64> {
    let (rt, changed) = (of.rt.clone(), Arc::new(Event::new()));
    let page_redo = of.superblock.page_redo;
    let line = Arc::new(Line { rt, page_redo, queue: Mutex::default(), changed });
    let _leaving = Leaving(&line);
    let mut helpers: Vec<Box<dyn Task>> = Vec::new();
    let stretch_bytes = (of.memory_size / STRETCHES_PER_MEMORY)
        .clamp(STRETCH_BYTES.0 as u64, STRETCH_BYTES.1 as u64);
    let stretch_bytes = stretch_bytes as usize;
    let replayer = Replayer::new(of.runs, of.txns, of.chains);
    let mut reader = Reader { line: &line, stretch: line.spare(), stretch_bytes, replayer };
    let mut work = || -> Result<()> {
        for part in 0..PARTS {
            let (line, pages, lives) = (line.clone(), of.pages.clone(), lives.clone());
            let closed = of.superblock.clean;
            helpers.push(of.rt.spawn_needed("ek-redo", move || {
                let redo = PageRedo::after(&pages, &TreeRedo, lives);
                let redo = redo.reading_first(closed).ending_at(until);
                if let Err(error) = line.redo(&redo, part).and_then(|()| redo.sync_found()) {
                    line.end(Some(error));
                }
            })?);
        }
        replay(of.rt, from, Some(until), &mut reader)?;
        reader.hand_on()
    };
    let worked = work();
    line.end(None);
    let joined: Vec<Result<()>> = helpers.into_iter().map(|helper| helper.join()).collect();
    if let Some(error) = line.queue.lock().error.take() {
        return Err(error);
    }
    worked?;
    joined.into_iter().collect::<Result<()>>()?;
    Ok(reader.replayer.rows())
}

#[cfg(test)]
mod tests {
    use super::*;
    use evenkeel_base::{Stamp, TreeId, TxnId, UndoNo};
    use evenkeel_format::record::{LeafChange, PageOp, put_page_op};

    /// A record that changes these pages.
    fn record(pages: &[PageNo]) -> (RecordKind, Vec<u8>) {
        let mut body = Vec::new();
        if let [page] = pages {
            let stamp = Stamp { txn: TxnId(page.0 + 1), undo_no: UndoNo(1) };
            let (key, row) = (&b"key"[..], &b"row"[..]);
            let tree = TreeId(9);
            let change = LeafChange { page: *page, tree, flags: 0, stamp, key, row, logical: &[] };
            change.encode(&mut body);
            return (RecordKind::Row, body);
        }
        for page in pages {
            put_page_op(&mut body, PageOp { page: *page, op: 40, payload: b"op" });
        }
        (RecordKind::Page, body)
    }

    /// A helper waits for no stretch of a reader that has panicked.
    #[test]
    fn redo_helpers_end_without_their_reader() {
        let rt = Runtime::new(Arc::new(evenkeel_io::MemEnv::new()));
        let (queue, changed) = (Mutex::default(), Arc::new(Event::new()));
        let line = Arc::new(Line { rt, page_redo: Lsn(0), queue, changed });
        let (send, ended) = std::sync::mpsc::channel();
        let own = line.clone();
        std::thread::spawn(move || send.send(own.take(0).is_none()));
        let reader = line.clone();
        let panicked = std::thread::spawn(move || {
            let _leaving = Leaving(&reader);
            panic!("a planted panic");
        });
        assert!(panicked.join().is_err());
        let limit = std::time::Duration::from_secs(60);
        assert_eq!(ended.recv_timeout(limit), Ok(true));
        assert!(line.queue.lock().error.is_some());
    }

    /// Each helper gets the records of its pages in log order and no others. Records below the page
    /// redo position go to no helper.
    #[test]
    fn records_are_dealt_by_page() {
        let mut random = evenkeel_io::Rng::new(1);
        let mut below = |n: u64| random.below(n);
        let mut stretch = Stretch::default();
        for round in 0..4u64 {
            stretch.page_redo = Lsn(round * 100);
            let mut model: Vec<(Lsn, Vec<PageNo>)> = Vec::new();
            for number in 0..2000u64 {
                let count = if below(8) == 0 { below(5) } else { 1 };
                let pages: Vec<PageNo> = (0..count).map(|_| PageNo(below(2000))).collect();
                let (kind, body) = record(&pages);
                stretch.push(Lsn(number + 1), kind, &body).expect("a record");
                model.push((Lsn(number + 1), pages));
            }
            for part in 0..PARTS {
                let expected: Vec<(Lsn, RecordKind, Vec<u8>)> = model
                    .iter()
                    .filter(|(lsn, _)| *lsn >= stretch.page_redo)
                    .filter(|(_, pages)| pages.iter().any(|page| part_of(*page) == part))
                    .map(|(lsn, pages)| (*lsn, record(pages)))
                    .map(|(lsn, (kind, body))| (lsn, kind, body))
                    .collect();
                let dealt: Vec<_> =
                    stretch.of(part).map(|(lsn, kind, body)| (lsn, kind, body.to_vec())).collect();
                assert!(dealt.len() > 200 && dealt.len() < 1000, "{} of part {part}", dealt.len());
                assert_eq!(dealt, expected, "round {round}, part {part}");
            }
            assert_eq!(stretch.all().count(), model.len());
            stretch.clear();
            assert_eq!((0..PARTS).map(|part| stretch.of(part).count()).sum::<usize>(), 0);
        }
    }
}
