//! The names of entries that left a cache a short time ago, as the measure of what more memory
//! would save it (after ARC, Megiddo and Modha 2003). A cache reports the names that leave it and
//! those that it misses; a missed name found among those that left counts as a hit. Before anything
//! is missed, a cache can also report that it is full, because memory may be idle elsewhere.
//!
//! Invariants: the table has one place per name and keeps the newest name, so it remembers about as
//! many names as it has places. Without places (until `watch`) nothing is recorded and no thread is
//! woken. No lock is held during a wait. Called by caches on misses and evictions, never on hits.

use evenkeel_base::sync::{Mutex, RwLock};
use evenkeel_io::Event;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering::Relaxed};

/// Wake after at least this many wants: a cache much smaller than its data always has some.
const WANTS_PER_WAKE_MIN: u64 = 256;
/// If more hits than that wake, this many times fewer wants wake.
const WANTS_PER_HIT: u64 = 8;

/// Names that left one cache.
#[derive(Default)]
pub struct GhostCache {
    /// Made when the first name leaves the cache: a small database has none of this memory.
    places: RwLock<Box<[AtomicU32]>>,
    /// Places to make.
    names: AtomicUsize,
    hits: AtomicU64,
    hits_per_wake: AtomicU64,
    /// Entries that could not be kept for want of room, if the cache reports these.
    wants: AtomicU64,
    event: Mutex<Option<Arc<Event>>>,
}

impl GhostCache {
    /// From now on remembers about `names` names and notifies `event` after each `hits_per_wake`
    /// hits, and after an eighth as many wants (at least 256).
    pub fn watch(&self, names: usize, hits_per_wake: u64, event: Arc<Event>) {
        self.names.store(names, Relaxed);
        *self.places.write() = Box::default();
        self.hits_per_wake.store(hits_per_wake.max(1), Relaxed);
        *self.event.lock() = Some(event);
    }

    /// Notifies the event for a reason other than hits.
    pub fn wake(&self) {
        if let Some(event) = &*self.event.lock() {
            event.notify();
        }
    }

    /// `name` has left the cache.
    pub fn evicted(&self, name: u64) {
        if !self.remember(name) && self.names.load(Relaxed) > 0 {
            self.make_places();
            self.remember(name);
        }
    }

    /// Remembers a name; false if there are no places.
    fn remember(&self, name: u64) -> bool {
        let places = self.places.read();
        if places.is_empty() {
            return false;
        }
        let (place, tag) = Self::place(name, places.len());
        places[place].store(tag, Relaxed);
        true
    }

    #[cold]
    fn make_places(&self) {
        let mut places = self.places.write();
        if places.is_empty() {
            let names = self.names.load(Relaxed);
            *places = (0..names).map(|_| AtomicU32::new(0)).collect();
        }
    }

    /// An entry leaves, or cannot enter, that would be kept if there were room: wakes after some of
    /// these.
    pub fn wants_room(&self) {
        let wants = self.wants.fetch_add(1, Relaxed) + 1;
        let per_wake = self.hits_per_wake.load(Relaxed) / WANTS_PER_HIT;
        if wants.is_multiple_of(per_wake.max(WANTS_PER_WAKE_MIN)) {
            self.wake();
        }
    }

    /// `name` was requested and is not in the cache.
    pub fn missed(&self, name: u64) {
        let was_here = {
            let places = self.places.read();
            if places.is_empty() {
                return;
            }
            let (place, tag) = Self::place(name, places.len());
            places[place].compare_exchange(tag, 0, Relaxed, Relaxed).is_ok()
        };
        if was_here {
            let hits = self.hits.fetch_add(1, Relaxed) + 1;
            if hits.is_multiple_of(self.hits_per_wake.load(Relaxed)) {
                self.wake();
            }
        }
    }

    /// Hits since the last call.
    pub fn take_hits(&self) -> u64 {
        self.hits.swap(0, Relaxed)
    }

    /// Wants since the last call.
    pub fn take_wants(&self) -> u64 {
        self.wants.swap(0, Relaxed)
    }

    /// The place of a name, and its value there; 0 stands for none.
    fn place(name: u64, places: usize) -> (usize, u32) {
        let mut mixed = name.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        mixed = (mixed ^ (mixed >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed ^= mixed >> 32;
        let place = ((mixed >> 32) * places as u64) >> 32;
        (place as usize, mixed as u32 | 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn watching(names: usize, hits_per_wake: u64) -> (GhostCache, Arc<Event>) {
        let (ghosts, event) = (GhostCache::default(), Arc::new(Event::new()));
        ghosts.watch(names, hits_per_wake, event.clone());
        (ghosts, event)
    }

    #[test]
    fn a_miss_of_an_evicted_name_counts_once() {
        let (ghosts, event) = watching(1000, 10);
        (0..20).for_each(|name| ghosts.evicted(name * 7919));
        (0..20).for_each(|name| ghosts.missed(name * 7919 + 1));
        assert_eq!((ghosts.take_hits(), event.now()), (0, 0), "others are no hits");
        (0..20).for_each(|name| ghosts.missed(name * 7919));
        assert_eq!(event.now(), 2);
        let hits = ghosts.take_hits();
        assert!((19..=20).contains(&hits), "{hits}: two may share a place");
        (0..20).for_each(|name| ghosts.missed(name * 7919));
        assert_eq!(ghosts.take_hits(), 0, "a second miss is of something that came and went");
    }

    /// Names return after so many others have left: few are remembered beyond the table's size.
    #[test]
    fn the_cache_remembers_about_as_many_names_as_it_has_places() {
        let hits_at_distance = |distance: u64| {
            let (ghosts, _) = watching(1000, u64::MAX);
            for name in 0..distance + 5000 {
                ghosts.evicted(name);
                if let Some(name) = name.checked_sub(distance) {
                    ghosts.missed(name);
                }
            }
            ghosts.take_hits()
        };
        let (near, at, far) =
            (hits_at_distance(100), hits_at_distance(1000), hits_at_distance(5000));
        assert!(near > 4300 && (1500..2300).contains(&at) && far < 150, "{near} {at} {far}");
    }

    #[test]
    fn wanted_room_wakes_the_memory_thread_before_any_miss() {
        let (ghosts, event) = watching(1000, 4000);
        (0..499).for_each(|_| ghosts.wants_room());
        assert_eq!(event.now(), 0);
        ghosts.wants_room();
        assert_eq!((event.now(), ghosts.take_wants(), ghosts.take_wants()), (1, 500, 0));
        let (ghosts, event) = watching(1000, 10);
        (0..1000).for_each(|_| ghosts.wants_room());
        assert_eq!(event.now(), 3, "not for each of a cache that is always full");
    }

    #[test]
    fn nothing_is_remembered_before_the_cache_is_watched() {
        let ghosts = GhostCache::default();
        ghosts.evicted(1);
        ghosts.missed(1);
        ghosts.wake();
        assert_eq!(ghosts.take_hits(), 0);
    }
}
