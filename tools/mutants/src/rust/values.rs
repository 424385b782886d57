//! Constants that a function can return in place of its work.

use syn::{GenericArgument, PathArguments, ReturnType, Type, TypePath};

use super::operators::is_whole_number;

/// Types that are empty by default.
const COLLECTIONS: &[&str] =
    &["BTreeMap", "BTreeSet", "HashMap", "HashSet", "String", "Vec", "VecDeque"];

/// Statements that end a function at once, for its return type.
pub(super) fn returns(output: &ReturnType) -> Vec<String> {
    match output {
        ReturnType::Default => vec!["return".to_owned()],
        ReturnType::Type(_, of) => {
            values(of).into_iter().map(|value| format!("return {value}")).collect()
        }
    }
}

/// Whether a function returns nothing, or nothing but its success.
pub(super) fn is_unit(output: &ReturnType) -> bool {
    matches!(output, ReturnType::Default)
}

/// Whether a function returns nothing but its success.
pub(super) fn is_success(output: &ReturnType) -> bool {
    let ReturnType::Type(_, of) = output else {
        return false;
    };
    succeeds_with(of)
        .is_some_and(|inner| matches!(inner, Type::Tuple(tuple) if tuple.elems.is_empty()))
}

/// Whether a function returns a bool.
pub(super) fn is_bool(output: &ReturnType) -> bool {
    matches!(output, ReturnType::Type(_, of) if matches!(&**of, Type::Path(path) if path.path.is_ident("bool")))
}

fn values(of: &Type) -> Vec<String> {
    let texts = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect();
    if is_whole_number(of) {
        return texts(&["0", "1"]);
    }
    match of {
        Type::Tuple(tuple) if tuple.elems.is_empty() => texts(&["()"]),
        Type::Reference(reference) => match &*reference.elem {
            Type::Path(path) if path.path.is_ident("str") => texts(&["\"\""]),
            _ => Vec::new(),
        },
        Type::Path(path) => match name(path).as_str() {
            "bool" => texts(&["true", "false"]),
            "f32" | "f64" => texts(&["0.0"]),
            "Duration" => texts(&["std::time::Duration::ZERO"]),
            "Option" => texts(&["None"]),
            name if COLLECTIONS.contains(&name) => texts(&["Default::default()"]),
            _ => succeeds_with(of)
                .map(values)
                .unwrap_or_default()
                .iter()
                .map(|value| format!("Ok({value})"))
                .collect(),
        },
        _ => Vec::new(),
    }
}

/// The type of a result's value.
fn succeeds_with(of: &Type) -> Option<&Type> {
    let Type::Path(path) = of else {
        return None;
    };
    let last = path.path.segments.last()?;
    let PathArguments::AngleBracketed(arguments) = &last.arguments else {
        return None;
    };
    let first = arguments.args.iter().find_map(|argument| match argument {
        GenericArgument::Type(of) => Some(of),
        _ => None,
    });
    first.filter(|_| last.ident.to_string().ends_with("Result"))
}

fn name(path: &TypePath) -> String {
    path.path.segments.last().map(|last| last.ident.to_string()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_have_constants() {
        for (of, expected) in [
            ("-> bool", &["return true", "return false"][..]),
            ("-> sqlx::Result<Option<Order>>", &["return Ok(None)"]),
            ("-> Result<(), E>", &["return Ok(())"]),
            ("-> RedisResult<u64>", &["return Ok(0)", "return Ok(1)"]),
            ("-> Vec<u8>", &["return Default::default()"]),
            ("-> Order", &[]),
            ("", &["return"]),
        ] {
            let output: ReturnType = syn::parse_str(of).expect("a return type");
            assert_eq!(returns(&output), expected, "{of}");
        }
    }
}
