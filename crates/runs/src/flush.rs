//! Flushing a generation (D1): the whole generation into one file, a slice per index, in beats.
//! Then comes the manifest record, and when that is durable the runs replace the generation in
//! every view.

use crate::Runs;
use crate::compaction::version_filter::{Rules, VersionFilter};
use crate::memtable::{MemIter, Memtable};
use crate::read::source::{Item, Version};
use crate::run::file::RunFile;
use crate::run::writer::{Purpose, RunWriter, SliceStart};
use evenkeel_base::fault_injection::Fault;
use evenkeel_base::journal::Law;
use evenkeel_base::{Beat, Cause, Code, IndexId, Lsn, Result, metrics::Metric};
use evenkeel_format::run::ManifestOp;
use evenkeel_sched::laws::ingest;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

const BEAT_ENTRIES: usize = 4096;

/// A flush under way.
pub(crate) struct FlushJob {
    memtable: Arc<Memtable>,
    iter: MemIter,
    writer: RunWriter,
    /// The index of the present slice; `None` before the first or for a dropped index.
    index: Option<IndexId>,
    is_dropped: bool,
    chain: VersionFilter,
    /// Entries taken from the memtable.
    entries_done: u64,
    /// When it began, plus the time that it has rested since.
    begun_ns: u64,
    first_ns: u64,
    /// The time in which the generation was filled; 0: unknown.
    fill_ns: u64,
}

/// How long flushes take, the average of the last few; 0: there was none yet.
#[derive(Default)]
pub(crate) struct FlushMeter {
    whole_ns_per_kib: u64,
    /// The time until all entries are written.
    entries_ns_per_kib: u64,
}

/// When a generation was last handed over, and how long it took to fill.
pub(crate) struct Fill {
    handed_ns: u64,
    took_ns: u64,
}

impl Fill {
    /// The first generation exists since `now_ns`.
    pub(crate) fn since(now_ns: u64) -> Fill {
        Fill { handed_ns: now_ns, took_ns: 0 }
    }

    pub(crate) fn handed_over(&mut self, now_ns: u64) {
        self.took_ns = now_ns.saturating_sub(std::mem::replace(&mut self.handed_ns, now_ns));
    }
}

/// When a flush began, and when all its entries were written.
struct FlushTimes {
    begun_ns: u64,
    entries_until_ns: u64,
}

impl FlushJob {
    /// The part of the generation that is done.
    fn done_permille(&self) -> u64 {
        (self.entries_done * 1000 / self.memtable.entries().max(1)).min(1000)
    }
}

impl Runs {
    /// One step of flushing generations, at most some 100 KiB of output.
    ///
    /// # Errors
    /// Of writing. `DiskFull` loses nothing: the flush starts again with a later beat. Any other
    /// failure latches `health`.
    pub fn flush_beat(&self) -> Result<Beat> {
        self.hand_over_old();
        if self.rt.health.is_failed() {
            return Ok(Beat::Idle);
        }
        let _one = self.flushing.lock(&self.rt, Cause::Idle);
        let taken = self.flush_job.lock().take();
        let job = match taken {
            Some(job) => Some(job),
            None => self.begin_flush().map_err(|e| self.write_failed(e))?,
        };
        let Some(mut job) = job else { return Ok(Beat::Idle) };
        match self.flush_some(&mut job) {
            Ok(false) => {
                let (done, now) = (job.done_permille(), self.now_ns());
                // An earlier measurement would be too inaccurate.
                if done >= 50 {
                    let bytes = job.memtable.bytes() / 1000 * done;
                    self.set_flush_pace(bytes, now.saturating_sub(job.begun_ns));
                }
                self.note_flushed_part(done);
                *self.flush_job.lock() = Some(job);
                return Ok(Beat::More);
            }
            Ok(true) => self.note_flushed_part(1000),
            Err(error) => {
                // Its work is repeated.
                self.flushed_permille.store(0, Ordering::SeqCst);
                job.writer.abandon();
                self.space.notify();
                return Err(self.write_failed(error));
            }
        }
        let FlushJob { memtable, writer, begun_ns, .. } = *job;
        let times = FlushTimes { begun_ns, entries_until_ns: self.now_ns() };
        self.finish_flush(&memtable, writer, begun_ns).map_err(|e| self.write_failed(e))?;
        self.measure_flush(memtable.bytes(), times);
        Ok(Beat::More)
    }

