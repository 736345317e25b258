//! Walks a run in either direction: through the block cache (readers) or in large sequential reads
//! past it (compactions, checks).

use crate::run::cache::CachedBlocks;
use crate::run::file::{Run, RunSegment};
use crate::run::writer::Purpose;
use evenkeel_base::sync::Mutex;
use evenkeel_base::{Error, Lsn, Result, metrics::Metric};
use evenkeel_format::run::{DataBlock, RunEntry, RunVersion};
use evenkeel_io::AlignedBuf;
use evenkeel_sched::Scheduler;
use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

thread_local! {
    static READ_BYTES: Cell<u64> = const { Cell::new(0) };
}

/// Bytes of blocks that this thread has read into the cache so far. It separates the reads of one
/// user from those of others that share the metrics.
pub fn block_read_bytes() -> u64 {
    READ_BYTES.get()
}

/// The source of blocks.
pub(crate) enum BlockLoader {
    /// The cache, filled one block at a time.
    Cached(Arc<CachedBlocks>),
    /// Reads ahead, past the cache.
    Sequential(ReadAhead),
}

/// Reads of this many bytes ahead, growing to `ahead_max`; `metric` counts them.
pub(crate) struct ReadAhead {
    sched: Arc<Scheduler>,
    ahead: usize,
    ahead_max: usize,
    metric: Metric,
    purpose: Purpose,
    span: Option<BlockSpan>,
    pass: Option<Arc<Pass>>,
    /// The blocks will be written to another place: the cache releases them.
    consumes: Option<Arc<CachedBlocks>>,
}

/// Shared by the loaders of a cursor that reads an index once. The cursor asks the governor itself
/// while it holds no view, and continues with the bytes read ahead after it takes another view.
pub(crate) struct Pass {
    /// How far reads go ahead, the metric that counts them, and their purpose.
    pub ahead: usize,
    pub metric: Metric,
    pub purpose: Purpose,
    unasked: AtomicU64,
    spans: Mutex<Vec<BlockSpan>>,
}

impl Pass {
    pub(crate) fn new(ahead: usize, metric: Metric, purpose: Purpose) -> Arc<Pass> {
        let (unasked, spans) = (AtomicU64::new(0), Mutex::default());
        Arc::new(Pass { ahead, metric, purpose, unasked, spans })
    }

    /// Bytes read since the last call.
    pub(crate) fn take_unasked(&self) -> u64 {
        self.unasked.swap(0, Ordering::Relaxed)
    }

    /// The bytes left from the view before are not used.
    pub(crate) fn forget(&self) {
        self.spans.lock().clear();
    }
}

/// A range of keys: at or above `low`, below `high` (`None`: to the end).
#[derive(Default)]
pub(crate) struct Bounds {
    pub low: Vec<u8>,
    pub high: Option<Vec<u8>>,
}

impl Bounds {
    #[inline]
    pub(crate) fn is_above(&self, key: &[u8]) -> bool {
        self.high.as_ref().is_some_and(|high| key >= &high[..])
    }
}

/// Bytes read ahead: of a file, from a position.
pub(crate) struct BlockSpan {
    file: u64,
    start: u64,
    buf: AlignedBuf,
}

impl BlockLoader {
    pub(crate) fn sequential(
        sched: &Arc<Scheduler>,
        ahead: usize,
        metric: Metric,
        purpose: Purpose,
    ) -> BlockLoader {
        let (sched, ahead_max) = (sched.clone(), ahead);
        let (span, pass, consumes) = (None, None, None);
        BlockLoader::Sequential(ReadAhead {
            sched,
            ahead,
            ahead_max,
            metric,
            purpose,
            span,
            pass,
            consumes,
        })
    }

    /// As `sequential`, for blocks that will be written into another run: the cache releases its
    /// copies, and the output takes their place (`RunWriter`).
    pub(crate) fn consuming(
        blocks: &Arc<CachedBlocks>,
        ahead: usize,
        metric: Metric,
        purpose: Purpose,
    ) -> BlockLoader {
        let mut loader = BlockLoader::sequential(&blocks.sched, ahead, metric, purpose);
        if let BlockLoader::Sequential(ahead) = &mut loader {
            ahead.consumes = Some(blocks.clone());
        }
        loader
    }

