//! Both providers on a plain row of frames, without lists and counters. The next frame follows from
//! the times of their last changes, and the number of free frames from a count of all.

use super::providers::adjusted;
use super::setup::Setup;
use super::sim::{Event, Frame, Got, Provider, World};

/// The last change of each frame, as a number that only grows.
struct Stamps(Vec<u64>, u64);

impl Stamps {
    fn new(frames: u64) -> Stamps {
        Stamps((0..frames).collect(), frames)
    }

    fn set(&mut self, frame: u32) {
        self.1 += 1;
        self.0[frame as usize] = self.1;
    }

    fn of(&self, frame: u32) -> u64 {
        self.0[frame as usize]
    }
}

fn frames(world: &World<'_>, is: impl Fn(Frame) -> bool) -> Vec<u32> {
    let all = (0u32..).zip(&world.frames).filter(|(_, frame)| is(**frame));
    all.map(|(number, _)| number).collect()
}

fn count_free(world: &World<'_>) -> u64 {
    frames(world, |frame| frame == Frame::Free).len() as u64
}

/// The LRU managers.
pub struct Timers {
    stamps: Stamps,
    sleeps: Vec<u64>,
    backoff: Vec<u64>,
    instances: u64,
    free: u64,
}

impl Timers {
    /// The same initial state as the provider under test.
    pub fn new(setup: &Setup) -> Timers {
        Timers {
            stamps: Stamps::new(setup.frames),
            sleeps: vec![setup.sleep_ns; setup.instances as usize],
            backoff: vec![0; setup.threads as usize],
            instances: setup.instances,
            free: 0,
        }
    }

    fn of(&self, world: &World<'_>, instance: u32, is: impl Fn(Frame) -> bool) -> Vec<u32> {
        let mut all = frames(world, is);
        all.retain(|frame| u64::from(*frame) % self.instances == u64::from(instance));
        all.sort_unstable_by_key(|frame| self.stamps.of(*frame));
        all
    }
}

impl Provider for Timers {
    fn start(&mut self, world: &mut World<'_>) {
        for instance in 0..self.instances as u32 {
            let all = self.of(world, instance, |_| true);
            for frame in &all[..world.setup.scan_depth as usize] {
                world.frames[*frame as usize] = Frame::Free;
            }
            let first = world.rng.below(self.sleeps[instance as usize]);
            world.at(first, Event::Run(instance));
        }
        self.free = count_free(world);
    }

    fn want(&mut self, world: &mut World<'_>, thread: u32) -> Got {
        let instance = world.rng.below(self.instances) as u32;
        let free = self.of(world, instance, |frame| frame == Frame::Free);
        let setup = world.setup;
        let backoff = &mut self.backoff[thread as usize];
        *backoff = match (free.last(), *backoff) {
            (Some(_), _) => 0,
            (None, 0) => setup.retry_ns,
            (None, last) => (last * 2).min(setup.retry_most_ns),
        };
        self.free = count_free(world) - u64::from(!free.is_empty());
        free.last().map_or(Got::Sleep(*backoff), |frame| Got::Frame(*frame))
    }

    fn loaded(&mut self, _world: &mut World<'_>, frame: u32) {
        self.stamps.set(frame);
    }

    fn run(&mut self, world: &mut World<'_>, worker: u32) {
        let depth = world.setup.scan_depth;
        let free = self.of(world, worker, |frame| frame == Frame::Free).len() as u64;
        let cold = self.of(world, worker, |f| matches!(f, Frame::Clean(_) | Frame::Dirty(_)));
        let some = depth.saturating_sub(free).min(depth) as usize;
        let cold = &cold[..some.min(cold.len())];
        let mut writes = Vec::new();
        for frame in cold {
            match world.frames[*frame as usize] {
                Frame::Dirty(_) => writes.push(*frame),
                _ => {
                    world.frames[*frame as usize] = Frame::Free;
                    self.stamps.set(*frame);
                }
            }
        }
        self.free = count_free(world);
        let free = self.of(world, worker, |frame| frame == Frame::Free).len() as u64;
        let sleep = &mut self.sleeps[worker as usize];
        *sleep = adjusted(*sleep, free, cold.len() as u64, world.setup);
        let (sleep, takes) = (*sleep, depth * world.setup.step_ns);
        world.ran(cold.len() as u64, cold.is_empty(), if sleep == 0 { takes } else { 0 });
        world.figures.manager_slept_ns += sleep;
        let next = world.now + sleep.max(takes);
        if !writes.is_empty() {
            world.write(worker, writes);
        }
        world.at(next, Event::Run(worker));
    }

