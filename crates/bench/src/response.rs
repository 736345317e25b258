//! Response times of one kind of operation: the ten printed classes, percentiles, maximum.

use crate::result::OpFigures;
use hdrhistogram::Histogram;

/// Upper bounds of the classes in microseconds; the last class is everything above.
pub const CLASS_US: [u64; 9] =
    [256, 1_000, 4_000, 16_000, 64_000, 256_000, 1_000_000, 4_000_000, 16_000_000];

/// The names of the ten classes.
pub const CLASS_NAMES: [&str; 10] =
    ["256us", "1ms", "4ms", "16ms", "64ms", "256ms", "1s", "4s", "16s", "gt"];

/// Response times.
#[derive(Clone)]
pub struct Response {
    fine: Histogram<u64>,
    classes: [u64; 10],
}

impl Default for Response {
    fn default() -> Response {
        // Nanoseconds up to 1000 s in three digits.
        #[expect(clippy::expect_used, reason = "the bounds are constants that are valid")]
        let fine = Histogram::new_with_bounds(1, 1_000_000_000_000, 3).expect("valid bounds");
        Response { fine, classes: [0; 10] }
    }
}

impl Response {
    /// Adds one response time.
    pub fn record(&mut self, ns: u64) {
        self.fine.saturating_record(ns.max(1));
        let us = ns.div_ceil(1000);
        self.classes[CLASS_US.iter().position(|limit| us <= *limit).unwrap_or(9)] += 1;
    }

    /// Adds the response times of another thread.
    pub fn merge(&mut self, other: &Response) {
        // Both have the same bounds, so adding cannot fail.
        let _ = self.fine.add(&other.fine);
        for (class, n) in self.classes.iter_mut().zip(other.classes) {
            *class += n;
        }
    }

    /// Number of response times.
    pub fn count(&self) -> u64 {
        self.fine.len()
    }

    /// The time that this share of all response times did not exceed, microseconds.
    pub fn quantile_us(&self, share: f64) -> f64 {
        if self.fine.is_empty() { 0.0 } else { self.fine.value_at_quantile(share) as f64 / 1000.0 }
    }

    /// The longest response time, microseconds.
    pub fn max_us(&self) -> f64 {
        self.fine.max() as f64 / 1000.0
    }

    /// The figures of the JSON.
    pub fn figures(&self) -> OpFigures {
        OpFigures {
            n: self.count(),
            p50_us: self.quantile_us(0.5),
            p99_us: self.quantile_us(0.99),
            p999_us: self.quantile_us(0.999),
            max_us: self.max_us(),
            histogram: self.classes,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_include_their_bound() {
        let mut r = Response::default();
        for ns in [1, 256_000, 256_001, 1_000_000, 16_000_000_000, 16_000_001_000, u64::MAX] {
            r.record(ns);
        }
        assert_eq!(r.figures().histogram, [2, 2, 0, 0, 0, 0, 0, 0, 1, 2]);
        assert_eq!(r.count(), 7);
    }

    #[test]
    fn percentiles_are_within_a_thousandth() {
        let mut a = Response::default();
        let mut b = Response::default();
        for us in 1..=10_000u64 {
            if us % 2 == 0 { &mut a } else { &mut b }.record(us * 1000);
        }
        a.merge(&b);
        let f = a.figures();
        for (found, wanted) in [(f.p50_us, 5000.0), (f.p99_us, 9900.0), (f.p999_us, 9990.0)] {
            assert!((found - wanted).abs() / wanted < 0.001, "{found} {wanted}");
        }
        assert!((f.max_us - 10_000.0).abs() < 10.0);
        assert_eq!(f.n, f.histogram.iter().sum::<u64>());
        assert_eq!(Response::default().figures().p99_us, 0.0);
    }
}