    /// One of the loaders of such a pass.
    pub(crate) fn of_pass(sched: &Arc<Scheduler>, pass: &Arc<Pass>) -> BlockLoader {
        let mut loader = BlockLoader::sequential(sched, pass.ahead, pass.metric, pass.purpose);
        if let BlockLoader::Sequential(ahead) = &mut loader {
            ahead.pass = Some(pass.clone());
        }
        loader
    }

    /// As the `i`th of `n` iterators that are read side by side: each begins with little and with a
    /// different part. So the first entry does not wait until all have read ahead as far as they
    /// will, and their read-ahead does not end at the same time.
    pub(crate) fn one_of(mut self, i: usize, n: usize) -> BlockLoader {
        if let BlockLoader::Sequential(ReadAhead { ahead, ahead_max, .. }) = &mut self {
            *ahead = *ahead_max * (i + 1) / (4 * n.max(1));
        }
        self
    }

    pub(crate) fn load(&mut self, segment: &RunSegment, number: u32) -> Result<Arc<DataBlock>> {
        match self {
            BlockLoader::Cached(blocks) => {
                let CachedBlocks { sched, cache } = &**blocks;
                let (file, position) = (segment.file.number, segment.fences()?.place(number).0);
                if let Some(block) = cache.get(file, position) {
                    return Ok(block);
                }
                let (block, bytes) = segment.read_block(cache.spare(), number)?;
                let metrics = &sched.runtime().metrics;
                metrics.add(Metric::RunBlockReads, 1);
                metrics.add(Metric::RunBlockReadBytes, bytes);
                READ_BYTES.set(READ_BYTES.get().wrapping_add(bytes));
                let block = Arc::new(block);
                cache.put(file, position, block.clone());
                Ok(block)
            }
            BlockLoader::Sequential(ahead) => ahead.load(segment, number),
        }
    }
}

impl ReadAhead {
    fn load(&mut self, segment: &RunSegment, number: u32) -> Result<Arc<DataBlock>> {
        let (position, len) = segment.fences()?.place(number);
        let (file, end) = (segment.file.number, position + u64::from(len));
        let inside = |s: &BlockSpan| {
            s.file == file && s.start <= position && end <= s.start + s.buf.len() as u64
        };
        if !self.span.as_ref().is_some_and(inside) {
            let kept = self.pass.as_ref().and_then(|pass| {
                let mut spans = pass.spans.lock();
                spans.iter().position(inside).map(|at| spans.swap_remove(at))
            });
            self.span = Some(match kept {
                Some(span) => span,
                None => self.read(segment, position, len)?,
            });
        }
        let Some(span) = &self.span else {
            return Err(Error::internal("no span of a run file"));
        };
        // A little too early for readers that come before the piece is installed: they read it once
        // more.
        if let Some(blocks) = &self.consumes {
            blocks.cache.let_go(file, position);
        }
        let at = (position - span.start) as usize;
        let bytes = &span.buf[at..at + len as usize];
        Ok(Arc::new(segment.decode(Vec::new(), number, position, bytes)?))
    }

    fn read(&mut self, segment: &RunSegment, position: u64, len: u32) -> Result<BlockSpan> {
        let ReadAhead { sched, metric, purpose, .. } = self;
        let rt = sched.runtime();
        let data_end = segment.info.position + segment.info.data_len;
        let all = (self.ahead as u64).min(data_end - position).max(u64::from(len));
        let want = sched.at_once(purpose.class, all, purpose.required).max(u64::from(len));
        match &self.pass {
            Some(pass) => {
                pass.unasked.fetch_add(want, Ordering::Relaxed);
            }
            None => sched.ask(purpose.class, want, purpose.required),
        }
        let start = rt.env.now_ns();
        let (buf, at) = segment.file.read(position, want as usize)?;
        let ns = rt.env.now_ns().saturating_sub(start);
        if want == all {
            sched.governor.report(purpose.class, 1, want, ns);
        }
        rt.metrics.add(*metric, buf.len() as u64);
        self.ahead = (2 * self.ahead).min(self.ahead_max);
        Ok(BlockSpan { file: segment.file.number, start: position - at as u64, buf })
    }
}

