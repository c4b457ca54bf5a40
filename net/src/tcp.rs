//! TCP: listeners, streams and their halves.

pub(crate) mod dispatch;
pub(crate) mod listener;
mod shards;
pub(crate) mod split;
pub(crate) mod stream;
