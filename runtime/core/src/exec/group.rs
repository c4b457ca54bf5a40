//! [`Builder::run`]: one body on each of several threads.
//!
//! Owns the start of a group, which is all or nothing, and its end. Knows nothing of rings or tasks.
//!
//! ```text
//!   starting ──all runtimes built──▶ running ──all bodies ended──▶ ended
//!      │ one failed                     │ a body failed: stop token
//!      ▼                                ▼
//!   abandoned                       stopping ──grace over──▶ ending: bodies are dropped ──limit over──▶ detached
//! ```
//!
//! The calling thread only watches: it can return also when one of the others hangs, which none of them could.

use std::future::{Future, poll_fn};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::pin;
use std::sync::{Arc, mpsc};
use std::task::Poll;
use std::thread;
use std::time::Instant;

use super::threads::{SLACK, Staffing};
use super::{Builder, Handle};
use crate::context;
use crate::crew::{Crew, Leftovers, Way};
use crate::panics::{Panic, drop_quietly};
use crate::sys;
use crate::time;

/// What a thread tells the one that watches.
enum Event<T> {
    Started(usize, io::Result<Way>),
    /// `None` when the body was dropped.
    Output(usize, Result<Option<T>, Panic>),
    /// Its runtime has ended.
    Ended(usize, Leftovers),
}

/// How the first body failed.
enum Failure<T> {
    Output(T),
    Panic(Panic),
}

impl Builder {
    /// Runs a body once on each thread, each with a ring of its own, and returns what the bodies returned, by index.
    ///
    /// All threads are new ones; the calling thread waits. No body runs before every thread has its ring. The body gets
    /// the [`Handle`] of its thread. When it returns, that thread's tasks are dropped and its runtime ends, as after
    /// [`Runtime::block_on`](super::Runtime::block_on) and a drop; **the other threads go on**.
    ///
    /// When a body returns an error or panics, the others are stopped: [`Handle::stopped`] completes everywhere at once;
    /// a body that has not returned after the [grace period](Self::stop_grace) is dropped where it next suspends; a
    /// thread that does not come to its end within the [limit](Self::shutdown_timeout) after that, because it computes or
    /// because the kernel does not let go of an operation, is left alone and goes on until it can end. Then the first error
    /// is returned, or the first panic goes on here.
    ///
    /// [`Handle::stop`] asks all bodies to come to their end; it forces none.
    ///
    /// # Errors
    ///
    /// The first error of a body. What keeps a thread from starting, as in [`build`](Self::build) (threads and
    /// descriptors can run out): no body has run then, and no thread is left.
    ///
    /// # Panics
    ///
    /// With the panic of a body; inside a runtime, which it would block.
    ///
    /// # Examples
    ///
    /// ```
    /// use runtime_core::exec::{Builder, Handle};
    ///
    /// let indices = Builder::new().threads(2).run(|cx: Handle| async move {
    ///     if cx.index() == 0 {
    ///         cx.stop();
    ///     }
    ///     cx.stopped().await;
    ///     std::io::Result::Ok(cx.index())
    /// });
    /// assert_eq!(indices.unwrap(), [0, 1]);
    /// ```
    #[track_caller]
    pub fn run<F, T, E>(&self, body: F) -> Result<Vec<T>, E>
    where
        F: AsyncFn(Handle) -> Result<T, E> + Send + Sync + 'static,
        T: Send + 'static,
        E: From<io::Error> + Send + 'static,
    {
        match self.run_until_failure(body, Result::is_err)? {
            Ok(outputs) => outputs.into_iter().collect(),
            Err(failure) => failure.map(|_| Vec::new()),
        }
    }

