//! Storage is given back in pieces.
use crate::delete_scheduler::{FILES_MAX, PIECE_BYTES};
use crate::{CrashPolicy, OpenMode, Runtime, SimEnv};
use evenkeel_base::sync::Mutex;
use evenkeel_base::{Beat, Cause, metrics::Metric};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

const MIB: u64 = 1 << 20;
const PIECES: u64 = 32;

fn large_file(rt: &Runtime, path: &str) {
    let file = rt.env.open(path, OpenMode::READ_WRITE).expect("open");
    file.allocate(0, PIECES * PIECE_BYTES - 1000).expect("allocated");
    file.sync().expect("sync");
}

/// The longest time that a write and sync of a log take while a file is removed.
fn longest_sync(with_thread: bool) -> Duration {
    let sim = SimEnv::new(7);
    let rt = sim.runtime();
    large_file(&rt, "large");
    sim.set_device(400 * MIB);
    sim.set_device_frees(1000 * MIB);
    let (over, longest) = (Arc::new(AtomicBool::new(false)), Arc::new(Mutex::new(Duration::ZERO)));
    let mut tasks = Vec::new();
    if with_thread {
        let (own, stop, event) = (rt.clone(), over.clone(), rt.start_deletes());
        let body = move || {
            while !stop.load(SeqCst) {
                let seen = event.now();
                if own.delete_beat().expect("a beat") == Beat::Idle {
                    own.wait(&event, seen, Some(Duration::from_millis(1)), Cause::Idle);
                }
            }
        };
        tasks.push(rt.spawn("trash", body).expect("spawn"));
    }
    let (own, stop, longest_of) = (rt.clone(), over.clone(), longest.clone());
    let syncs = move || {
        let log = own.env.open("log", OpenMode::READ_WRITE).expect("open");
        while !stop.load(SeqCst) {
            let start = own.env.now_ns();
            log.write_at(&[1; 4096], 0).expect("write");
            log.sync().expect("sync");
            let took = Duration::from_nanos(own.env.now_ns() - start);
            let mut longest = longest_of.lock();
            *longest = took.max(*longest);
        }
    };
    let own = rt.clone();
    let remove = move || {
        own.delay(Duration::from_millis(20), Cause::Idle);
        own.remove_file("large").expect("removed");
        assert!(own.env.list("").expect("list").iter().all(|name| name != "large"));
        own.delay(Duration::from_millis(500), Cause::Idle);
        over.store(true, SeqCst);
    };
    tasks.push(rt.spawn("log", syncs).expect("spawn"));
    tasks.push(rt.spawn("remover", remove).expect("spawn"));
    sim.run(vec![Box::new(move || tasks.into_iter().for_each(|t| t.join().expect("join")))]);
    assert_eq!(rt.metrics.get(Metric::PendingDeleteBytes), 0);
    assert!(sim.disk().used_bytes() <= 4096, "all of it is free");
    *longest.lock()
}

/// A device that discards freed space is busy with 64 MiB of it for 64 ms; a commit waits for one
/// piece of 2 MiB instead.
#[test]
fn a_large_file_is_removed_a_piece_at_a_time() {
    let at_once = longest_sync(false);
    assert!(at_once > Duration::from_millis(60), "{at_once:?}");
    let in_pieces = longest_sync(true);
    assert!(in_pieces < Duration::from_millis(6), "{in_pieces:?}");
}

