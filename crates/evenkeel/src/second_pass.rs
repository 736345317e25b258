//! The second pass of recovery over the log (B6). The caller's thread reads the log in stretches
//! and hands each on to helpers, who redo pages, each those of its own part; then it gives the
//! records to transactions, chains and memtable itself, in log order.
//!
//! Every helper sees all records in log order, so each page gets its changes in log order; pages of
//! different parts do not depend on each other. Only `recovery` may call this.

use crate::recovery::Recovery;
use evenkeel_base::sync::Mutex;
use evenkeel_base::{Cause, Error, Lsn, PageNo, Result};
use evenkeel_format::record::RecordKind;
use evenkeel_format::rows::each_row;
use evenkeel_io::{Event, Runtime, Task};
use evenkeel_log::{Replay, replay};
use evenkeel_pages::{Changes, PageLives, PageRedo, REDO_THREADS};
use evenkeel_tree::TreeRedo;
use std::collections::VecDeque;
use std::sync::Arc;

/// Helpers that redo pages: more than cores, for they wait for reads.
const PARTS: usize = REDO_THREADS;
/// Neighbouring pages that belong to one helper, which can read them in together.
const PART_PAGES: u64 = 64;
/// Bytes of records handed on at once, at least and at most: the more, the more changes of a page
/// come together.
const STRETCH_BYTES: (usize, usize) = (256 << 10, 8 << 20);
/// Stretches waiting for a helper, at most.
const WAITING_MAX: usize = 2;

/// Records, copied from the log.
#[derive(Default)]
struct Stretch {
    bytes: Vec<u8>,
    /// LSN, kind and end in `bytes`.
    records: Vec<(Lsn, RecordKind, usize)>,
}

impl Stretch {
    fn push(&mut self, lsn: Lsn, kind: RecordKind, body: &[u8]) {
        self.bytes.extend_from_slice(body);
        self.records.push((lsn, kind, self.bytes.len()));
    }

    fn each<'s>(
        &'s self,
        mut take: impl FnMut(Lsn, RecordKind, &'s [u8]) -> Result<()>,
    ) -> Result<()> {
        let mut start = 0;
        for (lsn, kind, end) in &self.records {
            take(*lsn, *kind, &self.bytes[start..*end])?;
            start = *end;
        }
        Ok(())
    }
}

#[derive(Default)]
struct Queue {
    waiting: VecDeque<Arc<Stretch>>,
    /// Number of the first one waiting.
    first: usize,
    /// Number of the stretch that each helper takes next.
    next: [usize; PARTS],
    ended: bool,
    error: Option<Error>,
}

/// The stretches between the reader and the helpers.
struct Line {
    rt: Arc<Runtime>,
    queue: Mutex<Queue>,
    changed: Arc<Event>,
}

impl Line {
    /// Hands a stretch on; waits while too many are waiting. False if a helper has failed.
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
        let is_own = |page: PageNo| page.0 / PART_PAGES % PARTS as u64 == part as u64;
        while let Some(stretch) = self.take(part) {
            let mut changes = Changes::default();
            stretch.each(|lsn, kind, body| changes.add(lsn, kind, body, is_own))?;
            redo.apply_all(changes)?;
            self.rt.step();
        }
        Ok(())
    }
}

/// The reader.
struct Reader<'a, 'b> {
    of: &'a Recovery<'b>,
    line: &'a Line,
    stretch: Stretch,
    stretch_bytes: usize,
    rows: u64,
}

impl Replay for Reader<'_, '_> {
    fn record(&mut self, lsn: Lsn, kind: RecordKind, body: &[u8]) -> Result<()> {
        match kind {
            RecordKind::Row => self.rows += 1,
            RecordKind::Rows => each_row(kind, body, &mut |_, _| {
                self.rows += 1;
                Ok(())
            })?,
            _ => {}
        }
        self.stretch.push(lsn, kind, body);
        if self.stretch.bytes.len() >= self.stretch_bytes { self.hand_on() } else { Ok(()) }
    }
}

impl Reader<'_, '_> {
    fn hand_on(&mut self) -> Result<()> {
        let stretch = Arc::new(std::mem::take(&mut self.stretch));
        if !self.line.push(stretch.clone()) {
            // Not reported: the helper's error is.
            return Err(Error::internal("page redo has failed"));
        }
        let Recovery { runs, txns, chains, .. } = self.of;
        stretch.each(|lsn, kind, body| evenkeel_tables::replay(runs, txns, chains, lsn, kind, body))
    }
}

/// Runs the pass over the log from `from` until `until`; the number of row operations.
///
/// # Errors
/// Those of the log, pages, runs and transactions; `ThreadSpawn`.
pub(crate) fn run(of: &Recovery<'_>, from: Lsn, until: Lsn, lives: &Arc<PageLives>) -> Result<u64> {
    let (rt, changed) = (of.rt.clone(), Arc::new(Event::new()));
    let line = Arc::new(Line { rt, queue: Mutex::default(), changed });
    let mut helpers: Vec<Box<dyn Task>> = Vec::new();
    let stretch_bytes = (of.memory_size / 64).clamp(STRETCH_BYTES.0 as u64, STRETCH_BYTES.1 as u64);
    let stretch_bytes = stretch_bytes as usize;
    let mut reader =
        Reader { of, line: &line, stretch: Stretch::default(), stretch_bytes, rows: 0 };
    let mut work = || -> Result<()> {
        for part in 0..PARTS {
            let (line, pages, lives) = (line.clone(), of.pages.clone(), lives.clone());
            let closed = of.superblock.clean;
            helpers.push(of.rt.spawn("ek-redo", move || {
                let redo = PageRedo::after(&pages, &TreeRedo, lives).reading_first(closed);
                if let Err(error) = line.redo(&redo, part) {
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
    Ok(reader.rows)
}
