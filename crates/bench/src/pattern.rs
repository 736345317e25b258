//! Insert patterns. Four numbers describe the order in which a load reaches the keys of an index:
//! `nAsc` and `nDesc` streams of ascending and descending keys, `nLHS` and `nRHS` of them at the
//! left and right end. `inf` means random places.
//!
//! A pattern other than an index's natural one is made with the leading column alone. Its domain is
//! divided into one span per stream, in key order, and the n-th key of a stream is its n-th step
//! from the lower (ascending) or upper (descending) bound. If no stream is at an end, one anchor
//! row at the domain's bound occupies the end.

use std::fmt;

/// The index names, primary key first.
pub const NAMES: [&str; 4] = ["pk", "marketsegment", "registersegment", "pdc"];

/// One index's insert pattern.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pattern {
    /// Random places.
    Inf,
    /// Streams of ascending and descending keys.
    Streams {
        /// Ascending streams.
        asc: u32,
        /// Descending streams.
        desc: u32,
        /// 1 if a descending stream is at the left end.
        lhs: u32,
        /// 1 if an ascending stream is at the right end.
        rhs: u32,
    },
}

impl Pattern {
    /// Reads `inf` or `nAsc:1,nRHS:1` (also with spaces or in brackets).
    pub fn parse(text: &str) -> Result<Pattern, String> {
        let text = text.trim().trim_start_matches('(').trim_end_matches(')').trim();
        if text == "inf" {
            return Ok(Pattern::Inf);
        }
        let (mut asc, mut desc, mut lhs, mut rhs) = (0, 0, 0, 0);
        for part in text.split(',') {
            let (name, value) = part
                .trim()
                .split_once(':')
                .ok_or_else(|| format!("'{part}': write nAsc:1,nRHS:1 or inf"))?;
            let value: u32 = value.trim().parse().map_err(|_| format!("'{part}': not a count"))?;
            match name.trim() {
                "nAsc" => asc = value,
                "nDesc" => desc = value,
                "nLHS" => lhs = value,
                "nRHS" => rhs = value,
                _ => return Err(format!("'{part}': one of nAsc, nDesc, nLHS, nRHS")),
            }
        }
        if asc + desc == 0 || asc + desc > 1_000_000 {
            return Err("nAsc + nDesc must be 1 to 1000000".into());
        }
        if lhs > desc.min(1) || rhs > asc.min(1) {
            return Err(
                "nLHS needs a descending stream, nRHS an ascending one; each is 0 or 1".into()
            );
        }
        Ok(Pattern::Streams { asc, desc, lhs, rhs })
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Pattern::Streams { asc, desc, lhs, rhs } = self else { return f.write_str("inf") };
        let all = [("nAsc", asc), ("nDesc", desc), ("nLHS", lhs), ("nRHS", rhs)];
        let parts: Vec<String> =
            all.iter().filter(|(_, n)| **n > 0).map(|(name, n)| format!("{name}:{n}")).collect();
        f.write_str(&parts.join(","))
    }
}

/// The patterns of the four indexes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Patterns(pub [Pattern; 4]);

impl Patterns {
    /// The patterns of the plain insert benchmark, which its columns have without changes.
    pub const NATURAL: Patterns = Patterns([
        Pattern::Streams { asc: 1, desc: 0, lhs: 0, rhs: 1 },
        Pattern::Inf,
        Pattern::Inf,
        Pattern::Streams { asc: 500, desc: 0, lhs: 0, rhs: 0 },
    ]);

    /// Applies an argument `NAME=P`.
    pub fn set(&mut self, text: &str) -> Result<(), String> {
        let (name, pattern) =
            text.split_once('=').ok_or_else(|| format!("'{text}': write NAME=PATTERN"))?;
        let known = || format!("'{name}': one of {}", NAMES.join(", "));
        let at = NAMES.iter().position(|n| *n == name.trim()).ok_or_else(known)?;
        self.0[at] = Pattern::parse(pattern)?;
        Ok(())
    }

    /// The pattern of an index if its leading column must be generated for it; `None` if the
    /// pattern is natural.
    pub fn made(&self, index: usize) -> Option<Pattern> {
        (self.0[index] != Patterns::NATURAL.0[index]).then_some(self.0[index])
    }
}

impl fmt::Display for Patterns {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all: Vec<String> =
            NAMES.iter().zip(self.0).map(|(name, p)| format!("{name}=({p})")).collect();
        f.write_str(&all.join(" "))
    }
}

/// Generates the keys of one pattern, in `0..=max`, each a function of the row's number alone.
#[derive(Clone, Copy, Debug)]
pub struct Keys {
    pattern: Pattern,
    max: u64,
}

impl Keys {
    /// Generates keys in `0..=max`; `max + 1` must be a power of two.
    pub fn new(pattern: Pattern, max: u64) -> Keys {
        assert!((max + 1).is_power_of_two(), "a scramble needs a domain of a power of two");
        Keys { pattern, max }
    }

