//! Every fuzz target over its corpus and 20,000 seeded mutations, on every core: no panic in any
//! thread, each input within a second of the
//! processor's time. In the release ladder `EVENKEEL_FUZZ` times as many; of
//! those that work on a database (`open`, and `operations`: programs of up to 200 statements) 5
//! times.

use evenkeel_io::Rng;
use evenkeel_trust::fuzz::{self, Target};
use evenkeel_trust::mutate::mutate;
use evenkeel_trust::panics;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

const MUTATIONS: u64 = 20_000;

fn times() -> u64 {
    std::env::var("EVENKEEL_FUZZ").ok().and_then(|v| v.parse().ok()).unwrap_or(1)
}

/// What this thread has had of the processor; all time where the system does not say.
fn processor_time() -> Duration {
    static START: OnceLock<Instant> = OnceLock::new();
    let said = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let ns = said.split_whitespace().next().and_then(|ns| ns.parse().ok());
    ns.map_or_else(|| START.get_or_init(Instant::now).elapsed(), Duration::from_nanos)
}

fn run((name, body): &Target, count: u64) {
    let corpus = fuzz::corpus(name);
    assert!(!corpus.is_empty());
    corpus.iter().for_each(|input| body(input));
    let (start, next, slowest) = (Instant::now(), AtomicU64::new(0), AtomicU64::new(0));
    let one = |seed| {
        let mut rng = Rng::new(seed);
        let pick = |rng: &mut Rng| &corpus[rng.below(corpus.len() as u64) as usize];
        let (first, other) = (pick(&mut rng), pick(&mut rng));
        let input = mutate(&mut rng, first, other);
        let before = (Instant::now(), processor_time());
        // The count is of all threads: the seed is this one, or one that runs beside it.
        let (seen, done) = (panics::count(), std::panic::catch_unwind(|| body(&input)));
        assert!(done.is_ok() && panics::count() == seen, "{name}: seed {seed} panics");
        let took = processor_time().saturating_sub(before.1);
        slowest.fetch_max(took.as_millis() as u64, Ordering::Relaxed);
        assert!(took < Duration::from_secs(1), "{name}: seed {seed} takes {took:?}");
        // It may stand still for others of the machine, but not for ever.
        assert!(before.0.elapsed() < Duration::from_secs(100), "{name}: seed {seed} hangs");
    };
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                loop {
                    match next.fetch_add(1, Ordering::Relaxed) {
                        seed if seed < count => one(seed),
                        _ => return,
                    }
                }
            });
        }
    });
    println!(
        "{name}: {} inputs, {count} mutations in {:?}, the slowest {slowest:?} ms",
        corpus.len(),
        start.elapsed()
    );
}

#[test]
fn decoders_take_any_bytes() {
    fuzz::DECODERS.iter().for_each(|target| run(target, MUTATIONS * times()));
}

#[test]
fn directories_and_programs() {
    fuzz::DATABASES.iter().for_each(|target| run(target, MUTATIONS * times().min(5)));
}
