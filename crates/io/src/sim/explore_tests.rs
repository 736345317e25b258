//! The enumeration finds what a careless program loses, and lets a careful one pass.
use super::*;
use evenkeel_base::sync::Mutex;
use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};

/// Replaces the content of `a` by writing a new file and renaming it; `careful` also syncs.
fn replace(sim: &SimEnv, value: u8, careful: bool) -> Result<()> {
    let env = sim.env();
    let file = env.open("a.new", OpenMode::READ_WRITE)?;
    file.write_at(&[value; 2048], 0)?;
    if careful {
        file.sync()?;
    }
    env.rename("a.new", "a")?;
    env.sync_dir("")
}

fn explore(seed: u64, careful: bool) -> Explored {
    let script = move |sim: &SimEnv, promised: &Arc<AtomicU64>| {
        for value in 1..=4 {
            if replace(sim, value, careful).is_err() {
                return;
            }
            promised.store(u64::from(value), Ordering::SeqCst);
        }
    };
    let check = |sim: &SimEnv, promised: &AtomicU64, which: Survivor| {
        let promised = promised.load(Ordering::SeqCst) as u8;
        let content = sim.disk().content("a").unwrap_or_default();
        let value = content.first().copied().unwrap_or(0);
        let whole = content.is_empty() || content == [value; 2048];
        assert!(whole && (promised..=promised + 1).contains(&value), "{which}: {value}");
    };
    Explore { rounds: 4, ..Explore::new(seed) }.run(&SimDisk::new(seed), script, check)
}

#[test]
fn a_careful_program_passes_every_crash() {
    let explored = explore(1, true);
    // Five changes each (create, write, sync, rename, sync_dir), and the run without a crash.
    assert_eq!(explored.points, 4 * 5 + 1);
    assert!(explored.survivors > 60 && explored.states.len() > 20, "{explored:?}");
    assert_eq!(explored, explore(1, true), "repeatable");
}

#[test]
fn a_careless_program_is_caught() {
    let result = catch_unwind(AssertUnwindSafe(|| explore(1, false)));
    let text = panic_text(&*result.expect_err("no sync before the rename")).unwrap_or_default();
    assert!(text.contains("seed 1, crash in change"), "{text}");
}

#[test]
fn a_panic_of_the_script_names_the_crash_point() {
    let script = |sim: &SimEnv, _: &Arc<()>| {
        replace(sim, 1, true).expect("a program that takes no error");
    };
    let run = || Explore::new(4).run(&SimDisk::new(1), script, |_, (), _| {});
    let text = panic_text(&*catch_unwind(AssertUnwindSafe(run)).expect_err("panics"));
    assert!(
        text.is_some_and(|t| t.starts_with("seed 4, crash in change 1, the script: a program"))
    );
}

#[test]
fn threads_and_strides() {
    let script = |sim: &SimEnv, acknowledged: &Arc<AtomicU64>| {
        let (env, acknowledged) = (sim.env(), acknowledged.clone());
        let Ok(file) = env.open("log", OpenMode::READ_WRITE) else { return };
        if env.sync_dir("").is_err() {
            return;
        }
        let session = |id: u64| {
            let (file, acknowledged) = (file.clone(), acknowledged.clone());
            Box::new(move || {
                for i in 0..4 {
                    let at = (id * 4 + i) * SECTOR as u64;
                    if file.write_at(&[1; SECTOR], at).and_then(|()| file.sync()).is_err() {
                        return;
                    }
                    acknowledged.fetch_add(1, Ordering::SeqCst);
                }
            }) as Session
        };
        sim.run((0..3).map(session).collect());
    };
    let check = |sim: &SimEnv, acknowledged: &AtomicU64, which: Survivor| {
        let content = sim.disk().content("log").unwrap_or_default();
        let there = content.chunks(SECTOR).filter(|s| *s == [1; SECTOR]).count() as u64;
        assert!(there >= acknowledged.load(Ordering::SeqCst), "{which}");
    };
    for seed in 1..=2 {
        let tried = Mutex::new(BTreeSet::new());
        for n in (seed - 1) * 5..seed * 5 {
            let explore = Explore::nth(n, 5);
            let (first, of) = (explore.first, explore.seed);
            assert_eq!(of, seed);
            let noted = |sim: &SimEnv, acknowledged: &AtomicU64, which: Survivor| {
                tried.lock().insert(which.change);
                check(sim, acknowledged, which);
            };
            let explored = explore.run(&SimDisk::new(seed), script, noted);
            assert!((4..=7).contains(&explored.points), "from {first}: {explored:?}");
        }
        // All points, and a few runs without a crash.
        let tried = tried.into_inner();
        assert!(tried.iter().copied().eq(1..=tried.len() as u64), "{tried:?}");
    }
}
