//! One row of the measurement as a small table: figures, ratios to the first server, and ours to each.

use benches::driver::{Line, Quartiles};
use runtime_limit::Result;

/// The name whose ratios to all others are printed.
const SUBJECT: &str = "ours";

/// What a server's lines say about it, cycle by cycle.
pub(crate) struct Sample {
    pub(crate) name: String,
    pub(crate) lines: Vec<Line>,
}

/// A field that is printed.
pub(crate) struct Column {
    pub(crate) field: &'static str,
    pub(crate) title: &'static str,
    pub(crate) factor: f64,
    pub(crate) places: usize,
    /// Its ratios are printed too.
    pub(crate) compared: bool,
}

impl Sample {
    fn values(&self, field: &str) -> Result<Vec<f64>> {
        self.lines.iter().map(|line| line.number(field)).collect()
    }
}

/// Sorts lines by server, in the order of `names`.
pub(crate) fn by_server<'a>(names: impl Iterator<Item = &'a str>, lines: &[Line]) -> Vec<Sample> {
    let sample = |name: &str| {
        let of_name = |line: &&Line| line.text("server").is_ok_and(|found| found == name);
        Sample { name: name.to_owned(), lines: lines.iter().filter(of_name).cloned().collect() }
    };
    names.map(sample).collect()
}

/// Prints the whole table. All samples have the same number of lines: one per cycle.
///
/// # Errors
/// A line lacks a field.
pub(crate) fn print(samples: &[Sample], columns: &[Column]) -> Result<()> {
    let Some(reference) = samples.first() else { return Ok(()) };
    print_titles(&reference.name, columns);
    for sample in samples {
        print_figures(sample, reference, columns)?;
    }
    if let Some(subject) = samples.iter().find(|sample| sample.name == SUBJECT) {
        for sample in samples.iter().filter(|sample| sample.name != SUBJECT) {
            print_ratios(subject, sample, columns)?;
        }
    }
    println!();
    Ok(())
}

fn print_titles(reference: &str, columns: &[Column]) {
    print!("  {:<14}", "");
    for column in columns {
        match column.compared {
            true => print!("{:<22}{:<20}", column.title, format!("× {reference}")),
            false => print!("{:<10}", column.title),
        }
    }
    println!();
}

fn print_figures(sample: &Sample, reference: &Sample, columns: &[Column]) -> Result<()> {
    print!("  {:<14}", sample.name);
    for column in columns {
        let values = sample.values(column.field)?;
        let Some(figure) = Quartiles::of(values.iter().copied()) else { continue };
        let figure = figure.scaled(column.factor);
        match Quartiles::of_ratios(&values, &reference.values(column.field)?).filter(|_| column.compared) {
            Some(ratio) => print!("{figure:<22.*}{ratio:<20}", column.places),
            None => print!("{:<10.*}", column.places, figure.median),
        }
    }
    println!();
    Ok(())
}

/// Of every column, also of those whose ratios to the reference are not printed.
fn print_ratios(subject: &Sample, other: &Sample, columns: &[Column]) -> Result<()> {
    print!("  {SUBJECT} / {:<14}", other.name);
    for column in columns {
        let ratio = Quartiles::of_ratios(&subject.values(column.field)?, &other.values(column.field)?);
        if let Some(ratio) = ratio {
            print!("{} {ratio:<20}", column.title);
        }
    }
    println!();
    Ok(())
}
