//! Time that no recorded wait explains (protocol G6): the part of an operation beyond 1 ms that is
//! neither a wait with a cause nor processor time of the thread. Time in which the thread waited
//! for a processor is a cause of its own.
//!
//! It is cheap enough for every operation: two readings of the processor's tick counter. The
//! processor time of a thread takes a system call, which costs as much as finding a row. It is read
//! at most once in 4 ms before an operation, and after an operation that took long. (Each of 16
//! clients on 2 cores has an operation per millisecond, so one reading per millisecond would be a
//! call for nearly each.) The time used since the last reading is attributed to the operation, so
//! at most that much of a wait may be missed. The same holds for the wait for a processor, which
//! takes the reading of a file, and that is five system calls: it is read after 50 ms in which the
//! thread has used 5 ms of a processor, and after an operation that is not explained otherwise.
//! (A thread that waits most of the time, such as one of many clients of one row, has an operation
//! in 50 ms or less often. By the clock alone it would read the file before each of them.)

use crate::runtime::Runtime;
use crate::thread_waits::attributed_ns;
use crate::{os, platform};
use evenkeel_base::Cause;
use std::cell::Cell;
use std::sync::OnceLock;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Operations that took longer than this are examined.
const SLOW_NS: u64 = 1_000_000;
/// The processor time is read again after this.
const FRESH_NS: u64 = 4_000_000;
/// So is the wait for a processor after this,
const WAITED_FRESH_NS: u64 = 50_000_000;
/// and after this much processor time of the thread.
const WAITED_FRESH_CPU_NS: u64 = 5_000_000;
/// Only findings beyond this are recorded: less is within the accuracy of the clocks.
const FOUND_NS_MIN: u64 = 100_000;

thread_local! {
    /// Ticks and processor time when that was last read.
    static READ: Cell<(u64, u64)> = const { Cell::new((0, 0)) };
    /// When the wait for a processor was last read.
    static WAITED: Cell<Waited> = const { Cell::new(Waited { ticks: 0, cpu_ns: 0, ns: 0 }) };
}

#[derive(Clone, Copy)]
struct Waited {
    ticks: u64,
    /// Processor time of the thread.
    cpu_ns: u64,
    /// Its total wait for a processor.
    ns: u64,
}

impl Waited {
    /// Reads the total wait of this thread for a processor; 0 if the system does not tell.
    fn read(ticks: u64, cpu_ns: u64) -> Waited {
        #[cfg(test)]
        tests::READINGS.set(tests::READINGS.get() + 1);
        Waited { ticks, cpu_ns, ns: os::processor_ns().map_or(0, |(_, waited)| waited) }
    }

    fn is_old(&self, ticks: u64, cpu_ns: u64) -> bool {
        self.ticks == 0
            || (cpu_ns.saturating_sub(self.cpu_ns) > WAITED_FRESH_CPU_NS
                && ns_is_more(ticks.wrapping_sub(self.ticks), WAITED_FRESH_NS))
    }
}

/// Ticks for 1,024 us, measured once.
fn ticks_per_1024_us() -> u64 {
    static TICKS: OnceLock<u64> = OnceLock::new();
    *TICKS.get_or_init(|| {
        let (start, from) = (Instant::now(), os::ticks());
        while start.elapsed() < Duration::from_micros(200) {
            std::hint::spin_loop();
        }
        let (ns, ticks) = (start.elapsed().as_nanos(), os::ticks().wrapping_sub(from));
        u64::try_from(u128::from(ticks) * 1_024_000 / ns).unwrap_or(1).max(1)
    })
}

fn ns_of(ticks: u64) -> u64 {
    let ns = u128::from(ticks) * 1_024_000 / u128::from(ticks_per_1024_us());
    u64::try_from(ns).unwrap_or(u64::MAX)
}

/// An operation of a foreground thread under way.
#[must_use]
#[derive(Clone, Copy, Debug)]
pub struct Operation {
    start: u64,
    explained: u64,
}

impl Runtime {
    /// Begins to measure unexplained time of operations: in real environments only, because the
    /// clock of a simulated one is not the processor's.
    pub fn explain(&self) {
        ticks_per_1024_us();
        self.explaining.store(true, Ordering::Relaxed);
    }

    /// Begins an operation. Operations of one thread do not contain each other.
    #[inline]
    pub fn operation(&self) -> Operation {
        if !self.explaining.load(Ordering::Relaxed) {
            return Operation { start: 0, explained: 0 };
        }
        let start = os::ticks();
        if ns_is_more(start.wrapping_sub(READ.get().0), FRESH_NS) {
            let cpu = platform::thread_cpu_ns();
            READ.set((start, cpu));
            if WAITED.get().is_old(start, cpu) {
                WAITED.set(Waited::read(start, cpu));
            }
        }
        Operation { start, explained: attributed_ns() }
    }

    /// Ends it: the time beyond everything known is recorded as `unexplained`.
    #[inline]
    pub fn operation_ends(&self, operation: Operation) {
        if operation.start == 0 {
            return;
        }
        let ticks = os::ticks().wrapping_sub(operation.start);
        if ns_is_more(ticks, SLOW_NS) {
            self.look_at(operation, ns_of(ticks));
        }
    }

