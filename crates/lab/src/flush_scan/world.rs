//! Virtual time around one flush list: writers whose pages become dirty, a page cleaner, and the
//! mutex that both share with the scan.
//!
//! A scan says [`World::held`] for the time it holds the mutex and [`World::let_go`] for the time
//! it does not; between the two everybody else lives. The mutex is not handed over: whoever runs
//! takes it. A thread that finds it taken looks again now and then, later it sleeps; one that is
//! woken by a release runs again only later, and may find the scan back by then. Pages enter a
//! flush list in the order of the log, so a writer that waits for the list keeps all that come
//! after it waiting.

use super::list::{Fix, FlushList};
use super::setup::Setup;
use evenkeel_io::Rng;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

const SECOND: u64 = 1_000_000_000;
/// The cleaner looks this often.
const CLEANER_NS: u64 = 10_000_000;

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Who {
    Writer(u32),
    /// Takes up to so many pages of the tail for writing.
    Cleaner(u64),
    /// Takes written pages off the list.
    Written(Vec<u32>),
}

#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    /// A writer has done the rest of its transaction.
    Body(u32),
    /// The next writer whose page goes into a list.
    Turn,
    /// Wants the mutex.
    Arrive(Who),
    /// The cleaner looks.
    Clean,
}

struct Waiter {
    who: Who,
    spins_from: u64,
    waking: bool,
}

impl Waiter {
    /// When it looks at the mutex next, from `time` on; none: it sleeps by then.
    fn looks(&self, time: u64, setup: &Setup) -> Option<u64> {
        let looks = time.saturating_sub(self.spins_from).div_ceil(setup.poll_ns);
        (looks <= setup.polls).then_some(self.spins_from + looks * setup.poll_ns)
    }
}

/// What happens around a list.
pub struct World<'a> {
    setup: &'a Setup,
    rng: Rng,
    /// The present, nanoseconds.
    pub now: u64,
    /// The list that is scanned.
    pub list: FlushList,
    /// Moved on by whoever removes the page it names.
    pub hazard: Option<u32>,
    /// Transactions ended in each second.
    pub done: Vec<u64>,
    /// The longest time that a scan held the mutex.
    pub longest_ns: u64,
    events: BinaryHeap<Reverse<(u64, u64, Event)>>,
    number: u64,
    waiters: Vec<Waiter>,
    pinned: Vec<Option<u32>>,
    /// Pages that each writer's transaction makes dirty yet.
    left: Vec<u64>,
    order: VecDeque<u32>,
    turn_taken: bool,
    mutex_free: u64,
    held_since: Option<u64>,
    cleaning: bool,
    target: u64,
}

