//! Decompressed run blocks in memory: shards, each with a hash map and a clock. Written blocks
//! enter where there is room, and blocks that a compaction has read leave, so that readers of a run
//! that was just built or compacted find in memory what they would have found before. A block that
//! enters reuses the memory of one that left: the reading thread is often another one than before,
//! and the heap keeps the freed memory of one thread from the others, so that the cache would take
//! twice its size. The cache yields to fences the memory that they take beyond their share
//! (`filter_cache`).

use crate::run::filter_cache::FilterCache;
use evenkeel_base::sync::Mutex;
use evenkeel_format::run::DataBlock;
use evenkeel_sched::{GhostCache, Scheduler};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

const SHARDS: usize = 16;
/// The least size of a shard.
const SHARD_BYTES_MIN: usize = 64 << 10;
/// Overhead of a block: its slot, its entry in the map, and that of the heap.
const SLOT_BYTES: usize = size_of::<Slot>() + 2 * size_of::<(Key, usize)>() + 32;
/// A smaller block enters only when it is read: nothing of many small and unread indexes is in
/// memory (D2).
const WRITTEN_BYTES_MIN: usize = 1 << 10;
/// The memory that a compaction frees is used for its next output, not for much later output.
const LET_GO_BYTES_MAX: u64 = 256 << 10;
/// Buffers of former blocks that are kept for the next ones, at most.
const SPARE_MAX: usize = 32;

type Key = (u64, u64);

struct Slot {
    key: Key,
    block: Arc<DataBlock>,
    used: AtomicBool,
}

#[derive(Default)]
struct Shard {
    map: HashMap<Key, usize, std::hash::BuildHasherDefault<KeyHasher>>,
    slots: Vec<Slot>,
    hand: usize,
    bytes: usize,
}

/// Keys are file number and position, so mixing their bits is a sufficient hash.
#[derive(Default)]
struct KeyHasher(u64);

impl std::hash::Hasher for KeyHasher {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, bytes: &[u8]) {
        for b in bytes {
            self.write_u64(u64::from(*b));
        }
    }
    fn write_u64(&mut self, n: u64) {
        let mixed = (self.0 ^ n).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 = mixed ^ (mixed >> 32);
    }
}

/// The cache. Blocks are named by (file, position of the envelope).
pub(crate) struct BlockCache {
    shards: Vec<Mutex<Shard>>,
    bytes_max: AtomicU64,
    filter_cache: Arc<FilterCache>,
    /// Buffers of former blocks.
    spare: Mutex<Vec<Vec<u8>>>,
    ghosts: GhostCache,
    /// Bytes that compactions have freed and not replaced.
    let_go_bytes: AtomicU64,
}

/// The run blocks in memory, for readers and writers of runs.
pub(crate) struct CachedBlocks {
    pub sched: Arc<Scheduler>,
    pub cache: BlockCache,
}

/// The name of a block in the ghost cache.
fn ghost(key: Key) -> u64 {
    key.0.rotate_left(40) ^ key.1
}

impl BlockCache {
    pub(crate) fn new(bytes: u64, filter_cache: Arc<FilterCache>) -> BlockCache {
        BlockCache {
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
            bytes_max: AtomicU64::new(bytes),
            filter_cache,
            spare: Mutex::default(),
            ghosts: GhostCache::default(),
            let_go_bytes: AtomicU64::new(0),
        }
    }

    /// Changes the size of the cache. If it holds more it shrinks as blocks enter, or by `trim`.
    pub(crate) fn set_bytes(&self, bytes: u64) {
        self.bytes_max.store(bytes, Ordering::Relaxed);
    }

    /// The present maximum of each shard.
    fn shard_bytes_max(&self) -> usize {
        let bytes =
            self.bytes_max.load(Ordering::Relaxed).saturating_sub(self.filter_cache.beyond());
        (bytes as usize / SHARDS).max(SHARD_BYTES_MIN)
    }