    /// Rests after a beat of a flush that is not urgent (`ingest::flush_rest_ns`): no other
    /// generation waits, nor a checkpoint, nor a full disk. Only for the flushing thread.
    pub fn flush_rest(&self) {
        let seen = self.flush_event.now();
        let is_hasty = self.state.read().memtables.len() > 2
            || self.rt.health.check_user().is_err()
            || self.rt.health.check_open().is_err();
        let now = self.now_ns();
        let rest_ns = match &*self.flush_job.lock() {
            Some(job) if !is_hasty && !self.holds_log(job) => {
                let inputs = [job.done_permille(), now.saturating_sub(job.first_ns), job.fill_ns];
                let rest_ns = ingest::flush_rest_ns(inputs[0], inputs[1], inputs[2]);
                let what = || (inputs.to_vec(), vec![rest_ns]);
                self.rt.journal.note_some(Law::FlushRest, || now, what);
                rest_ns
            }
            _ => 0,
        };
        if rest_ns == 0 {
            return;
        }
        let time = Some(Duration::from_nanos(rest_ns));
        self.rt.wait(&self.flush_event, seen, time, Cause::Idle);
        if let Some(job) = &mut *self.flush_job.lock() {
            // Waiting ingest is limited to the rate at which flushes work.
            job.begun_ns += self.now_ns().saturating_sub(now);
        }
    }

    /// True if a checkpoint must advance past this generation, or soon will: the generation was
    /// handed over when it held half of the log.
    fn holds_log(&self, job: &FlushJob) -> bool {
        let (Some(log), Some(low)) = (self.log.get(), job.memtable.low_lsn()) else { return false };
        let soon = log.end().0.saturating_sub(log.capacity() / 16 * 9);
        low.0 < self.needed_lsn.load(Ordering::SeqCst).max(soon)
    }

    /// Latches a failed write, except a shortage.
    pub(crate) fn write_failed(&self, error: evenkeel_base::Error) -> evenkeel_base::Error {
        match error.code() {
            Code::LogFull | Code::WritesStopped => error,
            code if code.is_shortage() => error,
            _ => self.rt.health.fail(error),
        }
    }

    /// A failed sync of the directory stops writes, whatever the reason and the caller: it may have
    /// lost the name of another thread's file, whose own sync would not report that.
    pub(crate) fn sync_names(&self) -> Result<()> {
        self.rt.env.sync_dir("runs").map_err(|error| self.rt.health.fail(error))
    }

    /// This part of the oldest generation is flushed: the active one has that much more room.
    fn note_flushed_part(&self, permille: u64) {
        self.flushed_permille.store(permille, Ordering::SeqCst);
        self.space.room.wake_first();
    }

    /// Sets the rate limit of ingest that has no other room, by the rate of a flush of which `done`
    /// is written.
    fn set_flush_pace(&self, done: u64, took_ns: u64) {
        let FlushMeter { whole_ns_per_kib: whole, entries_ns_per_kib: entries } =
            *self.flush_meter.lock();
        let pace = ingest::flush_pace_ns(whole, entries, done, took_ns);
        if self.flush_line.set(pace) != pace {
            let what = || (vec![whole, entries, done, took_ns], vec![pace]);
            self.rt.journal.note_some(Law::FlushPace, || self.now_ns(), what);
        }
    }

    /// A flush has ended. A small flush would measure mostly its fixed cost.
    fn measure_flush(&self, bytes: u64, times: FlushTimes) {
        if bytes >= self.generation_bytes() / 2 {
            let now = self.now_ns();
            let mut meter = self.flush_meter.lock();
            let add = |known: &mut u64, until: u64| {
                let took = until.saturating_sub(times.begun_ns);
                *known = ingest::flush_ns_per_kib(*known, bytes, took);
            };
            add(&mut meter.whole_ns_per_kib, now);
            add(&mut meter.entries_ns_per_kib, times.entries_until_ns);
        }
        self.set_flush_pace(0, 0);
    }

