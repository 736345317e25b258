//! The providers of free frames: LRU managers that sleep on timers, as reported, and the engine's
//! free list, which is woken by an event.

use super::setup::Setup;
use super::sim::{Event, Frame, Got, Provider, World};
use evenkeel_pages::CLEANERS;
use evenkeel_pages::free_list::{Clock, FreeList};
use evenkeel_pages::quota::{self, Quota};
use std::collections::VecDeque;

/// One pool instance of the reported engine.
struct Instance {
    free: Vec<u32>,
    /// Least recently used first.
    lru: VecDeque<u32>,
    sleep_ns: u64,
}

/// An LRU manager per instance.
pub struct Timers {
    instances: Vec<Instance>,
    /// The last sleep of each thread.
    backoff: Vec<u64>,
}

impl Timers {
    /// The initial state: full LRU lists, and as many free frames as a run provides.
    pub fn new(setup: &Setup) -> Timers {
        let mut instances = Vec::new();
        for number in 0..setup.instances {
            let mut frames = (0..setup.frames).filter(|f| f % setup.instances == number);
            let free = frames.by_ref().take(setup.scan_depth as usize).map(|f| f as u32);
            let free = free.collect();
            let lru = frames.map(|f| f as u32).collect();
            instances.push(Instance { free, lru, sleep_ns: setup.sleep_ns });
        }
        Timers { instances, backoff: vec![0; setup.threads as usize] }
    }
}

/// The sleep before the next run: none if the free list is nearly empty, shorter if it is short and
/// the last run flushed pages, longer if it is well filled or no page needed flushing.
pub fn adjusted(sleep_ns: u64, free: u64, flushed: u64, setup: &Setup) -> u64 {
    let depth = setup.scan_depth;
    if free < depth / 100 + 1 {
        0
    } else if free > depth / 5 || flushed == 0 {
        (sleep_ns + setup.adjust_ns).min(setup.sleep_ns)
    } else if free < depth / 20 {
        sleep_ns.saturating_sub(setup.adjust_ns)
    } else {
        sleep_ns
    }
}

impl Provider for Timers {
    fn start(&mut self, world: &mut World<'_>) {
        for (number, instance) in (0u32..).zip(&self.instances) {
            for frame in &instance.free {
                world.frames[*frame as usize] = Frame::Free;
            }
            let first = world.rng.below(instance.sleep_ns);
            world.at(first, Event::Run(number));
        }
    }

    fn want(&mut self, world: &mut World<'_>, thread: u32) -> Got {
        let instance = world.rng.below(world.setup.instances) as usize;
        let backoff = &mut self.backoff[thread as usize];
        if let Some(frame) = self.instances[instance].free.pop() {
            *backoff = 0;
            return Got::Frame(frame);
        }
        *backoff = match *backoff {
            0 => world.setup.retry_ns,
            last => (last * 2).min(world.setup.retry_most_ns),
        };
        Got::Sleep(*backoff)
    }

    fn loaded(&mut self, world: &mut World<'_>, frame: u32) {
        let instance = u64::from(frame) % world.setup.instances;
        self.instances[instance as usize].lru.push_back(frame);
    }

    fn run(&mut self, world: &mut World<'_>, worker: u32) {
        let depth = world.setup.scan_depth;
        let instance = &mut self.instances[worker as usize];
        let short = depth.saturating_sub(instance.free.len() as u64);
        let mut writes = Vec::new();
        let (mut gained, mut looks) = (0, 0);
        for _ in 0..depth.min(instance.lru.len() as u64) {
            if gained >= short {
                break;
            }
            let Some(frame) = instance.lru.pop_front() else { break };
            looks += 1;
            match world.frames[frame as usize] {
                Frame::Dirty(_) => {
                    writes.push(frame);
                    gained += 1;
                }
                Frame::Clean(_) => {
                    world.frames[frame as usize] = Frame::Free;
                    instance.free.push(frame);
                    gained += 1;
                }
                _ => instance.lru.push_back(frame),
            }
        }
        let free = instance.free.len() as u64;
        let sleep_ns = adjusted(instance.sleep_ns, free, gained, world.setup);
        instance.sleep_ns = sleep_ns;
        world.figures.manager_slept_ns += sleep_ns;
        // A run that does not sleep afterwards still takes processor time.
        let takes = depth * world.setup.step_ns;
        world.ran(looks, gained == 0, if sleep_ns == 0 { takes } else { 0 });
        let next = world.now + sleep_ns.max(takes);
        if !writes.is_empty() {
            world.write(worker, writes);
        }
        world.at(next, Event::Run(worker));
    }

