//! All steps of the model by name.

use crate::settings::Settings;
use crate::state::{State, Trust};
use crate::{api, faults, people, promises, recovery, sale, worker};

type Plain = fn(&Settings, &mut State) -> Option<()>;
type Step = Box<dyn Fn(&Settings, &mut State) -> Option<()>>;

pub struct Action {
    pub name: String,
    /// True for a step that happens by itself, in finite time. Users, operators and faults may stay away; but an
    /// operator who is asked answers.
    pub is_certain: bool,
    step: Step,
}

/// The state after a step; `None` if the step isn't possible now.
pub fn after(rules: &Settings, state: &State, action: &Action) -> Option<State> {
    let mut next = *state;
    (action.step)(rules, &mut next)?;
    promises::always(rules, &mut next);
    (next != *state).then_some(next)
}

/// All steps that these settings allow.
pub fn actions(rules: &Settings) -> Vec<Action> {
    let mut actions = Vec::new();
    let mut add = |name: String, is_certain: bool, step: Step| {
        actions.push(Action { name, is_certain, step });
    };
    let plain: [(&str, bool, Plain); 22] = [
        ("note claim", true, api::note_claim),
        ("answer", true, api::answer),
        ("refresh", true, api::refresh),
        ("hand in", true, api::hand_in),
        ("see log", false, api::see_log),
        ("drop unwritten claims", false, api::drop_unwritten),
        ("read", true, worker::read),
        ("commit", true, worker::commit),
        ("acknowledge", true, worker::acknowledge),
        ("release", true, worker::release),
        ("close return", true, worker::close_return),
        ("admit", true, people::admit),
        ("write retried", true, people::write_retried),
        ("open sale", true, sale::open),
        ("archive", false, sale::archive),
        ("remove sale", true, sale::remove),
        ("delete rows", false, sale::delete),
        ("close lane", true, recovery::close),
        ("compare", true, recovery::compare),
        ("settle unwritten claims", true, recovery::settle_unwritten),
        ("save", false, faults::save),
        ("dump", false, faults::dump),
    ];
    plain
        .into_iter()
        .for_each(|(name, is_certain, step)| add(name.to_owned(), is_certain, Box::new(step)));
    for number in 0..2 {
        let load: Step = Box::new(move |rules, s| sale::load(rules, s, number));
        add(format!("load by {number}"), true, load);
        let recover: Step = Box::new(move |rules, s| recovery::step(rules, s, number));
        add(format!("recover by {number}"), true, recover);
    }
    for trust in [Trust::Redis, Trust::Postgres] {
        add(format!("trust {trust:?}"), true, Box::new(move |_, s| people::decide(s, trust)));
    }
    for order in 0..usize::from(rules.claims) {
        add(format!("cancel {order}"), false, Box::new(move |_, s| people::cancel(s, order)));
        add(format!("pay {order}"), false, Box::new(move |rules, s| people::pay(rules, s, order)));
        add(format!("discard {order}"), false, Box::new(move |_, s| people::discard(s, order)));
        add(format!("retry {order}"), false, Box::new(move |_, s| people::retry(s, order)));
    }
    for (user, of) in (0..rules.users).flat_map(|user| (0..rules.sales).map(move |of| (user, of))) {
        let step: Step = Box::new(move |rules, s| claim(rules, s, user, of));
        add(format!("claim by {user} on {of}"), false, step);
    }
    for fault in rules.kinds.iter().copied() {
        add(format!("{fault:?}"), false, Box::new(move |_, s| faults::happen(s, fault)));
    }
    actions
}

/// Users are alike, and so are sales: those that were claimed by or on have the lowest numbers.
fn claim(rules: &Settings, s: &mut State, user: u8, sale: usize) -> Option<()> {
    let granted = usize::from(s.granted);
    let is_next =
        |number: u8, known: &[u8]| number == 0 || known[..granted].contains(&(number - 1));
    (is_next(user, &s.users) && is_next(sale as u8, &s.of)).then_some(())?;
    api::claim(rules, s, user, sale)
}
