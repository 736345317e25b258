//! Checks the statements of `docs/scale.md` about the pictures, at small sizes.

use super::{BUILD, RowBytes, Setup, run, sim};
use evenkeel_sched::laws::depths::RUNS_LIMIT;

const SCALE: u64 = 200;

fn figures(name: &str) -> (Setup, sim::Figures) {
    let setups = Setup::all(SCALE);
    let setup = setups.into_iter().find(|s| s.name == name).expect("a case");
    let figures = sim::run(&setup);
    (setup, figures)
}

/// D3: ingest during long compactions is even, and compactions write a proportionate number of
/// bytes. The queue of the disk stays a few beats long.
#[test]
fn ingest_is_even_during_hours_of_compaction() {
    for (name, written) in
        [("150 GB, slow disk", 680.0), ("1 TB, slow disk", 1_000.0), ("10 TB, fast disk", 2_100.0)]
    {
        let (least, average) = (0.9, 0.98);
        let (setup, figures) = figures(name);
        let per_row = figures.written_all / figures.rows_all;
        assert!(per_row < written, "{name}: {per_row} bytes written per row");
        let loaded = setup.loaded_steps(figures.rows.len() as u64) as usize;
        let rows = &figures.rows[..loaded];
        let asked = setup.rows_per_sec as f64;
        assert!(rows.iter().all(|rows| *rows > least * asked), "{name}: {rows:?}");
        let mean = rows.iter().sum::<f64>() / rows.len() as f64;
        assert!(mean > average * asked, "{name}: {mean}");
        assert!(figures.into_bottom > 0.0, "{name}: no long compaction");
        assert!(figures.longest < 0.2, "{name}: a queue of {} s", figures.longest);
    }
}

/// Indexes of 6,000 generations grow to 18,000 on disks that could take a little more: ingest is
/// even. It sank to a fifth when small runs were locked by long compactions, and at least 910 bytes
/// were written per row.
#[test]
fn large_indexes_grow_evenly() {
    const RATIO: f64 = 6_000.0;
    for disk_bytes_per_sec in [60_000_000, 65_000_000] {
        let row = RowBytes::TYPICAL;
        let (generation, rows_per_sec) = ((256 << 20) / 16, 30_000);
        let index = RATIO * row.run(generation as f64);
        let rows = 2.0 * index / row.entry_disk;
        let setup = Setup {
            name: "grows threefold",
            data_bytes: (index / row.entry_disk * row.stored()) as u64,
            rows_per_sec,
            disk_bytes_per_sec,
            disk_ios_per_sec: 200_000,
            generation_bytes: generation,
            connections: 64,
            tx_ns: 5_000_000,
            seconds: (rows / rows_per_sec as f64 * 1.2) as u64,
            points: 720,
            cores: 0,
            compacted_bytes_per_core: 0,
            builds: false,
        };
        let figures = sim::run(&setup);
        let loaded = setup.loaded_steps(figures.rows.len() as u64) as usize;
        let least = figures.rows[..loaded].iter().copied().fold(f64::INFINITY, f64::min);
        assert!(least > 0.9 * rows_per_sec as f64, "{disk_bytes_per_sec}: {least}");
        let per_row = figures.written_all / figures.rows_all;
        assert!(per_row < 850.0, "{disk_bytes_per_sec}: {per_row} bytes written per row");
    }
}

/// Above the rate that the disk permits, ingest is slowed and does not stop, and the limit of runs
/// holds.
#[test]
fn excess_ingest_is_slowed_and_runs_stay_within_the_limit() {
    for setup in Setup::all(SCALE) {
        let figures = sim::run(&setup);
        let most = figures.runs.iter().copied().fold(0.0, f64::max);
        assert!(most <= RUNS_LIMIT as f64, "{}: {most} runs", setup.name);
        assert!(figures.rows_all > 0.0);
    }
    let (setup, figures) = figures("1 TB, slow disk, more than it can");
    let loaded = setup.loaded_steps(figures.rows.len() as u64) as usize;
    assert!(figures.rows[..loaded].iter().all(|rows| *rows > 0.0), "{:?}", figures.rows);
    assert!(figures.waits.iter().flatten().any(|share| *share > 0.1));
}

/// D2, G2: an index build takes the tenth of the disk that waiting users leave, and they hardly
/// slow down. The governor reduces it further if the disk becomes slower.
#[test]
fn an_index_build_uses_the_device_that_ingest_leaves() {
    let (setup, beside) = figures(BUILD);
    let (_, alone) = figures("1 TB, slow disk");
    let loaded = setup.loaded_steps(beside.rows.len() as u64) as usize;
    let built = beside.built.expect("it ended");
    let least = |figures: &sim::Figures| {
        figures.rows[..loaded].iter().copied().fold(f64::INFINITY, f64::min)
    };
    assert!(least(&beside) > 0.9 * least(&alone), "{beside:?}");
    let rate = setup.disk_bytes_per_sec as f64;
    let row = RowBytes::TYPICAL;
    let bytes = setup.data_bytes as f64 / row.stored() * (row.row + 3.0 * row.entry_disk);
    assert!(built < bytes / (rate / 10.0) * 1.3, "{built} s of {}", setup.seconds);
    // The decisions differ from "no limit", and the grants follow them.
    assert!(beside.budget.iter().any(|budget| *budget < 0.95 * rate), "{:?}", beside.budget);
    let interval = setup.seconds as f64 / setup.points as f64;
    let spare = &beside.spare[1..loaded.min((built / interval) as usize)];
    let (least, most) = (rate / 100.0, rate / 8.0);
    assert!(spare.iter().all(|spare| (least..most).contains(spare)), "{spare:?}");
    assert!(beside.longest < 0.2, "a queue of {} s", beside.longest);
}

/// If a compaction thread computes more slowly than the disk writes, ingest gets the rate that the
/// machine's threads can compact; helping threads join no compaction that another thread has.
#[test]
fn more_cores_compact_more() {
    let name = "10 TB, fast disk, 2 cores";
    let (two, few) = figures(name);
    let (many, all) = figures("10 TB, fast disk, 64 cores");
    assert_eq!((two.compaction_threads(), many.compaction_threads()), (2, 5));
    let one = sim::run(&Setup { cores: 0, ..two.clone() });
    assert!(one.rows_all < 0.8 * few.rows_all, "{} {}", one.rows_all, few.rows_all);
    assert!(few.rows_all < 0.9 * all.rows_all, "{} {}", few.rows_all, all.rows_all);
    for figures in [one, few, all] {
        assert!(figures.rows_all > 0.0);
        assert!(figures.runs.iter().all(|runs| *runs <= RUNS_LIMIT as f64), "{:?}", figures.runs);
    }
}

/// Without ingest, compactions come to an end.
#[test]
fn an_idle_index_ends_with_few_runs() {
    let (_, figures) = figures("150 GB, slow disk");
    let at_rest = *figures.runs.last().expect("points");
    assert!(at_rest <= 3.0, "{at_rest} runs: {:?}", figures.runs);
}

#[test]
fn the_same_seed_gives_the_same_outcome() {
    assert_eq!(run(2_000, 1).text(), run(2_000, 1).text());
}
