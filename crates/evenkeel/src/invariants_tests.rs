//! The end of a database notices what nobody has given back.

use crate::{Database, Options};
use evenkeel_base::PageNo;
use evenkeel_log::Share;
use evenkeel_pages::Access;

fn database() -> Database {
    Database::open_with("checked", Options::in_memory()).expect("opens")
}

#[test]
#[should_panic(expected = "snapshots are held")]
fn the_end_of_a_database_notices_a_snapshot_that_is_still_held() {
    let db = database();
    std::mem::forget(db.engine.txns.snapshot());
    db.clone().close().expect("closes");
    db.check_unused();
}

#[test]
#[should_panic(expected = "reserved for users")]
fn the_end_of_a_database_notices_log_space_that_is_still_reserved() {
    let db = database();
    std::mem::forget(db.engine.log.reserve(100, Share::User).expect("reserves"));
    db.close().expect("closes");
}

#[test]
#[should_panic(expected = "is latched")]
fn the_end_of_a_database_notices_a_page_that_is_still_latched() {
    let db = database();
    let engine = db.engine.clone();
    let cached = (0..1_000).map(PageNo).find(|page| engine.pages.is_cached(*page));
    let page = cached.expect("a page is in memory");
    std::mem::forget(engine.pages.read(page, Access::Normal).expect("reads"));
    drop(engine);
    // Only a reader holds it, so a close needs no more than to read it.
    db.close().expect("closes");
}