    /// Evicts blocks beyond the present maximum.
    pub(crate) fn trim(&self) {
        for shard in &self.shards {
            let mut freed = Vec::new();
            let mut shard = shard.lock();
            self.evict_beyond(&mut shard, &mut freed);
            drop(shard);
        }
    }

    fn shard(&self, key: Key) -> &Mutex<Shard> {
        let mixed = (key.0.wrapping_mul(31) ^ (key.1 >> 12)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        &self.shards[(mixed >> 60) as usize % SHARDS]
    }

    /// Blocks that left the cache; their misses show what more memory would save.
    pub(crate) fn ghosts(&self) -> &GhostCache {
        &self.ghosts
    }

    fn evict_beyond(&self, shard: &mut Shard, freed: &mut Vec<Arc<DataBlock>>) {
        let most = self.shard_bytes_max();
        while shard.bytes > most && !shard.slots.is_empty() {
            let (key, block) = shard.evict();
            self.ghosts.evicted(ghost(key));
            freed.push(block);
        }
    }

    pub(crate) fn get(&self, file: u64, position: u64) -> Option<Arc<DataBlock>> {
        let key = (file, position);
        let shard = self.shard(key).lock();
        let Some(at) = shard.map.get(&key) else {
            drop(shard);
            self.ghosts.missed(ghost(key));
            return None;
        };
        let slot = &shard.slots[*at];
        slot.used.store(true, Ordering::Relaxed);
        Some(slot.block.clone())
    }

    pub(crate) fn put(&self, file: u64, position: u64, block: Arc<DataBlock>) {
        let key = (file, position);
        let mut freed = Vec::new();
        let mut shard = self.shard(key).lock();
        if shard.map.contains_key(&key) {
            return;
        }
        shard.bytes += block.memory() + SLOT_BYTES;
        self.evict_beyond(&mut shard, &mut freed);
        let at = shard.slots.len();
        shard.slots.push(Slot { key, block, used: AtomicBool::new(false) });
        shard.map.insert(key, at);
        drop(shard);
        self.keep(freed);
    }

    /// Adds a block that was just written, for readers that come soon: if there is room or, for a
    /// compaction that `inherits`, in place of the blocks that it has read.
    pub(crate) fn put_written(&self, file: u64, position: u64, raw: &[u8], inherits: bool) {
        // An upper bound of its size, because the heads of its restarts are few.
        let most = raw.len() + raw.len() / 4 + SLOT_BYTES;
        if raw.len() < WRITTEN_BYTES_MIN {
            return;
        }
        let has_room =
            || self.shard((file, position)).lock().bytes + most <= self.shard_bytes_max();
        let takes_over = inherits && self.inherit(most as u64);
        if !takes_over && !has_room() {
            self.ghosts.wants_room();
            return;
        }
        let mut bytes = self.spare();
        bytes.clear();
        bytes.extend_from_slice(raw);
        // A block that does not parse is reported when it is read from the file.
        if let Ok(block) = DataBlock::parse(bytes) {
            self.put(file, position, Arc::new(block));
        }
    }

    /// Uses this many of the bytes that compactions have freed for their output.
    fn inherit(&self, bytes: u64) -> bool {
        let less = |left: u64| left.checked_sub(bytes);
        self.let_go_bytes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less).is_ok()
    }

    /// A compaction has read a block and writes its entries to another place.
    pub(crate) fn let_go(&self, file: u64, position: u64) {
        let key = (file, position);
        let mut shard = self.shard(key).lock();
        let Some(at) = shard.map.get(&key).copied() else { return };
        let before = shard.bytes;
        let (_, block) = shard.take(at);
        let bytes = (before - shard.bytes) as u64;
        drop(shard);
        let more = |left: u64| Some((left + bytes).min(LET_GO_BYTES_MAX));
        // The update never fails.
        let _ = self.let_go_bytes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
        self.keep(vec![block]);
    }

