//! Runs a fuzz target over a corpus and seeded mutations, one after the other. No thread may panic,
//! and each input may take at most one second of processor time and 64 MiB more than the corpus
//! took. Run it in a process that has not generated the corpus, since it measures the memory of the
//! process. It measures address space, so memory that is requested and never touched counts. With
//! `MALLOC_ARENA_MAX=1` the allocator reserves no address space for threads.

use crate::fuzz::Target;
use crate::mutate::mutate;
use crate::panics;
use evenkeel_io::Rng;
use std::ops::Range;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Memory that one input may take.
pub const MEMORY_KIB: u64 = 64 << 10;

/// The measurements of a run.
#[derive(Clone, Copy, Debug)]
pub struct Seen {
    /// Milliseconds that the slowest mutation took.
    pub slowest_ms: u64,
    /// Address space after the corpus.
    pub before_kib: u64,
    /// Address space that the mutations took in addition.
    pub memory_kib: u64,
}

/// Processor time of this thread; elapsed time if the system does not report it.
fn processor_time() -> Duration {
    static START: OnceLock<Instant> = OnceLock::new();
    let said = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let ns = said.split_whitespace().next().and_then(|ns| ns.parse().ok());
    ns.map_or_else(|| START.get_or_init(Instant::now).elapsed(), Duration::from_nanos)
}

/// Peak address space of this process, KiB.
fn peak_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux");
    let line = status.lines().find(|l| l.starts_with("VmPeak:")).expect("a line");
    line.split_whitespace().nth(1).and_then(|n| n.parse().ok()).expect("a number")
}

/// Runs a target over the whole corpus and one mutation for each seed.
///
/// # Panics
/// If an input panics, or takes too much time or memory.
pub fn run((name, body): &Target, corpus: &[Vec<u8>], seeds: Range<u64>) -> Seen {
    assert!(!corpus.is_empty(), "{name}: nothing to begin with");
    corpus.iter().for_each(|input| body(input));
    let mut seen = Seen { slowest_ms: 0, before_kib: peak_kib(), memory_kib: 0 };
    for seed in seeds {
        let took = one(name, *body, corpus, seed);
        seen.slowest_ms = seen.slowest_ms.max(took.as_millis() as u64);
        seen.memory_kib = peak_kib() - seen.before_kib;
        let more = seen.memory_kib;
        assert!(more <= MEMORY_KIB, "{name}: seed {seed} takes {more} KiB");
    }
    seen
}

/// Processor time that a mutation took.
fn one(name: &str, body: fn(&[u8]), corpus: &[Vec<u8>], seed: u64) -> Duration {
    let mut rng = Rng::new(seed);
    let pick = |rng: &mut Rng| &corpus[rng.below(corpus.len() as u64) as usize];
    let (first, other) = (pick(&mut rng), pick(&mut rng));
    let input = mutate(&mut rng, first, other);
    let before = (Instant::now(), processor_time());
    let (panics, done) = (panics::count(), std::panic::catch_unwind(|| body(&input)));
    assert!(done.is_ok() && panics::count() == panics, "{name}: seed {seed} panics");
    let took = processor_time().saturating_sub(before.1);
    assert!(took < Duration::from_secs(1), "{name}: seed {seed} takes {took:?}");
    // Other processes of the machine may delay the thread, but not without limit.
    assert!(before.0.elapsed() < Duration::from_secs(100), "{name}: seed {seed} hangs");
    took
}

/// Requests more memory than an input may take, at its eleventh input, and does not touch it. It
/// checks that the limit is measured.
pub fn greedy(_: &[u8]) {
    static CALLS: AtomicU64 = AtomicU64::new(0);
    if CALLS.fetch_add(1, Ordering::Relaxed) == 10 {
        drop(std::hint::black_box(Vec::<u8>::with_capacity(100 << 20)));
    }
}