    fn written(&mut self, world: &mut World<'_>, _worker: u32, frames: &[u32]) {
        for frame in frames {
            world.frames[*frame as usize] = Frame::Free;
            let instance = u64::from(*frame) % world.setup.instances;
            self.instances[instance as usize].free.push(*frame);
        }
    }

    fn free(&self) -> u64 {
        self.instances.iter().map(|i| i.free.len() as u64).sum()
    }
}

/// The worker that frees frames; the others write cold ones.
const PROVIDER: u32 = 0;

/// A cleaner of the engine.
#[derive(Clone, Default)]
struct Cleaner {
    /// It was woken, or has a batch under way.
    is_at_work: bool,
    /// Cold frames that it took for its batch.
    taken: usize,
}

/// The engine's free list.
pub struct Events {
    free_list: FreeList,
    free: Vec<u32>,
    hand: usize,
    waiting: Vec<u32>,
    /// Number of the free list's notifications that have been handled.
    seen: u64,
    seen_freed: u64,
    provider_due: bool,
    cleaners: Vec<Cleaner>,
    /// Empty: no pages are requested because of their age here.
    quota: Quota,
}

impl Events {
    /// The initial state: free frames up to the high-water mark.
    pub fn new(setup: &Setup) -> Events {
        let free_list = FreeList::new(setup.frames as usize);
        let high = free_list.high() as u64;
        // The free list begins with all frames free; the frames that have a page are taken from it.
        assert!(free_list.try_credits((setup.frames - high) as i64), "all frames were free");
        Events {
            free: (0..high as u32).collect(),
            hand: high as usize,
            waiting: Vec::new(),
            seen: free_list.event().now(),
            seen_freed: free_list.freed().now(),
            provider_due: false,
            cleaners: vec![Cleaner::default(); CLEANERS],
            quota: Quota::default(),
            free_list,
        }
    }

    /// The clock advances by one frame: does on plain states what the engine does with latches.
    fn clock(
        free_list: &FreeList,
        (hand, free, looks): (&mut usize, &mut Vec<u32>, &mut u64),
        frames: &mut [Frame],
    ) -> Clock {
        let at = *hand % frames.len();
        (*hand, *looks) = (at + 1, *looks + 1);
        match frames[at] {
            Frame::Clean(true) => frames[at] = Frame::Clean(false),
            Frame::Dirty(true) => frames[at] = Frame::Dirty(false),
            Frame::Clean(false) => {
                Events::release(free_list, free, frames, at as u32);
                return Clock::Freed;
            }
            Frame::Dirty(false) => {
                free_list.queue_cold(at as u32);
                return Clock::Cold;
            }
            _ => {}
        }
        Clock::Kept
    }

    fn release(free_list: &FreeList, free: &mut Vec<u32>, frames: &mut [Frame], frame: u32) {
        frames[frame as usize] = Frame::Free;
        free.push(frame);
        free_list.return_credits(1);
    }

    /// Wakes idle workers that were notified; `cleaners`: the cleaners were.
    fn notified(&mut self, world: &mut World<'_>, cleaners: bool) {
        let soon = world.now + world.setup.wake_ns;
        let now = self.free_list.event().now();
        if std::mem::replace(&mut self.seen, now) != now && !self.provider_due {
            self.provider_due = true;
            world.at(soon, Event::Run(PROVIDER));
        }
        let now = self.free_list.freed().now();
        if std::mem::replace(&mut self.seen_freed, now) != now {
            // All waiting threads are woken; the first one gets the frame.
            for thread in self.waiting.drain(..) {
                world.at(soon, Event::Want(thread));
            }
        }
        for (worker, cleaner) in (1..).zip(&mut self.cleaners) {
            if cleaners && !cleaner.is_at_work {
                cleaner.is_at_work = true;
                world.at(soon, Event::Run(worker));
            }
        }
    }