    /// The key of row `n`. Distinct for distinct `n` while the streams' spans last (2^31 rows over
    /// all streams for a column of 32 bits); then streams stay at their bound.
    pub fn key(&self, n: u64) -> u64 {
        match self.pattern {
            // An odd factor and a shift are one-to-one on a domain whose size is a power of two.
            Pattern::Inf => {
                let x = n.wrapping_mul(0x9e37_79b9_7f4a_7c15) & self.max;
                let half = (u64::BITS - self.max.leading_zeros()) / 2;
                (x ^ (x >> half)).wrapping_mul(0xd6e8_feb8_6659_fd93) & self.max
            }
            Pattern::Streams { asc, desc, lhs, rhs } => self.stream_key(n, asc, desc, lhs, rhs),
        }
    }

    fn stream_key(&self, n: u64, asc: u32, desc: u32, lhs: u32, rhs: u32) -> u64 {
        let anchors = [(lhs == 0).then_some(0), (rhs == 0).then_some(self.max)];
        let anchors: Vec<u64> = anchors.into_iter().flatten().collect();
        let Some(n) = n.checked_sub(anchors.len() as u64) else { return anchors[n as usize] };
        let streams = u64::from(asc + desc);
        let span = (self.max - 1) / streams;
        let (stream, step) = (n % streams, (n / streams).min(span - 1));
        // Descending streams lie to the left, so that the first of them may be at the left end.
        let low = 1 + stream * span;
        if stream < u64::from(desc) { low + span - 1 - step } else { low + step }
    }

    /// A key near which rows `0..n` have keys; `random` selects it.
    pub fn near(&self, n: u64, random: u64) -> u64 {
        self.key(random % n.max(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    const MAX: u64 = (1 << 31) - 1;

    /// Counts ascending and descending streams from the position of each key.
    fn observe(keys: &Keys, rows: u64) -> (usize, usize, bool, bool) {
        let mut seen = BTreeSet::new();
        let (mut asc, mut desc) = (BTreeSet::new(), BTreeSet::new());
        let (mut left, mut right) = (0, 0);
        for n in 0..rows {
            let key = keys.key(n);
            assert!(key <= MAX);
            if n >= rows / 2 {
                if seen.range(..key).next().is_none() {
                    left += 1;
                }
                if seen.range(key..).next().is_none() {
                    right += 1;
                }
                if seen.contains(&(key - 1)) {
                    asc.insert(key >> 20);
                } else if seen.contains(&(key + 1)) {
                    desc.insert(key >> 20);
                }
            }
            assert!(seen.insert(key), "key of row {n} is not new");
        }
        (asc.len(), desc.len(), left > 0, right > 0)
    }

    #[test]
    fn row_streams_follow_their_pattern() {
        let shapes = ["nAsc:1,nRHS:1", "nAsc:1", "nDesc:1,nLHS:1", "nAsc:3,nDesc:2,nLHS:1,nRHS:1"];
        let seen: Vec<_> = shapes
            .iter()
            .map(|text| observe(&Keys::new(Pattern::parse(text).expect("valid"), MAX), 4000))
            .collect();
        assert_eq!(seen[0], (1, 0, false, true));
        assert_eq!(seen[1], (1, 0, false, false));
        assert_eq!(seen[2], (0, 1, true, false));
        assert_eq!(seen[3], (3, 2, true, true));
    }

    #[test]
    fn random_keys_are_distinct_and_spread() {
        for max in [MAX, (1 << 62) - 1] {
            let keys = Keys::new(Pattern::Inf, max);
            let all: BTreeSet<u64> = (0..50_000).map(|n| keys.key(n)).collect();
            assert_eq!(all.len(), 50_000);
            let low = all.range(..max / 4).count();
            assert!((11_000..14_000).contains(&low), "{low} of 50000 in the lowest quarter");
        }
    }

    #[test]
    fn pattern_text_round_trips_and_errors_name_their_part() {
        for text in ["inf", "nAsc:1,nRHS:1", "nAsc:500", "nAsc:2,nDesc:3,nLHS:1,nRHS:1"] {
            assert_eq!(Pattern::parse(text).expect("valid").to_string(), text);
        }
        assert_eq!(Pattern::parse("(nAsc:1, nRHS:1)"), Pattern::parse("nAsc:1,nRHS:1"));
        for text in ["", "nAsc", "nAsc:x", "nUp:1", "nAsc:0", "nAsc:1,nLHS:1", "nAsc:1,nRHS:2"] {
            assert!(Pattern::parse(text).is_err(), "{text}");
        }
        let natural = "pk=(nAsc:1,nRHS:1) marketsegment=(inf) registersegment=(inf) pdc=(nAsc:500)";
        let mut patterns = Patterns::NATURAL;
        assert_eq!(patterns.to_string(), natural);
        patterns.set("pk=inf").expect("valid");
        assert_eq!(patterns.made(0), Some(Pattern::Inf));
        assert!(patterns.made(1).is_none() && patterns.set("pq=inf").is_err());
    }
}