    /// [`run`](Self::run) for any output, of which `is_failure` says whether it stops the others. The inner error is the
    /// first failure.
    #[doc(hidden)]
    #[track_caller]
    pub fn run_until_failure<F, T>(&self, body: F, is_failure: fn(&T) -> bool) -> io::Result<Result<Vec<T>, T>>
    where
        F: AsyncFn(Handle) -> T + Send + Sync + 'static,
        T: Send + 'static,
    {
        assert!(
            !context::is_entered(),
            "`run` inside a running runtime would block it: call it before a runtime is started, or use `spawn_on`"
        );
        super::assert_same_process();
        self.staffing.check()?;
        let group = Group::start(self, Arc::new(body))?;
        group.watch(&self.staffing, is_failure)
    }
}

/// The threads of a group, as the one that watches them sees them.
struct Group<T> {
    crew: Arc<Crew>,
    threads: Vec<Option<thread::JoinHandle<()>>>,
    events: mpsc::Receiver<Event<T>>,
}

impl<T: Send + 'static> Group<T> {
    fn start<F>(builder: &Builder, body: Arc<F>) -> io::Result<Self>
    where
        F: AsyncFn(Handle) -> T + Send + Sync + 'static,
    {
        let count = builder.staffing.threads.count();
        let cpus = builder.staffing.cpus()?;
        let crew = Crew::group(count);
        let (tell, events) = mpsc::channel();
        let mut group = Self { crew, threads: Vec::new(), events };
        let mut gates = Vec::new();
        let mut error = None;
        for index in 0..count {
            let (gate, go) = mpsc::channel();
            let member = Member {
                builder: builder.clone(),
                crew: Arc::clone(&group.crew),
                index,
                body: Arc::clone(&body),
                tell: tell.clone(),
            };
            match builder.staffing.start(index, cpus, move |pinned| member.run(pinned, &go)) {
                Ok(thread) => group.threads.push(Some(thread)),
                Err(cause) => {
                    error = Some(cause);
                    break;
                }
            }
            gates.push(gate);
        }
        drop((tell, body));
        for _ in 0..group.threads.len() {
            match group.events.recv() {
                Ok(Event::Started(index, Ok(way))) => group.crew.take_seat(index, way),
                Ok(Event::Started(_, Err(cause))) => error = error.or(Some(cause)),
                Ok(_) => {}
                Err(_) => error = error.or_else(|| Some(io::Error::other("a thread ended as it started"))),
            }
        }
        match error {
            None => {
                for gate in gates {
                    // A thread that has said that it started waits for this.
                    let _ = gate.send(());
                }
                Ok(group)
            }
            Some(error) => {
                drop(gates);
                group.threads.into_iter().flatten().for_each(|thread| drop(thread.join()));
                Err(error)
            }
        }
    }

    #[track_caller]
    fn watch(mut self, staffing: &Staffing, is_failure: fn(&T) -> bool) -> io::Result<Result<Vec<T>, T>> {
        let mut outputs: Vec<Option<T>> = self.threads.iter().map(|_| None).collect();
        let mut running = outputs.len();
        let mut failure = None;
        let mut deadline = None;
        let mut ended = Vec::new();
        while running > 0 {
            let event = match deadline {
                None => self.events.recv().map_err(|_| mpsc::RecvTimeoutError::Disconnected),
                Some(at) => self.events.recv_timeout(Instant::saturating_duration_since(&at, Instant::now())),
            };
            let failed = match event {
                Ok(Event::Output(_, Ok(Some(output)))) if is_failure(&output) => Failure::Output(output),
                Ok(Event::Output(index, Ok(Some(output)))) => {
                    outputs[index] = Some(output);
                    continue;
                }
                Ok(Event::Output(_, Err(panic))) => Failure::Panic(panic),
                Ok(Event::Ended(index, leftovers)) => {
                    running -= 1;
                    ended.push((index, leftovers));
                    continue;
                }
                Ok(Event::Output(_, Ok(None)) | Event::Started(..)) => continue,
                Err(mpsc::RecvTimeoutError::Timeout) if !self.crew.end.is_stopped() => {
                    self.crew.end.stop();
                    deadline = Some(time::after(staffing.limit.saturating_add(SLACK)));
                    continue;
                }
                // What is left does not end, and is left alone.
                Err(_) => break,
            };
            match &failure {
                None => {
                    failure = Some(failed);
                    deadline = Some(time::after(staffing.grace));
                    self.tell_to_stop();
                }
                // Of several the first counts; a payload may panic again when it is dropped.
                Some(_) => drop_quietly(failed),
            }
        }
        let deadline = deadline.unwrap_or_else(|| time::after(staffing.limit.saturating_add(SLACK)));
        for (index, leftovers) in ended {
            if let Some(thread) = self.threads[index].take() {
                leftovers.join(thread, deadline);
            }
        }
        match failure {
            Some(Failure::Panic(panic)) => resume_unwind(panic),
            Some(Failure::Output(output)) => Ok(Err(output)),
            None => Ok(Ok(outputs.into_iter().flatten().collect())),
        }
    }

    /// A waker that panics is not the failure that is returned.
    fn tell_to_stop(&self) {
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| self.crew.stop.stop())) {
            drop_quietly(panic);
        }
    }
}

