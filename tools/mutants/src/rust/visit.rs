//! The walk over a file.

use syn::visit::{self, Visit};
use syn::{
    Arm, Attribute, Block, Expr, ExprMatch, ExprMethodCall, ImplItemFn, ItemFn, ItemImpl, ItemMod,
    ItemTrait, Pat, ReturnType, Signature, Stmt, TraitItemFn,
};

use super::conditions::is_condition;
use super::operators::DECIDING;
use super::splice::Piece;
use super::{Collector, RUNS_SCRIPTS, hash_of, values};

/// Purpose of an expression.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tail {
    /// A value of a type that isn't known.
    Value,
    /// Its effect only.
    Effect,
    /// Its effect, and that it succeeded.
    Success,
    /// A decision; taking all of it for true or false is shown elsewhere.
    Decision,
}

impl<'ast> Visit<'ast> for Collector<'_> {
    fn visit_item_mod(&mut self, item: &'ast ItemMod) {
        if !is_left_alone(&item.attrs) {
            visit::visit_item_mod(self, item);
        }
    }

    fn visit_item_impl(&mut self, item: &'ast ItemImpl) {
        const SHOWN: &[&str] = &["Debug", "Display"];
        let of = item.trait_.as_ref().and_then(|(_, path, _)| path.segments.last());
        if of.is_some_and(|of| SHOWN.iter().any(|name| of.ident == name))
            || is_left_alone(&item.attrs)
        {
            return;
        }
        self.names.push(first_name(self.text(&*item.self_ty)));
        for item in &item.items {
            visit::visit_impl_item(self, item);
        }
        self.names.pop();
    }

    fn visit_item_trait(&mut self, item: &'ast ItemTrait) {
        self.names.push(item.ident.to_string());
        for item in &item.items {
            visit::visit_trait_item(self, item);
        }
        self.names.pop();
    }

    fn visit_item_fn(&mut self, item: &'ast ItemFn) {
        self.function_body(&item.sig, &item.block, &item.attrs);
    }

    fn visit_impl_item_fn(&mut self, item: &'ast ImplItemFn) {
        self.function_body(&item.sig, &item.block, &item.attrs);
    }

    fn visit_trait_item_fn(&mut self, item: &'ast TraitItemFn) {
        if let Some(block) = &item.default {
            self.function_body(&item.sig, block, &item.attrs);
        }
    }

    fn visit_expr(&mut self, expression: &'ast Expr) {
        self.expression(expression, Tail::Value);
    }

    fn visit_block(&mut self, block: &'ast Block) {
        self.block(block, Tail::Value);
    }

    fn visit_macro(&mut self, call: &'ast syn::Macro) {
        self.macro_call(call);
    }

    // Constants, types, patterns, paths and attributes are needed while compiling.
    fn visit_item_const(&mut self, _: &'ast syn::ItemConst) {}
    fn visit_impl_item_const(&mut self, _: &'ast syn::ImplItemConst) {}
    fn visit_trait_item_const(&mut self, _: &'ast syn::TraitItemConst) {}
    fn visit_item_static(&mut self, _: &'ast syn::ItemStatic) {}
    fn visit_item_enum(&mut self, _: &'ast syn::ItemEnum) {}
    fn visit_item_macro(&mut self, _: &'ast syn::ItemMacro) {}
    fn visit_type(&mut self, _: &'ast syn::Type) {}
    fn visit_pat(&mut self, _: &'ast Pat) {}
    fn visit_path(&mut self, _: &'ast syn::Path) {}
    fn visit_attribute(&mut self, _: &'ast Attribute) {}
}

impl Collector<'_> {
    fn function_body(&mut self, signature: &Signature, block: &Block, attributes: &[Attribute]) {
        if is_left_alone(attributes) || signature.constness.is_some() {
            return;
        }
        self.names.push(signature.ident.to_string());
        let range = self.range(signature).start..self.range(block).end;
        let outer = (self.context, self.returns);
        self.context = hash_of(self.source, range);
        self.returns = tail_of(&signature.output);
        self.returned_constants(&signature.output, block);
        self.hook(block);
        match &block.stmts[..] {
            // A function of one statement without a result: leaving it out is what returning at once does.
            [Stmt::Expr(only, _)] if matches!(self.returns, Tail::Effect | Tail::Success) => {
                self.expression(only, Tail::Value);
            }
            _ => self.block(block, self.returns),
        }
        (self.context, self.returns) = outer;
        self.names.pop();
    }

    fn returned_constants(&mut self, output: &ReturnType, block: &Block) {
        let (open, close) = (block.brace_token.span.open(), block.brace_token.span.close());
        let inside = open.byte_range().end..close.byte_range().start;
        let body = self.source.text[inside.clone()].trim().to_owned();
        let mut before = Vec::new();
        let mut numbers = Vec::new();
        for statement in values::returns(output) {
            if body.is_empty() || statement == format!("return {body}") {
                continue;
            }
            if let Some(number) = self.mutant("function", self.range(block), "{ ... }", &statement)
            {
                let code = format!(" if crate::mutants::m({number}) {{ {statement}; }}");
                before.push(Piece::of(number, code));
                numbers.push(number);
            }
        }
        if !numbers.is_empty() {
            self.found.splices.wrap(inside, before, Vec::new(), numbers);
        }
    }

    /// Tells the copy when a script is run.
    fn hook(&mut self, block: &Block) {
        if RUNS_SCRIPTS.contains(&(self.source.path.as_str(), self.function().as_str())) {
            let open = block.brace_token.span.open().byte_range().end;
            let inside = open..self.range(block).end - 1;
            let note = vec![Piece::shared(" crate::mutants::ran(self.text);")];
            self.found.splices.wrap(inside, note, Vec::new(), Vec::new());
            self.found.runs_scripts = true;
        }
    }

    fn block(&mut self, block: &Block, tail: Tail) {
        let last = block.stmts.len().saturating_sub(1);
        for (index, statement) in block.stmts.iter().enumerate() {
            match statement {
                Stmt::Local(local) => {
                    if let Some(init) = &local.init {
                        self.expression(&init.expr, Tail::Value);
                        if let Some((_, otherwise)) = &init.diverge {
                            self.expression(otherwise, Tail::Value);
                        }
                    }
                }
                Stmt::Item(item) => visit::visit_item(self, item),
                Stmt::Macro(call) => self.macro_call(&call.mac),
                Stmt::Expr(expression, None) if index == last => self.expression(expression, tail),
                Stmt::Expr(expression, semicolon) => {
                    if semicolon.is_some() && has_effect(expression) {
                        self.leave_out(statement);
                        self.parts(expression);
                    } else {
                        self.expression(expression, Tail::Effect);
                    }
                }
            }
        }
    }

    /// Mutants of an expression and of its parts.
    pub(super) fn expression(&mut self, expression: &Expr, tail: Tail) {
        match expression {
            Expr::If(branch) => {
                self.condition(&branch.cond, true, true);
                self.block(&branch.then_branch, tail);
                if let Some((_, otherwise)) = &branch.else_branch {
                    self.expression(otherwise, tail);
                }
            }
            Expr::Match(choice) => self.choice(choice, tail),
            Expr::Block(inner) => self.block(&inner.block, tail),
            Expr::While(repeated) => {
                self.condition(&repeated.cond, false, true);
                self.block(&repeated.body, Tail::Effect);
            }
            Expr::ForLoop(repeated) => {
                self.expression(&repeated.expr, Tail::Value);
                self.block(&repeated.body, Tail::Effect);
            }
            Expr::Loop(repeated) => self.block(&repeated.body, Tail::Effect),
            Expr::Return(returned) => {
                if let Some(value) = &returned.expr {
                    self.expression(value, self.returns);
                }
            }
            Expr::Async(later) => self.apart(|this| this.block(&later.block, Tail::Value)),
            Expr::Closure(closure) => {
                self.apart(|this| this.expression(&closure.body, Tail::Value))
            }
            _ if is_condition(expression) => {
                let elsewhere = tail == Tail::Decision;
                self.condition(expression, !elsewhere, !elsewhere);
            }
            _ if has_effect(expression) && tail == Tail::Effect => {
                self.leave_out(expression);
                self.parts(expression);
            }
            _ if has_effect(expression) && tail == Tail::Success => {
                self.alternatives("statement", expression, &["Ok(())".to_owned()]);
                self.parts(expression);
            }
            _ => self.parts(expression),
        }
    }

    /// Mutants of an expression's own operator, and of its parts.
    pub(super) fn parts(&mut self, expression: &Expr) {
        match expression {
            Expr::Binary(binary) if is_arithmetic(expression) => {
                self.arithmetic(expression, binary)
            }
            Expr::Unary(unary) if matches!(unary.op, syn::UnOp::Neg(_)) => {
                self.alternatives("arithmetic", expression, &[self.text(&*unary.expr).to_owned()]);
                self.expression(&unary.expr, Tail::Value);
            }
            Expr::Lit(literal) => {
                if let syn::Lit::Bool(literal) = &literal.lit {
                    let other = (!literal.value).to_string();
                    self.alternatives("literal", expression, &[other]);
                }
            }
            Expr::Path(path) => {
                if self.is_constant(&path.path) {
                    self.off_by_one(expression, "+");
                }
            }
            Expr::MethodCall(call) => {
                self.sister(expression, call);
                self.method_call(call);
            }
            Expr::Range(range) => self.ends(range),
            // The length of an array is a constant.
            Expr::Repeat(repeat) => self.expression(&repeat.expr, Tail::Value),
            Expr::Const(_) => {}
            Expr::Macro(call) => self.macro_expression(expression, &call.mac),
            // The left side has to stay a place.
            Expr::Assign(assignment) => self.expression(&assignment.right, Tail::Value),
            Expr::Binary(binary) if has_effect(expression) => {
                self.expression(&binary.right, Tail::Value);
            }
            Expr::Reference(reference) => self.expression(&reference.expr, Tail::Value),
            Expr::Paren(inner) => self.expression(&inner.expr, Tail::Value),
            other => visit::visit_expr(self, other),
        }
    }

    fn method_call(&mut self, call: &ExprMethodCall) {
        self.query(call);
        if call.method == "then" || call.method == "then_some" {
            self.condition(&call.receiver, true, true);
        } else {
            self.expression(&call.receiver, Tail::Value);
        }
        let decides = DECIDING.iter().any(|name| call.method == name);
        match call.args.first() {
            Some(Expr::Closure(closure)) if decides => self.apart(|this| match &*closure.body {
                block @ Expr::Block(_) => this.expression(block, Tail::Value),
                decision => this.condition(decision, true, true),
            }),
            _ => self.arguments(call),
        }
    }

    /// A closure or a later block doesn't return its function's value.
    fn apart(&mut self, walk: impl FnOnce(&mut Self)) {
        let outer = std::mem::replace(&mut self.returns, Tail::Value);
        walk(self);
        self.returns = outer;
    }

    fn choice(&mut self, choice: &ExprMatch, tail: Tail) {
        if choice.arms.iter().any(|arm| is_bool(&arm.pat)) {
            self.condition(&choice.expr, true, true);
        } else {
            self.expression(&choice.expr, Tail::Value);
        }
        for (index, arm) in choice.arms.iter().enumerate() {
            let rest = &choice.arms[index + 1..];
            match &arm.guard {
                Some((_, guard)) => self.condition(guard, true, true),
                None if !is_catch_all(arm) && rest.iter().any(is_catch_all) => {
                    self.switch_off("arm", &arm.pat, "", " if ");
                }
                None => {}
            }
            self.expression(&arm.body, tail);
        }
    }
}

fn tail_of(output: &ReturnType) -> Tail {
    if values::is_unit(output) {
        Tail::Effect
    } else if values::is_success(output) {
        Tail::Success
    } else if values::is_bool(output) {
        Tail::Decision
    } else {
        Tail::Value
    }
}

/// Whether an item is compiled for tests or for a feature only.
fn is_left_alone(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        let last = attribute.path().segments.last();
        attribute.path().is_ident("cfg") || last.is_some_and(|last| last.ident == "test")
    })
}

/// Whether an expression is a call or an assignment: it can be left out.
fn has_effect(expression: &Expr) -> bool {
    match expression {
        Expr::Try(inner) => has_effect(&inner.expr),
        Expr::Await(inner) => has_effect(&inner.base),
        Expr::MethodCall(_) | Expr::Assign(_) => true,
        Expr::Call(call) => match &*call.func {
            // `Ok`, `Some` and other constructors have none.
            Expr::Path(path) => {
                let last = path.path.segments.last();
                last.is_some_and(|last| last.ident.to_string().starts_with(char::is_lowercase))
            }
            _ => true,
        },
        Expr::Binary(binary) => assigns(&binary.op),
        _ => false,
    }
}

fn assigns(op: &syn::BinOp) -> bool {
    use syn::BinOp::{
        AddAssign, BitAndAssign, BitOrAssign, BitXorAssign, DivAssign, MulAssign, RemAssign,
        ShlAssign, ShrAssign, SubAssign,
    };
    matches!(
        op,
        AddAssign(_)
            | BitAndAssign(_)
            | BitOrAssign(_)
            | BitXorAssign(_)
            | DivAssign(_)
            | MulAssign(_)
            | RemAssign(_)
            | ShlAssign(_)
            | ShrAssign(_)
            | SubAssign(_)
    )
}

fn is_arithmetic(expression: &Expr) -> bool {
    matches!(expression, Expr::Binary(binary) if !assigns(&binary.op)) && !is_condition(expression)
}

fn is_bool(pattern: &Pat) -> bool {
    matches!(pattern, Pat::Lit(literal) if matches!(literal.lit, syn::Lit::Bool(_)))
}

fn is_catch_all(arm: &Arm) -> bool {
    let catches = match &arm.pat {
        Pat::Wild(_) => true,
        Pat::Ident(name) => {
            name.subpat.is_none() && name.ident.to_string().starts_with(char::is_lowercase)
        }
        _ => false,
    };
    catches && arm.guard.is_none()
}

/// `OrderLog` of `OrderLog<'a>`.
fn first_name(of: &str) -> String {
    of.chars().take_while(|c| c.is_alphanumeric() || "_:".contains(*c)).collect()
}