#[test]
fn dead_ranges_are_freed_in_pieces_and_live_ranges_stay() {
    let sim = SimEnv::new(3);
    let rt = sim.runtime();
    large_file(&rt, "large");
    rt.env.create_dir("d").expect("made");
    large_file(&rt, "d/other");
    let all = sim.disk().used_bytes();
    let open = || rt.env.open("large", OpenMode::READ_WRITE).expect("open");
    let len = open().len().expect("length");
    rt.punch_file("large", 4096..8192).expect("at once, where no thread does it");
    assert_eq!(sim.disk().used_bytes(), all - 4096);
    rt.start_deletes();
    rt.punch_file("large", MIB..MIB + 2 * PIECE_BYTES + 4096).expect("later");
    rt.punch_file("large", MIB..MIB).expect("nothing");
    assert_eq!(rt.metrics.get(Metric::PendingDeleteBytes), 2 * PIECE_BYTES + 4096);
    let beats = AtomicUsize::new(0);
    while rt.delete_beat().expect("a beat") == Beat::More {
        beats.fetch_add(1, SeqCst);
    }
    assert_eq!(beats.load(SeqCst), 3);
    assert_eq!(sim.disk().used_bytes(), all - 4096 - 2 * PIECE_BYTES - 4096);
    assert_eq!(open().len().expect("length"), len);
    // When the thread ends, the rest is removed at once, dead ranges of live files too.
    rt.remove_file("d/other").expect("removed");
    assert_eq!(rt.delete_beat().expect("a beat"), Beat::More);
    let (before, from) = (sim.disk().used_bytes(), 10 * MIB);
    rt.punch_file("large", from..from + 3 * PIECE_BYTES).expect("later");
    rt.stop_deletes();
    let other = len.next_multiple_of(4096) - PIECE_BYTES;
    assert!(sim.disk().used_bytes() <= before - 3 * PIECE_BYTES - other + 4096);
    assert_eq!(rt.metrics.get(Metric::PendingDeleteBytes), 0);
    assert_eq!(rt.delete_beat().expect("a beat"), Beat::Idle);
    assert!(sim.disk().used_bytes() < all / 2);
    rt.remove_file("none").expect("there is none");
    // A removed file has no dead ranges.
    rt.start_deletes();
    rt.punch_file("large", 0..len).expect("later");
    rt.env.remove("large").expect("removed");
    assert_eq!(rt.delete_beat().expect("a beat"), Beat::More);
    assert_eq!((sim.disk().used_bytes(), rt.metrics.get(Metric::PendingDeleteBytes)), (0, 0));
}

/// The scheduler keeps few files open, however many it removes.
#[test]
fn many_files_are_removed_at_once() {
    let sim = SimEnv::new(3);
    let rt = sim.runtime();
    let name = |n: usize| format!("large{n}");
    (0..FILES_MAX + 3).for_each(|n| large_file(&rt, &name(n)));
    let all = sim.disk().used_bytes();
    rt.start_deletes();
    (0..FILES_MAX + 3).for_each(|n| rt.remove_file(&name(n)).expect("removed"));
    let each = all / (FILES_MAX as u64 + 3);
    assert_eq!(sim.disk().used_bytes(), each * FILES_MAX as u64);
    while rt.delete_beat().expect("a beat") == Beat::More {}
    assert_eq!((sim.disk().used_bytes(), rt.metrics.get(Metric::PendingDeleteBytes)), (0, 0));
}

/// After a crash a removed file is whole or gone, never cut: its name goes for good first.
#[test]
fn a_file_is_cut_only_when_its_name_is_gone_for_good() {
    for step in 1.. {
        let sim = SimEnv::new(step);
        let rt = sim.runtime();
        large_file(&rt, "large");
        rt.env.sync_dir("").expect("sync");
        let len = rt.env.open("large", OpenMode::READ).expect("open").len().expect("length");
        rt.start_deletes();
        sim.disk().crash_at(sim.disk().calls() + step);
        let work = || {
            rt.remove_file("large")?;
            while rt.delete_beat()? == Beat::More {}
            Ok::<_, evenkeel_base::Error>(())
        };
        let _ = crate::sim::catch_crash(work);
        if !sim.disk().is_crashed() {
            assert!(step > PIECES, "{step}");
            return;
        }
        for policy in CrashPolicy::ALL {
            if let Some(content) = sim.disk().crash(*policy, step).content("large") {
                assert_eq!(content.len() as u64, len, "step {step}, {policy:?}");
            }
        }
    }
}
