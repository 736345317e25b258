//! Threads that read pages into a pool, in virtual time. A [`Provider`] frees frames for them:
//! timers, or the engine's own free list.

use super::setup::Setup;
use evenkeel_io::Rng;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

const SECOND: u64 = 1_000_000_000;
/// Interval at which the free frames are recorded.
const SAMPLE_NS: u64 = 100_000_000;

/// The events of the simulation.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Event {
    /// A thread requests a frame.
    Want(u32),
    /// The page of a thread is in this frame.
    Read(u32, u32),
    /// A worker of the provider runs.
    Run(u32),
    /// Pages that a worker wrote are on the disk.
    Written(u32, Vec<u32>),
    /// The free frames are recorded.
    Sample,
}

/// The state of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Frame {
    /// Without a page.
    Free,
    /// Being read into.
    Loading,
    /// Equal to the page on disk; true: used since the clock passed.
    Clean(bool),
    /// Changed; true: used since the clock passed.
    Dirty(bool),
    /// Being written.
    Writing,
}

/// The answer to a thread that requests a frame.
pub enum Got {
    /// A frame.
    Frame(u32),
    /// No frame: the thread sleeps this long and requests again.
    Sleep(u64),
    /// No frame: the provider wakes the thread, which requests again.
    Wait,
}

/// Figures.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Figures {
    /// Pages read in each second.
    pub done: Vec<u64>,
    /// Free frames, each tenth of a second.
    pub free: Vec<u64>,
    /// Number of times that a thread found no free frame.
    pub waits: u64,
    /// Time that threads waited for a frame.
    pub waited_ns: u64,
    /// The longest such wait.
    pub longest_ns: u64,
    /// Sleeps on timers of threads that found no frame, each counted whole when it begins.
    pub asleep_ns: u64,
    /// Sleeps on timers of the background workers, each counted whole when it begins.
    pub manager_slept_ns: u64,
    /// Runs of the background workers.
    pub runs: u64,
    /// Runs that found nothing to do.
    pub idle_runs: u64,
    /// Frames that background workers examined.
    pub looks: u64,
    /// Processor time of background workers.
    pub busy_ns: u64,
    /// Processor time of their runs that found nothing to do, and of threads that found no frame.
    pub vain_ns: u64,
    /// Frames that the threads examined themselves.
    pub own_looks: u64,
}

impl World<'_> {
    /// Records a run of a background worker that examined this many frames; with `idle` it found
    /// nothing to do. The run takes at least the time of a wake-up; a worker that does not sleep
    /// passes `at_least`.
    pub fn ran(&mut self, looks: u64, idle: bool, at_least: u64) {
        let figures = &mut self.figures;
        let ns = (self.setup.run_ns + looks * self.setup.step_ns).max(at_least);
        (figures.runs, figures.looks) = (figures.runs + 1, figures.looks + looks);
        figures.busy_ns += ns;
        if idle {
            (figures.idle_runs, figures.vain_ns) = (figures.idle_runs + 1, figures.vain_ns + ns);
        }
    }
}

/// The state of the simulation without the policy.
pub struct World<'a> {
    /// The parameters.
    pub setup: &'a Setup,
    /// Random numbers.
    pub rng: Rng,
    /// The present.
    pub now: u64,
    /// Every frame.
    pub frames: Vec<Frame>,
    /// The measurements.
    pub figures: Figures,
    events: BinaryHeap<Reverse<(u64, u64, Event)>>,
    number: u64,
    disk_free: u64,
    since: Vec<Option<u64>>,
}

