//! (b) Group commit: the log's own `commit` on a device that remembers what was synced. No commit
//! returns before its record is durable, syncs never overlap, every waiting commit gets an error,
//! and no commit waits forever.

use crate::commit::SyncGoal;
use crate::shared::{Device, Shared};
use crate::sync::atomic::Ordering;
use crate::{model, start};
use evenkeel_base::Lsn;
use evenkeel_sim::interleave::Thread;
use std::sync::Arc;

fn append(log: &Shared) -> Lsn {
    let mut state = log.state.lock();
    let lsn = state.buffer.push();
    log.end.store(lsn.0 + 1, Ordering::SeqCst);
    lsn
}

fn durable(log: &Shared) {
    let lsn = append(log);
    let waited = log.wait(lsn, SyncGoal::Durable);
    let synced = log.segments.synced.load(Ordering::SeqCst);
    match waited {
        Ok(()) => assert!(synced > lsn.0, "acknowledged at {synced}, the record is {lsn}"),
        Err(_) => assert!(log.segments.fails_at > 0, "an error out of nowhere"),
    }
}

fn written(log: &Shared) {
    let lsn = append(log);
    let waited = log.wait(lsn, SyncGoal::Written);
    assert!(waited.is_err() || log.written.load(Ordering::SeqCst) > lsn.0);
}

fn lazy(log: &Shared) {
    append(log);
    let end = log.end.load(Ordering::SeqCst);
    let synced = log.lazy_sync();
    assert!(synced.is_err() || log.segments.synced.load(Ordering::SeqCst) >= end);
}

fn run(name: &str, threads: &'static [fn(&Shared)], device: fn() -> Device) {
    model(name, threads.len(), || {
        let log = Arc::new(Shared { segments: device(), ..Shared::default() });
        let all: Vec<Thread> = threads.iter().map(|f| start(&log, f)).collect();
        all.into_iter().for_each(Thread::join);
        let state = log.state.lock();
        assert!(!state.leading && !state.syncing, "a role stays taken");
    });
}

#[test]
fn three_commits_of_any_mode_are_durable_when_acknowledged() {
    run("commits", &[durable, durable, durable], Device::default);
    run("commits of all modes", &[durable, written, lazy], Device::default);
}

#[test]
fn every_pair_of_commit_modes_is_durable_when_acknowledged() {
    run("two commits", &[durable, durable], Device::default);
    run("durable and written", &[durable, written], Device::default);
    run("durable and lazy", &[durable, lazy], Device::default);
    run("written and lazy", &[written, lazy], Device::default);
    run("failing sync of two", &[durable, durable], || Device::failing_at(1));
}

#[test]
fn a_failed_sync_fails_every_waiting_commit() {
    run("failing sync", &[durable, durable, durable], || Device::failing_at(1));
    run("second sync fails", &[durable, written, durable], || Device::failing_at(2));
}

#[test]
#[should_panic(expected = "acknowledged at")]
fn a_skipped_sync_is_found() {
    run("skipped sync", &[durable, durable], Device::skipping_syncs);
}