    #[cold]
    fn look_at(&self, operation: Operation, wall_ns: u64) {
        let (at, cpu) = READ.get();
        let now = platform::thread_cpu_ns();
        // Time used between the reading and the start may count, too.
        let used = now.saturating_sub(cpu);
        READ.set((at.max(operation.start), now));
        let waited = attributed_ns().wrapping_sub(operation.explained);
        let rest = wall_ns.saturating_sub(waited).saturating_sub(used);
        if rest <= FOUND_NS_MIN {
            return;
        }
        let seen = WAITED.get();
        let all = Waited::read(seen.ticks.max(operation.start), now);
        WAITED.set(all);
        // A thread that has just been woken waited for the processor within the wait that woke it,
        // too.
        let processor = all.ns.saturating_sub(seen.ns).min(rest);
        for (cause, ns) in [(Cause::Processor, processor), (Cause::Unexplained, rest - processor)] {
            if ns > FOUND_NS_MIN {
                self.stalls.record(cause, ns);
            }
        }
    }
}

/// Without a division: both sides times a constant.
#[inline]
fn ns_is_more(ticks: u64, ns: u64) -> bool {
    ticks > ns / 1024 * (ticks_per_1024_us() / 1000)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Event, MemEnv};
    use std::sync::Arc;
    use std::sync::atomic::AtomicBool;

    thread_local! {
        /// How often this thread has read its wait for a processor.
        pub(super) static READINGS: Cell<u64> = const { Cell::new(0) };
    }

    /// A thread that waits for 60 ms before each operation reads the file before the first one,
    /// and again once it has used the processor for longer.
    #[test]
    fn a_thread_that_mostly_waits_reads_no_file_before_each_operation() {
        let rt = Runtime::new(Arc::new(MemEnv::new()));
        rt.explain();
        let operations = |count| {
            for _ in 0..count {
                let event = Event::new();
                event.block(event.now(), Some(Duration::from_millis(60)));
                rt.operation_ends(rt.operation());
            }
            READINGS.get()
        };
        assert_eq!(operations(1), 1);
        assert_eq!(operations(4), 1);
        let used = platform::thread_cpu_ns() + 2 * WAITED_FRESH_CPU_NS;
        while platform::thread_cpu_ns() < used {}
        assert_eq!(operations(4), 2);
    }

    fn spin(time: Duration) {
        let start = Instant::now();
        while start.elapsed() < time {
            std::hint::spin_loop();
        }
    }

    #[test]
    fn only_waits_without_a_cause_are_unexplained() {
        let rt = Runtime::new(Arc::new(MemEnv::new()));
        let unexplained = || rt.stalls.get(Cause::Unexplained);
        let event = Arc::new(Event::new());
        // Measuring was not requested: nothing is measured.
        let op = rt.operation();
        event.block(event.now(), Some(Duration::from_millis(5)));
        rt.operation_ends(op);
        assert_eq!(unexplained().count, 0);
        rt.explain();
        // A wait with a cause is explained, and so is computing.
        let op = rt.operation();
        rt.wait(&event, event.now(), Some(Duration::from_millis(20)), Cause::RowLock);
        spin(Duration::from_millis(20));
        rt.operation_ends(op);
        let noise = unexplained().us;
        // A wait without a cause is not.
        let op = rt.operation();
        event.block(event.now(), Some(Duration::from_millis(50)));
        rt.operation_ends(op);
        let found = unexplained().us - noise;
        assert!(found >= 45_000, "{found} us found of 50 ms");
        assert!(rt.stalls.get(Cause::RowLock).us >= 20_000);
        // Between operations nothing is measured.
        let before = unexplained().count;
        event.block(event.now(), Some(Duration::from_millis(5)));
        rt.operation_ends(rt.operation());
        assert_eq!(unexplained().count, before);
    }

    /// Two computing threads on one processor: each waits for it about half of the time.
    #[test]
    fn waits_for_a_processor_are_a_cause() {
        platform::stay_on_nth(0);
        let rt = Runtime::new(Arc::new(MemEnv::new()));
        rt.explain();
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            });
            spin(Duration::from_millis(20));
            let op = rt.operation();
            spin(Duration::from_millis(200));
            rt.operation_ends(op);
            over.store(true, Ordering::Relaxed);
        });
        if os::processor_ns().is_none() {
            return; // The system does not tell.
        }
        let (processor, unexplained) =
            (rt.stalls.get(Cause::Processor).us, rt.stalls.get(Cause::Unexplained).us);
        assert!(processor >= 40_000, "{processor} us");
        assert!(unexplained <= processor / 4, "{unexplained} us beside {processor} us");
    }

    #[test]
    fn clock_ticks_convert_to_nanoseconds() {
        let from = os::ticks();
        spin(Duration::from_millis(10));
        let ns = ns_of(os::ticks().wrapping_sub(from));
        assert!((9_500_000..1_000_000_000).contains(&ns), "{ns}");
        assert!(ns_is_more(os::ticks().wrapping_sub(from), SLOW_NS));
    }
}
