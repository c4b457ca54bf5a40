//! Numbers in both byte orders: the methods of [`AsyncReadExt`](super::AsyncReadExt), and [`AsyncWriteExt`].

use std::future::Future;
use std::io;

use super::AsyncWrite;

/// One method per type and byte order, named as in tokio: big-endian without a suffix, little-endian with `_le`.
macro_rules! read_numbers {
    () => {
        read_numbers! {
            u8 1 read_u8 from_be_bytes "an unsigned byte";
            i8 1 read_i8 from_be_bytes "a signed byte";
            u16 2 read_u16 from_be_bytes "a big-endian `u16`";
            i16 2 read_i16 from_be_bytes "a big-endian `i16`";
            u32 4 read_u32 from_be_bytes "a big-endian `u32`";
            i32 4 read_i32 from_be_bytes "a big-endian `i32`";
            u64 8 read_u64 from_be_bytes "a big-endian `u64`";
            i64 8 read_i64 from_be_bytes "a big-endian `i64`";
            u128 16 read_u128 from_be_bytes "a big-endian `u128`";
            i128 16 read_i128 from_be_bytes "a big-endian `i128`";
            f32 4 read_f32 from_be_bytes "a big-endian `f32`";
            f64 8 read_f64 from_be_bytes "a big-endian `f64`";
            u16 2 read_u16_le from_le_bytes "a little-endian `u16`";
            i16 2 read_i16_le from_le_bytes "a little-endian `i16`";
            u32 4 read_u32_le from_le_bytes "a little-endian `u32`";
            i32 4 read_i32_le from_le_bytes "a little-endian `i32`";
            u64 8 read_u64_le from_le_bytes "a little-endian `u64`";
            i64 8 read_i64_le from_le_bytes "a little-endian `i64`";
            u128 16 read_u128_le from_le_bytes "a little-endian `u128`";
            i128 16 read_i128_le from_le_bytes "a little-endian `i128`";
            f32 4 read_f32_le from_le_bytes "a little-endian `f32`";
            f64 8 read_f64_le from_le_bytes "a little-endian `f64`";
        }
    };
    ($($number:ident $len:literal $name:ident $from:ident $what:literal;)*) => {$(
        #[doc = concat!("Reads ", $what, ".")]
        ///
        /// # Errors
        ///
        /// As [`read_exact`](AsyncRead::read_exact).
        ///
        /// # Cancel safety
        ///
        /// As [`read_exact`](AsyncRead::read_exact).
        fn $name(&mut self) -> impl Future<Output = io::Result<$number>> {
            async {
                let BufResult(result, bytes) = self.read_exact([0; $len]).await;
                result.map(|()| <$number>::$from(bytes))
            }
        }
    )*};
}

pub(super) use read_numbers;

macro_rules! write_numbers {
    ($($number:ident $name:ident $to:ident $what:literal;)*) => {$(
        #[doc = concat!("Writes ", $what, ".")]
        ///
        /// # Errors
        ///
        /// As [`write_all`](AsyncWrite::write_all).
        ///
        /// # Cancel safety
        ///
        /// As [`write`](AsyncWrite::write).
        fn $name(&mut self, number: $number) -> impl Future<Output = io::Result<()>> {
            async move { self.write_all(number.$to()).await.0 }
        }
    )*};
}

/// What can be done with any [`AsyncWrite`]: numbers in both byte orders.
///
/// Each is a write of its own, so write them to a [`BufWriter`](super::BufWriter).
///
/// # Examples
///
/// ```
/// use runtime_core::io::{AsyncWrite, AsyncWriteExt, BufWriter};
/// # runtime_core::exec::Builder::new().build().unwrap().block_on(async {
/// let mut writer = BufWriter::new(Vec::new());
/// writer.write_u16(1).await?;
/// writer.write_u16_le(1).await?;
/// writer.flush().await?;
/// assert_eq!(writer.get_ref(), b"\x00\x01\x01\x00");
/// # std::io::Result::Ok(())
/// # }).unwrap();
/// ```
pub trait AsyncWriteExt: AsyncWrite {
    write_numbers! {
        u8 write_u8 to_be_bytes "an unsigned byte";
        i8 write_i8 to_be_bytes "a signed byte";
        u16 write_u16 to_be_bytes "a big-endian `u16`";
        i16 write_i16 to_be_bytes "a big-endian `i16`";
        u32 write_u32 to_be_bytes "a big-endian `u32`";
        i32 write_i32 to_be_bytes "a big-endian `i32`";
        u64 write_u64 to_be_bytes "a big-endian `u64`";
        i64 write_i64 to_be_bytes "a big-endian `i64`";
        u128 write_u128 to_be_bytes "a big-endian `u128`";
        i128 write_i128 to_be_bytes "a big-endian `i128`";
        f32 write_f32 to_be_bytes "a big-endian `f32`";
        f64 write_f64 to_be_bytes "a big-endian `f64`";
        u16 write_u16_le to_le_bytes "a little-endian `u16`";
        i16 write_i16_le to_le_bytes "a little-endian `i16`";
        u32 write_u32_le to_le_bytes "a little-endian `u32`";
        i32 write_i32_le to_le_bytes "a little-endian `i32`";
        u64 write_u64_le to_le_bytes "a little-endian `u64`";
        i64 write_i64_le to_le_bytes "a little-endian `i64`";
        u128 write_u128_le to_le_bytes "a little-endian `u128`";
        i128 write_i128_le to_le_bytes "a little-endian `i128`";
        f32 write_f32_le to_le_bytes "a little-endian `f32`";
        f64 write_f64_le to_le_bytes "a little-endian `f64`";
    }
}

impl<W: AsyncWrite + ?Sized> AsyncWriteExt for W {}