impl Drop for ReadAhead {
    fn drop(&mut self) {
        if let (Some(pass), Some(span)) = (&self.pass, self.span.take()) {
            pass.spans.lock().push(span);
        }
    }
}

/// An iterator over a run. Positioned on an entry while `is_valid`.
pub(crate) struct RunIter {
    run: Arc<Run>,
    loader: BlockLoader,
    /// Blocks wholly outside are not read.
    bounds: Arc<Bounds>,
    segment: usize,
    number: u32,
    block: Option<Arc<DataBlock>>,
    key: Vec<u8>,
    entry: RunEntry,
    valid: bool,
    /// Reverse: the entries of the present restart that are not yet visited, with the ends of their
    /// keys.
    group: Vec<(u32, u32, RunEntry)>,
    group_keys: Vec<u8>,
    restart: u32,
    /// Entries of it that its reader had to pass over.
    skipped: u64,
}

const NO_ENTRY: RunEntry = RunEntry {
    op: 0,
    version: RunVersion::Committed(Lsn::ZERO),
    value_at: 0,
    value_len: 0,
    pk_len: 0,
    next: 0,
    repeats: false,
};

/// Most keys fit this.
const KEY_BYTES: usize = 64;

impl RunIter {
    pub(crate) fn new(run: Arc<Run>, loader: BlockLoader, bounds: Arc<Bounds>) -> RunIter {
        RunIter {
            run,
            loader,
            bounds,
            segment: 0,
            number: 0,
            block: None,
            key: Vec::with_capacity(KEY_BYTES),
            entry: NO_ENTRY,
            valid: false,
            group: Vec::new(),
            group_keys: Vec::new(),
            restart: 0,
            skipped: 0,
        }
    }

    /// Its reader passed over an entry that is dead, superseded or invisible.
    #[inline]
    pub(crate) fn skip(&mut self) {
        self.skipped += 1;
    }

    pub(crate) fn is_valid(&self) -> bool {
        self.valid
    }

    pub(crate) fn key(&self) -> &[u8] {
        &self.key
    }

    pub(crate) fn entry(&self) -> &RunEntry {
        &self.entry
    }

    pub(crate) fn value(&self) -> &[u8] {
        self.block.as_ref().map_or(&[], |block| block.value(&self.entry))
    }

    fn load(&mut self) -> Result<Arc<DataBlock>> {
        let block = self.loader.load(&self.run.segments[self.segment], self.number)?;
        self.block = Some(block.clone());
        Ok(block)
    }

    /// To the first entry at or above `bound`.
    pub(crate) fn seek_at_least(&mut self, bound: &[u8]) -> Result<()> {
        self.valid = false;
        let bound = bound.max(&self.run.low);
        let segments = &self.run.segments;
        self.segment = segments.partition_point(|s| &s.info.max_key[..] < bound);
        let Some(segment) = segments.get(self.segment) else { return Ok(()) };
        if self.bounds.is_above(&segment.info.min_key) {
            return Ok(());
        }
        self.number = segment.fences()?.block_of(bound);
        let block = self.loader.load(segment, self.number)?;
        let block = &**self.block.insert(block);
        let mut at = block.restart(block.restart_before(bound)?);
        self.key.clear();
        while at < block.end() {
            self.entry = block.decode(at, &mut self.key, self.entry.pk_len)?;
            if &self.key[..] >= bound {
                self.valid = true;
                return Ok(());
            }
            at = self.entry.next;
        }
        self.next_block()
    }

    /// Advances to the next entry. After an error the position is unchanged.
    #[inline]
    pub(crate) fn next(&mut self) -> Result<()> {
        let Some(block) = self.block.as_ref() else {
            self.valid = false;
            return Ok(());
        };
        if self.entry.next < block.end() {
            self.entry = block.decode(self.entry.next, &mut self.key, self.entry.pk_len)?;
            return Ok(());
        }
        self.next_block()
    }

