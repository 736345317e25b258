//! Log space for a change within an operation that holds some.

use crate::{Log, LogOptions, Share};
use evenkeel_base::{Cause, Lsn, Result};
use evenkeel_format::record::RecordKind;
use evenkeel_io::sim::{Session, SimEnv};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// A change within an operation waits neither for the buffer nor behind waiting users.
#[test]
fn changes_within_an_operation_wait_for_no_other_user() -> Result<()> {
    let sim = SimEnv::new(1);
    let rt = sim.runtime();
    let log = Log::create(
        rt.clone(),
        LogOptions { log_bytes: 1 << 20, buffer_bytes: 128 << 10, epoch: 1 },
        Lsn(0),
    )?;
    let (done, is_done) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let (held, waits) = (log.clone(), log.clone());
    let (tell, told, rt2) = (done.clone(), is_done.clone(), rt.clone());
    let ms = std::time::Duration::from_millis;
    let first: Session = Box::new(move || {
        let operation = held.reserve(100 << 10, Share::User).expect("room");
        // The user waits for space that this operation holds.
        rt.delay(ms(10), Cause::Idle);
        assert!(!told.load(Ordering::SeqCst), "it has to wait");
        let mut split = held.reserve(70 << 10, Share::Within).expect("room");
        held.append(&mut split, RecordKind::Page, &[&[1; 60 << 10]]);
        drop((split, operation));
        tell.store(true, Ordering::SeqCst);
    });
    let second: Session = Box::new(move || {
        rt2.delay(ms(5), Cause::Idle);
        drop(waits.reserve(110 << 10, Share::User).expect("room"));
        is_done.store(true, Ordering::SeqCst);
    });
    sim.run(vec![first, second]);
    assert!(done.load(Ordering::SeqCst));
    Ok(())
}
