//! Macros whose arguments are code: `select!`, `join!`, sqlx's queries, and the scripts that are included.

use syn::parse::{Parse, ParseStream, Parser};
use syn::punctuated::Punctuated;
use syn::{Expr, ExprLit, ExprMethodCall, Lit, LitStr, Macro, Pat, Token};

use super::splice::Piece;
use super::visit::Tail;
use super::{Collector, Query, Script};

/// Methods that send a query.
const EXECUTING: &[&str] = &["execute", "fetch", "fetch_all", "fetch_one", "fetch_optional"];

/// Macros whose arguments are expressions.
const PLAIN: &[&str] = &["join", "try_join", "vec"];

/// One arm of `select!`.
struct SelectArm {
    /// `None` for `else`.
    waits: Option<(Expr, Option<Expr>)>,
    body: Expr,
}

struct Select(Vec<SelectArm>);

impl Collector<'_> {
    /// Mutants within a macro in the place of a statement.
    pub(super) fn macro_call(&mut self, call: &Macro) {
        let name = name_of(call);
        if name == "select" {
            if let Ok(Select(arms)) = call.parse_body() {
                arms.iter().for_each(|arm| self.select_arm(arm));
            }
        } else if is_query(&name) || PLAIN.contains(&name.as_str()) {
            for argument in arguments(call) {
                if !matches!(&argument, Expr::Lit(_)) {
                    self.expression(&argument, Tail::Value);
                }
            }
        }
    }

    /// Mutants within a macro in the place of an expression.
    pub(super) fn macro_expression(&mut self, expression: &Expr, call: &Macro) {
        match included_script(call) {
            Some(name) => self.script(expression, &name),
            None => self.macro_call(call),
        }
    }

    fn select_arm(&mut self, arm: &SelectArm) {
        if let Some((future, condition)) = &arm.waits {
            match condition {
                Some(condition) => self.condition(condition, true, true),
                None => self.switch_off("arm", future, "", ", if "),
            }
            self.expression(future, Tail::Value);
        }
        self.expression(&arm.body, Tail::Value);
    }

    fn script(&mut self, expression: &Expr, name: &str) {
        let number = self.number();
        let path = resolve(&self.source.path, name);
        let before = vec![Piece::shared(format!("crate::mutants::lua({number}, "))];
        let range = self.range(expression);
        self.found.splices.wrap(range, before, vec![Piece::shared(")")], Vec::new());
        self.found.scripts.push(Script { number, path });
    }

    /// Puts the query's number beside its executor.
    pub(super) fn query(&mut self, call: &ExprMethodCall) {
        let executes = EXECUTING.iter().any(|name| call.method == name);
        let (Some(text), Some(executor)) = (literal(&call.receiver), call.args.first()) else {
            return;
        };
        if !executes {
            return;
        }
        let number = self.number();
        let before = vec![Piece::shared(format!("crate::mutants::Sql::new({number}, "))];
        let range = self.range(executor);
        self.found.splices.wrap(range, before, vec![Piece::shared(")")], Vec::new());
        self.found.queries.push(Query {
            number,
            file: self.source.path.clone(),
            function: self.function(),
            line: text.span().start().line,
            text: text.value(),
        });
    }
}

impl Parse for SelectArm {
    fn parse(input: ParseStream<'_>) -> syn::Result<Self> {
        let waits = if input.peek(Token![else]) {
            input.parse::<Token![else]>()?;
            None
        } else {
            Pat::parse_multi(input)?;
            input.parse::<Token![=]>()?;
            let future = input.parse()?;
            let condition = if input.peek(Token![,]) {
                input.parse::<Token![,]>()?;
                input.parse::<Token![if]>()?;
                Some(input.parse()?)
            } else {
                None
            };
            Some((future, condition))
        };
        input.parse::<Token![=>]>()?;
        let body = Expr::parse_with_earlier_boundary_rule(input)?;
        if input.peek(Token![,]) {
            input.parse::<Token![,]>()?;
        }
        Ok(Self { waits, body })
    }
}

impl Parse for Select {
    fn parse(input: ParseStream<'_>) -> syn::Result<Self> {
        if input.peek(syn::Ident) && input.peek2(Token![;]) {
            // `biased;`
            input.parse::<syn::Ident>()?;
            input.parse::<Token![;]>()?;
        }
        let mut arms = Vec::new();
        while !input.is_empty() {
            arms.push(input.parse()?);
        }
        Ok(Self(arms))
    }
}

fn name_of(call: &Macro) -> String {
    call.path.segments.last().map(|last| last.ident.to_string()).unwrap_or_default()
}

fn is_query(name: &str) -> bool {
    ["query", "query_as", "query_scalar"].contains(&name)
}

fn arguments(call: &Macro) -> Vec<Expr> {
    let parser = Punctuated::<Expr, Token![,]>::parse_terminated;
    let parsed = parser.parse2(call.tokens.clone());
    parsed.map(|arguments| arguments.into_iter().collect()).unwrap_or_default()
}

/// The name that `include_str!` has, if that is a script.
fn included_script(call: &Macro) -> Option<String> {
    let name: LitStr = (name_of(call) == "include_str").then(|| call.parse_body().ok())??;
    Some(name.value()).filter(|name| name.ends_with(".lua"))
}

/// `../../lua/claim.lua`, as seen from a file, from the root of the repository.
fn resolve(file: &str, relative: &str) -> String {
    let mut parts: Vec<&str> = file.split('/').collect();
    parts.pop();
    for part in relative.split('/') {
        match part {
            ".." => drop(parts.pop()),
            name => parts.push(name),
        }
    }
    parts.join("/")
}

/// The text of the query at the root of a chain of calls.
fn literal(receiver: &Expr) -> Option<LitStr> {
    let of = |expression: &Expr| match expression {
        Expr::Lit(ExprLit { lit: Lit::Str(text), .. }) => Some(text.clone()),
        _ => None,
    };
    match receiver {
        Expr::MethodCall(call) => literal(&call.receiver),
        Expr::Macro(call) if is_query(&name_of(&call.mac)) => {
            arguments(&call.mac).iter().find_map(of)
        }
        Expr::Call(call) => match &*call.func {
            Expr::Path(path) => {
                let last = path.path.segments.last()?.ident.to_string();
                call.args.first().filter(|_| is_query(&last)).and_then(of)
            }
            _ => None,
        },
        _ => None,
    }
}