    fn next_block(&mut self) -> Result<()> {
        let segments = &self.run.segments;
        let fences = segments[self.segment].fences()?;
        let is_inside = self.number + 1 < fences.blocks();
        let next = self.segment + 1;
        let (segment, number, above) = if is_inside {
            let number = self.number + 1;
            (self.segment, number, self.bounds.is_above(fences.key(number)))
        } else {
            let after = segments.get(next);
            (next, 0, after.is_none_or(|s| self.bounds.is_above(&s.info.min_key)))
        };
        if above {
            self.valid = false;
            return Ok(());
        }
        let block = self.loader.load(&segments[segment], number)?;
        // A block begins with a restart; check this, because the key of the block before is still
        // in place.
        block.restart_key(0)?;
        self.entry = block.decode(block.start(), &mut self.key, self.entry.pk_len)?;
        (self.segment, self.number, self.block) = (segment, number, Some(block));
        self.valid = true;
        Ok(())
    }

    /// To the last entry below `bound` (`None`: the last).
    pub(crate) fn seek_below(&mut self, bound: Option<&[u8]>) -> Result<()> {
        self.valid = false;
        self.group.clear();
        let segments = &self.run.segments;
        if bound.is_some_and(|b| b <= &self.run.low[..]) {
            self.block = None;
            return Ok(());
        }
        let below = |s: &Arc<RunSegment>| bound.is_none_or(|b| &s.info.min_key[..] < b);
        let Some(last) = segments.partition_point(below).checked_sub(1) else { return Ok(()) };
        if segments[last].info.max_key[..] < self.bounds.low[..] {
            return Ok(());
        }
        self.segment = last;
        let fences = segments[last].fences()?;
        self.number = bound.map_or(fences.blocks() - 1, |b| fences.block_of(b));
        let block = self.load()?;
        self.restart = match bound {
            Some(bound) => block.restart_before(bound)?,
            None => block.restarts() - 1,
        };
        self.fill_group()?;
        if let Some(bound) = bound {
            while self
                .group
                .last()
                .is_some_and(|g| &self.group_keys[g.0 as usize..g.1 as usize] >= bound)
            {
                self.group.pop();
            }
        }
        self.previous()
    }

    /// Decodes the entries of the present restart.
    fn fill_group(&mut self) -> Result<()> {
        self.group.clear();
        self.group_keys.clear();
        let Some(block) = &self.block else { return Ok(()) };
        let (mut at, end) = (block.restart(self.restart), block.restart(self.restart + 1));
        let (mut key, mut pk_len) = (Vec::new(), 0);
        while at < end {
            let entry = block.decode(at, &mut key, pk_len)?;
            (at, pk_len) = (entry.next, entry.pk_len);
            let start = self.group_keys.len() as u32;
            self.group_keys.extend_from_slice(&key);
            self.group.push((start, self.group_keys.len() as u32, entry));
        }
        Ok(())
    }

    /// To the entry before (after `seek_below` only).
    pub(crate) fn previous(&mut self) -> Result<()> {
        loop {
            if let Some((start, end, entry)) = self.group.pop() {
                self.key.clear();
                self.key.extend_from_slice(&self.group_keys[start as usize..end as usize]);
                self.entry = entry;
                self.valid = self.key[..] >= self.run.low[..];
                if !self.valid {
                    self.block = None;
                    self.group.clear();
                }
                return Ok(());
            }
            self.valid = false;
            if self.block.is_none() {
                return Ok(());
            }
            if self.restart > 0 {
                self.restart -= 1;
            } else {
                let segments = &self.run.segments;
                // The blocks before hold no key above the fence of this one.
                let fences = segments[self.segment].fences()?;
                let fence = fences.key(self.number);
                // Blocks wholly below the run's own `low` may be freed.
                if self.number > 0 && (fence < &self.bounds.low[..] || fence <= &self.run.low[..]) {
                    return Ok(());
                }
                if self.number > 0 {
                    self.number -= 1;
                } else {
                    if self.segment == 0
                        || segments[self.segment - 1].info.max_key[..] < self.bounds.low[..]
                    {
                        return Ok(());
                    }
                    self.segment -= 1;
                    self.number = segments[self.segment].fences()?.blocks() - 1;
                }
                self.restart = self.load()?.restarts() - 1;
            }
            self.fill_group()?;
        }
    }
}

impl Drop for RunIter {
    fn drop(&mut self) {
        if self.skipped > 0 {
            self.run.note_skipped(self.skipped);
            if let BlockLoader::Cached(blocks) = &self.loader {
                blocks.sched.runtime().metrics.add(Metric::RunEntriesSkipped, self.skipped);
            }
        }
    }
}
