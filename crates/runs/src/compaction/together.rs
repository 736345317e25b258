//! Small indexes are compacted together (D2): one file, one sync and one record of the list of runs
//! for many of them. An index has less than 1 MiB in runs, so its compaction is done at once: a
//! beat does as many as it may read, and the file ends when it is full or no index waits.
//!
//! Lifecycle of a compaction: waiting (its runs are marked as being compacted) -> begun (its slice
//! is in the open file) -> installed by the record of the file. Or all that were begun are
//! abandoned together.

use super::job::Order;
use crate::Runs;
use crate::compaction::version_filter::VersionFilter;
use crate::run::file::{Run, RunFile, RunSegment};
use crate::run::writer::{Purpose, RunWriter, SliceStart, Written};
use crate::state::Edit;
use evenkeel_base::{Code, Error, IndexId, Kind, Result, metrics::Metric};
use evenkeel_io::IO_ALIGN;
use evenkeel_sched::laws::ingest::pays_bytes;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// An index with fewer bytes in runs is compacted together with others.
const SMALL_BYTES: u64 = 1 << 20;
/// Its size is also at most this part of a file, and half this part of a generation.
const SMALL_PART: u64 = 4;
const BEAT_BYTES: u64 = 1 << 20;
/// Slices of a file, at most: its record stays far below the longest possible one.
pub(super) const SLICES_MAX: usize = 1024;

/// Compactions of small indexes.
#[derive(Default)]
pub(crate) struct Together {
    waiting: VecDeque<Order>,
    /// Those in the open file, the last one possibly in part, in the order of their indexes. Every
    /// file has its slices in this order, so that the repair of damage knows which indexes may have
    /// had one (`damage`).
    begun: Vec<Order>,
    writer: Option<RunWriter>,
    /// The file, if it is written and no record names it yet.
    written: Option<u64>,
}

impl Order {
    fn bytes(&self) -> u64 {
        self.inputs.iter().map(|run| run.bytes).sum()
    }

    /// Its position among the waiting ones: those that ingest needs come first.
    fn place(&self) -> (bool, IndexId) {
        (!self.required, self.index)
    }

    /// Bytes read for it, in whole blocks.
    fn read_bytes(&self) -> u64 {
        let segments = self.inputs.iter().flat_map(|run| &run.segments);
        segments.map(|s| s.info.bytes().next_multiple_of(IO_ALIGN as u64)).sum()
    }

    /// The numbers of its runs.
    pub(super) fn numbers(&self) -> Vec<u64> {
        self.inputs.iter().map(|run| run.number).collect()
    }
}

impl Runs {
    /// Bytes below which an index is compacted together with others; zero on a full disk.
    pub(super) fn small_bytes(&self) -> u64 {
        let part = self.segment_bytes().min(self.generation_bytes() / 2) / SMALL_PART;
        if self.is_full() { 0 } else { SMALL_BYTES.min(part) }
    }

    /// Takes the small orders that have no segment to move unchanged; returns the others.
    pub(super) fn take_together(&self, orders: Vec<Order>) -> Vec<Order> {
        let is_small = |o: &Order| o.small && self.segments_apart(&o.inputs, o.rules).is_empty();
        let (small, others): (Vec<Order>, Vec<Order>) = orders.into_iter().partition(is_small);
        let waiting = &mut self.together.lock().waiting;
        waiting.extend(small);
        waiting.make_contiguous().sort_by_key(Order::place);
        others
    }

    pub(super) fn are_together_waiting(&self) -> bool {
        let together = self.together.lock();
        !together.waiting.is_empty() || together.writer.is_some()
    }

    /// A beat of these; false if there are none, or if they need a seat and none is free.
    pub(super) fn together_beat(&self, has_seat: bool) -> Result<bool> {
        let mut all = std::mem::take(&mut *self.together.lock());
        let mut orders = all.waiting.iter().chain(&all.begun);
        let done = match orders.any(|o| has_seat || o.required) {
            true => self.some_together(&mut all).map(|()| true),
            false => Ok(false),
        };
        let done = done.or_else(|error| self.part(&mut all, error));
        let mut now = self.together.lock();
        all.waiting.append(&mut now.waiting);
        all.waiting.make_contiguous().sort_by_key(Order::place);
        *now = all;
        done
    }

    fn some_together(&self, all: &mut Together) -> Result<()> {
        let mut read = 0;
        let mut is_full = false;
        while read < BEAT_BYTES && !is_full {
            let Some(order) = all.waiting.pop_front() else { break };
            if all.begun.last().is_some_and(|begun| begun.index >= order.index) {
                all.waiting.push_front(order);
                is_full = true;
            } else if self.state.read().indexes.contains_key(&order.index) {
                read += order.read_bytes();
                all.begun.push(order);
                self.rt.metrics.add(Metric::CompactionsStarted, 1);
                self.write_slice(all)?;
                let bytes = all.writer.as_ref().map_or(0, RunWriter::bytes);
                is_full = bytes >= SMALL_BYTES || all.begun.len() >= SLICES_MAX;
            }
        }
        if is_full || all.waiting.is_empty() { self.end_together(all) } else { Ok(()) }
    }

