//! Does the executor add anything noticeable to its task cell, and is it ahead of the peers?
//!
//! Each test repeats one thing a thousand times inside `block_on`: spawn and join, a batch of spawns and then their joins, a
//! yield of one task, yields of a hundred. `Bare` is the task cell in a queue, the bound; the items per second are
//! repetitions.
//!
//! ```text
//! cargo bench -p benches --bench exec
//! ```
//!
//! For a verdict take `duel exec`: it runs the same tests in separate processes, in turns, and prints paired ratios.

#![forbid(unsafe_code)]

use benches::exec::{Test, run};
use benches::host::{Bare, Compio, Glommio, Host, Monoio, Ours, Tokio};
use divan::Bencher;
use divan::counter::ItemsCount;

const REPETITIONS: u64 = 1000;

fn main() {
    divan::main();
}

#[divan::bench(types = [Bare, Ours, Tokio, Monoio, Compio, Glommio])]
fn spawn_and_join<H: Host>(bencher: Bencher) {
    repeat::<H>(bencher, Test::SpawnOne);
}

#[divan::bench(types = [Bare, Ours, Tokio, Monoio, Compio, Glommio])]
fn spawn_batch<H: Host>(bencher: Bencher) {
    repeat::<H>(bencher, Test::SpawnMany);
}

#[divan::bench(types = [Bare, Ours, Tokio, Monoio, Compio, Glommio])]
fn yield_one<H: Host>(bencher: Bencher) {
    repeat::<H>(bencher, Test::YieldOne);
}

#[divan::bench(types = [Bare, Ours, Tokio, Monoio, Compio, Glommio])]
fn yield_hundred<H: Host>(bencher: Bencher) {
    repeat::<H>(bencher, Test::YieldMany);
}

fn repeat<H: Host>(bencher: Bencher, test: Test) {
    let mut host = H::new().expect("the runtime starts on this machine");
    bencher.counter(ItemsCount::new(REPETITIONS)).bench_local(|| host.block_on(run::<H>(test, REPETITIONS)));
}
