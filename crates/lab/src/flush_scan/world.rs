//! Simulates, in virtual time, the threads around one flush list: writers that read pages into free
//! frames and change them, a page cleaner that frees frames, and the mutex that all share with the
//! scan.
//!
//! The scan holds the mutexes of the flush list and of the pool together, so one mutex stands for
//! both here. A scan calls [`World::held`] for the time it holds the mutex and [`World::let_go`]
//! for the time it does not; between the two all other threads run. The mutex is not handed over: a
//! running thread takes it. A thread that finds it taken polls it for a while, then sleeps. A
//! release wakes a sleeper, which runs only later, and the scan may hold the mutex again by then.
//!
//! Two rules make other threads wait for one waiting thread. Pages enter a flush list in log order,
//! so a writer that waits for the list delays all later ones. And one cleaner frees the frames that
//! all writers of an instance take: it needs the mutex for every page.

use super::list::{Fix, FlushList};
use super::setup::Setup;
use evenkeel_io::Rng;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

const SECOND: u64 = 1_000_000_000;
/// The interval of the cleaner.
const CLEANER_NS: u64 = 10_000_000;
/// The cleaner passes over this many pages that are in use.
const CLEANER_LOOKS: usize = 64;

/// The threads that request the mutex, and their purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Who {
    /// A writer takes a free frame, to read a page into it.
    Frame(u32),
    /// A writer has read its page.
    Read(u32),
    /// A writer puts its dirty page into the list.
    Writer(u32),
    /// The cleaner frees the frame of a page that was written, or, if there is none, looks for a
    /// page to write. This many frames are still needed.
    Look(u64),
    /// The cleaner begins to write the page that it found; it had released the mutex to look for
    /// neighbours of the page on disk.
    Write(u32, u64),
    /// A thread removes a written page from the list.
    Written,
}

#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    /// A writer reaches a page that is not in the pool.
    Fetch(u32),
    /// A writer has finished the rest of its transaction.
    Body(u32),
    /// The turn of the next writer whose page enters a list.
    Turn,
    /// A thread requests the mutex.
    Arrive(Who),
    /// The cleaner checks how many frames are free.
    Clean,
    /// A page is on the disk.
    Ends(u32),
}

/// A writer, and the remaining work of its transaction.
#[derive(Clone, Copy, Default)]
struct Writer {
    /// A page it uses.
    pinned: Option<u32>,
    /// Pages that will still become dirty.
    left: u64,
    /// Those of them in the scanned instance.
    here: u64,
    /// Those of the latter that are not read yet.
    unread: u64,
}

/// The threads that free frames: one cleaner, the disk, and the threads that handle completed
/// writes.
#[derive(Default)]
struct Cleaner {
    /// The cleaner has work.
    is_up: bool,
    /// The page in the list where the cleaner continues.
    from: Option<u32>,
    /// Pages that are being written, or are written and still in the list.
    in_flight: u64,
    /// The time from which the disk is idle.
    disk_free: u64,
    /// Written, and still in the list.
    ended: VecDeque<u32>,
    /// Number of threads that are removing written pages from the list.
    busy: u64,
    /// Pages that have left the list and are still in their frames.
    clean: u64,
}

struct Waiter {
    who: Who,
    spins_from: u64,
}

impl Waiter {
    /// The time of the thread's next poll of the mutex, from `time` on; `None`: it sleeps by then.
    fn looks(&self, time: u64, setup: &Setup) -> Option<u64> {
        let looks = time.saturating_sub(self.spins_from).div_ceil(setup.poll_ns);
        (looks <= setup.polls).then_some(self.spins_from + looks * setup.poll_ns)
    }
}

/// The threads around a list.
pub struct World<'a> {
    setup: &'a Setup,
    rng: Rng,
    /// The present, nanoseconds.
    pub now: u64,
    /// The list that is scanned.
    pub list: FlushList,
    /// A hazard pointer: a thread that removes this page moves it to the next.
    pub hazard: Option<u32>,
    /// Transactions ended in each second.
    pub done: Vec<u64>,
    /// The longest time that a scan held the mutex.
    pub longest_ns: u64,
    /// Number of times that a writer found no free frame.
    pub frameless: u64,
    events: BinaryHeap<Reverse<(u64, u64, Event)>>,
    number: u64,
    waiters: Vec<Waiter>,
    writers: Vec<Writer>,
    order: VecDeque<u32>,
    turn_taken: bool,
    mutex_free: u64,
    held_since: Option<u64>,
    /// Free frames of this instance.
    free: u64,
    /// Writers that sleep until a frame is free.
    starved: VecDeque<u32>,
    cleaner: Cleaner,
}