    fn written(&mut self, world: &mut World<'_>, _worker: u32, frames: &[u32]) {
        for frame in frames {
            world.frames[*frame as usize] = Frame::Free;
            self.stamps.set(*frame);
        }
        self.free = count_free(world);
    }

    fn free(&self) -> u64 {
        self.free
    }
}

const PROVIDER: u32 = 0;
/// Worker 0 is the provider; these are the cleaners.
const CLEANERS: [u32; 2] = [1, 2];

/// The free list that is woken, with its marks and bounds as numbers.
pub struct Events {
    stamps: Stamps,
    low: u64,
    hand: usize,
    cold: Vec<u32>,
    waiting: Vec<u32>,
    /// A thread has seen since the free list's last run that few frames are left.
    seen_low: bool,
    /// Notifications not yet handled: of the provider, of threads without a frame, of the cleaners.
    rung: [bool; 3],
    provider_due: bool,
    /// By cleaner: it was woken, or has a batch under way.
    at_work: [bool; 2],
    /// Dirty frames that each cleaner has taken and not written; a frame taken twice counts twice.
    taken: [Vec<u32>; 2],
    /// Frames examined in vain.
    fruitless: u64,
    free: u64,
}

impl Events {
    /// The same initial state as the provider under test.
    pub fn new(setup: &Setup) -> Events {
        let low = (setup.frames / 32).clamp(4, 4096);
        Events {
            stamps: Stamps::new(setup.frames),
            low,
            hand: (low + low.min(512)) as usize,
            cold: Vec::new(),
            waiting: Vec::new(),
            seen_low: false,
            rung: [false; 3],
            provider_due: false,
            at_work: [false; 2],
            taken: [Vec::new(), Vec::new()],
            fruitless: 0,
            free: 0,
        }
    }

    fn gets_free(&mut self, world: &mut World<'_>, frame: u32) {
        world.frames[frame as usize] = Frame::Free;
        self.stamps.set(frame);
        self.free = count_free(world);
        self.rung[1] = true;
    }

    /// Examines up to `most` frames until this many are free; returns how many it freed and how
    /// many were dirty.
    fn look(&mut self, world: &mut World<'_>, most: u64, wanted: u64, cold_most: u64) -> [u64; 3] {
        let (mut freed, mut dirty, mut looks) = (0, 0, 0);
        while looks < most && count_free(world) < wanted && dirty < cold_most {
            let at = self.hand % world.frames.len();
            (self.hand, looks) = (at + 1, looks + 1);
            match world.frames[at] {
                Frame::Clean(true) => world.frames[at] = Frame::Clean(false),
                Frame::Dirty(true) => world.frames[at] = Frame::Dirty(false),
                Frame::Clean(false) => {
                    self.gets_free(world, at as u32);
                    freed += 1;
                }
                Frame::Dirty(false) => {
                    if self.cold.len() < 512 {
                        self.cold.push(at as u32);
                    }
                    dirty += 1;
                }
                _ => {}
            }
        }
        [freed, dirty, looks]
    }

    /// Takes the frame that became free last, and records if few are left.
    fn take(&mut self, world: &World<'_>) -> Option<u32> {
        let free = frames(world, |frame| frame == Frame::Free);
        let last = free.into_iter().max_by_key(|frame| self.stamps.of(*frame))?;
        self.free = count_free(world) - 1;
        if self.free < self.low && !self.seen_low {
            (self.seen_low, self.rung[0]) = (true, true);
        }
        Some(last)
    }

    /// Starts the workers that were notified, unless they are under way.
    fn listen(&mut self, world: &mut World<'_>) {
        let [provider, threads, cleaners] = std::mem::take(&mut self.rung);
        let soon = world.now + world.setup.wake_ns;
        if provider && !self.provider_due {
            self.provider_due = true;
            world.at(soon, Event::Run(PROVIDER));
        }
        if threads {
            for thread in self.waiting.drain(..) {
                world.at(soon, Event::Want(thread));
            }
        }
        for (cleaner, at_work) in CLEANERS.into_iter().zip(&mut self.at_work) {
            if cleaners && !*at_work {
                *at_work = true;
                world.at(soon, Event::Run(cleaner));
            }
        }
    }

