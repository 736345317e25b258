//! What a commit and an append cost, beside a bare loop of write and fdatasync:
//! `cargo run --release -p evenkeel-log --example commit_cost [new directory]`.

use evenkeel_base::{Lsn, Result, metrics::Metric};
use evenkeel_format::record::RecordKind;
use evenkeel_io::{AlignedBuf, OpenMode, RealEnv, Runtime};
use evenkeel_log::{Log, LogOptions, Replay, Share, replay};
use std::sync::Arc;

const BODY: usize = 10_000;
const ROUNDS: usize = 1500;

/// Median and 99th percentile of `f`, microseconds.
fn time(rt: &Runtime, mut f: impl FnMut() -> Result<()>) -> Result<(f64, f64)> {
    let mut ns = Vec::with_capacity(ROUNDS);
    for _ in 0..ROUNDS {
        let start = rt.env.now_ns();
        f()?;
        ns.push(rt.env.now_ns() - start);
    }
    ns.sort_unstable();
    Ok((ns[ROUNDS / 2] as f64 / 1e3, ns[ROUNDS * 99 / 100] as f64 / 1e3))
}

/// Writes `bytes` at a time to a zero-written file.
fn bare(rt: &Runtime, bytes: usize) -> Result<(f64, f64)> {
    let file = rt.env.open("bare", OpenMode::READ_WRITE.direct())?;
    let size = ROUNDS * bytes;
    let zeros = AlignedBuf::new(1 << 20);
    for at in 0..size.div_ceil(1 << 20) {
        file.write_at(&zeros, (at << 20) as u64)?;
    }
    file.sync()?;
    let mut at = 0;
    let result = time(rt, || {
        file.write_at(&zeros[..bytes], at)?;
        at += bytes as u64;
        file.sync()
    });
    rt.env.remove("bare")?;
    result
}

fn log(rt: &Arc<Runtime>, align: u64, epoch: u32, start: Lsn) -> Result<Arc<Log>> {
    let options = LogOptions { log_bytes: 512 << 20, buffer_bytes: 16 << 20, epoch };
    Log::create_aligned(rt.clone(), options, start, align)
}

/// Commits of one thread; microseconds and bytes written per commit.
fn commits(rt: &Arc<Runtime>, log: &Log, body: &[u8]) -> Result<(f64, f64, u64)> {
    let before = rt.metrics.get(Metric::LogBytes);
    let (p50, p99) = time(rt, || {
        let mut r = log.reserve(body.len(), Share::User)?;
        let lsn = log.append(&mut r, RecordKind::Row, &[body]);
        drop(r);
        log.wait_durable(lsn)
    })?;
    while log.beat()? == evenkeel_base::Beat::More {}
    Ok((p50, p99, (rt.metrics.get(Metric::LogBytes) - before) / ROUNDS as u64))
}

fn main() -> Result<()> {
    let dir = std::env::args().nth(1).unwrap_or_else(|| "target/commit_cost".into());
    let rt = Runtime::new(Arc::new(RealEnv::new(&dir)));
    rt.env.create_dir("")?;
    let body = vec![7u8; BODY];
    let mut end = Lsn(0);
    for round in 0..3u32 {
        for (i, align) in [1u64, 8].into_iter().enumerate() {
            let blocks = (BODY + 5).div_ceil(480).next_multiple_of(align as usize);
            let (b50, b99) = bare(&rt, blocks * 512)?;
            let log = log(&rt, align, round * 2 + i as u32 + 1, end)?;
            log.set_checkpoint(end.max(log.checkpoint_lsn()).min(log.durable()))?;
            while log.beat()? == evenkeel_base::Beat::More {}
            let (p50, p99, bytes) = commits(&rt, &log, &body)?;
            println!(
                "pad {:>4}: commit of {BODY} bytes p50 {p50:.1} us p99 {p99:.1} us, {bytes} bytes \
                 written; bare write+fdatasync of {} p50 {b50:.1} us p99 {b99:.1} us: {:.2}x",
                align * 512,
                blocks * 512,
                p50 / b50
            );
            end = log.end();
        }
    }
    let log = log(&rt, 1, 100, end)?;
    for len in [100usize, 500, 10_000] {
        let (mut appends, mut reserves) = (0u64, 0u64);
        let n = 8 * ROUNDS;
        for i in 0..n {
            let t0 = rt.env.now_ns();
            let mut r = log.reserve(len, Share::User)?;
            let t1 = rt.env.now_ns();
            let lsn = log.append(&mut r, RecordKind::Row, &[&body[..len]]);
            let t2 = rt.env.now_ns();
            drop(r);
            reserves += t1 - t0 + (rt.env.now_ns() - t2);
            appends += t2 - t1;
            if i % 256 == 0 {
                log.wait_durable(lsn)?;
                log.set_checkpoint(log.durable())?;
                while log.beat()? == evenkeel_base::Beat::More {}
            }
        }
        println!(
            "append of {len} bytes: {} ns; its reservation: {} ns",
            appends / n as u64,
            reserves / n as u64
        );
    }
    scan(&rt, &log, &body)
}

/// How fast replay reads.
fn scan(rt: &Arc<Runtime>, log: &Log, body: &[u8]) -> Result<()> {
    log.wait_durable(log.end())?;
    let from = log.durable();
    log.set_checkpoint(from)?;
    for _ in 0..20_000 {
        let mut r = log.reserve(BODY, Share::User)?;
        log.append(&mut r, RecordKind::Row, &[body]);
    }
    log.wait_durable(log.end())?;
    let start = rt.env.now_ns();
    let mut count = Count(0);
    replay(rt, from, None, &mut count)?;
    let seconds = (rt.env.now_ns() - start) as f64 / 1e9;
    let mib = (log.end().0 - from.0) as f64 / (1 << 20) as f64;
    println!("replay of {} records, {mib:.0} MiB: {:.0} MiB/s", count.0, mib / seconds);
    Ok(())
}

struct Count(u64);
impl Replay for Count {
    fn record(&mut self, _lsn: Lsn, _kind: RecordKind, _body: &[u8]) -> Result<()> {
        self.0 += 1;
        Ok(())
    }
}
