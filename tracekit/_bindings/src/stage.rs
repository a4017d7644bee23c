//! A stage of a pipeline: a thread that works on pieces while the next ones are made.

use std::io;
use std::sync::mpsc::{channel, sync_channel, Receiver, SyncSender};
use std::thread::{Builder, JoinHandle};

use crate::errors::{caught, Bug};

/// Pieces that wait: one is made and one is worked on meanwhile. More would only take memory: a
/// stage that is slower is waited for whatever their number.
const WAITING: usize = 2;

/// The thread, what it is given and what it gives back.
pub struct Stage<State, In, Out> {
    pieces: Option<SyncSender<In>>,
    done: Receiver<Out>,
    thread: Option<JoinHandle<Result<State, Bug>>>,
}

impl<State: Send + 'static, In: Send + 'static, Out: Send + 'static> Stage<State, In, Out> {
    /// Starts a thread of this name that calls `work` with its state and each piece.
    ///
    /// # Errors
    /// Where the system gives no thread.
    pub fn start(
        name: &str,
        mut state: State,
        mut work: impl FnMut(&mut State, In) -> Out + Send + 'static,
    ) -> io::Result<Self> {
        let (pieces, given) = sync_channel(WAITING);
        let (back, done) = channel();
        let body = move || {
            caught(move || {
                for piece in given {
                    // Nobody listens any more when whoever made the pieces has given up.
                    let _ = back.send(work(&mut state, piece));
                }
                state
            })
        };
        let thread = Builder::new().name(name.into()).spawn(body)?;
        Ok(Stage { pieces: Some(pieces), done, thread: Some(thread) })
    }

    /// Hands over a piece; waits while there are enough on the way.
    ///
    /// # Errors
    /// The panic in which the thread ended.
    pub fn give(&mut self, piece: In) -> Result<(), Bug> {
        match self.pieces.as_ref().map(|pieces| pieces.send(piece)) {
            Some(Ok(())) => Ok(()),
            _ => Err(self.end().err().unwrap_or_else(|| Bug::new("a stage was used after its end"))),
        }
    }

    /// What came of pieces since it was last asked for.
    pub fn done(&self) -> impl Iterator<Item = Out> + '_ {
        self.done.try_iter()
    }

    /// Waits until all pieces are done, and gives the state, and what came of the last of them.
    ///
    /// # Errors
    /// The panic in which the thread ended.
    pub fn end(&mut self) -> Result<(State, Vec<Out>), Bug> {
        self.pieces = None;
        let ended = || Bug::new("a stage was ended twice");
        let state = self.thread.take().ok_or_else(ended)?.join().unwrap_or_else(|_| Err(ended()))?;
        Ok((state, self.done.try_iter().collect()))
    }
}