    fn clean(&mut self, world: &mut World<'_>, cleaner: u32) {
        let keep = self.cold.len().saturating_sub(world.setup.batch_pages);
        let taken: Vec<u32> = self.cold.drain(keep..).collect();
        let mut batch = taken.clone();
        self.taken[cleaner as usize - 1] = taken;
        batch.sort_unstable();
        batch.dedup();
        batch.retain(|frame| matches!(world.frames[*frame as usize], Frame::Dirty(_)));
        world.ran(0, batch.is_empty(), 0);
        if batch.is_empty() {
            self.rests(cleaner);
        } else {
            world.write(cleaner, batch);
        }
    }

    /// The provider works up to this number of free frames.
    fn high(&self) -> u64 {
        self.low + self.low.min(512)
    }

    /// The batch of a cleaner is done.
    fn rests(&mut self, cleaner: u32) {
        let taken = std::mem::take(&mut self.taken[cleaner as usize - 1]);
        self.rung[0] |= !taken.is_empty() && self.free < self.high();
        self.at_work[cleaner as usize - 1] = false;
    }

    fn provide(&mut self, world: &mut World<'_>) {
        (self.provider_due, self.seen_low) = (false, false);
        let (all, high) = (world.frames.len() as u64, self.high());
        // Up to the high mark and one batch more; frames that are about to be free need no search.
        let queued = self.cold.len() as u64;
        let leaving = self.taken.iter().map(|taken| taken.len() as u64).sum::<u64>();
        let missing = (high + high.min(256)).saturating_sub(self.free + queued + leaving);
        let missing = missing.min((512 - queued).clamp(4, 256));
        let (mut found, mut again) = ([0; 3], false);
        if missing > 0 {
            found = self.look(world, (2 * all).min(1024), high, missing);
            again = match found {
                [0, 0, _] => self.fruitless < 2 * all,
                [freed, ..] => freed > 0,
            };
            self.fruitless = if found[..2] == [0, 0] && again { self.fruitless + 1024 } else { 0 };
            if self.free >= high {
                (self.fruitless, again) = (0, false);
            }
        }
        let [freed, cold, looks] = found;
        world.ran(looks, freed + cold == 0, 0);
        self.rung[2] |= queued + cold > 0;
        if again {
            self.provider_due = true;
            world.at(world.now + looks * world.setup.step_ns, Event::Run(PROVIDER));
        }
    }
}

impl Provider for Events {
    fn start(&mut self, world: &mut World<'_>) {
        for frame in &mut world.frames[..self.high() as usize] {
            *frame = Frame::Free;
        }
        self.free = count_free(world);
    }

    fn want(&mut self, world: &mut World<'_>, thread: u32) -> Got {
        let mut frame = self.take(world);
        if frame.is_none() {
            let [freed, _, looks] = self.look(world, 64, 1, 4);
            world.figures.own_looks += looks;
            world.figures.vain_ns += if freed > 0 { 0 } else { looks * world.setup.step_ns };
            frame = self.take(world);
        }
        if frame.is_none() {
            self.waiting.push(thread);
            self.rung[0] = true;
        }
        self.listen(world);
        frame.map_or(Got::Wait, Got::Frame)
    }

    fn loaded(&mut self, _world: &mut World<'_>, _frame: u32) {}

    fn run(&mut self, world: &mut World<'_>, worker: u32) {
        match worker {
            PROVIDER => self.provide(world),
            cleaner => self.clean(world, cleaner),
        }
        self.listen(world);
    }

    fn written(&mut self, world: &mut World<'_>, cleaner: u32, frames: &[u32]) {
        for frame in frames {
            if count_free(world) < self.high() {
                self.gets_free(world, *frame);
            }
        }
        self.rung[1] = true;
        self.rests(cleaner);
        // It looks for more frames before it sleeps.
        if !self.cold.is_empty() {
            self.at_work[cleaner as usize - 1] = true;
            self.clean(world, cleaner);
        }
        self.listen(world);
    }

    fn free(&self) -> u64 {
        self.free
    }
}