impl<'a> World<'a> {
    /// Writers and cleaner around a list, which is the first of the instances.
    pub fn new(setup: &'a Setup, list: FlushList) -> World<'a> {
        let mut world = World {
            setup,
            rng: Rng::new(setup.seed ^ 0x1157),
            now: 0,
            target: list.len(),
            list,
            hazard: None,
            done: Vec::new(),
            longest_ns: 0,
            events: BinaryHeap::new(),
            number: 0,
            waiters: Vec::new(),
            pinned: vec![None; setup.writers as usize],
            left: vec![setup.pages_per_tx; setup.writers as usize],
            order: VecDeque::new(),
            turn_taken: false,
            mutex_free: 0,
            held_since: None,
            cleaning: false,
        };
        for writer in 0..setup.writers as u32 {
            world.begin(writer, 0);
        }
        world.at(CLEANER_NS, Event::Clean);
        world
    }

    /// The scan of the next instance begins, whose list is like the others were.
    pub fn next_list(&mut self, list: FlushList) {
        self.pinned.fill(None);
        // What was on its way to the old list has gone with it.
        self.waiters.retain(|w| matches!(w.who, Who::Writer(_)));
        let events = std::mem::take(&mut self.events);
        let stays = |e: &Reverse<(u64, u64, Event)>| {
            !matches!(e.0.2, Event::Arrive(Who::Cleaner(_) | Who::Written(_)))
        };
        self.events = events.into_iter().filter(stays).collect();
        self.cleaning = false;
        self.hazard = None;
        self.target = list.len();
        self.list = list;
    }

    fn at(&mut self, time: u64, event: Event) {
        self.number += 1;
        self.events.push(Reverse((time, self.number, event)));
    }

    fn begin(&mut self, writer: u32, time: u64) {
        // It uses one of the dirty pages, if that is one of this list: what was changed lately.
        if self.rng.one_in(self.setup.instances)
            && let Some(page) = self.recent()
        {
            self.list.pin(page, 1);
            self.pinned[writer as usize] = Some(page);
        }
        let body = self.setup.tx_ns / 2 + self.rng.below(self.setup.tx_ns);
        self.at(time + body, Event::Body(writer));
    }

    /// A page that became dirty lately; none: the one drawn is the build's, which nobody else uses.
    fn recent(&mut self) -> Option<u32> {
        let recent = self.setup.recent / self.setup.instances;
        let newest = self.list.len().min(recent.max(1));
        let rank = self.list.len() - newest + self.rng.below(newest.max(1));
        self.list.at(rank).filter(|page| !self.list.is_own(*page))
    }

    /// A page of this writer is in its list: the next one, or the transaction ends.
    fn entered(&mut self, writer: u32, time: u64) {
        let left = &mut self.left[writer as usize];
        *left -= 1;
        if *left == 0 {
            *left = self.setup.pages_per_tx;
            self.finish(writer, time);
        } else {
            self.order.push_back(writer);
        }
    }

    fn finish(&mut self, writer: u32, time: u64) {
        if let Some(page) = self.pinned[writer as usize].take() {
            self.list.pin(page, -1);
        }
        let second = (time / SECOND) as usize;
        if self.done.len() <= second {
            self.done.resize(second + 1, 0);
        }
        self.done[second] += 1;
        self.begin(writer, time);
    }

    fn take_turn(&mut self, writer: u32, time: u64) {
        self.turn_taken = true;
        if self.rng.one_in(self.setup.instances) {
            self.at(time, Event::Arrive(Who::Writer(writer)));
        } else {
            let end = time + self.setup.hold_ns;
            self.entered(writer, end);
            self.at(end, Event::Turn);
        }
    }

    /// Holds the mutex at `start`, and lets it go.
    fn pass(&mut self, who: Who, start: u64) {
        let mut pages = 1;
        match who {
            Who::Writer(writer) => {
                self.list.push();
                let end = start + self.setup.hold_ns;
                self.entered(writer, end);
                self.at(end, Event::Turn);
            }
            Who::Cleaner(most) => {
                let taken = self.take_batch(most);
                pages = taken.len().max(1) as u64;
                // One after the other, each list having its part of the disk.
                let per_sec = (self.setup.disk_pages_per_sec() / self.setup.instances).max(1);
                let takes = self.setup.io_ns.max(pages * SECOND / per_sec);
                let end = start + pages * self.setup.hold_ns + takes;
                self.at(end, Event::Arrive(Who::Written(taken)));
            }
            Who::Written(taken) => {
                pages = taken.len().max(1) as u64;
                for page in taken {
                    self.drop_page(page);
                }
                self.cleaning = false;
            }
        }
        self.mutex_free = start + pages * self.setup.hold_ns;
    }

    /// Pages from the tail, and their neighbours on disk, which were changed when they were.
    fn take_batch(&mut self, most: u64) -> Vec<u32> {
        let (mut taken, mut at) = (Vec::new(), self.list.tail());
        for _ in 0..most * self.setup.neighbours_pct / 100 {
            let page = self.recent();
            taken.extend(page.filter(|page| self.begins_io(*page)));
        }
        let mut looks = 2 * most;
        while let Some(page) = at
            && (taken.len() as u64) < most
            && looks > 0
        {
            looks -= 1;
            at = self.list.newer(page);
            if self.begins_io(page) {
                taken.push(page);
            }
        }
        taken
    }

    /// Whether nobody has the page and it may be written; then it is under I/O.
    fn begins_io(&mut self, page: u32) -> bool {
        let may = self.list.fix(page) == Fix::Free && !self.list.is_pinned(page);
        if may {
            self.list.set_fix(page, Fix::Io);
        }
        may
    }

    /// The write of a page ends so much later, and it leaves the list then.
    #[cfg(test)]
    pub fn ends_io(&mut self, page: u32, after_ns: u64) {
        self.list.set_fix(page, Fix::Io);
        self.at(self.now + after_ns, Event::Arrive(Who::Written(vec![page])));
    }

    /// A page leaves the list; a hazard pointer on it moves on.
    pub fn drop_page(&mut self, page: u32) {
        if self.hazard == Some(page) {
            self.hazard = self.list.newer(page);
        }
        self.list.set_fix(page, Fix::Free);
        self.list.remove(page);
    }

    /// The scan holds the mutex for this long.
    pub fn held(&mut self, ns: u64) {
        let since = *self.held_since.get_or_insert(self.now);
        let end = self.now + ns;
        self.live(end, None);
        self.now = end;
        self.longest_ns = self.longest_ns.max(end - since);
    }

    /// The scan lets the mutex go for this long, and longer if somebody has it then.
    pub fn let_go(&mut self, ns: u64) {
        self.held_since = None;
        let end = self.now + ns;
        let waiting = std::mem::take(&mut self.waiters);
        for mut waiter in waiting {
            match waiter.looks(self.mutex_free.max(self.now), self.setup) {
                Some(look) if look < end => {
                    self.pass(waiter.who, look);
                    continue;
                }
                looks => waiter.waking = looks.is_none(),
            }
            self.waiters.push(waiter);
        }
        self.wake(self.now);
        self.live(end, Some(end));
        self.now = end.max(self.mutex_free);
    }

    /// Those that sleep are woken at `time`.
    fn wake(&mut self, time: u64) {
        let (waking, rest): (Vec<Waiter>, Vec<Waiter>) =
            std::mem::take(&mut self.waiters).into_iter().partition(|w| w.waking);
        self.waiters = rest;
        for waiter in waking {
            let latency = self.setup.wake_ns / 2 + self.rng.below(self.setup.wake_ns);
            self.at(time + latency, Event::Arrive(waiter.who));
        }
    }

    /// Everybody else until `end`; `open`: the mutex can be had until then.
    fn live(&mut self, end: u64, open: Option<u64>) {
        while self.events.peek().is_some_and(|e| e.0.0 < end) {
            let Some(Reverse((time, _, event))) = self.events.pop() else { return };
            match event {
                Event::Body(writer) if self.turn_taken => self.order.push_back(writer),
                Event::Body(writer) => self.take_turn(writer, time),
                Event::Turn => match self.order.pop_front() {
                    Some(writer) => self.take_turn(writer, time),
                    None => self.turn_taken = false,
                },
                Event::Arrive(who) => self.arrive(who, time, open),
                Event::Clean => {
                    self.clean(time);
                    self.at(time + CLEANER_NS, Event::Clean);
                }
            }
        }
    }

    fn arrive(&mut self, who: Who, time: u64, open: Option<u64>) {
        let start = self.mutex_free.max(time);
        match open {
            Some(end) if start < end => self.pass(who, start),
            _ => {
                self.waiters.push(Waiter { who, spins_from: time, waking: false });
            }
        }
    }

    /// The cleaner keeps the list as long as it was, as fast as its part of the disk lets it.
    fn clean(&mut self, time: u64) {
        let ticks = SECOND / CLEANER_NS;
        let most = (self.setup.disk_pages_per_sec() / self.setup.instances / ticks).max(1);
        let over = self.list.len().saturating_sub(self.target);
        if over > 0 && !self.cleaning {
            self.cleaning = true;
            self.at(time, Event::Arrive(Who::Cleaner(most.min(over))));
        }
    }
}
