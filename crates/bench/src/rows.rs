//! The rows of the insert benchmark and their random numbers. Each client has a `RowMaker`; the
//! same seed and client give the same rows.

use crate::pattern::{Keys, Patterns};
use std::time::{SystemTime, UNIX_EPOCH};

/// Products are below this.
pub const PRODUCTS: u64 = 10_000;
/// Cash registers are below this.
pub const REGISTERS: u64 = 1_000;
/// Customers are below this.
pub const CUSTOMERS: u64 = 100_000;
/// Prices are below this.
pub const PRICES: u64 = 500;
const INT_MAX: u64 = (1 << 31) - 1;
const PK_MAX: u64 = (1 << 62) - 1;

/// A small fast random number generator (xoshiro256++, Blackman and Vigna 2019).
#[derive(Clone)]
pub struct Rng([u64; 4]);

impl Rng {
    /// A generator that SplitMix64 seeds.
    pub fn new(seed: u64) -> Rng {
        let mut x = seed;
        Rng(std::array::from_fn(|_| {
            x = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut z = x;
            z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            z ^ (z >> 31)
        }))
    }

    /// The next 64 bits.
    pub fn draw(&mut self) -> u64 {
        let s = &mut self.0;
        let result = s[0].wrapping_add(s[3]).rotate_left(23).wrapping_add(s[0]);
        let t = s[1] << 17;
        s[2] ^= s[0];
        s[3] ^= s[1];
        s[1] ^= s[2];
        s[0] ^= s[3];
        s[2] ^= t;
        s[3] = s[3].rotate_left(45);
        result
    }

    /// A number below `n`.
    pub fn below(&mut self, n: u64) -> u64 {
        ((u128::from(self.draw()) * u128::from(n)) >> 64) as u64
    }

    /// A number in (0, 1].
    pub fn unit(&mut self) -> f64 {
        ((self.draw() >> 11) + 1) as f64 / (1u64 << 53) as f64
    }
}

/// One row.
#[derive(Clone, Debug, Default)]
pub struct Row {
    /// `transactionid`; `None`: the engine assigns the next one.
    pub transactionid: Option<i64>,
    /// `dateandtime`: seconds since 1970.
    pub dateandtime: i64,
    /// `cashregisterid`.
    pub cashregisterid: i32,
    /// `customerid`.
    pub customerid: i32,
    /// `productid`.
    pub productid: i32,
    /// `price`.
    pub price: i32,
    data: String,
}

impl Row {
    /// `data`: 10 to 20 letters, about half of them random.
    pub fn text(&self) -> &str {
        &self.data
    }

    /// The bytes of `data`.
    pub fn data(&self) -> &[u8] {
        self.data.as_bytes()
    }
}

/// Generates one client's rows.
pub struct RowMaker {
    rng: Rng,
    keys: [Option<Keys>; 4],
    now: i64,
    made: u64,
}

impl RowMaker {
    /// A generator of the rows of `client`, from its row number `first` on.
    pub fn new(seed: u64, client: usize, patterns: &Patterns, first: u64) -> RowMaker {
        let keys = row_keys(patterns);
        let seed = seed ^ ((client as u64 + 1) << 40) ^ first.rotate_left(20);
        RowMaker { rng: Rng::new(seed), keys, now: unix_seconds(), made: 0 }
    }

    /// Overwrites `row` with row number `n` of this client.
    pub fn make(&mut self, n: u64, row: &mut Row) {
        // The clock is read once in 256 rows: the column has a resolution of one second.
        if self.made.is_multiple_of(256) {
            self.now = unix_seconds();
        }
        self.made += 1;
        row.transactionid = self.keys[0].map(|k| k.key(n) as i64 + 1);
        row.productid = self.column(1, n, PRODUCTS);
        row.cashregisterid = self.column(2, n, REGISTERS);
        row.price = self.column(3, n, PRICES);
        row.customerid = self.rng.below(CUSTOMERS) as i32;
        row.dateandtime = self.now;
        let bits = self.rng.draw();
        let len = 10 + (bits % 11) as usize;
        row.data.clear();
        let random = (0..len / 2).map(|i| char::from(b'a' + ((bits >> (4 + 5 * i)) % 26) as u8));
        row.data.extend(random);
        row.data.push_str(&"xxxxxxxxxx"[..len - len / 2]);
    }

    fn column(&mut self, index: usize, n: u64, domain: u64) -> i32 {
        self.keys[index].map_or_else(|| self.rng.below(domain), |k| k.key(n)) as i32
    }
}

fn unix_seconds() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs() as i64)
}

