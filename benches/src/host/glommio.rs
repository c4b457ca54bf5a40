//! glommio on its three rings.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::time::Duration;

use glommio::io::{BufferedFile, DmaFile};
use glommio::{LocalExecutor, LocalExecutorBuilder, Placement, Task};
use runtime_limit::Result;
use runtime_limit::files::Access;

use super::{Host, Timers};
use crate::files::{Files, Way, whole};

/// An executor that is not pinned by itself: the driver pins all servers alike.
#[derive(Debug)]
pub struct Glommio(LocalExecutor);

impl Host for Glommio {
    type Handle<T: 'static> = Task<T>;

    fn new() -> Result<Self> {
        let executor = LocalExecutorBuilder::new(Placement::Unbound).make();
        Ok(Self(executor.map_err(|error| error.to_string())?))
    }

    fn block_on<F: Future>(&mut self, future: F) -> F::Output {
        self.0.run(future)
    }

    fn spawn<F>(future: F) -> Task<F::Output>
    where
        F: Future<Output: Send + 'static> + Send + 'static,
    {
        glommio::spawn_local(future)
    }
}

impl Timers for Glommio {
    /// Its own type has no name.
    type Sleep = Pin<Box<dyn Future<Output = ()>>>;

    fn sleep(duration: Duration) -> Self::Sleep {
        Box::pin(glommio::timer::sleep(duration))
    }
}

/// A file of the kind for the page cache, or of the one past it.
#[derive(Debug)]
pub enum File {
    /// Through the page cache.
    Buffered(BufferedFile),
    /// Past it.
    Dma(DmaFile),
}

/// It hands out buffers of its own; what is kept here is only what is written.
impl Files for Glommio {
    type File = File;
    type Buf = Vec<u8>;

    fn spawn_local<F: Future<Output: 'static> + 'static>(future: F) -> impl Future<Output = F::Output> {
        glommio::spawn_local(future)
    }

    async fn open(path: &str, access: Access) -> io::Result<File> {
        Ok(match access {
            Access::Read => File::Buffered(BufferedFile::open(path).await?),
            Access::Direct => File::Dma(DmaFile::open(path).await?),
            Access::Write => File::Buffered(BufferedFile::create(path).await?),
        })
    }

    fn buffers(count: usize, len: usize, way: Way) -> io::Result<Vec<Vec<u8>>> {
        match way {
            Way::Plain => Ok((0..count).map(|_| vec![7; len]).collect()),
            _ => Err(io::ErrorKind::Unsupported.into()),
        }
    }

    async fn read(file: &File, buf: Vec<u8>, offset: u64, _: Way) -> io::Result<Vec<u8>> {
        let read = match file {
            File::Buffered(file) => file.read_at(offset, buf.len()).await?,
            File::Dma(file) => file.read_at_aligned(offset, buf.len()).await?,
        };
        whole(read.len(), buf.len())?;
        Ok(buf)
    }

    async fn write(file: &File, buf: Vec<u8>, offset: u64) -> io::Result<Vec<u8>> {
        // It keeps what it is given.
        let File::Buffered(file) = file else { return Err(io::ErrorKind::Unsupported.into()) };
        whole(file.write_at(buf.clone(), offset).await?, buf.len())?;
        Ok(buf)
    }

    async fn sync(file: &File) -> io::Result<()> {
        let File::Buffered(file) = file else { return Err(io::ErrorKind::Unsupported.into()) };
        Ok(file.fdatasync().await?)
    }

    async fn len(file: &File) -> io::Result<u64> {
        Ok(match file {
            File::Buffered(file) => file.file_size().await?,
            File::Dma(file) => file.file_size().await?,
        })
    }

    /// It has no metadata by path: by an open file.
    async fn stat(_: &str) -> io::Result<u64> {
        Err(io::ErrorKind::Unsupported.into())
    }

    async fn close(file: File) -> io::Result<()> {
        match file {
            File::Buffered(file) => file.close().await?,
            File::Dma(file) => file.close().await?,
        }
        Ok(())
    }
}
