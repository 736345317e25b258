//! Admission to the log: pure arithmetic over positions (payload bytes), no waits and no I/O.
//!
//! ```text
//! written <= end, checkpoint <= end <= end + reserved <= prepared
//! user trigger < system limit < checkpoint limit <= log_bytes - 2 segments
//! ```
//!
//! A log found older than that (because `log_size` was larger) has higher limits for all but users,
//! which fall as its checkpoint advances. So has a log whose `log_size` is reduced while it is
//! open. There users have a higher limit too, which falls by half of what each checkpoint frees:
//! users continue, and the log becomes shorter all the same.
//!
//! A reservation is granted when its bytes and all bytes reserved before fit (1) the buffer, (2)
//! the prepared segments, (3) the limit of the log age of its share. Users leave two prepared
//! segments free (G4). Open transactions hold system reservations for long, so these never take
//! buffer room from users: the buffer grows for them. It also grows for changes of pages within an
//! operation, which holds buffer room for which others wait.

use crate::segments::segment_bytes;
use evenkeel_base::Lsn;
use evenkeel_format::wal::{BLOCK, FRAME, PAYLOAD, SEGMENT_HEADER};
use evenkeel_sched::laws::log_space::throttle;
use evenkeel_sched::laws::target;
use std::time::Duration;

/// Bytes that a reservation has beyond those asked for: the frames of so many records.
pub(crate) const FRAMES: u64 = 16 * FRAME as u64;

/// Which part of the log a reservation may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Share {
    /// Row operations and their pages: delayed and held back by G1.
    User,
    /// Commit, abort, end, prepare and revert records: have a part that users cannot take.
    System,
    /// Manifest and checkpoint records, which make log space free again: the last part; never
    /// waits for log space.
    Checkpoint,
    /// A change of pages that an operation needs which has its log space already: the part of
    /// users. But it waits for nobody who waits for what that operation holds: neither for room in
    /// the buffer nor behind users.
    Within,
}

/// What a reservation lacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lack {
    /// Room in the buffer: something must be written.
    Buffer,
    /// Prepared segments.
    Segments,
    /// The log is too old: a checkpoint must advance.
    Age,
}

impl Lack {
    /// Whether it is the age; none if the age was not examined.
    pub(crate) fn of_age(self) -> Option<bool> {
        match self {
            Lack::Buffer => None,
            Lack::Age => Some(true),
            Lack::Segments => Some(false),
        }
    }
}

/// Bytes of records in this many bytes of blocks.
pub(crate) fn payload(bytes: u64) -> u64 {
    bytes / BLOCK as u64 * PAYLOAD as u64
}

/// The ages at which the shares wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    pub(crate) user: u64,
    pub(crate) system: u64,
    pub(crate) checkpoint: u64,
}

impl Limits {
    /// For a log of this many bytes on disk.
    pub fn of_log(log_bytes: u64) -> Limits {
        let segment = payload(segment_bytes(log_bytes) - SEGMENT_HEADER as u64);
        Limits::new(payload(log_bytes).max(8 * segment), segment)
    }

    /// The limits if a log of this age was found, which another `log_size` allowed: recovery and
    /// the checkpoint still have room to write, and users wait until the age is below their limit.
    pub(crate) fn with_found(self, age: u64) -> Limits {
        let segment = self.checkpoint - self.system;
        // As much as the largest reservation.
        let system = self.system.max(age + self.user / 2);
        Limits { system, checkpoint: self.checkpoint.max(system + segment), ..self }
    }

    /// `log` and `segment` in payload bytes. Live segments never exceed age + 2 segments; two more
    /// are prepared ahead. So the age for users ends at log - 4 segments.
    pub(crate) fn new(log: u64, segment: u64) -> Limits {
        assert!(log >= 6 * segment);
        Limits { user: log - 4 * segment, system: log - 3 * segment, checkpoint: log - 2 * segment }
    }

    /// The age at which users wait.
    pub fn user(&self) -> u64 {
        self.user
    }

    /// The age below which nothing is delayed.
    pub fn target(&self) -> u64 {
        target(self.user)
    }

    fn of(&self, share: Share) -> u64 {
        match share {
            Share::User | Share::Within => self.user,
            Share::System => self.system,
            Share::Checkpoint => self.checkpoint,
        }
    }