fn row_keys(patterns: &Patterns) -> [Option<Keys>; 4] {
    std::array::from_fn(|i| {
        patterns.made(i).map(|p| Keys::new(p, if i == 0 { PK_MAX } else { INT_MAX }))
    })
}

/// The operation of a query.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Query {
    /// Reads the first 10 entries of secondary index 0, 1 or 2 whose leading column is >= the
    /// value, in index order, only the indexed columns.
    Range(usize, i32),
    /// Reads 10 rows by primary key.
    Points([i64; 10]),
}

/// The greatest number of rows that a range query returns.
pub const RANGE_LIMIT: usize = 10;

/// Draws one client's queries.
pub struct QueryMaker {
    rng: Rng,
    keys: [Option<Keys>; 4],
    points: bool,
}

impl QueryMaker {
    /// A generator of range queries, or with `points` of primary-key lookups.
    pub fn new(seed: u64, client: usize, patterns: &Patterns, points: bool) -> QueryMaker {
        let rng = Rng::new(!seed ^ ((client as u64 + 1) << 40));
        QueryMaker { rng, keys: row_keys(patterns), points }
    }

    /// The primary key of a random row of a table in which the rows `low..high` exist.
    pub fn id(&mut self, low: u64, high: u64) -> i64 {
        let n = low + self.rng.below(high.saturating_sub(low).max(1));
        self.keys[0].map_or(n + 1, |k| k.key(n) + 1) as i64
    }

    /// A new value of `data`, 20 bytes.
    pub fn data(&mut self) -> String {
        format!("{:020x}", self.rng.draw())
    }

    /// The next query over a table in which the rows `low..high` exist.
    pub fn draw(&mut self, low: u64, high: u64) -> Query {
        if self.points {
            return Query::Points(std::array::from_fn(|_| self.id(low, high)));
        }
        let index = self.rng.below(3) as usize;
        let domain = [PRODUCTS, REGISTERS, PRICES][index];
        let random = self.rng.draw();
        let value = self.keys[index + 1].map_or_else(
            || ((u128::from(random) * u128::from(domain)) >> 64) as u64,
            |k| k.near(high, random),
        );
        Query::Range(index, value as i32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_lie_in_their_domains_and_repeat_with_the_seed() {
        let mut a = RowMaker::new(7, 0, &Patterns::NATURAL, 0);
        let mut b = RowMaker::new(7, 0, &Patterns::NATURAL, 0);
        let mut other = RowMaker::new(7, 1, &Patterns::NATURAL, 0);
        let (mut x, mut y, mut z) = (Row::default(), Row::default(), Row::default());
        let mut same = 0;
        for n in 0..5000 {
            a.make(n, &mut x);
            b.make(n, &mut y);
            other.make(n, &mut z);
            let columns = |r: &Row| (r.productid, r.cashregisterid, r.customerid, r.price);
            assert_eq!((columns(&x), x.data()), (columns(&y), y.data()));
            same += usize::from(columns(&x) == columns(&z));
            assert!((0..10_000).contains(&x.productid) && (0..1_000).contains(&x.cashregisterid));
            assert!((0..100_000).contains(&x.customerid) && (0..500).contains(&x.price));
            assert!((10..=20).contains(&x.data().len()) && x.transactionid.is_none());
        }
        assert!(same < 5);
    }

    #[test]
    fn made_patterns_reach_their_columns() {
        let mut patterns = Patterns::NATURAL;
        patterns.set("pk=inf").expect("valid");
        patterns.set("marketsegment=nAsc:1,nRHS:1").expect("valid");
        let mut maker = RowMaker::new(1, 0, &patterns, 0);
        let (mut row, mut last, mut pks) = (Row::default(), -1, std::collections::BTreeSet::new());
        for n in 0..1000 {
            maker.make(n, &mut row);
            assert!(row.productid > last && pks.insert(row.transactionid.expect("given")));
            last = row.productid;
        }
        let mut queries = QueryMaker::new(1, 0, &patterns, true);
        let Query::Points(ids) = queries.draw(0, 1000) else { panic!("asked for points") };
        assert!(ids.iter().all(|id| pks.contains(id)));
    }

    #[test]
    fn queries_cover_the_three_indexes() {
        let mut queries = QueryMaker::new(3, 0, &Patterns::NATURAL, false);
        let mut count = [0; 3];
        for _ in 0..3000 {
            let Query::Range(index, value) = queries.draw(0, 100) else { panic!("a range") };
            assert!((0..[10_000, 1_000, 500][index]).contains(&value));
            count[index] += 1;
        }
        assert!(count.iter().all(|n| (900..1100).contains(n)), "{count:?}");
    }
}