/// A policy that frees frames.
pub trait Provider {
    /// Called before the first event.
    fn start(&mut self, world: &mut World<'_>);
    /// A thread requests a frame.
    fn want(&mut self, world: &mut World<'_>, thread: u32) -> Got;
    /// A page was read into this frame.
    fn loaded(&mut self, world: &mut World<'_>, frame: u32);
    /// A worker runs.
    fn run(&mut self, world: &mut World<'_>, worker: u32);
    /// Pages of a worker are written: their frames are clean.
    fn written(&mut self, world: &mut World<'_>, worker: u32, frames: &[u32]);
    /// Free frames.
    fn free(&self) -> u64;
}

impl World<'_> {
    /// Schedules an event at `time`.
    pub fn at(&mut self, time: u64, event: Event) {
        self.number += 1;
        self.events.push(Reverse((time, self.number, event)));
    }

    /// The time at which the disk has done this many more pages.
    fn disk(&mut self, pages: u64) -> u64 {
        let takes = pages * SECOND / self.setup.disk_pages_per_sec;
        self.disk_free = self.disk_free.max(self.now) + takes;
        self.disk_free + self.setup.io_ns
    }

    /// A worker writes pages.
    pub fn write(&mut self, worker: u32, frames: Vec<u32>) {
        for frame in &frames {
            self.frames[*frame as usize] = Frame::Writing;
        }
        let end = self.disk(frames.len() as u64);
        self.at(end, Event::Written(worker, frames));
    }

    /// The thread has its frame: reads the page.
    fn give(&mut self, thread: u32, frame: u32) {
        if let Some(since) = self.since[thread as usize].take() {
            let waited = self.now - since;
            self.figures.waited_ns += waited;
            self.figures.longest_ns = self.figures.longest_ns.max(waited);
        }
        let was = std::mem::replace(&mut self.frames[frame as usize], Frame::Loading);
        assert_eq!(was, Frame::Free, "frame {frame} was given to thread {thread}");
        let end = self.disk(1);
        self.at(end, Event::Read(thread, frame));
    }

    fn read(&mut self, thread: u32, frame: u32) {
        let is_dirty = self.rng.one_in(self.setup.dirty_one_in);
        let state = if is_dirty { Frame::Dirty(true) } else { Frame::Clean(true) };
        self.frames[frame as usize] = state;
        self.figures.done[(self.now / SECOND) as usize] += 1;
        let burst = self.setup.is_burst(self.now);
        let think = if burst { self.setup.busy_ns } else { self.setup.quiet_ns };
        let next = self.now + think / 2 + self.rng.below(think);
        self.at(next, Event::Want(thread));
    }
}

/// Runs threads and a provider.
pub fn run(setup: &Setup, provider: &mut dyn Provider) -> Figures {
    let mut rng = Rng::new(setup.seed ^ 0xf4ee);
    let frame = |_| match rng.one_in(setup.dirty_one_in) {
        true => Frame::Dirty(false),
        false => Frame::Clean(false),
    };
    let mut world = World {
        setup,
        now: 0,
        frames: (0..setup.frames).map(frame).collect(),
        rng,
        figures: Figures { done: vec![0; setup.seconds as usize], ..Figures::default() },
        events: BinaryHeap::new(),
        number: 0,
        disk_free: 0,
        since: vec![None; setup.threads as usize],
    };
    provider.start(&mut world);
    for thread in 0..setup.threads as u32 {
        let first = world.rng.below(setup.quiet_ns);
        world.at(first, Event::Want(thread));
    }
    world.at(0, Event::Sample);
    while let Some(Reverse((time, _, event))) = world.events.pop() {
        if time >= setup.seconds * SECOND {
            break;
        }
        world.now = time;
        match event {
            Event::Want(thread) => match provider.want(&mut world, thread) {
                Got::Frame(frame) => world.give(thread, frame),
                missed => {
                    world.figures.vain_ns += setup.run_ns;
                    if world.since[thread as usize].is_none() {
                        world.since[thread as usize] = Some(time);
                        world.figures.waits += 1;
                    }
                    if let Got::Sleep(ns) = missed {
                        world.figures.asleep_ns += ns;
                        world.at(time + ns, Event::Want(thread));
                    }
                }
            },
            Event::Read(thread, frame) => {
                world.read(thread, frame);
                provider.loaded(&mut world, frame);
            }
            Event::Run(worker) => provider.run(&mut world, worker),
            Event::Written(worker, frames) => {
                for frame in &frames {
                    world.frames[*frame as usize] = Frame::Clean(false);
                }
                provider.written(&mut world, worker, &frames);
            }
            Event::Sample => {
                world.figures.free.push(provider.free());
                world.at(time + SAMPLE_NS, Event::Sample);
            }
        }
    }
    let free = world.frames.iter().filter(|frame| **frame == Frame::Free).count() as u64;
    assert_eq!(free, provider.free(), "free frames, and those that can be had");
    for since in world.since.iter().flatten() {
        let waited = setup.seconds * SECOND - since;
        world.figures.waited_ns += waited;
        world.figures.longest_ns = world.figures.longest_ns.max(waited);
    }
    world.figures
}
