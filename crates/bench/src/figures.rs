//! Figures over the seconds of a step: medians, worst seconds, and the input of the rule for
//! disturbed controls.

/// Seconds left out at the start of a step, where caches and memtables fill.
const WARM_UP: usize = 5;
/// Shorter steps have no variance figures.
const SECONDS_MIN: usize = 20;

/// Figures over the rates of whole seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Evenness {
    /// Lowest second divided by the median; none under 20 s.
    pub worst_second_ratio: Option<f64>,
    /// 5th-percentile second divided by the median; none under 20 s.
    pub p5_second_ratio: Option<f64>,
    /// Seconds below 50% of the median.
    pub seconds_below_50: u64,
    /// Seconds below 10% of the median.
    pub seconds_below_10: u64,
}

/// The value at a quantile of unsorted values, by nearest rank; 0 if there are no values.
pub fn quantile(values: &[f64], share: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let rank = (share * sorted.len() as f64).ceil() as usize;
    sorted.get(rank.saturating_sub(1)).copied().unwrap_or(0.0)
}

/// The median; the mean of the two middle values if their number is even.
pub fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let n = sorted.len();
    match n {
        0 => 0.0,
        _ if n % 2 == 1 => sorted[n / 2],
        _ => f64::midpoint(sorted[n / 2 - 1], sorted[n / 2]),
    }
}

/// The seconds that count: all whole seconds but the first five and the last.
pub fn counted(rates: &[f64]) -> &[f64] {
    if rates.len() < SECONDS_MIN { &[] } else { &rates[WARM_UP..rates.len() - 1] }
}

/// Figures over the rates of a step's whole seconds.
pub fn evenness(rates: &[f64]) -> Evenness {
    let counted = counted(rates);
    let middle = median(if counted.is_empty() { rates } else { counted });
    let below = |share: f64| rates.iter().filter(|r| **r < share * middle).count() as u64;
    let ratio = |rate: f64| (!counted.is_empty() && middle > 0.0).then(|| rate / middle);
    Evenness {
        worst_second_ratio: ratio(counted.iter().copied().fold(f64::INFINITY, f64::min)),
        p5_second_ratio: ratio(quantile(counted, 0.05)),
        seconds_below_50: below(0.5),
        seconds_below_10: below(0.1),
    }
}

/// Indexes (from 0) of the counted seconds with the lowest and with the middle rate; none under 20
/// s.
pub fn worst_and_middle(rates: &[f64]) -> Option<(usize, usize)> {
    let counted = counted(rates);
    let mut order: Vec<usize> = (0..counted.len()).collect();
    order.sort_by(|a, b| counted[*a].total_cmp(&counted[*b]));
    Some((order.first()? + WARM_UP, order.get(order.len() / 2)? + WARM_UP))
}

/// The rates that 50, 75, 90, 95 and 99 percent of the seconds reached.
pub fn reached(rates: &[f64]) -> [f64; 5] {
    [0.5, 0.75, 0.9, 0.95, 0.99].map(|share| quantile(rates, 1.0 - share + 1e-9))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn computes_medians_and_quantiles() {
        assert_eq!((median(&[]), median(&[3.0, 1.0, 2.0]), median(&[4.0, 1.0])), (0.0, 2.0, 2.5));
        let values: Vec<f64> = (1..=100).map(f64::from).collect();
        assert_eq!((quantile(&values, 0.05), quantile(&values, 0.99)), (5.0, 99.0));
        assert_eq!(reached(&values), [51.0, 26.0, 11.0, 6.0, 2.0]);
        assert_eq!(reached(&[]), [0.0; 5]);
    }

    #[test]
    fn warm_up_and_the_last_second_do_not_count() {
        let mut rates = vec![100.0; 30];
        rates[..5].fill(1.0);
        rates[29] = 1.0;
        assert_eq!(evenness(&rates).worst_second_ratio, Some(1.0));
        rates[17] = 40.0;
        let figures = evenness(&rates);
        assert_eq!(figures.worst_second_ratio, Some(0.4));
        assert_eq!((figures.seconds_below_50, figures.seconds_below_10), (7, 6));
    }

    #[test]
    fn finds_the_worst_and_the_median_second() {
        let mut rates = vec![100.0; 30];
        rates[..5].fill(1.0);
        rates[29] = 1.0;
        (rates[17], rates[20], rates[21]) = (40.0, 300.0, 200.0);
        let (worst, middle) = worst_and_middle(&rates).expect("long enough");
        assert_eq!((worst, rates[middle]), (17, 100.0));
        assert!((5..29).contains(&middle));
        assert_eq!(worst_and_middle(&rates[..19]), None);
    }

    #[test]
    fn short_steps_have_no_variance_figures() {
        let figures = evenness(&[100.0; 19]);
        assert_eq!((figures.worst_second_ratio, figures.p5_second_ratio), (None, None));
        assert!(evenness(&[100.0; 20]).worst_second_ratio.is_some());
        assert_eq!(evenness(&[0.0; 20]).worst_second_ratio, None);
    }
}