    /// Writes the slice of the order begun last.
    fn write_slice(&self, all: &mut Together) -> Result<()> {
        let Together { begun, writer, .. } = all;
        let Some(order) = begun.last() else { return Ok(()) };
        let purpose = Purpose::compaction(order.required);
        if writer.is_none() {
            let metric = Metric::CompactionWriteBytes;
            *writer = Some(RunWriter::create(&self.blocks, self.next_file(), purpose, metric)?);
        }
        let Some(writer) = writer else { return Ok(()) };
        let inputs = &order.inputs;
        let base = inputs.iter().flat_map(|r| &r.segments).map(|s| s.info.base_cts).min();
        writer.begin(SliceStart {
            index: order.index,
            run: 0,
            age_low: inputs.iter().map(|r| r.age_low).min().unwrap_or_default(),
            age_high: inputs.iter().map(|r| r.age_high).max().unwrap_or_default(),
            base_cts: base.unwrap_or_default(),
            unique_key: order.unique_key,
        });
        let mut rules = order.rules;
        rules.horizon = self.commits().horizon();
        let mut chain = VersionFilter::new(rules);
        let mut merger = self.merger_of(inputs, &VecDeque::new(), purpose, None)?;
        while let Some(item) = merger.top() {
            chain.push(&item, self.commits(), &mut |key, pk_len, op, version, value| {
                writer.push(key, pk_len, op, version, value)
            })?;
            merger.advance()?;
        }
        chain.end(self.commits(), &mut |key, pk_len, op, version, value| {
            writer.push(key, pk_len, op, version, value)
        })?;
        writer.end()
    }

    /// Ends the file and installs its slices.
    fn end_together(&self, all: &mut Together) -> Result<()> {
        let Some(writer) = all.writer.take() else { return Ok(()) };
        let mut slices = BTreeMap::new();
        let mut files = Vec::new();
        if let Some(Written { number, slices: infos }) = writer.finish()? {
            all.written = Some(number);
            self.sync_names()?;
            let file = RunFile::open(&self.rt, &self.filter_cache, number)?;
            let segment = |info| Arc::new(RunSegment::new(file.clone(), info));
            slices.extend(infos.into_iter().map(|info| (info.index, segment(info))));
            files.push(file);
        }
        let edit = |order: &Order| {
            let inputs = order.inputs.iter().map(|run| (run.clone(), None)).collect();
            let output = slices.remove(&order.index).and_then(|s| Run::new(vec![s]));
            Edit::new(order.index, inputs, output.map(Arc::new), Vec::new())
        };
        let edits: Vec<Edit> = all.begun.iter().map(edit).collect();
        if !self.install_edits(edits, files)? {
            self.remove_files(all.written.take().into_iter().collect());
        }
        all.written = None;
        let orders = std::mem::take(&mut all.begun);
        {
            let mut state = self.state.write();
            orders.iter().for_each(|o| state.end_merging(o.index, &o.numbers()));
        }
        for order in &orders {
            let unpaid = pays_bytes(order.inputs.len(), self.generation_bytes());
            self.issue_credit(order.index, unpaid, order.bytes(), order.bytes());
        }
        let count = |f: fn(&Order) -> bool| orders.iter().filter(|o| f(o)).count() as u64;
        let metrics = &self.rt.metrics;
        metrics.add(Metric::CompactionsFinished, count(|_| true));
        metrics.add(Metric::CompactionsBottom, count(|o| o.rules.bottom));
        metrics.add(Metric::CompactionPieces, 1);
        self.found_space();
        self.compaction_event.notify();
        self.space.notify();
        Ok(())
    }

    /// Abandons the begun compactions. For want of space the waiting ones are abandoned, too. A
    /// damaged or unreadable run is found by compacting each index alone.
    fn part(&self, all: &mut Together, error: Error) -> Result<bool> {
        if let Some(writer) = all.writer.take() {
            writer.abandon();
        }
        let (begun, file) = (std::mem::take(&mut all.begun), all.written.take());
        self.rt.metrics.add(Metric::CompactionsAbandoned, begun.len() as u64);
        let cannot_read = error.kind() == Kind::Corrupt || error.code() == Code::ReadFailed;
        if cannot_read && file.is_none() {
            self.begin_jobs(begun);
            return Ok(true);
        }
        let file = file.into_iter().collect();
        if error.code().is_shortage() || error.code() == Code::LogFull {
            self.remove_files(file);
            let orders: Vec<Order> = begun.into_iter().chain(all.waiting.drain(..)).collect();
            let needed = orders.iter().any(|order| order.required || order.frees);
            let mut state = self.state.write();
            orders.iter().for_each(|o| state.end_merging(o.index, &o.numbers()));
            self.changed(&state);
            drop(state);
            *self.compact_full.lock() = Some((error.clone(), needed));
            self.space.notify();
            return Err(error);
        }
        self.forgive_debt();
        let error = self.write_failed(error);
        // A record that names the file may be durable although its sync failed.
        if !self.rt.health.is_failed() {
            self.remove_files(file);
        }
        Err(error)
    }

    /// True if space is short: small pieces, and no compactions together.
    pub(super) fn is_full(&self) -> bool {
        self.is_short.load(Ordering::SeqCst) || self.compact_full.lock().is_some()
    }
}