    fn try_take(&mut self) -> Option<u32> {
        if self.free_list.try_credits(1) { self.free.pop() } else { None }
    }

    /// A step of the provider.
    fn provide(&mut self, world: &mut World<'_>) {
        self.provider_due = false;
        let (mut looks, count) = (0, world.frames.len());
        let Events { free_list, hand, free, .. } = self;
        let step = || Events::clock(free_list, (hand, free, &mut looks), &mut world.frames);
        let did = free_list.provide(count, step);
        world.ran(looks, did.freed + did.cold == 0, 0);
        if did.goes_on {
            self.provider_due = true;
            world.at(world.now + looks * world.setup.step_ns, Event::Run(PROVIDER));
        }
        self.notified(world, did.wakes_cleaner);
    }

    /// A beat of a cleaner: cold frames only.
    fn clean(&mut self, world: &mut World<'_>, worker: u32) {
        let most = world.setup.batch_pages as u64;
        let take_cold = |most| self.free_list.take_cold(most);
        let mut batch = quota::beat(&self.quota, world.now, most, 0, 0, take_cold).cold;
        let cleaner = &mut self.cleaners[worker as usize - 1];
        *cleaner = Cleaner { is_at_work: true, taken: batch.len() };
        // The clock may have passed a frame twice, or the frame may have been written meanwhile.
        batch.sort_unstable();
        batch.dedup();
        batch.retain(|frame| matches!(world.frames[*frame as usize], Frame::Dirty(_)));
        world.ran(0, batch.is_empty(), 0);
        if batch.is_empty() {
            self.done(worker);
        } else {
            world.write(worker, batch);
        }
    }

    /// The batch of a cleaner is done.
    fn done(&mut self, worker: u32) {
        let cleaner = std::mem::take(&mut self.cleaners[worker as usize - 1]);
        self.free_list.have_left(cleaner.taken);
    }
}

impl Provider for Events {
    fn start(&mut self, world: &mut World<'_>) {
        for frame in &self.free {
            world.frames[*frame as usize] = Frame::Free;
        }
    }

    fn want(&mut self, world: &mut World<'_>, thread: u32) -> Got {
        let mut frame = self.try_take();
        if frame.is_none() {
            let mut looks = 0;
            let Events { free_list, hand, free, .. } = self;
            let step = || Events::clock(free_list, (hand, free, &mut looks), &mut world.frames);
            free_list.search_own(1, step);
            world.figures.own_looks += looks;
            world.figures.vain_ns +=
                if free_list.available() > 0 { 0 } else { looks * world.setup.step_ns };
            frame = self.try_take();
        }
        if frame.is_none() {
            self.waiting.push(thread);
            self.free_list.wake();
        }
        self.notified(world, false);
        frame.map_or(Got::Wait, Got::Frame)
    }

    fn loaded(&mut self, _world: &mut World<'_>, _frame: u32) {}

    fn run(&mut self, world: &mut World<'_>, worker: u32) {
        if worker == PROVIDER {
            return self.provide(world);
        }
        self.clean(world, worker);
        self.notified(world, false);
    }

    fn written(&mut self, world: &mut World<'_>, worker: u32, frames: &[u32]) {
        for frame in frames {
            if self.free_list.gives_up() {
                Events::release(&self.free_list, &mut self.free, &mut world.frames, *frame);
            }
        }
        self.free_list.freed().notify();
        self.done(worker);
        // The cleaner looks for more frames before it sleeps.
        if self.free_list.queued() > 0 {
            self.clean(world, worker);
        }
        self.notified(world, false);
    }

    fn free(&self) -> u64 {
        self.free.len() as u64
    }
}
