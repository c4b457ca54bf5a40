//! Medians and quartiles: what is said of a figure on a machine that other things run on too.

use std::fmt;

/// The three quartiles of a sample.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Quartiles {
    /// A quarter of the sample is below.
    pub low: f64,
    /// Half of the sample is below.
    pub median: f64,
    /// Three quarters of the sample are below.
    pub high: f64,
}

impl Quartiles {
    /// Of all values, `None` without any.
    #[must_use]
    pub fn of(values: impl IntoIterator<Item = f64>) -> Option<Self> {
        let mut sorted: Vec<f64> = values.into_iter().collect();
        sorted.sort_by(f64::total_cmp);
        let last = sorted.len().checked_sub(1)?;
        let at = |share: f64| {
            let place = share * last as f64;
            let (below, above) = (sorted[place.floor() as usize], sorted[place.ceil() as usize]);
            below + (above - below) * place.fract()
        };
        Some(Self { low: at(0.25), median: at(0.5), high: at(0.75) })
    }

    /// Of the ratios of values that were taken side by side: one per cycle, in the order of the cycles.
    #[must_use]
    pub fn of_ratios(values: &[f64], references: &[f64]) -> Option<Self> {
        Self::of(values.iter().zip(references).map(|(value, reference)| value / reference))
    }

    /// All three in another unit.
    #[must_use]
    pub fn scaled(self, factor: f64) -> Self {
        Self { low: self.low * factor, median: self.median * factor, high: self.high * factor }
    }
}

impl fmt::Display for Quartiles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let places = f.precision().unwrap_or(2);
        let text = format!("{:.places$} ({:.places$}–{:.places$})", self.median, self.low, self.high);
        // Not `pad`, which would cut the text to the precision.
        let fill = f.width().unwrap_or(0).saturating_sub(text.chars().count());
        write!(f, "{text}{}", " ".repeat(fill))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quartiles_lie_between_values() {
        let found = Quartiles::of([4.0, 1.0, 3.0, 2.0]).unwrap();
        assert_eq!(found, Quartiles { low: 1.75, median: 2.5, high: 3.25 });
        assert_eq!(Quartiles::of([]), None);
        assert_eq!(Quartiles::of([7.0]).unwrap().high.to_bits(), 7.0f64.to_bits());
    }

    #[test]
    fn ratios_are_taken_within_a_cycle() {
        // The second cycle is slow for both, and the ratio does not see it.
        let found = Quartiles::of_ratios(&[2.0, 20.0, 2.0], &[1.0, 10.0, 1.0]).unwrap();
        assert_eq!(found, Quartiles { low: 2.0, median: 2.0, high: 2.0 });
    }
}