    /// Begins to flush the oldest sealed generation, unless operations have it pinned.
    fn begin_flush(&self) -> Result<Option<Box<FlushJob>>> {
        let memtables = self.state.read().memtables.clone();
        let Some(oldest) = memtables.last().filter(|_| memtables.len() > 1) else {
            return Ok(None);
        };
        if oldest.is_pinned() && !evenkeel_base::fault_injection::is(Fault::PinsIgnored) {
            return Ok(None);
        }
        let number = self.next_file();
        let metric = Metric::RunFlushBytes;
        let writer = RunWriter::create(&self.blocks, number, Purpose::FLUSH, metric)?;
        self.flushed_permille.store(0, Ordering::SeqCst);
        Ok(Some(Box::new(FlushJob {
            memtable: oldest.clone(),
            iter: MemIter::of_all(oldest.clone()),
            writer,
            index: None,
            is_dropped: false,
            entries_done: 0,
            begun_ns: self.now_ns(),
            first_ns: self.now_ns(),
            fill_ns: self.fill.lock().took_ns,
            chain: VersionFilter::new(Rules {
                building: false,
                valid_from: Lsn::ZERO,
                bottom: false,
                horizon: Lsn::ZERO,
            }),
        })))
    }

    /// Writes some entries; true at the end.
    fn flush_some(&self, job: &mut FlushJob) -> Result<bool> {
        for _ in 0..BEAT_ENTRIES {
            let Some(node) = job.iter.get() else {
                let writer = &mut job.writer;
                job.chain.end(self.commits(), &mut |k, p, op, v, value| {
                    writer.push(k, p, op, v, value)
                })?;
                return Ok(true);
            };
            let index = job.iter.index();
            let writer = &mut job.writer;
            if job.index != Some(index) {
                job.chain.end(self.commits(), &mut |k, p, op, v, value| {
                    writer.push(k, p, op, v, value)
                })?;
                writer.end()?;
                job.index = Some(index);
                job.is_dropped =
                    !self.begin_slice(index, &job.memtable, writer, &mut job.chain.rules);
            }
            if !job.is_dropped {
                let item = Item {
                    key: node.key,
                    pk_len: node.pk_len,
                    value: node.value,
                    op: node.op,
                    version: Version::Stamped(node.stamp),
                };
                job.chain.push(&item, self.commits(), &mut |k, p, op, v, value| {
                    writer.push(k, p, op, v, value)
                })?;
            }
            job.iter.next();
            job.entries_done += 1;
        }
        Ok(false)
    }

    /// False if the index was dropped, or is damaged.
    fn begin_slice(
        &self,
        index: IndexId,
        memtable: &Memtable,
        writer: &mut RunWriter,
        rules: &mut Rules,
    ) -> bool {
        let state = self.state.read();
        let known = state.indexes.get(&index).filter(|i| i.known && !i.is_damaged());
        let Some(known) = known else { return false };
        rules.building = known.building;
        rules.valid_from = known.valid_from;
        writer.begin(SliceStart {
            index,
            run: 0,
            age_low: memtable.number(),
            age_high: memtable.number(),
            base_cts: memtable.low_lsn().unwrap_or_default(),
            unique_key: known.unique_key,
        });
        true
    }

    fn finish_flush(
        &self,
        memtable: &Arc<Memtable>,
        writer: RunWriter,
        begun_ns: u64,
    ) -> Result<()> {
        let mut added = None;
        if let Some(written) = writer.finish()? {
            self.sync_names()?;
            added = Some((
                RunFile::open(&self.rt, &self.filter_cache, written.number)?,
                written.slices,
            ));
        }
        let _edit = self.manifest.lock(&self.rt, Cause::Idle);
        let mut ops = vec![ManifestOp::Flushed(memtable.number())];
        if let Some((file, slices)) = &added {
            let state = self.state.read();
            if slices.iter().any(|s| state.indexes.contains_key(&s.index)) {
                ops.push(ManifestOp::AddFile(file.number));
            }
        }
        self.rt.step();
        self.append_manifest(&ops)?;
        {
            let mut state = self.state.write();
            if let Some((file, slices)) = added {
                let new: Vec<_> = slices.iter().map(|s| (s.index, s.bytes())).collect();
                state.add_file(&file, slices);
                self.note_flushed(&state, memtable.bytes(), begun_ns, &new);
            }
            Arc::make_mut(&mut state.memtables).retain(|m| !Arc::ptr_eq(m, memtable));
            self.flushed_permille.store(0, Ordering::SeqCst);
            state.flushed = state.flushed.max(memtable.number());
            self.changed(&state);
        }
        self.manifest_done();
        self.rt.metrics.add(Metric::MemtableFlushes, 1);
        self.rt.metrics.sub(Metric::MemtableBytes, memtable.bytes());
        self.space.notify();
        self.compaction_event.notify();
        Ok(())
    }
}