    /// The delay of a user operation of `bytes` at this age: in proportion to both.
    pub fn delay(&self, age: u64, bytes: u64) -> Option<Duration> {
        let said = throttle([self.user, age, 0, bytes]);
        (said.delay_ns > 0).then(|| Duration::from_nanos(said.delay_ns))
    }
}

/// The counts behind admission.
#[derive(Debug)]
pub(crate) struct LogSpace {
    /// The limits in force.
    pub(crate) limits: Limits,
    /// The limits of the configured size. `limits` fall to them as a log that is too old gets
    /// younger.
    limits_set: Limits,
    /// Everything below is written, and its buffer is free again.
    pub(crate) written: Lsn,
    /// Replay starts here.
    pub(crate) checkpoint: Lsn,
    /// End of the prepared segments.
    pub(crate) prepared: Lsn,
    /// The same without the two segments that users leave free.
    pub(crate) prepared_user: Lsn,
    /// Bytes a flush may waste on padding.
    pub(crate) pad: u64,
    /// Buffer room that users share.
    pub(crate) buffer: u64,
    user: u64,
    system: u64,
    tokens: u64,
}

impl LogSpace {
    pub(crate) fn new(limits: Limits, start: Lsn, pad: u64, buffer: u64) -> LogSpace {
        LogSpace {
            limits,
            limits_set: limits,
            written: start,
            checkpoint: start,
            prepared: start,
            prepared_user: start,
            pad,
            buffer,
            user: 0,
            system: 0,
            tokens: 0,
        }
    }

    /// The log begins with the found part: everything from `oldest` on.
    pub(crate) fn found(&mut self, oldest: Lsn, end: Lsn) {
        self.checkpoint = oldest;
        let age = end.0.saturating_sub(oldest.0);
        if age > self.limits_set.user {
            self.limits = self.limits_set.with_found(age);
        }
    }

    /// The checkpoint advances.
    pub(crate) fn move_checkpoint(&mut self, to: Lsn, end: Lsn) {
        let freed = to.0.saturating_sub(self.checkpoint.0);
        self.checkpoint = self.checkpoint.max(to);
        let fits = self.fitting(end, freed);
        self.limits.user = fits.user;
        self.limits.system = self.limits.system.min(fits.system);
        self.limits.checkpoint = self.limits.checkpoint.min(fits.checkpoint);
    }

    /// The log gets another size. Its content and its reservations stay.
    pub(crate) fn set_limits(&mut self, limits: Limits, end: Lsn) {
        self.limits_set = limits;
        self.limits = if self.taken(end) > limits.user { self.fitting(end, 0) } else { limits };
    }

    /// The limits that fit the bytes taken after a checkpoint has freed `freed`. If more is taken
    /// than users may have, their limit falls by half of the freed bytes, but not below the taken
    /// bytes plus the largest reservation.
    fn fitting(&self, end: Lsn, freed: u64) -> Limits {
        let (set, taken) = (self.limits_set, self.taken(end));
        let falling = self.limits.user.saturating_sub(freed / 2).min(taken + set.user / 2);
        let user = if taken > set.user { falling.max(set.user) } else { set.user };
        let above = if user > set.user { taken.max(user) } else { taken };
        Limits { user, ..set.with_found(above) }
    }

    /// Bytes of the log that are used or reserved.
    fn taken(&self, end: Lsn) -> u64 {
        end.0.saturating_sub(self.checkpoint.0) + self.user + self.system
    }

    /// The age at which users wait once a log that is too old has become younger.
    pub(crate) fn capacity(&self) -> u64 {
        self.limits_set.user
    }

    /// The largest reservation that fits once all others have ended.
    pub(crate) fn largest(&self, share: Share) -> u64 {
        let log = self.limits_set.user / 2;
        if share == Share::User { log.min(self.buffer - 2 * self.pad) } else { log }
    }

    /// Buffer room needed if `n` more were reserved.
    pub(crate) fn buffer_need(&self, end: Lsn, n: u64) -> u64 {
        end.0 - self.written.0 + self.user + self.system + n + 2 * self.pad
    }

    /// The position that `n` bytes more, and all reserved before, may reach.
    pub(crate) fn reach(&self, end: Lsn, n: u64) -> Lsn {
        Lsn(end.0 + self.user + self.system + n + (self.tokens + 1) * self.pad)
    }

