//! Index entries that a scan has read ahead, stored back to back in one buffer. The cursor that
//! returned them is idle meanwhile. The buffers are reused for each batch.

use evenkeel_runs::EntryRef;

/// Where an entry is stored: key, clustered key, stored bytes.
struct Place {
    key_at: usize,
    pk_at: usize,
    value_at: usize,
    end: usize,
}

#[derive(Default)]
pub(crate) struct EntriesAhead {
    bytes: Vec<u8>,
    places: Vec<Place>,
}

impl EntriesAhead {
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.places.clear();
    }

    pub fn len(&self) -> usize {
        self.places.len()
    }

    #[inline]
    pub fn push(&mut self, entry: &EntryRef<'_>) {
        let key_at = self.bytes.len();
        let pk_at = key_at + entry.key.len();
        let value_at = key_at + entry.key_and_pk.len();
        self.bytes.extend_from_slice(entry.key_and_pk);
        self.bytes.extend_from_slice(entry.value);
        self.places.push(Place { key_at, pk_at, value_at, end: self.bytes.len() });
    }

    /// Removes the last entry.
    pub fn pop(&mut self) {
        if let Some(place) = self.places.pop() {
            self.bytes.truncate(place.key_at);
        }
    }

    /// The clustered key of the entry at a position below `len`.
    #[inline]
    pub fn pk(&self, at: usize) -> &[u8] {
        let place = &self.places[at];
        &self.bytes[place.pk_at..place.value_at]
    }

    /// The entry at a position below `len`.
    #[inline]
    pub fn get(&self, at: usize) -> EntryRef<'_> {
        let Place { key_at, pk_at, value_at, end } = self.places[at];
        EntryRef {
            key: &self.bytes[key_at..pk_at],
            pk: &self.bytes[pk_at..value_at],
            key_and_pk: &self.bytes[key_at..value_at],
            value: &self.bytes[value_at..end],
        }
    }
}