/// What a thread of a group has.
struct Member<F, T> {
    builder: Builder,
    crew: Arc<Crew>,
    index: usize,
    body: Arc<F>,
    tell: mpsc::Sender<Event<T>>,
}

impl<F: AsyncFn(Handle) -> T, T> Member<F, T> {
    fn run(self, pinned: io::Result<()>, go: &mpsc::Receiver<()>) {
        let Self { builder, crew, index, body, tell } = self;
        // The one that watches may have left: then nobody wants to know.
        let tell = |event| drop_quietly(tell.send(event));
        let place = |_: &Way| (Arc::clone(&crew), index);
        // The others wait at their gates until this one has said something, whatever happens to it.
        let built = catch_unwind(AssertUnwindSafe(|| pinned.and_then(|()| builder.build_in(place))));
        let runtime = match built.unwrap_or_else(|_| Err(io::Error::other("a thread panicked as it started"))) {
            Ok(runtime) => runtime,
            Err(error) => {
                drop_quietly(body);
                return tell(Event::Started(index, Err(error)));
            }
        };
        tell(Event::Started(index, Ok(Arc::clone(&runtime.context().door))));
        if go.recv().is_err() {
            drop_quietly(body);
            return;
        }
        let handle = Handle::new(Arc::clone(&crew), index);
        let output = catch_unwind(AssertUnwindSafe(|| runtime.block_on(until_end(&*body, handle, &crew))));
        if output.is_err() {
            // The thread would end well, and with it the child.
            sys::end_child_of_fork();
        }
        // Told before this runtime ends, which may take a while: the others are stopped meanwhile.
        tell(Event::Output(index, output));
        let end = catch_unwind(AssertUnwindSafe(|| runtime.shutdown_timeout(builder.staffing.limit)));
        // One that cannot even end is not joined.
        let leftovers = end.unwrap_or(1);
        drop_quietly(body);
        tell(Event::Ended(index, Leftovers::here(leftovers)));
    }
}

/// The output of the body, `None` when it has to end before.
async fn until_end<T>(body: &impl AsyncFn(Handle) -> T, handle: Handle, crew: &Crew) -> Option<T> {
    let mut body = pin!(body(handle));
    let mut end = pin!(crew.end.stopped());
    let mut listens = false;
    poll_fn(|task| {
        if let Poll::Ready(output) = body.as_mut().poll(task) {
            return Poll::Ready(Some(output));
        }
        // Once is enough: the waker of a `block_on` is always the same.
        let ends = if std::mem::replace(&mut listens, true) {
            crew.end.is_stopped()
        } else {
            end.as_mut().poll(task).is_ready()
        };
        if ends { Poll::Ready(None) } else { Poll::Pending }
    })
    .await
}
