//! G1: waiters for credit are served in order of arrival.

use super::giving_back::in_debt;
use crate::Runs;
use evenkeel_base::Code;
use evenkeel_io::Cancellation;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::mpsc;

/// Waits until `length` threads wait; if one is too many, they are released before the test ends.
fn until_waiting(runs: &Runs, length: usize, has_overtaken: impl Fn() -> bool) {
    while runs.space.credit.len() != length {
        if has_overtaken() {
            runs.forgive_debt();
            panic!("somebody overtakes");
        }
        std::thread::yield_now();
    }
}

/// The first waiter asks for more than there is, the ones behind it for less.
#[test]
fn credit_is_granted_in_order_of_arrival() {
    let rig = in_debt(0);
    let (runs, (served, order)) = (rig.runs.clone(), mpsc::channel());
    let credit = |more: u64| {
        runs.credit.fetch_add(more, SeqCst);
        runs.space.notify();
    };
    let waiting = |length| until_waiting(&runs, length, || order.try_recv().is_ok());
    std::thread::scope(|scope| {
        for (n, bytes) in [2_000, 100, 700].into_iter().enumerate() {
            let (runs, served) = (&runs, served.clone());
            scope.spawn(move || served.send((n, runs.reserve(bytes).expect("credit"))));
            waiting(n + 1);
            credit(500);
        }
        // Used credit is not returned.
        let kept = [(0, 500), (1, 100), (2, 700)].map(|(n, more)| {
            credit(more);
            let (who, reserved) = order.recv().expect("served");
            assert_eq!((who, runs.credit.load(SeqCst)), (n, 0));
            waiting(2 - n);
            reserved
        });
        assert_eq!(kept.map(|reserved| reserved.bytes()), [2_000, 100, 700]);
    });
}

/// A waiter that gives up leaves its place to the next one.
#[test]
fn a_waiter_that_gives_up_leaves_the_queue() {
    let rig = in_debt(100);
    let (runs, cancellation) = (rig.runs.clone(), Arc::<Cancellation>::default());
    std::thread::scope(|scope| {
        let first = scope.spawn(|| runs.reserve_cancellable(2_000, &cancellation).map(drop));
        until_waiting(&runs, 1, || first.is_finished());
        let second = scope.spawn(|| runs.reserve(100).map(|reserved| reserved.bytes()));
        until_waiting(&runs, 2, || second.is_finished());
        cancellation.ask();
        let gave_up = first.join().expect("ends").map_err(|error| error.code());
        assert_eq!(gave_up, Err(Code::StatementCancelled));
        assert_eq!(second.join().expect("ends").expect("credit"), 100);
        assert_eq!(runs.space.credit.len(), 0);
    });
}