    /// Keeps the buffers of blocks without users, as far as there is room.
    fn keep(&self, freed: Vec<Arc<DataBlock>>) {
        let raw: Vec<_> = freed.into_iter().filter_map(Arc::into_inner).collect();
        let mut spare = self.spare.lock();
        let room = SPARE_MAX - spare.len();
        spare.extend(raw.into_iter().map(DataBlock::into_raw).take(room));
    }

    /// A buffer for a block: that of a former one, or an empty one.
    pub(crate) fn spare(&self) -> Vec<u8> {
        self.spare.lock().pop().unwrap_or_default()
    }

    /// Removes all blocks.
    #[cfg(test)]
    pub(crate) fn clear(&self) {
        self.shards.iter().for_each(|shard| *shard.lock() = Shard::default());
    }

    /// Bytes that it may hold and does not hold.
    pub(crate) fn bytes_unused(&self) -> u64 {
        (self.shard_bytes_max() as u64 * SHARDS as u64).saturating_sub(self.bytes())
    }

    /// Bytes held now.
    pub(crate) fn bytes(&self) -> u64 {
        self.shards.iter().map(|s| s.lock().bytes as u64).sum()
    }
}

impl Shard {
    /// Removes the first slot that the hand finds unused since it last passed.
    fn evict(&mut self) -> (Key, Arc<DataBlock>) {
        loop {
            self.hand = if self.hand + 1 < self.slots.len() { self.hand + 1 } else { 0 };
            if !self.slots[self.hand].used.swap(false, Ordering::Relaxed) {
                break;
            }
        }
        self.take(self.hand)
    }

    /// Removes a slot; the last slot then takes its position.
    fn take(&mut self, at: usize) -> (Key, Arc<DataBlock>) {
        let slot = self.slots.swap_remove(at);
        self.map.remove(&slot.key);
        if let Some(moved) = self.slots.get(at) {
            self.map.insert(moved.key, at);
        }
        self.bytes -= slot.block.memory() + SLOT_BYTES;
        (slot.key, slot.block)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use evenkeel_base::Lsn;
    use evenkeel_format::run::{BlockBuilder, RunVersion};

    #[test]
    fn the_block_cache_stays_within_its_bytes_and_keeps_used_blocks() {
        let filter_cache = FilterCache::new(1 << 20, Arc::default());
        let cache = BlockCache::new(16 * (64 << 10), filter_cache.clone());
        let mut builder = BlockBuilder::new(Lsn::ZERO);
        for i in 0..100u32 {
            builder.push(&i.to_be_bytes(), 1, 1, RunVersion::Committed(Lsn::ZERO), b"value");
        }
        let raw = builder.finish().to_vec();
        let block = || Arc::new(DataBlock::parse(raw.clone()).expect("parses"));
        cache.put(0, 0, block());
        for i in 1..5000u64 {
            cache.put(i, i << 12, block());
            assert!(cache.get(0, 0).is_some());
            assert!(cache.get(i, i << 12).is_some());
        }
        assert!(cache.bytes() <= 17 * (64 << 10));
        let spare = cache.spare.lock().len();
        assert!(spare > 0 && spare <= SPARE_MAX, "{spare}");
        assert!(cache.spare().capacity() >= raw.len());
        assert!(cache.get(1, 1 << 12).is_none());
        cache.set_bytes(16 * (256 << 10));
        (5000..20_000u64).for_each(|i| cache.put(i, i << 12, block()));
        assert!(cache.bytes() > 16 * (200 << 10), "it may hold more now");
        filter_cache.set_slices(3 << 20);
        cache.trim();
        assert!(cache.bytes() <= 2 << 20, "but for what others have beyond their share");
        filter_cache.set_slices(1 << 20);
        (20_000..30_000u64).for_each(|i| cache.put(i, i << 12, block()));
        assert!(cache.bytes() > 16 * (200 << 10), "and when they give it back");
        cache.set_bytes(16 * (64 << 10));
        cache.trim();
        assert!(cache.bytes() <= 16 * (64 << 10), "and less again");
    }
}
