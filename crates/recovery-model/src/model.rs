//! All steps of the model by name.

use crate::settings::{Fault, Settings};
use crate::state::State;
use crate::{api, faults, keeper, promises, recovery, retry, worker};

/// A step. Numbers are those of users, orders and keepers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// A claim runs in Redis.
    Claim(u8),
    /// Its receipt is noted.
    NoteReceipt,
    /// The user is told, or the claim is of unknown outcome.
    Answer,
    /// A user cancels an order.
    Cancel(u8),
    /// The API process reads the state of the lane.
    Refresh,
    /// The API process hands its receipts in.
    HandIn,
    /// The API process looks how far the log has been written.
    LookAtLog,
    /// The worker reads entries.
    Read,
    /// The worker commits them.
    Commit,
    /// The worker acknowledges them.
    Acknowledge,
    /// The worker returns a unit in Redis.
    GiveBack,
    /// The worker closes that return in Postgres.
    CloseReturn,
    /// An operator wants a dead letter to be tried again.
    Retry(u8),
    /// The letter takes a unit in Redis.
    Admit,
    /// The letter becomes an order.
    WriteRetried,
    /// The keeper finds a difference.
    LookFinds(u8),
    /// The keeper confirms and raises the beat.
    LookConfirms(u8),
    /// The keeper notes the beat.
    NoteBeat(u8),
    /// The keeper closes the lane of a lost sale.
    LookAtSale(u8),
    /// The keeper deals with receipts that were handed in late.
    LookAtReceipts(u8),
    /// The next step of a recovery.
    Recover(u8),
    /// An older state of Redis begins.
    Save,
    /// A fault.
    Happen(Fault),
}

impl Action {
    /// True for a step that happens by itself, in finite time. Users, faults and confirmed beats may stay away.
    pub fn is_certain(self) -> bool {
        !matches!(
            self,
            Self::Claim(_)
                | Self::Cancel(_)
                | Self::Retry(_)
                | Self::LookAtLog
                | Self::LookConfirms(_)
                | Self::Save
                | Self::Happen(_)
        )
    }
}

/// A model of this size.
pub struct Model {
    /// The size and the guards.
    pub settings: Settings,
    actions: Vec<Action>,
}

impl Model {
    /// A model with all steps that these settings allow.
    pub fn new(settings: Settings) -> Self {
        let mut actions: Vec<Action> = (0..settings.users).map(Action::Claim).collect();
        actions.extend((0..settings.claims).map(Action::Cancel));
        if settings.retries > 0 {
            actions.extend((0..settings.claims).map(Action::Retry));
            actions.extend([Action::Admit, Action::WriteRetried]);
        }
        actions.extend([Action::NoteReceipt, Action::Answer, Action::Refresh, Action::HandIn]);
        actions.extend([Action::LookAtLog, Action::Read, Action::Commit, Action::Acknowledge]);
        actions.extend([Action::GiveBack, Action::CloseReturn, Action::Save]);
        for number in 0..2 {
            actions.extend([Action::LookFinds(number), Action::LookConfirms(number)]);
            actions.extend([Action::NoteBeat(number), Action::LookAtSale(number)]);
            actions.extend([Action::LookAtReceipts(number), Action::Recover(number)]);
        }
        actions.extend(settings.kinds.iter().copied().map(Action::Happen));
        Self { settings, actions }
    }

    /// The state in which each run begins.
    pub(crate) fn first(&self) -> State {
        State::begin(&self.settings)
    }

    /// All steps, in any state.
    pub(crate) fn actions(&self) -> &[Action] {
        &self.actions
    }

    /// The state after a step; `None` if the step isn't possible now.
    pub(crate) fn after(&self, state: &State, action: Action) -> Option<State> {
        let settings = &self.settings;
        let mut next = match action {
            Action::Claim(user) => self.claim(state, user),
            Action::NoteReceipt => api::note_receipt(settings, state),
            Action::Answer => api::answer(settings, state),
            Action::Cancel(order) => api::cancel(state, order),
            Action::Refresh => api::refresh(state),
            Action::HandIn => api::hand_in(settings, state),
            Action::LookAtLog => api::look_at_log(settings, state),
            Action::Read => worker::read(settings, state),
            Action::Commit => worker::commit(settings, state),
            Action::Acknowledge => worker::acknowledge(state),
            Action::GiveBack => worker::give_back(settings, state),
            Action::CloseReturn => worker::close_return(settings, state),
            Action::Retry(letter) => retry::ask(state, letter),
            Action::Admit => retry::admit(settings, state),
            Action::WriteRetried => retry::write(settings, state),
            Action::LookFinds(number) => keeper::look_finds(settings, state, number),
            Action::LookConfirms(number) => keeper::look_confirms(settings, state, number),
            Action::NoteBeat(number) => keeper::note(settings, state, number),
            Action::LookAtSale(number) => keeper::look_at_sale(settings, state, number),
            Action::LookAtReceipts(number) => keeper::look_at_receipts(state, number),
            Action::Recover(number) => recovery::step(settings, state, number),
            Action::Save => faults::save(settings, state),
            Action::Happen(fault) => faults::happen(settings, state, fault),
        }?;
        promises::always(settings, &mut next);
        Some(next)
    }

    /// Users are alike: those that have claimed have the lowest numbers.
    fn claim(&self, state: &State, user: u8) -> Option<State> {
        let claimed = &state.users[..usize::from(state.next_order)];
        let is_next = user == 0 || claimed.contains(&(user - 1));
        if is_next { api::claim(&self.settings, state, user) } else { None }
    }
}