impl<'a> World<'a> {
    /// The writers and the cleaner around a list, which is the first of the instances.
    pub fn new(setup: &'a Setup, list: FlushList) -> World<'a> {
        let mut world = World {
            setup,
            rng: Rng::new(setup.seed ^ 0x1157),
            now: 0,
            list,
            hazard: None,
            done: Vec::new(),
            longest_ns: 0,
            frameless: 0,
            events: BinaryHeap::new(),
            number: 0,
            waiters: Vec::new(),
            writers: vec![Writer::default(); setup.writers as usize],
            order: VecDeque::new(),
            turn_taken: false,
            mutex_free: 0,
            held_since: None,
            free: setup.free_frames,
            starved: VecDeque::new(),
            cleaner: Cleaner::default(),
        };
        for writer in 0..setup.writers as u32 {
            world.begin(writer, 0);
        }
        world.at(CLEANER_NS, Event::Clean);
        world
    }

    /// The scan of the next instance begins; its list is like the earlier ones.
    pub fn next_list(&mut self, list: FlushList) {
        // Threads that waited for the old list are gone with it.
        let cleans = |who| matches!(who, Who::Look(_) | Who::Write(..) | Who::Written);
        let mut events = std::mem::take(&mut self.events);
        events.retain(|e| match e.0.2 {
            Event::Arrive(who) => !cleans(who),
            Event::Ends(_) => false,
            _ => true,
        });
        self.events = events;
        self.hazard = None;
        self.list = list;
        self.free = self.setup.free_frames;
        self.cleaner = Cleaner::default();
        for writer in &mut self.writers {
            (writer.pinned, writer.here, writer.unread) = (None, 0, 0);
        }
        let (now, io_ns) = (self.now, self.setup.io_ns);
        for writer in std::mem::take(&mut self.starved) {
            self.at(now + io_ns, Event::Body(writer));
        }
        for waiter in std::mem::take(&mut self.waiters) {
            match waiter.who {
                Who::Frame(writer) => self.at(now + io_ns, Event::Body(writer)),
                Who::Read(writer) => self.at(now, Event::Body(writer)),
                Who::Writer(writer) => {
                    self.entered(writer, now);
                    self.at(now, Event::Turn);
                }
                Who::Look(_) | Who::Write(..) | Who::Written => {}
            }
        }
    }

    fn at(&mut self, time: u64, event: Event) {
        self.number += 1;
        self.events.push(Reverse((time, self.number, event)));
    }

    fn begin(&mut self, writer: u32, time: u64) {
        // The transaction uses one of the recently changed pages, if that page is in this list.
        let mut pinned = None;
        if self.rng.one_in(self.setup.instances) {
            pinned = self.recent();
            pinned.into_iter().for_each(|page| self.list.pin(page, 1));
        }
        let left = self.setup.pages_per_tx;
        let here = (0..left).filter(|_| self.rng.one_in(self.setup.instances)).count() as u64;
        self.writers[writer as usize] = Writer { pinned, left, here, unread: here };
        let body = self.setup.tx_ns / 2 + self.rng.below(self.setup.tx_ns);
        // The time of a read is included in that of a transaction without waits.
        self.at(time + body.saturating_sub(self.setup.io_ns), Event::Fetch(writer));
    }

    /// The next page of this writer that must be read into this instance.
    fn fetch(&mut self, writer: u32, time: u64) {
        match self.writers[writer as usize].unread {
            0 => self.at(time + self.setup.io_ns, Event::Body(writer)),
            _ => self.at(time, Event::Arrive(Who::Frame(writer))),
        }
    }

    /// A page that became dirty recently; `None`: the page drawn belongs to the build, and no other
    /// thread uses it.
    fn recent(&mut self) -> Option<u32> {
        let recent = self.setup.recent / self.setup.instances;
        let newest = self.list.len().min(recent.max(1));
        let rank = self.list.len() - newest + self.rng.below(newest.max(1));
        self.list.at(rank).filter(|page| !self.list.is_own(*page))
    }

    /// A page of this writer has entered its list: the writer goes on to its next page, or the
    /// transaction ends.
    fn entered(&mut self, writer: u32, time: u64) {
        let left = &mut self.writers[writer as usize].left;
        *left -= 1;
        if *left == 0 {
            self.finish(writer, time);
        } else {
            self.order.push_back(writer);
        }
    }

    fn finish(&mut self, writer: u32, time: u64) {
        if let Some(page) = self.writers[writer as usize].pinned.take() {
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
        let here = &mut self.writers[writer as usize].here;
        if *here > 0 {
            *here -= 1;
            self.at(time, Event::Arrive(Who::Writer(writer)));
        } else {
            let end = time + self.setup.hold_ns;
            self.entered(writer, end);
            self.at(end, Event::Turn);
        }
    }

    /// A thread takes the mutex at `start`, does its work, and releases it.
    fn pass(&mut self, who: Who, start: u64) {
        let end = start + self.setup.hold_ns;
        self.mutex_free = end;
        match who {
            Who::Frame(writer) if self.free == 0 => {
                self.frameless += 1;
                self.starved.push_back(writer);
            }
            Who::Frame(writer) => {
                self.free -= 1;
                self.at(end + self.setup.io_ns, Event::Arrive(Who::Read(writer)));
            }
            Who::Read(writer) => {
                let unread = &mut self.writers[writer as usize].unread;
                *unread = unread.saturating_sub(1);
                match *unread {
                    0 => self.at(end, Event::Body(writer)),
                    _ => self.at(end, Event::Arrive(Who::Frame(writer))),
                }
            }
            Who::Writer(writer) => {
                self.list.push();
                self.entered(writer, end);
                self.at(end, Event::Turn);
            }
            Who::Look(left) if self.cleaner.clean > 0 => {
                self.evict(end);
                self.at(end, Event::Arrive(Who::Look(left)));
            }
            Who::Look(0) => self.cleaner.is_up = false,
            Who::Look(left) => match self.find() {
                Some(page) => self.at(end, Event::Arrive(Who::Write(page, left))),
                None => self.cleaner.is_up = false,
            },
            Who::Write(page, left) => self.write(page, left, end),
            Who::Written => self.written(end),
        }
    }

    /// A page that the cleaner may write: the oldest, or a recently changed neighbour of it on
    /// disk.
    fn find(&mut self) -> Option<u32> {
        if self.rng.below(100) < self.setup.neighbours_pct
            && let Some(page) = self.recent()
            && self.is_free(page)
        {
            return Some(page);
        }
        let from = self.cleaner.from.filter(|page| self.list.is_listed(*page));
        let mut at = from.or_else(|| self.list.tail());
        for _ in 0..CLEANER_LOOKS {
            let page = at?;
            at = self.list.newer(page);
            if self.is_free(page) {
                self.cleaner.from = at;
                return Some(page);
            }
        }
        None
    }

    fn write(&mut self, page: u32, left: u64, end: u64) {
        if self.list.is_listed(page) && self.is_free(page) {
            self.list.set_fix(page, Fix::Io);
            // One after the other; each instance has its share of the disk.
            let per_sec = (self.setup.disk_pages_per_sec() / self.setup.instances).max(1);
            self.cleaner.disk_free = self.cleaner.disk_free.max(end) + SECOND / per_sec;
            self.cleaner.in_flight += 1;
            self.at(self.cleaner.disk_free + self.setup.io_ns, Event::Ends(page));
        }
        self.at(end + self.setup.issue_ns, Event::Arrive(Who::Look(left - 1)));
    }

    /// A frame becomes free; threads that wait for a frame are woken.
    fn evict(&mut self, end: u64) {
        self.cleaner.clean -= 1;
        self.free += 1;
        if let Some(writer) = self.starved.pop_front() {
            let runs = end + self.latency();
            self.at(runs, Event::Arrive(Who::Frame(writer)));
        }
    }

    /// The next of the written pages leaves the list.
    fn written(&mut self, end: u64) {
        if let Some(page) = self.cleaner.ended.pop_front() {
            self.drop_page(page);
            self.cleaner.in_flight = self.cleaner.in_flight.saturating_sub(1);
            self.cleaner.clean += 1;
        }
        match self.cleaner.ended.is_empty() {
            true => self.cleaner.busy -= 1,
            false => self.at(end, Event::Arrive(Who::Written)),
        }
    }

    /// The time from the wake-up of a thread until it runs.
    fn latency(&mut self) -> u64 {
        self.setup.wake_ns / 2 + self.rng.below(self.setup.wake_ns)
    }

    /// True if no thread uses the page, so that it may be written.
    fn is_free(&self, page: u32) -> bool {
        self.list.fix(page) == Fix::Free && !self.list.is_pinned(page)
    }

    /// The write of a page ends this much later; then the page leaves the list.
    #[cfg(test)]
    pub fn ends_io(&mut self, page: u32, after_ns: u64) {
        self.list.set_fix(page, Fix::Io);
        self.at(self.now + after_ns, Event::Ends(page));
    }

    /// A page leaves the list; a hazard pointer to it moves to the next page.
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

    /// The scan releases the mutex for this long, and longer if another thread holds it then.
    pub fn let_go(&mut self, ns: u64) {
        self.held_since = None;
        let end = self.now + ns;
        // Of the polling threads, the first one gets it.
        while let Some((look, at)) = self.first_look()
            && look < end
        {
            let waiter = self.waiters.swap_remove(at);
            self.pass(waiter.who, look);
        }
        // Sleeping threads are woken.
        let time = self.mutex_free.max(self.now);
        let mut at = 0;
        while at < self.waiters.len() {
            if self.waiters[at].looks(time, self.setup).is_some() {
                at += 1;
                continue;
            }
            let who = self.waiters.swap_remove(at).who;
            let runs = self.now + self.latency();
            self.at(runs, Event::Arrive(who));
        }
        self.live(end, Some(end));
        self.now = end.max(self.mutex_free);
    }

    /// The waiting thread that polls the free mutex first, and the time.
    fn first_look(&self) -> Option<(u64, usize)> {
        let time = self.mutex_free.max(self.now);
        let looks = self.waiters.iter().enumerate();
        looks.filter_map(|(at, w)| Some((w.looks(time, self.setup)?, at))).min()
    }

    /// Runs all other threads until `end`; `open`: the mutex is free until then.
    fn live(&mut self, end: u64, open: Option<u64>) {
        while self.events.peek().is_some_and(|e| e.0.0 < end) {
            let Some(Reverse((time, _, event))) = self.events.pop() else { return };
            match event {
                Event::Fetch(writer) => self.fetch(writer, time),
                Event::Body(writer) if self.turn_taken => self.order.push_back(writer),
                Event::Body(writer) => self.take_turn(writer, time),
                Event::Turn => match self.order.pop_front() {
                    Some(writer) => self.take_turn(writer, time),
                    None => self.turn_taken = false,
                },
                Event::Arrive(who) => self.arrive(who, time, open),
                Event::Ends(page) => {
                    self.cleaner.ended.push_back(page);
                    if self.cleaner.busy < self.setup.io_threads {
                        self.cleaner.busy += 1;
                        self.arrive(Who::Written, time, open);
                    }
                }
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
            _ => self.waiters.push(Waiter { who, spins_from: time }),
        }
    }

    /// The cleaner restores the number of free frames, as fast as its share of the disk permits.
    fn clean(&mut self, time: u64) {
        let ticks = SECOND / CLEANER_NS;
        let most = (self.setup.disk_pages_per_sec() / self.setup.instances / ticks).max(1);
        let there = self.free + self.cleaner.in_flight + self.cleaner.clean;
        let wanted = self.setup.free_frames.saturating_sub(there);
        if wanted + self.cleaner.clean > 0 && !self.cleaner.is_up {
            self.cleaner.is_up = true;
            self.cleaner.from = None;
            self.at(time, Event::Arrive(Who::Look(most.min(wanted))));
        }
    }
}
