//! Who frees frames: LRU managers that sleep on timers, as reported, and the engine's supply, which
//! is woken by an event.

use super::setup::Setup;
use super::sim::{Event, Frame, Got, Provider, World};
use evenkeel_pages::supply::{BEAT_COLD, BEAT_SEARCH, COLD_MAX, Clock, FOREGROUND_SEARCH, Supply};
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
    /// How long each thread slept last.
    backoff: Vec<u64>,
}

impl Timers {
    /// With full LRU lists and as many free frames as a run provides.
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

/// The sleep before the next run: none when the list is all but empty, less when it is short and
/// the last run flushed something, more when it is well filled or there was nothing to flush.
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
        // A run without a sleep behind it still takes its time: of the processor.
        let takes = depth * world.setup.step_ns;
        world.ran(looks, gained == 0, if sleep_ns == 0 { takes } else { 0 });
        let next = world.now + sleep_ns.max(takes);
        if !writes.is_empty() {
            world.write(writes);
        }
        world.at(next, Event::Run(worker));
    }

    fn written(&mut self, world: &mut World<'_>, frames: &[u32]) {
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

/// The worker that frees frames, and the one that writes cold ones.
const PROVIDER: u32 = 0;
const CLEANER: u32 = 1;

/// The engine's supply.
pub struct Events {
    supply: Supply,
    free: Vec<u32>,
    hand: usize,
    cold: Vec<u32>,
    waiting: VecDeque<u32>,
    seen: u64,
    provider_due: bool,
    cleaner_due: bool,
}

impl Events {
    /// With free frames up to the high-water mark.
    pub fn new(setup: &Setup) -> Events {
        let supply = Supply::new(setup.frames as usize);
        let high = supply.high() as u64;
        // The supply begins with every frame free: those with a page are taken.
        assert!(supply.try_credits((setup.frames - high) as i64), "all frames were free");
        Events {
            free: (0..high as u32).collect(),
            hand: high as usize,
            cold: Vec::new(),
            waiting: VecDeque::new(),
            seen: supply.event().now(),
            provider_due: false,
            cleaner_due: false,
            supply,
        }
    }

    /// The clock moves on by one frame: what the engine does with latches, on plain states.
    fn clock(at: usize, frames: &mut [Frame], cold: &mut Vec<u32>) -> Clock {
        match frames[at] {
            Frame::Clean(true) => frames[at] = Frame::Clean(false),
            Frame::Clean(false) => {
                frames[at] = Frame::Free;
                return Clock::Freed;
            }
            Frame::Dirty(true) => frames[at] = Frame::Dirty(false),
            Frame::Dirty(false) => {
                if cold.len() < COLD_MAX {
                    cold.push(at as u32);
                }
                return Clock::Cold;
            }
            _ => {}
        }
        Clock::Kept
    }

    /// Looks at up to `most` frames until `wanted` are free, as the engine does.
    fn search(
        &mut self,
        world: &mut World<'_>,
        most: usize,
        wanted: i64,
        cold_most: usize,
    ) -> (usize, usize, u64) {
        let Events { supply, hand, cold, free, .. } = self;
        let mut looks = 0;
        let found = supply.search(most, wanted, cold_most, || {
            looks += 1;
            let at = *hand % world.frames.len();
            *hand = at + 1;
            let did = Events::clock(at, &mut world.frames, cold);
            if did == Clock::Freed {
                free.push(at as u32);
                supply.return_credits(1);
            }
            did
        });
        (found.0, found.1, looks)
    }

    /// Wakes the workers that have been notified.
    fn notified(&mut self, world: &mut World<'_>) {
        let now = self.supply.event().now();
        if std::mem::replace(&mut self.seen, now) != now && !self.provider_due {
            self.provider_due = true;
            world.at(world.now + world.setup.wake_ns, Event::Run(PROVIDER));
        }
        if !self.cold.is_empty() && !self.cleaner_due {
            self.cleaner_due = true;
            world.at(world.now + world.setup.wake_ns, Event::Run(CLEANER));
        }
    }

    fn try_take(&mut self) -> Option<u32> {
        if self.supply.try_credits(1) { self.free.pop() } else { None }
    }

    /// Threads that wait get what is free, first come, first served.
    fn serve(&mut self, world: &mut World<'_>) {
        while let Some(thread) = self.waiting.front().copied() {
            let Some(frame) = self.try_take() else { break };
            self.waiting.pop_front();
            world.give(thread, frame);
        }
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
            let (_, _, looks) = self.search(world, FOREGROUND_SEARCH, 1, usize::MAX);
            world.figures.own_looks += looks;
            world.figures.vain_ns +=
                if self.supply.available() > 0 { 0 } else { looks * world.setup.step_ns };
            frame = self.try_take();
        }
        if frame.is_none() {
            self.waiting.push_back(thread);
            self.supply.event().notify();
        }
        self.notified(world);
        frame.map_or(Got::Wait, Got::Frame)
    }

    fn loaded(&mut self, _world: &mut World<'_>, _frame: u32) {}

    fn run(&mut self, world: &mut World<'_>, worker: u32) {
        if worker == CLEANER {
            let keep = self.cold.len().saturating_sub(world.setup.batch_pages);
            let mut batch = self.cold.split_off(keep);
            // The clock may have met a frame twice, or it has been written meanwhile.
            batch.sort_unstable();
            batch.dedup();
            batch.retain(|frame| matches!(world.frames[*frame as usize], Frame::Dirty(_)));
            world.ran(0, batch.is_empty(), 0);
            self.cleaner_due = !batch.is_empty();
            match self.cleaner_due {
                true => world.write(batch),
                false => self.notified(world),
            }
            return;
        }
        self.provider_due = false;
        self.supply.begin_beat();
        let most = BEAT_SEARCH.min(world.frames.len() * 2);
        let high = self.supply.high();
        let (freed, cold, looks) = self.search(world, most, high, BEAT_COLD);
        world.ran(looks, freed + cold == 0, 0);
        self.serve(world);
        if self.supply.goes_on((freed, cold), world.frames.len()) {
            self.provider_due = true;
            world.at(world.now + looks * world.setup.step_ns, Event::Run(PROVIDER));
        }
        self.notified(world);
    }

    fn written(&mut self, world: &mut World<'_>, _frames: &[u32]) {
        self.cleaner_due = false;
        // The clock may have them when it comes by again.
        if self.supply.is_low() || !self.waiting.is_empty() {
            self.supply.event().notify();
        }
        self.notified(world);
    }

    fn free(&self) -> u64 {
        self.free.len() as u64
    }
}
