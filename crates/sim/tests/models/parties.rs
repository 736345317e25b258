//! For the models of the lock table: transactions as the lock table sees them, and their waits.

use crate::deadlock::Deadlocks;
use crate::event::Event;
use crate::lock_table::{Ask, Entered, LockTable};
use crate::owner::{HeldLocks, Mode, Owner, WaitPlace, WaitSeat};
use crate::row_queue::Keep;
use crate::sync::Mutex;
use crate::wait_until;
use evenkeel_base::TxnId;
use std::sync::Arc;

pub(crate) struct Party {
    id: TxnId,
    operations: u32,
    held: Mutex<HeldLocks>,
    seat: WaitSeat<Party>,
    wake: Event,
}

impl Party {
    pub(crate) fn new(id: u64, operations: u32) -> Arc<Party> {
        Arc::new(Party {
            id: TxnId(id),
            operations,
            held: Mutex::default(),
            seat: WaitSeat::default(),
            wake: Event::default(),
        })
    }
}

impl Owner for Party {
    fn id(&self) -> TxnId {
        self.id
    }

    fn tag(&self) -> u64 {
        self.id.0
    }

    fn operations(&self) -> u32 {
        self.operations
    }

    fn statement(&self) -> u32 {
        0
    }

    fn held(&self) -> &Mutex<HeldLocks> {
        &self.held
    }

    fn seat(&self) -> &WaitSeat<Party> {
        &self.seat
    }

    fn notify(&self) {
        self.wake.notify();
    }
}

/// How a wait ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Waited {
    Granted,
    /// The transaction of the stamp in the way is decided: look at the row again.
    Again,
    Victim,
}

pub(crate) struct Locks {
    pub(crate) table: LockTable<Party>,
    deadlocks: Deadlocks,
    /// Planted fault: a waiter searches for a deadlock before other transactions can see its wait.
    pub(crate) searches_early: bool,
}

impl Locks {
    pub(crate) fn new(searches_early: bool) -> Locks {
        let table = LockTable::new(usize::MAX, 1);
        Locks { table, deadlocks: Deadlocks::default(), searches_early }
    }

    /// As `Txns::wait_at`.
    fn wait_at(&self, me: &Arc<Party>, place: WaitPlace<Party>, withdraw: impl FnOnce()) -> Waited {
        let early = self.searches_early && self.deadlocks.search(&self.table, me);
        me.seat.sit(place);
        let victim = match self.searches_early {
            true => early,
            false => self.deadlocks.search(&self.table, me),
        };
        if !victim {
            wait_until(&me.wake, || me.seat.is_granted() || me.seat.is_victim());
        }
        let granted = !victim && me.seat.is_granted();
        if !granted {
            withdraw();
        }
        me.seat.leave();
        if granted { Waited::Granted } else { Waited::Victim }
    }

    /// As `Txns::queue_for`.
    pub(crate) fn queue_for(
        &self,
        me: &Arc<Party>,
        key: &[u8],
        (mode, keep): (Mode, Keep),
        writer: Option<&Arc<Party>>,
    ) -> Waited {
        let ask = Ask { mode, keep, absent: false };
        me.seat.begin();
        match self.table.enter(me, key, ask, writer) {
            Entered::Granted => Waited::Granted,
            Entered::Ended => Waited::Again,
            Entered::Queued(key, ticket, held) => {
                let waited = self.wait_at(me, WaitPlace::Row(key.clone(), ticket), || {
                    self.withdraw(me, &key, ticket, ((mode, keep), held));
                });
                if waited == Waited::Granted && !held {
                    self.assert_turn(me, &key, ticket);
                }
                waited
            }
        }
    }

    fn withdraw(&self, me: &Arc<Party>, key: &[u8], ticket: u64, of: ((Mode, Keep), bool)) {
        let ((mode, keep), held) = of;
        match self.table.withdraw(key, ticket) {
            false if keep == Keep::Writes => self.table.unwritten(me, key),
            false if !held => self.table.unlock(me, key, mode, false),
            _ => {}
        }
    }

    /// Enters a queue and leaves it at once.
    pub(crate) fn give_up(&self, me: &Arc<Party>, key: &[u8], mode: Mode) {
        me.seat.begin();
        let ask = Ask { mode, keep: Keep::Asked, absent: false };
        match self.table.enter(me, key, ask, None) {
            Entered::Queued(key, ticket, held) => {
                self.withdraw(me, &key, ticket, ((mode, Keep::Asked), held));
            }
            _ => self.table.unlock(me, key, mode, false),
        }
    }

    /// As `Txns::lock_range`, for a whole space.
    pub(crate) fn lock_range(&self, me: &Arc<Party>, space: [u8; 5], mode: Mode) -> Waited {
        let (low, mut high) = (space.to_vec(), space.to_vec());
        high[4] += 1;
        me.seat.begin();
        let span = crate::intervals::KeySpan { low, high };
        let Some(ticket) = self.table.add_range(me, space, span, mode) else {
            return Waited::Granted;
        };
        if self.table.look_again(&space, ticket).is_some() || me.seat.is_granted() {
            return Waited::Granted;
        }
        let withdraw = || self.table.remove_range(me, &space, ticket);
        self.wait_at(me, WaitPlace::Range(space, ticket), withdraw)
    }

    /// Asserts that no later request was granted before a waiting one, unless its transaction held
    /// the key already.
    fn assert_turn(&self, me: &Arc<Party>, full: &[u8], ticket: u64) {
        self.table.each_point(&mut |key, point| {
            let passed = |r: &&crate::row_queue::Request<Party>| {
                r.ticket < ticket && !r.in_front && r.owner.id() != me.id()
            };
            let mine = point.holder(me).map(|h| h.mode());
            let mut overtaken = point.queue.iter().filter(passed);
            let first = overtaken.find(|r| mine.is_some_and(|mine| mine.conflicts(r.mode)));
            assert!(key != full || first.is_none() || mine.is_none(), "somebody was overtaken");
            true
        });
    }
}
