//! Overflow chains that two threads free at a time: a writer that meets an aborted operation rolls
//! it back, and so does the background.

use super::*;
use evenkeel_base::{Code, PageNo};
use evenkeel_io::sim::{SimDisk, SimEnv, SimOptions};
use std::collections::BTreeSet;

const OWNER: Stamp = Stamp { txn: TxnId(5), undo_no: UndoNo(2) };

fn chain(tree: &Tree, len: usize) -> evenkeel_format::overflow::OverflowRef {
    let mut writer = OverflowWriter::new(tree, OWNER);
    writer.write(&vec![7; len]).unwrap();
    writer.finish().unwrap()
}

/// Reserves log until a page operation would have to wait.
fn all_log_space(db: &Db) -> evenkeel_log::Reserved {
    let mut bytes = 1 << 20;
    loop {
        match db.log.reserve(bytes, Share::User) {
            Ok(reserved) => return reserved,
            Err(error) => assert_eq!(error.code(), Code::LogTooLarge, "{error}"),
        }
        bytes -= PAGE / 4;
    }
}

/// While a thread waits for log space, another one frees the chain, and its extent is given back
/// and punched: the page can no longer be latched, and no damage is reported.
#[test]
fn freeing_a_chain_that_another_thread_has_freed_is_no_error() {
    let sim = SimEnv::new(1);
    let env = sim.env();
    sim.run(vec![Box::new(move || {
        let db = Db::create(env, 2048);
        let tree = db.tree();
        // The value is so long that its next page is in an extent of the tree's own.
        let (first, value) = (chain(&tree, 2 << 20), chain(&tree, 1000));
        db.pages.flush_all().unwrap();
        overflow::free(&tree, &first).unwrap();
        let mut held = all_log_space(&db);
        let (other, late) = (tree.clone(), Arc::new(Mutex::new(None)));
        let result = late.clone();
        let free = move || *result.lock() = Some(overflow::free(&other, &value));
        let task = db.rt.spawn("late", free).unwrap();
        db.rt.delay(Duration::from_secs(1), Cause::Idle);
        assert!(late.lock().is_none(), "it waits for log space");

        let mut mtr = db.pages.begin(3).unwrap();
        let head = mtr.write(value.head).unwrap();
        mtr.free(head).unwrap();
        mtr.page_mut(head)[0] = 0;
        let lsn = mtr.commit(&mut held);
        db.log.wait_durable(lsn).unwrap();
        while db.pages.reclaim_beat().unwrap() == Beat::More {}
        let read = db.pages.read(value.head, evenkeel_pages::Access::Normal).map(|_| ());
        assert_eq!(read.map_err(|e| e.code()), Err(Code::PageUnwritten), "it has no image");
        drop(held);
        task.join().unwrap();
        let late = late.lock().take().expect("it has ended");
        assert_eq!(late.map_err(|e| e.code()), Ok(()));
        assert!(!db.rt.health.is_failed());
    })]);
}

/// A transaction may drop a table while it writes a value of it: the later pieces are refused,
/// whichever tree has the pages by then.
#[test]
fn writing_on_to_a_value_without_its_pages_is_refused() {
    let db = Db::create(Arc::new(evenkeel_io::MemEnv::new()), 256);
    let tree = db.tree();
    let mut writer = OverflowWriter::new(&tree, OWNER);
    writer.write(&vec![7; 3 * PAGE]).unwrap();
    let used = db.pages.used_by(tree.id());
    let last = used.without(&Default::default()).last().expect("the page written last");
    let other = chain(&tree, 0).head;
    let mut reserved = tree.reserve_log().unwrap();
    let mut mtr = db.pages.begin(3).unwrap();
    let slot = mtr.write(last).unwrap();
    mtr.free(slot).unwrap();
    mtr.page_mut(slot)[0] = 0;
    mtr.commit(&mut reserved);
    let error = writer.write(&vec![7; 3 * PAGE]).unwrap_err();
    assert_eq!(error.code(), Code::TreeGone, "{error}");
    assert!(!db.rt.health.is_failed() && tree.pages().is_used_by(other, tree.id()));
}

/// A check that walks along a chain while it is freed names every page that is still in use.
#[test]
fn a_walk_of_a_chain_during_its_free_names_every_used_page() {
    let gone_before_the_end = Arc::new(Mutex::new(0));
    for seed in 0..100 {
        let options = SimOptions { step_switch: 2, ..SimOptions::new(seed) };
        let (sim, count) = (SimEnv::on(SimDisk::new(seed), options), gone_before_the_end.clone());
        let env = sim.env();
        sim.run(vec![Box::new(move || {
            let db = Db::create(env, 256);
            let tree = db.tree();
            let value = chain(&tree, 120_000);
            let all = walked(&tree, &value);
            assert!(all.len() >= 29);
            let other = tree.clone();
            let free = move || overflow::free(&other, &value).unwrap();
            let task = db.rt.spawn("free", free).unwrap();
            loop {
                let seen = walked(&tree, &value);
                let used = |page: &&PageNo| tree.pages().is_used_by(**page, tree.id());
                let left: Vec<_> = all.iter().filter(used).collect();
                let missed: Vec<_> = left.iter().filter(|page| !seen.contains(**page)).collect();
                assert!(missed.is_empty(), "seed {seed}: {missed:?} of {} left", left.len());
                if left.is_empty() {
                    break;
                }
                *count.lock() += u32::from(left.len() < all.len());
                db.rt.step();
            }
            task.join().unwrap();
        })]);
    }
    let walks = *gone_before_the_end.lock();
    assert!(walks > 100, "{walks} walks met a chain that was being freed");
}

fn walked(tree: &Tree, value: &evenkeel_format::overflow::OverflowRef) -> BTreeSet<PageNo> {
    let mut pages = BTreeSet::new();
    overflow::pages(tree, value, &mut |page| _ = pages.insert(page)).unwrap();
    pages
}
