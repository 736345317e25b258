//! Every fuzz target over its corpus and 20,000 seeded mutations (`EVENKEEL_FUZZ` times as many in
//! the release ladder): no panic in any thread, each input within a second. `open` takes 2,000,
//! since each opens and reads a directory, `operations` 1,000 programs of up to 200 statements.

use evenkeel::{Database, Options};
use evenkeel_io::Rng;
use evenkeel_trust::fuzz::{self, Target};
use evenkeel_trust::mutate::mutate;
use evenkeel_trust::panics;
use std::time::{Duration, Instant};

fn times() -> u64 {
    std::env::var("EVENKEEL_FUZZ").ok().and_then(|v| v.parse().ok()).unwrap_or(1)
}

fn run((name, body): &Target, count: u64) {
    let corpus = fuzz::corpus(name);
    assert!(!corpus.is_empty());
    corpus.iter().for_each(|input| body(input));
    let start = Instant::now();
    for seed in 0..count {
        let mut rng = Rng::new(seed);
        let pick = |rng: &mut Rng| &corpus[rng.below(corpus.len() as u64) as usize];
        let (first, other) = (pick(&mut rng), pick(&mut rng));
        let input = mutate(&mut rng, first, other);
        let before = Instant::now();
        let (seen, done) = (panics::count(), std::panic::catch_unwind(|| body(&input)));
        assert!(done.is_ok() && panics::count() == seen, "{name}: seed {seed} panics");
        assert!(before.elapsed() < Duration::from_secs(1), "{name}: seed {seed} takes too long");
    }
    println!("{name}: {} inputs, {count} mutations in {:?}", corpus.len(), start.elapsed());
}

#[test]
fn decoders_take_any_bytes() {
    fuzz::DECODERS.iter().for_each(|target| run(target, 20_000 * times()));
}

#[test]
fn any_directory_is_opened_or_refused() {
    let target = fuzz::DATABASES.iter().find(|(name, _)| *name == "open").expect("there");
    run(target, 2_000 * times());
}

#[test]
fn operations_agree_with_a_map() {
    let db = Database::open_with("dir", Options::in_memory()).expect("opens");
    db.create_table("t", &fuzz::small_table()).expect("creates");
    let seeds = 1000 * times();
    for seed in 0..seeds {
        let mut rng = Rng::new(seed);
        let program: Vec<u8> = (0..rng.below(400)).map(|_| rng.next_u64() as u8).collect();
        fuzz::operations(&db, &program);
    }
    println!("operations: {seeds} programs");
}