    /// The resource that is lacking for `n` bytes more, if any.
    pub(crate) fn lack(&self, end: Lsn, share: Share, n: u64) -> Option<Lack> {
        let reserved = self.user + self.system + n;
        if share == Share::User
            && end.0 - self.written.0 + self.user + n + 2 * self.pad > self.buffer
        {
            return Some(Lack::Buffer);
        }
        if end.0 + reserved - self.checkpoint.0 > self.limits.of(share) {
            return Some(Lack::Age);
        }
        let user = matches!(share, Share::User | Share::Within);
        let prepared = if user { self.prepared_user } else { self.prepared };
        (self.reach(end, n) > prepared).then_some(Lack::Segments)
    }

    /// The checkpoint at which the age of the log would admit `n` bytes more.
    pub(crate) fn needed(&self, end: Lsn, share: Share, n: u64) -> Lsn {
        let reach = end.0 + self.user + self.system + n;
        let limit = self.limits.of(share);
        let needed = reach.saturating_sub(limit);
        if limit == self.limits.user && limit > self.limits_set.user {
            // The limit falls by half of the freed bytes.
            let twice = needed + needed.saturating_sub(self.checkpoint.0);
            return Lsn(twice.min(reach.saturating_sub(self.limits_set.user)));
        }
        Lsn(needed)
    }

    /// The inputs of [`throttle`] for `n` bytes more of a user.
    pub(crate) fn numbers(&self, end: Lsn, n: u64) -> [u64; 4] {
        [self.limits.user, end.0.saturating_sub(self.checkpoint.0), self.user + self.system, n]
    }

    /// Counts a reservation.
    pub(crate) fn take(&mut self, share: Share, n: u64) {
        *self.of(share) += n;
        self.tokens += 1;
    }

    /// Part of a reservation was appended.
    pub(crate) fn consume(&mut self, share: Share, n: u64) {
        *self.of(share) -= n;
    }

    /// A reservation ends with `left` unused bytes.
    pub(crate) fn give_back(&mut self, share: Share, left: u64) {
        *self.of(share) -= left;
        self.tokens -= 1;
    }

    /// Bytes that users have reserved, and bytes that other shares have.
    #[cfg(debug_assertions)]
    pub(crate) fn reserved(&self) -> (u64, u64) {
        (self.user, self.system)
    }

    fn of(&mut self, share: Share) -> &mut u64 {
        if share == Share::User { &mut self.user } else { &mut self.system }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A log of an age that its size allows has the limits of its size. An older one has room for
    /// recovery and a checkpoint, and its limits fall to those as the checkpoint advances.
    #[test]
    fn limits_follow_a_log_older_than_its_size_allows() {
        let set = Limits::new(512 << 20, 32 << 20);
        let end = Lsn(2 << 30);
        let of_age = |age| {
            let mut space = LogSpace::new(set, end, 480, 8 << 20);
            space.found(Lsn(end.0 - age), end);
            space
        };
        assert_eq!((of_age(0).limits, of_age(set.user).limits), (set, set));
        let mut space = of_age(1 << 30);
        let found = space.limits;
        assert_eq!(found.user, set.user);
        assert!(found.system >= (1 << 30) + space.largest(Share::System));
        assert_eq!(found.checkpoint - found.system, set.checkpoint - set.system);
        let mut before = found;
        for age in [900 << 20, 600 << 20, set.user, 100 << 20] {
            space.move_checkpoint(Lsn(end.0 - age), end);
            assert!(space.limits.system <= before.system && space.limits.system >= set.system);
            before = space.limits;
        }
        assert_eq!(space.limits, set);
        space.move_checkpoint(Lsn(end.0 - 50), Lsn(end.0 + (1 << 30)));
        assert_eq!(space.limits, set, "never up again");
    }

    /// A size set with more in use: every share has room, reservations count, the limits fall by
    /// half of the freed bytes, and to those of the size once the taken bytes fit.
    #[test]
    fn limits_fall_to_a_smaller_size() {
        let (large, small) = (Limits::new(8 << 30, 64 << 20), Limits::new(64 << 20, 4 << 20));
        let end = Lsn(9 << 30);
        let mut space = LogSpace::new(large, Lsn(5 << 30), 480, 8 << 20);
        space.take(Share::System, 1 << 20);
        let taken = (4 << 30) + (1 << 20);
        space.set_limits(small, end);
        let found = space.limits;
        assert_eq!((space.capacity(), space.largest(Share::System)), (small.user, small.user / 2));
        assert_eq!(found.user, taken + small.user / 2);
        assert!(found.system >= taken + space.largest(Share::System));
        assert_eq!(found.checkpoint - found.system, small.checkpoint - small.system);
        // Users fill their room each time, and what they wait for lets them continue.
        let (mut end, mut rounds, n) = (end, 0, 1 << 20);
        while space.limits.user > small.user {
            let before = space.limits;
            end.0 += space.limits.user - space.taken(end);
            let needed = space.needed(end, Share::User, n);
            assert!(needed > space.checkpoint && needed <= end);
            space.move_checkpoint(needed, end);
            let fits = space.taken(end) + n <= space.limits.user;
            assert!(fits || space.limits.user == small.user, "{:?}", space.limits);
            assert!(space.limits.user < before.user && space.limits.system <= before.system);
            assert!(space.limits.system >= space.limits.user + (small.system - small.user));
            rounds += 1;
        }
        assert!(rounds > 1000, "{rounds} checkpoints of 2 MiB");
        space.move_checkpoint(end, end);
        assert_eq!(space.limits, small);
        // A greater limit applies at once, and so does a lower one if nothing stands against it.
        for limits in [large, small] {
            space.set_limits(limits, end);
            assert_eq!(space.limits, limits);
        }
    }

    /// The law and the arithmetic of admission agree about waiting for the age.
    #[test]
    fn the_throttle_and_admission_agree_when_age_is_lacking() {
        let mut rng = evenkeel_io::Rng::new(2);
        for _ in 0..20_000 {
            let mut space = LogSpace::new(Limits::new(1 << 20, 64 << 10), Lsn(480), 480, 8 << 20);
            (space.prepared, space.prepared_user) = (Lsn(64 << 20), Lsn(64 << 20));
            space.take(Share::User, rng.below(100 << 10));
            let end = Lsn(480 + rng.below(space.limits.user));
            space.written = end;
            let n = 1 + rng.below(20 << 10);
            let law = throttle(space.numbers(end, n));
            assert_eq!(law.waits, space.lack(end, Share::User, n) == Some(Lack::Age));
        }
    }

    #[test]
    fn each_share_has_its_part_of_the_log() {
        let mut space = LogSpace::new(Limits::new(1 << 20, 64 << 10), Lsn(480), 480, 64 << 10);
        (space.prepared, space.prepared_user) = (Lsn(4 << 20), Lsn(4 << 20));
        let end = Lsn(480 + space.limits.user - 1000);
        space.written = end;
        assert_eq!(space.lack(end, Share::User, 1000), None);
        assert_eq!(space.lack(end, Share::User, 1001), Some(Lack::Age));
        assert_eq!(space.lack(end, Share::System, 1000 + (64 << 10)), None);
        assert_eq!(space.lack(end, Share::System, 1001 + (64 << 10)), Some(Lack::Age));
        assert_eq!(space.lack(end, Share::Checkpoint, 1000 + (128 << 10)), None);
        assert_eq!(space.lack(end, Share::Within, 1000), None);
        assert_eq!(space.lack(end, Share::Within, 1001), Some(Lack::Age));
        // Open transactions never take buffer room from users.
        for _ in 0..100 {
            space.take(Share::System, 1000);
        }
        space.checkpoint = end;
        assert_eq!(space.lack(end, Share::User, 60_000), None);
        assert_eq!(space.lack(Lsn(end.0 + 60_000), Share::User, 6000), Some(Lack::Buffer));
        assert_eq!(space.lack(Lsn(end.0 + 60_000), Share::Within, 6000), None);
        space.prepared_user = Lsn(end.0 + 100_000);
        assert_eq!(space.lack(end, Share::User, 1000), Some(Lack::Segments));
        assert_eq!(space.lack(end, Share::Within, 1000), Some(Lack::Segments));
        assert_eq!(space.lack(end, Share::System, 1000), None);
    }
}
